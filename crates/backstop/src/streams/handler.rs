//! Handlers of streams.

use super::dead::{letters_queue, record_id};
use super::event::Event;
use super::operate::Stream;
use crate::handler::{Fail, Handler, Run, States};
use async_trait::async_trait;
use backstop_core::failure::History;
use backstop_core::verdict::Ending;
use backstop_core::{Kind, Lease, LeaseNumber, Leased, Payload, Priority, Time};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Handles what a stream brings, per key one event after the other and in the order of positions.
/// Closures are the usual form.
#[async_trait]
pub trait StreamHandler: Send + Sync + 'static {
    /// Handles one event. Until it answers, nothing else of the same key is handled. May be dropped
    /// at any await: when it takes too long, or when the key's lease is lost.
    async fn handle(&self, event: Event) -> Result<(), Fail>;
}

#[async_trait]
impl<F, Fut> StreamHandler for F
where
    F: Fn(Event) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Fail>> + Send,
{
    async fn handle(&self, event: Event) -> Result<(), Fail> {
        (self)(event).await
    }
}

/// A handler of jobs that handles a stream: a command or a web service. Its payload is the event as
/// JSON.
pub struct Command(Arc<dyn Handler>);

impl Command {
    /// On this handler.
    pub fn new(handler: impl Handler) -> Self {
        Self(Arc::new(handler))
    }
}

#[async_trait]
impl StreamHandler for Command {
    async fn handle(&self, event: Event) -> Result<(), Fail> {
        let run = Run::new(
            Arc::new(as_job(&event)),
            States::default(),
            CancellationToken::new(),
        );
        match self.0.run(run).await {
            Ending::Done => Ok(()),
            ending => Err(Fail::ended(ending)),
        }
    }
}

/// The job that an event would be.
fn as_job(event: &Event) -> Leased {
    let lease = Lease {
        queue: letters_queue(&event.stream),
        job: record_id(event),
        number: LeaseNumber::from_i64(i64::from(event.attempt)),
    };
    Leased {
        lease,
        kind: Kind::new(event.stream.as_str()).unwrap_or_default(),
        payload: Payload::stored(event.to_json()),
        priority: Priority::default(),
        attempts_before: event.attempt.saturating_sub(1),
        lost_leases: 0,
        inserted_at: Time::default(),
        run_at: Time::default(),
        terms: backstop_core::terms::Terms::default(),
        history: History::default(),
    }
}

/// Handles dead letters of a stream that somebody requeued: the event as it was, out of its order
/// by then. A key that halted at it goes on past it.
pub(super) struct Letters {
    pub(super) handler: Arc<dyn StreamHandler>,
    pub(super) stream: Stream,
}

#[async_trait]
impl Handler for Letters {
    async fn run(&self, run: Run) -> Ending {
        let event = match Event::from_json(run.payload()) {
            Ok(event) => Event {
                attempt: run.attempt(),
                ..event
            },
            Err(error) => {
                return Fail::dead(format!("this is no dead letter of a stream: {error}"))
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
        Ending::Done
    }
}
