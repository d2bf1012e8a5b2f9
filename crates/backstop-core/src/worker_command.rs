//! Worker commands: an operator tells one worker to take no new jobs, to go on, or to stop.
//!
//! A worker has at most one active command. What a new command does to the active one:
//!
//! | active | quiet | stop | resume |
//! |---|---|---|---|
//! | nothing | quiet is active | stop is active | nothing to take back |
//! | quiet | unchanged | stop is active | nothing is active |
//! | stop | unchanged: stop is stronger | unchanged | nothing is active; too late while it stops |
//!
//! So of two commands that are given at once the stronger one is active, whichever comes first.
//! Resume is too late once the worker reports that it is stopping. A command is for one run of a
//! worker, from its start to its end: a worker that is restarted under the same name has no
//! command.
//!
//! A worker inside a backstop process has another id for each run. A worker behind an HTTP server
//! reports about itself what it likes:
//!
//! | its call reports | the command is for | is the worker meant? |
//! |---|---|---|
//! | its start time | a run with a known id | if it is that run |
//! | its start time | the worker's name only | if it started before the command was given |
//! | only its process | that process, or the name only | unless it was silent before |
//! | only its process | another run | no |
//! | nothing | the last reported run of its name, or the name only | unless it was silent before |
//! | nothing | another run | no |
//!
//! *Silent* means no call for [`WORKER_SILENCE_MAX`]: the process may then have begun its next run.

use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// After a silence of this length, a worker that does not report its start time counts as a new
/// run. Earlier commands are not for it.
pub const WORKER_SILENCE_MAX: Span = Span::secs(30);

/// What an operator tells a worker to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerCommand {
    /// Take no new jobs, but finish the running ones.
    Quiet,
    /// Go on; this takes back quiet or stop.
    Resume,
    /// Finish the running jobs within the grace period, then exit.
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

/// What an operator wants of a worker, until the command is taken back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredWorkerState {
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

/// What a worker currently does with jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    #[default]
    Working,
    Quiet,
    /// It takes no new jobs, and exits after its last one.
    Stopping,
}

impl WorkerState {
    /// The state of a worker from now on. A worker that has begun to stop goes on stopping,
    /// whatever command comes later.
    #[must_use]
    pub const fn with_desired(self, desired: Option<DesiredWorkerState>) -> Self {
        match (self, desired) {
            (Self::Stopping, _) | (_, Some(DesiredWorkerState::Stop)) => Self::Stopping,
            (_, Some(DesiredWorkerState::Quiet)) => Self::Quiet,
            (_, None) => Self::Working,
        }
    }
}

/// What a new command changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandOutcome {
    Given,
    /// Nothing changed: the command was active already, or there was nothing to take back.
    Same,
    /// The worker has begun to stop, and does not go back to work.
    TooLate,
}

/// Applies a command. Returns the active command and what changed. `worker` is the state that the
/// worker reports.
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
    /// An id that no other run has.
    pub id: String,
    pub since: Time,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActiveCommand {
    #[serde(rename = "asked")]
    pub desired_state: DesiredWorkerState,
    pub at: Time,
    pub by: String,
    /// The run that the command is for; `None` if the worker had not reported its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl ActiveCommand {
    /// Whether the command is for this run. A command without a run is for the run that existed
    /// when the command was given.
    pub fn is_for(&self, run: &WorkerRun) -> bool {
        match &self.run {
            Some(meant) => *meant == run.id,
            None => self.at >= run.since,
        }
    }

    /// Whether the command is for the worker that makes a call, by the table above. `last` is the
    /// run that was last reported under its name; `was_silent` says that it made no call for
    /// [`WORKER_SILENCE_MAX`] before this one.
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

    /// Whether the answer depends on a silence before the call.
    pub fn depends_on_silence(&self, identity: &RunIdentity, last: Option<&str>) -> bool {
        self.is_for_call(identity, last, false) && !self.is_for_call(identity, last, true)
    }
}

/// What a call of a worker behind an HTTP server reports about its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunIdentity {
    /// It reports its start time, which identifies the run.
    Run(WorkerRun),
    /// It reports its process, which the next run may share.
    Process(String),
    Nothing,
}

#[cfg(test)]
mod tests;
