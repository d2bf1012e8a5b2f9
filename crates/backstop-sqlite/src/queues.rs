//! Queues as an operator sees them, their gates and their bounds.

use crate::row;
use crate::work::Work;
use backstop_core::port::{Counts, Gate, QueueStatus, Totals};
use backstop_core::{Bounds, QueueName, State, Time};
use rusqlite::{Connection, Result, Row, params};

const QUEUES: &str = include_str!("sql/queues.sql");
const QUEUE_BOUNDS: &str = include_str!("sql/queue_bounds.sql");
const QUEUE_DECLARE: &str = include_str!("sql/queue_declare.sql");
const QUEUE_GATE: &str = include_str!("sql/queue_gate.sql");

/// All queues, by name.
pub(crate) fn queues(db: &Connection) -> Result<Vec<QueueStatus>> {
    let mut statement = db.prepare_cached(QUEUES)?;
    let statuses: Result<Vec<Option<QueueStatus>>> = statement.query_map([], status)?.collect();
    Ok(statuses?.into_iter().flatten().collect())
}

/// A queue's row; `None` if its name cannot be read.
fn status(row: &Row<'_>) -> Result<Option<QueueStatus>> {
    let Some(name) = row::text(row, 0)?.and_then(|name| QueueName::new(name).ok()) else {
        tracing::warn!("a row of backstop_queue has no readable name; run `backstop doctor`");
        return Ok(None);
    };
    let mut counts = Counts::default();
    for (column, state) in State::ALL.into_iter().enumerate() {
        *counts.of_mut(state) = row::count(row, 2 + column)?;
    }
    let totals = Totals {
        enqueued: row::count(row, 9)?,
        done: row::count(row, 10)?,
        dead: row::count(row, 11)?,
        cancelled: row::count(row, 12)?,
    };
    let gate = if row::whole(row, 1)? == 0 {
        Gate::Open
    } else {
        Gate::Paused
    };
    let next_ready = row::maybe_whole(row, 13)?.map(Time::from_micros);
    Ok(Some(QueueStatus {
        name,
        gate,
        counts,
        totals,
        next_ready,
        bounds: row::bounds(row, 14)?,
    }))
}

/// Sets how much a queue holds.
pub(crate) fn set_bounds(work: &mut Work<'_>, name: &QueueName, bounds: Bounds) -> Result<()> {
    let queue = work.queue_or_new(name)?;
    let (max_size, dead_max) = (
        bounds.max_size.map(u64::cast_signed),
        bounds.dead_max.cast_signed(),
    );
    let held = params![
        work.at(queue).id,
        max_size,
        bounds.overflow.as_str(),
        dead_max
    ];
    work.db.prepare_cached(QUEUE_BOUNDS)?.execute(held)?;
    work.set_bounds(queue, bounds);
    Ok(())
}

/// Marks queues as configured; bounds that somebody set stay.
pub(crate) fn declare(work: &mut Work<'_>, names: &[QueueName]) -> Result<()> {
    let usual = Bounds::default();
    let mut declare = work.db.prepare_cached(QUEUE_DECLARE)?;
    for name in names {
        let queue = work.queue_or_new(name)?;
        let (id, dead_max) = (work.at(queue).id, usual.dead_max.cast_signed());
        declare.execute(params![id, usual.overflow.as_str(), dead_max])?;
    }
    Ok(())
}

/// Opens or pauses a queue.
pub(crate) fn set_gate(work: &mut Work<'_>, name: &QueueName, gate: Gate) -> Result<()> {
    let queue = work.queue_or_new(name)?;
    let paused = gate == Gate::Paused;
    work.db
        .prepare_cached(QUEUE_GATE)?
        .execute(params![work.at(queue).id, paused])?;
    work.set_paused(queue, paused);
    if !paused {
        work.stir();
    }
    Ok(())
}
