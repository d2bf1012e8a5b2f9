//! Lists jobs page by page. A page scans the index that has its order. It reads at most
//! [`SCAN_MAX`] rows, for about [`PAGE_SCAN_TIME`] at most, and returns a cursor behind the last
//! row that it read.

use crate::job_view::ReadJob;
use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX, PAGE_SCAN_TIME, SCAN_MAX};
use backstop_core::port::cursor::JobCursor;
use backstop_core::port::operator::page_bytes;
use backstop_core::port::{DamagedJob, ListJobsRequest, ListJobsResult, ListOrder, StoreResult};
use backstop_core::{Fingerprint, Job, JobId, JobState, Kind, QueueName};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

const DOING: &str = "listing jobs";
/// Rows that one query reads: a page is mostly full long before it has read all it may.
const STRIDE: usize = 2_000;
/// Queues whose ready lines one page scans.
const QUEUES_AT_ONCE: usize = 1_000;

/// Reads one job, as far as its row is readable.
pub(crate) async fn job(link: &PostgresLink, id: JobId) -> StoreResult<Option<Job>> {
    Ok(jobs_by_id(link, &[row::uuid(id)])
        .await?
        .pop()
        .and_then(readable))
}

/// Reads jobs of a queue, as far as their rows are readable, in the order of `ids`.
pub(crate) async fn find(
    link: &PostgresLink,
    queue: &QueueName,
    ids: &[JobId],
) -> StoreResult<Vec<Option<Job>>> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| row::uuid(*id)).collect();
    let found = jobs_by_id(link, &uuids)
        .await?
        .into_iter()
        .filter_map(readable);
    let found: BTreeMap<JobId, Job> = found
        .filter(|job| job.queue == *queue)
        .map(|job| (job.id, job))
        .collect();
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// Returns the readable part of a job, and logs the rest.
fn readable(found: ReadJob) -> Option<Job> {
    if let Some(DamagedJob { id, why, .. }) = found.damaged {
        tracing::warn!(
            ?id,
            why,
            "a job's row cannot be read; it can be deleted by its id"
        );
    }
    found.job
}

async fn jobs_by_id(link: &PostgresLink, ids: &[Uuid]) -> StoreResult<Vec<ReadJob>> {
    let params = [(&ids as _, Type::UUID_ARRAY)];
    link.call("reading jobs", CommitMode::Durable, "jobs_by_id", &params)
        .await?
        .iter()
        .map(ReadJob::read)
        .collect()
}

/// Reads a page of jobs, behind the cursor `after` or from the start.
pub(crate) async fn page(
    link: &PostgresLink,
    query: &ListJobsRequest,
    after: Option<JobCursor>,
) -> StoreResult<ListJobsResult> {
    let queue = match &query.filter.queue {
        Some(name) => match queues(link, Some(name)).await?.pop() {
            Some(queue) => Some(queue),
            None => return Ok(ListJobsResult::default()),
        },
        None => None,
    };
    let mut walk = PageWalk {
        query,
        queue,
        limit: query.limit.clamp(1, PAGE_MAX),
        until: Instant::now() + Duration::from(PAGE_SCAN_TIME),
        looked: 0,
        found: Vec::new(),
        last: after,
        next: None,
    };
    match query.filter.state {
        // Only dead jobs have a fingerprint, so nothing matches.
        Some(state) if query.filter.fingerprint.is_some() && state != JobState::Dead => {}
        Some(JobState::Ready) => walk.ready(link).await?,
        Some(state @ (JobState::Done | JobState::Dead | JobState::Cancelled)) => {
            walk.finished(link, state).await?;
        }
        _ => walk.single(link).await?,
    }
    read(link, walk).await
}

/// Reads the jobs that a scan found, as far as the page has room for them.
async fn read(link: &PostgresLink, walk: PageWalk<'_>) -> StoreResult<ListJobsResult> {
    let mut page = ListJobsResult {
        next: walk.next.map(|place| place.to_string()),
        ..ListJobsResult::default()
    };
    let ids: Vec<Uuid> = walk.found.iter().map(|(id, _)| *id).collect();
    let most = i64::try_from(PAGE_BYTES_MAX).unwrap_or(i64::MAX);
    let params = [(&ids as _, Type::UUID_ARRAY), (&most as _, Type::INT8)];
    let rows = link
        .call(DOING, CommitMode::Durable, "jobs_within", &params)
        .await?;
    let (mut bytes, mut last) = (0, None);
    for row in &rows {
        last = Some(row::get::<Uuid>(row, 0)?);
        let ReadJob { job, damaged } = ReadJob::read(row)?;
        bytes += job.as_ref().map_or(0, page_bytes);
        match damaged {
            Some(damaged) => page.damaged.push(damaged),
            None => page.jobs.extend(job),
        }
    }
    let mut behind = walk.found.iter().skip_while(|(id, _)| Some(*id) != last);
    if bytes >= PAGE_BYTES_MAX
        && let (Some((_, place)), Some(_)) = (behind.next(), behind.next())
    {
        page.next = Some(place.to_string());
    }
    Ok(page)
}

/// Reads the ids and names of all queues, or of the one that is wanted.
pub(crate) async fn queues(
    link: &PostgresLink,
    wanted: Option<&QueueName>,
) -> StoreResult<Vec<(i32, String)>> {
    let params = [(&wanted.map(QueueName::as_str) as _, Type::TEXT)];
    let rows = link
        .call(DOING, CommitMode::Durable, "queue_ids", &params)
        .await?;
    rows.iter()
        .map(|row| Ok((row::get(row, 0)?, row::get(row, 1)?)))
        .collect()
}

/// A scanned row: a job, whether it matches, and its place as two numbers.
struct ListedRow {
    id: Uuid,
    fits: bool,
    place: (i64, i64),
}

/// The scan of one page.
struct PageWalk<'a> {
    query: &'a ListJobsRequest,
    /// The queue that the filter names; `None` shows all queues.
    queue: Option<(i32, String)>,
    limit: usize,
    /// The deadline after which no further query starts.
    until: Instant,
    looked: usize,
    found: Vec<(Uuid, JobCursor)>,
    /// The place of the row that was read last.
    last: Option<JobCursor>,
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
    fn look(&mut self, seen: &ListedRow, place: JobCursor) -> PageProgress {
        if self.looked == SCAN_MAX || (seen.fits && self.found.len() == self.limit) {
            self.next = self.last.take();
            return PageProgress::Full;
        }
        self.looked += 1;
        self.found
            .extend(seen.fits.then(|| (seen.id, place.clone())));
        self.last = Some(place);
        PageProgress::Continue
    }

    /// Whether the deadline is over. It is called after a query, so that each page reads the rows
    /// of one query at least.
    fn is_late(&mut self) -> bool {
        let is_late = Instant::now() >= self.until && self.last.is_some();
        if is_late {
            self.next = self.last.take();
        }
        is_late
    }

    fn seen(&self, row: &Row) -> StoreResult<ListedRow> {
        let filter = &self.query.filter;
        let (queue, kind): (i32, &str) = (row::get(row, 1)?, row::get(row, 2)?);
        let state = row::state(row::get(row, 3)?);
        let fits = self.queue.as_ref().is_none_or(|(id, _)| *id == queue)
            && filter
                .kind
                .as_ref()
                .is_none_or(|wanted| Kind::as_str(wanted) == kind)
            && filter.state.is_none_or(|wanted| wanted == state);
        Ok(ListedRow {
            id: row::get(row, 0)?,
            fits,
            place: (row::get(row, 4)?, row::get(row, 5)?),
        })
    }

    /// Scans waiting jobs by their due time, and running jobs or all jobs by arrival, newest first.
    async fn single(&mut self, link: &PostgresLink) -> StoreResult<()> {
        let timed = matches!(
            self.query.filter.state,
            Some(JobState::Scheduled | JobState::Retrying)
        );
        let running = self.query.filter.state == Some(JobState::Running);
        let fingerprint = self.query.filter.fingerprint;
        let stride = row::number(STRIDE);
        loop {
            let rows = match (timed, &self.last) {
                (true, Some(JobCursor::Timed { at, no })) => {
                    waiting(link, *at, *no, stride).await?
                }
                (true, _) => waiting(link, i64::MIN, i64::MIN, stride).await?,
                (false, Some(JobCursor::Arrival { no })) => {
                    arrivals(link, *no, running, fingerprint, stride).await?
                }
                (false, _) => arrivals(link, i64::MAX, running, fingerprint, stride).await?,
            };
            for row in &rows {
                let seen = self.seen(row)?;
                let (at, no) = seen.place;
                let place = if timed {
                    JobCursor::Timed { at, no }
                } else {
                    JobCursor::Arrival { no }
                };
                if self.look(&seen, place) == PageProgress::Full {
                    return Ok(());
                }
            }
            if rows.len() < STRIDE || self.is_late() {
                return Ok(());
            }
        }
    }

    /// Scans ready jobs in claim order, queue by queue.
    async fn ready(&mut self, link: &PostgresLink) -> StoreResult<()> {
        let queues = match self.queue.clone() {
            Some(queue) => vec![queue],
            None => self.in_line(link).await?,
        };
        let are_all = queues.len() < QUEUES_AT_ONCE;
        for (id, name) in queues {
            loop {
                let (level, seq) = match &self.last {
                    Some(JobCursor::Line { queue, .. }) if name < *queue => break,
                    Some(JobCursor::Line { queue, level, seq }) if name == *queue => (*level, *seq),
                    _ => (-1, i64::MIN),
                };
                let level = i16::try_from(level).unwrap_or(i16::MAX);
                let rows = ready(link, id, level, seq, row::number(STRIDE)).await?;
                for row in &rows {
                    let seen = self.seen(row)?;
                    let (level, seq) = seen.place;
                    if self.look(
                        &seen,
                        JobCursor::Line {
                            queue: name.clone(),
                            level,
                            seq,
                        },
                    ) == PageProgress::Full
                    {
                        return Ok(());
                    }
                }
                if self.is_late() {
                    return Ok(());
                }
                if rows.len() < STRIDE {
                    break;
                }
            }
        }
        if !are_all {
            self.next = self.last.take();
        }
        Ok(())
    }

    /// Reads the queues that have ready jobs, from the queue of the cursor on. A page has no time
    /// for more of them than this returns.
    async fn in_line(&self, link: &PostgresLink) -> StoreResult<Vec<(i32, String)>> {
        let from = match &self.last {
            Some(JobCursor::Line { queue, .. }) => queue.as_str(),
            _ => "",
        };
        let params = [
            (&from as _, Type::TEXT),
            (&row::number(QUEUES_AT_ONCE) as _, Type::INT4),
        ];
        let rows = link
            .call(DOING, CommitMode::Durable, "queues_in_line", &params)
            .await?;
        rows.iter()
            .map(|row| Ok((row::get(row, 0)?, row::get(row, 1)?)))
            .collect()
    }

    /// Scans ended jobs of one queue or of all, newest or oldest first.
    async fn finished(&mut self, link: &PostgresLink, state: JobState) -> StoreResult<()> {
        let oldest = self.query.order == ListOrder::Oldest;
        loop {
            let (at, no) = match &self.last {
                Some(JobCursor::Timed { at, no }) => (*at, *no),
                _ if oldest => (i64::MIN, i64::MIN),
                _ => (i64::MAX, i64::MAX),
            };
            let rows = finished(
                link,
                self.query,
                self.queue.as_ref().map(|(id, _)| *id),
                state,
                (at, no),
            )
            .await?;
            for row in &rows {
                let seen = self.seen(row)?;
                let (at, no) = seen.place;
                if self.look(&seen, JobCursor::Timed { at, no }) == PageProgress::Full {
                    return Ok(());
                }
            }
            if rows.len() < STRIDE || self.is_late() {
                return Ok(());
            }
        }
    }
}

async fn waiting(link: &PostgresLink, at: i64, no: i64, looks: i32) -> StoreResult<Vec<Row>> {
    let params = [
        (&at as _, Type::INT8),
        (&no as _, Type::INT8),
        (&looks as _, Type::INT4),
    ];
    link.call(DOING, CommitMode::Durable, "list_waiting", &params)
        .await
}

async fn arrivals(
    link: &PostgresLink,
    no: i64,
    running: bool,
    fingerprint: Option<Fingerprint>,
    looks: i32,
) -> StoreResult<Vec<Row>> {
    let params = [
        (&no as _, Type::INT8),
        (&running as _, Type::BOOL),
        (&fingerprint.map(Fingerprint::as_i64) as _, Type::INT8),
        (&looks as _, Type::INT4),
    ];
    link.call(DOING, CommitMode::Durable, "list_arrivals", &params)
        .await
}

async fn ready(
    link: &PostgresLink,
    queue: i32,
    level: i16,
    seq: i64,
    looks: i32,
) -> StoreResult<Vec<Row>> {
    let params = [
        (&queue as _, Type::INT4),
        (&level as _, Type::INT2),
        (&seq as _, Type::INT8),
        (&looks as _, Type::INT4),
    ];
    link.call(DOING, CommitMode::Durable, "list_ready", &params)
        .await
}

async fn finished(
    link: &PostgresLink,
    query: &ListJobsRequest,
    queue: Option<i32>,
    state: JobState,
    (at, no): (i64, i64),
) -> StoreResult<Vec<Row>> {
    let params = [
        (&queue as _, Type::INT4),
        (&(state as i16) as _, Type::INT2),
        (
            &query.filter.fingerprint.map(Fingerprint::as_i64) as _,
            Type::INT8,
        ),
        (&(query.order == ListOrder::Oldest) as _, Type::BOOL),
        (&at as _, Type::INT8),
        (&no as _, Type::INT8),
        (&row::number(STRIDE) as _, Type::INT4),
    ];
    link.call(DOING, CommitMode::Durable, "list_finished", &params)
        .await
}
