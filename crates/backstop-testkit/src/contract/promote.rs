//! Promotion of waiting jobs to ready.

use crate::given::{LEASE, Scene, at, job, names};
use backstop_core::amend::AmendAction;
use backstop_core::limits::{ENQUEUE_JOBS_MAX, PROMOTE_MAX};
use backstop_core::port::{PromoteResult, Store};
use backstop_core::{JobState, Span};
use futures_util::future::join_all;
use std::sync::Arc;

/// Due jobs become ready, others stay, and the caller learns when the next one is due.
pub async fn promote_stops_at_now_and_tells_the_next(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let in_a_moment = at(10).after(Span::micros(1));
    scene
        .insert([job("q", "at 5").at(at(5)), job("q", "at 10").at(at(10))])
        .await;
    scene.insert([job("q", "just later").at(in_a_moment)]).await;
    let promoted = scene.store.promote(100, scene.now).await;
    assert_eq!(
        promoted,
        Ok(PromoteResult {
            moved: 0,
            next_due: Some(at(5)),
            ..PromoteResult::default()
        })
    );
    scene.now = at(10);
    let promoted = scene.store.promote(100, scene.now).await;
    assert_eq!(
        promoted,
        Ok(PromoteResult {
            moved: 2,
            next_due: Some(in_a_moment),
            ..PromoteResult::default()
        })
    );
    assert_eq!(names(&scene.claim("q", 9).await), ["at 5", "at 10"]);
    scene.now = in_a_moment;
    let promoted = scene.store.promote(100, scene.now).await;
    assert_eq!(
        promoted,
        Ok(PromoteResult {
            moved: 1,
            ..PromoteResult::default()
        })
    );
}

/// Promoted jobs are ordered by time, then by arrival, after the jobs that are already ready.
pub async fn promoted_jobs_line_up_by_time_behind_the_ready_ones(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([job("q", "third").at(at(9)), job("q", "first").at(at(7))])
        .await;
    scene
        .insert([job("q", "fourth").at(at(9)), job("q", "second").at(at(8))])
        .await;
    scene.now = at(20);
    scene.insert([job("q", "ready")]).await;
    assert_eq!(scene.promote().await, 4);
    assert_eq!(
        names(&scene.claim("q", 9).await),
        ["ready", "first", "second", "third", "fourth"]
    );
}

/// One call promotes at most `max` jobs, earliest first, and says that more are due.
pub async fn promote_moves_at_most_max(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([3, 1, 2].map(|secs| job("q", &secs.to_string()).at(at(secs))))
        .await;
    scene.now = at(10);
    let promoted = scene
        .store
        .promote(2, scene.now)
        .await
        .expect("the store promotes");
    assert_eq!(promoted.moved, 2);
    assert!(
        promoted.next_due.is_some_and(|due| due <= scene.now),
        "{promoted:?}"
    );
    assert_eq!(names(&scene.claim("q", 9).await), ["1", "2"]);
    assert_eq!(
        scene.store.promote(2, scene.now).await,
        Ok(PromoteResult {
            moved: 1,
            ..PromoteResult::default()
        })
    );
}

/// After an outage everything is due at once: each call stays small, and together they promote all.
pub async fn promote_of_100000_due_at_once_stays_bounded(store: Arc<dyn Store>) {
    const DUE: usize = 100_000;
    let mut scene = Scene::new(store);
    for batch in 0..DUE / ENQUEUE_JOBS_MAX {
        let name = |n| format!("{batch}-{n}");
        scene
            .insert((0..ENQUEUE_JOBS_MAX).map(|n| job("q", &name(n)).at(at(60))))
            .await;
    }
    scene.now = at(60).after(LEASE);
    let mut moved = 0;
    while moved < DUE {
        let promoted = scene
            .store
            .promote(usize::MAX, scene.now)
            .await
            .expect("the store promotes");
        assert!(
            (1..=PROMOTE_MAX).contains(&promoted.moved),
            "{} in one call",
            promoted.moved
        );
        moved += promoted.moved;
        let more_are_due = promoted.next_due.is_some_and(|due| due <= scene.now);
        assert_eq!(more_are_due, moved < DUE);
    }
    assert_eq!(
        scene.queue("q").await.counts.of(JobState::Ready),
        DUE as u64
    );
}

/// Many nodes promote concurrently; together they promote each job once.
pub async fn promoters_at_once_move_each_job_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let all: Vec<String> = (0..500).map(|n| format!("job-{n:03}")).collect();
    scene
        .insert(all.iter().map(|name| job("q", name).at(at(5))))
        .await;
    scene.now = at(5);
    let promoters = (0..8).map(|promoter| {
        let scene = scene.apart(promoter);
        tokio::spawn(async move {
            let mut moved = 0;
            loop {
                let promoted = scene
                    .store
                    .promote(10, scene.now)
                    .await
                    .expect("the store promotes");
                if promoted.moved == 0 {
                    return moved;
                }
                moved += promoted.moved;
            }
        })
    });
    let moved: usize = join_all(promoters)
        .await
        .into_iter()
        .map(|task| task.expect("no promoter panics"))
        .sum();
    assert_eq!(moved, all.len());
    assert_eq!(names(&scene.claim("q", 1_000).await), all);
}

/// A job that was cancelled or deleted while it waited is never promoted.
pub async fn a_job_called_off_is_never_promoted(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["cancelled", "deleted"].map(|name| job("q", name).at(at(5))))
        .await;
    scene.amend_named(&["cancelled"], AmendAction::Cancel).await;
    scene.amend_named(&["deleted"], AmendAction::Delete).await;
    scene.now = at(10);
    assert_eq!(
        scene.store.promote(10, scene.now).await,
        Ok(PromoteResult::default())
    );
    assert_eq!(scene.claim("q", 9).await, []);
}
