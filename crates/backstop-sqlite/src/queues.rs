//! Lists queues for an operator, pauses and resumes them, and sets their bounds.

use crate::row;
use crate::transaction::WriteTransaction;
use backstop_core::port::{QueueState, QueueStatus, QueueTotals, StateCounts};
use backstop_core::{JobState, QueueBounds, QueueName, Time};
use rusqlite::{Connection, Result, Row, params};

const QUEUES: &str = include_str!("sql/queues.sql");
const QUEUE_BOUNDS: &str = include_str!("sql/queue_bounds.sql");
const QUEUE_DECLARE: &str = include_str!("sql/queue_declare.sql");
const QUEUE_GATE: &str = include_str!("sql/queue_gate.sql");

pub(crate) fn queues(db: &Connection) -> Result<Vec<QueueStatus>> {
    let mut statement = db.prepare_cached(QUEUES)?;
    let statuses: Result<Vec<Option<QueueStatus>>> = statement.query_map([], status)?.collect();
    Ok(statuses?.into_iter().flatten().collect())
}

/// Reads a queue's row; `None` if its name cannot be read.
fn status(row: &Row<'_>) -> Result<Option<QueueStatus>> {
    let Some(name) = row::text(row, 0)?.and_then(|name| QueueName::new(name).ok()) else {
        tracing::warn!("a row of backstop_queue has no readable name; run `backstop doctor`");
        return Ok(None);
    };
    let mut counts = StateCounts::default();
    for (column, state) in JobState::ALL.into_iter().enumerate() {
        *counts.of_mut(state) = row::count(row, 2 + column)?;
    }
    let totals = QueueTotals {
        enqueued: row::count(row, 9)?,
        done: row::count(row, 10)?,
        dead: row::count(row, 11)?,
        cancelled: row::count(row, 12)?,
    };
    let gate = if row::whole(row, 1)? == 0 {
        QueueState::Active
    } else {
        QueueState::Paused
    };
    let next_ready = row::maybe_whole(row, 13)?.map(Time::from_micros);
    Ok(Some(QueueStatus {
        name,
        state: gate,
        counts,
        totals,
        next_ready,
        bounds: row::bounds(row, 14)?,
    }))
}

/// Sets the bounds of a queue.
pub(crate) fn set_bounds(
    tx: &mut WriteTransaction<'_>,
    name: &QueueName,
    bounds: QueueBounds,
) -> Result<()> {
    let queue = tx.queue_or_new(name)?;
    let (max_size, dead_max) = (
        bounds.max_size.map(u64::cast_signed),
        bounds.dead_max.cast_signed(),
    );
    let held = params![
        tx.at(queue).id,
        max_size,
        bounds.overflow.as_str(),
        dead_max
    ];
    tx.db.prepare_cached(QUEUE_BOUNDS)?.execute(held)?;
    tx.set_bounds(queue, bounds);
    Ok(())
}

/// Marks queues as configured; bounds that an operator set stay.
pub(crate) fn declare(tx: &mut WriteTransaction<'_>, names: &[QueueName]) -> Result<()> {
    let usual = QueueBounds::default();
    let mut declare = tx.db.prepare_cached(QUEUE_DECLARE)?;
    for name in names {
        let queue = tx.queue_or_new(name)?;
        let (id, dead_max) = (tx.at(queue).id, usual.dead_max.cast_signed());
        declare.execute(params![id, usual.overflow.as_str(), dead_max])?;
    }
    Ok(())
}

/// Pauses or resumes a queue.
pub(crate) fn set_gate(
    tx: &mut WriteTransaction<'_>,
    name: &QueueName,
    gate: QueueState,
) -> Result<()> {
    let queue = tx.queue_or_new(name)?;
    let paused = gate == QueueState::Paused;
    tx.db
        .prepare_cached(QUEUE_GATE)?
        .execute(params![tx.at(queue).id, paused])?;
    tx.set_paused(queue, paused);
    if !paused {
        tx.mark_new_work();
    }
    Ok(())
}
