//! Hints that there may be something to claim or to promote.

use async_trait::async_trait;
use backstop_core::port::Hints;
use rusqlite::{Connection, Result};
use tokio::sync::watch;

/// Gives hints to everybody who watches.
#[derive(Clone, Debug)]
pub(crate) struct Bell(watch::Sender<u64>);

impl Bell {
    /// A bell nobody has heard yet.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Gives a hint.
    pub(crate) fn ring(&self) {
        self.0.send_modify(|rings| *rings += 1);
    }

    /// A subscription from now on.
    pub(crate) fn listen(&self) -> Box<dyn Hints> {
        Box::new(Rings(self.0.subscribe()))
    }
}

struct Rings(watch::Receiver<u64>);

#[async_trait]
impl Hints for Rings {
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
pub(crate) struct Others {
    seen: Option<i64>,
}

impl Others {
    /// Whether somebody wrote since this was asked last.
    pub(crate) fn wrote(&mut self, db: &Connection) -> Result<bool> {
        let version = db
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let before = self.seen.replace(version);
        Ok(before.is_some_and(|before| before != version))
    }
}
