//! What workers elsewhere are asked for, and what they tell of themselves.

use super::*;
use crate::workers::heartbeat::{WorkerHeartbeat, read_heartbeat, write_heartbeat};
use crate::workers::{WorkerCommandResult, WorkerHealth};
use backstop_core::worker_command::{WorkerCommand, WorkerRun, WorkerState};
use tokio::time::Instant;

/// Gives an order to the worker of these tests.
async fn order(test: &TestBackstop, order: WorkerCommand) -> Option<WorkerCommandResult> {
    test.backstop
        .changes("ada")
        .command_worker(&WorkerName::new("elsewhere"), order)
        .await
        .unwrap()
}

/// One that works, was heard of, and holds nothing.
async fn heard_of(remote: &HttpWorkers<'_>, about: &WorkerDescription) {
    let nothing = QueueName::new("nothing").unwrap();
    remote
        .lease(&LeaseRequest {
            queues: vec![nothing],
            about: about.clone(),
            ..ask(1)
        })
        .await
        .unwrap();
}

fn worker() -> WorkerName {
    WorkerName::new("elsewhere")
}

fn process(pid: u32) -> WorkerDescription {
    WorkerDescription {
        pid: Some(pid),
        ..WorkerDescription::default()
    }
}

fn started(second: i64) -> WorkerDescription {
    WorkerDescription {
        since: Some(Time::from_millis(1_000_000).after(Span::secs(second))),
        ..process(1)
    }
}

#[tokio::test]
async fn a_quieted_worker_gets_nothing_hears_why_and_goes_on_when_that_is_taken_back() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let worker = WorkerName::new("elsewhere");
    heard_of(&remote, &WorkerDescription::default()).await;
    order(&test, WorkerCommand::Quiet).await.unwrap();
    test.clock.advance(Span::secs(2));
    assert!(remote.lease(&ask(1)).await.unwrap().is_empty());
    let beaten = remote
        .beat(&worker, &WorkerDescription::default(), Vec::new(), None)
        .await
        .unwrap();
    assert_eq!(
        beaten,
        HttpBeatResult {
            lost: Vec::new(),
            desired_state: Some(DesiredWorkerState::Quiet)
        }
    );
    order(&test, WorkerCommand::Resume).await.unwrap();
    test.clock.advance(Span::secs(2));
    assert_eq!(remote.lease(&ask(1)).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_job_hears_at_once_that_it_is_to_stop_and_waits_if_it_asks_again() {
    let clock = Arc::new(crate::testing::VirtualClock::start());
    let backstop = Backstop::on(Arc::new(MemoryStore::new()), clock, RandomSource::seeded(1));
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    let patient = LeaseRequest {
        wait: Span::secs(20),
        ..ask(1)
    };
    let ordering = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        backstop
            .changes("ada")
            .command_worker(&patient.worker, WorkerCommand::Stop)
            .await
            .unwrap()
            .unwrap();
    };
    let began = tokio::time::Instant::now();
    let (handed, ()) = tokio::join!(remote.lease(&patient), ordering);
    assert!(handed.unwrap().is_empty());
    assert!(
        began.elapsed() < Duration::from_secs(7),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        remote
            .desired_state(&patient.worker, &patient.about)
            .await
            .unwrap(),
        Some(DesiredWorkerState::Stop)
    );
    let began = tokio::time::Instant::now();
    assert!(remote.lease(&patient).await.unwrap().is_empty());
    assert!(
        began.elapsed() >= Duration::from_secs(20),
        "no worker asks in a circle: {:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_order_is_not_for_the_next_worker_of_the_same_name() {
    // With processes that are told, and without: after a silence.
    for (before, after, silence) in [
        (process(1), process(2), Span::ZERO),
        (process(1), process(2), Span::secs(3)),
        (started(1), started(2), Span::ZERO),
        (started(1), started(2), Span::secs(3)),
        // In a container every run is the same process.
        (process(1), process(1), Span::secs(31)),
        (process(1), WorkerDescription::default(), Span::secs(31)),
        (WorkerDescription::default(), process(1), Span::secs(31)),
        (
            WorkerDescription::default(),
            WorkerDescription::default(),
            Span::secs(31),
        ),
    ] {
        let test = pushed(&["a"]).await;
        let (config, attendance) = (config(""), SeenWorkers::default());
        let remote = test.backstop.http_workers(&config, &attendance);
        heard_of(&remote, &before).await;
        order(&test, WorkerCommand::Stop).await.unwrap();
        test.clock.advance(Span::secs(2));
        // It has heard it, and so does the memory of whoever speaks for it.
        assert_eq!(
            remote.desired_state(&worker(), &before).await.unwrap(),
            Some(DesiredWorkerState::Stop),
            "{before:?}"
        );
        test.clock.advance(silence);
        let handed = remote
            .lease(&LeaseRequest {
                about: after.clone(),
                ..ask(1)
            })
            .await
            .unwrap();
        assert_eq!(handed.len(), 1, "{before:?} {after:?}");
    }
    // The same one goes on hearing it.
    for about in [process(1), started(1), WorkerDescription::default()] {
        let test = pushed(&["a"]).await;
        let (config, attendance) = (config(""), SeenWorkers::default());
        let remote = test.backstop.http_workers(&config, &attendance);
        heard_of(&remote, &about).await;
        order(&test, WorkerCommand::Stop).await.unwrap();
        for _ in 0..5 {
            test.clock.advance(Span::secs(20));
            assert!(
                remote
                    .lease(&LeaseRequest {
                        about: about.clone(),
                        ..ask(1)
                    })
                    .await
                    .unwrap()
                    .is_empty(),
                "{about:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_a_worker_elsewhere_tells_is_put_down_when_it_is_new_and_otherwise_now_and_then() {
    let test = start();
    let store = Arc::new(Counted::new(Arc::new(MemoryStore::new())));
    let backstop = Backstop::on(store.clone(), test.clock.clone(), RandomSource::seeded(1));
    let (config, attendance) = (config(""), SeenWorkers::default());
    let (remote, worker) = (
        backstop.http_workers(&config, &attendance),
        WorkerName::new("elsewhere"),
    );
    let at = |memory: u64, version: &str| WorkerDescription {
        host: Some("h".repeat(1_000)),
        version: Some(version.to_owned()),
        memory: Some(memory << 20),
        ..process(7)
    };
    let mut written = Vec::new();
    for (after, about) in [
        (0, at(10, "1")),
        (1, at(11, "1")),
        (5, at(12, "1")),
        (5, at(13, "1")),
        (10, at(13, "1")),
        (1, at(13, "2")),
    ] {
        test.clock.advance(Span::secs(after));
        store.take_calls();
        remote
            .beat(&worker, &about, Vec::new(), None)
            .await
            .unwrap();
        written.push(store.take_calls().get("swap").copied().unwrap_or_default());
    }
    assert_eq!(written, [1, 0, 0, 1, 0, 1]);
    let told = backstop
        .workers(Span::hours(1))
        .await
        .unwrap()
        .remove(0)
        .about;
    assert_eq!(
        (told.pid, told.memory, told.version.as_deref()),
        (Some(7), Some(13 << 20), Some("2"))
    );
    assert_eq!(
        told.host.unwrap().len(),
        backstop_core::limits::HOST_CHARS_MAX,
        "texts are cut"
    );
    remote
        .beat(
            &WorkerName::new("silent"),
            &WorkerDescription::default(),
            Vec::new(),
            None,
        )
        .await
        .unwrap();
    assert_eq!(
        backstop.workers(Span::hours(1)).await.unwrap()[1].about,
        WorkerDescription::default()
    );
}

#[tokio::test]
async fn nobody_who_goes_by_its_name_undoes_what_a_worker_of_a_process_was_asked_for() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let run = WorkerRun {
        id: "a3f09c".to_owned(),
        since: test.backstop.now(),
    };
    let card =
        WorkerHeartbeat::of_local_worker(process(4711), run.clone(), 1, WorkerState::Working);
    write_heartbeat(&test.backstop, &worker(), &card)
        .await
        .unwrap();
    heard_of(&remote, &WorkerDescription::default()).await;
    order(&test, WorkerCommand::Quiet).await.unwrap();
    for about in [process(1), started(1), WorkerDescription::default()] {
        for silence in [Span::secs(3), Span::secs(31)] {
            test.clock.advance(silence);
            remote
                .beat(&worker(), &about, Vec::new(), None)
                .await
                .unwrap();
            let standing = read_order(&test).await.expect("it stands");
            assert!(standing.is_for(&run), "{about:?} {silence}");
            let kept = read_heartbeat(&test.backstop, &worker())
                .await
                .unwrap()
                .expect("it is there");
            assert_eq!(
                (kept.run.as_ref(), kept.about.pid),
                (Some(&run), Some(4711)),
                "{about:?} {silence}"
            );
        }
    }
    // The next order is for it as well.
    assert_eq!(
        order(&test, WorkerCommand::Stop)
            .await
            .unwrap()
            .desired_state,
        Some(DesiredWorkerState::Stop)
    );
    assert!(read_order(&test).await.unwrap().is_for(&run));
}

async fn read_order(test: &TestBackstop) -> Option<backstop_core::worker_command::ActiveCommand> {
    crate::workers::heartbeat::read_command(&test.backstop, &worker())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_call_that_tells_less_is_of_the_run_that_was_told_last() {
    for told in [process(7), started(7)] {
        let test = pushed(&["a"]).await;
        let (config, attendance) = (config(""), SeenWorkers::default());
        let remote = test.backstop.http_workers(&config, &attendance);
        heard_of(&remote, &told).await;
        order(&test, WorkerCommand::Stop).await.unwrap();
        test.clock.advance(Span::secs(3));
        let less = WorkerDescription {
            version: Some("2".to_owned()),
            ..WorkerDescription::default()
        };
        for about in [WorkerDescription::default(), less] {
            let beaten = remote
                .beat(&worker(), &about, Vec::new(), None)
                .await
                .unwrap();
            assert_eq!(
                beaten.desired_state,
                Some(DesiredWorkerState::Stop),
                "{told:?} {about:?}"
            );
        }
        test.clock.advance(Span::secs(3));
        assert!(
            remote
                .lease(&LeaseRequest {
                    about: told.clone(),
                    ..ask(1)
                })
                .await
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            remote.desired_state(&worker(), &told).await.unwrap(),
            Some(DesiredWorkerState::Stop),
            "{told:?}"
        );
        let shown = test
            .backstop
            .workers(Span::hours(1))
            .await
            .unwrap()
            .remove(0);
        assert_eq!(
            (shown.about.pid, shown.about.version.as_deref()),
            (told.pid, Some("2")),
            "it adds to it"
        );
        assert_eq!(shown.health(test.backstop.now()), WorkerHealth::Stopping);
    }
}

#[tokio::test]
async fn a_worker_that_no_longer_tells_its_process_can_be_ordered() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    heard_of(&remote, &process(7)).await;
    test.clock.advance(Span::minutes(5));
    heard_of(&remote, &WorkerDescription::default()).await;
    order(&test, WorkerCommand::Stop).await.unwrap();
    test.clock.advance(Span::secs(3));
    assert!(remote.lease(&ask(1)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_beat_keeps_its_leases_and_answers_in_time_whatever_becomes_of_the_order() {
    let (backstop, store, clock) = flaky();
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    backstop
        .changes("ada")
        .command_worker(&worker(), WorkerCommand::Quiet)
        .await
        .unwrap()
        .unwrap();
    clock.advance(Span::secs(2));
    assert_eq!(
        remote
            .desired_state(&worker(), &WorkerDescription::default())
            .await
            .unwrap(),
        Some(DesiredWorkerState::Quiet)
    );
    clock.advance(Span::secs(10));
    store.forbid("cells");
    let held = vec![(handed.run.lease.job, Some(handed.token))];
    let beaten = remote
        .beat(&worker(), &WorkerDescription::default(), held, None)
        .await
        .unwrap();
    assert_eq!(
        beaten,
        HttpBeatResult {
            lost: Vec::new(),
            desired_state: Some(DesiredWorkerState::Quiet)
        },
        "what was heard last holds"
    );
    let until = backstop
        .job(JobId::named("a"))
        .await
        .unwrap()
        .unwrap()
        .held_by
        .unwrap()
        .until;
    assert_eq!(until, backstop.now().after(Span::secs(15)));
}

#[tokio::test]
async fn a_beat_through_another_process_leaves_the_worker_the_queues_it_serves() {
    let test = pushed(&["a"]).await;
    let (config, first, other) = (config(""), SeenWorkers::default(), SeenWorkers::default());
    let both = ["q", "r"].map(|name| QueueName::new(name).unwrap());
    let asked = LeaseRequest {
        queues: both.to_vec(),
        ..ask(1)
    };
    let handed = test
        .backstop
        .http_workers(&config, &first)
        .lease(&asked)
        .await
        .unwrap()
        .remove(0);
    let remote = test.backstop.http_workers(&config, &other);
    for held in [vec![(handed.run.lease.job, Some(handed.token))], Vec::new()] {
        test.clock.advance(Span::secs(5));
        remote
            .beat(&worker(), &WorkerDescription::default(), held, None)
            .await
            .unwrap();
        let seen = test
            .backstop
            .workers(Span::minutes(1))
            .await
            .unwrap()
            .remove(0);
        assert_eq!(seen.status.queues, both);
        assert_eq!(seen.health(test.backstop.now()), WorkerHealth::Live);
    }
}

#[tokio::test(start_paused = true)]
async fn the_shortest_lease_is_kept_whatever_hangs_beside_it() {
    let flaky = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let counted = Arc::new(Counted::new(flaky.clone()));
    let clock = Arc::new(crate::testing::VirtualClock::start());
    let backstop = Backstop::on(counted.clone(), clock, RandomSource::seeded(1));
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, first, other) = (config(""), SeenWorkers::default(), SeenWorkers::default());
    let short = LeaseRequest {
        lease: Some(LEASE_MIN),
        ..ask(1)
    };
    let handed = backstop
        .http_workers(&config, &first)
        .lease(&short)
        .await
        .unwrap()
        .remove(0);
    let held = vec![(handed.run.lease.job, Some(handed.token))];
    flaky.hang("workers");
    flaky.hang("cells");
    counted.take_calls();
    let remote = backstop.http_workers(&config, &other);
    for beats in 1..=10 {
        // One after the other, as a worker makes them.
        tokio::time::sleep((LEASE_MIN.scaled(1.0 / 3.0)).into()).await;
        remote
            .beat(&worker(), &WorkerDescription::default(), held.clone(), None)
            .await
            .unwrap();
        let until = backstop
            .job(JobId::named("a"))
            .await
            .unwrap()
            .unwrap()
            .held_by
            .unwrap()
            .until;
        assert!(until > backstop.now(), "beat {beats}: it has run out");
    }
    assert_eq!(
        counted.take_calls()["workers"],
        1,
        "what could not be looked up is not with every beat"
    );
}

#[tokio::test(start_paused = true)]
async fn a_beat_does_not_wait_for_cells_that_hang() {
    let (backstop, store, clock) = flaky();
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    clock.advance(Span::secs(5));
    store.hang("cells");
    let held = vec![(handed.run.lease.job, Some(handed.token))];
    let began = Instant::now();
    for about in [process(1), started(1)] {
        let beaten = remote
            .beat(&worker(), &about, held.clone(), None)
            .await
            .unwrap();
        assert_eq!(beaten.lost, []);
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let until = backstop
        .job(JobId::named("a"))
        .await
        .unwrap()
        .unwrap()
        .held_by
        .unwrap()
        .until;
    assert_eq!(until, backstop.now().after(Span::secs(15)));
}

#[tokio::test(start_paused = true)]
async fn who_was_busy_when_it_was_asked_hears_it_with_its_next_request_at_once() {
    let clock = Arc::new(crate::testing::VirtualClock::start());
    let backstop = Backstop::on(Arc::new(MemoryStore::new()), clock, RandomSource::seeded(1));
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    heard_of(&remote, &process(1)).await;
    backstop
        .changes("ada")
        .command_worker(&worker(), WorkerCommand::Stop)
        .await
        .unwrap()
        .unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let patient = LeaseRequest {
        wait: Span::secs(20),
        about: process(1),
        ..ask(1)
    };
    let began = Instant::now();
    assert!(remote.lease(&patient).await.unwrap().is_empty());
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert!(remote.lease(&patient).await.unwrap().is_empty());
    assert!(
        began.elapsed() >= Duration::from_secs(20),
        "no worker asks in a circle: {:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_card_that_was_taken_away_is_put_down_again() {
    let test = start();
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    heard_of(&remote, &process(7)).await;
    let cell = test
        .backstop
        .store()
        .cells(vec!["cards/elsewhere".to_owned()])
        .await
        .unwrap()
        .remove(0);
    crate::shared_cells::remove(&test.backstop, &[cell.unwrap()])
        .await
        .unwrap();
    test.clock.advance(Span::minutes(1));
    heard_of(&remote, &process(7)).await;
    let card = read_heartbeat(&test.backstop, &worker())
        .await
        .unwrap()
        .expect("it is there again");
    assert_eq!(card.about.pid, Some(7));
}
