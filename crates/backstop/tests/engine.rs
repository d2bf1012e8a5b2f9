//! The engine's loops on a store in memory and on virtual time: nothing here waits for a real
//! clock, except where a thread of its own is what is tested.

use backstop::core::amend::{AmendAction, Selection};
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::plan::QueueQuota;
use backstop::core::port::{AmendJobsRequest, Claim, JobStore, OperatorStore, QueueState};
use backstop::core::verdict::EndReason;
use backstop::core::{Job, JobState, Lease, Time};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, Clock, JobId, Priority, QueueName, QueueSettings, RandomSource, RetryPolicy, Run,
    RunError, RunningWorker, ServicePlacement, Span, WorkerBuilder, WorkerTiming,
};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::{Flaky, Odds};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Setup {
    store: Arc<MemoryStore>,
    backstop: Backstop,
}

fn setup() -> Setup {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(
        Arc::<MemoryStore>::clone(&store),
        clock,
        RandomSource::seeded(7),
    );
    Setup { store, backstop }
}

impl Setup {
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
        self.found(id).await.expect("the job is there")
    }

    async fn found(&self, id: JobId) -> Option<Job> {
        self.store
            .job(id, self.backstop.now())
            .await
            .expect("the store answers")
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

    fn worker(&self, name: &str) -> WorkerBuilder {
        self.backstop
            .worker()
            .name(name)
            .services(ServicePlacement::CallersRuntime)
    }
}

fn one_at_a_time() -> QueueSettings {
    QueueSettings {
        concurrency: 1,
        prefetch: Some(0),
        ..QueueSettings::default()
    }
}

async fn stopped(worker: RunningWorker) -> backstop::WorkerProgress {
    worker.stop();
    worker.stopped().await
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_once_and_is_done() {
    let setup = setup();
    let id = setup.push("a").await;
    let worker = setup
        .worker("w")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!((job.attempt, job.history.failures().len()), (1, 0));
    let progress = stopped(worker).await;
    assert_eq!((progress.started, progress.done), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failure_waits_and_is_tried_again_until_it_dies() {
    let setup = setup();
    let id = setup.push("a").await;
    let failing = |run: Run| async move { Err(RunError::retry(format!("boom {}", run.attempt()))) };
    let settings = QueueSettings {
        retry: RetryPolicy::default(),
        ..QueueSettings::default()
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", failing)
        .queue("q", settings)
        .start()
        .expect("started");
    let waiting = setup.state_becomes(id, JobState::Retrying).await;
    let wait = waiting.run_at.since(setup.backstop.now());
    assert!(
        wait <= Span::millis(1_250),
        "after 1 s and up to a quarter more: {wait}"
    );
    let job = setup.state_becomes(id, JobState::Dead).await;
    assert_eq!(
        (job.attempt, job.reason),
        (3, Some(EndReason::AttemptsExhausted))
    );
    let messages: Vec<_> = job
        .history
        .failures()
        .into_iter()
        .map(|failure| failure.error.message)
        .collect();
    assert_eq!(messages, ["boom 1", "boom 2", "boom 3"]);
    stopped(worker).await;
}

#[tokio::test]
async fn a_job_of_a_queue_that_is_told_nothing_outlives_an_outage_of_an_hour() {
    let test = backstop::testing::start();
    let began_at = test.backstop.now();
    let id = test.backstop.draft("q").push().await.expect("pushed").id;
    let job = async || {
        test.backstop
            .job(id)
            .await
            .expect("memory answers")
            .expect("the job is there")
    };
    while job().await.state != JobState::Done {
        let is_back = test.backstop.now().since(began_at) >= Span::hours(1);
        let handler = move |_: Run| async move {
            if is_back {
                Ok(())
            } else {
                Err(RunError::retry("the service is down"))
            }
        };
        test.backstop
            .worker()
            .handle_raw("q", handler)
            .drain()
            .await
            .expect("drained");
        let now = job().await;
        assert_ne!(now.state, JobState::Dead, "after {} runs", now.attempt);
        test.clock.advance(now.run_at.since(test.backstop.now()));
    }
    assert!(
        test.backstop.now().since(began_at) < Span::hours(3),
        "it runs soon after the service is back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_with_its_message() {
    let setup = setup();
    let id = setup.push("a").await;
    let panicking = |run: Run| async move {
        assert!(run.attempt() > 1, "first run");
        Ok(())
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", panicking)
        .start()
        .expect("started");
    let job = setup.state_becomes(id, JobState::Done).await;
    let failures = job.history.failures();
    assert_eq!(failures[0].error.message, "first run");
    assert_eq!(failures[0].error.error_type.as_deref(), Some("Panic"));
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_past_its_time_is_stopped_and_fails() {
    let setup = setup();
    let id = setup.push("a").await;
    let settings = QueueSettings {
        timeout: Some(Span::secs(2)),
        retry: RetryPolicy::from_json(br#"{"kind":"constant","every":"1s","max_attempts":1}"#)
            .expect("a policy"),
        ..one_at_a_time()
    };
    let endless = |_: Run| std::future::pending::<Result<(), RunError>>();
    let worker = setup
        .worker("w")
        .handle_raw("q", endless)
        .queue("q", settings)
        .start()
        .expect("started");
    let job = setup.state_becomes(id, JobState::Dead).await;
    assert_eq!(
        job.history.failures()[0].error.error_type.as_deref(),
        Some("Timeout")
    );
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn no_more_run_at_once_than_the_queue_allows() {
    let setup = setup();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for n in 0..50 {
        setup.push(&n.to_string()).await;
    }
    let seen = (Arc::clone(&now), Arc::clone(&most));
    let handler = move |_: Run| {
        let (now, most) = seen.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    };
    let settings = QueueSettings {
        concurrency: 3,
        ..QueueSettings::default()
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", handler)
        .queue("q", settings)
        .start()
        .expect("started");
    setup
        .state_becomes(JobId::named("49"), JobState::Done)
        .await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn urgent_jobs_go_first() {
    let setup = setup();
    for (n, priority) in [
        Priority::Low,
        Priority::Normal,
        Priority::Critical,
        Priority::High,
    ]
    .into_iter()
    .enumerate()
    {
        setup
            .backstop
            .draft("q")
            .id(&n.to_string())
            .priority(priority)
            .push()
            .await
            .expect("pushed");
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let handler = move |run: Run| {
        seen.lock().unwrap().push(run.id());
        async { Ok(()) }
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", handler)
        .queue("q", one_at_a_time())
        .start()
        .expect("started");
    setup.state_becomes(JobId::named("0"), JobState::Done).await;
    assert_eq!(
        *order.lock().unwrap(),
        ["2", "3", "1", "0"].map(JobId::named)
    );
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_job_runs_at_its_time_and_not_before() {
    let setup = setup();
    let due = setup.backstop.now().after(Span::millis(12_345));
    let ran_at = Arc::new(Mutex::new(None));
    let (seen, backstop) = (Arc::clone(&ran_at), setup.backstop.clone());
    let handler = move |_: Run| {
        *seen.lock().unwrap() = Some(backstop.now());
        async { Ok(()) }
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", handler)
        .start()
        .expect("started");
    let id = setup
        .backstop
        .draft("q")
        .at(due)
        .push()
        .await
        .expect("pushed")
        .id;
    setup.state_becomes(id, JobState::Done).await;
    let late = ran_at.lock().unwrap().expect("it ran").since(due);
    assert!(late <= Span::millis(100), "{late}");
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_waits_for_its_resumption() {
    let setup = setup();
    let queue = QueueName::new("q").expect("a name");
    setup
        .backstop
        .store()
        .set_queue_state(queue.clone(), QueueState::Paused, setup.backstop.now())
        .await
        .expect("paused");
    let id = setup.push("a").await;
    let worker = setup
        .worker("w")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(setup.job(id).await.state, JobState::Ready);
    setup
        .backstop
        .store()
        .set_queue_state(queue, QueueState::Active, setup.backstop.now())
        .await
        .expect("resumed");
    setup.state_becomes(id, JobState::Done).await;
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_snooze_costs_no_attempt() {
    let setup = setup();
    let id = setup.push("a").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let handler = move |_: Run| {
        let call = seen.fetch_add(1, Ordering::SeqCst);
        async move {
            if call < 5 {
                Err(RunError::snooze(Span::secs(30)))
            } else {
                Ok(())
            }
        }
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", handler)
        .start()
        .expect("started");
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!((job.attempt, calls.load(Ordering::SeqCst)), (1, 6));
    stopped(worker).await;
}

impl Setup {
    /// Looks at a job again and again until it stands before this gate.
    async fn gate_becomes(&self, id: JobId, gate: &str) -> backstop::why::ExplainedJob {
        for _ in 0..10_000 {
            let explained = self
                .backstop
                .why(id, |_| None)
                .await
                .expect("the store answers");
            if explained.explanation.gate() == gate {
                return explained;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        unreachable!("never {gate}: {:?}", self.backstop.why(id, |_| None).await);
    }
}

#[tokio::test(start_paused = true)]
async fn why_names_a_kind_that_no_live_worker_knows_until_one_does() {
    let setup = setup();
    let id = setup
        .backstop
        .draft("q")
        .kind("theirs")
        .push()
        .await
        .expect("pushed")
        .id;
    assert_eq!(setup.gate_becomes(id, "no_worker").await.id, id);
    let ours = setup
        .worker("ours")
        .handle_kind("q", "ours", Nothing)
        .start()
        .expect("started");
    let explained = setup.gate_becomes(id, "unknown_kind").await;
    let (details, told) = (
        explained.explanation.details(),
        explained.explanation.to_string(),
    );
    assert_eq!(
        (&details["kind"], &details["workers"]),
        (&"theirs".into(), &1.into())
    );
    assert!(told.contains("has no handler for that"), "{told}");
    let anything = setup
        .worker("any")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    setup.state_becomes(id, JobState::Done).await;
    stopped(ours).await;
    stopped(anything).await;
    let next = setup
        .backstop
        .draft("q")
        .kind("theirs")
        .push()
        .await
        .expect("pushed")
        .id;
    setup.gate_becomes(next, "no_worker").await;
}

#[tokio::test(start_paused = true)]
async fn why_names_the_twin_of_a_dead_job() {
    let setup = setup();
    let push = || setup.backstop.draft("q").unique_key("order-7").push();
    let first = push().await.expect("pushed").id;
    let dying = |_: Run| async { Err(RunError::dead("no")) };
    let worker = setup
        .worker("w")
        .handle_raw("q", dying)
        .start()
        .expect("started");
    setup.state_becomes(first, JobState::Dead).await;
    stopped(worker).await;
    setup.gate_becomes(first, "dead").await;
    let twin = push().await.expect("pushed").id;
    let details = setup
        .gate_becomes(first, "unique_twin")
        .await
        .explanation
        .details();
    assert_eq!(
        (&details["twin"], &details["twin_state"]),
        (&twin.to_string().into(), &"ready".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_knows_where_its_job_was_pushed_from() {
    let setup = setup();
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = Arc::clone(&seen);
        move |run: Run| {
            seen.lock().expect("whole").push(run.traceparent());
            async { Ok(()) }
        }
    };
    let traced = setup
        .backstop
        .draft("q")
        .trace(traceparent.parse().expect("a traceparent"));
    let traced = traced.push().await.expect("pushed").id;
    let worker = setup
        .worker("w")
        .queue("q", one_at_a_time())
        .handle_raw("q", handler)
        .start()
        .expect("started");
    setup.state_becomes(traced, JobState::Done).await;
    let plain = setup.push("plain").await;
    setup.state_becomes(plain, JobState::Done).await;
    stopped(worker).await;
    assert_eq!(
        *seen.lock().expect("whole"),
        [Some(traceparent.to_owned()), None]
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_nobody_here_knows_is_left_for_others() {
    let setup = setup();
    let id = setup
        .backstop
        .draft("q")
        .kind("theirs")
        .push()
        .await
        .expect("pushed")
        .id;
    let ours = setup
        .worker("ours")
        .handle_kind("q", "ours", Nothing)
        .start()
        .expect("started");
    setup.state_becomes(id, JobState::Scheduled).await;
    let theirs = setup
        .worker("theirs")
        .handle_kind("q", "theirs", Nothing)
        .start()
        .expect("started");
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!(job.attempt, 1, "being passed on costs nothing");
    stopped(ours).await;
    stopped(theirs).await;
}

struct Nothing;

#[async_trait::async_trait]
impl backstop::Handler for Nothing {
    async fn run(&self, _: Run) -> backstop::core::verdict::RunEnding {
        backstop::core::verdict::RunEnding::Done
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_what_runs_and_gives_back_what_waits() {
    let setup = setup();
    let (first, second) = (setup.push("first").await, setup.push("second").await);
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    };
    let settings = QueueSettings {
        concurrency: 1,
        prefetch: Some(5),
        ..QueueSettings::default()
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", slow)
        .queue("q", settings)
        .start()
        .expect("started");
    setup.state_becomes(second, JobState::Running).await;
    let progress = stopped(worker).await;
    assert_eq!(
        (progress.done, progress.released, progress.started),
        (1, 1, 1)
    );
    assert_eq!(setup.job(first).await.state, JobState::Done);
    let given_back = setup.job(second).await;
    assert_eq!((given_back.state, given_back.attempt), (JobState::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stopped_serves_nothing() {
    let setup = setup();
    let worker = setup
        .worker("w")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let serving = async || {
        let workers = setup
            .store
            .workers(Span::minutes(1), setup.backstop.now())
            .await
            .expect("listed");
        workers
            .iter()
            .filter(|worker| !worker.queues.is_empty())
            .count()
    };
    assert_eq!(serving().await, 1);
    stopped(worker).await;
    assert_eq!(serving().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_calls_off_what_runs_and_refunds_it() {
    let setup = setup();
    let id = setup.push("a").await;
    let endless = |_: Run| std::future::pending::<Result<(), RunError>>();
    let worker = setup
        .worker("w")
        .handle_raw("q", endless)
        .start()
        .expect("started");
    setup.state_becomes(id, JobState::Running).await;
    worker.stop();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        setup.job(id).await.state,
        JobState::Running,
        "the first signal waits"
    );
    worker.force();
    worker.stopped().await;
    let job = setup.job(id).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dead_workers_job_runs_again_within_the_bound() {
    let setup = setup();
    let id = setup.push("a").await;
    assert_eq!(claim_and_vanish(&setup).await, 1);
    let died_at = setup.backstop.now();
    let worker = setup
        .worker("next")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    let bound = worker.recovery_bound();
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!(
        (job.attempt, job.lost_leases),
        (1, 1),
        "a crash is not an attempt"
    );
    assert!(job.history.failures()[0].error.message.contains("doomed"));
    assert!(job.finished_at.expect("done").since(died_at) <= bound);
    assert_eq!(stopped(worker).await.recovered, 1);
}

/// Claims as a worker does, and then nothing more: no beat, no settlement. How many jobs it got.
async fn claim_and_vanish(setup: &Setup) -> usize {
    let number = LeaseNumber::draw(setup.backstop.now().as_micros().unsigned_abs());
    claimed(setup, number).await
}

async fn claim_numbered(setup: &Setup, number: u64) -> LeaseNumber {
    let number = LeaseNumber::draw(number);
    assert_eq!(claimed(setup, number).await, 1);
    number
}

async fn claimed(setup: &Setup, number: LeaseNumber) -> usize {
    let now = setup.backstop.now();
    let wants = vec![QueueQuota {
        queue: QueueName::new("q").expect("a name"),
        max: 10,
    }];
    let until = now.after(QueueSettings::default().lease);
    let claim = Claim {
        number,
        worker: WorkerName::new("doomed"),
        until,
        wants,
    };
    setup
        .store
        .claim(claim, now)
        .await
        .expect("claimed")
        .runs
        .len()
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_is_called_off_where_it_runs() {
    let setup = setup();
    let id = setup.push("a").await;
    let called_off = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&called_off);
    let handler = move |run: Run| {
        let seen = Arc::clone(&seen);
        async move {
            run.cancelled().await;
            seen.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", handler)
        .start()
        .expect("started");
    setup.state_becomes(id, JobState::Running).await;
    let amendment = AmendJobsRequest {
        selection: Selection::Ids(vec![id]),
        action: AmendAction::Cancel,
        only: None,
        cursor: None,
        max: 1,
    };
    setup
        .backstop
        .store()
        .amend(amendment, setup.backstop.now())
        .await
        .expect("amended");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(
        called_off.load(Ordering::SeqCst),
        1,
        "at the latest with the next beat"
    );
    assert_eq!(setup.job(id).await.state, JobState::Cancelled);
    let progress = stopped(worker).await;
    assert_eq!((progress.done, progress.lost > 0), (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_that_beats_is_not_run_twice() {
    let setup = setup();
    let id = setup.push("a").await;
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok(())
    };
    let one = setup
        .worker("one")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    let two = setup
        .worker("two")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!((job.attempt, job.lost_leases), (1, 0));
    let started = stopped(one).await.started + stopped(two).await.started;
    assert_eq!(started, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_pruned_when_its_time_is_over() {
    let setup = setup();
    let id = setup.push("a").await;
    let worker = setup
        .worker("w")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    setup.state_becomes(id, JobState::Done).await;
    tokio::time::sleep(Duration::from_secs(3_500)).await;
    assert_eq!(setup.job(id).await.state, JobState::Done);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(setup.found(id).await, None);
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_queue_is_polled_however_busy_its_neighbour_is() {
    let memory = Arc::new(MemoryStore::new());
    // Hints may be late, lost or never come.
    let no_hints = Odds {
        lost_hint: 1.0,
        ..Odds::default()
    };
    let store = Arc::new(Flaky::with_odds(
        Arc::<MemoryStore>::clone(&memory),
        1,
        no_hints,
    ));
    let backstop = Backstop::on(
        store,
        Arc::new(VirtualClock::start()),
        RandomSource::seeded(3),
    );
    let setup = Setup {
        store: memory,
        backstop,
    };
    for n in 0..2_000 {
        setup
            .backstop
            .draft("busy")
            .id(&format!("busy-{n}"))
            .push()
            .await
            .expect("pushed");
    }
    let short = |_: Run| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(())
    };
    let worker = setup
        .worker("w")
        .handle_raw("busy", short)
        .handle_raw("q", |_: Run| async { Ok(()) });
    let worker = worker.start().expect("started");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let id = setup.push("quiet").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        setup.job(id).await.state,
        JobState::Done,
        "within a poll or two"
    );
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_too_long_behind_slow_ones_are_left_to_idle_workers() {
    let setup = setup();
    for n in 0..16 {
        setup.push(&n.to_string()).await;
    }
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(())
    };
    let settings = || QueueSettings {
        concurrency: 8,
        ..QueueSettings::default()
    };
    let first = setup
        .worker("first")
        .handle_raw("q", slow)
        .queue("q", settings())
        .start()
        .expect("started");
    setup
        .state_becomes(JobId::named("15"), JobState::Running)
        .await;
    let second = setup
        .worker("second")
        .handle_raw("q", slow)
        .queue("q", settings())
        .start()
        .expect("started");
    tokio::time::sleep(Duration::from_secs(25)).await;
    let (first, second) = (stopped(first).await, stopped(second).await);
    assert_eq!((first.started, second.started), (8, 8));
    assert_eq!(first.done + second.done, 16);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_destructor_fails_the_run_and_frees_its_handler() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped badly".to_owned()));
        }
    }
    let setup = setup();
    let (id, next) = (
        setup.push("a").await,
        setup
            .backstop
            .draft("q")
            .kind("b")
            .push()
            .await
            .expect("pushed")
            .id,
    );
    let handler = |run: Run| async move {
        if run.kind().as_str() == "default" && run.attempt() == 1 {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let settings = QueueSettings {
        timeout: Some(Span::millis(200)),
        ..one_at_a_time()
    };
    let worker = setup
        .worker("w")
        .handle_raw("q", handler)
        .queue("q", settings)
        .start()
        .expect("started");
    setup.state_becomes(next, JobState::Done).await;
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!(job.history.failures()[0].error.message, "dropped badly");
    stopped(worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_leaves_queues_it_was_not_told_about_alone() {
    let setup = setup();
    let theirs = setup
        .backstop
        .draft("theirs")
        .push()
        .await
        .expect("pushed")
        .id;
    let other = setup
        .worker("other")
        .handle_raw("theirs", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    setup.state_becomes(theirs, JobState::Done).await;
    stopped(other).await;
    let worker = setup
        .worker("w")
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .expect("started");
    // A day in one step: lived through second by second it costs as many looks for work.
    tokio::time::advance(Duration::from_hours(24)).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(setup.job(theirs).await.state, JobState::Done);
    stopped(worker).await;
    let told = setup
        .worker("told")
        .handle_raw("q", |_: Run| async { Ok(()) });
    let told = told
        .queue("theirs", QueueSettings::default())
        .start()
        .expect("started");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        setup.found(theirs).await,
        None,
        "named, so pruned by its shelf"
    );
    stopped(told).await;
}

#[tokio::test(start_paused = true)]
async fn what_never_began_is_not_charged_for_its_neighbours_crashes() {
    let setup = setup();
    let id = setup.push("innocent").await;
    for crash in 1..=5 {
        assert_eq!(claim_and_vanish(&setup).await, 1);
        tokio::time::sleep(Duration::from_secs(16)).await;
        let keeper = setup
            .worker("keeper")
            .handle_raw("other", |_: Run| async { Ok(()) })
            .start()
            .expect("started");
        let job = setup.state_becomes(id, JobState::Ready).await;
        assert_eq!(
            job.lost_leases, 1,
            "crash {crash}: only the first is charged without proof"
        );
        stopped(keeper).await;
    }
}

/// A clock that finds itself an hour behind the store's when it is next told the time.
#[derive(Debug)]
struct LateClock {
    inner: VirtualClock,
    behind: AtomicBool,
}

impl Clock for LateClock {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn follow(&self, _: Time) -> Option<i64> {
        let hour = Span::hours(1).as_micros();
        self.behind.swap(false, Ordering::SeqCst).then(|| {
            self.inner.jump(hour);
            hour
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_moves_forward_costs_no_living_worker_its_jobs() {
    let memory = Arc::new(MemoryStore::new());
    let clock = Arc::new(LateClock {
        inner: VirtualClock::start(),
        behind: AtomicBool::new(false),
    });
    let store = Arc::<MemoryStore>::clone(&memory);
    let setup = Setup {
        store: memory,
        backstop: Backstop::on(
            store,
            Arc::<LateClock>::clone(&clock),
            RandomSource::seeded(5),
        ),
    };
    let id = setup.push("a").await;
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok(())
    };
    let one = setup
        .worker("one")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    let two = setup
        .worker("two")
        .handle_raw("q", slow)
        .start()
        .expect("started");
    setup.state_becomes(id, JobState::Running).await;
    for _ in 0..3 {
        clock.behind.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(
            !clock.behind.load(Ordering::SeqCst),
            "the clock was followed"
        );
    }
    let job = setup.state_becomes(id, JobState::Done).await;
    assert_eq!((job.attempt, job.lost_leases), (1, 0));
    assert_eq!(stopped(one).await.started + stopped(two).await.started, 1);
}

#[tokio::test(start_paused = true)]
async fn what_began_three_times_and_took_its_worker_along_is_dead() {
    let setup = setup();
    let id = setup.push("killer").await;
    for crash in 1..=3 {
        let setup = &setup;
        let number = claim_numbered(setup, crash).await;
        let lease = Lease {
            queue: QueueName::new("q").expect("a name"),
            job: id,
            number,
        };
        assert_eq!(
            setup
                .store
                .begin(vec![lease], setup.backstop.now())
                .await
                .expect("noted"),
            []
        );
        tokio::time::sleep(Duration::from_secs(16)).await;
        let keeper = setup
            .worker("keeper")
            .handle_raw("other", |_: Run| async { Ok(()) })
            .start()
            .expect("started");
        setup
            .state_becomes(
                id,
                if crash < 3 {
                    JobState::Ready
                } else {
                    JobState::Dead
                },
            )
            .await;
        stopped(keeper).await;
    }
    assert_eq!(setup.job(id).await.reason, Some(EndReason::CrashedWorker));
}

#[test]
fn when_its_runtime_goes_away_a_worker_lets_go_of_its_jobs() {
    let memory = Arc::new(MemoryStore::new());
    let real = || {
        Backstop::on(
            Arc::<MemoryStore>::clone(&memory),
            Arc::new(RealClock),
            RandomSource::from_system(),
        )
    };
    let settings = || QueueSettings {
        lease: Span::millis(500),
        ..one_at_a_time()
    };
    let timing = WorkerTiming {
        maintenance_interval: Span::millis(100),
        poll: Span::millis(100),
        ..WorkerTiming::default()
    };
    let endless = |_: Run| std::future::pending::<Result<(), RunError>>();
    let doomed = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let id = doomed.block_on(async {
        let backstop = real();
        let id = backstop.draft("q").push().await.expect("pushed").id;
        let worker = backstop
            .worker()
            .handle_raw("q", endless)
            .queue("q", settings())
            .timing(timing);
        std::mem::forget(worker.start().expect("started"));
        until_state(&backstop, id, JobState::Running).await;
        id
    });
    doomed.shutdown_background();
    let next = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    next.block_on(async {
        let backstop = real();
        let worker = backstop
            .worker()
            .handle_raw("q", |_: Run| async { Ok(()) })
            .queue("q", settings());
        let worker = worker.timing(timing).start().expect("started");
        until_state(&backstop, id, JobState::Done).await;
        stopped(worker).await;
    });
}

#[derive(Debug)]
struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Time {
        let since_1970 = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970");
        Time::default().after(since_1970.into())
    }
}

async fn until_state(backstop: &Backstop, id: JobId, state: JobState) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while backstop
        .store()
        .job(id, backstop.now())
        .await
        .expect("an answer")
        .expect("there")
        .state
        != state
    {
        assert!(std::time::Instant::now() < deadline, "never {state}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_handler_that_blocks_its_thread_does_not_stop_the_beat() {
    // Real time and one thread: the runtime is blocked for four leases while the service thread
    // beats.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let setup = setup();
        let id = setup.push("a").await;
        let blocking = |_: Run| async {
            std::thread::sleep(Duration::from_millis(2_400));
            Ok(())
        };
        let settings = QueueSettings {
            lease: Span::millis(600),
            ..one_at_a_time()
        };
        let timing = WorkerTiming {
            maintenance_interval: Span::millis(100),
            poll: Span::millis(100),
            ..WorkerTiming::default()
        };
        let worker = setup
            .backstop
            .worker()
            .name("blocks")
            .handle_raw("q", blocking)
            .queue("q", settings);
        let worker = worker.timing(timing).start().expect("started");
        let job = setup.state_becomes(id, JobState::Done).await;
        assert_eq!((job.attempt, job.lost_leases), (1, 0));
        stopped(worker).await;
    });
}

/// A clock that fails the services only.
#[derive(Debug)]
struct Broken(VirtualClock);

impl Clock for Broken {
    fn now(&self) -> Time {
        assert_ne!(
            std::thread::current().name(),
            Some("backstop-services"),
            "the clock is broken"
        );
        self.0.now()
    }
}

#[tokio::test]
async fn a_worker_whose_services_die_stops_instead_of_going_on_without_beats() {
    let clock = Arc::new(Broken(VirtualClock::start()));
    let backstop = Backstop::on(Arc::new(MemoryStore::new()), clock, RandomSource::seeded(7));
    let worker = backstop
        .worker()
        .services(ServicePlacement::OwnThread)
        .handle_raw("q", |_: Run| async { Ok(()) });
    let mut running = worker.start().expect("it starts");
    tokio::time::timeout(Duration::from_mins(1), running.ended())
        .await
        .expect("it stops by itself");
}

/// A worker on a store that refuses what it is told to, and how many runs it has begun.
fn on_a_strict_store() -> (Arc<Flaky>, Backstop, RunningWorker, Arc<AtomicUsize>) {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(Arc::<Flaky>::clone(&store), clock, RandomSource::seeded(7));
    let runs = Arc::new(AtomicUsize::new(0));
    let worker = backstop.worker().services(ServicePlacement::CallersRuntime);
    let settings = QueueSettings {
        concurrency: 4,
        ..QueueSettings::default()
    };
    let counted = Arc::clone(&runs);
    let handler = move |_: Run| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok::<(), RunError>(())
        }
    };
    let running = worker
        .handle_raw("q", handler)
        .queue("q", settings)
        .start()
        .expect("it starts");
    (store, backstop, running, runs)
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_claims_are_refused_for_good_stops_and_says_why() {
    let (store, _backstop, mut running, _) = on_a_strict_store();
    let patience = Duration::from_mins(10);
    store.set_down(true);
    assert!(
        tokio::time::timeout(patience, running.ended())
            .await
            .is_err(),
        "an outage passes"
    );
    assert_eq!(running.permission_error(), None);
    store.set_down(false);
    store.forbid("claim");
    tokio::time::timeout(patience, running.ended())
        .await
        .expect("it stops");
    let refused = running.permission_error().expect("it says why");
    assert!(
        refused.to_string().contains("permission denied"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn rights_that_are_changed_half_way_stop_no_worker() {
    let (store, backstop, mut running, runs) = on_a_strict_store();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for method in ["claim", "beat", "settle"] {
        let before = runs.load(Ordering::SeqCst);
        store.forbid(method);
        for n in 0..3 {
            backstop
                .draft("q")
                .id(&format!("{method} {n}"))
                .push()
                .await
                .expect("pushed");
        }
        let five = Duration::from_secs(5);
        assert!(
            tokio::time::timeout(five, running.ended()).await.is_err(),
            "{method}"
        );
        store.allow(method);
        tokio::time::sleep(Duration::from_mins(2)).await;
        let again = runs.load(Ordering::SeqCst) - before;
        // What ended and was not taken is told again, and kept meanwhile: nothing runs twice for
        // it.
        assert!(
            if method == "settle" {
                again == 3
            } else {
                again >= 3
            },
            "{again} runs: {method}"
        );
    }
    assert_eq!(running.permission_error(), None);
    store.forbid("claim");
    tokio::time::timeout(Duration::from_mins(1), running.ended())
        .await
        .expect("it stops");
    assert!(running.permission_error().is_some() && running.was_served());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_claim_and_not_settle_runs_little_and_stops() {
    let (store, backstop, mut running, runs) = on_a_strict_store();
    for n in 0..100 {
        backstop
            .draft("q")
            .id(&n.to_string())
            .push()
            .await
            .expect("pushed");
    }
    store.forbid("settle");
    tokio::time::timeout(Duration::from_mins(2), running.ended())
        .await
        .expect("it stops");
    let refused = running.permission_error().expect("it says why");
    assert!(
        refused.to_string().contains("permission denied"),
        "{refused}"
    );
    let runs = runs.load(Ordering::SeqCst);
    assert!(
        (1..50).contains(&runs),
        "{runs} runs whose effects may come twice"
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_beats_are_refused_stops() {
    let (store, _backstop, mut running, _) = on_a_strict_store();
    store.forbid("beat");
    tokio::time::timeout(Duration::from_mins(2), running.ended())
        .await
        .expect("it stops");
    assert!(running.permission_error().is_some());
}
