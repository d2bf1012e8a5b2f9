//! What keeps back jobs whose kind dies, and queues over their rate limits.

use super::*;
use crate::testing::VirtualClock;
use backstop_core::QueueBounds;

async fn set_dead_max(test: &TestBackstop, dead_max: u64) {
    let bounds = QueueBounds {
        dead_max,
        ..QueueBounds::default()
    };
    test.backstop
        .store()
        .set_bounds(QueueName::new("q").unwrap(), bounds, test.backstop.now())
        .await
        .unwrap();
}

#[tokio::test]
async fn probes_whose_deaths_find_room_again_open_a_gate_that_lacked_it() {
    let test = pushed(&["a", "b", "c", "d"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    set_dead_max(&test, 1).await;
    let handed = remote.lease(&ask(2)).await.unwrap();
    remote
        .settle(handed.iter().map(dead).collect())
        .await
        .unwrap();
    let is_shut = async || {
        let guards = test.backstop.breakers().list().await.unwrap();
        guards.iter().any(|guard| guard.shut.is_some())
    };
    assert!(is_shut().await, "the second death found no room");
    set_dead_max(&test, 10).await;
    test.clock.advance(Span::minutes(1));
    let probes = remote.lease(&ask(2)).await.unwrap();
    assert_eq!(probes.len(), 2);
    remote
        .settle(probes.iter().map(dead).collect())
        .await
        .unwrap();
    assert!(!is_shut().await, "both deaths found room");
}

#[tokio::test]
async fn forty_jobs_of_a_queue_that_starts_five_a_second_start_within_seven_seconds() {
    let test = start();
    for n in 0..40 {
        test.backstop
            .draft("q")
            .id(&n.to_string())
            .push()
            .await
            .unwrap();
    }
    let text = "[queues.q]\nrate_limit = { count = 5, per = \"1s\" }\n";
    let (config, attendance) = (config(text), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let mut started = Vec::new();
    for _ in 0..=7_000 / 200 {
        started.push(remote.lease(&ask(40)).await.unwrap().len());
        test.clock.advance(Span::millis(200));
    }
    assert_eq!((started[0], started.iter().sum::<usize>()), (5, 40));
    assert!(started[1..].iter().all(|jobs| *jobs == 1), "{started:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_gets_a_job_as_soon_as_the_limit_has_room() {
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(
        Arc::new(MemoryStore::new()),
        Arc::clone(&clock) as _,
        RandomSource::seeded(1),
    );
    for n in 0..3 {
        backstop.draft("q").id(&n.to_string()).push().await.unwrap();
    }
    let text = "[queues.q]\nrate_limit = { count = 1, per = \"300ms\" }\n";
    let (config, attendance) = (config(text), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    let began_at = backstop.now();
    let ask = LeaseRequest {
        wait: Span::secs(10),
        ..ask(1)
    };
    for _ in 0..3 {
        assert_eq!(remote.lease(&ask).await.unwrap().len(), 1);
    }
    assert!(
        backstop.now().since(began_at) < Span::secs(1),
        "not a look every second"
    );
}
