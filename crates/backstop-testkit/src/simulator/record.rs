//! What happens in the simulated world, written down where no simulated fault can reach.

use crate::history::{Accepted, Event, Heard, History, Ran};
use backstop::Run;
use backstop_core::port::Enqueued;
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, Lease, WorkerName};
use std::sync::{Arc, Mutex, PoisonError};

/// The one log of a simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    fn record(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(super) fn pushed(&self, job: JobId, result: Option<Enqueued>) {
        let heard = match result {
            Some(Enqueued::Inserted | Enqueued::Same) => Heard::Ok,
            // A duplicate was not taken in; if an earlier try of the same push was, that is fine too.
            Some(Enqueued::Duplicate(_)) | None => Heard::Unknown,
        };
        self.record(Event::Enqueued { job, heard });
    }

    pub(super) fn granted(&self, lease: &Lease) {
        self.record(Event::Granted { job: lease.job, lease: lease.number });
    }

    pub(super) fn started(&self, run: &Run, worker: &str) {
        let (job, lease) = (run.id(), run.lease().number);
        self.record(Event::Started { job, attempt: run.attempt(), lease, worker: WorkerName::new(worker) });
    }

    pub(super) fn ended(&self, run: &Run, ran: Ran) {
        self.record(Event::Ended { job: run.id(), lease: run.lease().number, ran });
    }

    pub(super) fn accepted(&self, settlement: &Settlement) {
        let accepted = Accepted::from(&settlement.outcome);
        self.record(Event::Settled { job: settlement.lease.job, lease: settlement.lease.number, accepted });
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn history(&self) -> History {
        History::of(self.events())
    }
}
