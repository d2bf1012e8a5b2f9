//! Lists, page by page. A page walks the line that has its order, looks at no more than [`SCAN_MAX`] rows, and
//! continues after the last place it looked at.

use crate::found::Found;
use crate::row;
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_MAX, SCAN_MAX};
use backstop_core::port::place::Place;
use backstop_core::port::{Order, Page, PageQuery};
use backstop_core::{Job, JobId, State};
use rusqlite::{Connection, OptionalExtension, Result, Row, Rows, params};
use std::collections::BTreeSet;

const JOB_BY_ID: &str = include_str!("sql/job_by_id.sql");
const JOB_BY_NO: &str = include_str!("sql/job_by_no.sql");
const LIST_DUE: &str = include_str!("sql/list_due.sql");
const LIST_READY: &str = include_str!("sql/list_ready.sql");
const LIST_FINISHED: &str = include_str!("sql/list_finished.sql");
const LIST_FINISHED_OLDEST: &str = include_str!("sql/list_finished_oldest.sql");
const LIST_DEAD: &str = include_str!("sql/list_dead.sql");
const LIST_DEAD_OLDEST: &str = include_str!("sql/list_dead_oldest.sql");
const LIST_DEAD_ARRIVALS: &str = include_str!("sql/list_dead_arrivals.sql");
const LIST_RUNNING: &str = include_str!("sql/list_running.sql");
const LIST_ALL: &str = include_str!("sql/list_all.sql");
const QUEUE_NAMES: &str = include_str!("sql/queue_names.sql");

/// One job, as far as it can be read.
pub(crate) fn job(db: &Connection, id: JobId) -> Result<Option<Job>> {
    let found = db.prepare_cached(JOB_BY_ID)?.query_row([id.as_bytes()], Found::read).optional()?;
    let Some(Found { job, damaged }) = found else { return Ok(None) };
    if let Some(damaged) = damaged {
        tracing::warn!(%id, damaged.why, "a row of backstop_job cannot be read; run `backstop doctor`");
    }
    Ok(job)
}

/// A page of jobs, after `after` or from the start.
pub(crate) fn page(db: &Connection, query: &PageQuery, after: Option<&Place>) -> Result<Page> {
    if fits_nothing(&query.filter) {
        return Ok(Page::default());
    }
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
        Some(state @ (State::Done | State::Dead | State::Cancelled)) => {
            walk.finished(db, state, query.order, after)?;
        }
        Some(State::Running) => walk.arrivals(db, LIST_RUNNING, after)?,
        None if query.filter.fingerprint.is_some() => walk.arrivals(db, LIST_DEAD_ARRIVALS, after)?,
        None => walk.arrivals(db, LIST_ALL, after)?,
    }
    let mut page = Page { next: walk.next.map(|place| place.to_string()), ..Page::default() };
    let mut by_no = db.prepare_cached(JOB_BY_NO)?;
    for no in &walk.found {
        match by_no.query_row([no], Found::read).optional()? {
            Some(Found { damaged: Some(damaged), .. }) => page.damaged.push(damaged),
            Some(Found { job, .. }) => page.jobs.extend(job),
            None => {}
        }
    }
    Ok(page)
}

/// Whether no job can fit, because only dead ones have a fingerprint.
fn fits_nothing(filter: &Filter) -> bool {
    filter.fingerprint.is_some() && filter.state.is_some_and(|state| state != State::Dead)
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

    fn fits_fingerprint(&self, row: &Row<'_>, column: usize) -> Result<bool> {
        let Some(wanted) = self.filter.fingerprint else { return Ok(true) };
        Ok(row::maybe_whole(row, column)? == Some(wanted.as_i64()))
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

    /// Ended jobs by the time of their end: the shelves of all queues merged.
    fn finished(&mut self, db: &Connection, state: State, order: Order, after: Option<&Place>) -> Result<()> {
        let (at, no) = match (after, order) {
            (Some(Place::Timed { at, no }), _) => (*at, *no),
            (_, Order::Newest) => (i64::MAX, i64::MAX),
            (_, Order::Oldest) => (i64::MIN, i64::MIN),
        };
        let (sql, shelf) = self.shelf(state, order);
        let prepared: Result<Vec<_>> = self.queues.iter().map(|_| db.prepare_cached(sql)).collect();
        let mut statements = prepared?;
        let begun = statements.iter_mut().zip(self.queues).map(|(statement, queue)| {
            let mut rows = statement.query([queue.id, shelf, at, no])?;
            Ok((self.ended(&mut rows)?, rows))
        });
        let mut shelves: Vec<(Option<Ended>, Rows<'_>)> = begun.collect::<Result<_>>()?;
        let heads = shelves.iter().enumerate();
        let mut heads: BTreeSet<(Ended, usize)> =
            heads.filter_map(|(shelf, (head, _))| head.map(|head| (head, shelf))).collect();
        let next = match order {
            Order::Newest => BTreeSet::pop_last,
            Order::Oldest => BTreeSet::pop_first,
        };
        let mut last = None;
        while let Some((Ended { at, no, fits }, shelf)) = next(&mut heads) {
            if self.look(fits, no, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(Place::Timed { at, no });
            heads.extend(self.ended(&mut shelves[shelf].1)?.map(|head| (head, shelf)));
        }
        Ok(())
    }

    /// How a shelf is read, and what tells it from the others of its queue.
    fn shelf(&self, state: State, order: Order) -> (&'static str, i64) {
        match (self.filter.fingerprint, order) {
            (None, Order::Newest) => (LIST_FINISHED, row::code(state)),
            (None, Order::Oldest) => (LIST_FINISHED_OLDEST, row::code(state)),
            (Some(fingerprint), Order::Newest) => (LIST_DEAD, fingerprint.as_i64()),
            (Some(fingerprint), Order::Oldest) => (LIST_DEAD_OLDEST, fingerprint.as_i64()),
        }
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
            let fits = self.fits_queue(row::whole(row, 1)?)
                && self.fits_kind(row, 2)?
                && self.fits_fingerprint(row, 3)?;
            if self.look(fits, no, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(Place::Arrival { no });
        }
        Ok(())
    }
}

/// The next job of a shelf that is not shown yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    at: i64,
    no: i64,
    fits: bool,
}
