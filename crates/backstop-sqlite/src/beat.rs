//! Heartbeats: they renew leases and keep the worker's row current.

use crate::row;
use crate::transaction::WriteTransaction;
use backstop_core::lease::longest_lease_end;
use backstop_core::port::BeatRequest;
use backstop_core::{Lease, LeaseNumber, QueueName, Time};
use rusqlite::{CachedStatement, Result, Row, params};
use std::collections::BTreeSet;

const BEAT_WORKER: &str = include_str!("sql/beat_worker.sql");
const BEAT_EXTEND: &str = include_str!("sql/beat_extend.sql");
const BEAT_SETTLED: &str = include_str!("sql/beat_settled.sql");
const SETTLE_FIND: &str = include_str!("sql/settle_find.sql");

/// Renews the claims of a worker; returns the leases that are lost.
pub(crate) fn beat(
    tx: &mut WriteTransaction<'_>,
    beat: &BeatRequest,
    now: Time,
) -> Result<Vec<Lease>> {
    tx.flush_claims()?;
    let queues: Vec<&str> = beat.queues.iter().map(QueueName::as_str).collect();
    let worker = params![beat.worker.as_str(), queues.join("\n"), now.as_micros()];
    tx.db.prepare_cached(BEAT_WORKER)?.execute(worker)?;
    let (mut alive, mut lost) = (BTreeSet::<LeaseNumber>::new(), Vec::new());
    let mut find = tx.db.prepare_cached(SETTLE_FIND)?;
    let mut settled = tx.db.prepare_cached(BEAT_SETTLED)?;
    for lease in &beat.leases {
        if is_current(tx, &mut find, lease)? {
            alive.insert(lease.number);
        } else if !is_settled(tx, &mut settled, lease)? {
            lost.push(lease.clone());
        }
    }
    let kept = longest_lease_end(beat.until, now);
    let mut extend = tx.db.prepare_cached(BEAT_EXTEND)?;
    for number in alive {
        extend.execute([number.as_i64(), beat.until.as_micros(), kept.as_micros()])?;
    }
    Ok(lost)
}

fn is_current(
    tx: &mut WriteTransaction<'_>,
    find: &mut CachedStatement<'_>,
    lease: &Lease,
) -> Result<bool> {
    let Some(queue) = tx.queue(&lease.queue)? else {
        return Ok(false);
    };
    let named = params![lease.job.as_bytes(), lease.number.as_i64(), tx.at(queue).id];
    find.exists(named)
}

fn is_settled(
    tx: &mut WriteTransaction<'_>,
    find: &mut CachedStatement<'_>,
    lease: &Lease,
) -> Result<bool> {
    let Some(queue) = tx.queue(&lease.queue)? else {
        return Ok(false);
    };
    find.exists(params![
        lease.job.as_bytes(),
        lease.number.as_i64(),
        tx.at(queue).id
    ])
}

/// Reads the queues in a worker's row.
pub(crate) fn queues(row: &Row<'_>, column: usize) -> Result<Vec<QueueName>> {
    let names = row::text(row, column)?.unwrap_or_default();
    Ok(names
        .lines()
        .filter_map(|name| QueueName::new(name).ok())
        .collect())
}
