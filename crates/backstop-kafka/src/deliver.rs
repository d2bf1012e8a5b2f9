//! Brings one batch to the sink, however often that takes.

use crate::assignment::Batch;
use crate::backoff;
use crate::board::Board;
use crate::message::Message;
use crate::sink::{Sink, SinkError};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Tries until the batch is taken in, or no longer counts, or the source stops.
pub(crate) async fn deliver(batch: Batch, sink: Arc<dyn Sink>, board: Arc<Board>) {
    tokio::select! {
        () = insist(&batch, &*sink, &board) => {}
        () = board.abandoned.cancelled() => board.given_up(&batch.ticket),
    }
}

async fn insist(batch: &Batch, sink: &dyn Sink, board: &Board) {
    let mut failures = 0_u32;
    while let Err(error) = attempt(sink, batch.messages.clone()).await {
        failures = failures.saturating_add(1);
        board.failed(&batch.ticket, &error);
        tokio::select! {
            () = tokio::time::sleep(backoff::wait(failures, rand::random())) => {}
            () = board.stopping.cancelled() => {}
        }
        // A batch of a former generation belongs to somebody else by now.
        if board.stopping.is_cancelled() || !board.assignment().holds(&batch.ticket) {
            return board.given_up(&batch.ticket);
        }
    }
    board.taken_in(&batch.ticket);
}

/// A sink that panics has not taken anything in.
async fn attempt(sink: &dyn Sink, messages: Vec<Message>) -> Result<(), SinkError> {
    let call = AssertUnwindSafe(sink.take_in(messages)).catch_unwind();
    call.await.unwrap_or_else(|panic| {
        Err(SinkError::new(format!(
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
