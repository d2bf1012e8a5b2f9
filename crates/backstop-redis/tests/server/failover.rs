//! A replica that takes over.

use crate::place::open;
use backstop_core::amend::Filter;
use backstop_core::port::{EnqueueOutcome, Store};
use backstop_core::{JobId, NewJob};
use backstop_testkit::given::{START, Scene, job};
use backstop_testkit::servers::{Cluster, Redis, Sentinel};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hands in one job, however long it takes for somebody to answer.
async fn insert(store: &dyn Store, job: NewJob) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match store.enqueue(vec![job.clone()], START).await {
            Ok(answers) => {
                assert!(
                    matches!(
                        answers[..],
                        [EnqueueOutcome::Inserted | EnqueueOutcome::Same]
                    ),
                    "{answers:?}"
                );
                return;
            }
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
        }
    }
}

/// After a failover: what is listed, what is counted and what can be claimed is the same.
async fn is_consistent(store: Arc<dyn Store>, queues: &[String]) -> BTreeSet<JobId> {
    let examination = store.examine().await.expect("it is examined");
    let drift = examination
        .findings
        .last()
        .expect("the drift is looked at last");
    assert!(drift.what.contains("each in one line"), "{drift:?}");
    let mut scene = Scene::new(store);
    let listed: BTreeSet<JobId> = scene
        .list(&Filter::default())
        .await
        .into_iter()
        .map(|job| job.id)
        .collect();
    let mut claimed = BTreeSet::new();
    for queue in queues {
        let runs = scene.claim(queue, 1_000).await;
        claimed.extend(runs.into_iter().map(|run| run.lease.job));
    }
    assert_eq!(claimed, listed, "all that is listed can be claimed, once");
    listed
}

#[tokio::test]
async fn the_store_follows_the_sentinels_to_a_new_master() {
    let sentinel = tokio::task::spawn_blocking(Sentinel::start)
        .await
        .expect("sentinels start");
    let store = open(&format!("{}?prefix=failover", sentinel.url()));
    store.migrate().await.expect("the store migrates");
    for n in 0..50 {
        insert(&*store, job("q", &format!("before {n}")).into()).await;
    }
    sentinel.master().until_replicated();
    let sentinel = tokio::task::spawn_blocking(move || {
        sentinel.fail_over();
        sentinel
    });
    let sentinel = sentinel.await.expect("the replica takes over");
    for n in 0..50 {
        insert(&*store, job("q", &format!("after {n}")).into()).await;
    }
    assert_eq!(is_consistent(store, &["q".to_owned()]).await.len(), 100);
    drop(sentinel);
}

#[tokio::test]
async fn the_store_follows_a_cluster_to_a_new_master() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(1))
        .await
        .expect("a cluster starts");
    let store = open(&cluster.fresh_url());
    store.migrate().await.expect("the store migrates");
    let queues: Vec<String> = (0..12).map(|n| format!("q{n}")).collect();
    for queue in &queues {
        insert(&*store, job(queue, &format!("{queue} before")).into()).await;
    }
    for node in cluster.masters() {
        node.until_replicated();
    }
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.fail_over(cluster.masters()[0]);
        cluster
    });
    let cluster = cluster.await.expect("a replica takes over");
    for queue in &queues {
        insert(&*store, job(queue, &format!("{queue} after")).into()).await;
    }
    assert_eq!(is_consistent(store, &queues).await.len(), 24);
    drop(cluster);
}

/// Removes the registry and the order of a queue where they are, and waits until the replicas have
/// heard of it.
fn damage(registry: &Redis, queue: &Redis, prefix: &str) {
    assert_eq!(
        registry.cli(&["del", &format!("{prefix}:queues")]).trim(),
        "1"
    );
    assert_eq!(
        queue.cli(&["del", &format!("{prefix}:{{q}}:order")]).trim(),
        "1"
    );
    for node in [registry, queue] {
        node.until_replicated();
    }
}

/// Returns when the queue is listed again and all its parts agree, though nobody asked for it.
async fn until_mended(store: &dyn Store) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let queues = store.queues(START).await.unwrap_or_default();
        let examined = store.examine().await;
        let agrees = examined.is_ok_and(|examined| {
            examined
                .findings
                .last()
                .is_some_and(|drift| drift.what.contains("1 jobs, each in one line"))
        });
        if queues.len() == 1 && agrees {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "what the new master did not keep is not put right: {queues:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn what_a_new_master_of_the_sentinels_did_not_keep_is_put_right_unasked() {
    let sentinel = tokio::task::spawn_blocking(Sentinel::start)
        .await
        .expect("sentinels start");
    let store = open(&format!("{}?prefix=mended", sentinel.url()));
    store.migrate().await.expect("the store migrates");
    insert(&*store, job("q", "a").into()).await;
    damage(sentinel.master(), sentinel.master(), "mended");
    let sentinel = tokio::task::spawn_blocking(move || {
        sentinel.fail_over();
        sentinel
    });
    let sentinel = sentinel.await.expect("the replica takes over");
    until_mended(&*store).await;
    drop(sentinel);
}

#[tokio::test]
async fn what_a_new_master_of_a_cluster_did_not_keep_is_put_right_unasked() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(1))
        .await
        .expect("a cluster starts");
    let url = cluster.fresh_url();
    let prefix = url
        .split_once("prefix=")
        .expect("a fresh store has a prefix")
        .1
        .to_owned();
    let store = open(&url);
    store.migrate().await.expect("the store migrates");
    insert(&*store, job("q", "a").into()).await;
    damage(
        cluster.master_of(&format!("{prefix}:queues")),
        cluster.master_of(&format!("{prefix}:{{q}}:meta")),
        &prefix,
    );
    let before = cluster.master_of(&format!("{prefix}:{{q}}:meta")).addr();
    let cluster = tokio::task::spawn_blocking(move || {
        let master = cluster
            .masters()
            .into_iter()
            .find(|master| master.addr() == before);
        cluster.fail_over(master.expect("it is there"));
        cluster
    });
    let cluster = cluster.await.expect("a replica takes over");
    until_mended(&*store).await;
    drop(cluster);
}
