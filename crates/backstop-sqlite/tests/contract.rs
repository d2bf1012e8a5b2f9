//! The contract of the port, on a file of its own per case.

use backstop_core::port::Store;
use backstop_sqlite::{SqliteOptions, SqliteStore};
use backstop_testkit::contract::queues::QUEUES_IN_CONTRACT;
use tempfile::TempDir;

async fn fresh() -> (SqliteStore, TempDir) {
    let dir = tempfile::tempdir().expect("a directory for the file");
    let store = SqliteStore::open(dir.path().join("backstop.db"), SqliteOptions::default());
    let store = store
        .expect("the file opens")
        .with_max_queues(QUEUES_IN_CONTRACT);
    store.migrate().await.expect("the store migrates");
    (store, dir)
}

backstop_testkit::store_contract!(fresh);
