//! What dead workers left behind.

use crate::claim::{Held, held_under, is_open, open};
use crate::row;
use crate::work::Work;
use backstop_core::limits::{LEASE_ASKED_MAX, SEIZE_MAX};
use backstop_core::port::{Seize, Seized};
use backstop_core::verdict::Vanished;
use backstop_core::{Lease, LeaseNumber, QueueName, Time, WorkerName};
use rusqlite::{Result, params};
use std::collections::HashMap;

const SEIZE_EXPIRED: &str = include_str!("sql/seize_expired.sql");
const SEIZE_RUNNING: &str = include_str!("sql/seize_running.sql");
const SEIZE_TAKE: &str = include_str!("sql/seize_take.sql");
const SEIZE_CLOSE: &str = include_str!("sql/seize_close.sql");

/// Takes over jobs of expired claims; what the same call took before, if it is repeated.
pub(crate) fn seize(work: &mut Work<'_>, seize: &Seize, now: Time) -> Result<Vec<Seized>> {
    work.flush_claims()?;
    if !is_open(work, seize.number)? && !take_over(work, seize, now)? {
        return Ok(Vec::new());
    }
    Ok(held_under(work, seize.number, now)?.into_iter().filter_map(seized).collect())
}

fn seized(held: Held) -> Option<Seized> {
    let (worker, number) = held.vanished?;
    let lease = Lease { number, ..held.run.lease.clone() };
    Some(Seized { run: held.run, vanished: Vanished { worker, lease }, begun: held.begun })
}

/// A claim whose worker stopped beating.
struct Expired {
    number: LeaseNumber,
    worker: WorkerName,
}

/// A job of an expired claim: which of the claims, its place, its id.
type Left = (usize, (QueueName, i64, i64), Vec<u8>);

/// Moves jobs to the seizer, oldest claim first; `false` if there are none.
fn take_over(work: &mut Work<'_>, seize: &Seize, now: Time) -> Result<bool> {
    let expired = expired(work, now)?;
    if expired.is_empty() {
        return Ok(false);
    }
    let mut left = left_by(work, &expired)?;
    close_empty(work, &expired, &left)?;
    left.truncate(seize.max.min(SEIZE_MAX));
    if left.is_empty() {
        return Ok(false);
    }
    let mut take = work.db.prepare_cached(SEIZE_TAKE)?;
    for (claim, _, id) in &left {
        let Expired { number, worker } = &expired[*claim];
        take.execute(params![id, seize.number.as_i64(), worker.as_str(), number.as_i64()])?;
        work.leave_claim(*number, 1);
    }
    open(work, seize.number, &seize.worker, seize.until, left.len())?;
    Ok(true)
}

fn expired(work: &Work<'_>, now: Time) -> Result<Vec<Expired>> {
    let mut statement = work.db.prepare_cached(SEIZE_EXPIRED)?;
    let read = |row: &rusqlite::Row<'_>| {
        let number = LeaseNumber::from_i64(row::whole(row, 0)?);
        Ok(Expired { number, worker: WorkerName::new(row::text(row, 1)?.unwrap_or_default()) })
    };
    statement.query_map([now, now.after(LEASE_ASKED_MAX)].map(Time::as_micros), read)?.collect()
}

/// All jobs of these claims, in one pass over what runs: claim by claim, each in the order of the line.
fn left_by(work: &mut Work<'_>, expired: &[Expired]) -> Result<Vec<Left>> {
    let ranks: HashMap<i64, usize> =
        expired.iter().enumerate().map(|(rank, claim)| (claim.number.as_i64(), rank)).collect();
    let db = work.db;
    let mut statement = db.prepare_cached(SEIZE_RUNNING)?;
    let mut rows = statement.query([])?;
    let mut left = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(rank) = ranks.get(&row::whole(row, 0)?) else { continue };
        let queue = work.queue_of(row::whole(row, 1)?)?;
        let id = row::bytes(row, 4)?.unwrap_or_default().to_vec();
        left.push((*rank, (work.at(queue).name.clone(), row::whole(row, 2)?, row::whole(row, 3)?), id));
    }
    left.sort_unstable();
    Ok(left)
}

/// Removes expired claims that hold nothing: they would be found again for ever.
fn close_empty(work: &Work<'_>, expired: &[Expired], left: &[Left]) -> Result<()> {
    for (rank, claim) in expired.iter().enumerate() {
        if left.binary_search_by_key(&rank, |(claim, ..)| *claim).is_err() {
            work.db.prepare_cached(SEIZE_CLOSE)?.execute([claim.number.as_i64()])?;
        }
    }
    Ok(())
}
