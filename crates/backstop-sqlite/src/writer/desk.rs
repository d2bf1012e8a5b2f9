//! The writer's connection: waits for requests, and brings a group of them through in one transaction.

use super::{Effort, Errand, Request};
use crate::error::store_error;
use crate::hints::{Bell, Others};
use crate::migrate::check_version;
use crate::moored::Moored;
use crate::open::{Durability, SyncLevel};
use crate::work::Work;
use backstop_core::port::StoreError;
use rusqlite::{Connection, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// How often the writer looks whether others wrote to the file.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Why a group did not come through.
enum Fault {
    /// One of its requests, perhaps; each by itself will tell.
    Request(StoreError),
    /// The store itself, for all of them alike.
    Store(StoreError),
}

/// The writer's connection and what belongs to it.
pub(super) struct Desk {
    pub(super) db: Connection,
    durability: Durability,
    /// How commits reach the disk; unknown until it is set.
    sync: Option<SyncLevel>,
    others: Others,
    looked: Option<Instant>,
    bell: Bell,
    moored: Arc<Moored>,
    /// Whether there is something to claim or to promote of which no hint was given yet.
    stirred: bool,
}

impl Desk {
    pub(super) fn new(db: Connection, durability: Durability, bell: Bell, moored: Arc<Moored>) -> Self {
        let others = Others::default();
        Self { db, durability, sync: None, others, looked: None, bell, moored, stirred: false }
    }

    /// Waits for a request, and meanwhile looks whether others wrote. `None` when no more can come.
    pub(super) fn wait(
        &mut self,
        waiting: &Runtime,
        requests: &mut mpsc::Receiver<Request>,
    ) -> Option<Request> {
        loop {
            self.look();
            if let Ok(request) = requests.try_recv() {
                return Some(request);
            }
            let received =
                waiting.block_on(async { tokio::time::timeout(LOOK_EVERY, requests.recv()).await });
            if let Ok(received) = received {
                return received;
            }
        }
    }

    fn look(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        // A look that fails gives no hint: a store in trouble is not to be asked more often than the pollers do.
        if self.others.wrote(&self.db).unwrap_or(false) {
            self.bell.ring();
        }
    }

    /// Gives every request of the group its answer.
    pub(super) fn run(&mut self, group: &mut [Box<dyn Errand>]) {
        match self.together(group) {
            Ok(()) => {}
            Err(Fault::Request(_)) if group.len() > 1 => self.one_by_one(group),
            Err(Fault::Request(error) | Fault::Store(error)) => fail_all(group, &error),
        }
    }

    /// Gives the hint that is due.
    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.stirred) {
            self.bell.ring();
        }
    }

    /// Each in a transaction of its own, so that only the faulty one fails.
    fn one_by_one(&mut self, group: &mut [Box<dyn Errand>]) {
        for at in 0..group.len() {
            match self.together(&mut group[at..=at]) {
                Ok(()) => {}
                Err(Fault::Request(error)) => group[at].fail(error),
                // Those behind would only wait for the same.
                Err(Fault::Store(error)) => return fail_all(&mut group[at..], &error),
            }
        }
    }

    /// All in one transaction.
    fn together(&mut self, group: &mut [Box<dyn Errand>]) -> std::result::Result<(), Fault> {
        let Some(doing) = group.first().map(|errand| errand.task().doing) else { return Ok(()) };
        self.moored.check(doing).map_err(Fault::Store)?;
        let failed = |error: &rusqlite::Error| Fault::Store(store_error(doing, error));
        self.set_sync(group).map_err(|error| failed(&error))?;
        self.begin().map_err(|error| failed(&error))?;
        match self.fill(group) {
            Ok(stirred) => {
                if let Err(error) = self.execute("COMMIT") {
                    self.roll_back();
                    return Err(Fault::Store(not_committed(doing, &error)));
                }
                self.stirred |= stirred;
                Ok(())
            }
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    /// Runs the requests; tells whether there is something to claim or to promote.
    fn fill(&self, group: &mut [Box<dyn Errand>]) -> std::result::Result<bool, Fault> {
        let mut work = Work::new(&self.db);
        let doing = group.first().map_or("writing", |errand| errand.task().doing);
        check_version(&self.db, doing).map_err(Fault::Store)?;
        for errand in group.iter_mut() {
            let doing = errand.task().doing;
            errand.run(&mut work).map_err(|error| Fault::Request(store_error(doing, &error)))?;
        }
        work.flush().map_err(|error| Fault::Request(store_error(doing, &error)))?;
        Ok(work.is_stirred())
    }

    /// Only what must be on disk waits for it.
    fn set_sync(&mut self, group: &[Box<dyn Errand>]) -> Result<()> {
        let is_durable = group.iter().any(|errand| errand.task().effort == Effort::Durable);
        let sync = if is_durable { self.durability.sync() } else { SyncLevel::Normal };
        if self.sync != Some(sync) {
            sync.set(&self.db)?;
            self.sync = Some(sync);
        }
        Ok(())
    }

    fn begin(&self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql)?.execute([]).map(drop)
    }

    pub(super) fn roll_back(&self) {
        // SQLite rolls back by itself after some errors.
        if !self.db.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "the store could not roll back");
        }
    }

    /// Folds the log into the file, so that the file alone is the store. If others still read it, it stays a log.
    pub(super) fn close(self) {
        let folded = self
            .db
            .busy_timeout(Duration::from_millis(100))
            .and_then(|()| self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        if let Err(error) = folded {
            tracing::debug!(%error, "the log stays as it is");
        }
    }
}

/// What became of it is unknown, whatever SQLite says: nobody is told that it is done, and everybody may ask again.
fn not_committed(doing: &'static str, error: &rusqlite::Error) -> StoreError {
    match store_error(doing, error) {
        StoreError::Unavailable { doing, cause } => StoreError::Unavailable { doing, cause },
        _ => StoreError::unavailable(doing, format!("it could not be committed: {error}")),
    }
}

fn fail_all(group: &mut [Box<dyn Errand>], error: &StoreError) {
    for errand in group {
        errand.fail(error.clone());
    }
}
