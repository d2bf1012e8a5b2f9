//! The memory store keeps the contract.

use backstop_memory::MemoryStore;

backstop_testkit::store_contract!(|| async { MemoryStore::new() });
