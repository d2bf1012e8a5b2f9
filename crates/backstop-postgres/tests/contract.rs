//! The contract of the port, in a schema of its own per case.

use backstop_core::port::Store;
use backstop_postgres::{Durability, PostgresStore};
use backstop_testkit::servers;

async fn fresh() -> PostgresStore {
    let address = servers::postgres().fresh_url();
    let store = PostgresStore::open(&address, Durability::Full).expect("the address is one");
    store.migrate().await.expect("the store migrates");
    store
}

backstop_testkit::store_contract!(fresh);
