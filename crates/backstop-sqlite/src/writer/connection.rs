//! The writer's connection: waits for requests, and runs a group of them in one transaction.

use super::file::{OpenFile, WriterFile};
use super::{ExclusiveRequest, WriteDurability, WriteRequest, WriterMessage};
use crate::error::{is_disk_failure, store_error};
use crate::hints::Notifier;
use crate::migrate::check_version;
use crate::open::{SqliteDurability, SqliteOptions, SyncLevel};
use crate::transaction::WriteTransaction;
use backstop_core::port::StoreError;
use rusqlite::{Connection, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// How often the writer checks whether another connection has written to the file.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Why a group was not committed.
enum GroupFailure {
    /// One request failed and may be the only bad one: each is then run alone.
    Request(StoreError),
    /// The store failed, so that every request of the group fails the same way.
    Store(StoreError),
}

impl GroupFailure {
    const fn error(&self) -> &StoreError {
        match self {
            Self::Request(error) | Self::Store(error) => error,
        }
    }
}

/// The writer's connection, its options, and the sender of its hints. A hint is a wake-up that is
/// sent to the workers of this process: there may be a job to claim or to promote.
pub(super) struct WriterConnection {
    file: WriterFile,
    options: SqliteOptions,
    looked_at: Option<Instant>,
    notifier: Notifier,
    /// Whether committed work can be claimed or promoted and no hint was sent for it yet.
    hint_due: bool,
}

impl WriterConnection {
    pub(super) fn new(file: WriterFile, options: SqliteOptions, notifier: Notifier) -> Self {
        Self {
            file,
            options,
            looked_at: None,
            notifier,
            hint_due: false,
        }
    }

    /// Waits for a request, and meanwhile checks whether others wrote to the file. Returns `None`
    /// when all senders are gone.
    pub(super) fn wait(
        &mut self,
        waiting: &Runtime,
        requests: &mut mpsc::Receiver<WriterMessage>,
    ) -> Option<WriterMessage> {
        loop {
            self.notice_other_writers();
            if let Ok(request) = requests.try_recv() {
                return Some(request);
            }
            let received = waiting
                .block_on(async { tokio::time::timeout(POLL_INTERVAL, requests.recv()).await });
            if let Ok(received) = received {
                return received;
            }
        }
    }

    fn notice_other_writers(&mut self) {
        if self
            .looked_at
            .is_some_and(|looked_at| looked_at.elapsed() < POLL_INTERVAL)
        {
            return;
        }
        self.looked_at = Some(Instant::now());
        // `get` also recovers the file if that is due. A failed check sends no hint: workers that
        // poll would only add load to a store in trouble.
        let Ok(open) = self.file.get("looking for changes") else {
            return;
        };
        if open.others.have_written(&open.db).unwrap_or(false) {
            self.notifier.notify();
        }
    }

    /// Runs the group and sets the answer of every request.
    pub(super) fn run(&mut self, group: &mut [Box<dyn WriteRequest>]) {
        match self.run_grouped(group) {
            Ok(()) => {}
            Err(GroupFailure::Request(_)) if group.len() > 1 => self.run_singly(group),
            Err(GroupFailure::Request(error) | GroupFailure::Store(error)) => {
                fail_all(group, &error);
            }
        }
    }

    /// Sends the hint if one is due.
    pub(super) fn notify_if_due(&mut self) {
        if std::mem::take(&mut self.hint_due) {
            self.notifier.notify();
        }
    }

    /// Runs each request in a transaction of its own, so that only the faulty one fails.
    fn run_singly(&mut self, group: &mut [Box<dyn WriteRequest>]) {
        for at in 0..group.len() {
            match self.run_grouped(&mut group[at..=at]) {
                Ok(()) => {}
                Err(GroupFailure::Request(error)) => group[at].fail(error),
                // The requests behind it would wait for the same failure.
                Err(GroupFailure::Store(error)) => return fail_all(&mut group[at..], &error),
            }
        }
    }

    /// Runs all requests in one transaction. After a failed write or fsync it closes the file
    /// before any request is answered.
    fn run_grouped(
        &mut self,
        group: &mut [Box<dyn WriteRequest>],
    ) -> std::result::Result<(), GroupFailure> {
        let committed = self.commit(group);
        match committed {
            Err(failure) if is_disk_failure(failure.error()) => {
                self.file.fail(failure.error());
                Err(GroupFailure::Store(failure.error().clone()))
            }
            committed => committed,
        }
    }

    fn commit(
        &mut self,
        group: &mut [Box<dyn WriteRequest>],
    ) -> std::result::Result<(), GroupFailure> {
        let Some(doing) = group.first().map(|request| request.task().doing) else {
            return Ok(());
        };
        let open = self.file.get(doing).map_err(GroupFailure::Store)?;
        let failed = |error: &rusqlite::Error| GroupFailure::Store(store_error(doing, error));
        set_sync(open, self.options.durability, group).map_err(|error| failed(&error))?;
        execute(&open.db, "BEGIN IMMEDIATE").map_err(|error| failed(&error))?;
        match run_requests(&open.db, group) {
            Ok(hint_due) => {
                if let Err(error) = execute(&open.db, "COMMIT") {
                    roll_back(&open.db);
                    return Err(GroupFailure::Store(commit_error(doing, &error)));
                }
                self.hint_due |= hint_due;
                Ok(())
            }
            Err(failure) => {
                roll_back(&open.db);
                Err(failure)
            }
        }
    }

    /// Runs a request alone on the connection.
    pub(super) fn run_exclusive(&mut self, doing: &'static str, alone: ExclusiveRequest) {
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

    /// Checkpoints the WAL when it is long enough. SQLite's automatic checkpoint would not report
    /// that an fsync failed in it.
    pub(super) fn checkpoint_wal(&mut self) {
        let Some(open) = self.file.open() else { return };
        let Err(error) = checkpoint_wal(&open.db, self.options.log_pages) else {
            return;
        };
        let error = store_error("folding the log into the file", &error);
        if is_disk_failure(&error) {
            self.file.fail(&error);
        } else {
            tracing::warn!(
                %error,
                "the WAL could not be checkpointed; it keeps growing until a later checkpoint \
                 succeeds"
            );
        }
    }

    /// Checkpoints the whole WAL and closes the connection.
    pub(super) fn close(self) {
        self.file.finish();
    }
}

/// Runs the requests; returns whether they left new work to claim or to promote.
fn run_requests(
    db: &Connection,
    group: &mut [Box<dyn WriteRequest>],
) -> std::result::Result<bool, GroupFailure> {
    let mut tx = WriteTransaction::new(db);
    let doing = group
        .first()
        .map_or("writing", |request| request.task().doing);
    check_version(db, doing).map_err(GroupFailure::Store)?;
    for request in group.iter_mut() {
        let doing = request.task().doing;
        request
            .run(&mut tx)
            .map_err(|error| GroupFailure::Request(store_error(doing, &error)))?;
    }
    tx.flush()
        .map_err(|error| GroupFailure::Request(store_error(doing, &error)))?;
    Ok(tx.has_new_work())
}

/// Sets `synchronous` for the next commit: only a group with a durable request waits for the disk.
fn set_sync(
    open: &mut OpenFile,
    durability: SqliteDurability,
    group: &[Box<dyn WriteRequest>],
) -> Result<()> {
    let is_durable = group
        .iter()
        .any(|request| request.task().durability == WriteDurability::Durable);
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
    // After some errors SQLite has rolled back by itself.
    if !db.is_autocommit()
        && let Err(error) = execute(db, "ROLLBACK")
    {
        tracing::error!(%error, "the store could not roll back");
    }
}

/// Copies the WAL into the file if it has `pages_max` frames, one for each page that a commit
/// wrote. Readers may block a part of it; the checkpoint after the next commit continues.
fn checkpoint_wal(db: &Connection, pages_max: u32) -> Result<()> {
    // NOOP copies nothing. It only reports how many frames the WAL has and how many of them earlier
    // checkpoints have copied.
    let mut look = db.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let (pages, folded): (i64, i64) = look.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))?;
    if pages < i64::from(pages_max) || folded == pages {
        return Ok(());
    }
    db.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
        .query_row([], |_| Ok(()))
}

/// The error of a failed COMMIT. Whatever SQLite says, the transaction may or may not be on disk.
/// So no caller gets a success, and every caller may retry.
fn commit_error(doing: &'static str, error: &rusqlite::Error) -> StoreError {
    match store_error(doing, error) {
        StoreError::Unavailable { doing, cause } => StoreError::Unavailable { doing, cause },
        _ => StoreError::unavailable(
            doing,
            format!("the commit failed and may or may not have been applied: {error}"),
        ),
    }
}

fn fail_all(group: &mut [Box<dyn WriteRequest>], error: &StoreError) {
    for request in group {
        request.fail(error.clone());
    }
}
