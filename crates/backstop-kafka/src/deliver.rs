//! Delivers one batch to the sink, with retries.

use crate::assignment::MessageBatch;
use crate::backoff;
use crate::consumer_state::ConsumerState;
use crate::message::KafkaMessage;
use crate::sink::{MessageSink, MessageSinkError};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Retries until the sink accepts the batch, its partition is taken away, or the consumer stops.
pub(crate) async fn deliver(
    batch: MessageBatch,
    sink: Arc<dyn MessageSink>,
    state: Arc<ConsumerState>,
) {
    tokio::select! {
        () = deliver_until_accepted(&batch, &*sink, &state) => {}
        () = state.abandoned.cancelled() => state.mark_abandoned(&batch.ticket),
    }
}

async fn deliver_until_accepted(
    batch: &MessageBatch,
    sink: &dyn MessageSink,
    state: &ConsumerState,
) {
    let mut failures = 0_u32;
    while let Err(error) = attempt(sink, batch.messages.clone()).await {
        failures = failures.saturating_add(1);
        state.mark_failed(&batch.ticket, &error);
        tokio::select! {
            () = tokio::time::sleep(backoff::wait(failures, rand::random())) => {}
            () = state.stopping.cancelled() => {}
        }
        // The partition of an older generation may have another owner by now.
        if state.stopping.is_cancelled() || !state.assignment().is_owned(&batch.ticket) {
            return state.mark_abandoned(&batch.ticket);
        }
    }
    state.mark_accepted(&batch.ticket);
}

/// Calls the sink once. If the sink panics, it has not accepted the batch.
async fn attempt(
    sink: &dyn MessageSink,
    messages: Vec<KafkaMessage>,
) -> Result<(), MessageSinkError> {
    let call = AssertUnwindSafe(sink.take_in(messages)).catch_unwind();
    call.await.unwrap_or_else(|panic| {
        Err(MessageSinkError::new(format!(
            "the sink panicked: {}",
            text(&*panic)
        )))
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}
