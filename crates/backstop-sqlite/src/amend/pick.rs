//! Which jobs one call of an amendment is to touch: the next that fit, in order of arrival.
//!
//! Arrival is the one order that an amendment leaves alone: a job that it moves changes lines and
//! keeps its number. No line has that order, so that lines are read whole, and only where they are
//! short; where they are long, the jobs themselves are walked. Either way the place reached is a
//! number, and the next call is free to choose again.

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

/// What one call of an amendment found.
#[derive(Default, Debug)]
pub(crate) struct PickedJobs {
    pub(crate) nos: Vec<i64>,
    /// The number to go on after, once it is clear that there is something behind it.
    next: Option<i64>,
}

impl PickedJobs {
    /// Where to go on, as text.
    pub(crate) fn cursor(&self) -> Option<String> {
        self.next.map(AmendScan::cursor)
    }
}

/// The next jobs that fit and that the action could apply to.
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
    // Only dead jobs have a fingerprint, and only their own table knows it.
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

/// The numbers after the place reached, in order, of all jobs in the lines that can have a fitting
/// one; `None` if these lines have more than [`SCAN_MAX`] places.
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
    // The tables that are not kept by queue have the jobs of all queues, and the due one those of
    // two states.
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
    /// One more than may be looked at: that is how a long line shows.
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

    /// The numbers after this one, in order; `None` if there were too many to begin with.
    fn numbers_after(mut self, after: i64) -> Option<Vec<i64>> {
        if self.nos.len() > SCAN_MAX {
            return None;
        }
        self.nos.retain(|no| *no > after);
        self.nos.sort_unstable();
        Some(self.nos)
    }
}

/// A call on its way through the jobs.
struct PickScan<'a> {
    wanted: &'a AmendScan,
    queue: Option<i64>,
    looked: usize,
    /// The number of the job looked at last.
    last: Option<i64>,
    picked: PickedJobs,
}

/// Whether a call has enough.
#[derive(PartialEq, Eq)]
enum PickProgress {
    Continue,
    Full,
}

impl PickScan<'_> {
    /// Looks at the jobs of these numbers.
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

    /// Looks at the jobs behind the place reached.
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
