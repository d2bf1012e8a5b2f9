//! What becomes of an event that failed for good.

use super::event::Event;
use crate::client::Backstop;
use crate::with_retry::Named;
use crate::with_retry::burial::keep;
use backstop_core::failure::{Cause, Context, ErrorReport, Failure, History};
use backstop_core::limits::PAYLOAD_BYTES_MAX;
use backstop_core::port::{Burial, Enqueued, StoreError};
use backstop_core::verdict::Reason;
use backstop_core::{
    JobId, Kind, NewJob, Payload, QueueName, StreamKey, StreamName, Time, WorkerName,
};

/// What the names of their queues begin with.
const LETTERS: &str = "streams.";

/// The queue in which dead letters of a stream lie, and wait when somebody requeues them.
pub fn letters_queue(stream: &StreamName) -> QueueName {
    QueueName::new(&format!("{LETTERS}{stream}"))
        .expect("a stream's name has the letters of a queue's, and leaves room for the prefix")
}

/// The stream whose dead letters lie in this queue, if it is one of theirs.
pub fn letters_of(queue: &QueueName) -> Option<StreamName> {
    StreamName::new(queue.as_str().strip_prefix(LETTERS)?).ok()
}

/// The same for every run of an event: buried twice, it is one letter.
pub(super) fn record_id(event: &Event) -> JobId {
    letter_id(
        &event.stream,
        &event.key,
        event.position,
        event.effect.as_str(),
    )
}

/// The letter of what was to be handled there under this word.
pub(super) fn letter_id(
    stream: &StreamName,
    key: &StreamKey,
    position: i64,
    effect: &str,
) -> JobId {
    JobId::named(&format!("{stream}\0{key}\0{position}\0{effect}"))
}

/// How it failed the last time.
pub(super) struct Death {
    pub(super) cause: Cause,
    pub(super) error: ErrorReport,
    pub(super) reason: Reason,
    pub(super) attempts: u32,
}

/// The dead letter of an event.
pub(super) fn burial(event: &Event, death: Death, worker: &WorkerName, now: Time) -> Burial {
    let queue = letters_queue(&event.stream);
    let kind = Kind::new(event.stream.as_str()).unwrap_or_default();
    let context = Context {
        worker: Some(worker.to_string()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..Context::default()
    };
    let failure = Failure::new(now, death.attempts, death.cause, worker, death.error);
    let job = NewJob::new(
        record_id(event),
        queue,
        kind,
        Payload::stored(event.to_json()),
    );
    Burial {
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
        history: History::default().with(failure).in_context(context),
    }
}

/// Bytes of something unreadable that are kept: what is around them must fit, too.
const UNREADABLE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 8;

/// The dead letter of bytes that are no record of the stream. `origin` names where they came from:
/// the same is one letter.
pub(super) fn unreadable(
    stream: &StreamName,
    origin: &str,
    bytes: &[u8],
    error: &str,
    worker: &WorkerName,
    now: Time,
) -> Burial {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(UNREADABLE_BYTES_MAX)]);
    let payload =
        serde_json::json!({ "stream": stream, "origin": origin, "error": error, "text": text });
    let id = JobId::named(&format!("{stream}\0{origin}"));
    let kind = Kind::new("unreadable").unwrap_or_default();
    let job = NewJob::new(
        id,
        letters_queue(stream),
        kind,
        Payload::stored(payload.to_string().into_bytes()),
    );
    let report = ErrorReport {
        error_type: Some("UnreadableRecord".to_owned()),
        ..ErrorReport::message(error)
    };
    let failure = Failure::new(now, 1, Cause::Failed, worker, report);
    Burial {
        job: NewJob {
            run_at: Some(now),
            ..job
        },
        attempts: 1,
        lost_leases: 0,
        requeues: 0,
        inserted_at: now,
        finished_at: now,
        reason: Reason::Rejected,
        history: History::default().with(failure),
    }
}

/// Where a dead letter may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    /// To the store only: while it has no room, the key waits.
    Store,
    /// Wherever there is room, since the store is silent: the spill directory, at the worst the
    /// log.
    Anywhere,
}

/// Why a dead letter is not where it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unburied {
    #[error("the stream's dead letters are at their bound; make room with `backstop dead`")]
    NoRoom,
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) async fn bury(
    backstop: &Backstop,
    burial: Burial,
    ground: Ground,
) -> Result<(), Unburied> {
    if ground == Ground::Anywhere {
        keep(backstop, burial, Named::Here).await;
        return Ok(());
    }
    let id = burial.job.id;
    let answers = backstop.store().bury(vec![burial], backstop.now()).await?;
    if answers.first() == Some(&Enqueued::Conflict) {
        // Its id is made of what it is about: it was buried before, and somebody moved it since.
        tracing::warn!(%id, "this dead letter is in another queue already");
    }
    if answers.first() == Some(&Enqueued::Full) {
        Err(Unburied::NoRoom)
    } else {
        Ok(())
    }
}
