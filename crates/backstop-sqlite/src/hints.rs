//! Hints that there may be something to claim or to promote.

use async_trait::async_trait;
use backstop_core::port::HintSubscription;
use rusqlite::{Connection, Result};
use tokio::sync::watch;

/// Gives hints to everybody who watches.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(watch::Sender<u64>);

impl Notifier {
    /// A bell nobody has heard yet.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(crate) fn notify(&self) {
        self.0.send_modify(|hint_count| *hint_count += 1);
    }

    /// A subscription from now on.
    pub(crate) fn subscribe(&self) -> Box<dyn HintSubscription> {
        Box::new(HintReceiver(self.0.subscribe()))
    }
}

struct HintReceiver(watch::Receiver<u64>);

#[async_trait]
impl HintSubscription for HintReceiver {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone, and with it every hint.
            std::future::pending::<()>().await;
        }
    }
}

/// Tells when somebody else wrote to the file. Asked on the writer's own connection, where SQLite
/// counts the commits of others only: a store does not wake itself by its own claims and beats.
#[derive(Default)]
pub(crate) struct OtherWriters {
    data_version: Option<i64>,
}

impl OtherWriters {
    /// Whether somebody wrote since this was asked last.
    pub(crate) fn have_written(&mut self, db: &Connection) -> Result<bool> {
        let version = db
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let before = self.data_version.replace(version);
        Ok(before.is_some_and(|before| before != version))
    }
}
