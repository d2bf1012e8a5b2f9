//! A query on a SQLite file, on a thread that may wait for it.

use super::collect::FindingCollector;
use super::source::SourceSearch;
use super::{FindError, FindResult};
use crate::address::StoreAddress;
use backstop_core::sweep::{QueryRow, UnknownColumn, cutoff_text};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long somebody who writes may hold the query up.
const BUSY: Duration = Duration::from_secs(5);
/// Between two tries to stop a query: one that has not begun yet does not hear the first.
const RETRY_WAIT: Duration = Duration::from_millis(20);
const TRIES_MAX: usize = 500;

/// Stops a query when whoever waits for it goes away.
#[derive(Clone, Default)]
struct QueryStop {
    is_stopped: Arc<AtomicBool>,
    handle: Arc<OnceLock<InterruptHandle>>,
}

impl QueryStop {
    fn now(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.get() {
            handle.interrupt();
        }
    }
}

struct QueryStopGuard(QueryStop);

impl Drop for QueryStopGuard {
    fn drop(&mut self) {
        self.0.now();
    }
}

pub(super) async fn search(
    address: &StoreAddress,
    search: SourceSearch<'_>,
) -> Result<FindResult, FindError> {
    let file = address
        .sqlite_file()
        .map(ToOwned::to_owned)
        .unwrap_or_default();
    let stop = QueryStopGuard(QueryStop::default());
    let (sql, cutoff, into) = (
        search.query.sql.clone(),
        cutoff_text(search.cutoff),
        search.into,
    );
    let stopped = stop.0.clone();
    let mut reading =
        tokio::task::spawn_blocking(move || read(file, &sql, &cutoff, into, &stopped));
    let panicked = |error: tokio::task::JoinError| FindError::Failed(error.to_string());
    if let Ok(read) = tokio::time::timeout(search.limit.into(), &mut reading).await {
        return read.map_err(panicked)?.map_err(FindError::from);
    }
    for _ in 0..TRIES_MAX {
        stop.0.now();
        if tokio::time::timeout(RETRY_WAIT, &mut reading).await.is_ok() {
            break;
        }
    }
    Err(FindError::TooSlow(search.limit))
}

#[derive(Debug, thiserror::Error)]
enum SqliteReadError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the query must be a SELECT: it would write, or gives no columns")]
    NotASelect,
    #[error("the query has parameters besides :cutoff")]
    Parameters,
    #[error(transparent)]
    Column(#[from] UnknownColumn),
}

impl From<SqliteReadError> for FindError {
    fn from(error: SqliteReadError) -> Self {
        match error {
            SqliteReadError::Column(unknown) => unknown.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}

fn read(
    file: PathBuf,
    sql: &str,
    cutoff: &str,
    mut into: FindingCollector,
    stop: &QueryStop,
) -> Result<FindResult, SqliteReadError> {
    // Never made by looking at it, and never written to.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    let _ = stop.handle.set(db.get_interrupt_handle());
    db.busy_timeout(BUSY)?;
    db.execute_batch("PRAGMA query_only = ON")?;
    let mut statement = db.prepare(sql)?;
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(SqliteReadError::NotASelect);
    }
    if statement.parameter_count() != 1 {
        return Err(SqliteReadError::Parameters);
    }
    let names =
        (0..statement.column_count()).map(|at| statement.column_name(at).map(ToOwned::to_owned));
    let columns: Arc<[String]> = names.collect::<Result<_, _>>()?;
    into.check(&columns)?;
    let mut rows = statement.query([cutoff])?;
    while !stop.is_stopped.load(Ordering::Relaxed) {
        let Some(row) = rows.next()? else { break };
        let values = (0..columns.len()).map(|column| row.get_ref(column).map(value));
        if !into.take(&QueryRow::new(
            Arc::clone(&columns),
            values.collect::<Result<_, _>>()?,
        )) {
            break;
        }
    }
    Ok(into.found())
}

fn value(of: ValueRef<'_>) -> Value {
    match of {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into(),
        ValueRef::Blob(bytes) => super::query::hex(bytes).into(),
    }
}
