//! What is known about the world when a job dies.

use super::Engine;
use backstop_core::failure::DeathContext;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Depths that are this old are read anew: a thousand deaths a second must not cost as many reads.
const FRESH: Duration = Duration::from_secs(5);

/// The depths of the queues, and when they were read.
#[derive(Default)]
pub(crate) struct QueueDepthCache(Mutex<Option<(Instant, BTreeMap<String, u64>)>>);

impl Engine {
    /// What is known now. What the store does not tell is left out.
    pub(crate) async fn context(&self) -> DeathContext {
        DeathContext {
            queue_depths: self.depths().await,
            breakers: self.breakers.states(self.now()),
            worker: Some(self.name.to_string()),
            host: Some(
                rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
            ),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            lost_workers: Vec::new(),
        }
    }

    async fn depths(&self) -> BTreeMap<String, u64> {
        let mut known = self.depths.0.lock().await;
        if let Some((at, depths)) = &*known
            && at.elapsed() < FRESH
        {
            return depths.clone();
        }
        let depths = match self.store().queues(self.now()).await {
            Ok(queues) => {
                let served = queues
                    .into_iter()
                    .filter(|status| self.queues.contains_key(&status.name));
                served
                    .map(|status| (status.name.to_string(), status.counts.live()))
                    .collect()
            }
            Err(_) => BTreeMap::new(),
        };
        *known = Some((Instant::now(), depths.clone()));
        depths
    }
}
