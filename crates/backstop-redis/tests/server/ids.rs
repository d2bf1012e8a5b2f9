//! One id in several queues: it is unique within each of them only.

use crate::place::Place;
use backstop_core::amend::{AmendAction, AmendRefusal, Selection};
use backstop_core::port::AmendResult;
use backstop_core::{Job, JobState, QueueName};
use backstop_testkit::given::{Scene, dead, filter, id, job, queue};
use backstop_testkit::servers;

/// A dead job in `a`, and one of the same id in `b`.
async fn twice(place: &Place<'_>) -> Scene {
    let mut scene = place.scene();
    for name in ["a", "b"] {
        scene.insert_and_end(job(name, "same"), dead()).await;
    }
    scene
}

async fn all(scene: &Scene) -> Vec<Job> {
    scene.list(&filter(None, None)).await
}

fn refused(refusal: AmendRefusal) -> AmendResult {
    AmendResult {
        refused: vec![(id("same"), refusal)],
        ..AmendResult::default()
    }
}

#[tokio::test]
async fn an_id_that_several_queues_know_is_refused_and_nothing_changes() {
    let place = Place::on(servers::redis()).await;
    let scene = twice(&place).await;
    let before = all(&scene).await;
    assert_eq!(before.len(), 2);
    for action in [
        AmendAction::Retry,
        AmendAction::Cancel,
        AmendAction::Delete,
        AmendAction::Move(queue("c")),
    ] {
        let amended = scene.amend_named(&["same"], action.clone()).await;
        assert_eq!(amended, refused(AmendRefusal::Ambiguous), "{action:?}");
        assert_eq!(all(&scene).await, before, "{action:?}");
    }
}

#[tokio::test]
async fn all_jobs_of_an_id_are_told_by_their_queues() {
    let place = Place::on(servers::redis()).await;
    let scene = twice(&place).await;
    scene.insert([job("b", "other")]).await;
    let queues = async |scene: &Scene, name: &str| -> Vec<QueueName> {
        let found = scene.store.locate(id(name), scene.now).await.unwrap();
        assert!(found.iter().all(|job| job.id == id(name)), "{found:?}");
        found.into_iter().map(|job| job.queue).collect()
    };
    assert_eq!(queues(&scene, "same").await, [queue("a"), queue("b")]);
    assert_eq!(queues(&scene, "other").await, [queue("b")]);
    assert_eq!(queues(&scene, "none").await, []);
}

#[tokio::test]
async fn with_its_queue_named_only_that_job_is_changed() {
    let place = Place::on(servers::redis()).await;
    let scene = twice(&place).await;
    let amended = scene
        .amend(
            Selection::Within(queue("b"), vec![id("same")]),
            AmendAction::Retry,
        )
        .await;
    assert_eq!(amended.applied, 1);
    let mut states: Vec<_> = all(&scene)
        .await
        .into_iter()
        .map(|job| (job.queue, job.state))
        .collect();
    states.sort_by_key(|(queue, _)| queue.clone());
    assert_eq!(
        states,
        [(queue("a"), JobState::Dead), (queue("b"), JobState::Ready)]
    );
    scene
        .amend(
            Selection::Within(queue("b"), vec![id("same")]),
            AmendAction::Delete,
        )
        .await;
    assert_eq!(
        scene
            .amend_named(&["same"], AmendAction::Delete)
            .await
            .applied,
        1,
        "one is left"
    );
    assert_eq!(all(&scene).await, []);
}

#[tokio::test]
async fn a_job_is_not_moved_onto_another_of_its_id() {
    let place = Place::on(servers::redis()).await;
    let scene = twice(&place).await;
    let before = all(&scene).await;
    for selection in [
        Selection::Within(queue("a"), vec![id("same")]),
        Selection::Matching(filter(Some("a"), Some(JobState::Dead))),
    ] {
        let amended = scene.amend(selection, AmendAction::Move(queue("b"))).await;
        assert_eq!(amended, refused(AmendRefusal::UniqueKeyHeld(id("same"))));
        assert_eq!(all(&scene).await, before, "both stay");
    }
}
