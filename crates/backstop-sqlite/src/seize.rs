//! What dead workers left behind.

use crate::claim::{ClaimedRow, held_of, held_under, is_open, open};
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

/// Claims whose jobs one look at all that runs is for: looks are few, and none holds up others for
/// long.
const LOOK_MAX: usize = 20_000;

/// Takes over jobs of expired claims; what the same call took before, if it is repeated.
pub(crate) fn seize(
    tx: &mut WriteTransaction<'_>,
    seize: &SeizeRequest,
    pending: &mut PendingSeizures,
    now: Time,
) -> Result<SeizeResult> {
    tx.flush_claims()?;
    let held = if is_open(tx, seize.number)? {
        held_under(tx, seize.number, now)?
    } else {
        let taken = take_over(tx, seize, pending, now)?;
        held_of(tx, &taken, seize.number, now)?
    };
    // A claim is closed with its last job, so what has expired and is still there was left.
    tx.flush_claims()?;
    let more = !expired(tx, now, 1)?.is_empty();
    Ok(SeizeResult {
        runs: held.into_iter().filter_map(seized).collect(),
        more,
    })
}

fn seized(held: ClaimedRow) -> Option<SeizedRun> {
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

/// A claim whose worker stopped beating.
struct ExpiredClaim {
    number: LeaseNumber,
    worker: WorkerName,
    until: Time,
}

/// A job of an expired claim: which claim's turn it is, its place, its id, and the claim.
type ExpiredJob = (usize, (QueueName, i64, i64), Vec<u8>, LeaseNumber);

/// What a look at all that runs found of expired claims and no call has taken yet, the next one
/// first. A look costs as much as there runs, and a call takes few: when a hundred thousand leases
/// expire at once, one look serves all calls. What is in here may have changed since; it is checked
/// again as it is taken.
#[derive(Default)]
pub(crate) struct PendingSeizures {
    jobs: VecDeque<ExpiredJob>,
    /// The claims that were looked for, with their ends.
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

    /// Whether this claim was looked for, and has not been beaten for since.
    fn contains(&self, claim: &ExpiredClaim) -> bool {
        self.claims.get(&claim.number) == Some(&claim.until)
    }

    /// Whether what is in here comes before all that is not.
    fn precede(&self, expired: &[ExpiredClaim]) -> bool {
        expired
            .iter()
            .all(|claim| self.contains(claim) || Some((claim.until, claim.number)) > self.last)
    }
}

/// Moves jobs to the seizer, oldest claim first; answers which.
fn take_over(
    tx: &mut WriteTransaction<'_>,
    seize: &SeizeRequest,
    pending: &mut PendingSeizures,
    now: Time,
) -> Result<Vec<Vec<u8>>> {
    move_back(tx, now)?;
    let max = seize.max.min(SEIZE_MAX);
    // Each holds a job, or is closed before long.
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

/// Where the clock was set back, claims end as long after now as they had to last.
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

/// The first claims that are expired, at most so many of each kind.
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

/// All jobs of these claims, in one pass over what runs: claim by claim, each in the order of the
/// line.
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

/// Removes expired claims that hold nothing: they would be found again for ever.
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
