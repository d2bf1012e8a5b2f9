//! Unique keys of jobs.

use crate::given::{DONE, Scene, at, cancelled, dead, id, job, key, retry_at};
use backstop_core::amend::{AmendAction, AmendRefusal};
use backstop_core::port::{
    AmendResult, EnqueueOutcome, PruneRequest, Retention, SettleOutcome, Store,
};
use backstop_core::unique::{StateSet, UniqueConstraint};
use backstop_core::verdict::DoneRetention;
use backstop_core::{JobState, Outcome, Span};
use futures_util::future::join_all;
use std::sync::Arc;

const GONE: Outcome = Outcome::Done(DoneRetention::Gone);

/// A duplicate push gets the id of the job that holds the key.
pub async fn duplicate_names_the_holder(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let answers = scene
        .enqueue([job("q", "a").unique("k"), job("q", "b").unique("k")])
        .await;
    assert_eq!(
        answers,
        [EnqueueOutcome::Inserted, EnqueueOutcome::Duplicate(id("a"))]
    );
    assert_eq!(
        scene.enqueue([job("q", "c").unique("k")]).await,
        [EnqueueOutcome::Duplicate(id("a"))]
    );
    assert_eq!(
        scene.enqueue([job("q", "a").unique("k")]).await,
        [EnqueueOutcome::Same]
    );
    assert_eq!((scene.find("b").await, scene.find("c").await), (None, None));
    assert_eq!(scene.queue("q").await.totals.enqueued, 1);
}

/// A key is unique within its queue only.
pub async fn a_key_counts_in_its_queue(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene
        .insert([
            job("q", "a").unique("k"),
            job("other", "b").unique("k"),
            job("q", "c").unique("K"),
        ])
        .await;
}

/// A live job holds its key in every state, and an end of any kind frees it.
pub async fn unique_key_frees_on_a_final_state(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (round, outcome) in [DONE, GONE, dead(), cancelled()].into_iter().enumerate() {
        let name = |part: &str| format!("{part}-{round}");
        scene
            .insert([job("q", &name("holder")).unique("k").at(at(5))])
            .await;
        let holder = EnqueueOutcome::Duplicate(id(&name("holder")));
        let twin = job("q", &name("twin")).unique("k");
        assert_eq!(scene.enqueue([twin.clone()]).await, [holder], "scheduled");
        scene.now = at(5);
        scene.promote().await;
        assert_eq!(scene.enqueue([twin.clone()]).await, [holder], "ready");
        let run = scene.claim_one("q").await;
        assert_eq!(scene.enqueue([twin.clone()]).await, [holder], "running");
        scene.settle(&run.lease, retry_at(at(6))).await;
        assert_eq!(scene.enqueue([twin.clone()]).await, [holder], "retrying");
        scene.now = at(6);
        scene.promote().await;
        let run = scene.claim_one("q").await;
        assert_eq!(
            scene.settle(&run.lease, outcome.clone()).await,
            SettleOutcome::Applied
        );
        assert_eq!(
            scene.enqueue([twin]).await,
            [EnqueueOutcome::Inserted],
            "{outcome:?}"
        );
        let twin = scene.claim_one("q").await;
        scene.settle(&twin.lease, DONE).await;
        scene.now = at(0);
    }
}

/// A job that an operator cancels or deletes frees its key as well.
pub async fn unique_key_frees_when_its_job_is_cancelled_or_deleted(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.insert([job("q", "a").unique("k")]).await;
    scene.amend_named(&["a"], AmendAction::Cancel).await;
    scene.insert([job("q", "b").unique("k")]).await;
    scene.amend_named(&["b"], AmendAction::Delete).await;
    scene.insert([job("q", "c").unique("k")]).await;
    assert_eq!(
        scene.enqueue([job("q", "d").unique("k")]).await,
        [EnqueueOutcome::Duplicate(id("c"))]
    );
}

/// The end of a former holder does not take the key from its present holder.
pub async fn a_former_holder_does_not_free_the_key_of_the_next(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.insert([job("q", "a").unique("k")]).await;
    scene.amend_named(&["a"], AmendAction::Cancel).await;
    scene.insert([job("q", "b").unique("k")]).await;
    scene.amend_named(&["a"], AmendAction::Delete).await;
    assert_eq!(
        scene.enqueue([job("q", "c").unique("k")]).await,
        [EnqueueOutcome::Duplicate(id("b"))]
    );
}

/// A period ends a hold, whatever the state of the job.
pub async fn unique_key_frees_at_the_end_of_its_period(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let unique = UniqueConstraint {
        period: Some(Span::secs(60)),
        ..UniqueConstraint::live(key("k"))
    };
    scene
        .insert([job("q", "a").unique_as(unique.clone())])
        .await;
    scene.now = at(60).before(Span::micros(1));
    let twin = job("q", "b").unique_as(unique);
    assert_eq!(
        scene.enqueue([twin.clone()]).await,
        [EnqueueOutcome::Duplicate(id("a"))]
    );
    scene.now = at(60);
    assert_eq!(scene.enqueue([twin]).await, [EnqueueOutcome::Inserted]);
    assert_eq!(
        scene.enqueue([job("q", "c").unique("k")]).await,
        [EnqueueOutcome::Duplicate(id("b"))]
    );
}

/// A key may be held for only a part of the states of its job.
pub async fn unique_key_is_held_in_its_chosen_states_only(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let waiting = StateSet::of(&[JobState::Scheduled, JobState::Ready]);
    let unique = UniqueConstraint {
        key: key("k"),
        period: None,
        states: waiting,
    };
    scene
        .insert([job("q", "a").unique_as(unique.clone())])
        .await;
    let twin = job("q", "b").unique_as(unique);
    assert_eq!(
        scene.enqueue([twin.clone()]).await,
        [EnqueueOutcome::Duplicate(id("a"))]
    );
    scene.claim_one("q").await;
    assert_eq!(
        scene.enqueue([twin]).await,
        [EnqueueOutcome::Inserted],
        "a job that runs takes no more part in it"
    );
}

/// A key that outlasts success prevents the same work from being done twice within its period.
pub async fn a_key_may_outlast_its_job(store: Arc<dyn Store>) {
    for_each_outlasting(&mut Scene::new(store), "k", DONE).await;
}

/// A key also outlasts a done job that is not kept.
pub async fn a_key_may_outlast_a_job_that_is_gone(store: Arc<dyn Store>) {
    for_each_outlasting(&mut Scene::new(store), "k", GONE).await;
}

async fn for_each_outlasting(scene: &mut Scene, text: &str, outcome: Outcome) {
    let unique = UniqueConstraint {
        key: key(text),
        period: Some(Span::secs(60)),
        states: StateSet::of(&JobState::ALL),
    };
    scene
        .insert_and_end(job("q", "a").unique_as(unique.clone()), outcome)
        .await;
    let twin = job("q", "b").unique_as(unique);
    scene.now = at(59);
    assert_eq!(
        scene.enqueue([twin.clone()]).await,
        [EnqueueOutcome::Duplicate(id("a"))]
    );
    scene.now = at(60);
    assert_eq!(scene.enqueue([twin]).await, [EnqueueOutcome::Inserted]);
}

/// Pruning a job does not free a key whose hold lasts longer.
pub async fn prune_keeps_a_key_whose_hold_lasts(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let unique = UniqueConstraint {
        key: key("k"),
        period: Some(Span::secs(60)),
        states: StateSet::of(&JobState::ALL),
    };
    scene
        .insert_and_end(job("q", "a").unique_as(unique.clone()), DONE)
        .await;
    scene
        .insert_and_end(job("q", "b").unique("live"), DONE)
        .await;
    scene.now = at(10);
    let shelf = Retention {
        done_for: Span::secs(1),
        ..Retention::default()
    };
    let retention = PruneRequest {
        default: Some(shelf),
        queues: Vec::new(),
        max: 100,
    };
    let pruned = scene
        .store
        .prune(retention, scene.now)
        .await
        .expect("the store prunes");
    assert_eq!((pruned.done, scene.find("a").await), (2, None));
    let twin = job("q", "c").unique_as(unique);
    assert_eq!(
        scene.enqueue([twin.clone()]).await,
        [EnqueueOutcome::Duplicate(id("a"))]
    );
    assert_eq!(
        scene.enqueue([job("q", "d").unique("live")]).await,
        [EnqueueOutcome::Inserted]
    );
    scene.now = at(60);
    assert_eq!(scene.enqueue([twin]).await, [EnqueueOutcome::Inserted]);
}

/// The key of a job that is gone is forgotten once its period is over, in steps; a key without a
/// period is never forgotten.
pub async fn prune_forgets_keys_whose_period_is_over(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let states = StateSet::of(&JobState::ALL);
    let unique = |text: &str, period| UniqueConstraint {
        key: key(text),
        period,
        states,
    };
    for text in ["1", "2", "3", "4", "5"] {
        let draft = job("q", text).unique_as(unique(text, Some(Span::secs(60))));
        scene.insert_and_end(draft, GONE).await;
    }
    scene
        .insert_and_end(job("q", "ever").unique_as(unique("ever", None)), GONE)
        .await;
    let prune = async |now| {
        let retention = PruneRequest {
            default: None,
            queues: Vec::new(),
            max: 3,
        };
        scene
            .store
            .prune(retention, now)
            .await
            .expect("the store prunes")
            .more
    };
    assert!(!prune(at(59)).await, "nothing is over");
    assert!(prune(at(60)).await, "three of five");
    assert!(!prune(at(60)).await, "the rest");
    assert!(!prune(at(60)).await);
    scene.now = at(60);
    scene.insert([job("q", "next").unique("1")]).await;
    let ever = job("q", "again").unique("ever");
    assert_eq!(
        scene.enqueue([ever]).await,
        [EnqueueOutcome::Duplicate(id("ever"))]
    );
}

/// Pruning does not free a key that has a new holder.
pub async fn prune_leaves_a_key_to_its_next_holder(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let unique = UniqueConstraint {
        key: key("k"),
        period: Some(Span::secs(60)),
        states: StateSet::of(&JobState::ALL),
    };
    scene
        .insert_and_end(job("q", "a").unique_as(unique), GONE)
        .await;
    scene.now = at(60);
    scene.insert([job("q", "b").unique("k")]).await;
    let retention = PruneRequest {
        default: None,
        queues: Vec::new(),
        max: 100,
    };
    scene
        .store
        .prune(retention, at(120))
        .await
        .expect("the store prunes");
    assert_eq!(
        scene.enqueue([job("q", "c").unique("k")]).await,
        [EnqueueOutcome::Duplicate(id("b"))]
    );
}

/// A retry needs the unique key of the job; if another job holds it, the refusal names that job.
pub async fn retry_of_a_dead_job_whose_twin_lives_is_refused_naming_it(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert_and_end(job("q", "a").unique("k"), dead())
        .await;
    scene.insert([job("q", "twin").unique("k")]).await;
    let before = scene.job("a").await;
    let refused = scene.amend_named(&["a"], AmendAction::Retry).await;
    assert_eq!(
        refused.refused,
        [(id("a"), AmendRefusal::UniqueKeyHeld(id("twin")))]
    );
    assert_eq!((refused.applied, scene.job("a").await), (0, before));
    let twin = scene.claim_one("q").await;
    scene.settle(&twin.lease, DONE).await;
    let retried = scene.amend_named(&["a"], AmendAction::Retry).await;
    assert_eq!(
        retried,
        AmendResult {
            applied: 1,
            ..AmendResult::default()
        }
    );
    let third = scene.enqueue([job("q", "third").unique("k")]).await;
    assert_eq!(
        third,
        [EnqueueOutcome::Duplicate(id("a"))],
        "it has its key again"
    );
}

/// Of many concurrent pushes with one key, one creates a job, and all learn its id.
pub async fn of_many_pushes_at_once_one_gets_the_key(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let pushers = (0..32).map(|n| {
        let scene = scene.clone();
        tokio::spawn(async move {
            let name = format!("job-{n}");
            (
                id(&name),
                scene.enqueue([job("q", &name).unique("k")]).await[0],
            )
        })
    });
    let answers: Vec<_> = join_all(pushers)
        .await
        .into_iter()
        .map(|task| task.expect("no pusher panics"))
        .collect();
    let winners: Vec<_> = answers
        .iter()
        .filter(|(_, answer)| *answer == EnqueueOutcome::Inserted)
        .collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let (winner, _) = winners[0];
    for (pusher, answer) in answers.iter().filter(|(pusher, _)| pusher != winner) {
        assert_eq!(*answer, EnqueueOutcome::Duplicate(*winner), "{pusher}");
    }
}
