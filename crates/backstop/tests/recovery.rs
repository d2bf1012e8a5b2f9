//! What becomes of jobs whose workers vanish: who is charged, who runs alone, and how long the
//! living have to beat. On a store in memory and on virtual time; a process that dies is one whose
//! store no longer hears it.

use backstop::core::JobState;
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::plan::QueueQuota;
use backstop::core::port::{
    BeatRequest, Claim, FindingSeverity, JobStore, OperatorStore, StoreFinding,
};
use backstop::core::verdict::EndReason;
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, JobId, QueueName, QueueSettings, RandomSource, Run, RunError, RunningWorker,
    ServicePlacement, Span, WorkerBuilder,
};
use backstop_core::{Job, Time};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Flaky;
use backstop_testkit::meters::Meters;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

struct World {
    store: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    backstop: Backstop,
}

/// A process with a line to the store that can be cut.
struct Process {
    line: Arc<Flaky>,
    backstop: Backstop,
}

impl World {
    fn new() -> Self {
        let (store, clock) = (
            Arc::new(MemoryStore::new()),
            Arc::new(VirtualClock::start()),
        );
        let backstop = Backstop::on(
            Arc::<MemoryStore>::clone(&store),
            Arc::<VirtualClock>::clone(&clock),
            RandomSource::seeded(7),
        );
        Self {
            store,
            clock,
            backstop,
        }
    }

    fn process(&self, seed: u64) -> Process {
        let line = Arc::new(Flaky::new(Arc::<MemoryStore>::clone(&self.store), seed));
        let backstop = Backstop::on(
            Arc::<Flaky>::clone(&line),
            Arc::<VirtualClock>::clone(&self.clock),
            RandomSource::seeded(seed),
        );
        Process { line, backstop }
    }

    async fn push(&self, id: &str) -> JobId {
        self.backstop
            .draft("q")
            .id(id)
            .push()
            .await
            .expect("pushed")
            .id
    }

    async fn job(&self, id: JobId) -> Job {
        self.store
            .job(id, self.backstop.now())
            .await
            .expect("memory answers")
            .expect("the job is there")
    }

    async fn state_becomes(&self, id: JobId, state: JobState) -> Job {
        for _ in 0..100_000 {
            let job = self.job(id).await;
            if job.state == state {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unreachable!("never {state}: {:?}", self.job(id).await);
    }

    async fn live(&self) -> u64 {
        let queues = self
            .store
            .queues(self.backstop.now())
            .await
            .expect("memory answers");
        queues.iter().map(|queue| queue.counts.live()).sum()
    }

    /// Claims as a worker does, and then nothing more: no beat, no settlement.
    async fn claim_and_vanish(&self, jobs: usize) {
        let now = self.backstop.now();
        let claim = Claim {
            number: LeaseNumber::draw(now.as_micros().unsigned_abs()),
            worker: WorkerName::new("doomed"),
            until: now.after(QueueSettings::default().lease),
            wants: vec![QueueQuota {
                queue: queue(),
                max: jobs,
            }],
        };
        assert_eq!(
            self.store
                .claim(claim, now)
                .await
                .expect("memory answers")
                .runs
                .len(),
            jobs
        );
    }

    /// A worker that is alive, and has beaten just now.
    async fn beat(&self, name: &str) {
        let now = self.backstop.now();
        let beat = BeatRequest {
            worker: WorkerName::new(name),
            queues: vec![queue()],
            leases: Vec::new(),
            until: now.after(Span::secs(15)),
        };
        self.store.beat(beat, now).await.expect("memory answers");
    }
}

impl Process {
    fn worker(&self, name: &str) -> WorkerBuilder {
        self.backstop
            .worker()
            .name(name)
            .services(ServicePlacement::CallersRuntime)
    }
}

fn queue() -> QueueName {
    QueueName::new("q").expect("a name")
}

async fn stopped(worker: RunningWorker) -> backstop::WorkerProgress {
    worker.stop();
    worker.stopped().await
}

/// Lets processes work, one after the other, until nothing is left to do: `poison` kills each it
/// runs in at once, everything else takes its time. Answers how many died. `name` is that of the
/// worker that comes after so many deaths.
async fn live_through(
    world: &World,
    poison: JobId,
    takes: Duration,
    name: fn(u64) -> String,
) -> u64 {
    let crashed = Arc::new(Notify::new());
    let mut dead = Vec::new();
    let mut deaths = 0;
    while world.live().await > 0 {
        let process = world.process(deaths);
        let (line, told) = (Arc::clone(&process.line), Arc::clone(&crashed));
        let handler = move |run: Run| {
            let (line, told) = (Arc::clone(&line), Arc::clone(&told));
            async move {
                if run.id() == poison {
                    line.set_down(true);
                    told.notify_one();
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(takes).await;
                Ok(())
            }
        };
        let settings = QueueSettings {
            concurrency: 4,
            prefetch: Some(4),
            ..QueueSettings::default()
        };
        let worker = process
            .worker(&name(deaths))
            .handle_raw("q", handler)
            .queue("q", settings)
            .start()
            .expect("started");
        let drained = async {
            while world.live().await > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = crashed.notified() => deaths += 1,
            () = drained => {}
        }
        dead.push((process, worker));
    }
    deaths
}

#[tokio::test(start_paused = true)]
async fn a_poison_job_alone_dies_and_everybody_else_is_done() {
    check_poison(
        |deaths| format!("worker-{deaths}"),
        ["worker-0", "worker-1", "worker-2"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_poison_job_dies_also_where_each_worker_is_restarted_under_its_name() {
    check_poison(|_| "worker".to_owned(), ["worker"; 3]).await;
}

async fn check_poison(name: fn(u64) -> String, lost_workers: [&str; 3]) {
    const INNOCENTS: usize = 30;
    let world = World::new();
    let mut innocents = Vec::new();
    for n in 0..INNOCENTS / 2 {
        innocents.push(world.push(&format!("before-{n}")).await);
    }
    let poison = world.push("poison").await;
    for n in 0..INNOCENTS / 2 {
        innocents.push(world.push(&format!("after-{n}")).await);
    }
    let deaths = live_through(&world, poison, Duration::from_millis(200), name).await;
    let killer = world.job(poison).await;
    assert_eq!(
        (killer.state, killer.reason, deaths),
        (JobState::Dead, Some(EndReason::CrashedWorker), 3)
    );
    let context = killer
        .history
        .failures()
        .pop()
        .expect("it says why")
        .context
        .expect("it is known");
    assert_eq!(context.lost_workers, lost_workers, "whom it took along");
    for id in innocents {
        let job = world.job(id).await;
        assert_eq!(job.state, JobState::Done);
        assert!(job.lost_leases <= 1, "{id} lost {} leases", job.lost_leases);
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_suspected_before_does_not_die_of_what_runs_beside_it() {
    let world = World::new();
    let mut suspects = Vec::new();
    for n in 0..3 {
        suspects.push(world.push(&format!("suspect-{n}")).await);
    }
    // A restart of its worker, nobody's fault.
    world.claim_and_vanish(3).await;
    let poison = world.push("poison").await;
    live_through(&world, poison, Duration::from_secs(2), |deaths| {
        format!("worker-{deaths}")
    })
    .await;
    let killer = world.job(poison).await;
    assert_eq!(
        (killer.state, killer.reason),
        (JobState::Dead, Some(EndReason::CrashedWorker))
    );
    for id in suspects {
        let job = world.job(id).await;
        assert_eq!(
            (job.state, job.lost_leases < 3),
            (JobState::Done, true),
            "{id} lost {}",
            job.lost_leases
        );
    }
}

#[tokio::test(start_paused = true)]
async fn suspects_run_one_at_a_time_and_others_beside_them() {
    let world = World::new();
    for n in 0..3 {
        world.push(&format!("suspect-{n}")).await;
    }
    world.claim_and_vanish(3).await;
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let suspects: Vec<JobId> = (0..3)
        .map(|n| JobId::named(&format!("suspect-{n}")))
        .collect();
    let seen = (Arc::clone(&at_once), Arc::clone(&most), suspects.clone());
    let handler = move |run: Run| {
        let (at_once, most, suspects) = seen.clone();
        async move {
            if suspects.contains(&run.id()) {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(30)).await;
                at_once.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(())
        }
    };
    let process = world.process(1);
    let settings = QueueSettings {
        concurrency: 3,
        prefetch: Some(0),
        ..QueueSettings::default()
    };
    let worker = process
        .worker("w")
        .handle_raw("q", handler)
        .queue("q", settings)
        .start()
        .expect("started");
    while at_once.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let beside = world.push("beside").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        world.job(beside).await.state,
        JobState::Done,
        "suspects that wait keep nobody waiting"
    );
    for id in suspects {
        assert_eq!(world.state_becomes(id, JobState::Done).await.lost_leases, 1);
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn suspects_are_shared_by_workers_that_have_their_place_free() {
    let world = World::new();
    for n in 0..2 {
        world.push(&format!("suspect-{n}")).await;
    }
    world.claim_and_vanish(2).await;
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok(())
    };
    let (one, two) = (world.process(1), world.process(2));
    let one = one
        .worker("one")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    let two = two
        .worker("two")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!((one.progress().started, two.progress().started), (1, 1));
    stopped(one).await;
    stopped(two).await;
}

/// When a lease that expired long ago is taken over, counted from the start of the one who does.
async fn taken_over_after(world: &World, id: JobId) -> Span {
    let process = world.process(9);
    let started = world.backstop.now();
    let worker = process
        .worker("keeper")
        .handle_raw("other", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Ready).await;
    let took = world.backstop.now().since(started);
    stopped(worker).await;
    took
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_of_everything_the_living_have_one_lease_to_beat() {
    let world = World::new();
    let id = world.push("a").await;
    world.claim_and_vanish(1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let took = taken_over_after(&world, id).await;
    assert!(took >= Span::secs(15) && took <= Span::secs(17), "{took}");
}

#[tokio::test(start_paused = true)]
async fn where_somebody_has_beaten_lately_there_is_no_grace() {
    let world = World::new();
    let id = world.push("a").await;
    world.claim_and_vanish(1).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.beat("alive").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let took = taken_over_after(&world, id).await;
    assert!(took <= Span::secs(2), "{took}");
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_the_store_was_away_is_settled_and_not_repeated() {
    let world = World::new();
    let id = world.push("a").await;
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        Ok(())
    };
    let (one, two) = (world.process(1), world.process(2));
    let working = one
        .worker("one")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Running).await;
    let idle = two
        .worker("two")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    tokio::time::sleep(Duration::from_secs(1)).await;
    for process in [&one, &two] {
        process.line.set_down(true);
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    for process in [&one, &two] {
        process.line.set_down(false);
    }
    let job = world.state_becomes(id, JobState::Done).await;
    assert_eq!((job.attempt, job.lost_leases), (1, 0));
    assert_eq!(
        stopped(working).await.started + stopped(idle).await.started,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_living_keeper_takes_over_within_the_bound_whenever_it_started() {
    for started_before in [0, 3, 14, 100] {
        let world = World::new();
        let process = world.process(1);
        let worker = process
            .worker("keeper")
            .handle_raw("q", |_: Run| async { Ok(()) })
            .queue("q", busy())
            .start();
        let worker = worker.expect("started");
        tokio::time::sleep(Duration::from_secs(started_before)).await;
        // Claimed before the keeper can: it is paused.
        let id = world.push("a").await;
        world.claim_and_vanish(1).await;
        let died_at: Time = world.backstop.now();
        let job = world.state_becomes(id, JobState::Done).await;
        let took = job.finished_at.expect("done").since(died_at);
        assert!(
            took <= worker.recovery_bound(),
            "{took}, {started_before} s after the start"
        );
        stopped(worker).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_workers_job_runs_again_although_the_clock_was_set_back() {
    for back in [Span::minutes(3), Span::hours(2), Span::days(3)] {
        let world = World::new();
        let id = world.push("a").await;
        let (dying, living) = (world.process(1), world.process(2));
        let stuck = |_: Run| std::future::pending::<Result<(), RunError>>();
        let dead = dying
            .worker("dies")
            .handle_raw("q", stuck)
            .queue("q", busy())
            .start()
            .expect("started");
        world.state_becomes(id, JobState::Running).await;
        let worker = living
            .worker("lives")
            .handle_raw("q", |_: Run| async { Ok(()) })
            .queue("q", busy());
        let worker = worker.start().expect("started");
        tokio::time::sleep(Duration::from_mins(5)).await;
        dying.line.set_down(true);
        drop(dead);
        world.clock.jump(-back.as_micros());
        let cut = world.backstop.now();
        let job = world.state_becomes(id, JobState::Done).await;
        // The lease, and what a claim may last longer than the beat before it.
        let took = job.finished_at.expect("done").since(cut);
        assert!(
            took <= worker.recovery_bound().plus(Span::secs(5)),
            "{took} after {back}"
        );
        assert_eq!(job.lost_leases, 1);
        stopped(worker).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_living_worker_keeps_its_job_although_the_clock_was_set_back() {
    let world = World::new();
    let id = world.push("a").await;
    let (one, two) = (world.process(1), world.process(2));
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_mins(4)).await;
        Ok(())
    };
    let works = one
        .worker("works")
        .handle_raw("q", slow)
        .queue("q", busy())
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Running).await;
    let looks = keeper(&two, "looks");
    tokio::time::sleep(Duration::from_mins(1)).await;
    world.clock.jump(-Span::hours(2).as_micros());
    let job = world.state_becomes(id, JobState::Done).await;
    assert_eq!((job.lost_leases, job.attempt), (0, 1));
    stopped(works).await;
    stopped(looks).await;
}

/// Enough that taking them over takes a while.
const MANY: usize = 4_000;

async fn many_vanish(world: &World) -> Vec<JobId> {
    let mut ids = Vec::new();
    for n in 0..MANY {
        ids.push(world.push(&n.to_string()).await);
    }
    for _ in 0..MANY / 500 {
        world.claim_and_vanish(500).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ids
}

fn keeper(process: &Process, name: &str) -> RunningWorker {
    process
        .worker(name)
        .handle_raw("other", |_: Run| async { Ok(()) })
        .start()
        .expect("started")
}

#[tokio::test(start_paused = true)]
async fn where_many_leases_expire_at_once_one_worker_takes_them_over() {
    let world = World::new();
    let (one, two) = (world.process(1), world.process(2));
    let (first, second) = (keeper(&one, "one"), keeper(&two, "two"));
    let ids = many_vanish(&world).await;
    for id in ids {
        world.state_becomes(id, JobState::Ready).await;
    }
    let (first, second) = (
        stopped(first).await.recovered,
        stopped(second).await.recovered,
    );
    assert_eq!(first + second, MANY as u64);
    assert!(
        first.min(second) <= MANY as u64 / 10,
        "{first} and {second}"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_them_over_and_dies_is_followed_by_another() {
    let world = World::new();
    let (one, two) = (world.process(1), world.process(2));
    let first = keeper(&one, "one");
    let ids = many_vanish(&world).await;
    world.state_becomes(ids[MANY / 4], JobState::Ready).await;
    one.line.set_down(true);
    let second = keeper(&two, "two");
    let cut = world.backstop.now();
    for id in ids {
        world.state_becomes(id, JobState::Ready).await;
    }
    let took = world.backstop.now().since(cut);
    assert!(took <= Span::secs(60), "{took}");
    assert!(stopped(second).await.recovered >= MANY as u64 / 2);
    one.line.set_down(false);
    stopped(first).await;
}

fn busy() -> QueueSettings {
    QueueSettings {
        concurrency: 1,
        prefetch: Some(0),
        ..QueueSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_its_lease_is_written_down() {
    let (world, meters) = (World::new(), Meters::default());
    let _listening = meters.listen();
    let id = world.push("a").await;
    // Deaf to being called off: it goes on until its future is dropped, two seconds later.
    let deaf = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(())
    };
    let settings = || QueueSettings {
        lease: Span::secs(1),
        ..busy()
    };
    let (one, two) = (world.process(1), world.process(2));
    let cut_off = one
        .worker("one")
        .handle_raw("q", deaf)
        .queue("q", settings())
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Running).await;
    let other = two
        .worker("two")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .queue("q", settings());
    let other = other.start().expect("started");
    assert_eq!(world.backstop.overlaps(10).await.expect("listed"), []);
    one.line.set_down(true);
    world.state_becomes(id, JobState::Done).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    one.line.set_down(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let overlaps = world.backstop.overlaps(10).await.expect("listed");
    assert_eq!(overlaps.len(), 1, "{overlaps:?}");
    let overlap = &overlaps[0];
    assert_eq!(
        (overlap.job, overlap.worker.as_str(), overlap.queue.as_str()),
        (id, "one", "q")
    );
    assert!(
        overlap.began_at < overlap.noticed_at && overlap.noticed_at < overlap.ended_at,
        "{overlap:?}"
    );
    assert_eq!(meters.counted("backstop_overlaps_total{queue=q}"), 1);
    stopped(cut_off).await;
    stopped(other).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_called_off_in_time_is_no_overlap() {
    let world = World::new();
    let id = world.push("a").await;
    let heeds = |run: Run| async move {
        run.cancelled().await;
        Err(RunError::retry("called off"))
    };
    let (one, two) = (world.process(1), world.process(2));
    let cut_off = one
        .worker("one")
        .handle_raw("q", heeds)
        .queue("q", busy())
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Running).await;
    let other = two
        .worker("two")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .queue("q", busy());
    let other = other.start().expect("started");
    one.line.set_down(true);
    world.state_becomes(id, JobState::Done).await;
    one.line.set_down(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.backstop.overlaps(10).await.expect("listed"), []);
    stopped(cut_off).await;
    stopped(other).await;
}

#[tokio::test(start_paused = true)]
async fn the_doctor_says_that_expired_leases_could_not_be_counted() {
    let process = World::new().process(1);
    process.line.forbid("expired_leases");
    let examined = process.backstop.examine(Span::secs(15)).await;
    let findings = examined.expect("the rest is examined").findings;
    let said =
        |finding: &&StoreFinding| finding.what.starts_with("the expired leases could not be");
    let finding = findings.iter().find(said);
    assert!(
        finding.is_some_and(|finding| finding.severity == FindingSeverity::Warning),
        "{findings:?}"
    );
}

const RERUNS: &str = "backstop_detect_to_rerun_seconds{queue=q}";
const OLDEST: &str = "backstop_oldest_expired_lease_seconds";

#[tokio::test(start_paused = true)]
async fn how_long_a_rerun_took_is_told_once_for_each_loss() {
    let (world, meters) = (World::new(), Meters::default());
    let _listening = meters.listen();
    let id = world.push("a").await;
    world.claim_and_vanish(1).await;
    let puts_off = |_: Run| async { Err(RunError::snooze(Span::minutes(1))) };
    let first = world.process(1);
    let worker = first
        .worker("one")
        .handle_raw("q", puts_off)
        .queue("q", busy())
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Scheduled).await;
    stopped(worker).await;
    let told = meters.told(RERUNS);
    assert!(
        told.len() == 1 && told[0] < 2.0,
        "from its detection on: {told:?}"
    );
    let lost = world
        .job(id)
        .await
        .history
        .failures()
        .pop()
        .expect("it was lost");
    assert!(
        lost.retry_in.is_some_and(|waited| waited < Span::secs(2)),
        "and in its history: {lost:?}"
    );

    // Other processes run it as well: the loss was made up for.
    for (seed, name) in [(2, "two"), (3, "three")] {
        let process = world.process(seed);
        let worker = process
            .worker(name)
            .handle_raw("q", puts_off)
            .queue("q", busy())
            .start();
        let worker = worker.expect("started");
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert!(stopped(worker).await.started > 1);
    }
    assert_eq!(meters.told(RERUNS).len(), 1);

    let dying = world.process(4);
    let stuck = |_: Run| std::future::pending::<Result<(), RunError>>();
    let worker = dying
        .worker("four")
        .handle_raw("q", stuck)
        .queue("q", busy())
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Running).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    dying.line.set_down(true);
    drop(worker);
    let last = world.process(5);
    let worker = last
        .worker("five")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Done).await;
    stopped(worker).await;
    let told = meters.told(RERUNS);
    assert!(told.len() == 2 && told[1] < 2.0, "another loss: {told:?}");
    assert_eq!(
        meters.counted("backstop_recovered_total{outcome=charged,queue=q}"),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn how_long_an_expired_lease_waits_is_told_also_during_grace_and_without_the_store() {
    let (world, meters) = (World::new(), Meters::default());
    let id = world.push("a").await;
    let dying = world.process(1);
    let stuck = |_: Run| std::future::pending::<Result<(), RunError>>();
    let worker = dying
        .worker("one")
        .handle_raw("q", stuck)
        .queue("q", busy())
        .start()
        .expect("started");
    world.state_becomes(id, JobState::Running).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    dying.line.set_down(true);
    drop(worker);
    tokio::time::sleep(Duration::from_mins(10)).await;

    let _listening = meters.listen();
    let living = world.process(2);
    let worker = living
        .worker("two")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .queue("q", busy())
        .start();
    let worker = worker.expect("started");
    let says = async |after: u64| {
        tokio::time::sleep(Duration::from_secs(after)).await;
        meters.says(OLDEST).expect("it is told")
    };
    let at_first = says(5).await;
    assert!(
        (585.0..=606.0).contains(&at_first),
        "ten minutes and a lease less: {at_first}"
    );
    living.line.set_down(true);
    let grown = says(100).await - at_first;
    assert!(
        (95.0..=101.0).contains(&grown),
        "it grows without the store: {grown}"
    );
    living.line.set_down(false);
    let during_grace = says(5).await - at_first;
    assert!(
        (100.0..=106.0).contains(&during_grace),
        "and is asked for again: {during_grace}"
    );
    world.state_becomes(id, JobState::Done).await;
    assert!(says(2).await.abs() < f64::EPSILON, "none is left");
    stopped(worker).await;
}
