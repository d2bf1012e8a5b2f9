//! Dead letters that are damaged, or whose groups were lost.

use crate::place::Place;
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, Selection};
use backstop_core::failure::ErrorReport;
use backstop_core::port::{
    AmendJobsRequest, CellStore, CellSwap, FindingSeverity, ListCellsRequest, ListGroupsRequest,
    ListJobsRequest, OperatorStore, Store, StoreError,
};
use backstop_core::verdict::{EndReason, Outcome};
use backstop_core::{Fingerprint, JobId, JobState, Overflow, Priority, QueueBounds};
use backstop_testkit::given::{Scene, dead, filter, history, id, job, listed, queue};
use backstop_testkit::servers;

async fn agrees(place: &Place<'_>) -> bool {
    let examination = place.store.examine().await.expect("it is examined");
    examination
        .findings
        .last()
        .expect("the drift is looked at last")
        .severity
        == FindingSeverity::Good
}

async fn die(scene: &mut Scene, name: &str, message: &str) {
    scene.pass(backstop_core::Span::secs(1));
    let outcome = Outcome::Dead {
        reason: EndReason::AttemptsExhausted,
        history: history(message),
    };
    scene.insert_and_end(job("q", name), outcome).await;
}

/// Groups as how many died of what, the sample left out.
async fn groups(scene: &Scene) -> Vec<(Fingerprint, u64)> {
    let query = ListGroupsRequest {
        queue: Some(queue("q")),
        limit: 10,
    };
    let groups = scene
        .store
        .groups(query, scene.now)
        .await
        .expect("deaths are grouped");
    groups
        .into_iter()
        .map(|group| (group.fingerprint, group.count))
        .collect()
}

fn fingerprint(message: &str) -> Fingerprint {
    Fingerprint::of(&ErrorReport::message(message))
}

/// Overwrites the record of a job with bytes that are none.
fn spoil(place: &Place<'_>, id: JobId, bytes: &str) {
    let hex = id.to_string().replace('-', "");
    let script =
        "local id = string.gsub(ARGV[1], '..', function(x) return string.char(tonumber(x, 16)) end)
        return redis.call('HSET', KEYS[1], id, ARGV[2])";
    let answer = place
        .server
        .cli(&["eval", script, "1", &place.key("q", "records"), &hex, bytes]);
    assert_eq!(answer.trim(), "0", "the record is there");
}

async fn delete(
    scene: &Scene,
    id: JobId,
    only: Option<JobState>,
) -> (usize, Vec<(JobId, AmendRefusal)>) {
    let selection = Selection::Ids(vec![id]);
    let amendment = AmendJobsRequest {
        selection,
        action: AmendAction::Delete,
        only,
        cursor: None,
        max: 1,
    };
    let amended = scene
        .store
        .amend(amendment, scene.now)
        .await
        .expect("it is deleted");
    (amended.applied, amended.refused)
}

#[tokio::test]
async fn a_damaged_dead_letter_hides_nothing_and_can_be_deleted() {
    for garbage in ["garbage", "5garbage", "", &"5".repeat(200)] {
        let place = Place::on(servers::redis()).await;
        let mut scene = place.scene();
        for name in ["a", "b", "c"] {
            die(&mut scene, name, "boom").await;
        }
        spoil(&place, id("b"), garbage);
        for limit in [1, 10] {
            for state in [Some(JobState::Dead), None] {
                let (mut jobs, mut damaged, mut cursor) = (Vec::new(), Vec::new(), None);
                loop {
                    let query = ListJobsRequest {
                        filter: filter(Some("q"), state),
                        cursor,
                        limit,
                        ..ListJobsRequest::default()
                    };
                    let page = scene.store.jobs(query, scene.now).await.expect("a page");
                    jobs.extend(page.jobs);
                    damaged.extend(page.damaged);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                assert_eq!(listed(&jobs), ["c", "a"], "{garbage}");
                let told: Vec<_> = damaged.into_iter().map(|one| (one.id, one.queue)).collect();
                assert_eq!(told, [(Some(id("b")), Some(queue("q")))], "{garbage}");
            }
        }
        assert!(matches!(
            place.store.job(id("b"), scene.now).await,
            Err(StoreError::Corrupt { .. })
        ));
        assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 3);
        assert_eq!(groups(&scene).await, [(fingerprint("boom"), 3)]);
        place.store.migrate().await.expect("it repairs");
        assert_eq!(
            scene.queue("q").await.counts.of(JobState::Dead),
            3,
            "a repair hides nothing either"
        );
        let retried = scene
            .amend(
                Selection::Matching(filter(Some("q"), Some(JobState::Dead))),
                AmendAction::Retry,
            )
            .await;
        assert_eq!(
            (retried.applied, retried.refused),
            (2, vec![]),
            "the others are not held up"
        );
        let alive = delete(&scene, id("b"), Some(JobState::Ready)).await;
        assert_eq!(
            alive,
            (0, vec![(id("b"), AmendRefusal::OtherState(JobState::Dead))])
        );
        assert_eq!(
            delete(&scene, id("b"), Some(JobState::Dead)).await,
            (1, vec![])
        );
        assert_eq!(
            delete(&scene, id("b"), None).await,
            (0, vec![(id("b"), AmendRefusal::NotFound)])
        );
        assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 0);
        assert_eq!(groups(&scene).await, []);
        assert!(agrees(&place).await, "nothing of it is left");
    }
}

#[tokio::test]
async fn a_damaged_job_keeps_nobody_from_the_others() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene
        .insert([
            job("q", "a").unique("k"),
            job("q", "b"),
            job("q", "later").at(backstop_testkit::given::at(5)),
        ])
        .await;
    spoil(&place, id("a"), "garbage");
    spoil(&place, id("later"), "garbage");
    scene.now = backstop_testkit::given::at(5);
    scene.promote().await;
    let runs = scene.claim("q", 5).await;
    assert_eq!(backstop_testkit::given::names(&runs), ["b"]);
    spoil(&place, id("b"), "garbage");
    scene.settle(&runs[0].lease, dead()).await;
    for name in ["a", "b", "later"] {
        assert_eq!(
            delete(&scene, id(name), None).await,
            if name == "b" {
                (0, vec![(id("b"), AmendRefusal::Running)])
            } else {
                (1, vec![])
            }
        );
    }
    scene.insert([job("q", "c").unique("k")]).await;
}

#[tokio::test]
async fn groups_are_rebuilt_from_the_histories() {
    // Without both of the first two it is as a store was before deaths were grouped.
    for parts in [
        &["deaths", "groups"][..],
        &["deaths"],
        &["groups"],
        &["dead"],
    ] {
        let place = Place::on(servers::redis()).await;
        let mut scene = place.scene();
        for (name, message) in [("a", "boom"), ("b", "bang"), ("c", "boom")] {
            die(&mut scene, name, message).await;
        }
        let bounds = QueueBounds {
            max_size: Some(1),
            overflow: Overflow::DeadLetterOldest,
            dead_max: 9,
        };
        scene
            .store
            .set_bounds(queue("q"), bounds, scene.now)
            .await
            .expect("it is bounded");
        scene
            .insert([job("q", "victim").priority(Priority::Low), job("q", "last")])
            .await;
        let before = groups(&scene).await;
        assert_eq!(before.len(), 3);
        assert!(agrees(&place).await, "before");
        for part in parts {
            place.delete("q", part);
        }
        assert!(!agrees(&place).await, "{parts:?} is missing");
        place.store.migrate().await.expect("it repairs");
        assert!(agrees(&place).await, "{parts:?} was rebuilt");
        assert_eq!(groups(&scene).await, before, "{parts:?}");
        let booms = Filter {
            fingerprint: Some(fingerprint("boom")),
            ..filter(Some("q"), Some(JobState::Dead))
        };
        assert_eq!(listed(&scene.list(&booms).await), ["c", "a"], "{parts:?}");
        assert_eq!(scene.queue("q").await.bounds, bounds, "bounds stay");
    }
}

#[tokio::test]
async fn cells_are_listed_again_after_a_repair() {
    let place = Place::on(servers::redis()).await;
    let names = ["a", "b"].map(str::to_owned);
    let swaps = names.iter().map(|name| CellSwap {
        name: name.clone(),
        seen: None,
        version: 1,
        value: Some(vec![7]),
    });
    place
        .store
        .swap(swaps.collect())
        .await
        .expect("cells are written");
    place
        .server
        .cli(&["del", &format!("{}:{{:cells}}:names", place.prefix())]);
    place.store.migrate().await.expect("it repairs");
    let query = ListCellsRequest {
        prefix: String::new(),
        after: None,
        limit: 9,
    };
    let listed = place
        .store
        .list_cells(query)
        .await
        .expect("cells are listed");
    assert_eq!(
        listed.into_iter().map(|cell| cell.name).collect::<Vec<_>>(),
        names
    );
}
