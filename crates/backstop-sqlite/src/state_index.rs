//! The index tables (ready, due, finished, running), and the moves of jobs between them.
//!
//! Enqueue, claim and settle are the hot paths and write these tables themselves. All rarer
//! operations move jobs through this module.

use crate::row;
use crate::transaction::{QueueIndex, WriteTransaction};
use crate::unique_holders::holder;
use backstop_core::unique::{UniqueHold, UniqueKey};
use backstop_core::{Fingerprint, JobId, JobState, Kind, LeaseNumber, Time};
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql, params};

pub(crate) const READY_ADD: &str = include_str!("sql/ready_add.sql");
pub(crate) const DUE_ADD: &str = include_str!("sql/due_add.sql");
pub(crate) const FINISHED_ADD: &str = include_str!("sql/finished_add.sql");
pub(crate) const RUNNING_REMOVE: &str = include_str!("sql/settle_free.sql");
pub(crate) const JOB_DELETE: &str = include_str!("sql/job_delete.sql");
pub(crate) const READY_REMOVE: &str = include_str!("sql/ready_remove.sql");
const DUE_REMOVE: &str = include_str!("sql/due_remove.sql");
pub(crate) const FINISHED_REMOVE: &str = include_str!("sql/finished_remove.sql");
const DEAD_ADD: &str = include_str!("sql/dead_add.sql");
const DEAD_FIND: &str = include_str!("sql/dead_find.sql");
pub(crate) const DEAD_REMOVE: &str = include_str!("sql/dead_remove.sql");
const KEY_FIND: &str = include_str!("sql/key_find.sql");
const KEY_PUT: &str = include_str!("sql/key_put.sql");
const KEY_LEAVE: &str = include_str!("sql/key_leave.sql");
pub(crate) const KEY_REMOVE: &str = include_str!("sql/key_remove.sql");
const JOB_ROW_BY_ID: &str = include_str!("sql/standing_by_id.sql");
const JOB_ROW_BY_NO: &str = include_str!("sql/standing_by_no.sql");

/// A job's place in an index table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) no: i64,
    pub(crate) queue: QueueIndex,
    pub(crate) level: i64,
    pub(crate) seq: i64,
    pub(crate) run_at: Time,
    pub(crate) finished_at: Time,
    /// The fingerprint of its failure, if it is dead.
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// A job's row with everything that a move of the job needs.
pub(crate) struct StoredJobRow {
    pub(crate) id: JobId,
    pub(crate) state: JobState,
    pub(crate) entry: IndexEntry,
    pub(crate) kind: Kind,
    pub(crate) unique: Option<(UniqueKey, UniqueHold)>,
    pub(crate) lease: Option<LeaseNumber>,
}

/// The key by which a job is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobLookup {
    Id(JobId),
    No(i64),
}

/// The row of a dead job in the table of dead jobs. It is right even if the job's own row is
/// damaged.
struct DeadEntry {
    queue: i64,
    fingerprint: Fingerprint,
    finished_at: Time,
}

fn dead_entry(db: &Connection, no: i64) -> Result<Option<DeadEntry>> {
    let read = |row: &Row<'_>| {
        let fingerprint = Fingerprint::from_i64(row::whole(row, 1)?);
        Ok(DeadEntry {
            queue: row::whole(row, 0)?,
            fingerprint,
            finished_at: row::time(row, 2)?,
        })
    };
    db.prepare_cached(DEAD_FIND)?
        .query_row([no], read)
        .optional()
}

impl WriteTransaction<'_> {
    /// Reads the row of a job, if it exists.
    pub(crate) fn find_job_row(&mut self, lookup: JobLookup) -> Result<Option<StoredJobRow>> {
        let (sql, key): (_, &dyn ToSql) = match &lookup {
            JobLookup::Id(id) => (JOB_ROW_BY_ID, id.as_bytes()),
            JobLookup::No(no) => (JOB_ROW_BY_NO, no),
        };
        let db = self.db;
        db.prepare_cached(sql)?
            .query_row([key], |row| self.read_job_row(row))
            .optional()
    }

    fn read_job_row(&mut self, row: &Row<'_>) -> Result<StoredJobRow> {
        let lease = row::maybe_whole(row, 12)?.map(LeaseNumber::from_i64);
        let state = row::state(row::whole(row, 2)?, lease.is_some());
        let no = row::whole(row, 0)?;
        let dead_entry = if state == JobState::Dead {
            dead_entry(self.db, no)?
        } else {
            None
        };
        let (queue, finished_at) = match &dead_entry {
            Some(dead_entry) => (dead_entry.queue, dead_entry.finished_at),
            None => (row::whole(row, 3)?, row::time(row, 7)?),
        };
        Ok(StoredJobRow {
            // An id of a wrong length matches no other table: an operator can read and delete such
            // a job, no more.
            id: row::id(row, 1)?.unwrap_or(JobId::from_bytes([0; 16])),
            state,
            entry: IndexEntry {
                no,
                queue: self.queue_of(queue)?,
                level: row::whole(row, 4)?,
                seq: row::whole(row, 5)?,
                run_at: row::time(row, 6)?,
                finished_at,
                fingerprint: dead_entry.map(|dead_entry| dead_entry.fingerprint),
            },
            kind: row::text(row, 8)?
                .and_then(|kind| Kind::new(kind).ok())
                .unwrap_or_default(),
            unique: row::unique(row, 9)?,
            lease,
        })
    }

    /// Inserts a job that is in no index table into that of `state`, and counts it there. Only
    /// claims insert running jobs.
    pub(crate) fn enter(&mut self, entry: IndexEntry, state: JobState) -> Result<()> {
        let queue = self.at(entry.queue).id;
        match state {
            JobState::Ready => {
                let place = params![queue, entry.level, entry.seq, entry.no];
                self.db.prepare_cached(READY_ADD)?.execute(place)?;
                self.mark_new_work();
            }
            JobState::Scheduled | JobState::Retrying => {
                let place = params![entry.run_at.as_micros(), entry.no];
                self.db.prepare_cached(DUE_ADD)?.execute(place)?;
                self.mark_new_work();
            }
            JobState::Done | JobState::Dead | JobState::Cancelled => {
                let place = params![
                    queue,
                    row::code(state),
                    entry.finished_at.as_micros(),
                    entry.no
                ];
                self.db.prepare_cached(FINISHED_ADD)?.execute(place)?;
                if let Some(fingerprint) = entry.fingerprint.filter(|_| state == JobState::Dead) {
                    let place = [
                        entry.no,
                        queue,
                        fingerprint.as_i64(),
                        entry.finished_at.as_micros(),
                    ];
                    self.db.prepare_cached(DEAD_ADD)?.execute(place)?;
                }
            }
            JobState::Running => {}
        }
        self.count(entry.queue, state, 1);
        Ok(())
    }

    /// Removes a job from the index table of its state, and from its lease. If the table has no
    /// such row, the job is not subtracted from the count either: the code that later finds its row
    /// subtracts it.
    pub(crate) fn leave(&mut self, job: &StoredJobRow) -> Result<()> {
        let (entry, queue) = (&job.entry, self.at(job.entry.queue).id);
        let db = self.db;
        let left = match job.state {
            JobState::Ready => db.prepare_cached(READY_REMOVE)?.execute([
                queue,
                entry.level,
                entry.seq,
                entry.no,
            ])?,
            JobState::Scheduled | JobState::Retrying => db
                .prepare_cached(DUE_REMOVE)?
                .execute([entry.run_at.as_micros(), entry.no])?,
            JobState::Done | JobState::Dead | JobState::Cancelled => {
                if job.state == JobState::Dead {
                    db.prepare_cached(DEAD_REMOVE)?.execute([entry.no])?;
                }
                let place = [
                    queue,
                    row::code(job.state),
                    entry.finished_at.as_micros(),
                    entry.no,
                ];
                db.prepare_cached(FINISHED_REMOVE)?.execute(place)?
            }
            JobState::Running => {
                if let Some(number) = job.lease {
                    self.leave_claim(number, 1);
                }
                db.prepare_cached(RUNNING_REMOVE)?
                    .execute([job.id.as_bytes()])?
            }
        };
        self.count(entry.queue, job.state, -row::number(left));
        Ok(())
    }

    /// Takes the next place at the end of a queue.
    pub(crate) fn tail(&mut self, queue: QueueIndex) -> i64 {
        let seq = self.next_seq(queue);
        self.use_seq(queue);
        seq
    }

    /// Deletes a job's own row only.
    pub(crate) fn delete(&mut self, no: i64) -> Result<()> {
        self.db.prepare_cached(JOB_DELETE)?.execute([no]).map(drop)
    }

    /// Finds the job that holds a unique key now.
    pub(crate) fn key_holder(
        &mut self,
        queue: QueueIndex,
        key: &UniqueKey,
        now: Time,
    ) -> Result<Option<JobId>> {
        let queue = self.at(queue).id;
        let mut find = self.db.prepare_cached(KEY_FIND)?;
        let found = find.query_row(params![queue, key.as_str()], |row| holder(row, now));
        Ok(found.optional()?.flatten().map(|holder| holder.job))
    }

    /// Makes a job the holder of a unique key.
    pub(crate) fn put_key(
        &mut self,
        queue: QueueIndex,
        key: &UniqueKey,
        id: JobId,
        hold: UniqueHold,
    ) -> Result<()> {
        let queue = self.at(queue).id;
        let until = hold.until.map(Time::as_micros);
        let holding = params![
            queue,
            key.as_str(),
            id.as_bytes(),
            hold.states.bits(),
            until
        ];
        self.db.prepare_cached(KEY_PUT)?.execute(holding).map(drop)
    }

    /// Keeps the unique key of a job that is gone, if the job holds it.
    pub(crate) fn leave_key(
        &mut self,
        queue: QueueIndex,
        key: &UniqueKey,
        id: JobId,
    ) -> Result<()> {
        let queue = self.at(queue).id;
        self.db
            .prepare_cached(KEY_LEAVE)?
            .execute(params![queue, key.as_str(), id.as_bytes()])
            .map(drop)
    }

    /// Removes a unique key, if this job holds it.
    pub(crate) fn remove_key(
        &mut self,
        queue: QueueIndex,
        key: &UniqueKey,
        id: JobId,
    ) -> Result<()> {
        let queue = self.at(queue).id;
        self.db
            .prepare_cached(KEY_REMOVE)?
            .execute(params![queue, key.as_str(), id.as_bytes()])
            .map(drop)
    }
}
