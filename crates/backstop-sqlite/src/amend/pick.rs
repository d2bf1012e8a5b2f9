//! Picks the jobs for one call of an amendment: the next ones that match, in order of arrival.
//!
//! Arrival is the one order that an amendment does not change: a job that it moves changes its
//! index table and keeps its number. No index table has that order. So short ones are read whole
//! and sorted; where they are long, the job table itself is scanned. Either way the cursor is a
//! job's number, and the next call is free to choose again.

use crate::row;
use backstop_core::JobState;
use backstop_core::limits::SCAN_MAX;
use backstop_core::port::cursor::AmendScan;
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};

const PICK_DUE: &str = include_str!("../sql/pick_due.sql");
const PICK_READY: &str = include_str!("../sql/pick_ready.sql");
const PICK_RUNNING: &str = include_str!("../sql/pick_running.sql");
const PICK_FINISHED: &str = include_str!("../sql/pick_finished.sql");
const PICK_DEAD: &str = include_str!("../sql/pick_dead.sql");
const PICK_DEAD_JOB: &str = include_str!("../sql/pick_dead_job.sql");
const PICK_DEAD_NEXT: &str = include_str!("../sql/pick_dead_next.sql");
const PICK_JOB: &str = include_str!("../sql/pick_job.sql");
const PICK_NEXT: &str = include_str!("../sql/pick_next.sql");
const PICK_READY_ALL: &str = include_str!("../sql/pick_ready_all.sql");
const PICK_FINISHED_ALL: &str = include_str!("../sql/pick_finished_all.sql");
const PICK_DEAD_ALL: &str = include_str!("../sql/pick_dead_all.sql");
const QUEUE_FIND: &str = include_str!("../sql/queue_find.sql");

/// The jobs that one call picked.
#[derive(Default, Debug)]
pub(crate) struct PickedJobs {
    pub(crate) nos: Vec<i64>,
    /// The cursor: the number to continue after, once it is clear that more rows follow.
    next: Option<i64>,
}

impl PickedJobs {
    /// The cursor as text; `None` at the end.
    pub(crate) fn cursor(&self) -> Option<String> {
        self.next.map(AmendScan::cursor)
    }
}

/// Picks the next jobs that match and that the action could apply to.
pub(crate) fn pick(db: &Connection, wanted: &AmendScan) -> Result<PickedJobs> {
    let queue = match &wanted.filter.queue {
        Some(name) => {
            let mut find = db.prepare_cached(QUEUE_FIND)?;
            let Some(id) = find
                .query_row([name.as_str()], |row| row.get(0))
                .optional()?
            else {
                return Ok(PickedJobs::default());
            };
            Some(id)
        }
        None => None,
    };
    let mut search = PickScan {
        wanted,
        queue,
        looked: 0,
        last: None,
        picked: PickedJobs::default(),
    };
    // Only dead jobs have a fingerprint, and only their own table stores it.
    let (job, next) = match wanted.filter.fingerprint {
        Some(_) => (PICK_DEAD_JOB, PICK_DEAD_NEXT),
        None => (PICK_JOB, PICK_NEXT),
    };
    match short_candidates(db, wanted, queue)? {
        Some(nos) => search.scan_numbers(db, job, &nos)?,
        None => search.scan_on(db, next)?,
    }
    Ok(search.picked)
}

/// The numbers behind the cursor, in order, of all jobs in the index tables that can contain a
/// matching one; `None` if these tables have more than [`SCAN_MAX`] rows.
fn short_candidates(
    db: &Connection,
    wanted: &AmendScan,
    queue: Option<i64>,
) -> Result<Option<Vec<i64>>> {
    let mut candidates = CandidateJobs {
        db,
        nos: Vec::new(),
    };
    if let Some(fingerprint) = wanted.filter.fingerprint {
        if wanted.admits_state(JobState::Dead) {
            let fingerprint = fingerprint.as_i64();
            match queue {
                Some(queue) => {
                    candidates.add(PICK_DEAD, params![queue, fingerprint, candidates.room()])?;
                }
                None => candidates.add(PICK_DEAD_ALL, params![fingerprint, candidates.room()])?,
            }
        }
        return Ok(candidates.numbers_after(wanted.after));
    }
    // The due and the running table are not kept by queue, so they give the jobs of all queues. The
    // due table gives the jobs of two states.
    if wanted.admits_state(JobState::Scheduled) || wanted.admits_state(JobState::Retrying) {
        candidates.add(PICK_DUE, params![candidates.room()])?;
    }
    if wanted.admits_state(JobState::Running) {
        candidates.add(PICK_RUNNING, params![candidates.room()])?;
    }
    if wanted.admits_state(JobState::Ready) {
        match queue {
            Some(queue) => candidates.add(PICK_READY, params![queue, candidates.room()])?,
            None => candidates.add(PICK_READY_ALL, params![candidates.room()])?,
        }
    }
    for state in [JobState::Done, JobState::Dead, JobState::Cancelled] {
        if wanted.admits_state(state) {
            match queue {
                Some(queue) => candidates.add(
                    PICK_FINISHED,
                    params![queue, row::code(state), candidates.room()],
                )?,
                None => candidates.add(
                    PICK_FINISHED_ALL,
                    params![row::code(state), candidates.room()],
                )?,
            }
        }
    }
    Ok(candidates.numbers_after(wanted.after))
}

struct CandidateJobs<'a> {
    db: &'a Connection,
    nos: Vec<i64>,
}

impl CandidateJobs<'_> {
    /// Rows that may still be read, and one more: it shows that the table is too long.
    fn room(&self) -> i64 {
        row::number((SCAN_MAX + 1).saturating_sub(self.nos.len()))
    }

    fn add(&mut self, sql: &str, params: impl Params) -> Result<()> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            self.nos.push(row::whole(row, 0)?);
        }
        Ok(())
    }

    /// The numbers behind this one, in order; `None` if too many rows were read.
    fn numbers_after(mut self, after: i64) -> Option<Vec<i64>> {
        if self.nos.len() > SCAN_MAX {
            return None;
        }
        self.nos.retain(|no| *no > after);
        self.nos.sort_unstable();
        Some(self.nos)
    }
}

/// The scan of one call.
struct PickScan<'a> {
    wanted: &'a AmendScan,
    queue: Option<i64>,
    looked: usize,
    /// The number of the row that was read last.
    last: Option<i64>,
    picked: PickedJobs,
}

/// Whether a call has picked enough.
#[derive(PartialEq, Eq)]
enum PickProgress {
    Continue,
    Full,
}

impl PickScan<'_> {
    /// Reads the jobs with these numbers.
    fn scan_numbers(&mut self, db: &Connection, sql: &str, nos: &[i64]) -> Result<()> {
        let mut statement = db.prepare_cached(sql)?;
        for no in nos {
            let mut rows = statement.query([no])?;
            let Some(row) = rows.next()? else { continue };
            if self.look(row)? == PickProgress::Full {
                break;
            }
        }
        Ok(())
    }

    /// Scans the jobs behind the cursor.
    fn scan_on(&mut self, db: &Connection, sql: &str) -> Result<()> {
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([self.wanted.after])?;
        while let Some(row) = rows.next()? {
            if self.look(row)? == PickProgress::Full {
                break;
            }
        }
        Ok(())
    }

    fn look(&mut self, row: &Row<'_>) -> Result<PickProgress> {
        let (no, fits) = (row::whole(row, 0)?, self.fits(row)?);
        if self.looked == SCAN_MAX || (fits && self.picked.nos.len() == self.wanted.max) {
            self.picked.next = self.last;
            return Ok(PickProgress::Full);
        }
        self.looked += 1;
        self.last = Some(no);
        self.picked.nos.extend(fits.then_some(no));
        Ok(PickProgress::Continue)
    }

    fn fits(&self, row: &Row<'_>) -> Result<bool> {
        let filter = &self.wanted.filter;
        let queue = row::whole(row, 2)?;
        Ok(self
            .wanted
            .admits_state(row::state(row::whole(row, 1)?, row::whole(row, 4)? != 0))
            && self.queue.is_none_or(|wanted| wanted == queue)
            && match &filter.kind {
                Some(kind) => row::text(row, 3)? == Some(kind.as_str()),
                None => true,
            }
            && match filter.fingerprint {
                Some(fingerprint) => row::maybe_whole(row, 5)? == Some(fingerprint.as_i64()),
                None => true,
            })
    }
}
