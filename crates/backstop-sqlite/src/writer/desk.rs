//! The writer's connection: waits for requests, and brings a group of them through in one
//! transaction.

use super::file::{OpenFile, WriterFile};
use super::{Alone, Effort, Errand, Request};
use crate::error::{is_disk_failure, store_error};
use crate::hints::Bell;
use crate::migrate::check_version;
use crate::open::{Durability, SqliteOptions, SyncLevel};
use crate::work::Work;
use backstop_core::port::StoreError;
use rusqlite::{Connection, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
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

impl Fault {
    const fn error(&self) -> &StoreError {
        match self {
            Self::Request(error) | Self::Store(error) => error,
        }
    }
}

/// The writer's connection and what belongs to it.
pub(super) struct Desk {
    file: WriterFile,
    options: SqliteOptions,
    looked: Option<Instant>,
    bell: Bell,
    /// Whether there is something to claim or to promote of which no hint was given yet.
    stirred: bool,
}

impl Desk {
    pub(super) fn new(file: WriterFile, options: SqliteOptions, bell: Bell) -> Self {
        Self {
            file,
            options,
            looked: None,
            bell,
            stirred: false,
        }
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
        if self
            .looked
            .is_some_and(|looked| looked.elapsed() < LOOK_EVERY)
        {
            return;
        }
        self.looked = Some(Instant::now());
        // Recovers the file, too, if that is due. A look that fails gives no hint: a store in
        // trouble is not to be asked more often than the pollers do.
        let Ok(open) = self.file.get("looking for changes") else {
            return;
        };
        if open.others.wrote(&open.db).unwrap_or(false) {
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

    /// All in one transaction. After a failed write or fsync the file is closed before anybody is
    /// answered.
    fn together(&mut self, group: &mut [Box<dyn Errand>]) -> std::result::Result<(), Fault> {
        let committed = self.commit(group);
        match committed {
            Err(fault) if is_disk_failure(fault.error()) => {
                self.file.fail(fault.error());
                Err(Fault::Store(fault.error().clone()))
            }
            committed => committed,
        }
    }

    fn commit(&mut self, group: &mut [Box<dyn Errand>]) -> std::result::Result<(), Fault> {
        let Some(doing) = group.first().map(|errand| errand.task().doing) else {
            return Ok(());
        };
        let open = self.file.get(doing).map_err(Fault::Store)?;
        let failed = |error: &rusqlite::Error| Fault::Store(store_error(doing, error));
        set_sync(open, self.options.durability, group).map_err(|error| failed(&error))?;
        execute(&open.db, "BEGIN IMMEDIATE").map_err(|error| failed(&error))?;
        match fill(&open.db, group) {
            Ok(stirred) => {
                if let Err(error) = execute(&open.db, "COMMIT") {
                    roll_back(&open.db);
                    return Err(Fault::Store(not_committed(doing, &error)));
                }
                self.stirred |= stirred;
                Ok(())
            }
            Err(fault) => {
                roll_back(&open.db);
                Err(fault)
            }
        }
    }

    /// Gives a request the connection to itself.
    pub(super) fn run_alone(&mut self, doing: &'static str, alone: Alone) {
        let db = self.file.get(doing).map(|open| &mut open.db);
        match catch_unwind(AssertUnwindSafe(|| alone(db))) {
            Ok(None) => {}
            Ok(Some(failure)) => self.file.fail(&failure),
            Err(_) => {
                tracing::error!("a write to the store panicked; this is a bug in backstop");
                self.roll_back();
            }
        }
    }

    pub(super) fn roll_back(&mut self) {
        if let Some(open) = self.file.open() {
            roll_back(&open.db);
        }
    }

    /// Folds the log into the file when it is long enough. SQLite would do so by itself, but keep
    /// it to itself if an fsync failed meanwhile.
    pub(super) fn fold_log(&mut self) {
        let Some(open) = self.file.open() else { return };
        let Err(error) = fold_log(&open.db, self.options.log_pages) else {
            return;
        };
        let error = store_error("folding the log into the file", &error);
        if is_disk_failure(&error) {
            self.file.fail(&error);
        } else {
            tracing::warn!(%error, "the log stays as it is");
        }
    }

    /// Folds the log into the file for good.
    pub(super) fn close(self) {
        self.file.finish();
    }
}

/// Runs the requests; tells whether there is something to claim or to promote.
fn fill(db: &Connection, group: &mut [Box<dyn Errand>]) -> std::result::Result<bool, Fault> {
    let mut work = Work::new(db);
    let doing = group
        .first()
        .map_or("writing", |errand| errand.task().doing);
    check_version(db, doing).map_err(Fault::Store)?;
    for errand in group.iter_mut() {
        let doing = errand.task().doing;
        errand
            .run(&mut work)
            .map_err(|error| Fault::Request(store_error(doing, &error)))?;
    }
    work.flush()
        .map_err(|error| Fault::Request(store_error(doing, &error)))?;
    Ok(work.is_stirred())
}

/// Only what must be on disk waits for it.
fn set_sync(open: &mut OpenFile, durability: Durability, group: &[Box<dyn Errand>]) -> Result<()> {
    let is_durable = group
        .iter()
        .any(|errand| errand.task().effort == Effort::Durable);
    let sync = if is_durable {
        durability.sync()
    } else {
        SyncLevel::Normal
    };
    if open.sync != Some(sync) {
        sync.set(&open.db)?;
        open.sync = Some(sync);
    }
    Ok(())
}

fn execute(db: &Connection, sql: &str) -> Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}

fn roll_back(db: &Connection) {
    // SQLite rolls back by itself after some errors.
    if !db.is_autocommit()
        && let Err(error) = execute(db, "ROLLBACK")
    {
        tracing::error!(%error, "the store could not roll back");
    }
}

/// Readers may stand in the way of the rest of it; then the next commit goes on.
fn fold_log(db: &Connection, pages_max: u32) -> Result<()> {
    let mut look = db.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let (pages, folded): (i64, i64) = look.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))?;
    if pages < i64::from(pages_max) || folded == pages {
        return Ok(());
    }
    db.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
        .query_row([], |_| Ok(()))
}

/// What became of it is unknown, whatever SQLite says: nobody is told that it is done, and
/// everybody may ask again.
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
