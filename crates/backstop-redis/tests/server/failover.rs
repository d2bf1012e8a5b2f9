//! A replica that takes over.

use crate::place::open;
use backstop_core::amend::Filter;
use backstop_core::port::{Enqueued, Store};
use backstop_core::{JobId, NewJob};
use backstop_testkit::given::{START, Scene, job};
use backstop_testkit::servers::{Cluster, Sentinel};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hands in one job, however long it takes for somebody to answer.
async fn insert(store: &dyn Store, job: NewJob) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match store.enqueue(vec![job.clone()], START).await {
            Ok(answers) => {
                assert!(matches!(answers[..], [Enqueued::Inserted | Enqueued::Same]), "{answers:?}");
                return;
            }
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
        }
    }
}

/// After a failover: what is listed, what is counted and what can be claimed is the same.
async fn is_consistent(store: Arc<dyn Store>, queues: &[String]) -> BTreeSet<JobId> {
    let examination = store.examine().await.expect("it is examined");
    let drift = examination.findings.last().expect("the drift is looked at last");
    assert!(drift.what.contains("each in one line"), "{drift:?}");
    let mut scene = Scene::new(store);
    let listed: BTreeSet<JobId> =
        scene.list(&Filter::default()).await.into_iter().map(|job| job.id).collect();
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
    let sentinel = tokio::task::spawn_blocking(Sentinel::start).await.expect("sentinels start");
    let store = open(&format!("{}?prefix=failover", sentinel.url()));
    store.migrate().await.expect("the store migrates");
    for n in 0..50 {
        insert(&*store, job("q", &format!("before {n}")).into()).await;
    }
    sentinel.master().cli(&["wait", "1", "5000"]);
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
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(1)).await.expect("a cluster starts");
    let store = open(&cluster.fresh_url());
    store.migrate().await.expect("the store migrates");
    let queues: Vec<String> = (0..12).map(|n| format!("q{n}")).collect();
    for queue in &queues {
        insert(&*store, job(queue, &format!("{queue} before")).into()).await;
    }
    for node in cluster.masters() {
        node.cli(&["wait", "1", "1000"]);
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
