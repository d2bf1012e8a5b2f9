//! Ended jobs whose time is over.

use crate::lines::{DEAD_REMOVE, FINISHED_REMOVE, KEY_REMOVE};
use crate::row;
use crate::settle::forget;
use crate::work::{QueueAt, Work};
use backstop_core::limits::PRUNE_MAX;
use backstop_core::port::{Pruned, Retention};
use backstop_core::{QueueName, Span, State, Time};
use rusqlite::types::Value;
use rusqlite::{Result, Row, params};

const QUEUE_NAMES: &str = include_str!("sql/queue_names.sql");
const PRUNE_OLDEST: &str = include_str!("sql/prune_oldest.sql");
const PRUNE_KEYS: &str = include_str!("sql/prune_keys.sql");
const PRUNE_WORKERS: &str = include_str!("sql/prune_workers.sql");

/// A worker that was silent for so long is not remembered.
const WORKER_KEPT_FOR: Span = Span::days(30);

/// Removes ended jobs, queue by queue: done, cancelled, dead, oldest first.
pub(crate) fn prune(work: &mut Work<'_>, retention: &Retention, now: Time) -> Result<Pruned> {
    // Counts say how many done jobs are too many.
    work.flush()?;
    let mut pruned = Pruned::default();
    let max = retention.max.min(PRUNE_MAX);
    let mut left = max;
    for (id, name, done) in queues(work)? {
        let Some(shelf) = retention.shelf(&name) else { continue };
        let queue = work.queue_of(id)?;
        for (state, kept_for, surplus) in [
            (State::Done, shelf.done_for, done.saturating_sub(shelf.done_max)),
            (State::Cancelled, shelf.cancelled_for, 0),
            (State::Dead, shelf.dead_for, 0),
        ] {
            let over = Over { surplus, ended_by: now.before(kept_for) };
            let mut expired = expired(work, queue, state, &over, left)?;
            pruned.more |= expired.len() > left;
            expired.truncate(left);
            left -= expired.len();
            *removed(&mut pruned, state) += expired.len();
            expired.into_iter().try_for_each(|job| remove(work, queue, job, state, now))?;
        }
    }
    pruned.more |= forget_keys(work, max, now)?;
    work.db.prepare_cached(PRUNE_WORKERS)?.execute([now.before(WORKER_KEPT_FOR).as_micros()])?;
    Ok(pruned)
}

/// Removes keys whose job is gone and whose period is over; tells whether there are more.
fn forget_keys(work: &Work<'_>, max: usize, now: Time) -> Result<bool> {
    let mut statement = work.db.prepare_cached(PRUNE_KEYS)?;
    let one_more = row::number(max.saturating_add(1));
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let over: Vec<(Value, Value, Value)> =
        statement.query_map(params![now.as_micros(), one_more], read)?.collect::<Result<_>>()?;
    let mut remove = work.db.prepare_cached(KEY_REMOVE)?;
    for (queue, key, id) in over.iter().take(max) {
        remove.execute([queue, key, id])?;
    }
    Ok(over.len() > max)
}

fn removed(pruned: &mut Pruned, state: State) -> &mut usize {
    match state {
        State::Done => &mut pruned.done,
        State::Cancelled => &mut pruned.cancelled,
        _ => &mut pruned.dead,
    }
}

fn queues(work: &Work<'_>) -> Result<Vec<(i64, QueueName, u64)>> {
    let mut statement = work.db.prepare_cached(QUEUE_NAMES)?;
    let mut rows = statement.query([])?;
    let mut queues = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(name) = row::text(row, 1)?.and_then(|name| QueueName::new(name).ok()) {
            queues.push((row::whole(row, 0)?, name, row::count(row, 2)?));
        }
    }
    Ok(queues)
}

/// Which of the oldest are over: so many, and all that ended by then.
struct Over {
    surplus: u64,
    ended_by: Time,
}

/// The expired jobs of one shelf by number, oldest first; one more than `max` if there are more.
fn expired(
    work: &Work<'_>,
    queue: QueueAt,
    state: State,
    over: &Over,
    max: usize,
) -> Result<Vec<(Time, i64)>> {
    let mut statement = work.db.prepare_cached(PRUNE_OLDEST)?;
    let one_more = row::number(max.saturating_add(1));
    let mut rows = statement.query(params![work.at(queue).id, row::code(state), one_more])?;
    let mut expired = Vec::new();
    while let Some(row) = rows.next()? {
        let finished_at = row::time(row, 0)?;
        if expired.len() as u64 >= over.surplus && finished_at > over.ended_by {
            break;
        }
        expired.push((finished_at, row::whole(row, 1)?));
    }
    Ok(expired)
}

fn remove(
    work: &mut Work<'_>,
    queue: QueueAt,
    (finished_at, no): (Time, i64),
    state: State,
    now: Time,
) -> Result<()> {
    let place = [work.at(queue).id, row::code(state), finished_at.as_micros(), no];
    work.db.prepare_cached(FINISHED_REMOVE)?.execute(place)?;
    if state == State::Dead {
        work.db.prepare_cached(DEAD_REMOVE)?.execute([no])?;
    }
    work.count(queue, state, -1);
    forget(work, no, state, now)
}
