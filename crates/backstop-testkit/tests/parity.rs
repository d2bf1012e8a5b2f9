//! All stores, one meaning: the same random operations on each of them, side by side, and equal
//! answers from all.

use backstop_core::port::Store;
use backstop_memory::MemoryStore;
use backstop_postgres::PostgresStore;
use backstop_redis::RedisStore;
use backstop_sqlite::{SqliteOptions, SqliteStore};
use backstop_testkit::random::{Replies, Seeds, Sequence, compare};
use backstop_testkit::servers;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Sequences of one run, unless the environment says otherwise. Each store's own contract runs
/// more.
const SEQUENCES: u64 = 8;
/// Operations of a sequence.
const STEPS: usize = 100;
/// A sequence that takes longer hangs.
const SEQUENCE_TIME_MAX: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_stores_answer_alike() {
    check(Replies::Heard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_stores_bear_repeated_calls_alike() {
    check(Replies::SometimesLost).await;
}

async fn check(replies: Replies) {
    for seed in Seeds::from_environment(SEQUENCES).iter() {
        let folder = tempfile::tempdir().expect("a folder");
        let stores = stores(folder.path()).await;
        let comparison = compare(
            &stores,
            Sequence {
                seed,
                steps: STEPS,
                replies,
            },
        );
        let compared = tokio::time::timeout(SEQUENCE_TIME_MAX, comparison)
            .await
            .expect("no store hangs");
        let divergence = compared.err().map(|divergence| divergence.to_string());
        assert!(divergence.is_none(), "{}", divergence.unwrap_or_default());
    }
}

/// One of each, empty; the first is what the others are compared with.
async fn stores(folder: &Path) -> [(&'static str, Arc<dyn Store>); 5] {
    let sqlite = SqliteStore::open(folder.join("backstop.db"), SqliteOptions::default());
    let durability = backstop_postgres::PostgresDurability::Full;
    let postgres = PostgresStore::open(&servers::postgres().fresh_url(), durability);
    let redis = RedisStore::open(&servers::redis().fresh_url());
    let cluster = RedisStore::open(&servers::cluster().fresh_url());
    let stores: [(&str, Arc<dyn Store>); 5] = [
        ("memory", Arc::new(MemoryStore::new())),
        ("SQLite", Arc::new(sqlite.expect("SQLite opens"))),
        ("PostgreSQL", Arc::new(postgres.expect("PostgreSQL opens"))),
        ("Redis", Arc::new(redis.expect("Redis opens"))),
        (
            "Redis Cluster",
            Arc::new(cluster.expect("the cluster opens")),
        ),
    ];
    for (name, store) in &stores {
        let migrated = store.migrate().await;
        assert!(migrated.is_ok(), "{name}: {migrated:?}");
    }
    stores
}
