//! Makes the file reliable again after an fsync of it failed.
//!
//! When an fsync fails, Linux marks the pages it could not write as clean. They stay in the page
//! cache for a while, but they are not on the disk, nothing writes them again, and the next fsync
//! succeeds without them. In SQLite's write-ahead log that is a hole: light commits (claims,
//! heartbeats) wrote frames without an fsync, the fsync of a later commit fails, and frames that
//! are appended and fsynced behind the hole are cut off with it, because recovery after a power cut
//! stops at the first frame whose checksum is wrong. Trying the commit again does not help: only
//! its own frames are written again. So from a failed write or fsync on nothing is acknowledged
//! until this is done:
//!
//! | step | why |
//! |---|---|
//! | 1. this process closes its connections | they know frames that may no longer be there |
//! | 2. one connection opens the file for itself alone (`locking_mode = EXCLUSIVE`) | nobody may write to the log in step 3. SQLite then ignores the index in shared memory and reads the log anew |
//! | 3. the log is read, the same bytes are written again, and it is fsynced | now the disk has what we read, hole or not. This must come before a checkpoint: a power cut during one would leave newer pages in the file under an older beginning of the log |
//! | 4. a second such connection opens the file | SQLite's recovery checks the checksum of every frame from the start of the log. Where a page was dropped from the page cache, too, the log ends: what is lost then was never acknowledged as durable |
//! | 5. it runs `wal_checkpoint(TRUNCATE)` | recovery has forgotten how far earlier checkpoints came, so every page of the log is written to the file again, also one whose fsync failed there |
//! | 6. the marker is removed, and everybody opens the file as usual | |
//!
//! If a step fails, all of it is tried again later.
//!
//! Other processes may have the file open, and with it an index that lists the lost frames. Then
//! step 2 is refused. A marker beside the file tells them: every backstop process looks for it
//! before it writes and every 25 ms, closes its connections, and joins in; whoever comes first
//! recovers the file for all. The marker is in place before a process closes its connections, and
//! the file is recovered only when all are closed, so a marker that is gone means that every
//! failure before it was made up for. A program that is not backstop and keeps the file open must
//! be closed by hand; until then callers are refused and told so.
//!
//! A process may die between the failed fsync and the marker. So whoever opens a file that has a
//! log, and is alone with it, takes these steps first. A file that others use is in their care:
//! Linux reports a failed fsync to all who had the file open.
//!
//! A full disk is no such failure: a write that finds no room leaves every page as it was, and it
//! is enough to roll back. Where the file system takes the write and finds out later, the fsync
//! fails (ENOSPC), and that is one.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the log that are written again at once.
const CHUNK_BYTES: usize = 1 << 20;

const MARKER_TEXT: &str = "A write or fsync of the file beside this one failed. backstop recovers it as soon as no \
    other program has it open, and then removes this note. Do not remove it by hand.\n";

/// What came of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecoveryOutcome {
    /// The file and the disk agree.
    Done,
    /// Somebody else has the file open.
    InUse,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    /// The log could not be written again, or the marker not removed.
    #[error(transparent)]
    File(#[from] io::Error),
    /// SQLite could not do its part.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Says to all processes that a write or fsync of the file failed and that nobody has recovered it
/// since.
#[derive(Clone, Debug)]
pub(crate) struct FailureMarker(PathBuf);

impl FailureMarker {
    /// The one of this file.
    pub(crate) fn of(path: &Path) -> Self {
        Self(sibling_path(path, "-failed"))
    }

    /// Whether the file must be recovered.
    pub(crate) fn is_set(&self) -> bool {
        rustix::fs::access(&self.0, rustix::fs::Access::EXISTS).is_ok()
    }

    /// Asks everybody to close the file. It need not reach the disk: after a power cut what the
    /// disk has is all there is.
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

/// Whether the file must be recovered before it is used: a log is there, or a failure was noted.
pub(crate) fn is_needed(path: &Path) -> bool {
    let has_log = log_of(path).metadata().is_ok_and(|log| log.len() > 0);
    has_log || FailureMarker::of(path).is_set()
}

/// Makes the disk and the file agree, if nobody else has the file open. This process must have
/// closed it.
pub(crate) fn recover(path: &Path) -> std::result::Result<RecoveryOutcome, RecoveryError> {
    let Some(alone) = open_alone(path)? else {
        return Ok(RecoveryOutcome::InUse);
    };
    // It has read the log before the log was safe.
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

/// A connection that shares the file with nobody; `None` if somebody else has it open.
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

/// The first read takes the lock, and keeps it.
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

/// Writes what the file has once more, and waits until it is on the disk. SQLite locks nothing in
/// its log, so that a descriptor of our own may be closed.
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
