//! What the threads and tasks of a source share.

use crate::assignment::{Assignment, End, Ticket};
use crate::meters;
use crate::sink::SinkError;
use crate::status::{Phase, Status, Stopped, Trouble};
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) struct Board {
    /// Nothing is to be given out any more, and no batch tried again.
    pub(crate) stopping: CancellationToken,
    /// What is still with the sink is to be dropped.
    pub(crate) abandoned: CancellationToken,
    pub(crate) phase: watch::Sender<Phase>,
    /// Set when a stop has waited long enough, before the group is left.
    pub(crate) left_behind: OnceLock<Stopped>,
    assignment: Mutex<Assignment>,
    trouble: Mutex<Option<Trouble>>,
}

/// What can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Sink,
    Commit,
    Client,
    Survey,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sink => "sink",
            Self::Commit => "commit",
            Self::Client => "client",
            Self::Survey => "survey",
        })
    }
}

impl Board {
    pub(crate) fn new(assignment: Assignment) -> Self {
        Self {
            stopping: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            phase: watch::Sender::new(Phase::Running),
            left_behind: OnceLock::new(),
            assignment: Mutex::new(assignment),
            trouble: Mutex::new(None),
        }
    }

    /// The assignment, for a moment: callbacks of the client lock it too, so never while the client
    /// is called.
    pub(crate) fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch was taken in.
    pub(crate) fn taken_in(&self, ticket: &Ticket) {
        self.assignment().ended(ticket, End::TakenIn);
        meters::taken_in(&ticket.place, ticket.records);
    }

    /// A batch will not be tried again.
    pub(crate) fn given_up(&self, ticket: &Ticket) {
        self.assignment().ended(ticket, End::GivenUp);
    }

    /// A try of a batch has failed.
    pub(crate) fn failed(&self, ticket: &Ticket, error: &SinkError) {
        self.assignment().failed(ticket);
        let (records, place) = (ticket.records, &ticket.place);
        self.trouble(
            Part::Sink,
            &format!("{records} records of {place} were not taken in: {error}"),
        );
    }

    /// Something went wrong that somebody may want to know of.
    pub(crate) fn trouble(&self, part: Part, what: &str) {
        tracing::warn!(%part, "{what}");
        meters::failed(part);
        let trouble = Trouble {
            at: SystemTime::now(),
            what: what.to_owned(),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            phase: self.phase.borrow().clone(),
            partitions: self.assignment().status(),
            trouble: self
                .trouble
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}
