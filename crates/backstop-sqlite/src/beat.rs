//! Signs of life.

use crate::row;
use crate::work::Work;
use backstop_core::port::Beat;
use backstop_core::{Lease, LeaseNumber, Time};
use rusqlite::{Result, params};
use std::collections::BTreeSet;

const BEAT_WORKER: &str = include_str!("sql/beat_worker.sql");
const BEAT_EXTEND: &str = include_str!("sql/beat_extend.sql");
const SETTLE_FIND: &str = include_str!("sql/settle_find.sql");

/// Keeps claims alive, and tells which leases are lost.
pub(crate) fn beat(work: &mut Work<'_>, beat: &Beat, now: Time) -> Result<Vec<Lease>> {
    work.flush_claims()?;
    let queues: Vec<&str> = beat.queues.iter().map(backstop_core::QueueName::as_str).collect();
    let worker = params![beat.worker.as_str(), queues.join("\n"), now.as_micros()];
    work.db.prepare_cached(BEAT_WORKER)?.execute(worker)?;
    let (mut alive, mut lost) = (BTreeSet::<LeaseNumber>::new(), Vec::new());
    for lease in &beat.leases {
        if is_current(work, lease)? {
            alive.insert(lease.number);
        } else {
            lost.push(lease.clone());
        }
    }
    let mut extend = work.db.prepare_cached(BEAT_EXTEND)?;
    for number in alive {
        extend.execute([number.as_i64(), beat.until.as_micros()])?;
    }
    Ok(lost)
}

fn is_current(work: &mut Work<'_>, lease: &Lease) -> Result<bool> {
    let Some(queue) = work.queue(&lease.queue)? else { return Ok(false) };
    let named = params![lease.job.as_bytes(), lease.number.as_i64(), work.at(queue).id];
    work.db.prepare_cached(SETTLE_FIND)?.exists(named)
}

/// The queues of a worker's row.
pub(crate) fn queues(row: &rusqlite::Row<'_>, column: usize) -> Result<Vec<backstop_core::QueueName>> {
    let names = row::text(row, column)?.unwrap_or_default();
    Ok(names.lines().filter_map(|name| backstop_core::QueueName::new(name).ok()).collect())
}
