//! The store on a real PostgreSQL, in a schema of its own per case.

mod contract;
mod damaged;
mod drift;
mod fresh;
mod full;
mod held;
mod hints;
mod late;
mod migrate;
mod plans;
mod pooled;
mod roles;
mod settle;
mod silent;
mod snapshot;
mod streams;
mod tls;
mod transaction;
mod waits;

use backstop_core::port::Store;
use backstop_postgres::{PostgresDurability, PostgresStore, schema_of};
use backstop_testkit::contract::queues::QUEUES_IN_CONTRACT;
use backstop_testkit::servers;
use std::sync::Arc;

/// A store that is empty, and its schema. The owner has made it; the store is that of a role that
/// may do no more than `docs/stores.md` grants a worker.
async fn fresh_store() -> (Arc<dyn Store>, String) {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("the address names a schema");
    open(&address).await;
    let store = PostgresStore::open(&roles::worker_of(&schema).await, PostgresDurability::Full);
    (
        Arc::new(
            store
                .expect("the address is one")
                .with_max_queues(QUEUES_IN_CONTRACT),
        ),
        schema,
    )
}

/// The store behind an address, migrated.
async fn open(address: &str) -> Arc<dyn Store> {
    let store = PostgresStore::open(address, PostgresDurability::Full).expect("the address is one");
    store.migrate().await.expect("the store migrates");
    Arc::new(store)
}

/// A connection of a user's own, as the owner of all schemas.
async fn user() -> tokio_postgres::Client {
    backstop_postgres::connect(&servers::postgres().url())
        .await
        .expect("the server takes connections")
}
