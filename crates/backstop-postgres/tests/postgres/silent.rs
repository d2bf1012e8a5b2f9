//! Connections that fall silent: nobody says that their other end is gone.

use backstop_core::port::{OperatorStore, Store};
use backstop_postgres::{PostgresDurability, PostgresStore};
use backstop_testkit::given::at;
use backstop_testkit::servers::{self, Mode, Proxy};
use futures_util::future::join_all;

#[tokio::test]
async fn a_pool_full_of_silent_connections_fails_no_call() {
    let proxy = Proxy::start(servers::postgres().addr()).await;
    let address = servers::postgres().fresh_url_at(proxy.addr());
    let store = PostgresStore::open(&address, PostgresDurability::Full).expect("an address");
    store.migrate().await.expect("the network is there");
    for looked in join_all((0..8).map(|_| store.queues(at(0)))).await {
        looked.expect("each on a connection of its own");
    }
    proxy.set(Mode::HalfOpen);
    tokio::task::yield_now().await;
    proxy.set(Mode::Pass);
    for _ in 0..8 {
        store
            .queues(at(0))
            .await
            .expect("on a connection that answers");
    }
}
