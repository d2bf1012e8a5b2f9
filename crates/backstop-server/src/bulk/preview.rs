//! How many jobs an action is about, before anybody says yes.
//!
//! | which | how it is counted |
//! |---|---|
//! | all jobs, or those of a queue or a state | from the counts that the store keeps |
//! | all dead letters, or those of a queue or a group | the same |
//! | whatever else | job by job, up to [`COUNT_MAX`] and for no longer than a page may take |
//!
//! A count that did not get to the end says so: there are at least so many.

use super::report::{BulkSelection, BulkTarget};
use crate::App;
use crate::words;
use backstop::dead::{DeadFilter, DeadLetters};
use backstop::search::JobSearch;
use backstop::search::change::JobChangeCount;
use backstop_core::JobState;
use backstop_core::amend::{AmendAction, Filter, check_permitted};
use backstop_core::port::{QueueStatus, StoreResult};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Jobs that are counted one by one.
pub const COUNT_MAX: u64 = 10_000;
const COUNT_FOR: Duration = Duration::from_millis(75);
/// Letters that are looked at in one call.
const LETTERS_MAX: usize = 200;
/// Exact counts are told up to here.
const SHOWN_MAX: u64 = 500_000;

/// How many jobs there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobCount {
    Exactly(u64),
    /// So many were counted, and then there was no time, or there were too many.
    AtLeast(u64),
    /// No more than that: among them are those that are meant.
    AtMost(u64),
}

impl JobCount {
    /// How many, where that is known.
    pub const fn exact(self) -> Option<u64> {
        match self {
            Self::Exactly(count) => Some(count),
            Self::AtLeast(_) | Self::AtMost(_) => None,
        }
    }
}

impl fmt::Display for JobCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show_count = |count: u64| match count {
            SHOWN_MAX.. => format!("{}+", words::count(SHOWN_MAX)),
            _ => words::count(count),
        };
        match self {
            Self::Exactly(count) => f.write_str(&show_count(*count)),
            Self::AtLeast(count) => write!(f, "{}+", words::count(*count)),
            Self::AtMost(count) => write!(f, "up to {}", show_count(*count)),
        }
    }
}

impl From<JobChangeCount> for JobCount {
    fn from(tally: JobChangeCount) -> Self {
        if tally.is_all {
            Self::Exactly(tally.count)
        } else {
            Self::AtLeast(tally.count)
        }
    }
}

/// How many jobs a target is about as things stand.
pub async fn count_target(app: &App, target: &BulkTarget) -> StoreResult<JobCount> {
    let action = target.action();
    match (target.which.search()?, &target.which) {
        (None, BulkSelection::Letters(filter)) => {
            count_letters(&app.config().dead(app.backstop(), ""), filter).await
        }
        (Some(search), _) => count_jobs(app, &search, &action).await,
        // Whatever is not letters has a search.
        (None, _) => Ok(JobCount::Exactly(0)),
    }
}

async fn count_jobs(app: &App, search: &JobSearch, action: &AmendAction) -> StoreResult<JobCount> {
    let backstop = app.backstop();
    if has_stored_count(search) {
        let queues = backstop.store().queues(backstop.now()).await?;
        return Ok(JobCount::Exactly(stored_count(
            &search.filter,
            &queues,
            Some(action),
        )));
    }
    let redaction = &app.config().redaction;
    Ok(backstop
        .count_job_changes(search, redaction, action, COUNT_MAX, COUNT_FOR)
        .await?
        .into())
}

/// Whether the store keeps a count of these.
pub(crate) fn has_stored_count(search: &JobSearch) -> bool {
    !search.needs_scan() && search.filter.kind.is_none() && search.filter.fingerprint.is_none()
}

/// How many there are, by the counts that the store keeps: of this queue and state, and that
/// `action` applies to.
pub(crate) fn stored_count(
    filter: &Filter,
    queues: &[QueueStatus],
    action: Option<&AmendAction>,
) -> u64 {
    let states = JobState::ALL
        .into_iter()
        .filter(|state| filter.state.is_none_or(|wanted| wanted == *state));
    let states: Vec<JobState> = states
        .filter(|state| action.is_none_or(|action| check_permitted(action, *state).is_ok()))
        .collect();
    let fits = |queue: &&QueueStatus| filter.queue.as_ref().is_none_or(|name| *name == queue.name);
    let of_queue = |queue: &QueueStatus| {
        states
            .iter()
            .map(|state| queue.counts.of(*state))
            .sum::<u64>()
    };
    queues.iter().filter(fits).map(of_queue).sum()
}

/// How many dead letters fit.
async fn count_letters(dead: &DeadLetters, filter: &DeadFilter) -> StoreResult<JobCount> {
    if let Some(count) = dead.estimate(filter).await? {
        return Ok(JobCount::Exactly(count));
    }
    let began = Instant::now();
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = dead.list(filter, cursor, LETTERS_MAX).await?;
        count += page.letters.len() as u64;
        match page.next {
            None => return Ok(JobChangeCount::up_to(COUNT_MAX, count).into()),
            Some(_) if count > COUNT_MAX || began.elapsed() >= COUNT_FOR => {
                return Ok(JobCount::AtLeast(count.min(COUNT_MAX)));
            }
            next => cursor = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_says_how_sure_it_is() {
        let check = |counted: JobCount, expected: &str| assert_eq!(counted.to_string(), expected);
        check(JobCount::Exactly(1_234), "1,234");
        check(JobCount::Exactly(600_000), "500,000+");
        check(JobCount::AtLeast(10_000), "10,000+");
        check(JobCount::AtMost(5), "up to 5");
        check(JobCount::AtMost(600_000), "up to 500,000+");
    }
}
