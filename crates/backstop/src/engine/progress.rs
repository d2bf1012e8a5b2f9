//! What a worker has done so far.

use backstop_core::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a worker has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerProgress {
    pub started: u64,
    pub done: u64,
    /// Runs that failed and will be tried again.
    pub retried: u64,
    pub dead: u64,
    /// Jobs called off by their handlers.
    pub cancelled: u64,
    /// Runs given back, with the attempt refunded.
    pub released: u64,
    /// Runs whose lease was lost before they ended.
    pub lost: u64,
    /// Jobs of dead workers taken over.
    pub recovered: u64,
}

impl WorkerProgress {
    /// Runs whose end was accepted.
    pub const fn settled(&self) -> u64 {
        self.done + self.retried + self.dead + self.cancelled + self.released
    }
}

#[derive(Default)]
pub(crate) struct ProgressCounters {
    started: AtomicU64,
    done: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    cancelled: AtomicU64,
    released: AtomicU64,
    lost: AtomicU64,
    recovered: AtomicU64,
}

impl ProgressCounters {
    pub(crate) fn count_started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// A job taken over from a dead worker; one that is not given another worker counts as dead as
    /// well.
    pub(crate) fn count_recovered(&self, outcome: &Outcome) {
        self.recovered.fetch_add(1, Ordering::Relaxed);
        if matches!(outcome, Outcome::Dead { .. }) {
            self.count_settled(outcome);
        }
    }

    pub(crate) fn count_settled(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Done(_) => &self.done,
            Outcome::Retry { .. } => &self.retried,
            Outcome::Dead { .. } => &self.dead,
            Outcome::Cancelled { .. } => &self.cancelled,
            Outcome::Released { .. } | Outcome::Reran { .. } | Outcome::Lost { .. } => {
                &self.released
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> WorkerProgress {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerProgress {
            started: read(&self.started),
            done: read(&self.done),
            retried: read(&self.retried),
            dead: read(&self.dead),
            cancelled: read(&self.cancelled),
            released: read(&self.released),
            lost: read(&self.lost),
            recovered: read(&self.recovered),
        }
    }
}
