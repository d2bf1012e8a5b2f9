//! Canary redrive: requeue a few dead letters, watch them, and go on with the rest or stop.
//!
//! | phase | what happens | what ends it |
//! |---|---|---|
//! | `canary` | the oldest letters that fit, or the first that were picked, are requeued, `canary` of them | they are out, or there are no more |
//! | `watching` | each is watched until it has ended | all have: `rate`; more than `max_failures` died: `failed` |
//! | `rate` | the others follow at `then_rate`, in that order, and all are watched | none is left: `done`; the share that died again is more than `max_failures` of `canary`: `failed` |
//! | `done`, `failed`, `stopped` | nothing more | |
//!
//! - Letters that are picked, by their ids or as the oldest of a queue, are picked once, when it is
//!   written down.
//! - Only letters that were dead when it started are redriven, and each once, however often its
//!   runner is killed: what is about to be requeued is written down first, and the job's own count
//!   of requeues tells whether it was.
//! - A letter whose queue is full waits, and those of other queues go past it.
//! - A redriven job that is done has succeeded; so has one that is gone, for a job that died would
//!   still be there unless somebody removed it. One that is dead or cancelled has failed; so has
//!   one that was requeued once more meanwhile, for it must have died, and one that can no longer
//!   be read.
//! - One runner at a time: it holds the redrive under a lease, and every write of its is refused
//!   once another has it. Killed, or stopped by Ctrl-C, it can be resumed. One that a server was
//!   asked for is resumed by whichever server of the store comes first.
//!
//! What is here decides; `run.rs` does it.

mod letters;
mod rate;
mod record;
mod run;
mod unserved;
mod waiting;
mod watch;

use super::DeadSelection;
use super::change::IDS_SHOWN;
use backstop_core::port::StoreError;
use backstop_core::redact::Redaction;
use backstop_core::{QueueName, Span, Time};
pub use rate::{InvalidRedriveRate, RedriveRate};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most letters that go first.
pub const CANARY_MAX: u32 = 500;
/// The most letters one redrive requeues; another one takes the rest.
pub const LETTERS_MAX: u64 = 100_000;
/// Letters that go first, where nobody says.
pub const CANARY_DEFAULT: u32 = 5;
/// How many of them may die again, where nobody says.
pub const MAX_FAILURES_DEFAULT: u32 = 0;
/// How fast the others follow, where nobody says.
pub const THEN_RATE_DEFAULT: RedriveRate = RedriveRate::TEN_A_SECOND;
/// How often the canary is looked at.
const WATCH_EVERY: Span = Span::millis(500);
/// The longest wait between two looks at whether somebody wants it to stop.
const WAIT_MAX: Span = Span::secs(1);

/// What to redrive, and how carefully.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedrivePlan {
    /// So many go first: 1 to [`CANARY_MAX`].
    pub canary: u32,
    /// More failures than these among them stop it.
    pub max_failures: u32,
    /// How fast the others follow.
    pub then_rate: RedriveRate,
    pub selection: DeadSelection,
}

/// How far a redrive is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedrivePhase {
    /// The first ones are being requeued.
    Canary,
    Watching,
    Rate,
    /// All that fit were requeued.
    Done,
    Stopped,
    /// It stopped by itself: too many died again.
    Failed,
}

impl RedrivePhase {
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Stopped | Self::Failed)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Watching => "watching",
            Self::Rate => "rate",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for RedrivePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a redrive has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RedriveReport {
    pub id: String,
    pub phase: RedrivePhase,
    pub by: String,
    /// Why, if they said so. Secrets in it are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub started_at: Time,
    /// When it ended, if it has.
    pub ended_at: Option<Time>,
    /// What was asked for; of many ids the first hundred. Secrets in what is looked for are
    /// hidden.
    #[serde(flatten)]
    pub plan: RedrivePlan,
    /// How many letters were picked, where they were: by their ids, or as the oldest of a queue.
    #[serde(default)]
    pub picked: Option<u64>,
    /// How many letters it is about: those picked, or those that fitted when it was written down,
    /// where that can be told without reading them all. Letters that die afterwards are not its
    /// own.
    #[serde(default)]
    pub expected: Option<u64>,
    /// Whether nobody runs it though it has not ended: its runner is gone, or left it. Told when a
    /// redrive is looked at.
    #[serde(default)]
    pub stalled: bool,
    /// How many letters it requeued.
    pub requeued: u64,
    /// How many of them succeeded.
    pub done: u64,
    /// How many of them died again, or were cancelled.
    pub died_again: u64,
    /// How many of them have not ended.
    pub open: u64,
    /// How many letters could not be requeued: another job holds their unique key, or they were
    /// picked and were not dead, or were picked by an id that several queues know, or somebody
    /// else requeued or removed them while they waited for room.
    pub refused: u64,
    /// How many letters could not be read.
    pub damaged: u64,
    /// Why it ended, or what it waits for, in words.
    pub why: Option<String>,
}

impl RedriveReport {
    /// As it is told: whoever runs it goes by what was asked for, to the letter.
    fn redacted(mut self, redaction: &Redaction) -> Self {
        self.plan.selection = self.plan.selection.redacted(redaction);
        self
    }

    /// How many letters it is through with: they are requeued, or stay because they cannot be.
    pub const fn reached(&self) -> u64 {
        self.requeued + self.refused + self.damaged
    }

    /// When the last letter is requeued at the rate that was asked for, as far as `now` can tell:
    /// while the others follow, where it is known how many they are.
    pub fn last_goes_at(&self, now: Time) -> Option<Time> {
        let left = self
            .expected?
            .checked_sub(self.reached())
            .filter(|left| *left > 0)?;
        (self.phase == RedrivePhase::Rate && !self.stalled)
            .then(|| now.after(self.plan.then_rate.duration_of(left)))
    }
}

/// Why a redrive did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedriveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was asked for makes no sense.
    #[error("{0}")]
    BadPlan(String),
    /// There is no such redrive.
    #[error("there is no redrive {0}")]
    NotFound(String),
    #[error("redrive {id} has ended: it is {phase}")]
    Ended { id: String, phase: RedrivePhase },
    #[error(
        "redrive {id} has a runner that was alive moments ago; if it was killed, its hold ends at {until}"
    )]
    Busy {
        id: String,
        /// When its hold ends, unless it goes on.
        until: Time,
    },
    /// This runner was too slow, and another one took over.
    #[error("redrive {0} was taken over by another runner while this one stood still")]
    TakenOver(String),
}

/// What a runner knows beside the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RedriveObservation {
    /// Whether somebody wants it to stop.
    stop_requested: bool,
    /// Whether there may be more letters to requeue.
    has_more: bool,
    /// From when on the rate allows more.
    free_at: Time,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RedriveStep {
    /// Requeue so many of the oldest.
    Requeue(usize),
    Wait(Span),
    /// Go on to this phase.
    Enter(RedrivePhase),
    End(RedrivePhase, String),
}

fn decide(report: &RedriveReport, observed: &RedriveObservation, now: Time) -> RedriveStep {
    let plan = &report.plan;
    if observed.stop_requested {
        return RedriveStep::End(
            RedrivePhase::Stopped,
            "it was stopped on request".to_owned(),
        );
    }
    match report.phase {
        RedrivePhase::Canary | RedrivePhase::Watching
            if report.died_again > u64::from(plan.max_failures) =>
        {
            RedriveStep::End(RedrivePhase::Failed, canary_died(report))
        }
        RedrivePhase::Canary => {
            let missing = u64::from(plan.canary).saturating_sub(report.requeued);
            if missing > 0 && observed.has_more {
                RedriveStep::Requeue(missing as usize)
            } else {
                RedriveStep::Enter(RedrivePhase::Watching)
            }
        }
        RedrivePhase::Watching if report.open > 0 => RedriveStep::Wait(WATCH_EVERY),
        RedrivePhase::Watching => RedriveStep::Enter(RedrivePhase::Rate),
        RedrivePhase::Rate if share_is_exceeded(report) => {
            RedriveStep::End(RedrivePhase::Failed, share_died(report))
        }
        RedrivePhase::Rate if !observed.has_more => {
            RedriveStep::End(RedrivePhase::Done, describe_end(report))
        }
        RedrivePhase::Rate if report.requeued >= LETTERS_MAX => RedriveStep::End(
            RedrivePhase::Done,
            format!("{LETTERS_MAX} letters are the most for one redrive; start another"),
        ),
        RedrivePhase::Rate if now < observed.free_at => {
            RedriveStep::Wait(observed.free_at.since(now).min(WAIT_MAX))
        }
        RedrivePhase::Rate => RedriveStep::Requeue(plan.then_rate.batch()),
        RedrivePhase::Done | RedrivePhase::Stopped | RedrivePhase::Failed => {
            RedriveStep::End(report.phase, report.why.clone().unwrap_or_default())
        }
    }
}

/// Whether more of the redriven died again than the canary was allowed to lose, in proportion.
fn share_is_exceeded(report: &RedriveReport) -> bool {
    let allowed = u64::from(report.plan.max_failures).saturating_mul(report.requeued);
    report
        .died_again
        .saturating_mul(u64::from(report.plan.canary))
        > allowed
}

fn canary_died(report: &RedriveReport) -> String {
    let RedriveReport {
        died_again,
        requeued,
        plan,
        ..
    } = report;
    format!(
        "{died_again} of the first {requeued} died again, and at most {} may; the others were left alone",
        plan.max_failures
    )
}

fn share_died(report: &RedriveReport) -> String {
    let RedriveReport {
        died_again,
        requeued,
        plan,
        ..
    } = report;
    format!(
        "{died_again} of {requeued} died again, a larger share than {} of {}; the others were left alone",
        plan.max_failures, plan.canary
    )
}

fn describe_end(report: &RedriveReport) -> String {
    match report.requeued {
        0 if report.refused + report.damaged > 0 => {
            "none of those that fit could be requeued".to_owned()
        }
        0 => "no dead letter fits".to_owned(),
        _ => "all that fit were requeued".to_owned(),
    }
}

fn too_many() -> RedriveError {
    let most =
        format!("{LETTERS_MAX} letters are the most for one redrive; start another for the rest");
    RedriveError::BadPlan(most)
}

impl RedrivePlan {
    /// The queue that all its letters are of, where one was named.
    fn queue(&self) -> Option<&QueueName> {
        match &self.selection {
            DeadSelection::Within { queue, .. } | DeadSelection::Oldest { queue, .. } => {
                Some(queue)
            }
            DeadSelection::Matching(filter) => filter.queue.as_ref(),
            DeadSelection::Ids(_) | DeadSelection::All => None,
        }
    }

    /// Refuses one that makes no sense.
    fn check(&self) -> Result<(), RedriveError> {
        let bad = |problem: &str| Err(RedriveError::BadPlan(problem.to_owned()));
        if self.canary == 0 || self.canary > CANARY_MAX {
            return Err(RedriveError::BadPlan(format!(
                "the canary is 1 to {CANARY_MAX} letters, not {}",
                self.canary
            )));
        }
        if self.max_failures >= self.canary {
            return bad(
                "with so many failures allowed the canary could die as a whole; allow fewer than it has letters",
            );
        }
        let is_too_many = |count: usize| count as u64 > LETTERS_MAX;
        match &self.selection {
            DeadSelection::Matching(filter) if filter.blank_field().is_some() => bad(
                "a text or a class that is empty is no filter; say what to look for, or leave it out",
            ),
            nothing if nothing.check().is_err() => {
                bad("nothing is selected; say which letters, or say all")
            }
            DeadSelection::Matching(filter)
                if filter.text.as_ref().is_some_and(|text| text.len() > 1_024) =>
            {
                bad("the text to look for has at most 1024 bytes")
            }
            DeadSelection::Ids(ids) | DeadSelection::Within { ids, .. }
                if is_too_many(ids.len()) =>
            {
                Err(too_many())
            }
            DeadSelection::Oldest { count, .. } if is_too_many(*count) => Err(too_many()),
            _ => Ok(()),
        }
    }

    /// As reports tell it: a report is one small value, and is written at every step.
    fn shortened(mut self) -> Self {
        if let DeadSelection::Ids(ids) | DeadSelection::Within { ids, .. } = &mut self.selection {
            ids.truncate(IDS_SHOWN);
        }
        self
    }
}

#[cfg(test)]
mod tests;
