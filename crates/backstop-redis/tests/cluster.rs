//! The contract of the port, on a Redis Cluster of three masters, as the user that `docs/stores.md`
//! makes, with a prefix of its own per case.

mod user;

use backstop_core::port::Store;
use backstop_redis::RedisStore;
use backstop_testkit::contract::queues::QUEUES_IN_CONTRACT;
use backstop_testkit::servers;
use std::sync::Once;

async fn fresh() -> RedisStore {
    static USER: Once = Once::new();
    USER.call_once(|| {
        servers::cluster()
            .masters()
            .into_iter()
            .for_each(user::make_on);
    });
    let address = user::log_in(&servers::cluster().fresh_url());
    let store = RedisStore::open(&address).expect("a good address");
    let store = store.with_max_queues(QUEUES_IN_CONTRACT);
    store.migrate().await.expect("the store migrates");
    store
}

backstop_testkit::store_contract!(fresh);
