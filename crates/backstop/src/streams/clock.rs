//! Follows the store's clock, as a worker's keeper does: a process may serve streams and nothing
//! else.

use super::due_keys::take_to_work;
use super::running::StreamRuntime;
use backstop_core::limits::PAGE_MAX;
use backstop_core::port::{KeyFilter, ListKeysRequest, StoreResult};
use backstop_core::{Span, StreamKey};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often the store's clock is read.
const EVERY: Duration = Duration::from_secs(10);
/// What two readings may be apart without anybody having moved the clock.
const NOISE: Span = Span::secs(1);

/// Follows the store's clock until told to stop.
pub(super) async fn clock_loop(shared: &Arc<StreamRuntime>, stop: &CancellationToken) {
    loop {
        let (before, began) = (shared.now(), Instant::now());
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        // What does not answer now is asked again; others say so.
        let _ = shared.backstop.follow_clock().await;
        // Whoever of this process followed it.
        let behind = before.after(began.elapsed().into()).since(shared.now());
        if behind >= NOISE
            && let Err(error) = shorten_waits(shared).await
        {
            tracing::warn!(%error, stream = %shared.name, "keys that wait by the old clock could not be looked at");
        }
    }
}

/// A key that waits by the time as it was before the clock was set back would wait for as long as
/// that was wrong. Looked at again, its wait is no longer than its rules say.
async fn shorten_waits(shared: &Arc<StreamRuntime>) -> StoreResult<()> {
    let mut after: Option<StreamKey> = None;
    loop {
        let query = ListKeysRequest {
            stream: shared.name.clone(),
            after,
            filter: KeyFilter::Holding,
            limit: PAGE_MAX,
        };
        let page = shared.store().stream_keys(query, shared.now()).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.key.clone());
        let now = shared.now();
        let waiting = page
            .into_iter()
            .filter(|key| key.holder.is_none() && key.due.is_some_and(|due| due > now));
        let keys: Vec<StreamKey> = waiting.map(|key| key.key).collect();
        if !keys.is_empty() {
            take_to_work(shared, keys).await;
        }
    }
}
