//! Jobs that are found by what stands in their payloads.
//!
//! A store finds jobs by queue, kind and state; text is looked for above it, page by page. What is compared is the payload as lists show
//! it, with its secrets replaced: what a viewer does not see is not found by trying either. A store does not know what is secret.
//!
//! - Upper and lower case are the same. Otherwise the bytes count: `ä` does not find `"\u00e4"`.
//! - A page ends where enough was found, where [`SCAN_MAX`] jobs were looked at, or after 50 ms, and says where to go on. It may be
//!   short, even empty.

use crate::client::Backstop;
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_MAX, SCAN_MAX, SEARCH_CHARS_MAX};
use backstop_core::port::{Answer, Order, Page, PageQuery};
use backstop_core::redact::Redaction;
use backstop_core::{Job, Payload};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::Instant;

/// Jobs read in one call where only some of them will fit. Payloads come with them, so a page is no larger than needed.
pub(crate) const READ_MAX: usize = 200;
/// Where payloads are so small that a call brings no more bytes than these, the next one reads more jobs.
const READ_BYTES_EASY: usize = 1 << 20;

/// Text that is looked for in payloads: at most [`SEARCH_CHARS_MAX`] characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchText {
    written: String,
    lowered: String,
}

/// Text that is not looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSearch {
    /// Every payload has it.
    #[error("an empty text is in every payload; say what to look for, or leave it out")]
    Empty,
    /// It is too long.
    #[error("a text to look for has at most {SEARCH_CHARS_MAX} characters; a part of it finds the same jobs")]
    TooLong,
}

/// Which jobs; what is `None` does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Search {
    /// By what the store knows of them.
    pub filter: Filter,
    /// With this in the payload, as lists show it.
    pub text: Option<SearchText>,
}

impl SearchText {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// Whether a payload has it where it may be seen.
    pub fn is_in(&self, payload: &Payload, redaction: &Redaction) -> bool {
        let shown = redaction.payload(payload.as_bytes());
        String::from_utf8_lossy(&shown).to_lowercase().contains(&self.lowered)
    }
}

impl fmt::Display for SearchText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.written)
    }
}

impl FromStr for SearchText {
    type Err = BadSearch;

    fn from_str(text: &str) -> Result<Self, BadSearch> {
        if text.is_empty() {
            return Err(BadSearch::Empty);
        }
        if text.chars().count() > SEARCH_CHARS_MAX {
            return Err(BadSearch::TooLong);
        }
        Ok(Self { written: text.to_owned(), lowered: text.to_lowercase() })
    }
}

impl Search {
    /// Whether it says nothing at all: then it means every job.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Backstop {
    /// A page of jobs that fit, where `redaction` says what may be seen of their payloads. `limit` is clamped as the store's is.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop::search::Search;
    ///
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// backstop.draft("emails").payload(r#"{"to":"ada@example.org"}"#).push().await?;
    /// let search = Search { text: Some("ADA@".parse()?), ..Search::default() };
    /// let page = backstop.search(&search, &Default::default(), None, 10).await?;
    /// assert_eq!(page.jobs.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn search(
        &self,
        search: &Search,
        redaction: &Redaction,
        cursor: Option<String>,
        limit: usize,
    ) -> Answer<Page> {
        match &search.text {
            // A second look among millions of jobs would take longer than a page may.
            None => self.jobs(&search.filter, cursor, limit, 1).await,
            Some(text) => {
                let sieve = OfText { text, redaction };
                sift(self, &search.filter, Order::Newest, cursor, limit, &sieve).await
            }
        }
    }
}

/// What decides about jobs where the store cannot tell all of it.
pub(crate) trait Sieve: Sync {
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

struct OfText<'a> {
    text: &'a SearchText,
    redaction: &'a Redaction,
}

impl Sieve for OfText<'_> {
    // Reading payloads takes a core, which those who work should have.
    const LOOK_FOR: Duration = Duration::from_millis(50);

    fn fits(&self, job: &Job) -> bool {
        self.text.is_in(&job.payload, self.redaction)
    }
}

/// Reads on until `limit` jobs are found, the list ends, or it was looked for long enough.
pub(crate) async fn sift<S: Sieve>(
    backstop: &Backstop,
    filter: &Filter,
    order: Order,
    mut cursor: Option<String>,
    limit: usize,
    sieve: &S,
) -> Answer<Page> {
    let (limit, began) = (limit.clamp(1, PAGE_MAX), Instant::now());
    let (mut found, mut looked, mut size) = (Page::default(), 0, limit);
    loop {
        let missing = limit - found.jobs.len();
        let query = PageQuery { filter: filter.clone(), cursor: cursor.clone(), limit: size, order };
        let page = backstop.store().jobs(query, backstop.now()).await?;
        let bytes: usize = page.jobs.iter().map(|job| job.payload.as_bytes().len()).sum();
        let is_passed = page.jobs.last().is_some_and(|job| sieve.is_passed_at(job));
        let fitting: Vec<Job> = page.jobs.into_iter().filter(|job| sieve.fits(job)).collect();
        if fitting.len() > missing {
            // The store's cursor stands behind what it read: read no more than is wanted.
            size = missing;
            continue;
        }
        looked += size;
        found.jobs.extend(fitting);
        found.damaged.extend(page.damaged);
        cursor = page.next.filter(|_| !is_passed);
        let is_enough = found.jobs.len() >= limit || looked >= S::LOOKS_MAX || began.elapsed() >= S::LOOK_FOR;
        if cursor.is_none() || is_enough {
            found.next = cursor;
            return Ok(found);
        }
        let missing = limit - found.jobs.len();
        size = match bytes {
            _ if sieve.lets_all_through() => missing,
            0..=READ_BYTES_EASY => (size * 4).clamp(missing, READ_MAX.max(missing)),
            _ => size,
        };
    }
}

#[cfg(test)]
mod tests;
