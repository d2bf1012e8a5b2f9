//! Jobs that are found by what stands in their payloads.
//!
//! A store finds jobs by queue, kind and state; text is looked for above it, page by page. What is
//! compared is the payload as lists show it, with its secrets replaced: what a viewer does not see
//! is not found by trying either. A store does not know what is secret.
//!
//! - Upper and lower case are the same, and space around the text counts for nothing. Otherwise the
//!   bytes count: `ä` does not find `"\u00e4"`.
//! - A page ends where enough was found, where [`SCAN_MAX`] jobs were looked at, or after 50 ms,
//!   and says where to go on. It may be short, even empty.
//! - Payloads come with the jobs, so a call asks for no more of them than a few megabytes hold, by
//!   what the call before it brought.
//!
//! What is found to be changed, or counted before that, is walked through in [`change`].

pub mod change;

use crate::client::Backstop;
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX, SCAN_MAX, SEARCH_CHARS_MAX};
use backstop_core::port::operator::page_bytes;
use backstop_core::port::{ListJobsRequest, ListJobsResult, ListOrder, StoreError, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::{Job, JobState, Payload, WorkerName};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::Instant;

/// Jobs read in one call where only some of them will fit. Payloads come with them, so a page is no
/// larger than needed.
pub(crate) const READ_MAX: usize = 200;
/// Jobs that the first call reads where only some will fit: how large their payloads are is not
/// known yet.
const READ_FIRST: usize = 8;
/// What the payloads of a call come to, if they are no larger than those of the call before.
const READ_BYTES_MAX: usize = 4 << 20;
/// Payloads of so many bytes are looked into, and then others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// Text that is looked for in payloads: at most [`SEARCH_CHARS_MAX`] characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchText {
    written: String,
    lowered: String,
}

/// Text that is not looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSearchText {
    #[error("an empty text is in every payload; say what to look for, or leave it out")]
    Empty,
    #[error(
        "a text to look for has at most {SEARCH_CHARS_MAX} characters; a part of it finds the same jobs"
    )]
    TooLong,
}

/// Which jobs; what is `None` does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobSearch {
    /// By what the store knows of them.
    pub filter: Filter,
    /// With this in the payload, as lists show it.
    pub text: Option<SearchText>,
    /// Held by this worker: then running ones are meant, and no other state can be.
    pub worker: Option<WorkerName>,
}

impl SearchText {
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// Whether a payload has it where it may be seen.
    pub fn is_in(&self, payload: &Payload, redaction: &Redaction) -> bool {
        let shown = redaction.payload(payload.as_bytes());
        String::from_utf8_lossy(&shown)
            .to_lowercase()
            .contains(&self.lowered)
    }
}

impl fmt::Display for SearchText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.written)
    }
}

impl FromStr for SearchText {
    type Err = InvalidSearchText;

    fn from_str(text: &str) -> Result<Self, InvalidSearchText> {
        let text = text.trim();
        if text.is_empty() {
            return Err(InvalidSearchText::Empty);
        }
        if text.chars().count() > SEARCH_CHARS_MAX {
            return Err(InvalidSearchText::TooLong);
        }
        Ok(Self {
            written: text.to_owned(),
            lowered: text.to_lowercase(),
        })
    }
}

impl JobSearch {
    /// Whether it says nothing at all: then it means every job.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the store cannot tell all of it: jobs have to be looked at.
    pub const fn needs_scan(&self) -> bool {
        self.text.is_some() || self.worker.is_some()
    }

    /// The state that jobs are looked for in, if one is meant. One that no worker can hold is
    /// refused where a worker is named.
    pub fn state(&self) -> StoreResult<Option<JobState>> {
        match (&self.worker, self.filter.state) {
            (Some(_), None) => Ok(Some(JobState::Running)),
            (Some(_), Some(state)) if state != JobState::Running => Err(StoreError::misuse(
                "looking for jobs",
                format_args!(
                    "a worker holds running jobs only, and no {state} ones; leave one of both out"
                ),
            )),
            (_, state) => Ok(state),
        }
    }

    /// As much of it as the store can tell.
    fn store_filter(&self) -> StoreResult<Filter> {
        Ok(Filter {
            state: self.state()?,
            ..self.filter.clone()
        })
    }
}

impl Backstop {
    /// A page of jobs that fit, where `redaction` says what may be seen of their payloads. `limit`
    /// is clamped as the store's is.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop::search::JobSearch;
    ///
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// backstop.draft("emails").payload(r#"{"to":"ada@example.org"}"#).push().await?;
    /// let search = JobSearch { text: Some("ADA@".parse()?), ..JobSearch::default() };
    /// let page = backstop.search(&search, &Default::default(), None, 10).await?;
    /// assert_eq!(page.jobs.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn search(
        &self,
        search: &JobSearch,
        redaction: &Redaction,
        cursor: Option<String>,
        limit: usize,
    ) -> StoreResult<ListJobsResult> {
        if !search.needs_scan() {
            // A second look among millions of jobs would take longer than a page may.
            return self.jobs(&search.filter, cursor, limit, 1).await;
        }
        let predicate = SearchPredicate {
            search,
            state: search.state()?,
            redaction,
        };
        find_jobs(
            self,
            &search.store_filter()?,
            ListOrder::Newest,
            cursor,
            limit,
            &predicate,
        )
        .await
    }
}

/// What decides about jobs where the store cannot tell all of it.
pub(crate) trait JobPredicate: Sync {
    /// How long a page is looked for where most jobs do not fit: whoever asked can go on behind it.
    const LOOK_FOR: Duration;
    /// How many jobs are looked at for a page.
    const LOOKS_MAX: usize = SCAN_MAX;

    /// Whether a job is one of those that are meant.
    fn fits(&self, job: &Job) -> bool;

    /// Whether nothing behind `job` can be.
    fn is_passed_at(&self, _job: &Job) -> bool {
        false
    }

    /// Whether all jobs that the store finds are.
    fn lets_all_through(&self) -> bool {
        false
    }
}

struct SearchPredicate<'a> {
    search: &'a JobSearch,
    state: Option<JobState>,
    redaction: &'a Redaction,
}

impl JobPredicate for SearchPredicate<'_> {
    // Reading payloads takes a core, which those who work should have.
    const LOOK_FOR: Duration = Duration::from_millis(50);

    fn fits(&self, job: &Job) -> bool {
        let is_held = |worker: &WorkerName| {
            job.held_by
                .as_ref()
                .is_some_and(|held| held.worker == *worker)
        };
        self.state.is_none_or(|state| state == job.state)
            && self.search.worker.as_ref().is_none_or(is_held)
            && self
                .search
                .text
                .as_ref()
                .is_none_or(|text| text.is_in(&job.payload, self.redaction))
    }
}

/// Reads on until `limit` jobs are found, the list ends, or it was looked for long enough.
pub(crate) async fn find_jobs<S: JobPredicate>(
    backstop: &Backstop,
    filter: &Filter,
    order: ListOrder,
    mut cursor: Option<String>,
    limit: usize,
    predicate: &S,
) -> StoreResult<ListJobsResult> {
    let (limit, began) = (limit.clamp(1, PAGE_MAX), Instant::now());
    let first = if predicate.lets_all_through() {
        limit
    } else {
        limit.min(READ_FIRST)
    };
    let (mut found, mut looked, mut size) = (ListJobsResult::default(), 0, first);
    let mut found_bytes = 0;
    loop {
        let missing = limit - found.jobs.len();
        let query = ListJobsRequest {
            filter: filter.clone(),
            cursor: cursor.clone(),
            limit: size,
            order,
        };
        let page = backstop
            .store()
            .jobs(query, backstop.current_time().await)
            .await?;
        let is_passed = page
            .jobs
            .last()
            .is_some_and(|job| predicate.is_passed_at(job));
        let (jobs, largest) = (
            page.jobs.len(),
            page.jobs.iter().map(page_bytes).max().unwrap_or_default(),
        );
        let fitting = filter_batch(page.jobs, predicate).await;
        let last = ReadSizer {
            size,
            is_all_fitting: fitting.len() == jobs,
            largest,
        };
        if fitting.len() > missing {
            // The store's cursor stands behind what it read: read no more than is wanted.
            size = missing;
            continue;
        }
        looked += size;
        found_bytes += fitting.iter().map(page_bytes).sum::<usize>();
        found.jobs.extend(fitting);
        found.damaged.extend(page.damaged);
        cursor = page.next.filter(|_| !is_passed);
        // The store bounds each of its pages in bytes, so half a page leaves room for one more.
        let is_large = found_bytes >= PAGE_BYTES_MAX / 2;
        let is_long = looked >= S::LOOKS_MAX || began.elapsed() >= S::LOOK_FOR;
        let is_enough = found.jobs.len() >= limit || is_large || is_long;
        if cursor.is_none() || is_enough {
            found.next = cursor;
            return Ok(found);
        }
        let missing = limit - found.jobs.len();
        size = if predicate.lets_all_through() {
            missing
        } else {
            last.next(missing)
        };
    }
}

/// What a call for jobs has shown.
struct ReadSizer {
    /// How many were asked for.
    size: usize,
    /// Whether each that came fits.
    is_all_fitting: bool,
    /// The bytes of the largest payload that came.
    largest: usize,
}

impl ReadSizer {
    /// How many jobs to ask for next: more and more where payloads are small, fewer at once where
    /// one was large; and where all fit no more than are missing.
    fn next(&self, missing: usize) -> usize {
        let held = READ_BYTES_MAX / self.largest.max(1);
        let wanted = if self.is_all_fitting {
            missing
        } else {
            READ_MAX
        };
        self.size
            .saturating_mul(4)
            .min(held)
            .min(wanted)
            .clamp(1, READ_MAX)
    }
}

/// Those that fit. Looking into large payloads takes long: others have their turn in between.
async fn filter_batch<S: JobPredicate>(jobs: Vec<Job>, predicate: &S) -> Vec<Job> {
    let (mut fitting, mut bytes) = (Vec::new(), 0);
    for job in jobs {
        bytes += page_bytes(&job);
        if predicate.fits(&job) {
            fitting.push(job);
        }
        if bytes >= TURN_BYTES {
            bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    fitting
}

#[cfg(test)]
mod tests;
