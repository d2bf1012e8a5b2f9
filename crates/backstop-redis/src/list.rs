//! Lists jobs, page by page. A page scans the index that has its order. It looks at no more than
//! [`SCAN_MAX`] entries, for no longer than about [`PAGE_SCAN_TIME`], and the next page continues
//! after the last entry it looked at.

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
/// How many jobs are read at once: their payloads may be large, and then a page ends early.
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
                    // Jobs that no longer exist were left out.
                    last = places
                        .find(|(spot, _)| spot.id == job.id)
                        .map(|(_, place)| place)
                        .or(last);
                    // A job may have changed since its index entry was read.
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
    // The index the job was found in already matched the fingerprint.
    let fingerprint = filter.fingerprint.filter(|_| job.state == JobState::Dead);
    filter.fits(&job.queue, &job.kind, job.state, fingerprint)
}

/// All queues that the filter lets through, by name.
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

/// The progress of a page.
struct PageWalk<'a> {
    base: &'a StoreContext,
    filter: &'a Filter,
    queues: &'a [QueueName],
    limit: usize,
    /// No further look begins after this time.
    until: Instant,
    looked: usize,
    found: Vec<(JobLocation, RedisListCursor)>,
    /// The last entry that the page looked at.
    last: Option<RedisListCursor>,
    /// The start of the next page, once it is known that there is one.
    next: Option<RedisListCursor>,
}

/// Whether the page is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageProgress {
    Continue,
    Full,
}

/// How many entries are read at once if a filter may reject most of them.
const FILTERED_AT_ONCE: usize = 1_000;

impl PageWalk<'_> {
    /// How many entries to read at once: one more than a page shows, unless a filter picks among
    /// them.
    fn at_once(&self) -> usize {
        if self.filter.kind.is_some() {
            FILTERED_AT_ONCE
        } else {
            self.limit + 1
        }
    }

    /// Scans the index that has the order of the list.
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
            // Only dead jobs have a fingerprint.
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

    /// Scans an index whose members sort as the list does, over all queues.
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

    /// Lists ready jobs in claim order, queue by queue.
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

    /// Lists jobs of a state, newest arrival first. No index has that order. So the indexes of that
    /// state are read whole, or, if they are too long, the scan goes over all jobs and picks those
    /// in the state.
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

    /// Looks at index entries, in their order.
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
            // Time is only checked after a full slice, so that each page makes progress.
            if slice.len() == FILTERED_AT_ONCE && Instant::now() >= self.until {
                self.next.clone_from(&self.last);
                return Ok(PageProgress::Full);
            }
        }
        Ok(PageProgress::Continue)
    }

    /// Which of these entries match the filter, if their index alone does not tell. A job that
    /// cannot be read matches if the filter does not have to look into its record.
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
