//! Which jobs: what the address says, and how many that is without counting them.

use super::{Chip, Shown};
use crate::pages::link::Link;
use crate::pages::{PageFailure, Posted, View, text};
use backstop::search::{BadSearch, Search, SearchText};
use backstop_core::amend::{Action, Filter, permitted};
use backstop_core::port::QueueStatus;
use backstop_core::{Kind, QueueName, State};
use std::fmt;

/// Counts are told up to here.
const COUNT_MAX: u64 = 500_000;

/// Which jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::pages) struct JobFilter {
    pub(in crate::pages) queue: Option<QueueName>,
    pub(in crate::pages) kind: Option<Kind>,
    pub(in crate::pages) state: Option<State>,
    pub(in crate::pages) text: Option<SearchText>,
}

/// How many jobs a filter finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pages) struct Counted {
    pub(in crate::pages) count: u64,
    /// Otherwise there are at most so many: the store keeps no count of kinds, nor of what stands in payloads.
    pub(in crate::pages) is_exact: bool,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = text::capped(self.count, COUNT_MAX);
        if self.is_exact { f.write_str(&count) } else { write!(f, "up to {count}") }
    }
}

impl JobFilter {
    /// What an address says.
    pub(super) fn of(view: &View) -> Result<Self, PageFailure> {
        Self::read(view, |name| view.query(name), view.query_exact("kind"))
    }

    /// What a form says.
    pub(super) fn posted(view: &View, posted: &Posted) -> Result<Self, PageFailure> {
        Self::read(view, |name| posted.get(name), posted.get_exact("kind"))
    }

    fn read<'a>(
        view: &View,
        said: impl Fn(&str) -> Option<&'a str>,
        kind: Option<&str>,
    ) -> Result<Self, PageFailure> {
        Ok(Self {
            queue: said("queue").map(QueueName::new).transpose().map_err(|error| view.bad(error))?,
            kind: kind.map(Kind::new).transpose().map_err(|error| view.bad(error))?,
            state: said("state").map(str::parse).transpose().map_err(|error| view.bad(error))?,
            text: said("text").map(str::parse).transpose().map_err(|error: BadSearch| view.bad(error))?,
        })
    }

    /// The list of them.
    pub(super) fn link(&self, view: &View) -> Link {
        self.on(view.at("/jobs"))
    }

    /// An address with this filter.
    pub(super) fn on(&self, path: String) -> Link {
        Link::to(path)
            .with_some("queue", self.queue.as_ref())
            .with_some("kind", self.kind.as_ref())
            .with_some("state", self.state)
            .with_some("text", self.text.as_ref())
    }

    /// What is to be looked for.
    pub(super) fn search(&self) -> Search {
        let (queue, kind, state) = (self.queue.clone(), self.kind.clone(), self.state);
        Search { filter: Filter { queue, kind, state, fingerprint: None }, text: self.text.clone() }
    }

    /// How many there are that `action`, if one is meant, applies to; from the counts that the store keeps. `None` if
    /// the queue is not known.
    pub(super) fn count(&self, queues: &[QueueStatus], action: Option<&Action>) -> Option<Counted> {
        let fits = |queue: &&QueueStatus| self.queue.as_ref().is_none_or(|name| *name == queue.name);
        let states = State::ALL.into_iter().filter(|state| self.state.is_none_or(|wanted| wanted == *state));
        let states: Vec<State> =
            states.filter(|state| action.is_none_or(|action| permitted(action, *state).is_ok())).collect();
        let of_queue = |queue: &QueueStatus| states.iter().map(|state| queue.counts.of(*state)).sum::<u64>();
        let found: Vec<u64> = queues.iter().filter(fits).map(of_queue).collect();
        let is_known = self.queue.is_none() || !found.is_empty();
        is_known.then(|| Counted {
            count: found.iter().sum(),
            is_exact: self.kind.is_none() && self.text.is_none(),
        })
    }

    pub(super) fn shown(&self) -> Shown {
        Shown {
            queue: self.queue.as_ref().map(ToString::to_string).unwrap_or_default(),
            kind: self.kind.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: self.state.map(|state| state.to_string()).unwrap_or_default(),
            text: self.text.as_ref().map(ToString::to_string).unwrap_or_default(),
            is_empty: *self == Self::default(),
        }
    }

    /// Its parts, each with the list that is without it.
    pub(super) fn chips(&self, link: &Link) -> Vec<Chip> {
        let said = [
            ("queue", self.queue.as_ref().map(ToString::to_string)),
            ("kind", self.kind.as_ref().map(ToString::to_string)),
            ("state", self.state.map(|state| state.to_string())),
            ("text", self.text.as_ref().map(ToString::to_string)),
        ];
        let chip = |(name, value): (&'static str, Option<String>)| {
            Some(Chip { name, value: value?, without: link.clone().without(name).to_string() })
        };
        said.into_iter().filter_map(chip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::bounds::Bounds;
    use backstop_core::port::{Counts, Gate, Totals};

    fn queue(name: &str, dead: u64, running: u64) -> QueueStatus {
        let mut counts = Counts::default();
        *counts.of_mut(State::Dead) = dead;
        *counts.of_mut(State::Running) = running;
        QueueStatus {
            name: QueueName::new(name).unwrap(),
            gate: Gate::Open,
            counts,
            totals: Totals::default(),
            next_ready: None,
            bounds: Bounds::default(),
        }
    }

    fn check(filter: &JobFilter, action: Option<&Action>, expected: Option<&str>) {
        let queues = [queue("a", 3, 2), queue("b", 600_000, 0)];
        assert_eq!(filter.count(&queues, action).map(|count| count.to_string()).as_deref(), expected);
    }

    #[test]
    fn what_is_counted_comes_from_counts_that_are_kept() {
        let a = JobFilter { queue: QueueName::new("a").ok(), ..JobFilter::default() };
        check(&a, None, Some("5"));
        check(&a, Some(&Action::Delete), Some("3"));
        check(&JobFilter { state: Some(State::Running), ..a.clone() }, Some(&Action::Delete), Some("0"));
        check(&JobFilter { text: "ada".parse().ok(), ..a.clone() }, None, Some("up to 5"));
        check(&JobFilter { kind: Kind::new("k").ok(), ..a }, None, Some("up to 5"));
        check(&JobFilter::default(), None, Some("500,000+"));
        check(&JobFilter { queue: QueueName::new("c").ok(), ..JobFilter::default() }, None, None);
    }
}
