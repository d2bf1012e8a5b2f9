//! A cluster of which a part is gone: the rest goes on.

use crate::place::open;
use backstop_core::Lease;
use backstop_core::port::{
    BeatRequest, CellStore, CellSwap, EnqueueOutcome, FindingSeverity, JobStore, SettleOutcome,
    Store, StoreError, SwapOutcome,
};
use backstop_core::verdict::Settlement;
use backstop_redis::RedisStore;
use backstop_testkit::given::{DONE, START, Scene, at, job, names};
use backstop_testkit::servers::{Cluster, Redis};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(1);

/// A cluster that serves what is left of it, a store, and a queue on each of its masters.
struct Parts {
    cluster: Cluster,
    prefix: String,
    store: Arc<RedisStore>,
    /// The first on the master that has the registry.
    queues: [String; 3],
}

impl Parts {
    async fn start() -> Self {
        let cluster = tokio::task::spawn_blocking(|| Cluster::start(0))
            .await
            .expect("a cluster starts");
        for node in cluster.masters() {
            node.cli(&["config", "set", "cluster-require-full-coverage", "no"]);
        }
        let url = cluster.fresh_url();
        let prefix = url
            .split_once("prefix=")
            .expect("a fresh store has a prefix")
            .1
            .to_owned();
        let store = open(&url);
        store.migrate().await.expect("the store migrates");
        let registry = cluster.master_of(&format!("{prefix}:queues")).addr();
        let mut masters: Vec<&Redis> = cluster.masters();
        masters.sort_by_key(|master| master.addr() != registry);
        let queues = [0, 1, 2].map(|at| queue_on(&cluster, &prefix, masters[at]));
        Self {
            cluster,
            prefix,
            store,
            queues,
        }
    }

    fn scene(&self) -> Scene {
        Scene::new(Arc::clone(&self.store) as Arc<dyn Store>)
    }

    fn master_of(&self, queue: &str) -> &Redis {
        self.cluster
            .master_of(&format!("{}:{{{queue}}}:meta", self.prefix))
    }

    async fn push(&self, queue: &str, name: &str) -> Result<(), bool> {
        let pushed = self
            .store
            .enqueue(vec![job(queue, name).into()], START)
            .await;
        pushed
            .map(|answers| assert_eq!(answers, [EnqueueOutcome::Inserted]))
            .map_err(|error| error.is_transient())
    }
}

fn queue_on(cluster: &Cluster, prefix: &str, master: &Redis) -> String {
    let mut names = (0..).map(|n| format!("q{n}"));
    let is_there = |name: &String| {
        cluster
            .master_of(&format!("{prefix}:{{{name}}}:meta"))
            .addr()
            == master.addr()
    };
    names.find(is_there).expect("names go on for ever")
}

#[tokio::test]
async fn a_master_that_is_gone_takes_no_queue_of_another_with_it() {
    let parts = Parts::start().await;
    let [first, second, lost] = parts.queues.each_ref().map(String::as_str);
    let mut scene = parts.scene();
    for queue in [first, second, lost] {
        scene.insert([job(queue, &format!("{queue} held"))]).await;
    }
    let held = scene.claim_of(&[(first, 1), (second, 1), (lost, 1)]);
    assert_eq!(scene.claim_as(&held).await.len(), 3);
    for queue in [first, second, lost] {
        scene.insert([job(queue, &format!("{queue} ready"))]).await;
        scene
            .insert([job(queue, &format!("{queue} due")).at(at(60))])
            .await;
    }
    parts.master_of(lost).kill();
    assert_eq!(
        parts.push(lost, "in vain").await,
        Err(true),
        "nobody is there to take it"
    );
    for queue in [first, second] {
        assert_eq!(
            parts.push(queue, &format!("{queue} after")).await,
            Ok(()),
            "{queue}"
        );
    }
    let claim = scene.claim_of(&[(first, 10), (second, 10), (lost, 10)]);
    let of = |what: &str| [first, second].map(|queue| format!("{queue} {what}"));
    let claimed: BTreeSet<String> = names(&scene.claim_as(&claim).await).into_iter().collect();
    assert_eq!(
        claimed,
        [of("ready"), of("after")].concat().into_iter().collect()
    );
    scene.now = at(3_600);
    assert_eq!(scene.promote().await, 2);
    let seize = scene.seize_of("rescuer");
    let seizure = scene.seize_some(&seize).await;
    let seized: BTreeSet<String> = names(seizure.runs.iter().map(|seized| &seized.run))
        .into_iter()
        .collect();
    assert!(
        of("held").iter().all(|name| seized.contains(name)),
        "{seized:?}"
    );
    assert!(seizure.more, "what the lost master has is not known");
    let examination = parts.store.examine().await.expect("it is examined");
    let gone =
        |finding: &&backstop_core::port::StoreFinding| finding.what.contains("does not answer");
    assert_eq!(
        examination
            .findings
            .iter()
            .find(gone)
            .map(|finding| finding.severity),
        Some(FindingSeverity::Bad)
    );
}

#[tokio::test]
async fn a_master_that_says_nothing_is_named_and_the_others_answer() {
    let parts = Parts::start().await;
    let [first, second, silent] = parts.queues.each_ref().map(String::as_str);
    let mut scene = parts.scene();
    for queue in [first, second, silent] {
        scene
            .insert([
                job(queue, &format!("{queue} held")),
                job(queue, &format!("{queue} ready")),
            ])
            .await;
    }
    let held = scene.claim_of(&[(first, 1), (second, 1), (silent, 1)]);
    let leases: Vec<_> = scene
        .claim_as(&held)
        .await
        .into_iter()
        .map(|run| run.lease)
        .collect();
    assert_eq!(leases.len(), 3);
    // Longer than anybody waits.
    parts
        .master_of(silent)
        .cli(&["client", "pause", "60000", "all"]);
    let unanswered = vec![backstop_core::QueueName::new(silent).expect("a name")];
    let beat = BeatRequest {
        worker: held.worker.clone(),
        queues: Vec::new(),
        leases: leases.clone(),
        until: at(30),
    };
    let beaten = parts
        .store
        .beat(beat, START)
        .await
        .expect("the others answer");
    assert_eq!((beaten.lost, &beaten.unanswered), (Vec::new(), &unanswered));
    let claim = scene.claim_of(&[(first, 1), (second, 1), (silent, 1)]);
    let claimed = parts
        .store
        .claim(claim, START)
        .await
        .expect("the others answer");
    assert_eq!((claimed.runs.len(), &claimed.unanswered), (2, &unanswered));
    let settlements = leases.iter().map(|lease| Settlement {
        lease: lease.clone(),
        outcome: DONE,
    });
    let settled = parts
        .store
        .settle(settlements.collect(), START)
        .await
        .expect("the others answer");
    let expected = |lease: &Lease| {
        if lease.queue.as_str() == silent {
            SettleOutcome::Unanswered
        } else {
            SettleOutcome::Applied
        }
    };
    assert_eq!(settled, leases.iter().map(expected).collect::<Vec<_>>());
    let promoted = parts
        .store
        .promote(10, START)
        .await
        .expect("the others answer");
    assert_eq!(promoted.unanswered, unanswered);
}

#[tokio::test]
async fn a_registry_that_is_gone_is_told_later_of_queues_that_were_known() {
    let parts = Parts::start().await;
    let [gone, kept, other] = parts.queues.each_ref().map(String::as_str);
    let mut scene = parts.scene();
    for queue in [gone, kept] {
        scene
            .insert([
                job(queue, &format!("{queue} before")),
                job(queue, &format!("{queue} due")).at(at(60)),
            ])
            .await;
    }
    let (registry, key) = (parts.master_of(gone), format!("{}:queues", parts.prefix));
    // As if a crash had set it back.
    assert_eq!(registry.cli(&["srem", &key, kept]).trim(), "1");
    registry.kill();
    assert_eq!(
        parts.push(kept, "after").await,
        Ok(()),
        "its master is there"
    );
    assert_eq!(
        parts.push(other, "of a queue that nobody knows").await,
        Err(true),
        "it would be hidden"
    );
    scene.now = at(60);
    assert_eq!(scene.promote().await, 1);
    let claim = scene.claim_of(&[(gone, 10), (kept, 10)]);
    assert_eq!(scene.claim_as(&claim).await.len(), 3);
    registry.restart();
    let since = Instant::now();
    while registry.cli(&["sismember", &key, kept]).trim() != "1" {
        assert!(since.elapsed() < PATIENCE, "it was not entered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_slot_that_moves_takes_nothing_twice_and_loses_nothing() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(0))
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
    let mut scene = Scene::new(Arc::clone(&store) as Arc<dyn Store>);
    scene
        .insert((0..100).map(|n| job("q", &n.to_string())))
        .await;
    let runs = scene.claim("q", 40).await;
    let moving = cluster.begin_to_move(&format!("{prefix}:{{q}}:meta"));
    moving.move_keys(3);
    // Some keys are here and some there: no script can have all of them, wherever it is sent.
    let refused = store
        .enqueue(vec![job("q", "meanwhile").into()], START)
        .await;
    assert!(
        refused.is_err_and(|error| error.is_transient()),
        "it may be tried again"
    );
    moving.finish();
    scene.insert([job("q", "meanwhile")]).await;
    let settled = scene
        .settle_all(
            runs.iter()
                .map(|run| (&run.lease, backstop_testkit::given::DONE)),
        )
        .await;
    assert!(
        settled
            .iter()
            .all(|settled| *settled == backstop_core::port::SettleOutcome::Applied)
    );
    assert_eq!(
        scene.claim("q", 1_000).await.len(),
        61,
        "what was left, each once"
    );
    let totals = scene.queue("q").await.totals;
    assert_eq!((totals.enqueued, totals.done), (101, 40));
}

#[tokio::test]
async fn a_change_is_never_broken_off_by_a_slot_that_moves() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(0))
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
    let swap = |name: &str, seen, version, value: Option<&str>| CellSwap {
        name: name.to_owned(),
        seen,
        version,
        value: value.map(|value| value.as_bytes().to_vec()),
    };
    assert_eq!(
        store.swap(vec![swap("a", None, 1, Some("x"))]).await,
        Ok(vec![SwapOutcome::Applied])
    );
    // All keys are still on the master that the slot leaves. Without its last cell a key of theirs
    // is gone, and Redis would look for it on the other master in the middle of the script.
    let moving = cluster.begin_to_move(&format!("{prefix}:{{:cells}}:values"));
    let both = vec![swap("a", Some(1), 2, None), swap("b", None, 3, Some("y"))];
    let refused = store.swap(both.clone()).await;
    assert!(
        refused.as_ref().is_err_and(StoreError::is_transient),
        "it may be tried again: {refused:?}"
    );
    moving.finish();
    let read = async |name: &str| {
        store
            .cells(vec![name.to_owned()])
            .await
            .expect("it answers")
            .remove(0)
    };
    assert_eq!(
        (read("a").await.map(|cell| cell.version), read("b").await),
        (Some(1), None)
    );
    assert_eq!(store.swap(both).await, Ok(vec![SwapOutcome::Applied; 2]));
    assert_eq!(
        (read("a").await, read("b").await.map(|cell| cell.version)),
        (None, Some(3))
    );
}
