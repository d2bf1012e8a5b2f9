//! The contract of the port, as the role that `docs/stores.md` grants a worker.

backstop_testkit::store_contract!(|| async { crate::fresh_store().await.0 });
