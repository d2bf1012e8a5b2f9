//! How long expired leases have waited to be taken over, as the gauge of [`meters`](super::meters)
//! has it.
//!
//! | what came of a sweep | what is told |
//! |---|---|
//! | it left none | 0 |
//! | it left some, or grace keeps them | how long ago the first of them ended |
//! | the store did not answer | the same, older by the time since; what ends meanwhile is told when it answers again |
//!
//! When a lease ended is known by the last beat of the worker that has it: it lasted one lease from
//! then on. How long leases are is known for the queues that are served here; workers of other
//! queues are told of by those who serve them.

use super::Engine;
use super::meters;
use crate::client::Backstop;
use backstop_core::port::{Answer, WorkerStatus};
use backstop_core::{QueueName, Span, Time};

/// Workers that have been silent for longer are not looked at.
const SILENT_MAX: Span = Span::days(30);

/// When the first of the leases ended that nobody has taken over.
#[derive(Default)]
pub(super) struct Expired(Option<Time>);

impl Expired {
    /// A sweep left none.
    pub(super) fn none_left(&mut self) {
        self.0 = None;
        meters::oldest_expired(Span::ZERO);
    }

    /// Some may be left: looks for the first.
    pub(super) async fn look(&mut self, engine: &Engine) {
        let now = engine.now();
        // What cannot be asked stays as it was known.
        if let Ok(workers) = engine.store().workers(SILENT_MAX, now).await {
            self.0 = first_end(&workers, |worker| lease_of(engine, worker), now);
        }
        meters::oldest_expired(self.0.map_or(Span::ZERO, |ended| now.since(ended)));
    }
}

impl Backstop {
    /// For how long the lease that ended first has not been taken over; `None` if none has ended.
    /// `lease_of` tells how long leases of a queue are.
    pub async fn oldest_expired(
        &self,
        lease_of: impl Fn(&QueueName) -> Span,
    ) -> Answer<Option<Span>> {
        let now = self.now();
        let workers = self.store().workers(SILENT_MAX, now).await?;
        let longest = |worker: &WorkerStatus| worker.queues.iter().map(&lease_of).max();
        Ok(first_end(&workers, longest, now).map(|end| now.since(end)))
    }
}

/// The longest lease a worker can have given itself; `None` if it serves queues that are unknown
/// here.
fn lease_of(engine: &Engine, worker: &WorkerStatus) -> Option<Span> {
    let leases = worker
        .queues
        .iter()
        .map(|queue| engine.queues.get(queue).map(|settings| settings.lease));
    leases.collect::<Option<Vec<Span>>>()?.into_iter().max()
}

fn first_end(
    workers: &[WorkerStatus],
    lease_of: impl Fn(&WorkerStatus) -> Option<Span>,
    now: Time,
) -> Option<Time> {
    let holding = workers.iter().filter(|worker| worker.running > 0);
    let ends = holding.filter_map(|worker| Some(worker.seen_at.after(lease_of(worker)?)));
    ends.filter(|end| *end < now).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::WorkerName;

    #[test]
    fn the_first_lease_to_end_is_that_of_the_worker_silent_for_longest() {
        let now = Time::from_millis(1_000_000);
        let worker = |silent: i64, running| WorkerStatus {
            name: WorkerName::new("w"),
            queues: Vec::new(),
            seen_at: now.before(Span::secs(silent)),
            running,
        };
        let check = |workers: &[WorkerStatus], lease: Option<Span>, expected: Option<i64>| {
            let ended = first_end(workers, |_| lease, now).map(|end| now.since(end));
            assert_eq!(ended, expected.map(Span::secs), "{workers:?}");
        };
        let lease = Some(Span::secs(15));
        check(&[], lease, None);
        check(&[worker(5, 3), worker(15, 1)], lease, None);
        check(
            &[worker(20, 1), worker(40, 2), worker(16, 9)],
            lease,
            Some(25),
        );
        check(&[worker(20, 1), worker(40, 0)], lease, Some(5));
        check(&[worker(40, 1)], None, None);
    }
}
