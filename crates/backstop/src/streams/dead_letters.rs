//! What becomes of an event that failed for good.

use super::event::StreamEvent;
use crate::client::Backstop;
use crate::with_retry::IdSource;
use crate::with_retry::dead_letter::keep;
use backstop_core::failure::{
    DeathContext, ErrorReport, FailureCause, FailureHistory, FailureRecord,
};
use backstop_core::limits::PAYLOAD_BYTES_MAX;
use backstop_core::port::{EnqueueOutcome, NewDeadLetter, StoreError};
use backstop_core::verdict::EndReason;
use backstop_core::{
    JobId, Kind, NewJob, Payload, QueueName, StreamKey, StreamName, Time, WorkerName,
};

/// What the names of their queues begin with.
const QUEUE_PREFIX: &str = "streams.";

/// The queue in which dead letters of a stream lie, and wait when somebody requeues them.
pub fn dead_letter_queue(stream: &StreamName) -> QueueName {
    QueueName::new(&format!("{QUEUE_PREFIX}{stream}"))
        .expect("a stream's name has the letters of a queue's, and leaves room for the prefix")
}

/// The stream whose dead letters lie in this queue, if it is one of theirs.
pub fn dead_letter_stream(queue: &QueueName) -> Option<StreamName> {
    StreamName::new(queue.as_str().strip_prefix(QUEUE_PREFIX)?).ok()
}

/// The same for every run of an event: buried twice, it is one letter.
pub(super) fn dead_record_id(event: &StreamEvent) -> JobId {
    dead_letter_id(
        &event.stream,
        &event.key,
        event.position,
        event.effect.as_str(),
    )
}

/// The letter of what was to be handled there under this word.
pub(super) fn dead_letter_id(
    stream: &StreamName,
    key: &StreamKey,
    position: i64,
    effect: &str,
) -> JobId {
    JobId::named(&format!("{stream}\0{key}\0{position}\0{effect}"))
}

/// How it failed the last time.
pub(super) struct FinalFailure {
    pub(super) cause: FailureCause,
    pub(super) error: ErrorReport,
    pub(super) reason: EndReason,
    pub(super) attempts: u32,
}

/// The dead letter of an event.
pub(super) fn burial(
    event: &StreamEvent,
    death: FinalFailure,
    worker: &WorkerName,
    now: Time,
) -> NewDeadLetter {
    let queue = dead_letter_queue(&event.stream);
    let kind = Kind::new(event.stream.as_str()).unwrap_or_default();
    let context = DeathContext {
        worker: Some(worker.to_string()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..DeathContext::default()
    };
    let failure = FailureRecord::new(now, death.attempts, death.cause, worker, death.error);
    let job = NewJob::new(
        dead_record_id(event),
        queue,
        kind,
        Payload::from_stored(event.to_json()),
    );
    NewDeadLetter {
        job: NewJob {
            run_at: Some(now),
            ..job
        },
        attempts: death.attempts,
        lost_leases: 0,
        requeues: 0,
        inserted_at: now,
        finished_at: now,
        reason: death.reason,
        history: FailureHistory::default()
            .with_failure(failure)
            .with_context(context),
    }
}

/// Bytes of something unreadable that are kept: what is around them must fit, too.
const UNREADABLE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 8;

/// The dead letter of bytes that are no record of the stream. `origin` names where they came from:
/// the same is one letter.
pub(super) fn unreadable_burial(
    stream: &StreamName,
    origin: &str,
    bytes: &[u8],
    error: &str,
    worker: &WorkerName,
    now: Time,
) -> NewDeadLetter {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(UNREADABLE_BYTES_MAX)]);
    let payload =
        serde_json::json!({ "stream": stream, "origin": origin, "error": error, "text": text });
    let id = JobId::named(&format!("{stream}\0{origin}"));
    let kind = Kind::new("unreadable").unwrap_or_default();
    let job = NewJob::new(
        id,
        dead_letter_queue(stream),
        kind,
        Payload::from_stored(payload.to_string().into_bytes()),
    );
    let report = ErrorReport {
        error_type: Some("UnreadableRecord".to_owned()),
        ..ErrorReport::message(error)
    };
    let failure = FailureRecord::new(now, 1, FailureCause::Failed, worker, report);
    NewDeadLetter {
        job: NewJob {
            run_at: Some(now),
            ..job
        },
        attempts: 1,
        lost_leases: 0,
        requeues: 0,
        inserted_at: now,
        finished_at: now,
        reason: EndReason::Rejected,
        history: FailureHistory::default().with_failure(failure),
    }
}

/// Where a dead letter may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeadLetterTarget {
    /// To the store only: while it has no room, the key waits.
    Store,
    /// Wherever there is room, since the store is silent: the spill directory, at the worst the
    /// log.
    Anywhere,
}

/// Why a dead letter is not where it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum BuryError {
    #[error("the stream's dead letters are at their bound; make room with `backstop dead`")]
    NoRoom,
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) async fn bury(
    backstop: &Backstop,
    burial: NewDeadLetter,
    target: DeadLetterTarget,
) -> Result<(), BuryError> {
    if target == DeadLetterTarget::Anywhere {
        keep(backstop, burial, IdSource::Generated).await;
        return Ok(());
    }
    let id = burial.job.id;
    let answers = backstop.store().bury(vec![burial], backstop.now()).await?;
    if answers.first() == Some(&EnqueueOutcome::Conflict) {
        // Its id is made of what it is about: it was buried before, and somebody moved it since.
        tracing::warn!(%id, "this dead letter is in another queue already");
    }
    if answers.first() == Some(&EnqueueOutcome::Full) {
        Err(BuryError::NoRoom)
    } else {
        Ok(())
    }
}
