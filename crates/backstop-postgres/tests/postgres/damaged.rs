//! Rows that somebody damaged: they are shown as what they are, hide nothing, and can be deleted.

use super::{fresh_store, user};
use backstop_core::JobState;
use backstop_core::amend::{AmendAction, Filter};
use backstop_core::port::{DamagedJob, ListGroupsRequest, ListJobsRequest};
use backstop_testkit::given::{Scene, dead, filter, id, job, listed, queue};

/// A store with the dead letters `a`, `b` and `c`, of which `b` is damaged by hand.
async fn three_dead_one_damaged(damage: &str) -> Scene {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(store);
    for name in ["a", "b", "c"] {
        scene.insert_and_end(job("q", name), dead()).await;
    }
    let sql = format!(
        "UPDATE {schema}.finished SET {damage} WHERE id = '{}'",
        id("b")
    );
    user().await.batch_execute(&sql).await.expect(damage);
    scene
}

async fn page(scene: &Scene, filter: Filter) -> (Vec<String>, Vec<DamagedJob>) {
    let query = ListJobsRequest {
        filter,
        limit: 9,
        ..ListJobsRequest::default()
    };
    let page = scene.store.jobs(query, scene.now).await.expect("a page");
    assert_eq!(page.next, None);
    (listed(&page.jobs), page.damaged)
}

#[tokio::test]
async fn a_damaged_dead_letter_hides_nothing_and_can_be_deleted() {
    for (damage, why) in [
        ("reason = 'nonsense'", "reason: `nonsense` is not a reason"),
        ("kind = ''", "kind: "),
        ("level = 9", "level: 9 is none"),
        ("attempts = -1", "attempts: -1 is too few"),
        ("unique_key = repeat('k', 1000)", "unique_key: "),
    ] {
        let scene = three_dead_one_damaged(damage).await;
        for wanted in [filter(Some("q"), Some(JobState::Dead)), Filter::default()] {
            let (names, damaged) = page(&scene, wanted).await;
            assert_eq!(
                (names.as_slice(), damaged.len()),
                (["c", "a"].map(str::to_owned).as_slice(), 1),
                "{damage}"
            );
            assert_eq!(
                (damaged[0].id, &damaged[0].queue),
                (Some(id("b")), &Some(queue("q")))
            );
            assert!(
                damaged[0].why.starts_with(why),
                "{damage}: {}",
                damaged[0].why
            );
        }
        let groups = scene
            .store
            .groups(
                ListGroupsRequest {
                    queue: None,
                    limit: 9,
                },
                scene.now,
            )
            .await
            .expect("groups");
        assert_eq!((groups.len(), groups[0].count), (1, 3), "{damage}");
        assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 3);
        assert!(
            scene.find("b").await.is_some(),
            "{damage}: what can be read of it is"
        );
        assert_eq!(
            scene.amend_named(&["b"], AmendAction::Delete).await.applied,
            1,
            "{damage}"
        );
        assert_eq!(
            page(&scene, Filter::default()).await,
            (vec!["c".to_owned(), "a".to_owned()], vec![])
        );
        assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 2);
    }
}

#[tokio::test]
async fn a_job_of_no_state_or_no_queue_is_shown_and_can_be_deleted() {
    for (damage, why, of) in [
        ("state = 99", "state: 99 is none", Some(queue("q"))),
        ("queue = 99", "queue: there is none of its number", None),
    ] {
        let scene = three_dead_one_damaged(damage).await;
        let (names, damaged) = page(&scene, Filter::default()).await;
        assert_eq!(names, ["c", "a"], "{damage}");
        assert_eq!(
            damaged,
            [DamagedJob {
                id: Some(id("b")),
                queue: of,
                why: why.to_owned()
            }]
        );
        assert_eq!(
            scene.amend_named(&["b"], AmendAction::Delete).await.applied,
            1,
            "{damage}"
        );
        assert_eq!(page(&scene, Filter::default()).await.1, []);
    }
}

#[tokio::test]
async fn a_damaged_dead_letter_can_be_requeued() {
    let mut scene = three_dead_one_damaged("level = 9, reason = 'nonsense'").await;
    assert_eq!(
        scene.amend_named(&["b"], AmendAction::Retry).await.applied,
        1
    );
    assert_eq!(scene.claim_one("q").await.lease.job, id("b"));
}
