//! Pushes that have to wait for somebody's transaction, and those that need not.

use super::{fresh_store, open, user};
use backstop_core::port::EnqueueOutcome::Inserted;
use backstop_core::port::{EnqueueOutcome, Store, StoreResult};
use backstop_core::{NewJob, Overflow, QueueBounds};
use backstop_postgres::enqueue_in;
use backstop_testkit::given::{Draft, Scene, at, job, queue};
use backstop_testkit::servers;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_mins(1);

/// A push that goes on by itself.
fn pushing(store: &Arc<dyn Store>, job: Draft) -> JoinHandle<StoreResult<Vec<EnqueueOutcome>>> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.enqueue(vec![NewJob::from(job)], at(0)).await })
}

/// Hands a job in until somebody takes it: what is in the way goes away.
async fn push_until_taken(store: &Arc<dyn Store>, draft: impl Fn() -> Draft) {
    let since = Instant::now();
    while let Err(error) = store.enqueue(vec![draft().into()], at(0)).await {
        assert!(
            error.is_transient() && since.elapsed() < PATIENCE,
            "{error}"
        );
    }
}

/// Returns when a session that has to do with this schema waits for a lock.
fn until_one_waits(schema: &str) {
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}%'"
    );
    let since = Instant::now();
    while tokio::task::block_in_place(|| servers::postgres().sql(&waiting)).trim() == "0" {
        assert!(since.elapsed() < PATIENCE, "nobody waits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_queue_to_come_into_being_holds_up_no_other() {
    let (store, schema) = fresh_store().await;
    let scene = Scene::new(Arc::clone(&store));
    scene.insert([job("known", "first")]).await;
    let mut client = user().await;
    let transaction = client.transaction().await.expect("a transaction");
    let made = [NewJob::from(job("new", "the user's own"))];
    enqueue_in(&transaction, &schema, &made, at(0))
        .await
        .expect("it is the first to name the queue");
    let waiting = pushing(&store, job("new", "a"));
    until_one_waits(&schema);
    let others = ["b", "c", "d"].map(|name| pushing(&store, job("new", name)));
    let beside = [
        job("known", "plain"),
        job("known", "keyed").unique("k"),
        job("another", "of a queue that is new too"),
    ];
    for other in beside.map(|job| pushing(&store, job)) {
        let answer = other.await.expect("it ends");
        assert_eq!(
            answer,
            Ok(vec![Inserted]),
            "it has nothing to do with the other queue"
        );
    }
    assert!(
        !waiting.is_finished(),
        "all that while the first one waited"
    );
    transaction.commit().await.expect("it commits");
    for pushed in [waiting].into_iter().chain(others) {
        let _ = pushed.await.expect("it ends");
    }
    for name in ["a", "b", "c", "d"] {
        push_until_taken(&store, || job("new", name)).await;
    }
    assert_eq!(scene.queue("new").await.totals.enqueued, 5);
}

#[tokio::test]
async fn who_met_a_bound_that_nobody_knew_of_goes_in_without_the_others() {
    let (store, schema) = fresh_store().await;
    let scene = Scene::new(Arc::clone(&store));
    scene
        .insert([job("q", "first"), job("other", "first of the other")])
        .await;
    let elsewhere = open(&format!("{}?schema={schema}", servers::postgres().url())).await;
    let bounds = QueueBounds {
        max_size: Some(10),
        overflow: Overflow::Reject,
        ..QueueBounds::default()
    };
    elsewhere
        .set_bounds(queue("q"), bounds, at(0))
        .await
        .expect("bounds");
    let mut client = user().await;
    let transaction = client.transaction().await.expect("a transaction");
    let theirs = [NewJob::from(job("q", "the user's own"))];
    enqueue_in(&transaction, &schema, &theirs, at(0))
        .await
        .expect("nobody else pushes to it now");
    let push = |job: Draft| store.enqueue(vec![NewJob::from(job)], at(0));
    // Handed in together, they go together: nobody knows yet that one of them has to wait.
    let (bounded, other) = tokio::join!(push(job("q", "a")), push(job("other", "b")));
    assert_eq!(other, Ok(vec![Inserted]));
    assert!(
        bounded.is_err_and(|error| error.is_transient()),
        "the transaction is still open"
    );
    transaction.commit().await.expect("it commits");
    push_until_taken(&store, || job("q", "a")).await;
    assert_eq!(scene.queue("q").await.totals.enqueued, 3);
}

#[tokio::test]
async fn who_waits_for_a_key_fails_alone() {
    let (store, schema) = fresh_store().await;
    Scene::new(Arc::clone(&store))
        .insert([job("q", "first")])
        .await;
    let mut client = user().await;
    let transaction = client.transaction().await.expect("a transaction");
    let theirs = [NewJob::from(job("q", "the user's own").unique("held"))];
    enqueue_in(&transaction, &schema, &theirs, at(0))
        .await
        .expect("nobody else has the key");
    let push = |job: Draft| store.enqueue(vec![NewJob::from(job)], at(0));
    let (held, free) = tokio::join!(
        push(job("q", "a").unique("held")),
        push(job("q", "b").unique("free"))
    );
    assert_eq!(free, Ok(vec![Inserted]));
    assert!(
        held.is_err_and(|error| error.is_transient()),
        "the transaction is still open"
    );
    transaction.rollback().await.expect("it rolls back");
    push_until_taken(&store, || job("q", "a").unique("held")).await;
}

#[tokio::test]
async fn the_server_gives_up_before_we_do() {
    let (store, schema) = fresh_store().await;
    let scene = Scene::new(Arc::clone(&store));
    scene.insert([job("q", "a")]).await;
    let ours = user()
        .await
        .query_one("SHOW statement_timeout", &[])
        .await
        .expect("it is shown");
    assert_eq!(ours.get::<_, &str>(0), "4500ms");
    let mut client = user().await;
    let transaction = client.transaction().await.expect("a transaction");
    let lock = format!("LOCK TABLE {schema}.job IN ACCESS EXCLUSIVE MODE");
    transaction.batch_execute(&lock).await.expect("a user may");
    let refused = store.queues(at(0)).await.err().or(store
        .job(backstop_testkit::given::id("a"), at(0))
        .await
        .err());
    let refused = refused
        .expect("it cannot look into a table that is locked")
        .to_string();
    assert!(
        refused.contains("timeout"),
        "the server's word, not ours: {refused}"
    );
    transaction.rollback().await.expect("it rolls back");
    assert_eq!(scene.job("a").await.id, backstop_testkit::given::id("a"));
}
