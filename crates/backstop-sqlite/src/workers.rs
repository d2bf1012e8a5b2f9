//! Workers as their beats show them.

use crate::beat;
use crate::row;
use backstop_core::port::WorkerStatus;
use backstop_core::{Span, Time, WorkerName};
use rusqlite::{Connection, Result, Row};

const WORKERS: &str = include_str!("sql/workers.sql");

/// All workers that beat within `within`, by name.
pub(crate) fn workers(db: &Connection, within: Span, now: Time) -> Result<Vec<WorkerStatus>> {
    let mut statement = db.prepare_cached(WORKERS)?;
    statement.query_map([now.before(within).as_micros()], status)?.collect()
}

fn status(row: &Row<'_>) -> Result<WorkerStatus> {
    Ok(WorkerStatus {
        name: WorkerName::new(row::text(row, 0)?.unwrap_or_default()),
        queues: beat::queues(row, 1)?,
        seen_at: row::time(row, 2)?,
        running: row::count(row, 3)?,
    })
}
