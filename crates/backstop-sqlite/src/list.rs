//! Lists jobs page by page. A page scans the index that has its order. It reads at most
//! [`SCAN_MAX`] rows, for about [`PAGE_SCAN_TIME`] at most, and returns a cursor behind the last
//! row that it read.

use crate::job_view::ReadJob;
use crate::row;
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX, PAGE_SCAN_TIME, SCAN_MAX};
use backstop_core::port::cursor::JobCursor;
use backstop_core::port::operator::page_bytes;
use backstop_core::port::{ListJobsRequest, ListJobsResult, ListOrder};
use backstop_core::{Job, JobId, JobState};
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

/// Rows between two checks of the clock.
const ROWS_AT_ONCE: usize = 256;

/// Reads one job, as far as its row is readable.
pub(crate) fn job(db: &Connection, id: JobId) -> Result<Option<Job>> {
    let found = db
        .prepare_cached(JOB_BY_ID)?
        .query_row([id.as_bytes()], ReadJob::read)
        .optional()?;
    let Some(ReadJob { job, damaged }) = found else {
        return Ok(None);
    };
    if let Some(damaged) = damaged {
        tracing::warn!(%id, damaged.why, "a row of backstop_job cannot be read; run `backstop doctor`");
    }
    Ok(job)
}

/// Reads a page of jobs, behind the cursor `after` or from the start.
pub(crate) fn page(
    db: &Connection,
    query: &ListJobsRequest,
    after: Option<&JobCursor>,
) -> Result<ListJobsResult> {
    if fits_nothing(&query.filter) {
        return Ok(ListJobsResult::default());
    }
    let queue = match &query.filter.queue {
        Some(name) => {
            let mut find = db.prepare_cached(QUEUE_FIND)?;
            let found = find
                .query_row([name.as_str()], |row| row::whole(row, 0))
                .optional()?;
            let Some(id) = found else {
                return Ok(ListJobsResult::default());
            };
            Some(ListedQueue {
                id,
                name: name.to_string(),
            })
        }
        None => None,
    };
    let mut walk = PageWalk {
        filter: &query.filter,
        queue,
        limit: query.limit.clamp(1, PAGE_MAX),
        until: Instant::now() + Duration::from(PAGE_SCAN_TIME),
        looked: 0,
        found: Vec::new(),
        next: None,
    };
    match query.filter.state {
        Some(state @ (JobState::Scheduled | JobState::Retrying)) => walk.due(db, state, after)?,
        Some(JobState::Ready) => walk.ready(db, after)?,
        Some(state @ (JobState::Done | JobState::Dead | JobState::Cancelled)) => {
            walk.finished(db, state, query.order, after)?;
        }
        Some(JobState::Running) => walk.arrivals(db, LIST_RUNNING, after)?,
        None if query.filter.fingerprint.is_some() => {
            walk.arrivals(db, LIST_DEAD_ARRIVALS, after)?;
        }
        None => walk.arrivals(db, LIST_ALL, after)?,
    }
    read(db, walk)
}

/// Reads the jobs that a scan found, as far as the page has room for them.
fn read(db: &Connection, walk: PageWalk<'_>) -> Result<ListJobsResult> {
    let mut page = ListJobsResult {
        next: walk.next.map(|place| place.to_string()),
        ..ListJobsResult::default()
    };
    let mut by_no = db.prepare_cached(JOB_BY_NO)?;
    let (mut bytes, mut last) = (0, None);
    for (no, place) in walk.found {
        match by_no.query_row([no], ReadJob::read).optional()? {
            Some(ReadJob {
                damaged: Some(damaged),
                ..
            }) => page.damaged.push(damaged),
            Some(ReadJob { job: Some(job), .. }) => {
                bytes += page_bytes(&job);
                if bytes > PAGE_BYTES_MAX && last.is_some() {
                    page.next = last.map(|place: JobCursor| place.to_string());
                    return Ok(page);
                }
                page.jobs.push(job);
            }
            Some(ReadJob { job: None, .. }) | None => {}
        }
        last = Some(place);
    }
    Ok(page)
}

/// Whether no job can match, because only dead jobs have a fingerprint.
fn fits_nothing(filter: &Filter) -> bool {
    filter.fingerprint.is_some() && filter.state.is_some_and(|state| state != JobState::Dead)
}

/// A queue that the list shows.
struct ListedQueue {
    id: i64,
    name: String,
}

/// The scan of one page.
struct PageWalk<'a> {
    filter: &'a Filter,
    /// The queue that the filter names; `None` shows all queues.
    queue: Option<ListedQueue>,
    limit: usize,
    /// The deadline after which no further rows are read.
    until: Instant,
    looked: usize,
    found: Vec<(i64, JobCursor)>,
    /// The cursor of the next page, once it is clear that there is one.
    next: Option<JobCursor>,
}

/// Whether a page is complete.
#[derive(PartialEq, Eq)]
enum PageProgress {
    Continue,
    Full,
}

impl PageWalk<'_> {
    /// Adds the row at `place` to the page if it matches. `last` is the place of the row before.
    fn look(
        &mut self,
        fits: bool,
        no: i64,
        place: &JobCursor,
        last: Option<&JobCursor>,
    ) -> PageProgress {
        if self.looked == SCAN_MAX || self.is_late() || (fits && self.found.len() == self.limit) {
            self.next = last.cloned();
            return PageProgress::Full;
        }
        self.looked += 1;
        if fits {
            self.found.push((no, place.clone()));
        }
        PageProgress::Continue
    }

    /// Whether the deadline is over. Each page reads some rows at least.
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

    /// Scans waiting jobs by their due time.
    fn due(&mut self, db: &Connection, state: JobState, after: Option<&JobCursor>) -> Result<()> {
        let (at, no) = match after {
            Some(JobCursor::Timed { at, no }) => (*at, *no),
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
            let place = JobCursor::Timed { at, no };
            if self.look(fits, no, &place, last.as_ref()) == PageProgress::Full {
                break;
            }
            last = Some(place);
        }
        Ok(())
    }

    /// Scans ready jobs in claim order, queue by queue.
    fn ready(&mut self, db: &Connection, after: Option<&JobCursor>) -> Result<()> {
        let reached = match after {
            Some(JobCursor::Line { queue, level, seq }) => Some((queue.clone(), *level, *seq)),
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
            let queue = ListedQueue {
                id: row::whole(row, 0)?,
                name,
            };
            if self.line(db, &queue, reached.as_ref(), &mut last)? == PageProgress::Full {
                break;
            }
        }
        Ok(())
    }

    /// Scans the ready jobs of one queue.
    fn line(
        &mut self,
        db: &Connection,
        queue: &ListedQueue,
        reached: Option<&(String, i64, i64)>,
        last: &mut Option<JobCursor>,
    ) -> Result<PageProgress> {
        let (level, seq) = match reached {
            Some((name, ..)) if queue.name < *name => return Ok(PageProgress::Continue),
            Some((name, level, seq)) if queue.name == *name => (*level, *seq),
            _ => (i64::MIN, i64::MIN),
        };
        let mut statement = db.prepare_cached(LIST_READY)?;
        let mut rows = statement.query(params![queue.id, level, seq])?;
        while let Some(row) = rows.next()? {
            let (level, seq) = (row::whole(row, 0)?, row::whole(row, 1)?);
            let place = JobCursor::Line {
                queue: queue.name.clone(),
                level,
                seq,
            };
            let fits = self.fits_kind(row, 3)?;
            if self.look(fits, row::whole(row, 2)?, &place, last.as_ref()) == PageProgress::Full {
                return Ok(PageProgress::Full);
            }
            *last = Some(place);
        }
        Ok(PageProgress::Continue)
    }

    /// Scans ended jobs by the time of their end, of one queue or of all.
    fn finished(
        &mut self,
        db: &Connection,
        state: JobState,
        order: ListOrder,
        after: Option<&JobCursor>,
    ) -> Result<()> {
        let (at, no) = match (after, order) {
            (Some(JobCursor::Timed { at, no }), _) => (*at, *no),
            (_, ListOrder::Newest) => (i64::MAX, i64::MAX),
            (_, ListOrder::Oldest) => (i64::MIN, i64::MIN),
        };
        let (sql, shelf) = self.finished_statement(state, order);
        let mut statement = db.prepare_cached(sql)?;
        let queue = self.queue.as_ref().map_or(0, |queue| queue.id);
        let mut rows = statement.query([queue, shelf, at, no])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (at, no) = (row::whole(row, 0)?, row::whole(row, 1)?);
            let place = JobCursor::Timed { at, no };
            let fits = self.fits_kind(row, 2)?;
            if self.look(fits, no, &place, last.as_ref()) == PageProgress::Full {
                break;
            }
            last = Some(place);
        }
        Ok(())
    }

    /// The statement that scans ended jobs, and its parameter: the state or the fingerprint.
    fn finished_statement(&self, state: JobState, order: ListOrder) -> (&'static str, i64) {
        let is_of_one = self.queue.is_some();
        match (self.filter.fingerprint, order) {
            (None, ListOrder::Newest) if is_of_one => (LIST_FINISHED, row::code(state)),
            (None, ListOrder::Newest) => (LIST_FINISHED_ALL, row::code(state)),
            (None, ListOrder::Oldest) if is_of_one => (LIST_FINISHED_OLDEST, row::code(state)),
            (None, ListOrder::Oldest) => (LIST_FINISHED_ALL_OLDEST, row::code(state)),
            (Some(fingerprint), ListOrder::Newest) if is_of_one => {
                (LIST_DEAD, fingerprint.as_i64())
            }
            (Some(fingerprint), ListOrder::Newest) => (LIST_DEAD_ALL, fingerprint.as_i64()),
            (Some(fingerprint), ListOrder::Oldest) if is_of_one => {
                (LIST_DEAD_OLDEST, fingerprint.as_i64())
            }
            (Some(fingerprint), ListOrder::Oldest) => (LIST_DEAD_ALL_OLDEST, fingerprint.as_i64()),
        }
    }

    /// Scans jobs by arrival, newest first.
    fn arrivals(&mut self, db: &Connection, sql: &str, after: Option<&JobCursor>) -> Result<()> {
        let before = match after {
            Some(JobCursor::Arrival { no }) => *no,
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
            let place = JobCursor::Arrival { no };
            if self.look(fits, no, &place, last.as_ref()) == PageProgress::Full {
                break;
            }
            last = Some(place);
        }
        Ok(())
    }
}
