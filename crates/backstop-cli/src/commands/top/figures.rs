//! One reading of a store.

use super::rates::{RateHistory, TopFlow};
use backstop::breakers::BreakerInfo;
use backstop::core::port::{QueueStatus, StoreResult, StreamStatus, WorkerStatus};
use backstop::dead::DeadGroup;
use backstop::workers::WorkerInfo;
use backstop::{Backstop, JobState, Span, Time};
use backstop_server::history::StreamAlarms;
use backstop_server::wire::breaker::BreakerShape;
use backstop_server::wire::queue::QueueShape;
use backstop_server::wire::stream::StreamShape;
use serde_json::{Value, json};

/// Workers that were silent for longer are not shown, whatever they hold.
pub(super) const WORKERS_WITHIN: Span = Span::minutes(2);
/// A worker that was silent for this long may be gone: the usual lease.
pub(super) const SILENT: Span = Span::secs(15);
/// Groups shown; each costs a look at its sample.
const GROUPS: usize = 50;

/// What a store looks like at one time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TopFigures {
    pub(super) at: Time,
    pub(super) queues: Vec<QueueStatus>,
    pub(super) workers: Vec<WorkerInfo>,
    /// What died of the same, the largest groups first.
    pub(super) groups: Vec<DeadGroup>,
    pub(super) streams: Vec<StreamStatus>,
    /// What of them somebody should look at.
    pub(super) alarms: StreamAlarms,
    pub(super) guards: Vec<BreakerInfo>,
}

/// Whether a worker works, or holds jobs and is not heard. One that holds nothing and gives no sign
/// has stopped.
fn is_listed(worker: &WorkerStatus, now: Time) -> bool {
    worker.running > 0 || now.since(worker.seen_at) <= SILENT
}

impl TopFigures {
    /// Reads the store. One part that fails fails all: half a picture would look like a whole one.
    pub(super) async fn read(backstop: &Backstop) -> StoreResult<Self> {
        let at = backstop.current_time().await;
        let store = backstop.store();
        let streams = store.streams().await?;
        Ok(Self {
            at,
            queues: store.queues(at).await?,
            workers: backstop
                .workers(WORKERS_WITHIN)
                .await?
                .into_iter()
                .filter(|one| is_listed(&one.status, at))
                .collect(),
            groups: backstop.dead().groups(None, GROUPS).await?,
            alarms: StreamAlarms::read(backstop, &streams).await?,
            streams,
            guards: backstop.breakers().list().await?,
        })
    }

    /// Dead letters of all queues.
    pub(super) fn dead(&self) -> u64 {
        self.queues
            .iter()
            .map(|queue| queue.counts.of(JobState::Dead))
            .sum()
    }

    /// For programs, with the rates of `trail`.
    pub(super) fn shape(&self, history: &RateHistory) -> Value {
        let workers = self.workers.iter().map(|worker| {
            let status = &worker.status;
            let (name, state) = (status.name.as_str(), worker.health(self.at).as_str());
            json!({ "name": name, "queues": status.queues, "running": status.running, "seen_at": status.seen_at, "state": state })
        });
        json!({
            "at": self.at,
            "queues": self.queues.iter().map(|queue| queue_shape(queue, self.at, history)).collect::<Vec<_>>(),
            "rate": rates(history, None),
            "workers": workers.collect::<Vec<_>>(),
            "dead": { "total": self.dead(), "groups": self.groups },
            "streams": self.streams.iter().map(|stream| StreamShape::new(stream, &self.alarms)).collect::<Vec<_>>(),
            "breakers": self.guards.iter().map(BreakerShape::new).collect::<Vec<_>>(),
        })
    }
}

fn queue_shape(queue: &QueueStatus, at: Time, history: &RateHistory) -> Value {
    let mut shape = serde_json::to_value(QueueShape::new(queue)).unwrap_or_default();
    shape["oldest_ms"] = oldest(queue, at).map(Span::as_millis).into();
    shape["rate"] = rates(history, Some(queue));
    shape
}

fn rates(history: &RateHistory, queue: Option<&QueueStatus>) -> Value {
    let name = queue.map(|queue| &queue.name);
    let rate = |flow| history.rate(name, flow);
    json!({ "pushed": rate(TopFlow::Pushed), "done": rate(TopFlow::Done), "dead": rate(TopFlow::Dead) })
}

/// How long the job that is next in line has been waiting for its turn.
pub(super) fn oldest(queue: &QueueStatus, now: Time) -> Option<Span> {
    queue
        .next_ready
        .filter(|at| *at <= now)
        .map(|at| now.since(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop::testing;
    use backstop_core::plan::QueueQuota;
    use backstop_core::port::{BeatRequest, Claim};
    use backstop_core::{LeaseNumber, WorkerName};

    #[tokio::test]
    async fn workers_that_stopped_are_left_out_and_those_that_vanished_with_jobs_are_not() {
        let test = testing::start();
        let (store, now) = (test.backstop.store(), test.backstop.now());
        test.backstop.draft("q").push().await.unwrap();
        let queues = vec!["q".parse().unwrap()];
        for name in ["vanished", "stopped"] {
            let (worker, until) = (WorkerName::new(name), now.after(Span::secs(15)));
            let beat = BeatRequest {
                worker: worker.clone(),
                queues: queues.clone(),
                leases: Vec::new(),
                until,
            };
            store.beat(beat, now).await.unwrap();
            let number = LeaseNumber::from_i64(1);
            let wants = vec![QueueQuota {
                queue: queues[0].clone(),
                max: 1,
            }];
            store
                .claim(
                    Claim {
                        number,
                        worker,
                        until,
                        wants,
                    },
                    now,
                )
                .await
                .unwrap();
        }
        let names = async || {
            let workers = TopFigures::read(&test.backstop).await.unwrap().workers;
            workers
                .into_iter()
                .map(|worker| worker.status.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names().await, ["stopped", "vanished"]);
        test.clock.advance(SILENT.plus(Span::secs(1)));
        assert_eq!(names().await, ["vanished"]);
    }
}
