//! Parts of a queue removed by hand, and put right.

use crate::place::{Place, open};
use backstop_core::amend::Filter;
use backstop_core::port::{FindingSeverity, Store};
use backstop_core::{JobState, Priority, Span};
use backstop_testkit::given::{DONE, Scene, at, dead, filter, job, listed, names, retry_at};
use backstop_testkit::servers;
use std::collections::BTreeSet;

/// A job of every state, all of queue `q`.
async fn furnish(scene: &mut Scene) {
    for (name, outcome) in [
        ("done", DONE),
        ("dead", dead()),
        ("retrying", retry_at(at(60))),
    ] {
        scene.insert_and_end(job("q", name), outcome).await;
    }
    scene
        .insert([job("q", "cancelled").priority(Priority::Low)])
        .await;
    scene
        .amend_named(&["cancelled"], backstop_core::amend::AmendAction::Cancel)
        .await;
    scene.insert([job("q", "running").unique("k")]).await;
    scene.claim_one("q").await;
    scene.insert([job("q", "scheduled").at(at(60))]).await;
    scene
        .insert([job("q", "low").priority(Priority::Low)])
        .await;
    scene
        .insert(["first", "second", "third"].map(|name| job("q", name)))
        .await;
}

const ALL: [&str; 9] = [
    "cancelled",
    "dead",
    "done",
    "first",
    "low",
    "retrying",
    "running",
    "scheduled",
    "second",
];

async fn agrees(place: &Place<'_>) -> bool {
    let examination = place.store.examine().await.expect("it is examined");
    let finding = examination
        .findings
        .last()
        .expect("the drift is looked at last");
    finding.severity == FindingSeverity::Good
}

#[tokio::test]
async fn every_part_of_a_queue_is_rebuilt_from_its_records() {
    for part in [
        "order",
        "ready",
        "runs",
        "scheduled",
        "retrying",
        "done",
        "dead",
        "cancelled",
        "leases",
        "claims",
        "terms",
        "held",
        "left",
    ] {
        let place = Place::on(servers::redis()).await;
        let mut scene = place.scene();
        furnish(&mut scene).await;
        assert!(agrees(&place).await, "before");
        place.delete("q", part);
        assert!(!agrees(&place).await, "{part} is missing");
        place.store.migrate().await.expect("it repairs");
        assert!(agrees(&place).await, "{part} was rebuilt");
        let shown: BTreeSet<String> = listed(&scene.list(&Filter::default()).await)
            .into_iter()
            .collect();
        assert!(
            ALL.iter().all(|name| shown.contains(*name)),
            "{part}: {shown:?}"
        );
        assert_eq!(shown.len(), ALL.len() + 1, "{part}: {shown:?}");
        for state in [
            JobState::Scheduled,
            JobState::Retrying,
            JobState::Done,
            JobState::Dead,
            JobState::Cancelled,
        ] {
            let jobs = scene.list(&filter(Some("q"), Some(state))).await;
            assert_eq!(listed(&jobs), [state.as_str()], "{part}");
        }
        // A claim that is not whole holds nothing, and what it held is ready again, at its old
        // place.
        let is_free = ["leases", "claims", "terms", "held"].contains(&part);
        let ready = ["running", "first", "second", "third", "low"];
        let expected = if is_free { &ready[..] } else { &ready[1..] };
        assert_eq!(names(&scene.claim("q", 9).await), expected, "{part}");
    }
}

#[tokio::test]
async fn a_place_without_a_job_goes_and_the_others_stay() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert((0..5).map(|n| job("q", &n.to_string()))).await;
    scene
        .insert((5..10).map(|n| job("q", &n.to_string()).at(at(60))))
        .await;
    for _ in 0..3 {
        place.delete_one("q", "records");
    }
    assert!(!agrees(&place).await);
    place.store.migrate().await.expect("it repairs");
    assert!(agrees(&place).await);
    let left = scene.list(&Filter::default()).await.len();
    let counts = scene.queue("q").await.counts;
    assert_eq!((left, counts.live()), (7, 7));
    scene.now = at(60);
    scene.promote().await;
    assert_eq!(scene.claim("q", 20).await.len(), 7);
}

#[tokio::test]
async fn a_claim_passes_over_places_without_a_job() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert((0..5).map(|n| job("q", &n.to_string()))).await;
    place.delete("q", "records");
    assert_eq!(scene.claim("q", 3).await, []);
    scene.insert([job("q", "next")]).await;
    let mut runs = scene.claim("q", 3).await;
    runs.extend(scene.claim("q", 3).await);
    assert_eq!(names(&runs), ["next"]);
}

#[tokio::test]
async fn a_job_whose_payload_is_lost_is_shown_and_runs_with_none() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    // A small one stands in the record.
    scene
        .insert([job("q", "a").payload(vec![b'1'; 2_000])])
        .await;
    place.delete("q", "payloads");
    let examination = place.store.examine().await.expect("it is examined");
    assert_eq!(
        examination.findings.last().map(|finding| finding.severity),
        Some(FindingSeverity::Bad)
    );
    assert!(scene.job("a").await.payload.is_empty());
    place.store.migrate().await.expect("it repairs");
    assert!(agrees(&place).await);
    assert!(scene.claim_one("q").await.payload.is_empty());
}

#[tokio::test]
async fn a_unique_key_is_held_again_by_its_job() {
    let place = Place::on(servers::redis()).await;
    let scene = place.scene();
    scene.insert([job("q", "a").unique("k")]).await;
    place.delete("q", "unique");
    place.delete("q", "order");
    place.store.migrate().await.expect("it repairs");
    let answers = scene.enqueue([job("q", "b").unique("k")]).await;
    assert_eq!(
        answers,
        [backstop_core::port::EnqueueOutcome::Duplicate(
            backstop_testkit::given::id("a")
        )]
    );
}

#[tokio::test]
async fn a_queue_the_registry_forgot_is_found() {
    let place = Place::on(servers::redis()).await;
    let scene = place.scene();
    scene.insert([job("q", "a"), job("other", "b")]).await;
    place
        .server
        .cli(&["del", &format!("{}:queues", place.prefix())]);
    assert_eq!(scene.list(&Filter::default()).await, []);
    open(&place.url).migrate().await.expect("it repairs");
    assert_eq!(scene.list(&Filter::default()).await.len(), 2);
}

#[tokio::test]
async fn a_tail_that_was_set_back_stays_behind_those_who_wait() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert((0..5).map(|n| job("q", &n.to_string()))).await;
    place.delete_one("q", "meta");
    place.delete("q", "meta");
    place.delete("q", "order");
    place.store.migrate().await.expect("it repairs");
    scene.pass(Span::secs(1));
    scene.insert([job("q", "last")]).await;
    assert_eq!(
        names(&scene.claim("q", 9).await),
        ["0", "1", "2", "3", "4", "last"]
    );
}

/// What a repair counts anew keeps who has it and since when.
#[tokio::test]
async fn a_repair_keeps_the_beginning_of_a_claim() {
    for part in ["left", "order", "terms"] {
        let place = Place::on(servers::redis()).await;
        let mut scene = place.scene();
        scene.insert([job("q", "a")]).await;
        scene.now = at(4);
        scene.claim_one("q").await;
        place.delete("q", part);
        place.store.migrate().await.expect("it repairs");
        let job = scene.job("a").await;
        // A claim whose end is lost is closed, and its job is ready.
        let expected = if part == "terms" {
            (JobState::Ready, None)
        } else {
            (JobState::Running, Some(at(4)))
        };
        assert_eq!((job.state, job.started_at()), expected, "{part}");
    }
}
