//! Lists workers by their heartbeats, and counts expired leases.

use crate::beat;
use crate::row;
use backstop_core::limits::EXPIRED_COUNTED_MAX;
use backstop_core::port::{ExpiredLeases, WorkerStatus};
use backstop_core::{Span, Time, WorkerName};
use rusqlite::{Connection, Result, Row};

const WORKERS: &str = include_str!("sql/workers.sql");
const EXPIRED_LEASES: &str = include_str!("sql/expired_leases.sql");

/// Lists all workers with a heartbeat in the last `within`, by name.
pub(crate) fn workers(db: &Connection, within: Span, now: Time) -> Result<Vec<WorkerStatus>> {
    let mut statement = db.prepare_cached(WORKERS)?;
    statement
        .query_map([now.before(within).as_micros()], status)?
        .collect()
}

/// Counts the claims that ended before this time and that no worker has seized.
pub(crate) fn expired_leases(db: &Connection, before: Time) -> Result<ExpiredLeases> {
    let mut statement = db.prepare_cached(EXPIRED_LEASES)?;
    statement.query_row(
        [before.as_micros(), row::number(EXPIRED_COUNTED_MAX)],
        |row| {
            let first: Option<i64> = row.get(1)?;
            Ok(ExpiredLeases {
                count: usize::try_from(row::count(row, 0)?).unwrap_or(usize::MAX),
                first: first.map(Time::from_micros),
            })
        },
    )
}

fn status(row: &Row<'_>) -> Result<WorkerStatus> {
    Ok(WorkerStatus {
        name: WorkerName::new(row::text(row, 0)?.unwrap_or_default()),
        queues: beat::queues(row, 1)?,
        seen_at: row::time(row, 2)?,
        running: row::count(row, 3)?,
    })
}
