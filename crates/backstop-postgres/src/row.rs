//! Decodes rows leniently: a damaged column gets a default value, and its neighbours are still
//! read.

use backstop_core::failure::FailureHistory;
use backstop_core::job_options::JobOptions;
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::{
    JobId, JobState, Kind, Lease, LeaseNumber, LeasedRun, Payload, Priority, QueueName, Time,
    WorkerName,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> StoreResult<T> {
    row.try_get(column)
        .map_err(|error| StoreError::corrupt("reading a row", error))
}

/// Converts a job's id to the driver's type.
pub(crate) const fn uuid(id: JobId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// Converts the driver's type to a job's id.
pub(crate) const fn job_id(id: Uuid) -> JobId {
    JobId::from_bytes(*id.as_bytes())
}

/// Converts a count to an integer of the SQL functions.
pub(crate) fn number(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

/// Decodes a state; `None` if no state has this number.
pub(crate) fn known_state(code: i16) -> Option<JobState> {
    usize::try_from(code)
        .ok()
        .and_then(|code| JobState::ALL.get(code))
        .copied()
}

/// Decodes a state. No code writes another number, so the row is damaged: the job counts as dead,
/// where an operator looks.
pub(crate) fn state(code: i16) -> JobState {
    known_state(code).unwrap_or(JobState::Dead)
}

fn count(row: &Row, column: usize) -> StoreResult<u32> {
    get::<i32>(row, column).map(|count| u32::try_from(count).unwrap_or(0))
}

fn time(row: &Row, column: usize) -> StoreResult<Time> {
    get(row, column).map(Time::from_micros)
}

fn priority(row: &Row, column: usize) -> StoreResult<Priority> {
    let level: i16 = get(row, column)?;
    Ok(u8::try_from(level)
        .ok()
        .and_then(Priority::from_level)
        .unwrap_or_default())
}

fn queue(row: &Row, column: usize) -> StoreResult<QueueName> {
    QueueName::new(get(row, column)?).map_err(|error| StoreError::corrupt("reading a row", error))
}

/// A job of a claim, its place in line, the worker and lease it was seized from, and whether that
/// run had begun.
pub(crate) struct ClaimedRow {
    pub(crate) place: (QueueName, i16, i64),
    pub(crate) run: LeasedRun,
    pub(crate) vanished: Option<(WorkerName, LeaseNumber)>,
    pub(crate) begun: bool,
}

/// Reads a claimed job from the columns of `claim.sql`.
pub(crate) fn claimed_row(row: &Row, number: LeaseNumber) -> StoreResult<ClaimedRow> {
    let (queue, level, seq) = (queue(row, 0)?, get(row, 1)?, get(row, 2)?);
    let run = LeasedRun {
        lease: Lease {
            queue: queue.clone(),
            job: job_id(get(row, 3)?),
            number,
        },
        kind: Kind::new(get(row, 4)?).unwrap_or_default(),
        payload: Payload::from_stored(get::<Vec<u8>>(row, 5)?),
        priority: priority(row, 1)?,
        attempts_before: count(row, 6)?,
        lost_leases: count(row, 7)?,
        inserted_at: time(row, 8)?,
        run_at: time(row, 9)?,
        options: JobOptions::from_stored(get(row, 10)?),
        history: FailureHistory::from_stored(get(row, 11)?),
    };
    let worker: Option<&str> = get(row, 12)?;
    let lost = get::<Option<i64>>(row, 13)?.map(LeaseNumber::from_i64);
    let vanished = worker.map(WorkerName::new).zip(lost);
    Ok(ClaimedRow {
        place: (queue, level, seq),
        run,
        vanished,
        begun: get(row, 14)?,
    })
}
