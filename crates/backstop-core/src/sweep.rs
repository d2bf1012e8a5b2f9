//! Sweeps look for work that was never enqueued, or got lost on its way. This module decides what
//! to do about each row that a sweep finds.
//!
//! A finding is a row of the user's data that is unprocessed and older than the sweep's threshold.
//! The row determines the unique key of its job, so a row whose job exists never gets a second one.
//!
//! | the row's key is held by | a dead letter has its key | earlier recoveries | decision |
//! |---|---|---|---|
//! | a job that waits, is ready, or runs | | | alive: do nothing |
//! | a dead job | | | dead: an operator must look at it |
//! | a job that ended otherwise and keeps its key | | | spent: the key forbids doing the work twice |
//! | no job | yes | | dead |
//! | no job | no | fewer than the sweep allows | recover: enqueue a job under the key |
//! | no job | no | as many as the sweep allows | give up: write a dead letter |
//!
//! A cancelled job holds no key, so its row counts as lost like any other. To cancel a job means
//! that this job shall not run, and says nothing about the row. An operator who does not want the
//! work done marks the row as processed. If the key outlasted the cancelled job instead, later work
//! under that key, which is wanted, would be taken for a duplicate.
//!
//! A second row with the same key gets no job of its own. It gets the decision of the first row;
//! where the first is recovered or given up, the second is repeated.
//!
//! A key belongs to its queue. A dead letter that an operator moves to another queue belongs to
//! that queue from then on. Its row, unless it is marked as processed, gets a new job in this
//! queue. An operator who wants the moved dead letter to do the work marks the row, or requeues the
//! dead letter in its old queue. To look for the key in other queues would be worse: there it may
//! stand for other work, and lost work would be taken for alive.

mod column;
mod query;
mod template;
mod turn;

pub use column::{QueryRow, decimal};
pub use query::{BoundQuery, InvalidQuery, SqlDialect};
pub use template::{InvalidRow, InvalidTemplate, PayloadTemplate, TextTemplate, UnknownColumn};
pub use turn::{SweepBusyError, SweepTurn};

use crate::job::JobState;
use crate::payload::Payload;
use crate::port::UniqueKeyHolder;
use crate::time::Time;
use crate::unique::UniqueKey;
use serde_json::Value;
use std::collections::BTreeSet;

/// A row that a sweep found, and the job it should have.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The value that identifies the row.
    pub row: Value,
    /// The unique key of the row's job.
    pub key: UniqueKey,
    /// The payload of the row's job.
    pub payload: Payload,
}

/// The facts about a finding that the store knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FindingFacts {
    pub holder: Option<UniqueKeyHolder>,
    /// Whether a dead letter of the sweep's queue has the key.
    pub is_dead: bool,
    /// How often the sweep has recovered the row.
    pub recovered: u32,
}

/// The decision about a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingDecision {
    /// The job waits, is ready, or runs.
    Alive,
    /// The job is dead, and waits for an operator.
    Dead,
    /// The job has ended and keeps its key, so that the work is not done twice.
    Spent,
    Recover,
    /// The row was recovered often enough, and becomes a dead letter.
    GiveUp,
    /// Another row has the same key, and is recovered or given up.
    Repeated,
}

/// Decides about each finding, by the table in the module head.
pub fn judge<'a>(
    findings: impl IntoIterator<Item = (&'a UniqueKey, FindingFacts)>,
    recoveries_max: u32,
) -> Vec<FindingDecision> {
    let mut seen = BTreeSet::new();
    let judged = findings.into_iter().map(|(key, known)| {
        let fate = decide(known, recoveries_max);
        let is_acted_on = matches!(fate, FindingDecision::Recover | FindingDecision::GiveUp);
        if is_acted_on && !seen.insert(key) {
            FindingDecision::Repeated
        } else {
            fate
        }
    });
    judged.collect()
}

fn decide(known: FindingFacts, recoveries_max: u32) -> FindingDecision {
    match known.holder {
        Some(holder) if holder.is_live() => FindingDecision::Alive,
        Some(holder) if holder.state == Some(JobState::Dead) => FindingDecision::Dead,
        Some(_) if !known.is_dead => FindingDecision::Spent,
        _ if known.is_dead => FindingDecision::Dead,
        _ if known.recovered < recoveries_max => FindingDecision::Recover,
        _ => FindingDecision::GiveUp,
    }
}

/// The cutoff as text, for databases that store times as text: `YYYY-MM-DD HH:MM:SS`, in UTC.
pub fn cutoff_text(cutoff: Time) -> String {
    let micros = cutoff.as_micros();
    let whole = Time::from_micros(micros - micros.rem_euclid(1_000_000)).to_string();
    whole
        .get(..19)
        .map_or_else(|| whole.clone(), |seconds| seconds.replace('T', " "))
}

#[cfg(test)]
mod tests;
