//! Lookups of the holders of unique keys.

use crate::given::{DONE, Scene, at, cancelled, dead, id, job, key, queue, retry_at};
use backstop_core::amend::AmendAction;
use backstop_core::limits::HOLDERS_MAX;
use backstop_core::port::{Store, StoreError, UniqueKeyHolder};
use backstop_core::unique::{StateSet, UniqueConstraint};
use backstop_core::verdict::DoneRetention;
use backstop_core::{JobState, Outcome, Span};
use std::sync::Arc;

const GONE: Outcome = Outcome::Done(DoneRetention::Gone);

async fn holders(scene: &Scene, queue_name: &str, keys: &[&str]) -> Vec<Option<UniqueKeyHolder>> {
    let keys = keys.iter().map(|text| key(text)).collect();
    scene
        .store
        .unique_holders(queue(queue_name), keys, scene.now)
        .await
        .expect("the store answers")
}

async fn holder(scene: &Scene, text: &str) -> Option<UniqueKeyHolder> {
    holders(scene, "q", &[text]).await[0]
}

fn held(name: &str, state: impl Into<Option<JobState>>) -> UniqueKeyHolder {
    UniqueKeyHolder {
        job: id(name),
        state: state.into(),
    }
}

/// A live job holds its key in every state, and an end of any kind frees it.
pub async fn a_holder_is_named_with_its_state_until_it_ends(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (round, outcome) in [DONE, GONE, dead(), cancelled()].into_iter().enumerate() {
        let name = format!("holder-{round}");
        scene.now = at(0);
        assert_eq!(holder(&scene, "k").await, None, "before round {round}");
        scene.insert([job("q", &name).unique("k").at(at(5))]).await;
        assert_eq!(
            holder(&scene, "k").await,
            Some(held(&name, JobState::Scheduled))
        );
        scene.now = at(5);
        scene.promote().await;
        assert_eq!(
            holder(&scene, "k").await,
            Some(held(&name, JobState::Ready))
        );
        let run = scene.claim_one("q").await;
        assert_eq!(
            holder(&scene, "k").await,
            Some(held(&name, JobState::Running))
        );
        scene.settle(&run.lease, retry_at(at(6))).await;
        assert_eq!(
            holder(&scene, "k").await,
            Some(held(&name, JobState::Retrying))
        );
        scene.now = at(6);
        scene.promote().await;
        let run = scene.claim_one("q").await;
        scene.settle(&run.lease, outcome.clone()).await;
        assert_eq!(holder(&scene, "k").await, None, "{outcome:?}");
    }
}

/// A key that outlasts its job names that job, with the state it ended in, or without a state once
/// the job is gone.
pub async fn a_key_that_outlasts_its_job_names_it(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let unique = |text: &str| UniqueConstraint {
        key: key(text),
        period: Some(Span::secs(60)),
        states: StateSet::of(&JobState::ALL),
    };
    scene
        .insert_and_end(job("q", "listed").unique_as(unique("a")), DONE)
        .await;
    scene
        .insert_and_end(job("q", "gone").unique_as(unique("b")), GONE)
        .await;
    scene
        .insert_and_end(job("q", "dead").unique_as(unique("c")), dead())
        .await;
    scene.now = at(59);
    let found = holders(&scene, "q", &["a", "b", "c"]).await;
    let expected = [
        Some(held("listed", JobState::Done)),
        Some(held("gone", None)),
        Some(held("dead", JobState::Dead)),
    ];
    assert_eq!(found, expected);
    assert!(found.iter().flatten().all(|holder| !holder.is_live()));
    scene.now = at(60);
    assert_eq!(
        holders(&scene, "q", &["a", "b", "c"]).await,
        [None; 3],
        "its period is over"
    );
}

/// After a period or a choice of states has ended a hold, the live job is still named: its work has
/// not ended.
pub async fn a_live_job_is_named_although_its_key_is_free(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let unique = UniqueConstraint {
        period: Some(Span::secs(60)),
        ..UniqueConstraint::live(key("k"))
    };
    scene.insert([job("q", "a").unique_as(unique)]).await;
    let waiting = UniqueConstraint {
        states: StateSet::of(&[JobState::Ready]),
        ..UniqueConstraint::live(key("r"))
    };
    scene.insert([job("other", "r").unique_as(waiting)]).await;
    scene.claim_one("other").await;
    assert_eq!(
        holders(&scene, "other", &["r"]).await,
        [Some(held("r", JobState::Running))]
    );
    scene.now = at(60);
    assert_eq!(holder(&scene, "k").await, Some(held("a", JobState::Ready)));
    scene.insert([job("q", "b").unique("k")]).await;
    assert_eq!(
        holder(&scene, "k").await,
        Some(held("b", JobState::Ready)),
        "the next one has it"
    );
}

/// Answers come in the order of the keys: also for unknown keys, for a repeated key, and for a key
/// of another queue.
pub async fn holders_come_in_the_order_of_the_keys(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    assert_eq!(
        holders(&scene, "nowhere", &["k"]).await,
        [None],
        "a queue that does not exist"
    );
    let hostile = "k\u{1}'; DROP TABLE backstop_key; -- 🙂 {q} \\ %";
    scene
        .insert([job("q", "a").unique("k"), job("q", "b").unique(hostile)])
        .await;
    scene
        .insert([job("other", "c").unique("other"), job("q", "d")])
        .await;
    let ready = |name| Some(held(name, JobState::Ready));
    let found = holders(&scene, "q", &["none", hostile, "other", "k", hostile, "K"]).await;
    assert_eq!(
        found,
        [None, ready("b"), None, ready("a"), ready("b"), None]
    );
    assert_eq!(
        holders(&scene, "other", &["other", "k"]).await,
        [ready("c"), None]
    );
    assert_eq!(holders(&scene, "q", &[]).await, []);
}

/// A job that an operator ends frees its key, and a retry takes the key again.
pub async fn a_key_follows_what_an_operator_does(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert_and_end(job("q", "a").unique("k"), dead())
        .await;
    assert_eq!(holder(&scene, "k").await, None);
    scene.amend_named(&["a"], AmendAction::Retry).await;
    assert_eq!(holder(&scene, "k").await, Some(held("a", JobState::Ready)));
    scene.amend_named(&["a"], AmendAction::Cancel).await;
    assert_eq!(holder(&scene, "k").await, None);
}

/// One call may ask for as many keys as the limit; more are misuse.
pub async fn too_many_keys_at_once_are_misuse(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let last = (HOLDERS_MAX - 1).to_string();
    scene.insert([job("q", "a").unique(&last)]).await;
    let ask = async |count: usize| {
        let keys = (0..count).map(|number| key(&number.to_string())).collect();
        scene
            .store
            .unique_holders(queue("q"), keys, scene.now)
            .await
    };
    let found = ask(HOLDERS_MAX).await.expect("the limit itself is allowed");
    assert_eq!(
        (found.len(), found[HOLDERS_MAX - 1]),
        (HOLDERS_MAX, Some(held("a", JobState::Ready)))
    );
    assert!(matches!(
        ask(HOLDERS_MAX + 1).await,
        Err(StoreError::Misuse { .. })
    ));
}
