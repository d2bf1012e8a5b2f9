//! Settles runs: done, retry, dead, cancelled or released.

use crate::row;
use crate::state_index::{FINISHED_ADD, IndexEntry, JobLookup, RUNNING_REMOVE};
use crate::transaction::{QueueIndex, WriteTransaction};
use backstop_core::port::SettleOutcome;
use backstop_core::verdict::{DoneRetention, EndReason, JobTransition, Requeue, Settlement};
use backstop_core::{JobState, Outcome, Time};
use rusqlite::{CachedStatement, OptionalExtension, Result, params};

const SETTLE_FIND: &str = include_str!("sql/settle_find.sql");
const SETTLE_DONE: &str = include_str!("sql/settle_done.sql");
const SETTLE_JOB: &str = include_str!("sql/settle_job.sql");
const SETTLE_REPEAT: &str = include_str!("sql/settle_repeat.sql");

/// Settles the runs whose leases are current.
pub(crate) fn settle(
    tx: &mut WriteTransaction<'_>,
    settlements: &[Settlement],
    now: Time,
) -> Result<Vec<SettleOutcome>> {
    let mut statements = SettleStatements::prepare(tx)?;
    settlements
        .iter()
        .map(|settlement| settle_one(tx, &mut statements, settlement, now))
        .collect()
}

/// The statements that every settlement runs.
struct SettleStatements<'c> {
    find: CachedStatement<'c>,
    free: CachedStatement<'c>,
    done: CachedStatement<'c>,
    finished: CachedStatement<'c>,
}

impl<'c> SettleStatements<'c> {
    fn prepare(tx: &WriteTransaction<'c>) -> Result<Self> {
        Ok(Self {
            find: tx.db.prepare_cached(SETTLE_FIND)?,
            free: tx.db.prepare_cached(RUNNING_REMOVE)?,
            done: tx.db.prepare_cached(SETTLE_DONE)?,
            finished: tx.db.prepare_cached(FINISHED_ADD)?,
        })
    }
}

/// The place of a run that is being settled.
struct EndingRun {
    queue: QueueIndex,
    no: i64,
    level: i64,
    seq: i64,
}

fn settle_one(
    tx: &mut WriteTransaction<'_>,
    statements: &mut SettleStatements<'_>,
    settlement: &Settlement,
    now: Time,
) -> Result<SettleOutcome> {
    let Some(run) = find(tx, statements, settlement)? else {
        return repeated(tx, settlement);
    };
    let transition = settlement.outcome.transition(now);
    if transition.state == JobState::Dead && !tx.has_room_for_dead(run.queue) {
        return Ok(SettleOutcome::Full);
    }
    statements.free.execute([settlement.lease.job.as_bytes()])?;
    tx.leave_claim(settlement.lease.number, 1);
    tx.count(run.queue, JobState::Running, -1);
    match &settlement.outcome {
        Outcome::Done(DoneRetention::Listed) => end_done(tx, statements, &run, settlement, now)?,
        Outcome::Done(DoneRetention::Gone) => {
            tx.count_end(run.queue, JobState::Done);
            forget(tx, run.no, JobState::Done, now)?;
        }
        _ => apply(tx, &run, settlement, &transition, now)?,
    }
    Ok(SettleOutcome::Applied)
}

fn find(
    tx: &mut WriteTransaction<'_>,
    statements: &mut SettleStatements<'_>,
    settlement: &Settlement,
) -> Result<Option<EndingRun>> {
    let lease = &settlement.lease;
    let Some(queue) = tx.queue(&lease.queue)? else {
        return Ok(None);
    };
    let named = params![lease.job.as_bytes(), lease.number.as_i64(), tx.at(queue).id];
    let read = |row: &rusqlite::Row<'_>| {
        Ok(EndingRun {
            queue,
            no: row::whole(row, 0)?,
            level: row::whole(row, 1)?,
            seq: row::whole(row, 2)?,
        })
    };
    statements.find.query_row(named, read).optional()
}

fn repeated(tx: &mut WriteTransaction<'_>, settlement: &Settlement) -> Result<SettleOutcome> {
    let lease = &settlement.lease;
    let Some(queue) = tx.queue(&lease.queue)? else {
        return Ok(SettleOutcome::Stale);
    };
    let (number, tag) = (lease.number.as_i64(), settlement.outcome.tag());
    let same = params![lease.job.as_bytes(), number, tag, tx.at(queue).id];
    let repeated = tx.db.prepare_cached(SETTLE_REPEAT)?.exists(same)?;
    Ok(if repeated {
        SettleOutcome::Applied
    } else {
        SettleOutcome::Stale
    })
}

fn end_done(
    tx: &mut WriteTransaction<'_>,
    statements: &mut SettleStatements<'_>,
    run: &EndingRun,
    settlement: &Settlement,
    now: Time,
) -> Result<()> {
    let number = settlement.lease.number.as_i64();
    statements.done.execute(params![
        run.no,
        now.as_micros(),
        number,
        settlement.outcome.tag()
    ])?;
    statements
        .finished
        .execute([tx.at(run.queue).id, row::DONE, now.as_micros(), run.no])?;
    tx.count(run.queue, JobState::Done, 1);
    tx.count_end(run.queue, JobState::Done);
    Ok(())
}

fn apply(
    tx: &mut WriteTransaction<'_>,
    run: &EndingRun,
    settlement: &Settlement,
    transition: &JobTransition<'_>,
    now: Time,
) -> Result<()> {
    let seq = match (transition.state, transition.requeue) {
        (JobState::Ready, Requeue::End) => tx.tail(run.queue),
        _ => run.seq,
    };
    tx.db.prepare_cached(SETTLE_JOB)?.execute(params![
        run.no,
        row::code(transition.state),
        transition.attempts,
        transition.lost_leases,
        seq,
        transition.run_at.map(Time::as_micros),
        now.as_micros(),
        settlement.lease.number.as_i64(),
        settlement.outcome.tag(),
        transition.reason.map(EndReason::as_str),
        transition.history.is_some(),
        transition.history.and_then(|history| history.as_bytes()),
        transition.anew,
    ])?;
    tx.count_end(run.queue, transition.state);
    // `run_at` is set for every job that waits. Where `now` replaces it, no index uses it.
    let run_at = transition.run_at.unwrap_or(now);
    let EndingRun {
        queue, no, level, ..
    } = *run;
    let fingerprint = transition.fingerprint;
    tx.enter(
        IndexEntry {
            no,
            queue,
            level,
            seq,
            run_at,
            finished_at: now,
            fingerprint,
        },
        transition.state,
    )
}

/// Removes an ended job that is in no line. Its unique key stays if its state still holds it.
pub(crate) fn forget(
    tx: &mut WriteTransaction<'_>,
    no: i64,
    state: JobState,
    now: Time,
) -> Result<()> {
    let Some(job) = tx.find_job_row(JobLookup::No(no))? else {
        return Ok(());
    };
    tx.delete(no)?;
    match &job.unique {
        Some((key, hold)) if hold.is_held(state, now) => tx.leave_key(job.entry.queue, key, job.id),
        Some((key, _)) => tx.remove_key(job.entry.queue, key, job.id),
        None => Ok(()),
    }
}
