//! Lists, page by page. A page walks the line that has its order, looks at no more than
//! [`SCAN_MAX`] rows and for no longer than about [`LOOK_FOR`], and continues after the last place
//! it looked at.

use crate::found::Found;
use crate::row;
use backstop_core::amend::Filter;
use backstop_core::limits::{LOOK_FOR, PAGE_BYTES_MAX, PAGE_MAX, SCAN_MAX};
use backstop_core::port::operator::page_bytes;
use backstop_core::port::place::Place;
use backstop_core::port::{Order, Page, PageQuery};
use backstop_core::{Job, JobId, State};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use std::time::{Duration, Instant};

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
const LIST_FINISHED_ALL: &str = include_str!("sql/list_finished_all.sql");
const LIST_FINISHED_ALL_OLDEST: &str = include_str!("sql/list_finished_all_oldest.sql");
const LIST_DEAD_ALL: &str = include_str!("sql/list_dead_all.sql");
const LIST_DEAD_ALL_OLDEST: &str = include_str!("sql/list_dead_all_oldest.sql");
const LIST_LINES: &str = include_str!("sql/list_lines.sql");
const QUEUE_FIND: &str = include_str!("sql/queue_find.sql");

/// Rows between two looks at the clock.
const ROWS_AT_ONCE: usize = 256;

/// One job, as far as it can be read.
pub(crate) fn job(db: &Connection, id: JobId) -> Result<Option<Job>> {
    let found = db
        .prepare_cached(JOB_BY_ID)?
        .query_row([id.as_bytes()], Found::read)
        .optional()?;
    let Some(Found { job, damaged }) = found else {
        return Ok(None);
    };
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
    let queue = match &query.filter.queue {
        Some(name) => {
            let mut find = db.prepare_cached(QUEUE_FIND)?;
            let found = find
                .query_row([name.as_str()], |row| row::whole(row, 0))
                .optional()?;
            let Some(id) = found else {
                return Ok(Page::default());
            };
            Some(Queue {
                id,
                name: name.to_string(),
            })
        }
        None => None,
    };
    let mut walk = Walk {
        filter: &query.filter,
        queue,
        limit: query.limit.clamp(1, PAGE_MAX),
        until: Instant::now() + Duration::from(LOOK_FOR),
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
        None if query.filter.fingerprint.is_some() => {
            walk.arrivals(db, LIST_DEAD_ARRIVALS, after)?;
        }
        None => walk.arrivals(db, LIST_ALL, after)?,
    }
    read(db, walk)
}

/// The jobs that a walk found, as far as the page has room for them.
fn read(db: &Connection, walk: Walk<'_>) -> Result<Page> {
    let mut page = Page {
        next: walk.next.map(|place| place.to_string()),
        ..Page::default()
    };
    let mut by_no = db.prepare_cached(JOB_BY_NO)?;
    let (mut bytes, mut last) = (0, None);
    for (no, place) in walk.found {
        match by_no.query_row([no], Found::read).optional()? {
            Some(Found {
                damaged: Some(damaged),
                ..
            }) => page.damaged.push(damaged),
            Some(Found { job: Some(job), .. }) => {
                bytes += page_bytes(&job);
                if bytes > PAGE_BYTES_MAX && last.is_some() {
                    page.next = last.map(|place: Place| place.to_string());
                    return Ok(page);
                }
                page.jobs.push(job);
            }
            Some(Found { job: None, .. }) | None => {}
        }
        last = Some(place);
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

/// What a page has seen so far.
struct Walk<'a> {
    filter: &'a Filter,
    /// The only queue whose jobs are shown, if the filter names one.
    queue: Option<Queue>,
    limit: usize,
    /// No look begins after this.
    until: Instant,
    looked: usize,
    found: Vec<(i64, Place)>,
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
    /// Looks at the row at `place`. `last` is the place of the row looked at before.
    fn look(&mut self, fits: bool, no: i64, place: &Place, last: Option<&Place>) -> Step {
        if self.looked == SCAN_MAX || self.is_late() || (fits && self.found.len() == self.limit) {
            self.next = last.cloned();
            return Step::Full;
        }
        self.looked += 1;
        if fits {
            self.found.push((no, place.clone()));
        }
        Step::On
    }

    /// Whether there is no time for a further look. Each page gets on by some rows at least.
    fn is_late(&self) -> bool {
        self.looked > 0 && self.looked.is_multiple_of(ROWS_AT_ONCE) && Instant::now() >= self.until
    }

    fn fits_queue(&self, id: i64) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.id == id)
    }

    fn fits_kind(&self, row: &Row<'_>, column: usize) -> Result<bool> {
        let Some(wanted) = &self.filter.kind else {
            return Ok(true);
        };
        Ok(row::text(row, column)? == Some(wanted.as_str()))
    }

    fn fits_fingerprint(&self, row: &Row<'_>, column: usize) -> Result<bool> {
        let Some(wanted) = self.filter.fingerprint else {
            return Ok(true);
        };
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
            let place = Place::Timed { at, no };
            if self.look(fits, no, &place, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(place);
        }
        Ok(())
    }

    /// Ready jobs in claim order, queue by queue.
    fn ready(&mut self, db: &Connection, after: Option<&Place>) -> Result<()> {
        let reached = match after {
            Some(Place::Line { queue, level, seq }) => Some((queue.clone(), *level, *seq)),
            _ => None,
        };
        let mut last = after.cloned();
        if let Some(queue) = self.queue.take() {
            self.line(db, &queue, reached.as_ref(), &mut last)?;
            return Ok(());
        }
        let mut lines = db.prepare_cached(LIST_LINES)?;
        let mut rows = lines.query([reached.as_ref().map_or("", |(queue, ..)| queue)])?;
        while let Some(row) = rows.next()? {
            let name = row::text(row, 1)?.unwrap_or_default().to_owned();
            let queue = Queue {
                id: row::whole(row, 0)?,
                name,
            };
            if self.line(db, &queue, reached.as_ref(), &mut last)? == Step::Full {
                break;
            }
        }
        Ok(())
    }

    /// The ready jobs of one queue.
    fn line(
        &mut self,
        db: &Connection,
        queue: &Queue,
        reached: Option<&(String, i64, i64)>,
        last: &mut Option<Place>,
    ) -> Result<Step> {
        let (level, seq) = match reached {
            Some((name, ..)) if queue.name < *name => return Ok(Step::On),
            Some((name, level, seq)) if queue.name == *name => (*level, *seq),
            _ => (i64::MIN, i64::MIN),
        };
        let mut statement = db.prepare_cached(LIST_READY)?;
        let mut rows = statement.query(params![queue.id, level, seq])?;
        while let Some(row) = rows.next()? {
            let (level, seq) = (row::whole(row, 0)?, row::whole(row, 1)?);
            let place = Place::Line {
                queue: queue.name.clone(),
                level,
                seq,
            };
            let fits = self.fits_kind(row, 3)?;
            if self.look(fits, row::whole(row, 2)?, &place, last.as_ref()) == Step::Full {
                return Ok(Step::Full);
            }
            *last = Some(place);
        }
        Ok(Step::On)
    }

    /// Ended jobs by the time of their end, of one queue or of all.
    fn finished(
        &mut self,
        db: &Connection,
        state: State,
        order: Order,
        after: Option<&Place>,
    ) -> Result<()> {
        let (at, no) = match (after, order) {
            (Some(Place::Timed { at, no }), _) => (*at, *no),
            (_, Order::Newest) => (i64::MAX, i64::MAX),
            (_, Order::Oldest) => (i64::MIN, i64::MIN),
        };
        let (sql, shelf) = self.shelf(state, order);
        let mut statement = db.prepare_cached(sql)?;
        let queue = self.queue.as_ref().map_or(0, |queue| queue.id);
        let mut rows = statement.query([queue, shelf, at, no])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (at, no) = (row::whole(row, 0)?, row::whole(row, 1)?);
            let place = Place::Timed { at, no };
            let fits = self.fits_kind(row, 2)?;
            if self.look(fits, no, &place, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(place);
        }
        Ok(())
    }

    /// How a shelf is read, and what tells it from the others of its queue.
    fn shelf(&self, state: State, order: Order) -> (&'static str, i64) {
        let is_of_one = self.queue.is_some();
        match (self.filter.fingerprint, order) {
            (None, Order::Newest) if is_of_one => (LIST_FINISHED, row::code(state)),
            (None, Order::Newest) => (LIST_FINISHED_ALL, row::code(state)),
            (None, Order::Oldest) if is_of_one => (LIST_FINISHED_OLDEST, row::code(state)),
            (None, Order::Oldest) => (LIST_FINISHED_ALL_OLDEST, row::code(state)),
            (Some(fingerprint), Order::Newest) if is_of_one => (LIST_DEAD, fingerprint.as_i64()),
            (Some(fingerprint), Order::Newest) => (LIST_DEAD_ALL, fingerprint.as_i64()),
            (Some(fingerprint), Order::Oldest) if is_of_one => {
                (LIST_DEAD_OLDEST, fingerprint.as_i64())
            }
            (Some(fingerprint), Order::Oldest) => (LIST_DEAD_ALL_OLDEST, fingerprint.as_i64()),
        }
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
            let place = Place::Arrival { no };
            if self.look(fits, no, &place, last.as_ref()) == Step::Full {
                break;
            }
            last = Some(place);
        }
        Ok(())
    }
}
