//! Lists, page by page. A page walks the line that has its order, looks at no more than
//! [`SCAN_MAX`] places and for no longer than about [`LOOK_FOR`], and continues after the last
//! place it looked at.

mod cursor;

use crate::context::StoreContext;
use crate::job_view::{FilterFields, ReadJob, read_filter_fields, read_jobs_at};
use crate::keys::QueueKey;
use crate::record::fingerprint_bytes;
use crate::state_index::{
    IndexMember, IndexRange, JobLocation, ScanDirection, StateIndexes, part_of,
};
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX, PAGE_SCAN_TIME, SCAN_MAX};
use backstop_core::port::operator::page_bytes;
use backstop_core::port::{ListJobsRequest, ListJobsResult, ListOrder, StoreResult};
use backstop_core::{Job, JobState, QueueName};
pub(crate) use cursor::{RedisListCursor, from_hex, to_hex};
use std::time::Duration;
use tokio::time::Instant;

const DOING: &str = "listing jobs";
/// Jobs read at once: their payloads may be large, and a page ends soon then.
const WHOLE_AT_ONCE: usize = 16;

pub(crate) async fn page(
    base: &StoreContext,
    query: &ListJobsRequest,
) -> StoreResult<ListJobsResult> {
    let after = RedisListCursor::of(query)?;
    let queues = queues(base, DOING, &query.filter).await?;
    let mut walk = PageWalk {
        base,
        filter: &query.filter,
        queues: &queues,
        limit: query.limit.clamp(1, PAGE_MAX),
        until: Instant::now() + Duration::from(PAGE_SCAN_TIME),
        looked: 0,
        found: Vec::new(),
        last: after.clone(),
        next: None,
    };
    walk.through(query.order).await?;
    let mut page = ListJobsResult {
        next: walk.next.map(|place| place.to_string()),
        ..ListJobsResult::default()
    };
    let (mut bytes, mut last) = (0, None);
    for slice in walk.found.chunks(WHOLE_AT_ONCE) {
        let spots: Vec<JobLocation> = slice.iter().map(|(spot, _)| *spot).collect();
        let views = read_jobs_at(base, DOING, &queues, &spots).await?;
        let mut places = slice.iter();
        for view in views {
            match view {
                ReadJob::Whole(job) => {
                    bytes += page_bytes(&job);
                    if bytes > PAGE_BYTES_MAX && last.is_some() {
                        page.next = last.map(|place: &RedisListCursor| place.to_string());
                        return Ok(page);
                    }
                    // Those that are gone were left out.
                    last = places
                        .find(|(spot, _)| spot.id == job.id)
                        .map(|(_, place)| place)
                        .or(last);
                    // A job may have moved on since its place was seen.
                    page.jobs
                        .extend(is_still_meant(&query.filter, &job).then_some(*job));
                }
                ReadJob::Damaged(damaged) => page.damaged.push(damaged),
            }
        }
    }
    Ok(page)
}

fn is_still_meant(filter: &Filter, job: &Job) -> bool {
    // What it died of was told by the line it stood in.
    let fingerprint = filter.fingerprint.filter(|_| job.state == JobState::Dead);
    filter.fits(&job.queue, &job.kind, job.state, fingerprint)
}

/// All queues the filter lets through, by name.
pub(crate) async fn queues(
    base: &StoreContext,
    doing: &'static str,
    filter: &Filter,
) -> StoreResult<Vec<QueueName>> {
    match &filter.queue {
        Some(queue) => Ok(vec![queue.clone()]),
        None => base.queues(doing).await,
    }
}

/// What a page has seen so far.
struct PageWalk<'a> {
    base: &'a StoreContext,
    filter: &'a Filter,
    queues: &'a [QueueName],
    limit: usize,
    /// No look begins after this.
    until: Instant,
    looked: usize,
    found: Vec<(JobLocation, RedisListCursor)>,
    /// The place looked at last.
    last: Option<RedisListCursor>,
    /// Where the next page starts, once it is clear that there is one.
    next: Option<RedisListCursor>,
}

/// Whether a page is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageProgress {
    Continue,
    Full,
}

/// Places read at once where a filter may pass most of them over.
const FILTERED_AT_ONCE: usize = 1_000;

impl PageWalk<'_> {
    /// Places to read at once: one more than a page shows, unless a filter picks among them.
    fn at_once(&self) -> usize {
        if self.filter.kind.is_some() {
            FILTERED_AT_ONCE
        } else {
            self.limit + 1
        }
    }

    /// The line that has the order of the list.
    async fn through(&mut self, order: ListOrder) -> StoreResult<()> {
        let ended = if order == ListOrder::Oldest {
            ScanDirection::Forward
        } else {
            ScanDirection::Backward
        };
        let fingerprint = self.filter.fingerprint.map(fingerprint_bytes);
        match (self.filter.state, fingerprint) {
            (Some(JobState::Dead), Some(prefix)) => {
                self.line(
                    IndexRange {
                        part: QueueKey::Groups,
                        prefix: &prefix,
                    },
                    ended,
                )
                .await
            }
            (None, Some(_)) => self.picked(JobState::Dead).await,
            // No other job has a fingerprint.
            (Some(_), Some(_)) => Ok(()),
            (Some(JobState::Ready), None) => self.ready().await,
            (Some(JobState::Running), None) => self.picked(JobState::Running).await,
            (Some(state @ (JobState::Scheduled | JobState::Retrying)), None) => {
                self.line(IndexRange::of(part_of(state)), ScanDirection::Forward)
                    .await
            }
            (Some(state @ (JobState::Done | JobState::Dead | JobState::Cancelled)), None) => {
                self.line(IndexRange::of(part_of(state)), ended).await
            }
            (None, None) => {
                self.line(IndexRange::of(QueueKey::Order), ScanDirection::Backward)
                    .await
            }
        }
    }

    /// A line whose members sort as the list does, over all queues.
    async fn line(&mut self, line: IndexRange<'_>, direction: ScanDirection) -> StoreResult<()> {
        let lines = StateIndexes {
            base: self.base,
            doing: DOING,
            queues: self.queues,
        };
        loop {
            let after = self.last.as_ref().and_then(RedisListCursor::member);
            let found = lines.next(line, direction, after, self.at_once()).await?;
            if found.is_empty()
                || self
                    .look(found, |found| RedisListCursor::Member(found.member.clone()))
                    .await?
                    == PageProgress::Full
            {
                return Ok(());
            }
        }
    }

    /// Ready jobs in claim order, queue by queue.
    async fn ready(&mut self) -> StoreResult<()> {
        let lines = StateIndexes {
            base: self.base,
            doing: DOING,
            queues: self.queues,
        };
        for (at, queue) in self.queues.iter().enumerate() {
            loop {
                let after = match &self.last {
                    Some(RedisListCursor::Line { queue: reached, .. })
                        if queue.as_str() < reached.as_str() =>
                    {
                        break;
                    }
                    Some(RedisListCursor::Line {
                        queue: reached,
                        place,
                        member,
                    }) if queue.as_str() == reached => Some((*place, member.clone())),
                    _ => None,
                };
                let found = lines.next_ready(at, after, self.at_once()).await?;
                let place = |found: &IndexMember| RedisListCursor::Line {
                    queue: queue.to_string(),
                    place: found.place,
                    member: found.member.clone(),
                };
                if found.is_empty() {
                    break;
                }
                if self.look(found, place).await? == PageProgress::Full {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Jobs of a state, newest first by arrival. No line has that order: they are read whole, or
    /// picked out of all jobs where that would be too much.
    async fn picked(&mut self, state: JobState) -> StoreResult<()> {
        let lines = StateIndexes {
            base: self.base,
            doing: DOING,
            queues: self.queues,
        };
        let Some(mut found) = lines.whole(&[state], SCAN_MAX).await? else {
            return self
                .line(IndexRange::of(QueueKey::Order), ScanDirection::Backward)
                .await;
        };
        found.sort_unstable_by(|a, b| b.member.cmp(&a.member));
        if let Some(after) = self.last.as_ref().and_then(RedisListCursor::member) {
            found.retain(|found| &found.member[..] < after);
        }
        self.look(found, |found| RedisListCursor::Member(found.member.clone()))
            .await
            .map(drop)
    }

    /// Looks at places, in their order.
    async fn look(
        &mut self,
        found: Vec<IndexMember>,
        place: impl Fn(&IndexMember) -> RedisListCursor,
    ) -> StoreResult<PageProgress> {
        for slice in found.chunks(FILTERED_AT_ONCE) {
            let fitting = self.fitting(slice).await?;
            for (found, fits) in slice.iter().zip(fitting) {
                if self.looked == SCAN_MAX || (fits && self.found.len() == self.limit) {
                    self.next.clone_from(&self.last);
                    return Ok(PageProgress::Full);
                }
                self.looked += 1;
                let place = place(found);
                self.found
                    .extend(fits.then(|| (found.location, place.clone())));
                self.last = Some(place);
            }
            // After a whole look: each page gets on by one at least.
            if slice.len() == FILTERED_AT_ONCE && Instant::now() >= self.until {
                self.next.clone_from(&self.last);
                return Ok(PageProgress::Full);
            }
        }
        Ok(PageProgress::Continue)
    }

    /// Which of these fit, where their line does not tell. What cannot be read fits where nobody
    /// has to look into it.
    async fn fitting(&self, found: &[IndexMember]) -> StoreResult<Vec<bool>> {
        let is_picked = match self.filter.state {
            Some(state) => state == JobState::Running,
            None => self.filter.fingerprint.is_some(),
        };
        if self.filter.kind.is_none() && !is_picked {
            return Ok(vec![true; found.len()]);
        }
        let spots: Vec<JobLocation> = found.iter().map(|found| found.location).collect();
        let seen = read_filter_fields(self.base, DOING, self.queues, &spots).await?;
        let fits = |(spot, seen): (&JobLocation, Option<FilterFields>)| {
            seen.is_some_and(|seen| seen.fits(self.filter, &self.queues[spot.queue]))
        };
        Ok(spots.iter().zip(seen).map(fits).collect())
    }
}
