//! A store on a server, and the server's side of it.

use backstop_core::port::Store;
use backstop_redis::RedisStore;
use backstop_testkit::given::Scene;
use backstop_testkit::servers::Redis;
use std::sync::Arc;

/// A store with a prefix of its own, and the server it is on.
pub(crate) struct Place<'a> {
    pub(crate) server: &'a Redis,
    pub(crate) url: String,
    pub(crate) store: Arc<RedisStore>,
}

impl<'a> Place<'a> {
    /// A fresh store, migrated.
    pub(crate) async fn on(server: &'a Redis) -> Self {
        let url = server.fresh_url();
        let store = open(&url);
        store.migrate().await.expect("the store migrates");
        Self { server, url, store }
    }

    /// A scene on the store.
    pub(crate) fn scene(&self) -> Scene {
        Scene::new(Arc::clone(&self.store) as Arc<dyn Store>)
    }

    /// The key of a part of a queue.
    pub(crate) fn key(&self, queue: &str, part: &str) -> String {
        format!("{}:{{{queue}}}:{part}", self.prefix())
    }

    /// What every key begins with.
    pub(crate) fn prefix(&self) -> &str {
        self.url
            .split_once("prefix=")
            .expect("a fresh store has a prefix")
            .1
    }

    /// Removes a part of a queue.
    pub(crate) fn delete(&self, queue: &str, part: &str) {
        assert_eq!(
            self.server.cli(&["del", &self.key(queue, part)]).trim(),
            "1",
            "{part}"
        );
    }

    /// Removes one field of a part of a queue.
    pub(crate) fn delete_one(&self, queue: &str, part: &str) {
        let script = "return redis.call('HDEL', KEYS[1], redis.call('HKEYS', KEYS[1])[1])";
        assert_eq!(
            self.server
                .cli(&["eval", script, "1", &self.key(queue, part)])
                .trim(),
            "1",
            "{part}"
        );
    }
}

/// The store at this address, not yet migrated.
pub(crate) fn open(url: &str) -> Arc<RedisStore> {
    Arc::new(RedisStore::open(url).expect("a good address"))
}
