//! The bound on the number of queues, and the bounds on how much one call returns, scans or
//! removes.

use super::dead::burial;
use crate::given::{DONE, Scene, at, dead, filter, id, job, listed, names, queue};
use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_core::limits::{
    CLAIM_BYTES_MAX, PAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, PRUNE_MAX, PRUNE_QUEUES_MAX, QUEUE_KEPT_FOR,
};
use backstop_core::port::{
    AmendJobsRequest, EnqueueOutcome, ListJobsRequest, PruneRequest, PruneResult, QueueState,
    QueueStatus, Retention, Store, StoreError,
};
use backstop_core::{JobState, QueueBounds, Span};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most queues in the stores of the contract: more than one pruning looks at.
pub const QUEUES_IN_CONTRACT: usize = 1_100;

async fn fill(scene: &Scene, count: usize) {
    scene
        .insert((0..count).map(|n| job(&format!("q-{n:05}"), &n.to_string())))
        .await;
}

async fn queues(scene: &Scene) -> Vec<QueueStatus> {
    scene
        .store
        .queues(scene.now)
        .await
        .expect("queues are listed")
}

async fn names_of_queues(scene: &Scene) -> Vec<String> {
    queues(scene)
        .await
        .into_iter()
        .map(|queue| queue.name.to_string())
        .collect()
}

/// A call that names one queue too many is refused completely. Existing and configured queues do
/// not count.
pub async fn a_call_with_one_queue_too_many_is_refused(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    fill(&scene, QUEUES_IN_CONTRACT).await;
    let both = [job("q-00000", "beside"), job("new", "a")]
        .map(Into::into)
        .to_vec();
    let refused = scene.store.enqueue(both, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::TooManyQueues { .. })),
        "{refused:?}"
    );
    assert_eq!(
        (scene.find("beside").await, scene.find("a").await),
        (None, None)
    );
    assert_eq!(names_of_queues(&scene).await.len(), QUEUES_IN_CONTRACT);
    assert_eq!(
        scene.enqueue([job("q-00000", "beside")]).await,
        [EnqueueOutcome::Inserted]
    );
    assert_eq!(
        scene
            .store
            .set_bounds(queue("bounded"), QueueBounds::default(), scene.now)
            .await,
        Ok(())
    );
    assert_eq!(
        scene
            .store
            .set_queue_state(queue("paused"), QueueState::Paused, scene.now)
            .await,
        Ok(())
    );
    let declared = vec![queue("declared"), queue("bounded")];
    assert_eq!(scene.store.declare_queues(declared).await, Ok(()));
    let free = scene
        .enqueue([
            job("bounded", "b"),
            job("paused", "c"),
            job("declared", "d"),
        ])
        .await;
    assert_eq!(free, [EnqueueOutcome::Inserted; 3]);
}

/// A declared queue keeps its bounds and its pause, and gets the default ones if it has none.
pub async fn a_declared_queue_keeps_its_bounds(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let bounds = QueueBounds {
        max_size: Some(1),
        ..QueueBounds::default()
    };
    let set = scene.store.set_bounds(queue("a"), bounds, scene.now).await;
    assert_eq!(set, Ok(()));
    let gate = scene
        .store
        .set_queue_state(queue("b"), QueueState::Paused, scene.now);
    assert_eq!(gate.await, Ok(()));
    for _ in 0..2 {
        let declared = vec![queue("a"), queue("b"), queue("c")];
        assert_eq!(scene.store.declare_queues(declared).await, Ok(()));
    }
    let found: Vec<_> = queues(&scene)
        .await
        .into_iter()
        .map(|queue| (queue.name.to_string(), queue.bounds, queue.state))
        .collect();
    let usual = QueueBounds::default();
    assert_eq!(
        found,
        [
            ("a".to_owned(), bounds, QueueState::Active),
            ("b".to_owned(), usual, QueueState::Paused),
            ("c".to_owned(), usual, QueueState::Active),
        ]
    );
}

/// A move to a new queue is refused where a push to it would be, and the jobs stay where they are.
/// A burial is accepted all the same: otherwise the dead letter would be lost.
pub async fn a_move_to_one_queue_too_many_is_refused(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("q-00000", "letter"), dead()).await;
    fill(&scene, QUEUES_IN_CONTRACT).await;
    let letters = filter(Some("q-00000"), Some(JobState::Dead));
    for selection in [
        Selection::Ids(vec![id("letter")]),
        Selection::Matching(letters),
    ] {
        let amendment = AmendJobsRequest {
            cursor: None,
            selection,
            action: AmendAction::Move(queue("new")),
            only: None,
            max: 9,
        };
        let refused = scene.store.amend(amendment, scene.now).await;
        assert!(
            matches!(refused, Err(StoreError::TooManyQueues { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(scene.job("letter").await.queue, queue("q-00000"));
    assert_eq!(names_of_queues(&scene).await.len(), QUEUES_IN_CONTRACT);
    let there = AmendAction::Move(queue("q-00001"));
    assert_eq!(scene.amend_named(&["letter"], there).await.applied, 1);
    let buried = vec![burial("buried", "b", "boom", at(1))];
    let answers = scene.store.bury(buried, scene.now).await;
    assert_eq!(answers, Ok(vec![EnqueueOutcome::Inserted]));
}

/// Concurrent callers share the room for new queues.
pub async fn callers_at_once_keep_the_bound_of_queues(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    fill(&scene, QUEUES_IN_CONTRACT - 5).await;
    let calls = (0..20).map(|n| {
        let (store, now) = (Arc::clone(&scene.store), scene.now);
        let new = job(&format!("new-{n}"), &format!("new {n}")).into();
        tokio::spawn(async move { store.enqueue(vec![new], now).await })
    });
    let (mut taken, mut refused) = (0, 0);
    for call in calls.collect::<Vec<_>>() {
        match call.await.expect("no call panics") {
            Ok(answers) => {
                assert_eq!(answers, [EnqueueOutcome::Inserted]);
                taken += 1;
            }
            Err(StoreError::TooManyQueues { .. }) => refused += 1,
            Err(error) => unreachable!("neither taken nor refused: {error}"),
        }
    }
    assert_eq!((taken, refused), (5, 15));
    assert_eq!(names_of_queues(&scene).await.len(), QUEUES_IN_CONTRACT);
}

async fn prune(scene: &Scene) -> PruneResult {
    let no_time = Span::secs(0);
    let shelf = Retention {
        done_for: no_time,
        done_max: 0,
        cancelled_for: no_time,
        dead_for: no_time,
    };
    let retention = PruneRequest {
        default: Some(shelf),
        queues: Vec::new(),
        max: PRUNE_MAX,
    };
    scene
        .store
        .prune(retention, scene.now)
        .await
        .expect("the store prunes")
}

/// Lets enough time pass, with pruning in between, for an empty queue to be forgotten.
async fn pass_until_forgotten(scene: &mut Scene) {
    prune(scene).await;
    prune(scene).await;
    scene.pass(QUEUE_KEPT_FOR);
    prune(scene).await;
    // A store may need a second step to remove what it retired in the first.
    scene.pass(Span::hours(1));
    prune(scene).await;
}

/// An empty queue is forgotten after a time, unless it was configured. A queue with a job, a unique
/// key, bounds or a pause stays, and so does a declared one.
pub async fn an_empty_queue_is_forgotten(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("gone", "a"), DONE).await;
    scene.insert([job("live", "b").at(at(86_400 * 30))]).await;
    assert_eq!(
        scene
            .store
            .set_bounds(queue("bounded"), QueueBounds::default(), scene.now)
            .await,
        Ok(())
    );
    assert_eq!(
        scene
            .store
            .set_queue_state(queue("paused"), QueueState::Paused, scene.now)
            .await,
        Ok(())
    );
    let declared = vec![queue("declared")];
    assert_eq!(scene.store.declare_queues(declared).await, Ok(()));
    prune(&scene).await;
    prune(&scene).await;
    scene.pass(QUEUE_KEPT_FOR.scaled(0.5));
    prune(&scene).await;
    assert_eq!(
        names_of_queues(&scene).await,
        ["bounded", "declared", "gone", "live", "paused"]
    );
    pass_until_forgotten(&mut scene).await;
    assert_eq!(
        names_of_queues(&scene).await,
        ["bounded", "declared", "live", "paused"]
    );
    scene.insert([job("gone", "c")]).await;
    assert_eq!(
        scene.queue("gone").await.totals.enqueued,
        1,
        "its totals went with it"
    );
    assert_eq!(names(&scene.claim("gone", 9).await), ["c"]);
}

/// A job that is pushed while its queue is being forgotten survives, and so does the queue.
pub async fn a_queue_that_is_being_forgotten_loses_no_job(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for round in 0..8 {
        let name = format!("{round}");
        scene
            .insert_and_end(job("q", &format!("before {name}")), DONE)
            .await;
        prune(&scene).await;
        prune(&scene).await;
        scene.pass(QUEUE_KEPT_FOR);
        prune(&scene).await;
        scene.pass(Span::hours(1));
        let (one, other) = tokio::join!(prune(&scene), scene.enqueue([job("q", &name)]));
        assert_eq!((one.dead, other), (0, vec![EnqueueOutcome::Inserted]));
        prune(&scene).await;
        assert_eq!(names_of_queues(&scene).await, ["q"], "round {round}");
        let run = scene.claim_one("q").await;
        assert_eq!(run.lease.job, id(&name));
        scene.settle(&run.lease, DONE).await;
    }
}

/// One pruning looks at some queues, the next one continues after them, and finally nothing is
/// left.
pub async fn a_pruning_goes_on_where_it_stopped(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    fill(&scene, QUEUES_IN_CONTRACT).await;
    let cancelled = scene.amend(Selection::All, AmendAction::Cancel).await;
    assert_eq!(cancelled.applied, QUEUES_IN_CONTRACT);
    scene.pass(Span::secs(1));
    let (mut calls, mut removed) = (0, 0);
    loop {
        let pruned = prune(&scene).await;
        assert!(
            pruned.cancelled <= PRUNE_QUEUES_MAX,
            "{pruned:?}: one job in each queue it looked at"
        );
        calls += 1;
        removed += pruned.cancelled;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(
        (calls, removed),
        (
            QUEUES_IN_CONTRACT.div_ceil(PRUNE_QUEUES_MAX),
            QUEUES_IN_CONTRACT
        )
    );
    assert_eq!(scene.list(&Filter::default()).await, []);
}

const LARGE: usize = PAYLOAD_BYTES_MAX;

/// Inserts eight jobs of the largest payload, in two queues.
async fn insert_large(scene: &Scene) -> Vec<String> {
    let jobs: Vec<_> = (0..8).map(|n| (["a", "b"][n / 4], n.to_string())).collect();
    for (queue, name) in &jobs {
        scene
            .insert([job(queue, name).payload(vec![b'1'; LARGE])])
            .await;
    }
    jobs.into_iter().map(|(_, name)| name).collect()
}

/// A page of large jobs is short and has a cursor; together the pages show every job once, in
/// order.
pub async fn a_page_ends_at_its_bytes(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let all = insert_large(&scene).await;
    for (filter, is_reversed) in [
        (Filter::default(), true),
        (filter(None, Some(JobState::Ready)), false),
    ] {
        let mut query = ListJobsRequest {
            filter,
            limit: 1_000,
            ..ListJobsRequest::default()
        };
        let mut shown = Vec::new();
        for _ in 0..=all.len() {
            let page = scene
                .store
                .jobs(query.clone(), scene.now)
                .await
                .expect("a page");
            let bytes: usize = page.jobs.iter().map(|job| job.payload.len()).sum();
            assert!(bytes <= PAGE_BYTES_MAX + LARGE, "{bytes} bytes");
            shown.extend(page.jobs.iter().map(|job| job.id));
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        let mut expected: Vec<_> = all.iter().map(|name| id(name)).collect();
        if is_reversed {
            expected.reverse();
        }
        assert_eq!(shown, expected);
    }
    let few = ListJobsRequest {
        limit: 2,
        ..ListJobsRequest::default()
    };
    assert_eq!(
        listed(&scene.store.jobs(few, scene.now).await.expect("a page").jobs).len(),
        2
    );
}

/// A claim of large jobs hands out at least one, and stops at its limit of bytes; later claims hand
/// out the rest.
pub async fn a_claim_ends_at_its_bytes(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let all = insert_large(&scene).await;
    let mut claimed = BTreeSet::new();
    for _ in 0..all.len() {
        let claim = scene.claim_of(&[("a", 1_000), ("b", 1_000)]);
        let runs = scene.claim_as(&claim).await;
        let bytes: usize = runs.iter().map(|run| run.payload.len()).sum();
        assert!(
            bytes <= CLAIM_BYTES_MAX + 2 * LARGE,
            "{bytes} bytes: the last job of each queue may be over"
        );
        let again = scene.claim_as(&claim).await;
        assert_eq!(
            names_of_runs(&again),
            names_of_runs(&runs),
            "a repeated claim answers the same"
        );
        let before = claimed.len();
        claimed.extend(runs.iter().map(|run| run.lease.job));
        assert_eq!(
            claimed.len(),
            before + runs.len(),
            "no job is handed out twice"
        );
        if claimed.len() == all.len() {
            break;
        }
        assert!(!runs.is_empty(), "{} of {} jobs", claimed.len(), all.len());
    }
    assert_eq!(claimed, all.iter().map(|name| id(name)).collect());
}

fn names_of_runs(runs: &[backstop_core::LeasedRun]) -> BTreeSet<backstop_core::JobId> {
    runs.iter().map(|run| run.lease.job).collect()
}
