//! Jobs that are looked for in order to be changed.
//!
//! Each is met at most once, however its state moves while the walk goes on: a job that is retried,
//! fails and waits again is not retried a second time by one command. Lists by due time cannot be
//! walked for that: the change itself moves a job to a place further on.
//!
//! | state that is meant | walked | why no job comes twice |
//! |---|---|---|
//! | none, running | newest arrival first | a job arrives once |
//! | scheduled, ready, retrying | newest arrival first, others are passed over | the same |
//! | done, dead, cancelled | newest end first | one that ends again ends later, which is in front of the walk |
//!
//! What arrives meanwhile is in front of the walk too, and is not met. As by any other filter, a
//! job fits only if the action could apply to it; one that has left its state between the look and
//! the change no longer fits. What is refused are jobs whose unique key has a new holder.

use super::{JobSearch, READ_MAX, SearchPredicate, find_jobs};
use crate::client::Backstop;
use crate::operate::by_queue;
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, Selection, check_permitted};
use backstop_core::limits::AMEND_MAX;
use backstop_core::port::{AmendJobsRequest, AmendResult, ListOrder, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::{JobId, JobState};
use std::time::Duration;
use tokio::time::Instant;

/// The next jobs to be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobChangeBatch {
    /// One amendment a queue, each to be made in one call.
    pub amendments: Vec<AmendJobsRequest>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// How many jobs a change would reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobChangeCount {
    pub count: u64,
    /// Whether these are all there are; otherwise there are at least so many.
    pub is_all: bool,
}

impl Backstop {
    /// The next jobs that fit and that `action` applies to; none of them comes twice in one walk,
    /// from `None` to where there is no `next`.
    pub async fn next_job_changes(
        &self,
        search: &JobSearch,
        redaction: &Redaction,
        action: &AmendAction,
        cursor: Option<String>,
    ) -> StoreResult<JobChangeBatch> {
        let state = search.state()?;
        let sieve = SearchPredicate {
            search,
            state,
            redaction,
        };
        let walked = scan_filter(&search.filter, state);
        let mut page =
            find_jobs(self, &walked, ListOrder::Newest, cursor, READ_MAX, &sieve).await?;
        page.jobs
            .retain(|job| check_permitted(action, job.state).is_ok());
        let amendment = |selection: Selection| AmendJobsRequest {
            selection,
            action: action.clone(),
            only: state,
            cursor: None,
            max: AMEND_MAX,
        };
        Ok(JobChangeBatch {
            amendments: by_queue(page.jobs).into_iter().map(amendment).collect(),
            next: page.next,
        })
    }

    /// Counts the jobs that fit and that `action` applies to: up to `max` of them, and for not much
    /// longer than `within`.
    pub async fn count_job_changes(
        &self,
        search: &JobSearch,
        redaction: &Redaction,
        action: &AmendAction,
        max: u64,
        within: Duration,
    ) -> StoreResult<JobChangeCount> {
        let sieve = SearchPredicate {
            search,
            state: search.state()?,
            redaction,
        };
        let (filter, began) = (search.store_filter()?, Instant::now());
        let (mut count, mut cursor) = (0, None);
        loop {
            // Nothing is changed on the way: the list of the state is the shortest way through.
            let page =
                find_jobs(self, &filter, ListOrder::Newest, cursor, READ_MAX, &sieve).await?;
            let meant = page
                .jobs
                .iter()
                .filter(|job| check_permitted(action, job.state).is_ok());
            count += meant.count() as u64;
            match page.next {
                None => return Ok(JobChangeCount::up_to(max, count)),
                Some(_) if count > max || began.elapsed() >= within => {
                    return Ok(JobChangeCount {
                        count: count.min(max),
                        is_all: false,
                    });
                }
                next => cursor = next,
            }
        }
    }
}

impl JobChangeCount {
    /// So many, of which at most `max` are told.
    pub fn up_to(max: u64, count: u64) -> Self {
        Self {
            count: count.min(max),
            is_all: count <= max,
        }
    }
}

/// What of an amendment was refused, as a filter has it: who no longer fits was not meant.
pub fn refusals(amended: &AmendResult) -> impl Iterator<Item = (JobId, AmendRefusal)> {
    amended
        .refused
        .iter()
        .copied()
        .filter(|(_, refusal)| refusal.depends_on_other_jobs())
}

/// The list that is walked, by the table above.
fn scan_filter(filter: &Filter, state: Option<JobState>) -> Filter {
    let of_list = match state {
        None | Some(JobState::Scheduled | JobState::Ready | JobState::Retrying) => None,
        Some(JobState::Running | JobState::Done | JobState::Dead | JobState::Cancelled) => state,
    };
    Filter {
        state: of_list,
        ..filter.clone()
    }
}

#[cfg(test)]
mod tests;
