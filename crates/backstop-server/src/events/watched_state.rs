//! A look at everything a page shows, to be compared with the next one.

use crate::App;
use backstop::breakers::BreakerInfo;
use backstop::why::LIVE_WITHIN;
use backstop_core::port::{QueueStatus, StoreResult, StreamStatus};

/// What a look found. When workers were last heard is left out: it changes all the time, and
/// changes nothing.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct WatchedState {
    queues: Vec<QueueStatus>,
    workers: Vec<(String, u64)>,
    guards: Vec<BreakerInfo>,
    streams: Vec<StreamStatus>,
}

impl WatchedState {
    /// Looks now. Every question has a deadline of the store's.
    pub(super) async fn read(app: &App) -> StoreResult<Self> {
        let (backstop, now) = (app.backstop(), app.backstop().now());
        let workers = backstop.store().workers(LIVE_WITHIN, now).await?;
        Ok(Self {
            queues: backstop.store().queues(now).await?,
            workers: workers
                .into_iter()
                .map(|worker| (worker.name.to_string(), worker.running))
                .collect(),
            guards: backstop.breakers().list().await?,
            streams: backstop.store().streams().await?,
        })
    }

    /// What is different from `before`.
    pub(super) fn changes(&self, before: &Self) -> Vec<&'static str> {
        let parts = [
            ("queues", self.queues != before.queues),
            ("workers", self.workers != before.workers),
            ("breakers", self.guards != before.guards),
            ("streams", self.streams != before.streams),
        ];
        parts
            .into_iter()
            .filter(|(_, is_changed)| *is_changed)
            .map(|(part, _)| part)
            .collect()
    }
}
