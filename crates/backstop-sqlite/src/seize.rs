//! Seizes jobs from workers that stopped sending heartbeats.

use crate::claim::{ClaimedJob, is_open, load_claimed_jobs, load_claimed_jobs_by_id, open};
use crate::row;
use crate::transaction::WriteTransaction;
use backstop_core::job::Claimant;
use backstop_core::limits::{LEASE_REQUEST_MAX, SEIZE_MAX, SET_BACK_MIN};
use backstop_core::port::{SeizeRequest, SeizeResult, SeizedRun};
use backstop_core::verdict::LostLease;
use backstop_core::{Lease, LeaseNumber, QueueName, Time, WorkerName};
use rusqlite::{Result, params};
use std::collections::{HashMap, VecDeque};

const SEIZE_SET_BACK: &str = include_str!("sql/seize_set_back.sql");
const SEIZE_MOVE_BACK: &str = include_str!("sql/seize_move_back.sql");
const SEIZE_EXPIRED: &str = include_str!("sql/seize_expired.sql");
const SEIZE_RUNNING: &str = include_str!("sql/seize_running.sql");
const SEIZE_TAKE: &str = include_str!("sql/seize_take.sql");
const SEIZE_CLOSE: &str = include_str!("sql/seize_close.sql");

/// Claims that one scan of the running table covers. It is large, so that scans are few, and
/// bounded, so that none holds up the writer for long.
const LOOK_MAX: usize = 20_000;

/// Seizes jobs of expired claims. A repeated call returns what the first one still holds.
pub(crate) fn seize(
    tx: &mut WriteTransaction<'_>,
    seize: &SeizeRequest,
    pending: &mut PendingSeizures,
    now: Time,
) -> Result<SeizeResult> {
    tx.flush_claims()?;
    let held = if is_open(tx, seize.number)? {
        load_claimed_jobs(tx, seize.number, now)?
    } else {
        let taken = take_over(tx, seize, pending, now)?;
        load_claimed_jobs_by_id(tx, &taken, seize.number, now)?
    };
    // A claim is deleted with its last job. So an expired claim that is still there has jobs left.
    tx.flush_claims()?;
    let more = !expired(tx, now, 1)?.is_empty();
    Ok(SeizeResult {
        runs: held.into_iter().filter_map(seized).collect(),
        more,
    })
}

fn seized(held: ClaimedJob) -> Option<SeizedRun> {
    let (worker, number) = held.vanished?;
    let lease = Lease {
        number,
        ..held.run.lease.clone()
    };
    Some(SeizedRun {
        run: held.run,
        vanished: LostLease { worker, lease },
        begun: held.begun,
    })
}

/// A claim whose worker stopped sending heartbeats.
struct ExpiredClaim {
    number: LeaseNumber,
    worker: WorkerName,
    until: Time,
}

/// A job of an expired claim: the rank of its claim, its place in line, its id, and its claim.
type ExpiredJob = (usize, (QueueName, i64, i64), Vec<u8>, LeaseNumber);

/// The jobs that a scan of the running table found for expired claims and that no call has seized
/// yet, in the order in which they are seized. A scan costs as much as there are running jobs, and
/// a call seizes few. So when a hundred thousand leases expire at once, one scan serves all calls.
/// A job may have changed since the scan; it is checked again when it is seized.
#[derive(Default)]
pub(crate) struct PendingSeizures {
    jobs: VecDeque<ExpiredJob>,
    /// The claims that the scan covered, with their ends.
    claims: HashMap<LeaseNumber, Time>,
    last: Option<(Time, LeaseNumber)>,
}

impl PendingSeizures {
    fn find(tx: &mut WriteTransaction<'_>, expired: &[ExpiredClaim]) -> Result<Self> {
        let jobs = jobs_of_claims(tx, expired)?;
        close_empty(tx, expired, &jobs)?;
        Ok(Self {
            jobs: jobs.into(),
            claims: expired
                .iter()
                .map(|claim| (claim.number, claim.until))
                .collect(),
            last: expired.last().map(|claim| (claim.until, claim.number)),
        })
    }

    /// Whether the scan covered this claim and no heartbeat has extended it since.
    fn contains(&self, claim: &ExpiredClaim) -> bool {
        self.claims.get(&claim.number) == Some(&claim.until)
    }

    /// Whether every pending job comes before those of all claims that the scan did not cover.
    fn precede(&self, expired: &[ExpiredClaim]) -> bool {
        expired
            .iter()
            .all(|claim| self.contains(claim) || Some((claim.until, claim.number)) > self.last)
    }
}

/// Moves jobs to the seizing claim, oldest claim first; returns their ids.
fn take_over(
    tx: &mut WriteTransaction<'_>,
    seize: &SeizeRequest,
    pending: &mut PendingSeizures,
    now: Time,
) -> Result<Vec<Vec<u8>>> {
    move_back(tx, now)?;
    let max = seize.max.min(SEIZE_MAX);
    // `max` claims are enough: each holds a job, or is deleted soon.
    let first = expired(tx, now, max)?;
    let mut taken = Vec::new();
    if pending.precede(&first) {
        take(tx, seize, &first, pending, &mut taken)?;
    }
    let may_be_more = taken.is_empty() || !first.iter().all(|claim| pending.contains(claim));
    if taken.len() < max && may_be_more && !first.is_empty() {
        let expired = expired(tx, now, LOOK_MAX)?;
        *pending = PendingSeizures::find(tx, &expired)?;
        take(tx, seize, &expired, pending, &mut taken)?;
    }
    if !taken.is_empty() {
        let by = Claimant {
            worker: seize.worker.clone(),
            since: now,
            until: seize.until,
        };
        open(tx, seize.number, &by, taken.len())?;
    }
    Ok(taken)
}

/// After the clock was set back, gives claims a new end: as long after now as they had left.
fn move_back(tx: &WriteTransaction<'_>, now: Time) -> Result<()> {
    let later = now.after(SET_BACK_MIN).as_micros();
    let is_set_back: bool = tx
        .db
        .prepare_cached(SEIZE_SET_BACK)?
        .query_row([later], |row| row.get(0))?;
    if is_set_back {
        tx.db
            .prepare_cached(SEIZE_MOVE_BACK)?
            .execute([now.as_micros(), later])?;
    }
    Ok(())
}

fn take(
    tx: &mut WriteTransaction<'_>,
    seize: &SeizeRequest,
    expired: &[ExpiredClaim],
    pending: &mut PendingSeizures,
    taken: &mut Vec<Vec<u8>>,
) -> Result<()> {
    let workers: HashMap<LeaseNumber, &WorkerName> = expired
        .iter()
        .map(|claim| (claim.number, &claim.worker))
        .collect();
    let max = seize.max.min(SEIZE_MAX);
    let mut take = tx.db.prepare_cached(SEIZE_TAKE)?;
    while taken.len() < max {
        let Some((_, _, id, number)) = pending.jobs.pop_front() else {
            break;
        };
        let Some(worker) = workers.get(&number) else {
            continue;
        };
        if take.execute(params![
            id,
            seize.number.as_i64(),
            worker.as_str(),
            number.as_i64()
        ])? > 0
        {
            tx.leave_claim(number, 1);
            taken.push(id);
        }
    }
    Ok(())
}

/// Reads the first expired claims: at most `max` of the past ones, and at most `max` of those with
/// an impossibly late end.
fn expired(tx: &WriteTransaction<'_>, now: Time, max: usize) -> Result<Vec<ExpiredClaim>> {
    let mut statement = tx.db.prepare_cached(SEIZE_EXPIRED)?;
    let read = |row: &rusqlite::Row<'_>| {
        let number = LeaseNumber::from_i64(row::whole(row, 0)?);
        let worker = WorkerName::new(row::text(row, 1)?.unwrap_or_default());
        Ok(ExpiredClaim {
            number,
            worker,
            until: Time::from_micros(row::whole(row, 2)?),
        })
    };
    let (now, longest) = (now.as_micros(), now.after(LEASE_REQUEST_MAX).as_micros());
    statement
        .query_map(
            params![now, longest, i64::try_from(max).unwrap_or(i64::MAX)],
            read,
        )?
        .collect()
}

/// Reads all jobs of these claims in one scan of the running table: claim by claim, each in the
/// order of the line.
fn jobs_of_claims(
    tx: &mut WriteTransaction<'_>,
    expired: &[ExpiredClaim],
) -> Result<Vec<ExpiredJob>> {
    let ranks: HashMap<i64, usize> = expired
        .iter()
        .enumerate()
        .map(|(rank, claim)| (claim.number.as_i64(), rank))
        .collect();
    let db = tx.db;
    let mut statement = db.prepare_cached(SEIZE_RUNNING)?;
    let mut rows = statement.query([])?;
    let mut left = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(rank) = ranks.get(&row::whole(row, 0)?) else {
            continue;
        };
        let queue = tx.queue_of(row::whole(row, 1)?)?;
        let id = row::bytes(row, 4)?.unwrap_or_default().to_vec();
        let order = (
            tx.at(queue).name.clone(),
            row::whole(row, 2)?,
            row::whole(row, 3)?,
        );
        left.push((*rank, order, id, expired[*rank].number));
    }
    left.sort_unstable();
    Ok(left)
}

/// Removes expired claims that hold no jobs. Otherwise every later call would find them again.
fn close_empty(
    tx: &WriteTransaction<'_>,
    expired: &[ExpiredClaim],
    left: &[ExpiredJob],
) -> Result<()> {
    for (rank, claim) in expired.iter().enumerate() {
        if left
            .binary_search_by_key(&rank, |(claim, ..)| *claim)
            .is_err()
        {
            tx.db
                .prepare_cached(SEIZE_CLOSE)?
                .execute([claim.number.as_i64()])?;
        }
    }
    Ok(())
}
