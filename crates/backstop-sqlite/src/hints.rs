//! Hints to workers that there may be new jobs to claim or to promote.

use async_trait::async_trait;
use backstop_core::port::HintSubscription;
use rusqlite::{Connection, Result};
use tokio::sync::watch;

/// Sends hints to all subscribers of this process.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(watch::Sender<u64>);

impl Notifier {
    /// A notifier without subscribers, before its first hint.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(crate) fn notify(&self) {
        self.0.send_modify(|hint_count| *hint_count += 1);
    }

    /// Subscribes to the hints from now on.
    pub(crate) fn subscribe(&self) -> Box<dyn HintSubscription> {
        Box::new(HintReceiver(self.0.subscribe()))
    }
}

struct HintReceiver(watch::Receiver<u64>);

#[async_trait]
impl HintSubscription for HintReceiver {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The store was dropped, so no hint comes any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Detects that another connection wrote to the file. It must use the writer's own connection,
/// where `data_version` counts only the commits of others: a store does not wake itself by its own
/// claims and heartbeats.
#[derive(Default)]
pub(crate) struct OtherWriters {
    data_version: Option<i64>,
}

impl OtherWriters {
    /// Whether another connection wrote since the last call.
    pub(crate) fn have_written(&mut self, db: &Connection) -> Result<bool> {
        let version = db
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let before = self.data_version.replace(version);
        Ok(before.is_some_and(|before| before != version))
    }
}
