//! Moves to another queue that are cut short, and those who find them.

use crate::place::{Place, open};
use backstop_core::amend::{AmendAction, AmendRefusal, Selection};
use backstop_core::port::{
    AmendJobsRequest, AmendResult, EnqueueOutcome, OperatorStore, PruneRequest, SettleOutcome,
    Store, StoreResult,
};
use backstop_core::verdict::DoneRetention;
use backstop_core::{JobState, Outcome};
use backstop_testkit::given::{DONE, Scene, dead, filter, id, job, listed, queue};
use backstop_testkit::servers;
use futures_util::future::join_all;
use std::sync::Arc;

/// Where a move is cut short: the script of the next step fails at its first word, as if nobody had
/// sent it.
#[derive(Clone, Copy, Debug)]
enum Cut {
    AfterMark,
    AfterReceive,
}

impl Cut {
    const ALL: [Self; 2] = [Self::AfterMark, Self::AfterReceive];

    /// A key that only the next step uses.
    fn key(self, place: &Place<'_>) -> String {
        match self {
            Self::AfterMark => place.key("to", "received"),
            Self::AfterReceive => place.key("from", "moved"),
        }
    }

    fn set(self, place: &Place<'_>) {
        assert_eq!(
            place
                .server
                .cli(&["set", &self.key(place), "in the way"])
                .trim(),
            "OK"
        );
    }

    fn lift(self, place: &Place<'_>) {
        assert_eq!(place.server.cli(&["del", &self.key(place)]).trim(), "1");
    }
}

async fn amend(
    store: &dyn Store,
    scene: &Scene,
    name: &str,
    action: AmendAction,
) -> StoreResult<AmendResult> {
    let selection = Selection::Ids(vec![id(name)]);
    store
        .amend(
            AmendJobsRequest {
                selection,
                action,
                only: None,
                cursor: None,
                max: 1,
            },
            scene.now,
        )
        .await
}

fn to() -> AmendAction {
    AmendAction::Move(queue("to"))
}

/// A store with a dead letter whose move was cut short.
async fn cut_short(cut: Cut) -> (Place<'static>, Scene) {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene
        .insert_and_end(job("from", "a").unique("k"), dead())
        .await;
    cut.set(&place);
    let selection = Selection::Matching(filter(Some("from"), Some(JobState::Dead)));
    let amendment = AmendJobsRequest {
        selection,
        action: to(),
        only: None,
        cursor: None,
        max: 9,
    };
    let moved = place.store.amend(amendment, scene.now).await;
    assert!(moved.is_err(), "{cut:?}: {moved:?}");
    cut.lift(&place);
    let dead = scene
        .list(&filter(Some("from"), Some(JobState::Dead)))
        .await;
    assert_eq!(listed(&dead), ["a"], "{cut:?}: it stays listed");
    (place, scene)
}

/// The job is ready in its new queue, nowhere else, and runs once.
async fn is_moved_once(scene: &mut Scene, what: &str) {
    assert_eq!(
        listed(&scene.list(&filter(None, None)).await),
        ["a"],
        "{what}"
    );
    let found = scene.job("a").await;
    assert_eq!(
        (found.queue, found.state, found.requeues),
        (queue("to"), JobState::Ready, 1),
        "{what}"
    );
    assert_eq!(
        scene.queue("from").await.counts.of(JobState::Dead),
        0,
        "{what}"
    );
    assert_eq!(
        scene.enqueue([job("from", "a")]).await,
        [EnqueueOutcome::Same],
        "{what}"
    );
    assert_eq!(
        scene.enqueue([job("from", "b").unique("k")]).await,
        [EnqueueOutcome::Inserted],
        "{what}"
    );
    let run = scene.claim_one("to").await;
    assert_eq!(
        scene.settle(&run.lease, DONE).await,
        SettleOutcome::Applied,
        "{what}"
    );
}

#[tokio::test]
async fn a_repair_finishes_a_move() {
    for cut in Cut::ALL {
        let (place, mut scene) = cut_short(cut).await;
        place.store.migrate().await.expect("it repairs");
        is_moved_once(&mut scene, &format!("{cut:?}")).await;
    }
}

#[tokio::test]
async fn a_keeper_finishes_a_move() {
    for cut in Cut::ALL {
        let (place, mut scene) = cut_short(cut).await;
        let retention = PruneRequest {
            default: None,
            queues: Vec::new(),
            max: 10,
        };
        place
            .store
            .prune(retention, scene.now)
            .await
            .expect("it prunes");
        is_moved_once(&mut scene, &format!("{cut:?}")).await;
    }
}

#[tokio::test]
async fn who_repeats_a_move_finishes_it() {
    for cut in Cut::ALL {
        let (place, mut scene) = cut_short(cut).await;
        let again = amend(&*place.store, &scene, "a", to())
            .await
            .expect("it moves");
        assert_eq!((again.applied, again.refused), (1, vec![]), "{cut:?}");
        let again = amend(&*place.store, &scene, "a", to())
            .await
            .expect("it is answered for");
        assert_eq!(
            (again.applied, again.refused),
            (0, vec![(id("a"), AmendRefusal::Alive)]),
            "{cut:?}"
        );
        is_moved_once(&mut scene, &format!("{cut:?}")).await;
        let (_place, mut scene) = cut_short(cut).await;
        let selection = Selection::Matching(filter(Some("from"), Some(JobState::Dead)));
        assert_eq!(scene.amend(selection, to()).await.applied, 1, "{cut:?}");
        is_moved_once(&mut scene, &format!("{cut:?}")).await;
    }
}

#[tokio::test]
async fn another_amendment_finishes_a_move_first() {
    for cut in Cut::ALL {
        let (place, mut scene) = cut_short(cut).await;
        let retried = amend(&*place.store, &scene, "a", AmendAction::Retry)
            .await
            .expect("it is answered for");
        assert_eq!(
            (retried.applied, retried.refused),
            (0, vec![(id("a"), AmendRefusal::Ready)]),
            "{cut:?}"
        );
        is_moved_once(&mut scene, &format!("{cut:?}")).await;
        let (place, scene) = cut_short(cut).await;
        let deleted = amend(&*place.store, &scene, "a", AmendAction::Delete)
            .await
            .expect("it is answered for");
        assert_eq!((deleted.applied, deleted.refused), (1, vec![]), "{cut:?}");
        assert_eq!(scene.list(&filter(None, None)).await, []);
    }
}

#[tokio::test]
async fn what_was_moved_and_is_gone_by_now_does_not_come_back() {
    let (place, mut scene) = cut_short(Cut::AfterReceive).await;
    let run = scene.claim_one("to").await;
    assert_eq!(
        scene
            .settle(&run.lease, Outcome::Done(DoneRetention::Gone))
            .await,
        SettleOutcome::Applied
    );
    place.store.migrate().await.expect("it repairs");
    assert_eq!(
        scene.list(&filter(None, None)).await,
        [],
        "it has run, once"
    );
    assert_eq!(
        scene.enqueue([job("from", "a")]).await,
        [EnqueueOutcome::Inserted],
        "nobody knows it any more"
    );
}

#[tokio::test]
async fn what_is_not_taken_stays_and_can_be_moved_later() {
    let (place, mut scene) = cut_short(Cut::AfterMark).await;
    scene.insert([job("to", "twin").unique("k")]).await;
    place.store.migrate().await.expect("it repairs");
    assert_eq!(scene.state("a").await, Some(JobState::Dead));
    let refused = amend(&*place.store, &scene, "a", to())
        .await
        .expect("it is answered for")
        .refused;
    assert_eq!(
        refused,
        [(id("a"), AmendRefusal::UniqueKeyHeld(id("twin")))]
    );
    let run = scene.claim_one("to").await;
    scene
        .settle(&run.lease, Outcome::Done(DoneRetention::Gone))
        .await;
    assert_eq!(
        amend(&*place.store, &scene, "a", to())
            .await
            .expect("it moves")
            .applied,
        1
    );
    is_moved_once(&mut scene, "later").await;
}

#[tokio::test]
async fn movers_at_once_move_each_job_once() {
    for url in [servers::redis().fresh_url(), servers::cluster().fresh_url()] {
        let store = open(&url);
        store.migrate().await.expect("the store migrates");
        let mut scene = Scene::new(Arc::clone(&store) as Arc<dyn Store>);
        for n in 0..40 {
            scene
                .insert_and_end(job("from", &n.to_string()), dead())
                .await;
        }
        let movers = (0..8).map(|mover| {
            let (store, scene) = (open(&url), scene.clone());
            async move {
                let target = AmendAction::Move(queue(if mover % 2 == 0 { "to" } else { "other" }));
                let selection = Selection::Matching(filter(Some("from"), Some(JobState::Dead)));
                let amendment = AmendJobsRequest {
                    selection,
                    action: target,
                    only: None,
                    cursor: None,
                    max: 100,
                };
                store
                    .amend(amendment, scene.now)
                    .await
                    .expect("it moves")
                    .applied
            }
        });
        let applied: usize = join_all(movers).await.into_iter().sum();
        assert!(applied >= 40, "{applied}");
        assert_eq!(
            scene.list(&filter(None, Some(JobState::Ready))).await.len(),
            40
        );
        assert_eq!(scene.queue("from").await.counts.of(JobState::Dead), 0);
        assert_eq!(scene.list(&filter(None, None)).await.len(), 40);
    }
}

#[tokio::test]
async fn a_job_may_go_and_come_back() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert_and_end(job("from", "a"), dead()).await;
    for (there, back) in [
        ("to", "from"),
        ("from", "to"),
        ("third", "from"),
        ("from", "third"),
    ] {
        let moved = amend(&*place.store, &scene, "a", AmendAction::Move(queue(there)))
            .await
            .expect("it moves");
        assert_eq!(moved.applied, 1, "to {there}");
        assert_eq!(
            scene.enqueue([job(back, "a")]).await,
            [EnqueueOutcome::Same],
            "{back} knows where it went"
        );
        let run = scene.claim_one(there).await;
        assert_eq!(
            scene.settle(&run.lease, dead()).await,
            SettleOutcome::Applied
        );
    }
    amend(&*place.store, &scene, "a", AmendAction::Delete)
        .await
        .expect("it is deleted");
    assert_eq!(
        scene.enqueue([job("third", "a")]).await,
        [EnqueueOutcome::Inserted],
        "it is known nowhere any more"
    );
}

#[tokio::test]
async fn what_moves_leave_behind_is_forgotten_in_time() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert_and_end(job("from", "a"), dead()).await;
    assert_eq!(
        amend(&*place.store, &scene, "a", to())
            .await
            .expect("it moves")
            .applied,
        1
    );
    let prune = async || {
        let retention = PruneRequest {
            default: None,
            queues: Vec::new(),
            max: 10,
        };
        place
            .store
            .prune(retention, scene.now)
            .await
            .expect("it prunes");
        let left = |queue, part| {
            place
                .server
                .cli(&["hlen", &place.key(queue, part)])
                .trim()
                .to_owned()
        };
        [left("from", "moved"), left("to", "received")]
    };
    assert_eq!(prune().await, ["1", "1"]);
    // As if it had been decided in 1970.
    let script = "local move, said = unpack(redis.call('HGETALL', KEYS[1]))
        return redis.call('HSET', KEYS[1], move, '0000000000' .. string.sub(said, 11))";
    place
        .server
        .cli(&["eval", script, "1", &place.key("to", "received")]);
    assert_eq!(prune().await, ["1", "0"]);
    amend(&*place.store, &scene, "a", AmendAction::Delete)
        .await
        .expect("it is deleted");
    assert_eq!(prune().await, ["0", "0"]);
}
