//! What an operator asks of one worker: to take no new jobs, to go on, to stop.
//!
//! At most one order stands for a worker. What an order makes of the one that stands:
//!
//! | stands | quiet | stop | resume |
//! |---|---|---|---|
//! | nothing | quiet stands | stop stands | nothing to take back |
//! | quiet | as it was | stop stands | nothing stands |
//! | stop | as it was: to stop is more | as it was | nothing stands; too late once the worker says that it stops |
//!
//! So of two orders that are given at once the greater one stands, whichever comes first. An order
//! is for one run of a worker, from its start to its end: a worker that is started again under the
//! same name has not been asked for anything.
//!
//! A worker of a process has another id for each run. One that speaks through somebody else tells
//! of itself what it likes:
//!
//! | its call tells | the order is for | it is meant |
//! |---|---|---|
//! | when it was started | a run that was told | if it is that run |
//! | when it was started | whoever had that name | if it was started before the order was given |
//! | its process alone | that process, or whoever had that name | unless it was silent for [`SILENCE_MAX`] before: the next run may be the same process again |
//! | its process alone | another run | no |
//! | nothing | the run that was told last under its name, or whoever had that name | unless it was silent |
//! | nothing | another run | no |

use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A worker that does not say when it was started counts as another one after a silence of this
/// length: the orders of before were not for it.
pub const WORKER_SILENCE_MAX: Span = Span::secs(30);

/// What an operator says to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerCommand {
    /// Take no new jobs; what runs may end.
    Quiet,
    /// Go on, whatever you were asked for.
    Resume,
    /// End what runs, within your grace, and then yourself.
    Stop,
}

impl WorkerCommand {
    pub const ALL: [Self; 3] = [Self::Quiet, Self::Resume, Self::Stop];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Resume => "resume",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a worker is asked for, until that is taken back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredWorkerState {
    /// To take no new jobs.
    Quiet,
    Stop,
}

impl DesiredWorkerState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stop => "stop",
        }
    }
}

/// What a worker does about its jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    #[default]
    Working,
    /// It takes no new ones.
    Quiet,
    /// It takes no new ones, and ends with the last one it has.
    Stopping,
}

impl WorkerState {
    /// What a worker does from now on. Who has begun to stop stops, whatever is said later.
    #[must_use]
    pub const fn with_desired(self, desired: Option<DesiredWorkerState>) -> Self {
        match (self, desired) {
            (Self::Stopping, _) | (_, Some(DesiredWorkerState::Stop)) => Self::Stopping,
            (_, Some(DesiredWorkerState::Quiet)) => Self::Quiet,
            (_, None) => Self::Working,
        }
    }
}

/// What became of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandOutcome {
    Given,
    /// What stands is as it was: it was asked for already, or there was nothing to take back.
    Same,
    /// The worker has begun to stop, and does not go back to work.
    TooLate,
}

/// What stands after an order, and what became of it. `duty` is what the worker says that it does.
pub const fn apply_command(
    active: Option<DesiredWorkerState>,
    worker: WorkerState,
    command: WorkerCommand,
) -> (Option<DesiredWorkerState>, CommandOutcome) {
    match (command, active, worker) {
        (WorkerCommand::Resume, _, WorkerState::Stopping) => (active, CommandOutcome::TooLate),
        (WorkerCommand::Resume, Some(_), _) => (None, CommandOutcome::Given),
        (WorkerCommand::Quiet, None, _) => (Some(DesiredWorkerState::Quiet), CommandOutcome::Given),
        (WorkerCommand::Stop, None | Some(DesiredWorkerState::Quiet), _) => {
            (Some(DesiredWorkerState::Stop), CommandOutcome::Given)
        }
        (WorkerCommand::Resume, None, _)
        | (WorkerCommand::Quiet | WorkerCommand::Stop, Some(_), _) => {
            (active, CommandOutcome::Same)
        }
    }
}

/// One run of a worker, from its start to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerRun {
    /// Another one for each run.
    pub id: String,
    pub since: Time,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActiveCommand {
    #[serde(rename = "asked")]
    pub desired_state: DesiredWorkerState,
    pub at: Time,
    pub by: String,
    /// Of which run; `None` if the worker had said nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl ActiveCommand {
    /// Whether this run is meant. An order for a run that was not known is for the one there was
    /// when it was given.
    pub fn is_for(&self, run: &WorkerRun) -> bool {
        match &self.run {
            Some(meant) => *meant == run.id,
            None => self.at >= run.since,
        }
    }

    /// Whether whoever makes a call is meant, by the table above. `last` is the run that was told
    /// last under its name; `was_silent` says that it was not heard of for [`SILENCE_MAX`] before
    /// this call.
    pub fn is_for_call(
        &self,
        identity: &RunIdentity,
        last: Option<&str>,
        was_silent: bool,
    ) -> bool {
        let is_of = |run: Option<&str>| self.run.is_none() || self.run.as_deref() == run;
        match identity {
            RunIdentity::Run(run) => self.is_for(run),
            RunIdentity::Process(process) => !was_silent && is_of(Some(process)),
            RunIdentity::Nothing => !was_silent && is_of(last),
        }
    }

    /// Whether a silence before the call decides.
    pub fn depends_on_silence(&self, identity: &RunIdentity, last: Option<&str>) -> bool {
        self.is_for_call(identity, last, false) && !self.is_for_call(identity, last, true)
    }
}

/// What a call of a worker that speaks through somebody else tells of its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunIdentity {
    /// When it was started: this run and no other.
    Run(WorkerRun),
    /// Its process, which the next run may have as well.
    Process(String),
    Nothing,
}

#[cfg(test)]
mod tests;
