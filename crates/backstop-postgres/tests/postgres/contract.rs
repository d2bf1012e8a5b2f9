//! The contract of the port.

backstop_testkit::store_contract!(|| async { crate::fresh_store().await.0 });
