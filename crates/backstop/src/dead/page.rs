//! Lists of dead letters, page by page.

use super::{DeadFilter, DeadLetter, DeadLetters};
use backstop_core::Job;
use backstop_core::limits::{PAGE_MAX, SCAN_MAX};
use backstop_core::port::{Answer, Damaged, Order, PageQuery};
use std::time::Duration;
use tokio::time::Instant;

/// Jobs read in one call where only some of them will fit. Payloads come with them, so a page is no larger than needed.
const READ_MAX: usize = 200;
/// How long a page is looked for where most letters do not fit: whoever asked can go on behind it.
const LOOK_FOR: Duration = Duration::from_millis(100);

/// A page of dead letters. It may be short, even empty: the list ends where there is no `next`.
#[derive(Clone, Debug, Default)]
pub struct DeadPage {
    /// The letters.
    pub letters: Vec<DeadLetter>,
    /// Those among them that cannot be read. Whether they fit is not known.
    pub damaged: Vec<Damaged>,
    /// Where the next page starts.
    pub next: Option<String>,
}

/// A page of jobs, before anything is hidden.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) jobs: Vec<Job>,
    pub(super) damaged: Vec<Damaged>,
    pub(super) next: Option<String>,
}

impl DeadLetters {
    /// A page of those that fit, the newest death first, redacted. `limit` is clamped to 1 … [`PAGE_MAX`].
    pub async fn list(&self, filter: &DeadFilter, cursor: Option<String>, limit: usize) -> Answer<DeadPage> {
        let found = self.find(filter, cursor, limit, Order::Newest).await?;
        let letters = found.jobs.iter().map(|job| self.redacted(job)).collect();
        Ok(DeadPage { letters, damaged: found.damaged, next: found.next })
    }

    /// A page of those that fit, the oldest death first, with their payloads whole: a backup, to be read by
    /// [`DeadLetters::import`].
    pub async fn export(&self, filter: &DeadFilter, cursor: Option<String>) -> Answer<DeadPage> {
        let found = self.find(filter, cursor, READ_MAX, Order::Oldest).await?;
        let letters = found.jobs.iter().map(|job| self.whole(job)).collect();
        Ok(DeadPage { letters, damaged: found.damaged, next: found.next })
    }

    /// Reads on until `limit` jobs are found, the list ends, or it was looked for long enough.
    pub(super) async fn find(
        &self,
        filter: &DeadFilter,
        mut cursor: Option<String>,
        limit: usize,
        order: Order,
    ) -> Answer<Found> {
        let (limit, began) = (limit.clamp(1, PAGE_MAX), Instant::now());
        let (mut found, mut looked, mut size) = (Found::default(), 0, limit);
        loop {
            let missing = limit - found.jobs.len();
            let query = PageQuery { filter: filter.narrowed(), cursor: cursor.clone(), limit: size, order };
            let page = self.backstop.store().jobs(query, self.backstop.now()).await?;
            let fits = |job: &&Job| filter.fits(job, &self.redaction);
            if page.jobs.iter().filter(fits).count() > missing {
                // The store's cursor stands behind what it read: read no more than is wanted.
                size = missing;
                continue;
            }
            let is_passed = page.jobs.last().is_some_and(|job| filter.is_passed_at(job, order));
            looked += size;
            found.jobs.extend(page.jobs.into_iter().filter(|job| filter.fits(job, &self.redaction)));
            found.damaged.extend(page.damaged);
            cursor = page.next.filter(|_| !is_passed);
            let is_enough = found.jobs.len() >= limit || looked >= SCAN_MAX || began.elapsed() >= LOOK_FOR;
            if cursor.is_none() || is_enough {
                found.next = cursor;
                return Ok(found);
            }
            let missing = limit - found.jobs.len();
            size = if filter.is_stores_own() {
                missing
            } else {
                (size * 4).clamp(missing, READ_MAX.max(missing))
            };
        }
    }
}
