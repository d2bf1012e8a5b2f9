//! A history in memory, for tests whose producers and workers are in one process: no fault of the
//! store reaches it.

use super::{Accepted, Event, Heard, History, Ran};
use backstop::Run;
use backstop_core::port::EnqueueOutcome;
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, Lease, WorkerName};
use std::sync::{Arc, Mutex, PoisonError};

/// One log that many write to.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    fn record(&self, event: Event) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    /// A producer handed a job in; `None` if it heard nothing.
    pub fn pushed(&self, job: JobId, result: Option<EnqueueOutcome>) {
        let heard = match result {
            Some(EnqueueOutcome::Inserted | EnqueueOutcome::Same) => Heard::Ok,
            // A duplicate was not taken in; if an earlier try of the same push was, that is fine
            // too.
            Some(
                EnqueueOutcome::Duplicate(_) | EnqueueOutcome::Full | EnqueueOutcome::Conflict,
            )
            | None => Heard::Unknown,
        };
        self.record(Event::Enqueued { job, heard });
    }

    /// The store gave a job out.
    pub fn granted(&self, lease: &Lease) {
        self.record(Event::Granted {
            job: lease.job,
            lease: lease.number,
        });
    }

    /// A handler was called.
    pub fn started(&self, run: &Run, worker: &str) {
        let (job, lease) = (run.id(), run.lease().number);
        self.record(Event::Started {
            job,
            attempt: run.attempt(),
            lease,
            worker: WorkerName::new(worker),
        });
    }

    /// A handler comes back.
    pub fn ended(&self, run: &Run, ran: Ran) {
        self.record(Event::Ended {
            job: run.id(),
            lease: run.lease().number,
            ran,
        });
    }

    /// The store accepted the end of a run.
    pub fn accepted(&self, settlement: &Settlement) {
        let accepted = Accepted::from(&settlement.outcome);
        self.record(Event::Settled {
            job: settlement.lease.job,
            lease: settlement.lease.number,
            accepted,
        });
    }

    /// All that was written down, in order.
    pub fn events(&self) -> Vec<Event> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The same, to be checked.
    pub fn history(&self) -> History {
        History::of(self.events())
    }
}
