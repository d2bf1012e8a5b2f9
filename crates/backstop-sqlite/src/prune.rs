//! Removes ended jobs, unique keys and workers whose retention is over.

use crate::row;
use crate::settle::forget;
use crate::state_index::{DEAD_REMOVE, FINISHED_REMOVE, KEY_REMOVE};
use crate::transaction::{QueueIndex, WriteTransaction};
use backstop_core::limits::{PRUNE_MAX, PRUNE_QUEUES_MAX, QUEUE_KEPT_FOR, WORKER_KEPT_FOR};
use backstop_core::port::{PruneRequest, PruneResult, Retention};
use backstop_core::{JobState, QueueName, Time};
use rusqlite::types::Value;
use rusqlite::{Result, Row, params};

const PRUNE_QUEUES: &str = include_str!("sql/prune_queues.sql");
const QUEUE_IDLE: &str = include_str!("sql/queue_idle.sql");
const QUEUE_HAS_KEYS: &str = include_str!("sql/queue_has_keys.sql");
const PRUNE_OLDEST: &str = include_str!("sql/prune_oldest.sql");
const PRUNE_KEYS: &str = include_str!("sql/prune_keys.sql");
const PRUNE_WORKERS: &str = include_str!("sql/prune_workers.sql");

/// Removes ended jobs, queue by queue: done, cancelled, dead, oldest first. `after` is the cursor:
/// pruning starts behind this queue, and sets it to where the next call continues.
pub(crate) fn prune(
    tx: &mut WriteTransaction<'_>,
    retention: &PruneRequest,
    after: &mut Option<String>,
    now: Time,
) -> Result<PruneResult> {
    // The counts in the table say how many done jobs are too many, so they must be current.
    tx.flush()?;
    let mut pruned = PruneResult::default();
    let max = retention.max.min(PRUNE_MAX);
    let mut left = max;
    let (queues, mut is_end) = next_queues(tx, after.as_deref().unwrap_or_default())?;
    for queue in queues {
        if let Some(shelf) = retention.retention_for(&queue.name) {
            if prune_queue(tx, &queue, &shelf, &mut left, &mut pruned, now)? {
                // The next call continues with this queue.
                is_end = false;
                break;
            }
            forget_if_unused(tx, &queue, now)?;
        }
        *after = Some(queue.name.to_string());
    }
    if is_end {
        *after = None;
    }
    pruned.more = !is_end | forget_keys(tx, max, now)?;
    tx.db
        .prepare_cached(PRUNE_WORKERS)?
        .execute([now.before(WORKER_KEPT_FOR).as_micros()])?;
    Ok(pruned)
}

/// Removes the expired jobs of one queue, at most `left`; returns whether there are more.
fn prune_queue(
    tx: &mut WriteTransaction<'_>,
    queue: &PruneQueue,
    shelf: &Retention,
    left: &mut usize,
    pruned: &mut PruneResult,
    now: Time,
) -> Result<bool> {
    for (state, count, kept_for, surplus) in [
        (
            JobState::Done,
            queue.done,
            shelf.done_for,
            queue.done.saturating_sub(shelf.done_max),
        ),
        (JobState::Cancelled, queue.cancelled, shelf.cancelled_for, 0),
        (JobState::Dead, queue.dead, shelf.dead_for, 0),
    ] {
        if count == 0 {
            continue;
        }
        let at = tx.queue_of(queue.id)?;
        let over = PruneLimit {
            surplus,
            ended_by: now.before(kept_for),
        };
        let mut expired = expired(tx, at, state, &over, *left)?;
        let has_more = expired.len() > *left;
        expired.truncate(*left);
        *left -= expired.len();
        *removed(pruned, state) += expired.len();
        expired
            .into_iter()
            .try_for_each(|job| remove(tx, at, job, state, now))?;
        if has_more {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes a queue that has been empty for long enough and that nobody configured. A unique key
/// that is still held keeps its queue.
fn forget_if_unused(tx: &mut WriteTransaction<'_>, queue: &PruneQueue, now: Time) -> Result<()> {
    if queue.is_configured || queue.live + queue.done + queue.cancelled + queue.dead > 0 {
        return Ok(());
    }
    let Some(since) = queue.empty_since else {
        return tx
            .db
            .prepare_cached(QUEUE_IDLE)?
            .execute([queue.id, now.as_micros()])
            .map(drop);
    };
    if now.since(since) < QUEUE_KEPT_FOR
        || tx.db.prepare_cached(QUEUE_HAS_KEYS)?.exists([queue.id])?
    {
        return Ok(());
    }
    tx.forget_queue(queue.id)
}

/// Removes unique keys whose job is gone and whose period is over; returns whether there are more.
fn forget_keys(tx: &WriteTransaction<'_>, max: usize, now: Time) -> Result<bool> {
    let mut statement = tx.db.prepare_cached(PRUNE_KEYS)?;
    let one_more = row::number(max.saturating_add(1));
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let over: Vec<(Value, Value, Value)> = statement
        .query_map(params![now.as_micros(), one_more], read)?
        .collect::<Result<_>>()?;
    let mut remove = tx.db.prepare_cached(KEY_REMOVE)?;
    for (queue, key, id) in over.iter().take(max) {
        remove.execute([queue, key, id])?;
    }
    Ok(over.len() > max)
}

fn removed(pruned: &mut PruneResult, state: JobState) -> &mut usize {
    match state {
        JobState::Done => &mut pruned.done,
        JobState::Cancelled => &mut pruned.cancelled,
        _ => &mut pruned.dead,
    }
}

/// A queue with what pruning needs of its row.
struct PruneQueue {
    id: i64,
    name: QueueName,
    done: u64,
    cancelled: u64,
    dead: u64,
    live: u64,
    is_configured: bool,
    empty_since: Option<Time>,
}

/// Reads the queues behind `after` that one call prunes, and whether these are the last ones.
fn next_queues(tx: &WriteTransaction<'_>, after: &str) -> Result<(Vec<PruneQueue>, bool)> {
    let mut statement = tx.db.prepare_cached(PRUNE_QUEUES)?;
    let mut rows = statement.query(params![after, row::number(PRUNE_QUEUES_MAX + 1)])?;
    let (mut queues, mut looked) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        looked += 1;
        if looked > PRUNE_QUEUES_MAX {
            return Ok((queues, false));
        }
        let Some(name) = row::text(row, 1)?.and_then(|name| QueueName::new(name).ok()) else {
            continue;
        };
        queues.push(PruneQueue {
            id: row::whole(row, 0)?,
            name,
            done: row::count(row, 2)?,
            cancelled: row::count(row, 3)?,
            dead: row::count(row, 4)?,
            live: row::count(row, 5)?,
            is_configured: row::whole(row, 6)? != 0,
            empty_since: row::maybe_whole(row, 7)?.map(Time::from_micros),
        });
    }
    Ok((queues, true))
}

/// Which of the oldest jobs to remove: at least `surplus`, and all that ended by `ended_by`.
struct PruneLimit {
    surplus: u64,
    ended_by: Time,
}

/// Reads the expired jobs of one queue and state, oldest first; one more than `max` if there are
/// more.
fn expired(
    tx: &WriteTransaction<'_>,
    queue: QueueIndex,
    state: JobState,
    limit: &PruneLimit,
    max: usize,
) -> Result<Vec<(Time, i64)>> {
    let mut statement = tx.db.prepare_cached(PRUNE_OLDEST)?;
    let one_more = row::number(max.saturating_add(1));
    let mut rows = statement.query(params![tx.at(queue).id, row::code(state), one_more])?;
    let mut expired = Vec::new();
    while let Some(row) = rows.next()? {
        let finished_at = row::time(row, 0)?;
        if expired.len() as u64 >= limit.surplus && finished_at > limit.ended_by {
            break;
        }
        expired.push((finished_at, row::whole(row, 1)?));
    }
    Ok(expired)
}

fn remove(
    tx: &mut WriteTransaction<'_>,
    queue: QueueIndex,
    (finished_at, no): (Time, i64),
    state: JobState,
    now: Time,
) -> Result<()> {
    let place = [
        tx.at(queue).id,
        row::code(state),
        finished_at.as_micros(),
        no,
    ];
    tx.db.prepare_cached(FINISHED_REMOVE)?.execute(place)?;
    if state == JobState::Dead {
        tx.db.prepare_cached(DEAD_REMOVE)?.execute([no])?;
    }
    tx.count(queue, state, -1);
    forget(tx, no, state, now)
}
