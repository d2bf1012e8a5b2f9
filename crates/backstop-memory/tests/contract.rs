//! The memory store keeps the contract.

use backstop_memory::MemoryStore;
use backstop_testkit::contract::queues::QUEUES_IN_CONTRACT;

backstop_testkit::store_contract!(|| async {
    MemoryStore::new().with_max_queues(QUEUES_IN_CONTRACT)
});
