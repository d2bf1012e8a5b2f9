//! Lists, page by page. A page walks the table that has its order, looks at no more than
//! [`SCAN_MAX`] rows and for no longer than about [`LOOK_FOR`], and continues after the last place
//! it looked at.

use crate::found::Found;
use crate::link::{Commit, Link};
use crate::row;
use backstop_core::limits::{LOOK_FOR, PAGE_BYTES_MAX, PAGE_MAX, SCAN_MAX};
use backstop_core::port::operator::page_bytes;
use backstop_core::port::place::Place;
use backstop_core::port::{Answer, Damaged, Order, Page, PageQuery};
use backstop_core::{Fingerprint, Job, JobId, Kind, QueueName, State};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

const DOING: &str = "listing jobs";
/// Rows asked for at once: a page is mostly full long before it has looked at all it may.
const STRIDE: usize = 2_000;
/// Queues whose lines one page walks.
const QUEUES_AT_ONCE: usize = 1_000;

/// One job, as far as it can be read.
pub(crate) async fn job(link: &Link, id: JobId) -> Answer<Option<Job>> {
    Ok(jobs_by_id(link, &[row::uuid(id)])
        .await?
        .pop()
        .and_then(readable))
}

/// Jobs of a queue, as far as they can be read, in the order of `ids`.
pub(crate) async fn find(
    link: &Link,
    queue: &QueueName,
    ids: &[JobId],
) -> Answer<Vec<Option<Job>>> {
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

/// What can be read of a job; what cannot is logged.
fn readable(found: Found) -> Option<Job> {
    if let Some(Damaged { id, why, .. }) = found.damaged {
        tracing::warn!(
            ?id,
            why,
            "a job's row cannot be read; it can be deleted by its id"
        );
    }
    found.job
}

async fn jobs_by_id(link: &Link, ids: &[Uuid]) -> Answer<Vec<Found>> {
    let params = [(&ids as _, Type::UUID_ARRAY)];
    link.call("reading jobs", Commit::Durable, "jobs_by_id", &params)
        .await?
        .iter()
        .map(Found::read)
        .collect()
}

/// A page of jobs, after `after` or from the start.
pub(crate) async fn page(link: &Link, query: &PageQuery, after: Option<Place>) -> Answer<Page> {
    let queue = match &query.filter.queue {
        Some(name) => match queues(link, Some(name)).await?.pop() {
            Some(queue) => Some(queue),
            None => return Ok(Page::default()),
        },
        None => None,
    };
    let mut walk = Walk {
        query,
        queue,
        limit: query.limit.clamp(1, PAGE_MAX),
        until: Instant::now() + Duration::from(LOOK_FOR),
        looked: 0,
        found: Vec::new(),
        last: after,
        next: None,
    };
    match query.filter.state {
        // Nothing but dead jobs has one.
        Some(state) if query.filter.fingerprint.is_some() && state != State::Dead => {}
        Some(State::Ready) => walk.ready(link).await?,
        Some(state @ (State::Done | State::Dead | State::Cancelled)) => {
            walk.finished(link, state).await?;
        }
        _ => walk.single(link).await?,
    }
    read(link, walk).await
}

/// The jobs that a walk found, as far as the page has room for them.
async fn read(link: &Link, walk: Walk<'_>) -> Answer<Page> {
    let mut page = Page {
        next: walk.next.map(|place| place.to_string()),
        ..Page::default()
    };
    let ids: Vec<Uuid> = walk.found.iter().map(|(id, _)| *id).collect();
    let most = i64::try_from(PAGE_BYTES_MAX).unwrap_or(i64::MAX);
    let params = [(&ids as _, Type::UUID_ARRAY), (&most as _, Type::INT8)];
    let rows = link
        .call(DOING, Commit::Durable, "jobs_within", &params)
        .await?;
    let (mut bytes, mut last) = (0, None);
    for row in &rows {
        last = Some(row::get::<Uuid>(row, 0)?);
        let Found { job, damaged } = Found::read(row)?;
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

/// All queues by name, or the one that is wanted.
pub(crate) async fn queues(link: &Link, wanted: Option<&QueueName>) -> Answer<Vec<(i32, String)>> {
    let params = [(&wanted.map(QueueName::as_str) as _, Type::TEXT)];
    let rows = link
        .call(DOING, Commit::Durable, "queue_ids", &params)
        .await?;
    rows.iter()
        .map(|row| Ok((row::get(row, 0)?, row::get(row, 1)?)))
        .collect()
}

/// A row of a list: a job, and its place as two numbers.
struct Seen {
    id: Uuid,
    fits: bool,
    place: (i64, i64),
}

/// What a page has seen so far.
struct Walk<'a> {
    query: &'a PageQuery,
    /// The only queue whose jobs are shown, if the filter names one.
    queue: Option<(i32, String)>,
    limit: usize,
    /// No look begins after this.
    until: Instant,
    looked: usize,
    found: Vec<(Uuid, Place)>,
    /// The place of the row looked at last.
    last: Option<Place>,
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
    fn look(&mut self, seen: &Seen, place: Place) -> Step {
        if self.looked == SCAN_MAX || (seen.fits && self.found.len() == self.limit) {
            self.next = self.last.take();
            return Step::Full;
        }
        self.looked += 1;
        self.found
            .extend(seen.fits.then(|| (seen.id, place.clone())));
        self.last = Some(place);
        Step::On
    }

    /// Whether there is no time for a further look. Called after one: each page gets on by a stride
    /// at least.
    fn is_late(&mut self) -> bool {
        let is_late = Instant::now() >= self.until && self.last.is_some();
        if is_late {
            self.next = self.last.take();
        }
        is_late
    }

    fn seen(&self, row: &Row) -> Answer<Seen> {
        let filter = &self.query.filter;
        let (queue, kind): (i32, &str) = (row::get(row, 1)?, row::get(row, 2)?);
        let state = row::state(row::get(row, 3)?);
        let fits = self.queue.as_ref().is_none_or(|(id, _)| *id == queue)
            && filter
                .kind
                .as_ref()
                .is_none_or(|wanted| Kind::as_str(wanted) == kind)
            && filter.state.is_none_or(|wanted| wanted == state);
        Ok(Seen {
            id: row::get(row, 0)?,
            fits,
            place: (row::get(row, 4)?, row::get(row, 5)?),
        })
    }

    /// Waiting jobs by their time, and jobs newest first by arrival.
    async fn single(&mut self, link: &Link) -> Answer<()> {
        let timed = matches!(
            self.query.filter.state,
            Some(State::Scheduled | State::Retrying)
        );
        let running = self.query.filter.state == Some(State::Running);
        let fingerprint = self.query.filter.fingerprint;
        let stride = row::number(STRIDE);
        loop {
            let rows = match (timed, &self.last) {
                (true, Some(Place::Timed { at, no })) => waiting(link, *at, *no, stride).await?,
                (true, _) => waiting(link, i64::MIN, i64::MIN, stride).await?,
                (false, Some(Place::Arrival { no })) => {
                    arrivals(link, *no, running, fingerprint, stride).await?
                }
                (false, _) => arrivals(link, i64::MAX, running, fingerprint, stride).await?,
            };
            for row in &rows {
                let seen = self.seen(row)?;
                let (at, no) = seen.place;
                let place = if timed {
                    Place::Timed { at, no }
                } else {
                    Place::Arrival { no }
                };
                if self.look(&seen, place) == Step::Full {
                    return Ok(());
                }
            }
            if rows.len() < STRIDE || self.is_late() {
                return Ok(());
            }
        }
    }

    /// Ready jobs in claim order, queue by queue.
    async fn ready(&mut self, link: &Link) -> Answer<()> {
        let queues = match self.queue.clone() {
            Some(queue) => vec![queue],
            None => self.in_line(link).await?,
        };
        let are_all = queues.len() < QUEUES_AT_ONCE;
        for (id, name) in queues {
            loop {
                let (level, seq) = match &self.last {
                    Some(Place::Line { queue, .. }) if name < *queue => break,
                    Some(Place::Line { queue, level, seq }) if name == *queue => (*level, *seq),
                    _ => (-1, i64::MIN),
                };
                let level = i16::try_from(level).unwrap_or(i16::MAX);
                let rows = ready(link, id, level, seq, row::number(STRIDE)).await?;
                for row in &rows {
                    let seen = self.seen(row)?;
                    let (level, seq) = seen.place;
                    if self.look(
                        &seen,
                        Place::Line {
                            queue: name.clone(),
                            level,
                            seq,
                        },
                    ) == Step::Full
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

    /// The queues that have something in line, from the place on that the page before has reached.
    /// A page has no time for more of them.
    async fn in_line(&self, link: &Link) -> Answer<Vec<(i32, String)>> {
        let from = match &self.last {
            Some(Place::Line { queue, .. }) => queue.as_str(),
            _ => "",
        };
        let params = [
            (&from as _, Type::TEXT),
            (&row::number(QUEUES_AT_ONCE) as _, Type::INT4),
        ];
        let rows = link
            .call(DOING, Commit::Durable, "queues_in_line", &params)
            .await?;
        rows.iter()
            .map(|row| Ok((row::get(row, 0)?, row::get(row, 1)?)))
            .collect()
    }

    /// Ended jobs of one queue or of all, newest or oldest first.
    async fn finished(&mut self, link: &Link, state: State) -> Answer<()> {
        let oldest = self.query.order == Order::Oldest;
        loop {
            let (at, no) = match &self.last {
                Some(Place::Timed { at, no }) => (*at, *no),
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
                if self.look(&seen, Place::Timed { at, no }) == Step::Full {
                    return Ok(());
                }
            }
            if rows.len() < STRIDE || self.is_late() {
                return Ok(());
            }
        }
    }
}

async fn waiting(link: &Link, at: i64, no: i64, looks: i32) -> Answer<Vec<Row>> {
    let params = [
        (&at as _, Type::INT8),
        (&no as _, Type::INT8),
        (&looks as _, Type::INT4),
    ];
    link.call(DOING, Commit::Durable, "list_waiting", &params)
        .await
}

async fn arrivals(
    link: &Link,
    no: i64,
    running: bool,
    fingerprint: Option<Fingerprint>,
    looks: i32,
) -> Answer<Vec<Row>> {
    let params = [
        (&no as _, Type::INT8),
        (&running as _, Type::BOOL),
        (&fingerprint.map(Fingerprint::as_i64) as _, Type::INT8),
        (&looks as _, Type::INT4),
    ];
    link.call(DOING, Commit::Durable, "list_arrivals", &params)
        .await
}

async fn ready(link: &Link, queue: i32, level: i16, seq: i64, looks: i32) -> Answer<Vec<Row>> {
    let params = [
        (&queue as _, Type::INT4),
        (&level as _, Type::INT2),
        (&seq as _, Type::INT8),
        (&looks as _, Type::INT4),
    ];
    link.call(DOING, Commit::Durable, "list_ready", &params)
        .await
}

async fn finished(
    link: &Link,
    query: &PageQuery,
    queue: Option<i32>,
    state: State,
    (at, no): (i64, i64),
) -> Answer<Vec<Row>> {
    let params = [
        (&queue as _, Type::INT4),
        (&(state as i16) as _, Type::INT2),
        (
            &query.filter.fingerprint.map(Fingerprint::as_i64) as _,
            Type::INT8,
        ),
        (&(query.order == Order::Oldest) as _, Type::BOOL),
        (&at as _, Type::INT8),
        (&no as _, Type::INT8),
        (&row::number(STRIDE) as _, Type::INT4),
    ];
    link.call(DOING, Commit::Durable, "list_finished", &params)
        .await
}
