//! Since when a job has been running: its worker holds it from the time of the claim.

use crate::given::{DONE, LEASE, Scene, WORKER, at, filter, id, job, queue, retry_at};
use backstop_core::amend::AmendAction;
use backstop_core::port::{SeizeRequest, SettleOutcome, Store};
use backstop_core::{JobState, Outcome, Span, Time};
use std::sync::Arc;

/// Checks that this worker has held the job since then.
async fn check(scene: &Scene, name: &str, worker: &str, since: Time) {
    let claimant = scene.job(name).await.held_by.expect("somebody has it");
    assert_eq!(
        (claimant.worker.as_str(), claimant.since),
        (worker, since),
        "{name}"
    );
}

/// Every view of a running job shows the time of its claim; a job that does not run has none.
pub async fn a_running_job_tells_since_when(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    scene.insert([job("q", "later").at(at(99))]).await;
    scene.now = at(3).after(Span::micros(1));
    scene.claim_one("q").await;
    scene.now = at(5);
    scene.claim_one("q").await;
    scene.now = at(8);
    let (first, second) = (at(3).after(Span::micros(1)), at(5));
    check(&scene, "a", WORKER, first).await;
    check(&scene, "b", WORKER, second).await;
    assert_eq!(
        (
            scene.job("c").await.held_by,
            scene.job("later").await.held_by
        ),
        (None, None)
    );
    for running in [
        filter(Some("q"), Some(JobState::Running)),
        filter(None, Some(JobState::Running)),
    ] {
        let listed: Vec<_> = scene
            .list(&running)
            .await
            .iter()
            .map(|job| (job.id, job.started_at()))
            .collect();
        assert_eq!(listed, [(id("b"), Some(second)), (id("a"), Some(first))]);
    }
    let ids = ["c", "a"].map(id).to_vec();
    let found = scene
        .store
        .find(queue("q"), ids, scene.now)
        .await
        .expect("the store finds them");
    let found: Vec<_> = found
        .iter()
        .flatten()
        .map(backstop_core::Job::started_at)
        .collect();
    assert_eq!(found, [None, Some(first)]);
    assert_eq!(
        scene.job("a").await.running_for(at(4)),
        Some(Span::micros(999_999))
    );
    assert_eq!(
        scene.job("a").await.running_for(at(1)),
        Some(Span::micros(0)),
        "the clock was set back"
    );
}

/// One claim of several queues and levels has the same time everywhere.
pub async fn a_claim_begins_at_once_in_all_its_queues(store: Arc<dyn Store>) {
    use backstop_core::Priority;
    let mut scene = Scene::new(store);
    scene
        .insert([
            job("q", "a"),
            job("q", "b").priority(Priority::Low),
            job("other", "c"),
        ])
        .await;
    scene.now = at(7);
    let claim = scene.claim_of(&[("q", 5), ("other", 5)]);
    assert_eq!(scene.claim_as(&claim).await.len(), 3);
    for name in ["a", "b", "c"] {
        check(&scene, name, WORKER, at(7)).await;
    }
}

/// Heartbeats, begins and repeated claims do not change the time of the claim.
pub async fn beats_and_repetitions_leave_the_beginning_as_it_is(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    let claim = scene.claim_of(&[("q", 2)]);
    let runs = scene.claim_as(&claim).await;
    let lease = runs[0].lease.clone();
    scene.now = at(10);
    assert_eq!(scene.beat(std::slice::from_ref(&lease), at(60)).await, []);
    assert_eq!(scene.begin(std::slice::from_ref(&lease)).await, []);
    scene.now = at(20);
    assert_eq!(scene.claim_as(&claim).await.len(), 2);
    for name in ["a", "b"] {
        check(&scene, name, WORKER, at(0)).await;
    }
    assert_eq!(
        scene.job("a").await.held_by.map(|claimant| claimant.until),
        Some(at(60))
    );
    assert_eq!(scene.settle(&lease, DONE).await, SettleOutcome::Applied);
    check(&scene, "b", WORKER, at(0)).await;
}

/// A seized job runs since its seizure, even if the seizure is repeated.
pub async fn a_seized_job_begins_with_its_seizer(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    scene.claim_one("q").await;
    scene.now = at(100);
    let seize = scene.seize_of("rescuer");
    assert_eq!(scene.seize_as(&seize).await.len(), 1);
    scene.now = at(110);
    assert_eq!(scene.seize_as(&seize).await.len(), 1);
    check(&scene, "a", "rescuer", at(100)).await;
    scene.now = at(100).after(LEASE).after(Span::micros(1));
    assert_eq!(scene.seize("another").await.len(), 1);
    check(&scene, "a", "another", scene.now).await;
}

/// The rest of a claim that was seized in part keeps its time.
pub async fn the_rest_of_a_claim_seized_in_part_keeps_its_beginning(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    scene.now = at(2);
    scene.claim("q", 3).await;
    scene.now = at(100);
    let seize = SeizeRequest {
        max: 2,
        ..scene.seize_of("rescuer")
    };
    assert_eq!(scene.seize_as(&seize).await.len(), 2);
    check(&scene, "a", "rescuer", at(100)).await;
    check(&scene, "b", "rescuer", at(100)).await;
    check(&scene, "c", WORKER, at(2)).await;
}

/// An end of any kind clears the time, and the next claim sets a new one.
pub async fn what_no_longer_runs_has_no_beginning(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["released", "failed", "done", "cancelled"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 4).await;
    scene.now = at(5);
    let released = Outcome::Released { at: scene.now };
    let outcomes = [released, retry_at(at(6)), DONE];
    scene
        .settle_all(runs.iter().map(|run| &run.lease).zip(outcomes))
        .await;
    assert_eq!(
        scene
            .amend_named(&["cancelled"], AmendAction::Cancel)
            .await
            .applied,
        1
    );
    for name in ["released", "failed", "done", "cancelled"] {
        let job = scene.job(name).await;
        assert_eq!(
            (&job.held_by, job.started_at(), job.running_for(scene.now)),
            (&None, None, None),
            "{name}"
        );
    }
    scene.now = at(9);
    scene.promote().await;
    assert_eq!(scene.claim("q", 9).await.len(), 2);
    check(&scene, "released", WORKER, at(9)).await;
    check(&scene, "failed", WORKER, at(9)).await;
}
