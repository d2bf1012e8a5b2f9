//! Reads a job for an operator, and reports what cannot be read. A damaged column costs only
//! itself: a caller that reads this one job still gets the rest.

use crate::row;
use backstop_core::failure::FailureHistory;
use backstop_core::job::Claimant;
use backstop_core::job_options::JobOptions;
use backstop_core::port::DamagedJob;
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{Job, JobId, JobState, Kind, Payload, Priority, QueueName, Time, WorkerName};
use rusqlite::types::ValueRef;
use rusqlite::{Result, Row};
use std::fmt::Display;

/// The result of reading one job.
pub(crate) struct ReadJob {
    /// The readable part; `None` if not even its id and its queue can be read.
    pub(crate) job: Option<Job>,
    /// The columns that cannot be read, if there are any.
    pub(crate) damaged: Option<DamagedJob>,
}

impl ReadJob {
    /// Reads a job from the columns of `job_by_id.sql`.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        let mut columns = JobColumns {
            row,
            faults: Vec::new(),
        };
        let (id, queue) = (columns.id()?, columns.queue()?);
        let job = match (id, queue.clone()) {
            (Some(id), Some(queue)) => Some(columns.job(id, queue)?),
            _ => None,
        };
        let why = columns.faults.join("; ");
        let damaged = (!why.is_empty()).then_some(DamagedJob { id, queue, why });
        Ok(Self { job, damaged })
    }
}

/// The columns of a job's row, and the faults found in them so far.
struct JobColumns<'r, 's> {
    row: &'r Row<'s>,
    faults: Vec<String>,
}

impl JobColumns<'_, '_> {
    fn id(&mut self) -> Result<Option<JobId>> {
        let id = row::id(self.row, 0)?;
        Ok(self.checked(id, "id", "it is not sixteen bytes"))
    }

    fn queue(&mut self) -> Result<Option<QueueName>> {
        if self.row.get_ref(1)? == ValueRef::Null {
            return Ok(self.checked(None, "queue", "there is none of its number"));
        }
        self.text(1, "queue", QueueName::new)
    }

    fn job(&mut self, id: JobId, queue: QueueName) -> Result<Job> {
        let is_running = row::whole(self.row, 16)? != 0;
        let state = self.state(is_running)?;
        Ok(Job {
            id,
            queue,
            kind: self.text(2, "kind", Kind::new)?.unwrap_or_default(),
            state,
            payload: Payload::from_stored(self.bytes(4, "payload")?.unwrap_or_default()),
            priority: self.priority()?,
            attempt: self.number::<u32>(6, "attempts")? + u32::from(state == JobState::Running),
            lost_leases: self.number(7, "lost")?,
            requeues: self.number(8, "requeues")?,
            run_at: self.time(9, "run_at")?,
            inserted_at: self.time(10, "inserted_at")?,
            finished_at: Some(self.time(11, "finished_at")?).filter(|_| state.is_final()),
            unique_key: self.text(12, "unique_key", UniqueKey::new)?,
            options: JobOptions::from_stored(self.bytes(13, "retry")?),
            history: FailureHistory::from_stored(self.bytes(14, "history")?),
            reason: self.text(15, "reason", str::parse::<EndReason>)?,
            held_by: self.claimant()?.filter(|_| state == JobState::Running),
        })
    }

    fn claimant(&self) -> Result<Option<Claimant>> {
        let Some(worker) = row::text(self.row, 17)?.map(WorkerName::new) else {
            return Ok(None);
        };
        let (until, since) = (row::time(self.row, 18)?, row::time(self.row, 19)?);
        Ok(Some(Claimant {
            worker,
            since,
            until,
        }))
    }

    fn state(&mut self, is_running: bool) -> Result<JobState> {
        let code = self.number(3, "state")?;
        let known = row::known_state(code, is_running);
        self.checked(known, "state", format_args!("{code} is none"));
        Ok(row::state(code, is_running))
    }

    fn priority(&mut self) -> Result<Priority> {
        let level = self.number(5, "level")?;
        let known = Priority::from_level(level);
        Ok(self
            .checked(known, "level", format_args!("{level} is none"))
            .unwrap_or_default())
    }

    fn time(&mut self, column: usize, name: &str) -> Result<Time> {
        self.number(column, name).map(Time::from_micros)
    }

    /// Reads a number; 0, and a fault, if it is not an integer of this width.
    fn number<T: TryFrom<i64> + Default>(&mut self, column: usize, name: &str) -> Result<T> {
        let number =
            row::maybe_whole(self.row, column)?.and_then(|number| T::try_from(number).ok());
        Ok(self
            .checked(number, name, "it is not a number that fits")
            .unwrap_or_default())
    }

    /// Reads bytes, if there are any.
    fn bytes(&mut self, column: usize, name: &str) -> Result<Option<Vec<u8>>> {
        let bytes = row::bytes(self.row, column)?.map(<[u8]>::to_vec);
        let is_number = bytes.is_none() && self.row.get_ref(column)? != ValueRef::Null;
        if is_number {
            self.fault(name, "it is a number");
        }
        Ok(bytes)
    }

    /// Parses a text column, if it is not NULL.
    fn text<T, E: Display>(
        &mut self,
        column: usize,
        name: &str,
        read: impl FnOnce(&str) -> std::result::Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(bytes) = self.bytes(column, name)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes).map_err(|why| why.to_string());
        let value = text.and_then(|text| read(text).map_err(|why| why.to_string()));
        Ok(value.map_err(|why| self.fault(name, why)).ok())
    }

    fn checked<T>(&mut self, value: Option<T>, name: &str, why: impl Display) -> Option<T> {
        if value.is_none() {
            self.fault(name, why);
        }
        value
    }

    fn fault(&mut self, name: &str, why: impl Display) {
        self.faults.push(format!("{name}: {why}"));
    }
}
