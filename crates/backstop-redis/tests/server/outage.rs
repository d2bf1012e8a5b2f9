//! Servers and networks that go away and come back.

use crate::place::{Place, open};
use backstop_core::amend::Filter;
use backstop_core::port::{
    HintSubscription, JobStore, OperatorStore, SettleOutcome, Store, StoreError,
};
use backstop_core::{JobState, Span};
use backstop_testkit::given::{DONE, START, job, names};
use backstop_testkit::servers::redis::{Append, Settings};
use backstop_testkit::servers::{Mode, Proxy, Redis, redis};
use std::time::{Duration, Instant};

/// Longer than a call may take.
const TOO_LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn what_was_acknowledged_survives_the_death_of_a_server_that_always_writes_its_log() {
    let server = Redis::start(Settings {
        append: Append::Always,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let mut scene = place.scene();
    let all: Vec<String> = (0..500).map(|n| format!("job-{n:03}")).collect();
    scene.insert(all.iter().map(|name| job("q", name))).await;
    let runs = scene.claim("q", 100).await;
    scene
        .settle_all(runs[..50].iter().map(|run| (&run.lease, DONE)))
        .await;
    server.kill();
    server.restart();
    let counts = scene.queue("q").await.counts;
    let seen = [JobState::Ready, JobState::Running, JobState::Done].map(|state| counts.of(state));
    assert_eq!(seen, [400, 50, 50]);
    assert_eq!(
        scene.settle(&runs[50].lease, DONE).await,
        SettleOutcome::Applied
    );
    assert_eq!(names(&scene.claim("q", 1_000).await), all[100..]);
}

#[tokio::test]
async fn after_a_restart_a_queue_that_nobody_knows_is_found_without_being_asked_for() {
    let server = Redis::start(Settings {
        append: Append::Always,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let scene = place.scene();
    scene.insert([job("q", "a")]).await;
    server.cli(&["del", &format!("{}:queues", place.prefix())]);
    place.delete("q", "order");
    server.restart();
    let deadline = Instant::now() + Duration::from_secs(30);
    while scene.list(&Filter::default()).await.is_empty() {
        assert!(Instant::now() < deadline, "the queue was not found");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_repair_that_fails_is_tried_until_it_succeeds() {
    let server = Redis::start(Settings {
        append: Append::Always,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let scene = place.scene();
    scene.insert([job("q", "a")]).await;
    let registry = format!("{}:queues", place.prefix());
    server.cli(&["set", &registry, "no set of names"]);
    server.restart();
    // A call that has nothing to do with the registry: it meets another server than before.
    place.store.time().await.expect("it answers");
    let deadline = Instant::now() + Duration::from_mins(1);
    while !server
        .cli(&["info", "errorstats"])
        .contains("errorstat_WRONGTYPE")
    {
        assert!(
            Instant::now() < deadline,
            "no repair has stumbled over the registry"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.cli(&["del", &registry]);
    while scene.list(&Filter::default()).await.is_empty() {
        assert!(Instant::now() < deadline, "the queue was not found");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn who_went_deaf_finds_out_and_hears_again() {
    let proxy = Proxy::start(redis().addr()).await;
    let url = redis().fresh_url_at(proxy.addr());
    let prefix = url.split_once("prefix=").expect("a prefix").1;
    let listener = open(&url);
    let mut ears = listener.watch();
    let hears = async |ears: &mut Box<dyn HintSubscription>, what: &str| {
        let heard = tokio::time::timeout(Duration::from_mins(1), ears.next()).await;
        assert!(heard.is_ok(), "not heard: {what}");
    };
    hears(&mut ears, "that it listens").await;
    // What was connected then stays silent for ever, and nobody says so.
    proxy.set(Mode::HalfOpen);
    tokio::task::yield_now().await;
    proxy.set(Mode::Pass);
    hears(&mut ears, "that it listens again").await;
    let speaker = open(&format!("{}?prefix={prefix}", redis().url()));
    speaker
        .enqueue(vec![job("q", "a").into()], START)
        .await
        .expect("it goes in");
    hears(&mut ears, "the push").await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_in_time_and_found_again() {
    let server = Redis::start(Settings::default());
    let place = Place::on(&server).await;
    let scene = place.scene();
    scene.insert([job("q", "a")]).await;
    server.stop();
    let began = Instant::now();
    let refused = place.store.enqueue(vec![job("q", "b").into()], START).await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(began.elapsed() < TOO_LONG, "{:?}", began.elapsed());
    server.restart();
    scene.insert([job("q", "b")]).await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_given_up() {
    let proxy = Proxy::start(redis().addr()).await;
    let store = open(&redis().fresh_url_at(proxy.addr()));
    store.migrate().await.expect("the network is there");
    proxy.set(Mode::HalfOpen);
    let began = Instant::now();
    let refused = store.queues(START).await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(began.elapsed() < TOO_LONG, "{:?}", began.elapsed());
    proxy.set(Mode::Pass);
    assert_eq!(store.queues(START).await, Ok(Vec::new()));
}

#[tokio::test]
async fn answers_lost_on_the_way_change_nothing() {
    let proxy = Proxy::start(redis().addr()).await;
    let store = open(&redis().fresh_url_at(proxy.addr()));
    store.migrate().await.expect("the network is there");
    let mut scene = backstop_testkit::given::Scene::new(store);
    let mut done = 0;
    for round in 0..40_usize {
        let jobs: Vec<_> = (0..20)
            .map(|n| job("q", &format!("{round}-{n}")).into())
            .collect();
        // The call goes through, and its answer does not: it is repeated by itself.
        let network = async {
            if round % 2 == 1 {
                proxy.set(Mode::Reset {
                    after_bytes: round * 3,
                });
                tokio::time::sleep(Duration::from_millis(30)).await;
                proxy.set(Mode::Pass);
            }
        };
        let (inserted, ()) = tokio::join!(scene.store.enqueue(jobs, scene.now), network);
        inserted.expect("it goes in, at the latest when the network is back");
        let runs = scene.claim("q", 50).await;
        done += runs.len();
        let settled = scene
            .settle_all(runs.iter().map(|run| (&run.lease, DONE)))
            .await;
        assert!(
            settled
                .iter()
                .all(|settled| *settled == SettleOutcome::Applied)
        );
        scene.pass(Span::secs(1));
    }
    assert_eq!(done, 800, "each job ran once");
    let totals = scene.queue("q").await.totals;
    assert_eq!((totals.enqueued, totals.done), (800, 800));
}
