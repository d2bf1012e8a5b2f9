//! Lists of dead letters, page by page.

use super::{DeadFilter, DeadLetter, DeadLetters};
use crate::search::{JobPredicate, READ_MAX, find_jobs};
use backstop_core::Job;
use backstop_core::port::{DamagedJob, ListJobsResult, ListOrder, StoreResult};
use backstop_core::redact::Redaction;
use std::time::Duration;

/// A page of dead letters. It may be short, even empty: the list ends where there is no `next`.
#[derive(Clone, Debug, Default)]
pub struct DeadPage {
    pub letters: Vec<DeadLetter>,
    /// Those among them that cannot be read. Whether they fit is not known.
    pub damaged: Vec<DamagedJob>,
    /// Where the next page starts.
    pub next: Option<String>,
}

impl DeadLetters {
    /// A page of those that fit, the newest death first, redacted. `limit` is clamped to 1 …
    /// [`backstop_core::limits::PAGE_MAX`].
    pub async fn list(
        &self,
        filter: &DeadFilter,
        cursor: Option<String>,
        limit: usize,
    ) -> StoreResult<DeadPage> {
        let found = self.find(filter, cursor, limit, ListOrder::Newest).await?;
        let letters = found
            .jobs
            .iter()
            .map(|job| self.redacted_letter(job))
            .collect();
        Ok(DeadPage {
            letters,
            damaged: found.damaged,
            next: found.next,
        })
    }

    /// A page of those that fit, the oldest death first, with their payloads whole: a backup, to be
    /// read by [`DeadLetters::import`].
    pub async fn export(
        &self,
        filter: &DeadFilter,
        cursor: Option<String>,
    ) -> StoreResult<DeadPage> {
        let found = self
            .find(filter, cursor, READ_MAX, ListOrder::Oldest)
            .await?;
        let letters = found.jobs.iter().map(|job| self.full_letter(job)).collect();
        Ok(DeadPage {
            letters,
            damaged: found.damaged,
            next: found.next,
        })
    }

    /// A page of those that fit, before anything is hidden.
    pub(super) async fn find(
        &self,
        filter: &DeadFilter,
        cursor: Option<String>,
        limit: usize,
        order: ListOrder,
    ) -> StoreResult<ListJobsResult> {
        let sieve = DeadLetterPredicate {
            filter,
            order,
            redaction: &self.redaction,
        };
        find_jobs(
            &self.backstop,
            &filter.store_filter(),
            order,
            cursor,
            limit,
            &sieve,
        )
        .await
    }
}

struct DeadLetterPredicate<'a> {
    filter: &'a DeadFilter,
    order: ListOrder,
    redaction: &'a Redaction,
}

impl JobPredicate for DeadLetterPredicate<'_> {
    const LOOK_FOR: Duration = Duration::from_millis(100);

    fn fits(&self, job: &Job) -> bool {
        self.filter.fits(job, self.redaction)
    }

    fn is_passed_at(&self, job: &Job) -> bool {
        self.filter.is_passed_at(job, self.order)
    }

    fn lets_all_through(&self) -> bool {
        self.filter.is_covered_by_store()
    }
}
