//! The state that the threads and tasks of a consumer share.

use crate::assignment::{BatchTicket, PartitionAssignment, SinkOutcome};
use crate::meters;
use crate::sink::MessageSinkError;
use crate::status::{ConsumerFailure, ConsumerPhase, ConsumerStatus, ConsumerStopReport};
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) struct ConsumerState {
    /// Cancelled when no batch may be handed out or tried again.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the batches still in the sink must be dropped.
    pub(crate) abandoned: CancellationToken,
    pub(crate) phase: watch::Sender<ConsumerPhase>,
    /// Set when a stop has waited long enough, before the consumer leaves the group.
    pub(crate) left_behind: OnceLock<ConsumerStopReport>,
    assignment: Mutex<PartitionAssignment>,
    last_failure: Mutex<Option<ConsumerFailure>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConsumerPart {
    Sink,
    Commit,
    Client,
    Survey,
}

impl fmt::Display for ConsumerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sink => "sink",
            Self::Commit => "commit",
            Self::Client => "client",
            Self::Survey => "survey",
        })
    }
}

impl ConsumerState {
    pub(crate) fn new(assignment: PartitionAssignment) -> Self {
        Self {
            stopping: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            phase: watch::Sender::new(ConsumerPhase::Running),
            left_behind: OnceLock::new(),
            assignment: Mutex::new(assignment),
            last_failure: Mutex::new(None),
        }
    }

    /// Locks the assignment. Hold the lock only briefly, and never while calling the client: its
    /// callbacks take this lock, too.
    pub(crate) fn assignment(&self) -> MutexGuard<'_, PartitionAssignment> {
        self.assignment
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a batch as accepted.
    pub(crate) fn mark_accepted(&self, ticket: &BatchTicket) {
        self.assignment().end_batch(ticket, SinkOutcome::Accepted);
        meters::count_accepted(&ticket.place, ticket.records);
    }

    /// Marks a batch that will not be tried again.
    pub(crate) fn mark_abandoned(&self, ticket: &BatchTicket) {
        self.assignment().end_batch(ticket, SinkOutcome::Abandoned);
    }

    /// Marks that a try of a batch has failed.
    pub(crate) fn mark_failed(&self, ticket: &BatchTicket, error: &MessageSinkError) {
        self.assignment().mark_failed(ticket);
        let (records, place) = (ticket.records, &ticket.place);
        self.record_failure(
            ConsumerPart::Sink,
            &format!("{records} records of {place} were not taken in: {error}"),
        );
    }

    /// Logs and counts a failure, and shows it in the status.
    pub(crate) fn record_failure(&self, part: ConsumerPart, what: &str) {
        tracing::warn!(%part, "{what}");
        meters::count_failure(part);
        let failure = ConsumerFailure {
            at: SystemTime::now(),
            what: what.to_owned(),
        };
        *self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    pub(crate) fn status(&self) -> ConsumerStatus {
        ConsumerStatus {
            phase: self.phase.borrow().clone(),
            partitions: self.assignment().status(),
            last_failure: self
                .last_failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}
