//! The engine: one file per loop. Each reads, lets the core decide, writes, and waits for a hint or a deadline.
//!
//! | loop | what it does | where it runs |
//! |---|---|---|
//! | [`dispatch`] | claims, keeps handlers busy | the caller's runtime |
//! | [`settle`] | ends runs, many at a time | the caller's runtime |
//! | [`beat`] | keeps leases alive, calls off what is lost | a thread of its own |
//! | [`keeper`] | promotes, recovers, prunes | the same thread |
//!
//! All loops are safe on every node at once; no leader is needed for anything to be right.

pub(crate) mod beat;
pub(crate) mod dispatch;
pub(crate) mod drain;
pub(crate) mod execute;
pub(crate) mod held;
pub(crate) mod keeper;
pub(crate) mod progress;
pub(crate) mod running;
pub(crate) mod settle;

use crate::client::Backstop;
use crate::handler::{Handler, States};
use crate::worker::{QueueSettings, Timing};
use backstop_core::limits::PRUNE_MAX;
use backstop_core::port::{Retention, Shelf, Store};
use backstop_core::verdict::{Keep, Rules};
use backstop_core::{Kind, QueueName, Span, Time, WorkerName};
use held::Held;
use progress::Tally;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all loops of one worker share.
pub(crate) struct Engine {
    pub(crate) backstop: Backstop,
    pub(crate) name: WorkerName,
    pub(crate) queues: BTreeMap<QueueName, QueueSettings>,
    handlers: BTreeMap<(QueueName, Option<Kind>), Arc<dyn Handler>>,
    pub(crate) states: States,
    pub(crate) timing: Timing,
    pub(crate) held: Held,
    pub(crate) tally: Tally,
}

impl Engine {
    pub(crate) fn new(
        backstop: Backstop,
        name: WorkerName,
        queues: BTreeMap<QueueName, QueueSettings>,
        handlers: BTreeMap<(QueueName, Option<Kind>), Arc<dyn Handler>>,
        states: States,
        timing: Timing,
    ) -> Self {
        Self {
            backstop,
            name,
            queues,
            handlers,
            states,
            timing,
            held: Held::default(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.backstop.store()
    }

    pub(crate) fn now(&self) -> Time {
        self.backstop.now()
    }

    /// The handler of a kind, or the one for all kinds of the queue.
    pub(crate) fn handler(&self, queue: &QueueName, kind: &Kind) -> Option<&Arc<dyn Handler>> {
        let own = self.handlers.get(&(queue.clone(), Some(kind.clone())));
        own.or_else(|| self.handlers.get(&(queue.clone(), None)))
    }

    /// The rules by which runs of a queue are judged.
    pub(crate) fn rules(settings: &QueueSettings) -> Rules<'_> {
        let keep = if settings.shelf.done_for.is_zero() || settings.shelf.done_max == 0 {
            Keep::Gone
        } else {
            Keep::Listed
        };
        Rules { retry: &settings.retry, keep }
    }

    pub(crate) fn retention(&self) -> Retention {
        let queues = self.queues.iter().map(|(queue, settings)| (queue.clone(), settings.shelf)).collect();
        Retention { usual: Shelf::default(), queues, max: PRUNE_MAX }
    }

    /// The longest lease this worker gives out or takes.
    pub(crate) fn longest_lease(&self) -> Span {
        self.queues.values().map(|settings| settings.lease).max().unwrap_or_default()
    }

    /// The longest time from a worker's death to the next run of its job, if another worker has room for it.
    pub(crate) fn recovery_bound(&self) -> Span {
        recovery_bound(self.longest_lease(), &self.timing)
    }
}

/// What store calls may add to the path from expiry to rerun: seize, settle and claim, each well under a second.
const STORE_SLACK: Span = Span::secs(1);

/// A beat may have come just before the end, so the whole lease passes; then a sweep finds the job, and at the latest
/// the next poll claims it.
fn recovery_bound(lease: Span, timing: &Timing) -> Span {
    lease.plus(timing.sweep).plus(timing.poll).plus(STORE_SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_a_dead_workers_job_runs_again_within_twenty_seconds() {
        let bound = recovery_bound(QueueSettings::default().lease, &Timing::default());
        assert_eq!(bound, Span::secs(18));
    }
}
