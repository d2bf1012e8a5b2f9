//! The contract of the port, on one Redis, with a prefix of its own per case.

use backstop_core::port::Store;
use backstop_redis::RedisStore;
use backstop_testkit::servers;

async fn fresh() -> RedisStore {
    let store = RedisStore::open(&servers::redis().fresh_url()).expect("a good address");
    store.migrate().await.expect("the store migrates");
    store
}

backstop_testkit::store_contract!(fresh);
