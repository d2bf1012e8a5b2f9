//! Makes the file reliable again after an fsync of it failed.
//!
//! When an fsync fails, Linux marks the pages it could not write as clean. They stay in the page
//! cache for a while, but they are not on the disk, nothing writes them again, and the next fsync
//! succeeds without them. In SQLite's write-ahead log that is a hole: light commits (claims,
//! heartbeats) wrote frames without an fsync, the fsync of a later commit fails, and frames that
//! are appended and fsynced behind the hole are cut off with it, because recovery after a power cut
//! stops at the first frame whose checksum is wrong. Repeating the commit does not help: it writes
//! only its own frames again. So after a failed write or fsync the store acknowledges nothing until
//! these steps are done:
//!
//! | step | why |
//! |---|---|
//! | 1. this process closes its connections | they know frames that may no longer be there |
//! | 2. one connection opens the file for itself alone (`locking_mode = EXCLUSIVE`) | no other connection may write to the log in step 3. SQLite then ignores the index in shared memory and reads the log anew |
//! | 3. it reads the log, writes the same bytes again, and fsyncs the log | now the disk has what we read, hole or not. This must come before a checkpoint: a power cut during one would leave newer pages in the file under an older beginning of the log |
//! | 4. a second such connection opens the file | SQLite's recovery checks the checksum of every frame from the start of the log. Where a page was dropped from the page cache, too, the log ends: what is lost then was never acknowledged as durable |
//! | 5. it runs `wal_checkpoint(TRUNCATE)` | recovery has forgotten how far earlier checkpoints came, so every page of the log is written to the file again, also one whose fsync failed there |
//! | 6. it removes the marker, and every process opens the file as usual | |
//!
//! If a step fails, all of them are tried again later.
//!
//! Other processes may have the file open, and with it an index that lists the lost frames. Then
//! step 2 is refused. A marker next to the file tells them: every backstop process looks for it
//! before it writes and every 25 ms, closes its connections, and tries the recovery itself; the
//! first to succeed recovers the file for all. A process sets the marker before it closes its
//! connections, and the file is recovered only when all connections are closed. So a marker that is
//! gone means that every failure before it was repaired. If a program other than backstop keeps the
//! file open, the user must close it by hand; until then every call returns an error that says so.
//!
//! A process may die between the failed fsync and the marker. So a process that opens a file with a
//! log, and is alone with it, takes these steps first. If other processes have the file open, they
//! are responsible for it: Linux reports a failed fsync to all processes that had the file open.
//!
//! A full disk is not such a failure: a write that finds no space leaves every page as it was, and
//! a rollback is enough. If the file system accepts the write and finds out later, the fsync fails
//! (ENOSPC), and that is such a failure.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the log that one write copies.
const CHUNK_BYTES: usize = 1 << 20;

const MARKER_TEXT: &str = "A write or fsync of the file beside this one failed. backstop recovers it as soon as no \
    other program has it open, and then removes this note. Do not remove it by hand.\n";

/// The outcome of a recovery attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecoveryOutcome {
    /// The file and the disk agree.
    Done,
    /// Another process or connection has the file open.
    InUse,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    /// The log could not be written again, or the marker could not be removed.
    #[error(transparent)]
    File(#[from] io::Error),
    /// SQLite failed in one of its steps.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// A file next to the store's file that tells all processes that a write or fsync failed and that
/// the store's file is not recovered yet.
#[derive(Clone, Debug)]
pub(crate) struct FailureMarker(PathBuf);

impl FailureMarker {
    /// The marker of this store's file.
    pub(crate) fn of(path: &Path) -> Self {
        Self(sibling_path(path, "-failed"))
    }

    /// Whether the file must be recovered.
    pub(crate) fn is_set(&self) -> bool {
        rustix::fs::access(&self.0, rustix::fs::Access::EXISTS).is_ok()
    }

    /// Makes every process close the file. The marker itself needs no fsync: a power cut empties
    /// the page cache, so that the content of the disk is all there is.
    pub(crate) fn set(&self) -> io::Result<()> {
        std::fs::write(&self.0, MARKER_TEXT)
    }

    fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether the file must be recovered before use: it has a log, or the marker is set.
pub(crate) fn is_needed(path: &Path) -> bool {
    let has_log = log_of(path).metadata().is_ok_and(|log| log.len() > 0);
    has_log || FailureMarker::of(path).is_set()
}

/// Recovers the file if no other connection has it open. This process must have closed its own
/// connections.
pub(crate) fn recover(path: &Path) -> std::result::Result<RecoveryOutcome, RecoveryError> {
    let Some(alone) = open_alone(path)? else {
        return Ok(RecoveryOutcome::InUse);
    };
    // This connection read the log before the log was safe, so it must not checkpoint it on close.
    alone.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    write_again(&log_of(path))?;
    drop(alone);
    let Some(alone) = open_alone(path)? else {
        return Ok(RecoveryOutcome::InUse);
    };
    let is_busy = alone.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, bool>(0)
    })?;
    if is_busy {
        return Ok(RecoveryOutcome::InUse);
    }
    FailureMarker::of(path).remove()?;
    Ok(RecoveryOutcome::Done)
}

/// Opens a connection that locks out all others; `None` if another one has the file open.
fn open_alone(path: &Path) -> Result<Option<Connection>> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, access)?;
    db.busy_timeout(Duration::ZERO)?;
    match lock(&db) {
        Ok(()) => Ok(Some(db)),
        Err(error) if is_busy(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the connection exclusive: the first read takes the lock and keeps it.
fn lock(db: &Connection) -> Result<()> {
    db.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "checkpoint_fullfsync", true)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Writes the content of the log once more and fsyncs it. SQLite takes no POSIX locks on its log,
/// so closing our own descriptor of it drops none.
fn write_again(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while let length @ 1.. = read_some(&file, &mut chunk, at)? {
        file.write_all_at(&chunk[..length], at)?;
        at += length as u64;
    }
    file.sync_all()
}

fn read_some(file: &File, chunk: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(chunk, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn log_of(path: &Path) -> PathBuf {
    sibling_path(path, "-wal")
}

fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
