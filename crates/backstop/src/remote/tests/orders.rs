//! What workers elsewhere are asked for, and what they tell of themselves.

use super::*;
use crate::workers::card::{Card, put_card, read_card};
use crate::workers::{Given, Health};
use backstop_core::order::{Duty, Order, RunOf};
use tokio::time::Instant;

/// Gives an order to the worker of these tests.
async fn order(test: &Test, order: Order) -> Option<Given> {
    test.backstop
        .changes("ada")
        .order(&WorkerName::new("elsewhere"), order)
        .await
        .unwrap()
}

/// One that works, was heard of, and holds nothing.
async fn heard_of(remote: &Remote<'_>, about: &About) {
    let nothing = QueueName::new("nothing").unwrap();
    remote
        .lease(&Ask {
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

fn process(pid: u32) -> About {
    About {
        pid: Some(pid),
        ..About::default()
    }
}

fn started(second: i64) -> About {
    About {
        since: Some(Time::from_millis(1_000_000).after(Span::secs(second))),
        ..process(1)
    }
}

#[tokio::test]
async fn a_quieted_worker_gets_nothing_hears_why_and_goes_on_when_that_is_taken_back() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    let worker = WorkerName::new("elsewhere");
    heard_of(&remote, &About::default()).await;
    order(&test, Order::Quiet).await.unwrap();
    test.clock.advance(Span::secs(2));
    assert!(remote.lease(&ask(1)).await.unwrap().is_empty());
    let beaten = remote
        .beat(&worker, &About::default(), Vec::new(), None)
        .await
        .unwrap();
    assert_eq!(
        beaten,
        Beaten {
            lost: Vec::new(),
            asked: Some(Asked::Quiet)
        }
    );
    order(&test, Order::Resume).await.unwrap();
    test.clock.advance(Span::secs(2));
    assert_eq!(remote.lease(&ask(1)).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_job_hears_at_once_that_it_is_to_stop_and_waits_if_it_asks_again() {
    let clock = Arc::new(crate::testing::VirtualClock::start());
    let backstop = Backstop::on(Arc::new(MemoryStore::new()), clock, Random::seeded(1));
    let (config, attendance) = (config(""), Attendance::default());
    let remote = backstop.remote(&config, &attendance);
    let patient = Ask {
        wait: Span::secs(20),
        ..ask(1)
    };
    let ordering = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        backstop
            .changes("ada")
            .order(&patient.worker, Order::Stop)
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
        remote.asked(&patient.worker, &patient.about).await.unwrap(),
        Some(Asked::Stop)
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
        (process(1), About::default(), Span::secs(31)),
        (About::default(), process(1), Span::secs(31)),
        (About::default(), About::default(), Span::secs(31)),
    ] {
        let test = pushed(&["a"]).await;
        let (config, attendance) = (config(""), Attendance::default());
        let remote = test.backstop.remote(&config, &attendance);
        heard_of(&remote, &before).await;
        order(&test, Order::Stop).await.unwrap();
        test.clock.advance(Span::secs(2));
        // It has heard it, and so does the memory of whoever speaks for it.
        assert_eq!(
            remote.asked(&worker(), &before).await.unwrap(),
            Some(Asked::Stop),
            "{before:?}"
        );
        test.clock.advance(silence);
        let handed = remote
            .lease(&Ask {
                about: after.clone(),
                ..ask(1)
            })
            .await
            .unwrap();
        assert_eq!(handed.len(), 1, "{before:?} {after:?}");
    }
    // The same one goes on hearing it.
    for about in [process(1), started(1), About::default()] {
        let test = pushed(&["a"]).await;
        let (config, attendance) = (config(""), Attendance::default());
        let remote = test.backstop.remote(&config, &attendance);
        heard_of(&remote, &about).await;
        order(&test, Order::Stop).await.unwrap();
        for _ in 0..5 {
            test.clock.advance(Span::secs(20));
            assert!(
                remote
                    .lease(&Ask {
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
    let backstop = Backstop::on(store.clone(), test.clock.clone(), Random::seeded(1));
    let (config, attendance) = (config(""), Attendance::default());
    let (remote, worker) = (
        backstop.remote(&config, &attendance),
        WorkerName::new("elsewhere"),
    );
    let at = |memory: u64, version: &str| About {
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
            &About::default(),
            Vec::new(),
            None,
        )
        .await
        .unwrap();
    assert_eq!(
        backstop.workers(Span::hours(1)).await.unwrap()[1].about,
        About::default()
    );
}

#[tokio::test]
async fn nobody_who_goes_by_its_name_undoes_what_a_worker_of_a_process_was_asked_for() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    let run = RunOf {
        id: "a3f09c".to_owned(),
        since: test.backstop.now(),
    };
    let card = Card::here(process(4711), run.clone(), 1, Duty::Working);
    put_card(&test.backstop, &worker(), &card).await.unwrap();
    heard_of(&remote, &About::default()).await;
    order(&test, Order::Quiet).await.unwrap();
    for about in [process(1), started(1), About::default()] {
        for silence in [Span::secs(3), Span::secs(31)] {
            test.clock.advance(silence);
            remote
                .beat(&worker(), &about, Vec::new(), None)
                .await
                .unwrap();
            let standing = read_order(&test).await.expect("it stands");
            assert!(standing.is_for(&run), "{about:?} {silence}");
            let kept = read_card(&test.backstop, &worker())
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
        order(&test, Order::Stop).await.unwrap().asked,
        Some(Asked::Stop)
    );
    assert!(read_order(&test).await.unwrap().is_for(&run));
}

async fn read_order(test: &Test) -> Option<backstop_core::order::Standing> {
    crate::workers::card::read_order(&test.backstop, &worker())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_call_that_tells_less_is_of_the_run_that_was_told_last() {
    for told in [process(7), started(7)] {
        let test = pushed(&["a"]).await;
        let (config, attendance) = (config(""), Attendance::default());
        let remote = test.backstop.remote(&config, &attendance);
        heard_of(&remote, &told).await;
        order(&test, Order::Stop).await.unwrap();
        test.clock.advance(Span::secs(3));
        let less = About {
            version: Some("2".to_owned()),
            ..About::default()
        };
        for about in [About::default(), less] {
            let beaten = remote
                .beat(&worker(), &about, Vec::new(), None)
                .await
                .unwrap();
            assert_eq!(beaten.asked, Some(Asked::Stop), "{told:?} {about:?}");
        }
        test.clock.advance(Span::secs(3));
        assert!(
            remote
                .lease(&Ask {
                    about: told.clone(),
                    ..ask(1)
                })
                .await
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            remote.asked(&worker(), &told).await.unwrap(),
            Some(Asked::Stop),
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
        assert_eq!(shown.health(test.backstop.now()), Health::Stopping);
    }
}

#[tokio::test]
async fn a_worker_that_no_longer_tells_its_process_can_be_ordered() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    heard_of(&remote, &process(7)).await;
    test.clock.advance(Span::minutes(5));
    heard_of(&remote, &About::default()).await;
    order(&test, Order::Stop).await.unwrap();
    test.clock.advance(Span::secs(3));
    assert!(remote.lease(&ask(1)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_beat_keeps_its_leases_and_answers_in_time_whatever_becomes_of_the_order() {
    let (backstop, store, clock) = flaky();
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, attendance) = (config(""), Attendance::default());
    let remote = backstop.remote(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    backstop
        .changes("ada")
        .order(&worker(), Order::Quiet)
        .await
        .unwrap()
        .unwrap();
    clock.advance(Span::secs(2));
    assert_eq!(
        remote.asked(&worker(), &About::default()).await.unwrap(),
        Some(Asked::Quiet)
    );
    clock.advance(Span::secs(10));
    store.forbid("cells");
    let held = vec![(handed.run.lease.job, Some(handed.ticket))];
    let beaten = remote
        .beat(&worker(), &About::default(), held, None)
        .await
        .unwrap();
    assert_eq!(
        beaten,
        Beaten {
            lost: Vec::new(),
            asked: Some(Asked::Quiet)
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
    let (config, first, other) = (config(""), Attendance::default(), Attendance::default());
    let both = ["q", "r"].map(|name| QueueName::new(name).unwrap());
    let asked = Ask {
        queues: both.to_vec(),
        ..ask(1)
    };
    let handed = test
        .backstop
        .remote(&config, &first)
        .lease(&asked)
        .await
        .unwrap()
        .remove(0);
    let remote = test.backstop.remote(&config, &other);
    for held in [
        vec![(handed.run.lease.job, Some(handed.ticket))],
        Vec::new(),
    ] {
        test.clock.advance(Span::secs(5));
        remote
            .beat(&worker(), &About::default(), held, None)
            .await
            .unwrap();
        let seen = test
            .backstop
            .workers(Span::minutes(1))
            .await
            .unwrap()
            .remove(0);
        assert_eq!(seen.status.queues, both);
        assert_eq!(seen.health(test.backstop.now()), Health::Live);
    }
}

#[tokio::test(start_paused = true)]
async fn the_shortest_lease_is_kept_whatever_hangs_beside_it() {
    let flaky = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let counted = Arc::new(Counted::new(flaky.clone()));
    let clock = Arc::new(crate::testing::VirtualClock::start());
    let backstop = Backstop::on(counted.clone(), clock, Random::seeded(1));
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, first, other) = (config(""), Attendance::default(), Attendance::default());
    let short = Ask {
        lease: Some(LEASE_MIN),
        ..ask(1)
    };
    let handed = backstop
        .remote(&config, &first)
        .lease(&short)
        .await
        .unwrap()
        .remove(0);
    let held = vec![(handed.run.lease.job, Some(handed.ticket))];
    flaky.hang("workers");
    flaky.hang("cells");
    counted.take_calls();
    let remote = backstop.remote(&config, &other);
    for beats in 1..=10 {
        // One after the other, as a worker makes them.
        tokio::time::sleep((LEASE_MIN.scaled(1.0 / 3.0)).into()).await;
        remote
            .beat(&worker(), &About::default(), held.clone(), None)
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
    let (config, attendance) = (config(""), Attendance::default());
    let remote = backstop.remote(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    clock.advance(Span::secs(5));
    store.hang("cells");
    let held = vec![(handed.run.lease.job, Some(handed.ticket))];
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
    let backstop = Backstop::on(Arc::new(MemoryStore::new()), clock, Random::seeded(1));
    let (config, attendance) = (config(""), Attendance::default());
    let remote = backstop.remote(&config, &attendance);
    heard_of(&remote, &process(1)).await;
    backstop
        .changes("ada")
        .order(&worker(), Order::Stop)
        .await
        .unwrap()
        .unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let patient = Ask {
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
    let (config, attendance) = (config(""), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    heard_of(&remote, &process(7)).await;
    let cell = test
        .backstop
        .store()
        .cells(vec!["cards/elsewhere".to_owned()])
        .await
        .unwrap()
        .remove(0);
    crate::shared::remove(&test.backstop, &[cell.unwrap()])
        .await
        .unwrap();
    test.clock.advance(Span::minutes(1));
    heard_of(&remote, &process(7)).await;
    let card = read_card(&test.backstop, &worker())
        .await
        .unwrap()
        .expect("it is there again");
    assert_eq!(card.about.pid, Some(7));
}
