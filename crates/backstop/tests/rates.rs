//! Rate limits of queues, shared by all workers: on a store in memory, and what is shared on every
//! store, by a clock that is moved.

use backstop::core::rate::RateLimit;
use backstop::core::{Job, JobState};
use backstop::testing::{self, TestBackstop, VirtualClock};
use backstop::{
    Backstop, Clock, JobId, ManualClock, QueueSettings, RandomSource, Run, RunningWorker,
    ServicePlacement, Span, Time,
};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::{Fault, Flaky};
use backstop_testkit::servers;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn limited(limit: RateLimit) -> QueueSettings {
    QueueSettings {
        concurrency: 4,
        prefetch: Some(4),
        ..QueueSettings::default()
    }
    .rate_limited(limit)
}

fn five_a_minute() -> RateLimit {
    RateLimit::new(5, Span::secs(60)).over(Span::minutes(5))
}

async fn push(backstop: &Backstop, jobs: usize) {
    for n in 0..jobs {
        backstop
            .draft("q")
            .id(&n.to_string())
            .push()
            .await
            .expect("pushed");
    }
}

async fn job(backstop: &Backstop, n: usize) -> Job {
    backstop
        .job(JobId::named(&n.to_string()))
        .await
        .expect("memory answers")
        .expect("the job is there")
}

async fn count(backstop: &Backstop, state: JobState) -> u64 {
    let queues = backstop
        .store()
        .queues(backstop.now())
        .await
        .expect("memory answers");
    queues.iter().map(|queue| queue.counts.of(state)).sum()
}

/// Runs what is ready, and answers how many were done.
async fn drained(test: &TestBackstop, settings: QueueSettings) -> u64 {
    let worker = test
        .backstop
        .worker()
        .handle_raw("q", |_: Run| async { Ok(()) })
        .queue("q", settings);
    worker.drain().await.expect("drained").done
}

#[tokio::test]
async fn what_is_over_the_limit_goes_back_and_is_not_charged() {
    let test = testing::start();
    push(&test.backstop, 8).await;
    assert_eq!(drained(&test, limited(five_a_minute())).await, 5);
    let late = job(&test.backstop, 7).await;
    assert_eq!(
        (late.state, late.attempt, late.lost_leases),
        (JobState::Scheduled, 0, 0)
    );
    assert_eq!(late.run_at.since(test.backstop.now()), Span::minutes(5));
    test.clock.advance(Span::minutes(4));
    assert_eq!(
        drained(&test, limited(five_a_minute())).await,
        0,
        "they stay away as long as they were told to"
    );
    test.clock.advance(Span::minutes(1));
    assert_eq!(drained(&test, limited(five_a_minute())).await, 3);
}

#[tokio::test]
async fn without_over_a_job_over_the_limit_goes_back_until_there_is_room() {
    let test = testing::start();
    push(&test.backstop, 40).await;
    let limit = RateLimit::new(5, Span::secs(1));
    let began_at = test.backstop.now();
    let mut done = 0;
    for round in 0..=7_000 / 200 {
        done += drained(&test, limited(limit)).await;
        assert_eq!(done, 5 + round, "{} ms after the start", round * 200);
        let room_at = test.backstop.now().after(Span::millis(200));
        for n in 0..40 {
            let job = job(&test.backstop, n).await;
            assert!(
                job.state == JobState::Done || job.run_at <= room_at,
                "{job:?}"
            );
            assert_eq!(job.lost_leases, 0);
        }
        test.clock.advance(Span::millis(200));
    }
    assert_eq!(
        (done, test.backstop.now().since(began_at)),
        (40, Span::millis(7_200))
    );
}

#[tokio::test]
async fn two_workers_share_one_limit() {
    let test = testing::start();
    push(&test.backstop, 3).await;
    assert_eq!(drained(&test, limited(five_a_minute())).await, 3);
    for n in 3..8 {
        test.backstop
            .draft("q")
            .id(&n.to_string())
            .push()
            .await
            .expect("pushed");
    }
    assert_eq!(
        drained(&test, limited(five_a_minute())).await,
        2,
        "another worker, the same minute"
    );
    test.clock.advance(Span::secs(12));
    test.backstop
        .draft("q")
        .id("late")
        .push()
        .await
        .expect("pushed");
    assert_eq!(
        drained(&test, limited(five_a_minute())).await,
        1,
        "a fifth of a minute is room for one"
    );
}

/// Two processes on one store, each by a clock that stands still.
struct Pair {
    processes: [Backstop; 2],
    clocks: [Arc<ManualClock>; 2],
}

impl Pair {
    async fn on(address: &str, apart: Span) -> Self {
        let start = Time::from_millis(1_767_225_600_000);
        let clocks = [start, start.after(apart)].map(|time| Arc::new(ManualClock::at(time)));
        let process = async |n: usize| {
            let opened = Backstop::open(address).await.expect("opened");
            let clock = Arc::<ManualClock>::clone(&clocks[n]);
            Backstop::on(
                opened.store().clone(),
                clock,
                RandomSource::seeded(n as u64),
            )
        };
        Self {
            processes: [process(0).await, process(1).await],
            clocks: clocks.clone(),
        }
    }

    fn advance(&self, span: Span) {
        for clock in &self.clocks {
            clock.advance(span);
        }
    }
}

/// A pair on each kind of store, with clocks so far apart; the folder is that of SQLite's file.
async fn pairs(apart: Span) -> (tempfile::TempDir, Vec<Pair>) {
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite:{}", folder.path().join("rates.db").display());
    let (postgres, redis) = (
        servers::postgres().fresh_url(),
        servers::redis().fresh_url(),
    );
    let mut pairs = Vec::new();
    for address in [sqlite, postgres, redis, servers::cluster().fresh_url()] {
        pairs.push(Pair::on(&address, apart).await);
    }
    (folder, pairs)
}

/// Runs what is ready in both processes at once; answers how many were done.
async fn drained_by_both(pair: &[Backstop; 2]) -> u64 {
    let worked = |backstop: &Backstop| {
        let worker = backstop.worker().handle_raw("q", |_: Run| async { Ok(()) });
        worker.queue("q", limited(five_a_minute())).drain()
    };
    let (one, two) = tokio::join!(worked(&pair[0]), worked(&pair[1]));
    one.expect("drained").done + two.expect("drained").done
}

#[tokio::test]
async fn on_every_store_two_processes_share_one_limit_and_what_is_over_it_is_not_charged() {
    let (_folder, pairs) = pairs(Span::ZERO).await;
    for both in pairs {
        let pair = &both.processes;
        push(&pair[0], 12).await;
        let mut done = 0;
        for expected in [5, 10, 12] {
            done += drained_by_both(pair).await;
            assert_eq!(done, expected, "{pair:?}");
            for n in 0..12 {
                let job = job(&pair[1], n).await;
                let (attempts, wait) = (job.attempt, job.run_at.since(both.clocks[0].now()));
                match job.state {
                    JobState::Done => assert_eq!(attempts, 1),
                    JobState::Scheduled => {
                        assert_eq!((attempts, wait), (0, Span::minutes(5)), "{job:?}");
                    }
                    _ => unreachable!("neither done nor put off: {job:?}"),
                }
                assert_eq!(job.lost_leases, 0);
            }
            both.advance(Span::minutes(5));
        }
    }
}

#[tokio::test]
async fn on_every_store_two_processes_whose_clocks_differ_get_no_more_than_the_limit() {
    let (_folder, pairs) = pairs(Span::millis(400)).await;
    for pair in pairs {
        push(&pair.processes[0], 40).await;
        // Ten at once and ten a second, for two seconds, asked for in turn.
        let limit = RateLimit::new(10, Span::secs(1)).over(Span::millis(50));
        let mut done = 0;
        for turn in 0..40 {
            let worker = pair.processes[turn % 2]
                .worker()
                .handle_raw("q", |_: Run| async { Ok(()) });
            done += worker
                .queue("q", limited(limit))
                .drain()
                .await
                .expect("drained")
                .done;
            pair.advance(Span::millis(50));
        }
        let most = 10 + 20 + 4;
        assert!(
            (25..=most).contains(&done),
            "{done} of at most {most}: {:?}",
            pair.processes
        );
    }
}

#[tokio::test]
async fn nothing_runs_without_leave() {
    let memory = Arc::new(MemoryStore::new());
    let flaky = Arc::new(Flaky::new(memory, 1));
    let clock = Arc::new(ManualClock::at(Time::from_millis(1_000_000)));
    let backstop = Backstop::on(Arc::<Flaky>::clone(&flaky), clock, RandomSource::seeded(1));
    push(&backstop, 1).await;
    // Seizing, promoting and claiming go well; what was taken before cannot be read.
    for fault in [
        Fault::DelayBefore,
        Fault::DelayBefore,
        Fault::DelayBefore,
        Fault::Refused,
    ] {
        flaky.next_call(fault);
    }
    let worker = backstop.worker().handle_raw("q", |_: Run| async { Ok(()) });
    let progress = worker
        .queue("q", limited(five_a_minute()))
        .drain()
        .await
        .expect("drained");
    assert_eq!(
        (
            progress.started,
            progress.released,
            flaky.injected(Fault::Refused)
        ),
        (0, 1, 1)
    );
    let job = job(&backstop, 0).await;
    assert_eq!((job.state, job.attempt), (JobState::Scheduled, 0));
    assert_eq!(
        job.run_at.since(backstop.now()),
        Span::secs(1),
        "it was not over the limit"
    );
}

struct Crew {
    backstop: Backstop,
    workers: Vec<RunningWorker>,
    started: Arc<AtomicUsize>,
}

impl Crew {
    /// Two workers on virtual time.
    fn start(limit: RateLimit) -> Self {
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(VirtualClock::start());
        let backstop = Backstop::on(store, clock, RandomSource::seeded(3));
        let started = Arc::new(AtomicUsize::new(0));
        let worker = |name: &str| {
            let seen = Arc::clone(&started);
            let handler = move |_: Run| {
                seen.fetch_add(1, Ordering::SeqCst);
                async { Ok(()) }
            };
            let worker = backstop
                .worker()
                .name(name)
                .services(ServicePlacement::CallersRuntime);
            worker
                .handle_raw("q", handler)
                .queue("q", limited(limit))
                .start()
                .expect("started")
        };
        let workers = vec![worker("one"), worker("two")];
        Self {
            backstop,
            workers,
            started,
        }
    }

    async fn stop(self) {
        for worker in self.workers {
            worker.stop();
            worker.stopped().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_runs_at_the_pace_of_the_limit_and_stays_in_line() {
    let crew = Crew::start(RateLimit::new(10, Span::secs(10)).over(Span::minutes(5)));
    push(&crew.backstop, 200).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let started = crew.started.load(Ordering::SeqCst);
    assert!(
        (65..=70).contains(&started),
        "{started} of at most ten and one a second"
    );
    let put_off = count(&crew.backstop, JobState::Scheduled).await;
    assert!(
        put_off > 0 && put_off <= 16,
        "{put_off}: only what was in hand when the limit was met"
    );
    assert_eq!(
        job(&crew.backstop, 199).await.state,
        JobState::Ready,
        "the rest was not touched"
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(count(&crew.backstop, JobState::Done).await, 200);
    crew.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_queue_costs_its_limit_nothing() {
    let crew = Crew::start(five_a_minute());
    tokio::time::sleep(Duration::from_mins(1)).await;
    push(&crew.backstop, 5).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(crew.started.load(Ordering::SeqCst), 5);
    crew.stop().await;
}
