//! Lists, page by page. A page walks the line that has its order, looks at no more than [`SCAN_MAX`] rows, and
//! continues after the last place it looked at.

use crate::row;
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_MAX, SCAN_MAX};
use backstop_core::port::place::Place;
use backstop_core::port::{Page, PageQuery};
use backstop_core::{Job, JobId, State};
use rusqlite::{Connection, OptionalExtension, Result, Row, Rows, params};
use std::collections::BinaryHeap;

const JOB_BY_ID: &str = include_str!("sql/job_by_id.sql");
const JOB_BY_NO: &str = include_str!("sql/job_by_no.sql");
const LIST_DUE: &str = include_str!("sql/list_due.sql");
const LIST_READY: &str = include_str!("sql/list_ready.sql");
const LIST_FINISHED: &str = include_str!("sql/list_finished.sql");
const LIST_RUNNING: &str = include_str!("sql/list_running.sql");
const LIST_ALL: &str = include_str!("sql/list_all.sql");
const QUEUE_NAMES: &str = include_str!("sql/queue_names.sql");

/// One job.
pub(crate) fn job(db: &Connection, id: JobId) -> Result<Option<Job>> {
    db.prepare_cached(JOB_BY_ID)?.query_row([id.as_bytes()], row::job).optional().map(Option::flatten)
}

/// A page of jobs, after `after` or from the start.
pub(crate) fn page(db: &Connection, query: &PageQuery, after: Option<&Place>) -> Result<Page> {
    let queues = queues(db, &query.filter)?;
    let mut walk = Walk {
        filter: &query.filter,
        queues: &queues,
        limit: query.limit.clamp(1, PAGE_MAX),
        looked: 0,
        found: Vec::new(),
        next: None,
    };
    match query.filter.state {
        Some(state @ (State::Scheduled | State::Retrying)) => walk.due(db, state, after)?,
        Some(State::Ready) => walk.ready(db, after)?,
        Some(state @ (State::Done | State::Dead | State::Cancelled)) => walk.finished(db, state, after)?,
        Some(State::Running) => walk.arrivals(db, LIST_RUNNING, after)?,
        None => walk.arrivals(db, LIST_ALL, after)?,
    }
    let mut by_no = db.prepare_cached(JOB_BY_NO)?;
    let mut jobs = Vec::with_capacity(walk.found.len());
    for no in &walk.found {
        jobs.extend(by_no.query_row([no], row::job).optional()?.flatten());
    }
    Ok(Page { jobs, next: walk.next.map(|place| place.to_string()) })
}

/// A queue the list may show.
struct Queue {
    id: i64,
    name: String,
}

/// All queues the filter lets through, by name.
fn queues(db: &Connection, filter: &Filter) -> Result<Vec<Queue>> {
    let mut statement = db.prepare_cached(QUEUE_NAMES)?;
    let read = |row: &Row<'_>| {
        Ok(Queue { id: row::whole(row, 0)?, name: row::text(row, 1)?.unwrap_or_default().to_owned() })
    };
    let all: Result<Vec<Queue>> = statement.query_map([], read)?.collect();
    let fits = |queue: &Queue| filter.queue.as_ref().is_none_or(|wanted| wanted.as_str() == queue.name);
    Ok(all?.into_iter().filter(fits).collect())
}

/// What a page has seen so far.
struct Walk<'a> {
    filter: &'a Filter,
    queues: &'a [Queue],
    limit: usize,
    looked: usize,
    found: Vec<i64>,
    /// Where the next page starts, once it is clear that there is one.
    next: Option<Place>,
}

/// Whether a page is complete.
#[derive(PartialEq, Eq)]
enum Step {
    On,
    Full,
}

impl Walk<'_> {
    /// Looks at one row. `last` is the place of the row looked at before.
    fn look(&mut self, fits: bool, no: i64, last: Option<&Place>) -> Step {
        if self.looked == SCAN_MAX || (fits && self.found.len() == self.limit) {
            self.next = last.cloned();
            return Step::Full;
        }
        self.looked += 1;
        if fits {
            self.found.push(no);
        }
        Step::On
    }

    fn fits_queue(&self, id: i64) -> bool {
        self.filter.queue.is_none() || self.queues.iter().any(|queue| queue.id == id)
    }

    fn fits_kind(&self, row: &Row<'_>, column: usize) -> Result<bool> {
        let Some(wanted) = &self.filter.kind else { return Ok(true) };
        Ok(row::text(row, column)? == Some(wanted.as_str()))
    }

    /// Waiting jobs, by their time.
    fn due(&mut self, db: &Connection, state: State, after: Option<&Place>) -> Result<()> {
        let (at, no) = match after {
            Some(Place::Timed { at, no }) => (*at, *no),
            _ => (i64::MIN, i64::MIN),
        };
        let mut statement = db.prepare_cached(LIST_DUE)?;
        let mut rows = statement.query([at, no])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (at, no) = (row::whole(row, 0)?, row::whole(row, 1)?);
            let fits = row::state(row::whole(row, 2)?, false) == state
                && self.fits_queue(row::whole(row, 3)?)
                && self.fits_kind(row, 4)?;
            if self.look(fits, no, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(Place::Timed { at, no });
        }
        Ok(())
    }

    /// Ready jobs in claim order, queue by queue.
    fn ready(&mut self, db: &Connection, after: Option<&Place>) -> Result<()> {
        let mut last = after.cloned();
        for queue in self.queues {
            let (level, seq) = match after {
                Some(Place::Line { queue: reached, .. }) if queue.name < *reached => continue,
                Some(Place::Line { queue: reached, level, seq }) if queue.name == *reached => (*level, *seq),
                _ => (i64::MIN, i64::MIN),
            };
            let mut statement = db.prepare_cached(LIST_READY)?;
            let mut rows = statement.query(params![queue.id, level, seq])?;
            while let Some(row) = rows.next()? {
                let fits = self.fits_kind(row, 3)?;
                if self.look(fits, row::whole(row, 2)?, last.as_ref()) == Step::Full {
                    return Ok(());
                }
                let (level, seq) = (row::whole(row, 0)?, row::whole(row, 1)?);
                last = Some(Place::Line { queue: queue.name.clone(), level, seq });
            }
        }
        Ok(())
    }

    /// Ended jobs, newest first: the shelves of all queues merged.
    fn finished(&mut self, db: &Connection, state: State, after: Option<&Place>) -> Result<()> {
        let (at, no) = match after {
            Some(Place::Timed { at, no }) => (*at, *no),
            _ => (i64::MAX, i64::MAX),
        };
        let prepared: Result<Vec<_>> = self.queues.iter().map(|_| db.prepare_cached(LIST_FINISHED)).collect();
        let mut statements = prepared?;
        let begun = statements.iter_mut().zip(self.queues).map(|(statement, queue)| {
            let mut rows = statement.query([queue.id, row::code(state), at, no])?;
            Ok((self.ended(&mut rows)?, rows))
        });
        let mut shelves: Vec<(Option<Ended>, Rows<'_>)> = begun.collect::<Result<_>>()?;
        let mut newest: BinaryHeap<(Ended, usize)> = shelves
            .iter()
            .enumerate()
            .filter_map(|(shelf, (head, _))| head.map(|head| (head, shelf)))
            .collect();
        let mut last = None;
        while let Some((Ended { at, no, fits }, shelf)) = newest.pop() {
            if self.look(fits, no, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(Place::Timed { at, no });
            newest.extend(self.ended(&mut shelves[shelf].1)?.map(|head| (head, shelf)));
        }
        Ok(())
    }

    fn ended(&self, rows: &mut Rows<'_>) -> Result<Option<Ended>> {
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Ended { at: row::whole(row, 0)?, no: row::whole(row, 1)?, fits: self.fits_kind(row, 2)? }))
    }

    /// Jobs newest first by arrival.
    fn arrivals(&mut self, db: &Connection, sql: &str, after: Option<&Place>) -> Result<()> {
        let before = match after {
            Some(Place::Arrival { no }) => *no,
            _ => i64::MAX,
        };
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([before])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let no = row::whole(row, 0)?;
            let fits = self.fits_queue(row::whole(row, 1)?) && self.fits_kind(row, 2)?;
            if self.look(fits, no, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(Place::Arrival { no });
        }
        Ok(())
    }
}

/// The newest job of a shelf that is not shown yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    at: i64,
    no: i64,
    fits: bool,
}
