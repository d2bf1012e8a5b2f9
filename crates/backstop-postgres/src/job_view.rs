//! Reads a job for an operator, and reports what cannot be read. A damaged column costs only
//! itself: a caller that reads this one job still gets the rest.

use crate::row::{self, get};
use backstop_core::failure::FailureHistory;
use backstop_core::job::Claimant;
use backstop_core::job_options::JobOptions;
use backstop_core::port::{DamagedJob, StoreResult};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{Job, JobId, JobState, Kind, Payload, Priority, QueueName, Time, WorkerName};
use std::fmt::Display;
use tokio_postgres::Row;

/// The result of reading one job.
pub(crate) struct ReadJob {
    /// The readable part; `None` if not even its queue can be read.
    pub(crate) job: Option<Job>,
    /// The columns that cannot be read, if there are any.
    pub(crate) damaged: Option<DamagedJob>,
}

impl ReadJob {
    /// Reads a job from the columns of `jobs_by_id`.
    pub(crate) fn read(row: &Row) -> StoreResult<Self> {
        let id = row::job_id(get(row, 0)?);
        let mut columns = JobColumns {
            row,
            faults: Vec::new(),
        };
        let queue = columns.queue()?;
        let job = match queue.clone() {
            Some(queue) => Some(columns.job(id, queue)?),
            None => None,
        };
        let why = columns.faults.join("; ");
        let damaged = (!why.is_empty()).then_some(DamagedJob {
            id: Some(id),
            queue,
            why,
        });
        Ok(Self { job, damaged })
    }
}

/// The columns of a job's row, and the faults found in them so far.
struct JobColumns<'r> {
    row: &'r Row,
    faults: Vec<String>,
}

impl JobColumns<'_> {
    fn queue(&mut self) -> StoreResult<Option<QueueName>> {
        if get::<Option<&str>>(self.row, 1)?.is_none() {
            self.fault("queue", "there is none of its number");
        }
        self.text(1, "queue", QueueName::new)
    }

    fn job(&mut self, id: JobId, queue: QueueName) -> StoreResult<Job> {
        let state = self.state()?;
        Ok(Job {
            id,
            queue,
            kind: self.text(2, "kind", Kind::new)?.unwrap_or_default(),
            state,
            payload: Payload::from_stored(get::<Vec<u8>>(self.row, 4)?),
            priority: self.priority()?,
            attempt: self.count(6, "attempts")? + u32::from(state == JobState::Running),
            lost_leases: self.count(7, "lost")?,
            requeues: self.count(8, "requeues")?,
            run_at: get(self.row, 9).map(Time::from_micros)?,
            inserted_at: get(self.row, 10).map(Time::from_micros)?,
            finished_at: get::<Option<i64>>(self.row, 11)?.map(Time::from_micros),
            unique_key: self.text(12, "unique_key", UniqueKey::new)?,
            options: JobOptions::from_stored(get(self.row, 13)?),
            history: FailureHistory::from_stored(get(self.row, 14)?),
            reason: self.text(15, "reason", str::parse::<EndReason>)?,
            held_by: self.claimant()?,
        })
    }

    fn claimant(&self) -> StoreResult<Option<Claimant>> {
        let worker = get::<Option<&str>>(self.row, 16)?.map(WorkerName::new);
        let until = get::<Option<i64>>(self.row, 17)?.map(Time::from_micros);
        let since = get::<Option<i64>>(self.row, 18)?.map(Time::from_micros);
        let held = worker.zip(since).zip(until);
        Ok(held.map(|((worker, since), until)| Claimant {
            worker,
            since,
            until,
        }))
    }

    fn state(&mut self) -> StoreResult<JobState> {
        let code: i16 = get(self.row, 3)?;
        if row::known_state(code).is_none() {
            self.fault("state", format_args!("{code} is none"));
        }
        Ok(row::state(code))
    }

    fn priority(&mut self) -> StoreResult<Priority> {
        let level: i16 = get(self.row, 5)?;
        let known = u8::try_from(level).ok().and_then(Priority::from_level);
        if known.is_none() {
            self.fault("level", format_args!("{level} is none"));
        }
        Ok(known.unwrap_or_default())
    }

    fn count(&mut self, column: usize, name: &str) -> StoreResult<u32> {
        let count: i32 = get(self.row, column)?;
        Ok(u32::try_from(count)
            .map_err(|_| self.fault(name, format_args!("{count} is too few")))
            .unwrap_or(0))
    }

    /// Parses a text column, if it is not NULL.
    fn text<T, E: Display>(
        &mut self,
        column: usize,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> StoreResult<Option<T>> {
        let Some(text) = get::<Option<&str>>(self.row, column)? else {
            return Ok(None);
        };
        Ok(read(text).map_err(|why| self.fault(name, why)).ok())
    }

    fn fault(&mut self, name: &str, why: impl Display) {
        self.faults.push(format!("{name}: {why}"));
    }
}
