//! Handlers of streams.

use super::dead_letters::{dead_letter_queue, dead_record_id};
use super::event::StreamEvent;
use super::operate::Stream;
use crate::handler::{Handler, HandlerStates, Run, RunError};
use async_trait::async_trait;
use backstop_core::failure::FailureHistory;
use backstop_core::verdict::RunEnding;
use backstop_core::{Kind, Lease, LeaseNumber, LeasedRun, Payload, Priority, Time};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Handles what a stream brings, per key one event after the other and in the order of positions.
/// Closures are the usual form.
#[async_trait]
pub trait StreamHandler: Send + Sync + 'static {
    /// Handles one event. Until it answers, nothing else of the same key is handled. May be dropped
    /// at any await: when it takes too long, or when the key's lease is lost.
    async fn handle(&self, event: StreamEvent) -> Result<(), RunError>;
}

#[async_trait]
impl<F, Fut> StreamHandler for F
where
    F: Fn(StreamEvent) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send,
{
    async fn handle(&self, event: StreamEvent) -> Result<(), RunError> {
        (self)(event).await
    }
}

/// A handler of jobs that handles a stream: a command or a web service. Its payload is the event as
/// JSON.
pub struct JobStreamHandler(Arc<dyn Handler>);

impl JobStreamHandler {
    pub fn new(handler: impl Handler) -> Self {
        Self(Arc::new(handler))
    }
}

#[async_trait]
impl StreamHandler for JobStreamHandler {
    async fn handle(&self, event: StreamEvent) -> Result<(), RunError> {
        let run = Run::new(
            Arc::new(as_job(&event)),
            HandlerStates::default(),
            CancellationToken::new(),
        );
        match self.0.run(run).await {
            RunEnding::Done => Ok(()),
            ending => Err(RunError::from_ending(ending)),
        }
    }
}

/// The job that an event would be.
fn as_job(event: &StreamEvent) -> LeasedRun {
    let lease = Lease {
        queue: dead_letter_queue(&event.stream),
        job: dead_record_id(event),
        number: LeaseNumber::from_i64(i64::from(event.attempt)),
    };
    LeasedRun {
        lease,
        kind: Kind::new(event.stream.as_str()).unwrap_or_default(),
        payload: Payload::from_stored(event.to_json()),
        priority: Priority::default(),
        attempts_before: event.attempt.saturating_sub(1),
        lost_leases: 0,
        inserted_at: Time::default(),
        run_at: Time::default(),
        options: backstop_core::job_options::JobOptions::default(),
        history: FailureHistory::default(),
    }
}

/// Handles dead letters of a stream that somebody requeued: the event as it was, out of its order
/// by then. A key that halted at it goes on past it.
pub(super) struct DeadLetterHandler {
    pub(super) handler: Arc<dyn StreamHandler>,
    pub(super) stream: Stream,
}

#[async_trait]
impl Handler for DeadLetterHandler {
    async fn run(&self, run: Run) -> RunEnding {
        let event = match StreamEvent::from_json(run.payload()) {
            Ok(event) => StreamEvent {
                attempt: run.attempt(),
                ..event
            },
            Err(error) => {
                return RunError::dead(format!("this is no dead letter of a stream: {error}"))
                    .into_ending();
            }
        };
        let (key, position) = (event.key.clone(), event.position);
        if let Err(fail) = self.handler.handle(event).await {
            return fail.into_ending();
        }
        if let Err(error) = self.stream.go_past(&key, position).await {
            tracing::error!(%error, stream = %self.stream.name(), %key, position, "a requeued letter was handled, and its key is still halted at it; go on with `backstop stream resume --skip`");
        }
        RunEnding::Done
    }
}
