//! The contract of the port, on a Redis Cluster of three masters, with a prefix of its own per case.

use backstop_core::port::Store;
use backstop_redis::RedisStore;
use backstop_testkit::servers;

async fn fresh() -> RedisStore {
    let store = RedisStore::open(&servers::cluster().fresh_url()).expect("a good address");
    store.migrate().await.expect("the store migrates");
    store
}

backstop_testkit::store_contract!(fresh);
