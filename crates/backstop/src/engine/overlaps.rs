//! Finds runs that were alive while another worker could have had their job, and writes them down.
//!
//! | the run ended … | its settlement | then |
//! |---|---|---|
//! | before its lease was over | whatever | nothing: nobody else can have begun |
//! | later | applied | nothing: nobody had taken the job over |
//! | later | stale, or the store cannot be asked any more | it is written down and counted |

use super::Engine;
use super::metrics;
use crate::overlaps::RunOverlap;
use backstop_core::limits::OVERLAPS_MAX;
use backstop_core::{Lease, LeasedRun, Span, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// What is known of overlaps and not written down yet.
#[derive(Default)]
pub(crate) struct OverlapRecorder(Mutex<PendingOverlaps>);

#[derive(Default)]
struct PendingOverlaps {
    /// Runs that ended late, until the store has said whether that mattered.
    late: BTreeMap<Lease, RunOverlap>,
    /// What the store has not been told.
    unwritten: VecDeque<RunOverlap>,
}

impl OverlapRecorder {
    fn lock(&self) -> MutexGuard<'_, PendingOverlaps> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run ended after its lease was over.
    fn note_late(&self, lease: &Lease, overlap: RunOverlap) {
        let mut known = self.lock();
        if known.late.len() < OVERLAPS_MAX {
            known.late.insert(lease.clone(), overlap);
        }
    }

    /// The job was still its own.
    pub(crate) fn dismiss(&self, lease: &Lease) {
        self.lock().late.remove(lease);
    }

    /// The job was somebody else's, or may have been.
    pub(crate) fn confirm(&self, lease: &Lease) {
        let mut known = self.lock();
        let Some(overlap) = known.late.remove(lease) else {
            return;
        };
        tracing::warn!(job = %overlap.job, queue = %overlap.queue, "two runs of this job may have been alive together");
        metrics::count_overlap(&overlap.queue);
        if known.unwritten.len() < OVERLAPS_MAX {
            known.unwritten.push_back(overlap);
        }
    }

    /// Writes down what is known; what the store does not take is told with the next.
    pub(crate) async fn write_confirmed(&self, engine: &Engine) {
        loop {
            let Some(overlap) = self.lock().unwritten.front().cloned() else {
                return;
            };
            if let Err(error) = engine.backstop.note_overlap(&overlap).await {
                return tracing::warn!(%error, job = %overlap.job, "an overlap could not be written down");
            }
            self.lock().unwritten.pop_front();
        }
    }
}

impl Engine {
    /// Takes note of the end of a run that `began` then: whether it came too late.
    pub(crate) fn note_late_end(&self, run: &LeasedRun, began_at: Time) {
        let Some(noticed) = self.active_leases.note_run_end(&run.lease) else {
            return;
        };
        let now = self.now();
        let overlap = RunOverlap {
            job: run.lease.job,
            queue: run.lease.queue.clone(),
            kind: run.kind.clone(),
            worker: self.name.to_string(),
            lease: run.lease.number.to_string(),
            began_at,
            noticed_at: now.before(Span::from(Instant::now().duration_since(noticed))),
            ended_at: now,
        };
        self.overlaps.note_late(&run.lease, overlap);
    }
}
