//! The lines a job can stand in (ready, due, finished, running), and the moves between them.
//!
//! The hot paths of enqueue, claim and settle write these tables themselves; everything rarer moves
//! jobs by this.

use crate::holders::holder;
use crate::row;
use crate::work::{QueueAt, Work};
use backstop_core::unique::{Hold, UniqueKey};
use backstop_core::{Fingerprint, JobId, Kind, LeaseNumber, State, Time};
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
const STANDING_BY_ID: &str = include_str!("sql/standing_by_id.sql");
const STANDING_BY_NO: &str = include_str!("sql/standing_by_no.sql");

/// Where a job stands in which line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) no: i64,
    pub(crate) queue: QueueAt,
    pub(crate) level: i64,
    pub(crate) seq: i64,
    pub(crate) run_at: Time,
    pub(crate) finished_at: Time,
    /// What its death has in common with others, if it is dead.
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// A job with everything that a move of it needs to know.
pub(crate) struct Standing {
    pub(crate) id: JobId,
    pub(crate) state: State,
    pub(crate) spot: Spot,
    pub(crate) kind: Kind,
    pub(crate) unique: Option<(UniqueKey, Hold)>,
    pub(crate) lease: Option<LeaseNumber>,
}

/// How a job is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Id(JobId),
    No(i64),
}

/// Where a dead job lies, whatever has become of its own row.
struct Grave {
    queue: i64,
    fingerprint: Fingerprint,
    finished_at: Time,
}

fn grave(db: &Connection, no: i64) -> Result<Option<Grave>> {
    let read = |row: &Row<'_>| {
        let fingerprint = Fingerprint::from_i64(row::whole(row, 1)?);
        Ok(Grave {
            queue: row::whole(row, 0)?,
            fingerprint,
            finished_at: row::time(row, 2)?,
        })
    };
    db.prepare_cached(DEAD_FIND)?
        .query_row([no], read)
        .optional()
}

impl Work<'_> {
    /// Where a job stands, if it exists.
    pub(crate) fn standing(&mut self, which: Which) -> Result<Option<Standing>> {
        let (sql, key): (_, &dyn ToSql) = match &which {
            Which::Id(id) => (STANDING_BY_ID, id.as_bytes()),
            Which::No(no) => (STANDING_BY_NO, no),
        };
        let db = self.db;
        db.prepare_cached(sql)?
            .query_row([key], |row| self.read_standing(row))
            .optional()
    }

    fn read_standing(&mut self, row: &Row<'_>) -> Result<Standing> {
        let lease = row::maybe_whole(row, 12)?.map(LeaseNumber::from_i64);
        let state = row::state(row::whole(row, 2)?, lease.is_some());
        let no = row::whole(row, 0)?;
        let grave = if state == State::Dead {
            grave(self.db, no)?
        } else {
            None
        };
        let (queue, finished_at) = match &grave {
            Some(grave) => (grave.queue, grave.finished_at),
            None => (row::whole(row, 3)?, row::time(row, 7)?),
        };
        Ok(Standing {
            // An id of a wrong length matches no other table: such a job can be read and deleted,
            // no more.
            id: row::id(row, 1)?.unwrap_or(JobId::from_bytes([0; 16])),
            state,
            spot: Spot {
                no,
                queue: self.queue_of(queue)?,
                level: row::whole(row, 4)?,
                seq: row::whole(row, 5)?,
                run_at: row::time(row, 6)?,
                finished_at,
                fingerprint: grave.map(|grave| grave.fingerprint),
            },
            kind: row::text(row, 8)?
                .and_then(|kind| Kind::new(kind).ok())
                .unwrap_or_default(),
            unique: row::unique(row, 9)?,
            lease,
        })
    }

    /// Puts a job that is in no line into the one of `state`, and counts it there. Running is
    /// entered by claims only.
    pub(crate) fn enter(&mut self, spot: Spot, state: State) -> Result<()> {
        let queue = self.at(spot.queue).id;
        match state {
            State::Ready => {
                let place = params![queue, spot.level, spot.seq, spot.no];
                self.db.prepare_cached(READY_ADD)?.execute(place)?;
                self.stir();
            }
            State::Scheduled | State::Retrying => {
                let place = params![spot.run_at.as_micros(), spot.no];
                self.db.prepare_cached(DUE_ADD)?.execute(place)?;
                self.stir();
            }
            State::Done | State::Dead | State::Cancelled => {
                let place = params![
                    queue,
                    row::code(state),
                    spot.finished_at.as_micros(),
                    spot.no
                ];
                self.db.prepare_cached(FINISHED_ADD)?.execute(place)?;
                if let Some(fingerprint) = spot.fingerprint.filter(|_| state == State::Dead) {
                    let place = [
                        spot.no,
                        queue,
                        fingerprint.as_i64(),
                        spot.finished_at.as_micros(),
                    ];
                    self.db.prepare_cached(DEAD_ADD)?.execute(place)?;
                }
            }
            State::Running => {}
        }
        self.count(spot.queue, state, 1);
        Ok(())
    }

    /// Takes a job out of the line it is in, and frees it of its lease. One that is not found where
    /// its row says is not counted out either: whoever comes upon its place will.
    pub(crate) fn leave(&mut self, job: &Standing) -> Result<()> {
        let (spot, queue) = (&job.spot, self.at(job.spot.queue).id);
        let db = self.db;
        let left = match job.state {
            State::Ready => db
                .prepare_cached(READY_REMOVE)?
                .execute([queue, spot.level, spot.seq, spot.no])?,
            State::Scheduled | State::Retrying => db
                .prepare_cached(DUE_REMOVE)?
                .execute([spot.run_at.as_micros(), spot.no])?,
            State::Done | State::Dead | State::Cancelled => {
                if job.state == State::Dead {
                    db.prepare_cached(DEAD_REMOVE)?.execute([spot.no])?;
                }
                let place = [
                    queue,
                    row::code(job.state),
                    spot.finished_at.as_micros(),
                    spot.no,
                ];
                db.prepare_cached(FINISHED_REMOVE)?.execute(place)?
            }
            State::Running => {
                if let Some(number) = job.lease {
                    self.leave_claim(number, 1);
                }
                db.prepare_cached(RUNNING_REMOVE)?
                    .execute([job.id.as_bytes()])?
            }
        };
        self.count(spot.queue, job.state, -row::number(left));
        Ok(())
    }

    /// A place behind all others of a queue.
    pub(crate) fn tail(&mut self, queue: QueueAt) -> i64 {
        let seq = self.next_seq(queue);
        self.use_seq(queue);
        seq
    }

    /// Removes a job's own row.
    pub(crate) fn delete(&mut self, no: i64) -> Result<()> {
        self.db.prepare_cached(JOB_DELETE)?.execute([no]).map(drop)
    }

    /// Who holds a unique key now.
    pub(crate) fn key_holder(
        &mut self,
        queue: QueueAt,
        key: &UniqueKey,
        now: Time,
    ) -> Result<Option<JobId>> {
        let queue = self.at(queue).id;
        let mut find = self.db.prepare_cached(KEY_FIND)?;
        let found = find.query_row(params![queue, key.as_str()], |row| holder(row, now));
        Ok(found.optional()?.flatten().map(|holder| holder.job))
    }

    /// Gives a unique key to a job.
    pub(crate) fn put_key(
        &mut self,
        queue: QueueAt,
        key: &UniqueKey,
        id: JobId,
        hold: Hold,
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

    /// Leaves the unique key of a job that is gone behind, if the job has it.
    pub(crate) fn leave_key(&mut self, queue: QueueAt, key: &UniqueKey, id: JobId) -> Result<()> {
        let queue = self.at(queue).id;
        self.db
            .prepare_cached(KEY_LEAVE)?
            .execute(params![queue, key.as_str(), id.as_bytes()])
            .map(drop)
    }

    /// Takes a unique key from a job, if the job has it.
    pub(crate) fn remove_key(&mut self, queue: QueueAt, key: &UniqueKey, id: JobId) -> Result<()> {
        let queue = self.at(queue).id;
        self.db
            .prepare_cached(KEY_REMOVE)?
            .execute(params![queue, key.as_str(), id.as_bytes()])
            .map(drop)
    }
}
