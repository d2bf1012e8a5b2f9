//! Claims: moves jobs from the ready table to the running table, without writing the job's own row.

use crate::row::{self, LeasedJobReader};
use crate::state_index::{IndexEntry, JobLookup, RUNNING_REMOVE};
use crate::transaction::{QueueIndex, WriteTransaction};
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop_core::job::Claimant;
use backstop_core::limits::CLAIM_BYTES_MAX;
use backstop_core::port::Claim;
use backstop_core::{Fingerprint, JobState, LeaseNumber, LeasedRun, QueueName, Time, WorkerName};
use rusqlite::{CachedStatement, OptionalExtension, Result, Row, params};

const CLAIM_KNOWN: &str = include_str!("sql/claim_known.sql");
const CLAIM_TAKE: &str = include_str!("sql/claim_take.sql");
const CLAIM_JOB: &str = include_str!("sql/claim_job.sql");
const CLAIM_LEASE: &str = include_str!("sql/claim_lease.sql");
const CLAIM_CLEAR: &str = include_str!("sql/claim_clear.sql");
const CLAIM_OPEN: &str = include_str!("sql/claim_open.sql");
const CLAIM_HELD: &str = include_str!("sql/claim_held.sql");
const SEIZE_HELD: &str = include_str!("sql/seize_held.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");
const AMEND_HISTORY: &str = include_str!("sql/amend_history.sql");

/// Claims ready jobs. A repeated claim returns the jobs of the first one that it still holds.
pub(crate) fn claim(
    tx: &mut WriteTransaction<'_>,
    claim: &Claim,
    now: Time,
) -> Result<Vec<LeasedRun>> {
    tx.flush_claims()?;
    if is_open(tx, claim.number)? {
        return Ok(load_claimed_jobs(tx, claim.number, now)?
            .into_iter()
            .map(|held| held.run)
            .collect());
    }
    let mut leased = Vec::new();
    let mut bytes_left = CLAIM_BYTES_MAX;
    for want in &claim.wants {
        if bytes_left > 0
            && let Some(queue) = tx.queue(&want.queue)?
            && !tx.at(queue).paused
        {
            take(
                tx,
                queue,
                want.max,
                claim.number,
                now,
                (&mut leased, &mut bytes_left),
            )?;
        }
    }
    if !leased.is_empty() {
        let by = Claimant {
            worker: claim.worker.clone(),
            since: now,
            until: claim.until,
        };
        open(tx, claim.number, &by, leased.len())?;
    }
    Ok(leased)
}

/// Whether a claim still holds jobs. Call [`WriteTransaction::flush_claims`] before.
pub(crate) fn is_open(tx: &WriteTransaction<'_>, number: LeaseNumber) -> Result<bool> {
    tx.db.prepare_cached(CLAIM_KNOWN)?.exists([number.as_i64()])
}

/// Inserts the row of a claim with this number of jobs.
pub(crate) fn open(
    tx: &WriteTransaction<'_>,
    number: LeaseNumber,
    by: &Claimant,
    jobs: usize,
) -> Result<()> {
    let (since, until) = (by.since.as_micros(), by.until.as_micros());
    let claim = params![
        number.as_i64(),
        by.worker.as_str(),
        until,
        row::number(jobs),
        since
    ];
    tx.db.prepare_cached(CLAIM_OPEN)?.execute(claim).map(drop)
}

/// Claims the first jobs of a queue's ready line, until the claim has enough bytes.
fn take(
    tx: &mut WriteTransaction<'_>,
    queue: QueueIndex,
    max: usize,
    number: LeaseNumber,
    now: Time,
    (leased, bytes_left): (&mut Vec<LeasedRun>, &mut usize),
) -> Result<()> {
    let db = tx.db;
    let (queue_id, queue_name) = (tx.at(queue).id, tx.at(queue).name.clone());
    let mut lease = db.prepare_cached(CLAIM_LEASE)?;
    let mut job = db.prepare_cached(CLAIM_JOB)?;
    let mut taking = db.prepare_cached(CLAIM_TAKE)?;
    let mut rows = taking.query(params![queue_id, row::number(max)])?;
    let (mut reader, mut ends, mut unreadable) = (
        LeasedJobReader::default(),
        LevelCursors::default(),
        Vec::new(),
    );
    let before = leased.len();
    while *bytes_left > 0
        && let Some(row) = rows.next()?
    {
        let (level, seq, no) = (
            row::whole(row, 0)?,
            row::whole(row, 1)?,
            row::whole(row, 2)?,
        );
        ends.advance(level, seq);
        match read(&mut job, no, |row| {
            reader.leased(row, &queue_name, level, number)
        })? {
            Some(run) => {
                let id = run.lease.job.as_bytes();
                lease.execute(params![id, no, number.as_i64(), queue_id, level, seq])?;
                *bytes_left = bytes_left.saturating_sub(run.payload.len());
                leased.push(run);
            }
            None => unreadable.push(no),
        }
    }
    drop(rows);
    for (level, seq) in &ends.0 {
        db.prepare_cached(CLAIM_CLEAR)?
            .execute([queue_id, *level, *seq])?;
    }
    let taken = row::number(leased.len() - before);
    tx.count(queue, JobState::Running, taken);
    tx.count(
        queue,
        JobState::Ready,
        -taken - row::number(unreadable.len()),
    );
    unreadable
        .into_iter()
        .try_for_each(|no| end_unreadable(tx, no, now))
}

/// Reads a job's row, if it exists.
fn read<T>(
    job: &mut CachedStatement<'_>,
    no: i64,
    read: impl FnOnce(&Row<'_>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    job.query_row([no], read).optional().map(Option::flatten)
}

/// The last place claimed in each priority level, in the order of the line.
#[derive(Default)]
struct LevelCursors(Vec<(i64, i64)>);

impl LevelCursors {
    fn advance(&mut self, level: i64, seq: i64) {
        match self.0.last_mut() {
            Some(last) if last.0 == level => last.1 = seq,
            _ => self.0.push((level, seq)),
        }
    }
}

/// A job of a claim. The claim may have seized it, that is, taken it over from an expired lease.
pub(crate) struct ClaimedJob {
    pub(crate) run: LeasedRun,
    /// The worker whose lease expired, with its lease number; `None` if the job was not seized.
    /// After several seizures it is still the first of these workers: a seizer that vanishes
    /// before it settles has not run the job.
    pub(crate) vanished: Option<(WorkerName, LeaseNumber)>,
    /// Whether the run had begun: the run of the vanished worker if the job was seized, otherwise
    /// the run of this claim.
    pub(crate) begun: bool,
}

/// Reads the jobs that a claim still holds, in the order of the line. A job whose row cannot be
/// read leaves the claim and ends as dead.
pub(crate) fn load_claimed_jobs(
    tx: &mut WriteTransaction<'_>,
    number: LeaseNumber,
    now: Time,
) -> Result<Vec<ClaimedJob>> {
    let places = read_running_rows(tx, number)?;
    load_runs(tx, places, number, now)
}

/// Reads these jobs of a claim, in the order of the line, without reading all other running jobs. A
/// job whose row cannot be read leaves the claim and ends as dead.
pub(crate) fn load_claimed_jobs_by_id(
    tx: &mut WriteTransaction<'_>,
    ids: &[Vec<u8>],
    number: LeaseNumber,
    now: Time,
) -> Result<Vec<ClaimedJob>> {
    let db = tx.db;
    let mut place = db.prepare_cached(SEIZE_HELD)?;
    let mut places = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = place.query([id])?;
        while let Some(row) = rows.next()? {
            places.push(RunningRow::read(tx, row)?);
        }
    }
    load_runs(tx, places, number, now)
}

fn load_runs(
    tx: &mut WriteTransaction<'_>,
    mut places: Vec<RunningRow>,
    number: LeaseNumber,
    now: Time,
) -> Result<Vec<ClaimedJob>> {
    places.sort_by(|one, other| one.order.cmp(&other.order));
    let mut job = tx.db.prepare_cached(CLAIM_JOB)?;
    let (mut reader, mut held) = (LeasedJobReader::default(), Vec::new());
    for place in places {
        let (queue, level, _) = &place.order;
        if let Some(run) = read(&mut job, place.no, |row| {
            reader.leased(row, queue, *level, number)
        })? {
            held.push(ClaimedJob {
                run,
                vanished: place.vanished,
                begun: place.begun,
            });
            continue;
        }
        tx.db.prepare_cached(RUNNING_REMOVE)?.execute([place.id])?;
        tx.leave_claim(number, 1);
        tx.count(place.queue, JobState::Running, -1);
        end_unreadable(tx, place.no, now)?;
    }
    Ok(held)
}

/// A row of the running table.
struct RunningRow {
    no: i64,
    queue: QueueIndex,
    order: (QueueName, i64, i64),
    id: Vec<u8>,
    vanished: Option<(WorkerName, LeaseNumber)>,
    begun: bool,
}

fn read_running_rows(
    tx: &mut WriteTransaction<'_>,
    number: LeaseNumber,
) -> Result<Vec<RunningRow>> {
    let db = tx.db;
    let mut holding = db.prepare_cached(CLAIM_HELD)?;
    let mut rows = holding.query([number.as_i64()])?;
    let mut places = Vec::new();
    while let Some(row) = rows.next()? {
        places.push(RunningRow::read(tx, row)?);
    }
    Ok(places)
}

impl RunningRow {
    fn read(tx: &mut WriteTransaction<'_>, row: &Row<'_>) -> Result<Self> {
        let queue = tx.queue_of(row::whole(row, 3)?)?;
        Ok(Self {
            no: row::whole(row, 0)?,
            queue,
            order: (
                tx.at(queue).name.clone(),
                row::whole(row, 1)?,
                row::whole(row, 2)?,
            ),
            id: row::bytes(row, 4)?.unwrap_or_default().to_vec(),
            vanished: vanished(row)?,
            begun: row::whole(row, 7)? != 0,
        })
    }
}

fn vanished(row: &Row<'_>) -> Result<Option<(WorkerName, LeaseNumber)>> {
    let worker = row::text(row, 5)?.map(WorkerName::new);
    Ok(worker.zip(row::maybe_whole(row, 6)?.map(LeaseNumber::from_i64)))
}

/// Ends as dead a job that is in neither the ready nor the running table and whose row cannot be
/// read. Operators can then find it, and it does not block the jobs behind it. The limit on dead
/// letters does not apply, because an unreadable job cannot go back to the ready table. Does
/// nothing but warn if the row does not exist.
///
/// The current claim has not run the job. But if the job was seized, an earlier run may have begun,
/// so the message does not say that the job never ran.
fn end_unreadable(tx: &mut WriteTransaction<'_>, no: i64, now: Time) -> Result<()> {
    tracing::warn!(
        no,
        "a row of backstop_job is missing or cannot be read. If it exists, its job ends as dead. \
         Run `backstop doctor`"
    );
    let Some(job) = tx.find_job_row(JobLookup::No(no))? else {
        return Ok(());
    };
    let error = ErrorReport {
        error_type: Some("UnreadableRow".to_owned()),
        ..ErrorReport::message("the stored job cannot be read, so it cannot run")
    };
    let failure = FailureRecord::new(now, 0, FailureCause::Failed, &WorkerName::new(""), error);
    tx.db.prepare_cached(AMEND_END)?.execute(params![
        no,
        row::code(JobState::Dead),
        now.as_micros(),
        None::<&str>
    ])?;
    let history = FailureHistory::default().with_failure(failure);
    tx.db
        .prepare_cached(AMEND_HISTORY)?
        .execute(params![no, history.as_bytes()])?;
    tx.count_end(job.entry.queue, JobState::Dead);
    let fingerprint = Some(Fingerprint::of_death(None, &history));
    tx.enter(
        IndexEntry {
            finished_at: now,
            fingerprint,
            ..job.entry
        },
        JobState::Dead,
    )
}
