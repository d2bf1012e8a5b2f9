//! The end of runs.

use crate::lines::{FINISHED_ADD, RUNNING_REMOVE, Spot, Which};
use crate::row;
use crate::work::{QueueAt, Work};
use backstop_core::port::Settled;
use backstop_core::verdict::{Keep, Place, Reason, Settlement, Transition};
use backstop_core::{Outcome, State, Time};
use rusqlite::{CachedStatement, OptionalExtension, Result, params};

const SETTLE_FIND: &str = include_str!("sql/settle_find.sql");
const SETTLE_DONE: &str = include_str!("sql/settle_done.sql");
const SETTLE_JOB: &str = include_str!("sql/settle_job.sql");
const SETTLE_REPEAT: &str = include_str!("sql/settle_repeat.sql");

/// Ends runs whose leases are current.
pub(crate) fn settle(
    work: &mut Work<'_>,
    settlements: &[Settlement],
    now: Time,
) -> Result<Vec<Settled>> {
    let mut lines = Lines::prepare(work)?;
    settlements
        .iter()
        .map(|settlement| settle_one(work, &mut lines, settlement, now))
        .collect()
}

/// What the end of every run reads and writes.
struct Lines<'c> {
    find: CachedStatement<'c>,
    free: CachedStatement<'c>,
    done: CachedStatement<'c>,
    finished: CachedStatement<'c>,
}

impl<'c> Lines<'c> {
    fn prepare(work: &Work<'c>) -> Result<Self> {
        Ok(Self {
            find: work.db.prepare_cached(SETTLE_FIND)?,
            free: work.db.prepare_cached(RUNNING_REMOVE)?,
            done: work.db.prepare_cached(SETTLE_DONE)?,
            finished: work.db.prepare_cached(FINISHED_ADD)?,
        })
    }
}

/// A run that is to be ended.
struct Run {
    queue: QueueAt,
    no: i64,
    level: i64,
    seq: i64,
}

fn settle_one(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    settlement: &Settlement,
    now: Time,
) -> Result<Settled> {
    let Some(run) = find(work, lines, settlement)? else {
        return repeated(work, settlement);
    };
    let transition = settlement.outcome.transition(now);
    if transition.state == State::Dead && !work.has_room_for_dead(run.queue) {
        return Ok(Settled::Full);
    }
    lines.free.execute([settlement.lease.job.as_bytes()])?;
    work.leave_claim(settlement.lease.number, 1);
    work.count(run.queue, State::Running, -1);
    match &settlement.outcome {
        Outcome::Done(Keep::Listed) => end_done(work, lines, &run, settlement, now)?,
        Outcome::Done(Keep::Gone) => {
            work.count_end(run.queue, State::Done);
            forget(work, run.no, State::Done, now)?;
        }
        _ => apply(work, &run, settlement, &transition, now)?,
    }
    Ok(Settled::Applied)
}

fn find(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    settlement: &Settlement,
) -> Result<Option<Run>> {
    let lease = &settlement.lease;
    let Some(queue) = work.queue(&lease.queue)? else {
        return Ok(None);
    };
    let named = params![
        lease.job.as_bytes(),
        lease.number.as_i64(),
        work.at(queue).id
    ];
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Run {
            queue,
            no: row::whole(row, 0)?,
            level: row::whole(row, 1)?,
            seq: row::whole(row, 2)?,
        })
    };
    lines.find.query_row(named, read).optional()
}

fn repeated(work: &mut Work<'_>, settlement: &Settlement) -> Result<Settled> {
    let lease = &settlement.lease;
    let Some(queue) = work.queue(&lease.queue)? else {
        return Ok(Settled::Stale);
    };
    let (number, tag) = (lease.number.as_i64(), settlement.outcome.tag());
    let same = params![lease.job.as_bytes(), number, tag, work.at(queue).id];
    let repeated = work.db.prepare_cached(SETTLE_REPEAT)?.exists(same)?;
    Ok(if repeated {
        Settled::Applied
    } else {
        Settled::Stale
    })
}

fn end_done(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    run: &Run,
    settlement: &Settlement,
    now: Time,
) -> Result<()> {
    let number = settlement.lease.number.as_i64();
    lines.done.execute(params![
        run.no,
        now.as_micros(),
        number,
        settlement.outcome.tag()
    ])?;
    lines
        .finished
        .execute([work.at(run.queue).id, row::DONE, now.as_micros(), run.no])?;
    work.count(run.queue, State::Done, 1);
    work.count_end(run.queue, State::Done);
    Ok(())
}

fn apply(
    work: &mut Work<'_>,
    run: &Run,
    settlement: &Settlement,
    transition: &Transition<'_>,
    now: Time,
) -> Result<()> {
    let seq = match (transition.state, transition.place) {
        (State::Ready, Place::Tail) => work.tail(run.queue),
        _ => run.seq,
    };
    work.db.prepare_cached(SETTLE_JOB)?.execute(params![
        run.no,
        row::code(transition.state),
        transition.attempts,
        transition.lost_leases,
        seq,
        transition.run_at.map(Time::as_micros),
        now.as_micros(),
        settlement.lease.number.as_i64(),
        settlement.outcome.tag(),
        transition.reason.map(Reason::as_str),
        transition.history.is_some(),
        transition.history.and_then(|history| history.as_bytes()),
        transition.anew,
    ])?;
    work.count_end(run.queue, transition.state);
    // A job that waits has a time to wait for: `now` stands in only where no line looks at it.
    let run_at = transition.run_at.unwrap_or(now);
    let Run {
        queue, no, level, ..
    } = *run;
    let fingerprint = transition.fingerprint;
    work.enter(
        Spot {
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

/// Removes an ended job that is in no line; its key stays behind if its state still holds it.
pub(crate) fn forget(work: &mut Work<'_>, no: i64, state: State, now: Time) -> Result<()> {
    let Some(job) = work.standing(Which::No(no))? else {
        return Ok(());
    };
    work.delete(no)?;
    match &job.unique {
        Some((key, hold)) if hold.is_held(state, now) => {
            work.leave_key(job.spot.queue, key, job.id)
        }
        Some((key, _)) => work.remove_key(job.spot.queue, key, job.id),
        None => Ok(()),
    }
}
