//! Jobs out: from the ready line into running, without a touch of the job's own row.

use crate::lines::{Spot, Which};
use crate::row::{self, Reader};
use crate::work::{QueueAt, Work};
use backstop_core::failure::{Cause, ErrorReport, Failure, History};
use backstop_core::port::Claim;
use backstop_core::{LeaseNumber, Leased, State, Time, WorkerName};
use rusqlite::{Result, Row, params};

const CLAIM_KNOWN: &str = include_str!("sql/claim_known.sql");
pub(crate) const CLAIM_TAKE: &str = include_str!("sql/claim_take.sql");
const CLAIM_LEASE: &str = include_str!("sql/claim_lease.sql");
const CLAIM_CLEAR: &str = include_str!("sql/claim_clear.sql");
const CLAIM_OPEN: &str = include_str!("sql/claim_open.sql");
const CLAIM_HELD: &str = include_str!("sql/claim_held.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");
const AMEND_HISTORY: &str = include_str!("sql/amend_history.sql");

/// Hands out ready jobs; what the same claim got before, if it is repeated.
pub(crate) fn claim(work: &mut Work<'_>, claim: &Claim, now: Time) -> Result<Vec<Leased>> {
    work.flush_claims()?;
    if is_open(work, claim.number)? {
        return Ok(held_under(work, claim.number, now)?.into_iter().map(|held| held.run).collect());
    }
    let mut leased = Vec::new();
    for want in &claim.wants {
        if let Some(queue) = work.queue(&want.queue)?
            && !work.at(queue).paused
        {
            take(work, queue, want.max, claim.number, now, &mut leased)?;
        }
    }
    if !leased.is_empty() {
        open(work, claim.number, &claim.worker, claim.until, leased.len())?;
    }
    Ok(leased)
}

/// Whether a claim still holds jobs. The claims must be flushed.
pub(crate) fn is_open(work: &Work<'_>, number: LeaseNumber) -> Result<bool> {
    work.db.prepare_cached(CLAIM_KNOWN)?.exists([number.as_i64()])
}

/// Writes down a claim of so many jobs.
pub(crate) fn open(
    work: &Work<'_>,
    number: LeaseNumber,
    worker: &WorkerName,
    until: Time,
    jobs: usize,
) -> Result<()> {
    let claim = params![number.as_i64(), worker.as_str(), until.as_micros(), jobs.cast_signed()];
    work.db.prepare_cached(CLAIM_OPEN)?.execute(claim).map(drop)
}

/// Takes the head of a queue's line.
fn take(
    work: &mut Work<'_>,
    queue: QueueAt,
    max: usize,
    number: LeaseNumber,
    now: Time,
    leased: &mut Vec<Leased>,
) -> Result<()> {
    let db = work.db;
    let (queue_id, queue_name) = (work.at(queue).id, work.at(queue).name.clone());
    let mut lease = db.prepare_cached(CLAIM_LEASE)?;
    let mut taking = db.prepare_cached(CLAIM_TAKE)?;
    let mut rows = taking.query(params![queue_id, i64::try_from(max).unwrap_or(i64::MAX)])?;
    let (mut reader, mut ends, mut unreadable) = (Reader::default(), Ends::default(), Vec::new());
    let before = leased.len();
    while let Some(row) = rows.next()? {
        let (level, seq, no) = (row::whole(row, 0)?, row::whole(row, 1)?, row::whole(row, 2)?);
        ends.reach(level, seq);
        match reader.leased(row, &queue_name, number)? {
            Some(run) => {
                let id = run.lease.job.as_bytes();
                lease.execute(params![id, no, number.as_i64(), queue_id, level, seq])?;
                leased.push(run);
            }
            None => unreadable.push(no),
        }
    }
    drop(rows);
    for (level, seq) in ends.0.iter() {
        db.prepare_cached(CLAIM_CLEAR)?.execute([queue_id, *level, *seq])?;
    }
    let taken = i64::try_from(leased.len() - before).unwrap_or(i64::MAX);
    work.count(queue, State::Running, taken);
    work.count(queue, State::Ready, -taken - i64::try_from(unreadable.len()).unwrap_or(i64::MAX));
    unreadable.into_iter().try_for_each(|no| bury(work, no, now))
}

/// The last place taken of each level, in the order of the line.
#[derive(Default)]
struct Ends(Vec<(i64, i64)>);

impl Ends {
    fn reach(&mut self, level: i64, seq: i64) {
        match self.0.last_mut() {
            Some(last) if last.0 == level => last.1 = seq,
            _ => self.0.push((level, seq)),
        }
    }
}

/// A job under a claim, and who had it before it was seized.
pub(crate) struct Held {
    pub(crate) run: Leased,
    pub(crate) vanished: Option<(WorkerName, LeaseNumber)>,
}

/// What a claim still holds, in the order of the line.
pub(crate) fn held_under(work: &mut Work<'_>, number: LeaseNumber, now: Time) -> Result<Vec<Held>> {
    let db = work.db;
    let mut holding = db.prepare_cached(CLAIM_HELD)?;
    let mut rows = holding.query([number.as_i64()])?;
    let (mut reader, mut held, mut unreadable) = (Reader::default(), Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let queue = work.queue_of(row::whole(row, 12)?)?;
        match reader.leased(row, &work.at(queue).name, number)? {
            Some(run) => held.push(Held { run, vanished: vanished(row)? }),
            None => unreadable.push((row::whole(row, 2)?, queue, row::bytes(row, 15)?.map(<[u8]>::to_vec))),
        }
    }
    drop(rows);
    for (no, queue, id) in unreadable {
        db.prepare_cached(crate::lines::RUNNING_REMOVE)?.execute([id])?;
        work.leave_claim(number, 1);
        work.count(queue, State::Running, -1);
        bury(work, no, now)?;
    }
    Ok(held)
}

fn vanished(row: &Row<'_>) -> Result<Option<(WorkerName, LeaseNumber)>> {
    let worker = row::text(row, 13)?.map(WorkerName::new);
    Ok(worker.zip(row::maybe_whole(row, 14)?.map(LeaseNumber::from_i64)))
}

/// Ends a job that is in no line and that no worker could be given: it is dead, where a person finds it, and does not
/// keep the jobs behind it waiting.
fn bury(work: &mut Work<'_>, no: i64, now: Time) -> Result<()> {
    tracing::warn!(no, "a row of backstop_job cannot be read; its job is dead. Run `backstop doctor`");
    let Some(job) = work.standing(Which::No(no))? else { return Ok(()) };
    let error = ErrorReport {
        error_type: Some("UnreadableRow".to_owned()),
        ..ErrorReport::message("what the store holds of this job cannot be read; it was not run")
    };
    let failure = Failure::new(now, 0, Cause::Failed, &WorkerName::new(""), error);
    work.db.prepare_cached(AMEND_END)?.execute(params![
        no,
        row::code(State::Dead),
        now.as_micros(),
        None::<&str>
    ])?;
    let history = History::default().with(failure);
    work.db.prepare_cached(AMEND_HISTORY)?.execute(params![no, history.as_bytes()])?;
    work.count_end(job.spot.queue, State::Dead);
    work.enter(Spot { finished_at: now, ..job.spot }, State::Dead)
}
