//! Queues with a maximum size.

use crate::given::{DONE, Scene, at, dead, filter, id, job, listed, queue, retry_at};
use backstop_core::amend::{AmendAction, AmendRefusal, Selection};
use backstop_core::port::{EnqueueOutcome, SettleOutcome, Store};
use backstop_core::verdict::{EndReason, Outcome};
use backstop_core::{Fingerprint, JobState, Overflow, Priority, QueueBounds};
use std::sync::Arc;

use EnqueueOutcome::{Full, Inserted};

async fn bounded(store: Arc<dyn Store>, max_size: u64, overflow: Overflow, dead_max: u64) -> Scene {
    let scene = Scene::new(store);
    let bounds = QueueBounds {
        max_size: Some(max_size),
        overflow,
        dead_max,
    };
    scene
        .store
        .set_bounds(queue("q"), bounds, scene.now)
        .await
        .expect("the store answers");
    assert_eq!(scene.queue("q").await.bounds, bounds);
    scene
}

/// A full queue refuses jobs one by one, and accepts jobs again once one has ended.
pub async fn a_full_queue_refuses(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 2, Overflow::Reject, 10).await;
    let answers = scene
        .enqueue(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    assert_eq!(answers, [Inserted, Inserted, Full]);
    assert_eq!(scene.find("c").await, None);
    assert_eq!(
        scene.enqueue([job("q", "a"), job("other", "x")]).await,
        [EnqueueOutcome::Same, Inserted]
    );
    let run = scene.claim_one("q").await;
    assert_eq!(
        scene.enqueue([job("q", "c")]).await,
        [Full],
        "running jobs are live"
    );
    assert_eq!(
        scene.settle(&run.lease, retry_at(at(9_999))).await,
        SettleOutcome::Applied
    );
    assert_eq!(
        scene.enqueue([job("q", "c")]).await,
        [Full],
        "waiting jobs are live"
    );
    let run = scene.claim_one("q").await;
    assert_eq!(scene.settle(&run.lease, DONE).await, SettleOutcome::Applied);
    assert_eq!(
        scene
            .enqueue([job("q", "c"), job("q", "d").at(at(9_999))])
            .await,
        [Inserted, Full]
    );
    assert_eq!(scene.queue("q").await.totals.enqueued, 3);
}

/// A job that is refused because its queue is full does not hold its unique key.
pub async fn a_refused_job_holds_no_key(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 1, Overflow::Reject, 10).await;
    let answers = scene
        .enqueue([job("q", "a").unique("one"), job("q", "b").unique("two")])
        .await;
    assert_eq!(answers, [Inserted, Full]);
    let twin = scene.enqueue([job("q", "c").unique("one")]).await;
    assert_eq!(
        twin,
        [EnqueueOutcome::Duplicate(id("a"))],
        "the holder is named, full or not"
    );
    let run = scene.claim_one("q").await;
    assert_eq!(scene.settle(&run.lease, DONE).await, SettleOutcome::Applied);
    assert_eq!(
        scene.enqueue([job("q", "d").unique("two")]).await,
        [Inserted]
    );
}

/// With `dead_letter_oldest`, the oldest job of the lowest level becomes a dead letter.
pub async fn the_oldest_becomes_a_dead_letter(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 3, Overflow::DeadLetterOldest, 2).await;
    scene
        .insert([
            job("q", "first"),
            job("q", "a"),
            job("q", "high").priority(Priority::High),
        ])
        .await;
    scene.claim("q", 1).await;
    assert_eq!(
        scene.state("high").await,
        Some(JobState::Running),
        "it is claimed first"
    );
    assert_eq!(scene.enqueue([job("q", "b")]).await, [Inserted]);
    let victim = scene.job("first").await;
    assert_eq!(
        (victim.state, victim.reason),
        (JobState::Dead, Some(EndReason::Overflow))
    );
    assert_eq!((victim.attempt, victim.finished_at), (0, Some(scene.now)));
    assert_eq!(victim.fingerprint(), Some(Fingerprint::of_overflow()));
    assert_eq!(
        scene.enqueue([job("q", "c"), job("q", "d")]).await,
        [Inserted, Full],
        "the dead letters are full"
    );
    assert_eq!(
        listed(&scene.list(&filter(Some("q"), Some(JobState::Ready))).await),
        ["b", "c"]
    );
    let status = scene.queue("q").await;
    assert_eq!(
        (
            status.counts.of(JobState::Dead),
            status.totals.dead,
            status.totals.enqueued
        ),
        (2, 2, 5)
    );
}

/// With `drop_oldest`, the oldest job of the lowest level is cancelled. Running and waiting jobs
/// are never dropped.
pub async fn the_oldest_is_dropped(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 2, Overflow::DropOldest, 0).await;
    scene
        .insert([job("q", "low").priority(Priority::Low), job("q", "a")])
        .await;
    assert_eq!(scene.enqueue([job("q", "b")]).await, [Inserted]);
    let victim = scene.job("low").await;
    assert_eq!(
        (victim.state, victim.reason),
        (JobState::Cancelled, Some(EndReason::Overflow))
    );
    let runs = scene.claim("q", 2).await;
    assert_eq!(
        scene.enqueue([job("q", "c")]).await,
        [Full],
        "nothing is ready"
    );
    let wait = Outcome::Released { at: at(9_999) };
    assert_eq!(
        scene.settle(&runs[0].lease, wait).await,
        SettleOutcome::Applied
    );
    assert_eq!(scene.enqueue([job("q", "c")]).await, [Full]);
    assert_eq!(
        scene.settle(&runs[1].lease, dead()).await,
        SettleOutcome::Full,
        "no room for the dead"
    );
    assert_eq!(scene.queue("q").await.totals.cancelled, 1);
}

/// Of a batch into a full queue, the newest jobs stay.
pub async fn a_batch_pushes_out_what_came_before_it(store: Arc<dyn Store>) {
    let scene = bounded(store, 2, Overflow::DropOldest, 10).await;
    let answers = scene
        .enqueue((0..5).map(|n| job("q", &n.to_string())))
        .await;
    assert_eq!(answers, [Inserted; 5]);
    assert_eq!(
        listed(&scene.list(&filter(Some("q"), Some(JobState::Ready))).await),
        ["3", "4"]
    );
    assert_eq!(scene.queue("q").await.counts.of(JobState::Cancelled), 3);
}

/// Concurrent pushes never exceed the bound.
pub async fn pushes_at_once_never_exceed_the_bound(store: Arc<dyn Store>) {
    let scene = bounded(Arc::clone(&store), 20, Overflow::Reject, 10).await;
    let pushes = (0..16).map(|pusher| {
        let scene = scene.apart(pusher);
        tokio::spawn(async move {
            scene
                .enqueue((0..4).map(|n| job("q", &format!("{pusher}/{n}"))))
                .await
        })
    });
    let mut inserted = 0;
    for push in pushes.collect::<Vec<_>>() {
        inserted += push
            .await
            .expect("nobody panics")
            .iter()
            .filter(|answer| **answer == Inserted)
            .count();
    }
    assert_eq!(inserted, 20);
    assert_eq!(scene.queue("q").await.counts.of(JobState::Ready), 20);
}

/// A requeue needs room as a push does; concurrent requeues and pushes never exceed the bound.
pub async fn requeues_and_pushes_at_once_never_exceed_the_bound(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 20, Overflow::Reject, 100).await;
    for n in 0..32 {
        scene
            .insert_and_end(job("q", &format!("dead-{n}")), dead())
            .await;
    }
    let tasks = (0..16).map(|number| {
        let scene = scene.apart(number);
        tokio::spawn(async move {
            let of = number / 2 * 4;
            if number % 2 == 0 {
                let jobs = (of..of + 4).map(|n| job("q", &format!("new-{n}")));
                let answers = scene.enqueue(jobs).await;
                answers.iter().filter(|answer| **answer == Inserted).count()
            } else {
                let letters = (of..of + 4).map(|n| id(&format!("dead-{n}"))).collect();
                let amended = scene
                    .amend(Selection::Ids(letters), AmendAction::Retry)
                    .await;
                amended.applied
            }
        })
    });
    let mut live = 0;
    for task in tasks.collect::<Vec<_>>() {
        live += task.await.expect("nobody panics");
    }
    assert_eq!((live, scene.queue("q").await.counts.live()), (20, 20));
}

/// A new bound applies from now on; jobs above it stay. A queue may be bounded before it has a job.
pub async fn a_new_bound_removes_nothing(store: Arc<dyn Store>) {
    let scene = bounded(store, 5, Overflow::Reject, 10).await;
    scene.insert((0..5).map(|n| job("q", &n.to_string()))).await;
    let bounds = QueueBounds {
        max_size: Some(2),
        overflow: Overflow::Reject,
        dead_max: 10,
    };
    scene
        .store
        .set_bounds(queue("q"), bounds, scene.now)
        .await
        .expect("the store answers");
    assert_eq!(scene.queue("q").await.counts.of(JobState::Ready), 5);
    assert_eq!(scene.enqueue([job("q", "x")]).await, [Full]);
    scene
        .store
        .set_bounds(queue("q"), QueueBounds::default(), scene.now)
        .await
        .expect("the store answers");
    assert_eq!(scene.enqueue([job("q", "x")]).await, [Inserted]);
    assert_eq!(scene.queue("q").await.bounds, QueueBounds::default());
}

/// A requeue into a full queue is refused, whatever the overflow policy. Jobs that find room are
/// requeued in order, the others stay dead, and no live job is dropped. A job that is live already
/// needs no room.
pub async fn what_an_operator_brings_back_needs_room(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 3, Overflow::Reject, 10).await;
    for name in ["a", "b", "c"] {
        scene.insert_and_end(job("q", name), dead()).await;
    }
    scene
        .insert([job("q", "ready"), job("q", "later").at(at(9_999))])
        .await;
    for overflow in Overflow::ALL {
        let bounds = QueueBounds {
            max_size: Some(3),
            overflow,
            dead_max: 10,
        };
        scene
            .store
            .set_bounds(queue("q"), bounds, scene.now)
            .await
            .expect("the store answers");
        let amended = scene
            .amend_named(&["a", "b", "c"], AmendAction::Retry)
            .await;
        assert_eq!(
            (amended.applied, amended.refused),
            (
                1,
                ["b", "c"].map(|name| (id(name), AmendRefusal::Full)).into()
            )
        );
        let amended = scene
            .amend(
                Selection::Matching(filter(Some("q"), Some(JobState::Dead))),
                AmendAction::Retry,
            )
            .await;
        assert_eq!(
            (amended.applied, amended.refused),
            (
                0,
                ["b", "c"].map(|name| (id(name), AmendRefusal::Full)).into()
            )
        );
        assert_eq!(
            (scene.state("b").await, scene.job("b").await.requeues),
            (Some(JobState::Dead), 0)
        );
        assert_eq!(scene.queue("q").await.counts.live(), 3, "{overflow}");
        assert_eq!(
            scene.amend_named(&["a"], AmendAction::Cancel).await.applied,
            1
        );
    }
    assert_eq!(
        scene.amend_named(&["b"], AmendAction::Retry).await.applied,
        1
    );
    let amended = scene.amend_named(&["later", "c"], AmendAction::Retry).await;
    assert_eq!(
        (amended.applied, amended.refused),
        (1, vec![(id("c"), AmendRefusal::Full)]),
        "it was live already"
    );
    assert_eq!(scene.state("ready").await, Some(JobState::Ready));
}

/// A move into a full queue is refused, and the dead letter stays where it is.
pub async fn a_move_needs_room_in_the_queue_it_goes_to(store: Arc<dyn Store>) {
    let mut scene = bounded(store, 2, Overflow::Reject, 10).await;
    for name in ["a", "b", "c"] {
        scene
            .insert_and_end(job("other", name).unique(name), dead())
            .await;
    }
    scene.insert([job("q", "ready")]).await;
    let to = AmendAction::Move(queue("q"));
    let amended = scene.amend_named(&["a", "b", "c"], to.clone()).await;
    assert_eq!(
        (amended.applied, amended.refused),
        (
            1,
            ["b", "c"].map(|name| (id(name), AmendRefusal::Full)).into()
        )
    );
    let amended = scene
        .amend(
            Selection::Matching(filter(Some("other"), Some(JobState::Dead))),
            to.clone(),
        )
        .await;
    assert_eq!(
        (amended.applied, amended.refused),
        (
            0,
            ["b", "c"].map(|name| (id(name), AmendRefusal::Full)).into()
        )
    );
    let job_b = scene.job("b").await;
    assert_eq!(
        (job_b.queue, job_b.state, job_b.requeues),
        (queue("other"), JobState::Dead, 0)
    );
    assert_eq!(
        (
            scene.queue("q").await.counts.live(),
            scene.queue("other").await.counts.of(JobState::Dead)
        ),
        (2, 2)
    );
    assert_eq!(
        scene.enqueue([job("q", "new").unique("b")]).await,
        [Full],
        "a refused move holds no key"
    );
    let run = scene.claim_one("q").await;
    assert_eq!(scene.settle(&run.lease, DONE).await, SettleOutcome::Applied);
    assert_eq!(scene.amend_named(&["b", "c"], to).await.applied, 1);
    assert_eq!(scene.job("b").await.queue, queue("q"));
}
