//! Opens a store's file, and checks what must hold before anything is written to it.

mod filesystem;

use crate::migrate;
use crate::recovery::{self, RecoveryError};
use backstop_core::port::SchemaMark;
pub(crate) use filesystem::{FileSystem, file_system};
use rusqlite::{Connection, OpenFlags, Result};
use rustix::fs::Access;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The oldest SQLite that we trust with a log that several connections share.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a connection waits for a lock of another process.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Pages of log after which the writer checkpoints it: as many as stay on disk anyway. All requests
/// wait meanwhile, up to 60 ms here and 20 ms with a quarter of the pages. But most pages are
/// written again and again, so that this is a quarter as many checkpoints, and fewer pages in all.
const WAL_PAGES_MAX: u32 = 16_000;
/// Size to which the log file is truncated after a checkpoint.
const WAL_BYTES_KEPT: i64 = 64 << 20;
/// Prepared statements that a connection caches: more than there are.
const STATEMENTS_MAX: usize = 192;
/// KiB of pages that the writer caches in memory.
const WRITER_CACHE_KIB: i64 = 64 << 10;
/// KiB of pages that a reader caches in memory.
const READER_CACHE_KIB: i64 = 8 << 10;

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SqliteDurability {
    /// A power cut, if the disk honours fsync.
    #[default]
    Full,
    /// A crash of the process; a power cut may undo the last moments.
    Relaxed,
}

impl SqliteDurability {
    /// The `synchronous` level of a durable commit.
    pub(crate) const fn sync(self) -> SyncLevel {
        match self {
            Self::Full => SyncLevel::Full,
            Self::Relaxed => SyncLevel::Normal,
        }
    }
}

/// What a commit waits for: the `synchronous` level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SyncLevel {
    /// The commit waits for an fsync of the log.
    Full,
    /// The commit waits for the operating system only.
    Normal,
}

impl SyncLevel {
    /// Sets the level for the next commits; works only outside a transaction.
    pub(crate) fn set(self, db: &Connection) -> Result<()> {
        let level = match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        };
        db.pragma_update(None, "synchronous", level)
    }
}

/// The options of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqliteOptions {
    /// What an acknowledged write survives.
    pub durability: SqliteDurability,
    /// Threads that read, at least one. Lists have as many threads of their own.
    pub readers: usize,
    /// Pages of log after which the writer checkpoints it.
    pub log_pages: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            durability: SqliteDurability::Full,
            readers: 2,
            log_pages: WAL_PAGES_MAX,
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteOpenError {
    /// The file could not be opened or created.
    #[error(
        "cannot open {path}: {cause}. Its directory must exist, and the file must be readable and writable"
    )]
    File {
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The file is on a network file system, where locks and shared memory do not work.
    #[error(
        "{path} is on {name}, a network file system; SQLite loses data there. Use a local disk, or a server store"
    )]
    NetworkFileSystem {
        path: PathBuf,
        /// The kind of file system.
        name: &'static str,
    },
    /// This program was built with an SQLite that is too old.
    #[error(
        "SQLite {0} is linked in; 3.51.3 is the oldest that can be used. Build with the `bundled` SQLite"
    )]
    OldSqlite(&'static str),
    /// SQLite could not switch the file to a write-ahead log.
    #[error(
        "{path} cannot use a write-ahead log (it stays in mode `{mode}`); another program may have it open"
    )]
    NoLog {
        path: PathBuf,
        /// The journal mode that the file has.
        mode: String,
    },
    /// A newer program has migrated the file.
    #[error(
        "{path} has version {version} and this program knows {known}; use the program that migrated it, or a newer one",
        known = migrate::VERSION
    )]
    Newer { path: PathBuf, version: u32 },
    /// A pre-release created the file: its version numbers mean something else.
    #[error(
        "{path} was made by a pre-release of backstop. Export what you need with that program, or use a new file"
    )]
    PreRelease { path: PathBuf },
    /// The file has a log from an earlier process, and the disk does not accept writes of it.
    #[error("{path} cannot be recovered: {cause}. Free space on its disk, or check the disk")]
    Recovery {
        path: PathBuf,
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// SQLite returned an error for the file.
    #[error("SQLite cannot use {path}: {cause}")]
    Sqlite {
        path: PathBuf,
        cause: rusqlite::Error,
    },
    /// A thread could not be started.
    #[error("the store's threads cannot be started: {0}")]
    Threads(std::io::Error),
}

/// The opened connections of a file, and its absolute path.
pub(crate) struct StoreConnections {
    pub(crate) path: PathBuf,
    pub(crate) writer: Connection,
    pub(crate) readers: Vec<Connection>,
    pub(crate) lists: Vec<Connection>,
}

/// Opens or creates the file, and checks everything that can be checked without writing to its
/// tables.
pub(crate) fn open(
    path: &Path,
    readers: usize,
) -> std::result::Result<StoreConnections, SqliteOpenError> {
    check_sqlite(rusqlite::version_number())?;
    let path = make_file(path).map_err(|cause| SqliteOpenError::File {
        path: path.to_owned(),
        cause,
    })?;
    check_file_system(&path)?;
    recover_left_log(&path)?;
    let failed = |cause| SqliteOpenError::Sqlite {
        path: path.clone(),
        cause,
    };
    let writer =
        connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE, WRITER_CACHE_KIB).map_err(failed)?;
    let mode = use_log(&writer).map_err(failed)?;
    if mode != "wal" {
        return Err(SqliteOpenError::NoLog { path, mode });
    }
    set_up_log(&writer).map_err(failed)?;
    match migrate::mark(&writer).map_err(failed)? {
        SchemaMark::PreRelease => return Err(SqliteOpenError::PreRelease { path }),
        SchemaMark::Version(version) if version > migrate::VERSION => {
            return Err(SqliteOpenError::Newer { path, version });
        }
        SchemaMark::Missing | SchemaMark::Version(_) => {}
    }
    let connect_readers =
        || -> Result<Vec<Connection>> { (0..readers).map(|_| connect_reader(&path)).collect() };
    let (readers, lists) = (
        connect_readers().map_err(failed)?,
        connect_readers().map_err(failed)?,
    );
    Ok(StoreConnections {
        path,
        writer,
        readers,
        lists,
    })
}

/// Recovers the file if it has a log: the process that left the log may have died over a failed
/// fsync. If other connections use the file, their processes are responsible for it.
fn recover_left_log(path: &Path) -> std::result::Result<(), SqliteOpenError> {
    if !recovery::is_needed(path) {
        return Ok(());
    }
    match recovery::recover(path) {
        Ok(_) => Ok(()),
        Err(RecoveryError::Sqlite(cause)) => Err(SqliteOpenError::Sqlite {
            path: path.to_owned(),
            cause,
        }),
        Err(error) => Err(SqliteOpenError::Recovery {
            path: path.to_owned(),
            cause: error.into(),
        }),
    }
}

/// Connects a writer to a file that was opened before.
pub(crate) fn connect_writer(path: &Path) -> Result<Connection> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, WRITER_CACHE_KIB)?;
    use_log(&db)?;
    set_up_log(&db)?;
    Ok(db)
}

/// Opens a connection that can only read.
pub(crate) fn connect_reader(path: &Path) -> Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, READER_CACHE_KIB)
}

fn check_sqlite(version: i32) -> std::result::Result<(), SqliteOpenError> {
    if version < SQLITE_VERSION_MIN {
        Err(SqliteOpenError::OldSqlite(rusqlite::version()))
    } else {
        Ok(())
    }
}

/// Creates the file, readable by its owner only, and returns its absolute path. SQLite gives the
/// log and the shared memory the same rights.
fn make_file(path: &Path) -> std::io::Result<PathBuf> {
    match make_new(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = path.canonicalize()?;
    // Checked by path and not by a descriptor: see `make_new`. SQLite itself would open a file
    // without write permission as read-only.
    rustix::fs::access(&path, Access::READ_OK | Access::WRITE_OK)?;
    Ok(path)
}

/// Creates the file if there is none, without ever opening it. Closing a descriptor of a file drops
/// every lock that the process has on it, also those of its SQLite connections. Another process may
/// then delete the log that is in use.
#[cfg(target_os = "linux")]
fn make_new(path: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(
        CWD,
        path,
        FileType::RegularFile,
        Mode::RUSR | Mode::WUSR,
        0,
    )?)
}

/// Creates the file if there is none, and never opens an existing one: closing a descriptor of it
/// would drop every lock that the process has on it.
#[cfg(not(target_os = "linux"))]
fn make_new(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn check_file_system(path: &Path) -> std::result::Result<(), SqliteOpenError> {
    match file_system(path) {
        FileSystem::Local => Ok(()),
        FileSystem::Network(name) => Err(SqliteOpenError::NetworkFileSystem {
            path: path.to_owned(),
            name,
        }),
        FileSystem::User => {
            tracing::warn!(path = %path.display(), "the file is on a FUSE file system; make sure that it is a local one");
            Ok(())
        }
    }
}

fn connect(path: &Path, access: OpenFlags, cache_kib: i64) -> Result<Connection> {
    let mut db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    wait_when_busy(&mut db)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    db.pragma_update(None, "mmap_size", 0)?;
    db.pragma_update(None, "cache_size", -cache_kib)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(db)
}

/// Waits for locks in steps of 1 ms. SQLite's own busy timeout backs off to 100 ms: next to a busy
/// process such a store would hardly ever get the lock.
fn wait_when_busy(db: &mut Connection) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(1);
    db.busy_handler(Some(|tries: i32| {
        std::thread::sleep(PAUSE);
        PAUSE * tries.unsigned_abs() < BUSY_MAX
    }))
}

/// Switches to a write-ahead log. If two processes do so at the same time, SQLite may refuse one
/// without waiting, so this tries again.
fn use_log(db: &Connection) -> Result<String> {
    let began = Instant::now();
    loop {
        let mode = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        let is_busy = mode
            .as_ref()
            .err()
            .and_then(rusqlite::Error::sqlite_error_code)
            == Some(rusqlite::ErrorCode::DatabaseBusy);
        if !is_busy || began.elapsed() > BUSY_MAX {
            return mode;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn set_up_log(db: &Connection) -> Result<()> {
    // The writer runs the checkpoints itself: an automatic one would not report that an fsync
    // failed in it.
    db.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    db.query_row(
        &format!("PRAGMA journal_size_limit = {WAL_BYTES_KEPT}"),
        [],
        |_| Ok(()),
    )?;
    // On macOS a plain fsync ends in the drive's own cache; on other systems this changes nothing.
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "checkpoint_fullfsync", true)
}

#[cfg(test)]
mod tests;
