//! Decides which jobs are charged when a worker vanishes.
//!
//! A process that dies does not report which of its jobs killed it, or whether one did. If no
//! suspect was running, all of its jobs become suspects. From then on, a worker runs at most one of
//! them at a time:
//!
//! | the vanished worker held | what happens to that job |
//! |---|---|
//! | a suspect whose run had started | charged with a lost lease; dead at the third in 72 h |
//! | a suspect whose run had not started | given back: it only waited |
//! | another job, while a suspect was running | given back: the suspect is the likelier cause |
//! | another job, while no suspect was running | charged without proof, and a suspect from now on |
//!
//! A *suspect* is a job with a lost lease in the last 72 h. A worker runs one suspect at a time,
//! beside ordinary jobs. Before the run starts, the worker records in the store that it does
//! ([`crate::port::JobStore::begin`]). So when the worker dies, there is only one candidate.
//! Ordinary jobs pay nothing for this: only the runs of suspects are recorded.
//!
//! A suspect at its *last strike*, whose next lost lease would make it dead, has the whole worker
//! to itself for a while, so it cannot be charged for a death that another job caused. Only a job
//! that does not end while the suspect waits for that may still run beside it.
//!
//! Jobs are judged per vanished worker. The jobs of one worker may come in several batches, because
//! they expire at different times or do not fit into one call. Each batch is safe by itself: an
//! innocent job can be charged once, without proof, and not again while it is a suspect, because a
//! suspect is charged only for its own run. A caller that remembers which workers vanished while a
//! suspect was running passes them in as `before`; then not even that one charge happens.
//!
//! If a vanished worker had started several suspects (because the record of one arrived late), all
//! of them are charged: any of them may have killed it.

use crate::failure::FailureHistory;
use crate::lease::{LeasedRun, WorkerName};
use crate::limits::{LOST_LEASES_UNTIL_DEAD, LOST_WITHIN};
use crate::port::SeizedRun;
use crate::time::Time;
use crate::verdict::{Outcome, Settlement, judge_lost};
use std::collections::BTreeSet;

/// The workers that a job lost in the last 72 h, latest last. A job with at least one is a suspect.
pub fn find_lost_workers(lost_leases: u32, history: &FailureHistory, now: Time) -> Vec<String> {
    // Without a lost lease there is no need to parse the history.
    if lost_leases == 0 {
        Vec::new()
    } else {
        history.lost_workers(now, LOST_WITHIN)
    }
}

/// Whether a job has lost a worker lately. A worker runs at most one such job at a time.
pub fn is_suspect(run: &LeasedRun, now: Time) -> bool {
    !find_lost_workers(run.lost_leases, &run.history, now).is_empty()
}

/// Whether the next lost lease would make this job dead.
pub fn is_at_last_strike(run: &LeasedRun, now: Time) -> bool {
    let strikes = find_lost_workers(run.lost_leases, &run.history, now).len();
    strikes > 0 && strikes + 1 >= LOST_LEASES_UNTIL_DEAD
}

/// The workers of a batch that vanished while a suspect ran.
pub fn workers_lost_with_suspect_running(
    batch: &[SeizedRun],
    now: Time,
) -> impl Iterator<Item = &WorkerName> {
    let begun = batch
        .iter()
        .filter(move |seized| seized.begun && is_suspect(&seized.run, now));
    begun.map(|seized| &seized.vanished.worker)
}

/// Decides what happens to jobs that were taken over, in the order of `batch`. `before` names
/// workers that are known from earlier batches to have vanished while a suspect ran.
pub fn judge_vanished(
    batch: &[SeizedRun],
    before: &BTreeSet<WorkerName>,
    now: Time,
) -> Vec<Settlement> {
    let accused: BTreeSet<&WorkerName> = workers_lost_with_suspect_running(batch, now)
        .chain(before)
        .collect();
    let judge = |seized: &SeizedRun| {
        let is_charged = if is_suspect(&seized.run, now) {
            seized.begun
        } else {
            !accused.contains(&seized.vanished.worker)
        };
        if is_charged {
            judge_lost(&seized.run, &seized.vanished, now)
        } else {
            Outcome::Released { at: now }
        }
    };
    batch
        .iter()
        .map(|seized| Settlement {
            lease: seized.run.lease.clone(),
            outcome: judge(seized),
        })
        .collect()
}

#[cfg(test)]
mod tests;
