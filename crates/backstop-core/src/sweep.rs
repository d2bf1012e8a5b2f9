//! What becomes of the rows that a sweep finds: work that was never queued, or got lost on its way.
//!
//! A finding is a row of the user's data that is unprocessed and older than the sweep's threshold.
//! Its job is known by a unique key that is made of the row, so that a row whose work is in hand is
//! never given a second job.
//!
//! | the row's key is held by | a dead letter has its key | recovered before | its fate |
//! |---|---|---|---|
//! | a job that waits, is ready, or runs | | | alive: nothing is done |
//! | a dead job | | | dead: a person has to look at it |
//! | a job that ended otherwise and keeps its key | | | spent: its key says that it must not be done twice |
//! | nobody | yes | | dead |
//! | nobody | no | less often than the sweep allows | recover: a job is enqueued under the key |
//! | nobody | no | as often | give up: it is buried as a dead letter |
//!
//! A job that was cancelled holds no key, and its row is lost as any other: to cancel says that
//! this job is not to run, and nothing of the row. Whoever means the work not to be done marks the
//! row as processed. Should the key outlast the cancelled job instead, later work under that key,
//! which somebody does mean, would be taken for a duplicate.
//!
//! A second row with the same key shares the fate of the first, and gets no job of its own: where
//! the first is recovered or given up, it is repeated.
//!
//! A key is one of its queue. A dead letter that somebody moved to another queue is that queue's
//! from then on, and its row, if it is not marked as processed, gets a new job in this one: whoever
//! means the moved one to do the work marks the row, or requeues the letter where it is. To look
//! for the key in other queues would be worse: there it may stand for other work, and lost work
//! would pass for alive.

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

/// A row that was found, and what its job is to be.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What the row is known by.
    pub row: Value,
    /// The unique key of its job.
    pub key: UniqueKey,
    /// What its job's handler gets.
    pub payload: Payload,
}

/// What the store knows of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FindingFacts {
    pub holder: Option<UniqueKeyHolder>,
    /// Whether a dead letter of its queue has its key.
    pub is_dead: bool,
    /// How often the sweep recovered it.
    pub recovered: u32,
}

/// What becomes of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingDecision {
    /// Its job is on its way.
    Alive,
    /// Its job is dead, and waits for a person.
    Dead,
    /// Its job ended and keeps its key, so that it is not done twice.
    Spent,
    Recover,
    /// It was recovered often enough, and becomes a dead letter.
    GiveUp,
    /// Another row has its key, and is recovered or given up.
    Repeated,
}

/// The fate of each finding, by the table in this module's head.
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

/// A cutoff as text, for databases that keep times as text: `YYYY-MM-DD HH:MM:SS`, in UTC.
pub fn cutoff_text(cutoff: Time) -> String {
    let micros = cutoff.as_micros();
    let whole = Time::from_micros(micros - micros.rem_euclid(1_000_000)).to_string();
    whole
        .get(..19)
        .map_or_else(|| whole.clone(), |seconds| seconds.replace('T', " "))
}

#[cfg(test)]
mod tests;
