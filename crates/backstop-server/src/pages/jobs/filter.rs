//! Which jobs: what the address says, and how many that is without counting them.

use super::{FilterChip, JobFilterForm};
use crate::bulk::{JobCount, has_stored_count, stored_count};
use crate::pages::link::PageLink;
use crate::pages::{PageFailure, PageView, PostedForm};
use backstop::search::{InvalidSearchText, JobSearch, SearchText};
use backstop_core::amend::Filter;
use backstop_core::port::QueueStatus;
use backstop_core::{JobState, Kind, QueueName, WorkerName};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::pages) struct JobFilter {
    pub(in crate::pages) queue: Option<QueueName>,
    pub(in crate::pages) kind: Option<Kind>,
    pub(in crate::pages) state: Option<JobState>,
    pub(in crate::pages) text: Option<SearchText>,
    /// Held by this worker: running ones.
    pub(in crate::pages) worker: Option<WorkerName>,
}

impl JobFilter {
    pub(super) fn of(view: &PageView) -> Result<Self, PageFailure> {
        Self::read(view, |name| view.query(name), |name| view.query_exact(name))
    }

    pub(super) fn posted(view: &PageView, posted: &PostedForm) -> Result<Self, PageFailure> {
        Self::read(view, |name| posted.get(name), |name| posted.get_exact(name))
    }

    fn read<'a>(
        view: &PageView,
        param: impl Fn(&str) -> Option<&'a str>,
        exactly: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, PageFailure> {
        let filter = Self {
            queue: param("queue")
                .map(QueueName::new)
                .transpose()
                .map_err(|error| view.bad(error))?,
            kind: exactly("kind")
                .map(Kind::new)
                .transpose()
                .map_err(|error| view.bad(error))?,
            state: param("state")
                .map(str::parse)
                .transpose()
                .map_err(|error| view.bad(error))?,
            text: param("text")
                .map(str::parse)
                .transpose()
                .map_err(|error: InvalidSearchText| view.bad(error))?,
            worker: exactly("worker").map(WorkerName::new),
        };
        filter.search().state().map_err(|error| view.bad(error))?;
        Ok(filter)
    }

    pub(super) fn link(&self, view: &PageView) -> PageLink {
        self.on(view.at("/jobs"))
    }

    /// An address with this filter.
    pub(super) fn on(&self, path: String) -> PageLink {
        PageLink::to(path)
            .with_some("queue", self.queue.as_ref())
            .with_some("kind", self.kind.as_ref())
            .with_some("state", self.state)
            .with_some("text", self.text.as_ref())
            .with_some("worker", self.worker.as_ref())
    }

    /// What is to be looked for.
    pub(super) fn search(&self) -> JobSearch {
        let (queue, kind, state) = (self.queue.clone(), self.kind.clone(), self.state);
        let filter = Filter {
            queue,
            kind,
            state,
            fingerprint: None,
        };
        JobSearch {
            filter,
            text: self.text.clone(),
            worker: self.worker.clone(),
        }
    }

    /// The state that is meant, if one is.
    pub(super) fn state(&self) -> Option<JobState> {
        self.state
            .or_else(|| self.worker.as_ref().map(|_| JobState::Running))
    }

    /// How many there are, from the counts that the store keeps, without looking at any. `None` if
    /// the queue is not known.
    pub(super) fn count(&self, queues: &[QueueStatus]) -> Option<JobCount> {
        let search = self.search();
        let is_known = self
            .queue
            .as_ref()
            .is_none_or(|name| queues.iter().any(|queue| queue.name == *name));
        let count = stored_count(
            &Filter {
                state: self.state(),
                ..search.filter.clone()
            },
            queues,
            None,
        );
        is_known.then(|| {
            if has_stored_count(&search) {
                JobCount::Exactly(count)
            } else {
                JobCount::AtMost(count)
            }
        })
    }

    pub(super) fn to_form(&self) -> JobFilterForm {
        JobFilterForm {
            queue: self
                .queue
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            kind: self
                .kind
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            state: self
                .state
                .map(|state| state.to_string())
                .unwrap_or_default(),
            text: self
                .text
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            worker: self
                .worker
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            is_empty: *self == Self::default(),
        }
    }

    /// Its parts, each with the list that is without it.
    pub(super) fn chips(&self, link: &PageLink) -> Vec<FilterChip> {
        let fields = [
            ("queue", self.queue.as_ref().map(ToString::to_string)),
            ("kind", self.kind.as_ref().map(ToString::to_string)),
            ("state", self.state.map(|state| state.to_string())),
            ("text", self.text.as_ref().map(ToString::to_string)),
            ("worker", self.worker.as_ref().map(ToString::to_string)),
        ];
        let chip = |(name, value): (&'static str, Option<String>)| {
            Some(FilterChip {
                name,
                value: value?,
                without: link.clone().without(name).to_string(),
            })
        };
        fields.into_iter().filter_map(chip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::bounds::QueueBounds;
    use backstop_core::port::{QueueState, QueueTotals, StateCounts};

    fn queue(name: &str, dead: u64, running: u64) -> QueueStatus {
        let mut counts = StateCounts::default();
        *counts.of_mut(JobState::Dead) = dead;
        *counts.of_mut(JobState::Running) = running;
        QueueStatus {
            name: QueueName::new(name).unwrap(),
            state: QueueState::Active,
            counts,
            totals: QueueTotals::default(),
            next_ready: None,
            bounds: QueueBounds::default(),
        }
    }

    fn check(filter: &JobFilter, expected: Option<&str>) {
        let queues = [queue("a", 3, 2), queue("b", 600_000, 0)];
        assert_eq!(
            filter
                .count(&queues)
                .map(|count| count.to_string())
                .as_deref(),
            expected
        );
    }

    #[test]
    fn what_is_counted_comes_from_counts_that_are_kept() {
        let a = JobFilter {
            queue: QueueName::new("a").ok(),
            ..JobFilter::default()
        };
        check(&a, Some("5"));
        check(
            &JobFilter {
                state: Some(JobState::Running),
                ..a.clone()
            },
            Some("2"),
        );
        check(
            &JobFilter {
                worker: Some(WorkerName::new("w")),
                ..a.clone()
            },
            Some("up to 2"),
        );
        check(
            &JobFilter {
                text: "ada".parse().ok(),
                ..a.clone()
            },
            Some("up to 5"),
        );
        check(
            &JobFilter {
                kind: Kind::new("k").ok(),
                ..a
            },
            Some("up to 5"),
        );
        check(&JobFilter::default(), Some("500,000+"));
        check(
            &JobFilter {
                queue: QueueName::new("c").ok(),
                ..JobFilter::default()
            },
            None,
        );
    }
}
