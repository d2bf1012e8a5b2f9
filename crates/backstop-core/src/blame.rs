//! Who is charged when a worker vanishes with jobs in its hands.
//!
//! A process that dies tells nobody which of its jobs killed it, or whether one did. So all of them
//! are suspected first, and then each is tried alone:
//!
//! | what the vanished worker held | what becomes of it |
//! |---|---|
//! | a suspect that had begun | charged: it lost a lease, and the third within 72 h is its death: `crashed_worker` |
//! | a suspect that had not begun | given back: it only waited |
//! | any other job, beside a suspect that had begun | given back: what has lost a worker before is the likelier cause |
//! | any other job, where no suspect had begun | charged without proof, and a suspect from now on |
//!
//! A *suspect* is a job with a lost lease in the last 72 h. A worker runs one suspect at a time and
//! notes in the store that it begins, before it does ([`crate::port::Backlog::begin`]): when it
//! dies, there is one name. The price of an ordinary job is nothing: what never lost a worker is
//! not noted.
//!
//! A suspect at its *last strike*, whose next loss would be its death, has the whole worker to
//! itself for a while, so that what kills the worker beside it cannot be put down to it.
//!
//! Judged per vanished worker, not per job. The jobs of one worker may come in several batches,
//! because they expire at different times or are more than one call takes over. Each batch is safe
//! by itself: an innocent job can be charged once, without proof, and never again, because from
//! then on only a run of its own can cost it anything. Whoever remembers which workers had begun a
//! suspect in an earlier batch says so, and spares the rest even that.
//!
//! Where a worker of several begun suspects vanishes (the note of one of them came late), all of
//! them are charged: any of them may have done it.

use crate::failure::FailureHistory;
use crate::lease::{LeasedRun, WorkerName};
use crate::limits::{LOST_LEASES_MAX, LOST_WITHIN};
use crate::port::SeizedRun;
use crate::time::Time;
use crate::verdict::{Outcome, Settlement, judge_lost};
use std::collections::BTreeSet;

/// The workers a job has lost lately, the latest last: more than none make it a suspect.
pub fn strikes(lost_leases: u32, history: &FailureHistory, now: Time) -> Vec<String> {
    // What never lost a worker needs no look at its past.
    if lost_leases == 0 {
        Vec::new()
    } else {
        history.lost_workers(now, LOST_WITHIN)
    }
}

/// Whether a job has lost a worker lately, and runs alone among its like.
pub fn is_suspect(run: &LeasedRun, now: Time) -> bool {
    !strikes(run.lost_leases, &run.history, now).is_empty()
}

/// Whether the next loss of a worker would be this job's death.
pub fn is_at_last_strike(run: &LeasedRun, now: Time) -> bool {
    let strikes = strikes(run.lost_leases, &run.history, now).len();
    strikes > 0 && strikes + 1 >= LOST_LEASES_MAX
}

/// The workers that vanished while a suspect ran.
pub fn accused_workers(batch: &[SeizedRun], now: Time) -> impl Iterator<Item = &WorkerName> {
    let begun = batch
        .iter()
        .filter(move |seized| seized.begun && is_suspect(&seized.run, now));
    begun.map(|seized| &seized.vanished.worker)
}

/// What becomes of jobs taken over; `before` are workers known to have vanished while a suspect
/// ran. In the order of `batch`.
pub fn judge_vanished(
    batch: &[SeizedRun],
    before: &BTreeSet<WorkerName>,
    now: Time,
) -> Vec<Settlement> {
    let accused: BTreeSet<&WorkerName> = accused_workers(batch, now).chain(before).collect();
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
