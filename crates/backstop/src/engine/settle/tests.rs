//! Ends that a store refuses, among others that it takes.

use super::super::recover::recover_batch;
use super::*;
use crate::handler::HandlerStates;
use crate::{ManualClock, QueueSettings, RandomSource};
use backstop_core::port::{Claim, JobStore};
use backstop_core::verdict::DoneRetention;
use backstop_core::{WorkerName, plan::QueueQuota};
use backstop_memory::MemoryStore;
use backstop_testkit::counted::Counted;
use backstop_testkit::flaky::{Fault, Flaky};
use backstop_testkit::strict::Strict;
use std::sync::Arc;

const LEASE: Span = Span::secs(15);

struct Scene {
    engine: Engine,
    clock: Arc<ManualClock>,
    flaky: Arc<Flaky>,
    counted: Arc<Counted>,
    /// Runs by the names of their jobs.
    leases: BTreeMap<String, Lease>,
}

/// Jobs `j0`, `j1` and so on, which run; the ends of some of them are refused.
async fn scene(jobs: usize, is_refused: impl Fn(usize) -> bool) -> Scene {
    let refused = (0..jobs).filter(|n| is_refused(*n)).map(name);
    let strict = Arc::new(Strict::new(Arc::new(MemoryStore::new()), refused));
    let flaky = Arc::new(Flaky::new(strict, 1));
    let counted = Arc::new(Counted::new(Arc::<Flaky>::clone(&flaky)));
    let clock = crate::testing::start().clock;
    let backstop = Backstop::on(
        Arc::<Counted>::clone(&counted),
        clock.clone(),
        RandomSource::seeded(1),
    );
    let queue = QueueName::new("q").unwrap();
    for n in 0..jobs {
        backstop.draft("q").id(&name(n)).push().await.unwrap();
    }
    let wants = vec![QueueQuota {
        queue: queue.clone(),
        max: jobs,
    }];
    let (number, worker, now) = (
        backstop.random().lease_number(),
        WorkerName::new("w"),
        backstop.now(),
    );
    let claim = Claim {
        number,
        worker: worker.clone(),
        until: now.after(LEASE),
        wants,
    };
    let runs = counted.claim(claim, now).await.unwrap().runs;
    let queues = BTreeMap::from([(
        queue,
        QueueSettings {
            lease: LEASE,
            ..QueueSettings::default()
        },
    )]);
    let (shelves, handlers, timing) = (Vec::new(), BTreeMap::new(), crate::WorkerTiming::default());
    let engine = Engine::new(
        backstop,
        worker,
        queues,
        shelves,
        handlers,
        HandlerStates::default(),
        timing,
    );
    engine
        .active_leases
        .insert(number, LEASE, Instant::now(), &runs);
    let leases = (0..jobs)
        .map(name)
        .zip(runs.into_iter().map(|run| run.lease))
        .collect();
    counted.take_calls();
    Scene {
        engine,
        clock,
        flaky,
        counted,
        leases,
    }
}

fn name(n: usize) -> String {
    format!("j{n}")
}

impl Scene {
    /// Ends after which nothing is left of the jobs.
    fn ends(&self, of: impl IntoIterator<Item = usize>) -> Vec<Settlement> {
        let end = |n| Settlement {
            lease: self.leases[&name(n)].clone(),
            outcome: Outcome::Done(DoneRetention::Gone),
        };
        of.into_iter().map(end).collect()
    }

    /// Which ends are left, and how many calls it took.
    async fn settle(&self, batch: Vec<Settlement>) -> (Vec<Settlement>, usize) {
        let left = settle_once(&self.engine, batch).await;
        (
            left,
            self.counted
                .take_calls()
                .get("settle")
                .copied()
                .unwrap_or_default(),
        )
    }

    /// How many runs are done, and lost.
    fn counts(&self) -> (u64, u64) {
        let progress = self.engine.tally.progress();
        (progress.done, progress.lost)
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_probe_counts_and_is_not_asked_for_twice() {
    let scene = scene(4, |n| n == 0).await;
    let (poison, _) = scene.settle(scene.ends([0])).await;
    assert_eq!(poison.len(), 1, "it is told again");
    let (left, calls) = scene.settle(scene.ends(1..4)).await;
    assert_eq!((left.len(), calls), (0, 2), "one of them, and the others");
    assert_eq!(scene.counts(), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_probe_counts_also_where_the_rest_is_not_answered() {
    let scene = scene(4, |n| n == 0).await;
    scene.settle(scene.ends([0])).await;
    // A hint is no call: to name one is to let a call pass.
    scene.flaky.next_call(Fault::LostHint);
    scene.flaky.next_call(Fault::Refused);
    let (left, _) = scene.settle(scene.ends(1..4)).await;
    assert_eq!((left.len(), scene.counts()), (2, (1, 0)));
    let (left, _) = scene.settle(left).await;
    assert_eq!((left.len(), scene.counts()), (0, (3, 0)));
}

#[tokio::test(start_paused = true)]
async fn ends_behind_many_that_are_refused_are_found_in_a_few_tries() {
    for is_refused in [|n| n < 180, |n| n >= 20, |n| n % 10 != 3] {
        let scene = scene(200, is_refused).await;
        scene
            .settle(scene.ends((0..200).find(|n| is_refused(*n))))
            .await;
        let mut left = scene.ends(0..200);
        for _ in 0..10 {
            left = scene.settle(left).await.0;
        }
        assert_eq!(scene.counts(), (20, 0));
        assert_eq!(scene.engine.permission_errors.final_error(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_the_right_to_settle_makes_a_few_calls_however_many_ends_wait() {
    let scene = scene(200, |_| false).await;
    scene.flaky.forbid("settle");
    let mut left = scene.settle(scene.ends([0])).await.0;
    left.extend(scene.ends(1..200));
    for _ in 0..100 {
        let (again, calls) = scene.settle(left).await;
        assert!(
            again.len() == 200 && calls <= 4,
            "{} left after {calls} calls",
            again.len()
        );
        left = again;
    }
    scene.flaky.allow("settle");
    assert_eq!(
        (scene.settle(left).await.0.len(), scene.counts()),
        (0, (200, 0))
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_refused_beside_others_is_told_once_more_and_then_given_up() {
    for batch in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
        let scene = scene(4, |n| n == 0).await;
        let (left, _) = scene.settle(scene.ends(batch)).await;
        assert_eq!(
            (left.len(), scene.counts()),
            (1, (2, 0)),
            "{batch:?}: its first no"
        );
        scene.settle(scene.ends([3])).await;
        assert!(
            scene.settle(left).await.0.is_empty(),
            "{batch:?}: its second"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_over_is_put_back_beside_what_is_refused_whatever_was_refused_before() {
    let scene = scene(20, |n| n < 10).await;
    scene.settle(scene.ends([0])).await;
    scene.clock.advance(LEASE.times(2));
    assert_eq!(
        recover_batch(&scene.engine, 20, Vec::new())
            .await
            .map(|batch| batch.jobs),
        Ok(20)
    );
    assert_eq!(
        scene.engine.tally.progress().recovered,
        10,
        "all that can be"
    );
}
