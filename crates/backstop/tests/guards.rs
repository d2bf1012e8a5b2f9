//! Breakers, gates and bounds at work, on a store in memory and on virtual time.

use backstop::breakers::BreakerName;
use backstop::core::amend::{AmendAction, Selection};
use backstop::core::bounds::DEAD_MAX_DEFAULT;
use backstop::core::breaker::{BreakerPhase, BreakerSettings};
use backstop::core::gate::{GateSettings, ShutReason};
use backstop::core::port::{AmendJobsRequest, OperatorStore, QueueStatus};
use backstop::core::{Job, JobState, QueueBounds};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, JobId, QueueName, QueueSettings, RandomSource, RetryPolicy, Run, RunError,
    RunningWorker, ServicePlacement, Span,
};
use backstop_memory::MemoryStore;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A service that is up or down, and remembers when it was called.
#[derive(Clone, Default)]
struct Service(Arc<ServiceState>);

#[derive(Default)]
struct ServiceState {
    down: AtomicBool,
    calls: Mutex<Vec<Duration>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

struct World {
    store: Arc<MemoryStore>,
    backstop: Backstop,
    began: tokio::time::Instant,
    service: Service,
}

fn world() -> World {
    world_on(MemoryStore::new())
}

fn world_on(store: MemoryStore) -> World {
    let store = Arc::new(store);
    let backstop = Backstop::on(
        Arc::<MemoryStore>::clone(&store),
        Arc::new(VirtualClock::start()),
        RandomSource::seeded(7),
    );
    World {
        store,
        backstop,
        began: tokio::time::Instant::now(),
        service: Service::default(),
    }
}

fn policy(max_attempts: u32) -> RetryPolicy {
    RetryPolicy::default().with_max_attempts(NonZeroU32::new(max_attempts).expect("some"))
}

impl World {
    async fn push(&self, count: usize) -> Vec<JobId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(
                self.backstop
                    .draft("q")
                    .kind("call")
                    .push()
                    .await
                    .expect("pushed")
                    .id,
            );
        }
        ids
    }

    fn start(&self, name: &str, settings: QueueSettings) -> RunningWorker {
        let (service, began) = (self.service.clone(), self.began);
        let call = move |_: Run| {
            let service = service.clone();
            async move { service.call(began).await }
        };
        let worker = self
            .backstop
            .worker()
            .name(name)
            .services(ServicePlacement::CallersRuntime);
        worker
            .handle_raw("q", call)
            .queue("q", settings)
            .start()
            .expect("it starts")
    }

    fn set_down(&self, down: bool) {
        self.service.0.down.store(down, Ordering::SeqCst);
    }

    fn calls(&self) -> Vec<Duration> {
        self.service.0.calls.lock().expect("whole").clone()
    }

    async fn queue(&self) -> QueueStatus {
        let mut queues = self
            .store
            .queues(self.backstop.now())
            .await
            .expect("the store answers");
        queues.pop().expect("a queue")
    }

    async fn count(&self, state: JobState) -> u64 {
        self.queue().await.counts.of(state)
    }

    async fn becomes(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        for _ in 0..200_000 {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("never: {what}");
    }

    async fn phase(&self) -> Option<BreakerPhase> {
        self.backstop
            .breakers()
            .list()
            .await
            .expect("a list")
            .pop()
            .map(|guard| guard.status.state)
    }

    async fn first_dead(&self) -> Job {
        let filter = backstop::core::amend::Filter {
            state: Some(JobState::Dead),
            ..Default::default()
        };
        let query = backstop::core::port::ListJobsRequest {
            filter,
            limit: 1,
            ..Default::default()
        };
        self.store
            .jobs(query, self.backstop.now())
            .await
            .expect("a list")
            .jobs
            .pop()
            .expect("a dead job")
    }

    async fn delete_dead(&self) {
        let amendment = AmendJobsRequest {
            selection: Selection::All,
            action: AmendAction::Delete,
            only: Some(JobState::Dead),
            cursor: None,
            max: 1_000,
        };
        self.store
            .amend(amendment, self.backstop.now())
            .await
            .expect("deleted");
    }
}

impl Service {
    async fn call(&self, began: tokio::time::Instant) -> Result<(), RunError> {
        self.0.calls.lock().expect("whole").push(began.elapsed());
        let at_once = self.0.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
        if self.0.down.load(Ordering::SeqCst) {
            Err(RunError::retry("the service is down"))
        } else {
            Ok(())
        }
    }
}

fn with_breaker(concurrency: usize) -> QueueSettings {
    QueueSettings {
        concurrency,
        retry: policy(3),
        breaker: Some(BreakerSettings::default()),
        ..QueueSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_leaves_the_service_alone_and_finds_out_when_it_is_well() {
    let world = world();
    world.set_down(true);
    world.push(200).await;
    let worker = world.start("w", with_breaker(1));
    world
        .becomes("open", async || {
            world.phase().await == Some(BreakerPhase::Open)
        })
        .await;
    let when_opened = world.calls().len();
    assert!(
        (5..=6).contains(&when_opened),
        "five failures open it, and one run was under way: {when_opened}"
    );
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(
        world.calls().len(),
        when_opened,
        "nobody calls while it is open"
    );
    assert_eq!(
        world.count(JobState::Running).await,
        0,
        "what was claimed and not begun was given back"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let probes = world.calls().len() - when_opened;
    assert!((1..=3).contains(&probes), "a few probes: {probes}");
    world.set_down(false);
    world
        .becomes("all done", async || {
            world.count(JobState::Done).await + world.count(JobState::Dead).await == 200
        })
        .await;
    assert_eq!(world.count(JobState::Dead).await, 0);
    assert_eq!(world.phase().await, Some(BreakerPhase::Closed));
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn workers_share_a_breaker_and_its_probes() {
    let world = world();
    world.set_down(true);
    world.push(500).await;
    let workers = ["a", "b", "c", "d"].map(|name| world.start(name, with_breaker(8)));
    world
        .becomes("open", async || {
            world.phase().await == Some(BreakerPhase::Open)
        })
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = world.calls().len();
    assert!(before <= 4 * 8, "what was under way ends: {before}");
    world.service.0.most_at_once.store(0, Ordering::SeqCst);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(31)).await;
    }
    let most = world.service.0.most_at_once.load(Ordering::SeqCst);
    assert!(
        (1..=3).contains(&most),
        "at most three probes at once over all workers: {most}"
    );
    let probes = world.calls().len() - before;
    assert!(probes <= 3 * 11, "three probes in half a minute: {probes}");
    world.set_down(false);
    world
        .becomes("all ended", async || world.queue().await.counts.live() == 0)
        .await;
    for worker in workers {
        worker.stop();
        worker.stopped().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_opened_by_hand_stays_open_until_it_is_reset() {
    let world = world();
    let name: BreakerName = "q".parse().expect("a name");
    world
        .backstop
        .breakers()
        .open(&name, "maintenance")
        .await
        .expect("opened");
    let worker = world.start("w", with_breaker(4));
    world.push(10).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(world.calls().len(), 0);
    assert!(
        world
            .backstop
            .breakers()
            .reset(&name, "over")
            .await
            .expect("reset")
    );
    world
        .becomes("done", async || world.count(JobState::Done).await == 10)
        .await;
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn full_dead_letters_pause_the_kind_lose_nothing_and_room_resumes_it() {
    let world = world();
    world.set_down(true);
    let ids = world.push(10).await;
    let bounds = QueueBounds {
        dead_max: 3,
        ..QueueBounds::default()
    };
    let settings = QueueSettings {
        concurrency: 1,
        retry: policy(1),
        bounds: Some(bounds),
        ..QueueSettings::default()
    };
    let worker = world.start("w", settings);
    world
        .becomes("shut", async || {
            world.phase().await == Some(BreakerPhase::Open)
        })
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let status = world.queue().await;
    assert_eq!(
        (status.counts.of(JobState::Dead), status.counts.live()),
        (3, 7),
        "nothing is lost, nothing is over"
    );
    let calls = world.calls().len();
    assert!(calls <= 5, "the kind is not started any more: {calls}");
    let gate = world
        .backstop
        .breakers()
        .list()
        .await
        .expect("a list")
        .pop()
        .expect("a gate");
    assert_eq!(
        (gate.name.to_string().as_str(), gate.shut),
        ("q/call", Some(ShutReason::Full))
    );
    for id in &ids {
        assert!(
            world
                .store
                .job(*id, world.backstop.now())
                .await
                .expect("read")
                .is_some()
        );
    }
    world.set_down(false);
    world.delete_dead().await;
    world
        .becomes("done", async || world.count(JobState::Done).await == 7)
        .await;
    assert_eq!(world.phase().await, Some(BreakerPhase::Closed));
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn too_many_deaths_shut_the_kind_until_probes_live() {
    let world = world();
    world.set_down(true);
    world.push(100).await;
    let gate = GateSettings {
        deaths: 10,
        within: Span::minutes(1),
        ..GateSettings::default()
    };
    let settings = QueueSettings {
        concurrency: 2,
        retry: policy(1),
        gate,
        ..QueueSettings::default()
    };
    let worker = world.start("w", settings);
    world
        .becomes("shut", async || {
            world.phase().await == Some(BreakerPhase::Open)
        })
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let dead = world.count(JobState::Dead).await;
    assert!(
        (10..=14).contains(&dead),
        "it stops at ten, and what was under way: {dead}"
    );
    world.set_down(false);
    world
        .becomes("done", async || world.queue().await.counts.live() == 0)
        .await;
    assert_eq!(world.count(JobState::Dead).await, dead, "nothing more died");
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn another_kind_goes_on_beside_a_shut_one() {
    let world = world();
    let name: BreakerName = "q/bad".parse().expect("a name");
    world
        .backstop
        .breakers()
        .open(&name, "by hand")
        .await
        .expect("shut");
    for n in 0..50 {
        let kind = if n % 2 == 0 { "bad" } else { "good" };
        world
            .backstop
            .draft("q")
            .kind(kind)
            .push()
            .await
            .expect("pushed");
    }
    let worker = world.start("w", QueueSettings::default());
    world
        .becomes("done", async || world.count(JobState::Done).await == 25)
        .await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        (
            world.count(JobState::Done).await,
            world.queue().await.counts.live()
        ),
        (25, 25)
    );
    world
        .backstop
        .breakers()
        .reset(&name, "over")
        .await
        .expect("reset");
    world
        .becomes("all done", async || world.count(JobState::Done).await == 50)
        .await;
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_got_further_starts_its_attempts_again() {
    let world = world();
    let id = world.push(1).await[0];
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let handler = move |run: Run| {
        let n = seen.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            // Every second run gets further than the ones before it.
            if n.is_multiple_of(2) && n <= 6 {
                run.progressed();
            }
            Err::<(), _>(RunError::retry("not yet"))
        }
    };
    let settings = QueueSettings {
        retry: policy(3),
        ..QueueSettings::default()
    };
    let worker = world
        .backstop
        .worker()
        .services(ServicePlacement::CallersRuntime);
    let worker = worker
        .handle_raw("q", handler)
        .queue("q", settings)
        .start()
        .expect("it starts");
    world
        .becomes("dead", async || world.count(JobState::Dead).await == 1)
        .await;
    assert_eq!(
        runs.load(Ordering::SeqCst),
        8,
        "two runs after the last progress"
    );
    let job = world
        .store
        .job(id, world.backstop.now())
        .await
        .expect("read")
        .expect("there");
    assert_eq!((job.attempt, job.history.failures().len()), (3, 8));
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_death_tells_what_the_world_was_like() {
    let world = world();
    world.set_down(true);
    world.push(3).await;
    let settings = QueueSettings {
        concurrency: 1,
        prefetch: Some(0),
        retry: policy(1),
        ..with_breaker(1)
    };
    let worker = world.start("the-worker", settings);
    world
        .becomes("dead", async || world.count(JobState::Dead).await >= 1)
        .await;
    let failure = world
        .first_dead()
        .await
        .history
        .failures()
        .pop()
        .expect("a failure");
    let context = failure.context.expect("a context");
    assert!(
        context
            .queue_depths
            .get("q")
            .is_some_and(|depth| (1..=3).contains(depth)),
        "{context:?}"
    );
    assert_eq!(
        context.breakers.get("q").map(String::as_str),
        Some("closed")
    );
    assert_eq!(context.worker.as_deref(), Some("the-worker"));
    assert!(context.host.is_some() && context.version.is_some());
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_writes_down_the_bounds_it_was_told() {
    let world = world();
    let bounds = QueueBounds {
        max_size: Some(5),
        ..QueueBounds::default()
    };
    let worker = world.start(
        "w",
        QueueSettings {
            bounds: Some(bounds),
            ..QueueSettings::default()
        },
    );
    let queue = QueueName::new("q").expect("a name");
    world
        .becomes("bounded", async || {
            let queues = world
                .store
                .queues(world.backstop.now())
                .await
                .expect("read");
            queues
                .iter()
                .any(|status| status.name == queue && status.bounds == bounds)
        })
        .await;
    assert_eq!(bounds.dead_max, DEAD_MAX_DEFAULT);
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_a_worker_takes_jobs_in_a_store_that_is_full_of_queues() {
    let world = world_on(MemoryStore::new().with_max_queues(1));
    let push = async |queue| world.backstop.draft(queue).kind("call").push().await;
    push("other").await.expect("the store has room for one");
    assert!(push("q").await.is_err(), "nobody has declared it yet");
    let worker = world.start("w", QueueSettings::default());
    world
        .becomes("declared", async || push("q").await.is_ok())
        .await;
    worker.stop();
    worker.stopped().await;
}
