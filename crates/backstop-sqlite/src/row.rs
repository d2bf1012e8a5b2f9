//! Decodes rows leniently: a damaged column gets a default value, and its neighbours are still
//! read.

use backstop_core::bounds::DEAD_MAX_DEFAULT;
use backstop_core::failure::FailureHistory;
use backstop_core::job_options::JobOptions;
use backstop_core::unique::{StateSet, UniqueHold, UniqueKey};
use backstop_core::{
    JobId, JobState, Kind, Lease, LeaseNumber, LeasedRun, Payload, Priority, QueueBounds,
    QueueName, Time,
};
use rusqlite::types::ValueRef;
use rusqlite::{Result, Row};

/// The state column of a job that is ready or running. The index tables say which of the two.
pub(crate) const QUEUED: i64 = 0;
/// The state column of a job that is done. SQLite stores 0 and 1 in no bytes at all, so that a job
/// ends in place.
pub(crate) const DONE: i64 = 1;
const SCHEDULED: i64 = 2;
const RETRYING: i64 = 3;
const DEAD: i64 = 4;
const CANCELLED: i64 = 5;

/// The lease number of a job that is not settled yet: eight bytes wide, like every lease number,
/// and equal to none.
pub(crate) const NO_LEASE: i64 = i64::MIN;
/// The tag of a job that is not settled yet: one byte wide, like every tag.
pub(crate) const NO_TAG: i64 = 127;

/// Encodes a state for the state column.
pub(crate) const fn code(state: JobState) -> i64 {
    match state {
        JobState::Ready | JobState::Running => QUEUED,
        JobState::Done => DONE,
        JobState::Scheduled => SCHEDULED,
        JobState::Retrying => RETRYING,
        JobState::Dead => DEAD,
        JobState::Cancelled => CANCELLED,
    }
}

/// Decodes a state column. No code writes another number, so the row is damaged: the job counts as
/// dead, where an operator looks.
pub(crate) fn state(code: i64, is_running: bool) -> JobState {
    known_state(code, is_running).unwrap_or(JobState::Dead)
}

/// Decodes a state column; `None` if no state has this number.
pub(crate) const fn known_state(code: i64, is_running: bool) -> Option<JobState> {
    Some(match code {
        QUEUED if is_running => JobState::Running,
        QUEUED => JobState::Ready,
        DONE => JobState::Done,
        SCHEDULED => JobState::Scheduled,
        RETRYING => JobState::Retrying,
        DEAD => JobState::Dead,
        CANCELLED => JobState::Cancelled,
        _ => return None,
    })
}

/// Converts a count to an SQLite integer.
pub(crate) fn number(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

/// Reads an integer; 0 if there is none.
pub(crate) fn whole(row: &Row<'_>, column: usize) -> Result<i64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => number,
        ValueRef::Real(number) => number as i64,
        _ => 0,
    })
}

/// Reads an integer, if there is one.
pub(crate) fn maybe_whole(row: &Row<'_>, column: usize) -> Result<Option<i64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => Some(number),
        _ => None,
    })
}

/// Reads a count; 0 if there is none.
pub(crate) fn count(row: &Row<'_>, column: usize) -> Result<u64> {
    whole(row, column).map(|number| number.max(0).unsigned_abs())
}

/// Reads valid UTF-8 text, if there is any.
pub(crate) fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>> {
    Ok(bytes(row, column)?.and_then(|bytes| std::str::from_utf8(bytes).ok()))
}

/// Reads bytes, if there are any.
pub(crate) fn bytes<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r [u8]>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Some(bytes),
        _ => None,
    })
}

/// Reads a job's id, if it has sixteen bytes.
pub(crate) fn id(row: &Row<'_>, column: usize) -> Result<Option<JobId>> {
    Ok(bytes(row, column)?
        .and_then(|bytes| bytes.try_into().ok())
        .map(JobId::from_bytes))
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> Result<Time> {
    whole(row, column).map(Time::from_micros)
}

/// Reads a unique key with its hold from three columns.
pub(crate) fn unique(row: &Row<'_>, column: usize) -> Result<Option<(UniqueKey, UniqueHold)>> {
    let key = text(row, column)?.and_then(|text| UniqueKey::new(text).ok());
    let hold = hold(row, column + 1)?;
    Ok(key.map(|key| (key, hold)))
}

/// Reads how long the holder of a unique key keeps it, from two columns.
pub(crate) fn hold(row: &Row<'_>, column: usize) -> Result<UniqueHold> {
    let states = u8::try_from(whole(row, column)?).unwrap_or(0);
    let until = maybe_whole(row, column + 1)?.map(Time::from_micros);
    Ok(UniqueHold {
        states: StateSet::from_bits(states),
        until,
    })
}

/// Reads the bounds of a queue from three columns; an unreadable bound gets its default.
pub(crate) fn bounds(row: &Row<'_>, column: usize) -> Result<QueueBounds> {
    Ok(QueueBounds {
        max_size: maybe_whole(row, column)?.map(i64::cast_unsigned),
        overflow: text(row, column + 1)?
            .and_then(|word| word.parse().ok())
            .unwrap_or_default(),
        dead_max: maybe_whole(row, column + 2)?.map_or(DEAD_MAX_DEFAULT, i64::cast_unsigned),
    })
}

fn small(row: &Row<'_>, column: usize) -> Result<u32> {
    Ok(u32::try_from(whole(row, column)?).unwrap_or(0))
}

fn priority(level: i64) -> Priority {
    u8::try_from(level)
        .ok()
        .and_then(Priority::from_level)
        .unwrap_or_default()
}

/// Reads claimed jobs. Neighbours are mostly of one kind: its text is then shared, not copied.
#[derive(Default)]
pub(crate) struct LeasedJobReader {
    kind: Kind,
}

impl LeasedJobReader {
    /// Reads a leased job from the columns of `claim_job.sql`; `None` if the row cannot be run as
    /// it is.
    pub(crate) fn leased(
        &mut self,
        row: &Row<'_>,
        queue: &QueueName,
        level: i64,
        number: LeaseNumber,
    ) -> Result<Option<LeasedRun>> {
        let (Some(job), Some(payload)) = (id(row, 0)?, bytes(row, 2)?) else {
            return Ok(None);
        };
        let Some(kind) = text(row, 1)? else {
            return Ok(None);
        };
        if kind != self.kind.as_str() {
            let Ok(kind) = Kind::new(kind) else {
                return Ok(None);
            };
            self.kind = kind;
        }
        Ok(Some(LeasedRun {
            lease: Lease {
                queue: queue.clone(),
                job,
                number,
            },
            kind: self.kind.clone(),
            payload: Payload::from_stored(payload.to_vec()),
            priority: priority(level),
            attempts_before: small(row, 3)?,
            lost_leases: small(row, 4)?,
            inserted_at: time(row, 5)?,
            run_at: time(row, 6)?,
            options: JobOptions::from_stored(bytes(row, 7)?.map(<[u8]>::to_vec)),
            history: FailureHistory::from_stored(bytes(row, 8)?.map(<[u8]>::to_vec)),
        }))
    }
}
