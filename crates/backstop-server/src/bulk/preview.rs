//! How many jobs an action is about, before anybody says yes.
//!
//! | which | how it is counted |
//! |---|---|
//! | all jobs, or those of a queue or a state | from the counts that the store keeps |
//! | all dead letters, or those of a queue or a group | the same |
//! | whatever else | job by job, up to [`COUNT_MAX`] and for no longer than a page may take |
//!
//! A count that did not get to the end says so: there are at least so many.

use super::report::{Target, Which};
use crate::App;
use crate::words;
use backstop::dead::{DeadFilter, DeadLetters};
use backstop::search::Search;
use backstop::search::change::Tally;
use backstop_core::State;
use backstop_core::amend::{Action, Filter, permitted};
use backstop_core::port::{Answer, QueueStatus};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Jobs that are counted one by one.
pub const COUNT_MAX: u64 = 10_000;
/// For how long.
const COUNT_FOR: Duration = Duration::from_millis(75);
/// Letters that are looked at in one call.
const LETTERS_MAX: usize = 200;
/// Exact counts are told up to here.
const TOLD_MAX: u64 = 500_000;

/// How many jobs there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// So many.
    Exactly(u64),
    /// So many were counted, and then there was no time, or there were too many.
    AtLeast(u64),
    /// No more than that: among them are those that are meant.
    AtMost(u64),
}

impl Counted {
    /// How many, where that is known.
    pub const fn exact(self) -> Option<u64> {
        match self {
            Self::Exactly(count) => Some(count),
            Self::AtLeast(_) | Self::AtMost(_) => None,
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |count: u64| match count {
            TOLD_MAX.. => format!("{}+", words::count(TOLD_MAX)),
            _ => words::count(count),
        };
        match self {
            Self::Exactly(count) => f.write_str(&told(*count)),
            Self::AtLeast(count) => write!(f, "{}+", words::count(*count)),
            Self::AtMost(count) => write!(f, "up to {}", told(*count)),
        }
    }
}

impl From<Tally> for Counted {
    fn from(tally: Tally) -> Self {
        if tally.is_all {
            Self::Exactly(tally.count)
        } else {
            Self::AtLeast(tally.count)
        }
    }
}

/// How many jobs a target is about as things stand.
pub async fn preview(app: &App, target: &Target) -> Answer<Counted> {
    let action = target.action();
    match (target.which.search()?, &target.which) {
        (None, Which::Letters(filter)) => {
            letters(&app.config().dead(app.backstop(), ""), filter).await
        }
        (Some(search), _) => jobs(app, &search, &action).await,
        // Whatever is not letters has a search.
        (None, _) => Ok(Counted::Exactly(0)),
    }
}

async fn jobs(app: &App, search: &Search, action: &Action) -> Answer<Counted> {
    let backstop = app.backstop();
    if is_kept(search) {
        let queues = backstop.store().queues(backstop.now()).await?;
        return Ok(Counted::Exactly(kept(
            &search.filter,
            &queues,
            Some(action),
        )));
    }
    let redaction = &app.config().redaction;
    Ok(backstop
        .count_to_change(search, redaction, action, COUNT_MAX, COUNT_FOR)
        .await?
        .into())
}

/// Whether the store keeps a count of these.
pub(crate) fn is_kept(search: &Search) -> bool {
    !search.is_beyond_store() && search.filter.kind.is_none() && search.filter.fingerprint.is_none()
}

/// How many there are, by the counts that the store keeps: of this queue and state, and that
/// `action` applies to.
pub(crate) fn kept(filter: &Filter, queues: &[QueueStatus], action: Option<&Action>) -> u64 {
    let states = State::ALL
        .into_iter()
        .filter(|state| filter.state.is_none_or(|wanted| wanted == *state));
    let states: Vec<State> = states
        .filter(|state| action.is_none_or(|action| permitted(action, *state).is_ok()))
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
async fn letters(dead: &DeadLetters, filter: &DeadFilter) -> Answer<Counted> {
    if let Some(count) = dead.estimate(filter).await? {
        return Ok(Counted::Exactly(count));
    }
    let began = Instant::now();
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = dead.list(filter, cursor, LETTERS_MAX).await?;
        count += page.letters.len() as u64;
        match page.next {
            None => return Ok(Tally::up_to(COUNT_MAX, count).into()),
            Some(_) if count > COUNT_MAX || began.elapsed() >= COUNT_FOR => {
                return Ok(Counted::AtLeast(count.min(COUNT_MAX)));
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
        let check = |counted: Counted, expected: &str| assert_eq!(counted.to_string(), expected);
        check(Counted::Exactly(1_234), "1,234");
        check(Counted::Exactly(600_000), "500,000+");
        check(Counted::AtLeast(10_000), "10,000+");
        check(Counted::AtMost(5), "up to 5");
        check(Counted::AtMost(600_000), "up to 500,000+");
    }
}
