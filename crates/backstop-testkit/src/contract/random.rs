//! Random operations, compared with the memory store: they find what the directed cases miss.

use super::{Factory, in_time};
use crate::random::{Coverage, Replies, Seeds, Sequence, compare};
use backstop_core::port::Store;
use backstop_memory::MemoryStore;
use std::sync::Arc;

/// Sequences of one run, unless the environment sets another number.
const SEQUENCES: u64 = 30;
/// The number of operations in a sequence.
const STEPS: usize = 80;
/// With fewer sequences, some answers may not occur by chance.
const COVERING_SEQUENCES: u64 = 30;

/// Every answer and every list agrees with the memory store.
pub async fn random_operations_agree_with_the_memory_store(fresh: Factory) {
    check(&fresh, Replies::Heard).await;
}

/// A call whose answer was lost is repeated, and the store then shows the same as if it had been
/// heard at once.
pub async fn random_operations_survive_lost_replies(fresh: Factory) {
    check(&fresh, Replies::SometimesLost).await;
}

async fn check(fresh: &Factory, replies: Replies) {
    let seeds = Seeds::from_environment(SEQUENCES);
    let mut coverage = Coverage::default();
    for seed in seeds.iter() {
        let subject = fresh().await;
        let stores: [(&str, Arc<dyn Store>); 2] = [
            ("the memory store", Arc::new(MemoryStore::new())),
            ("the store", Arc::clone(&subject.store)),
        ];
        let compared = in_time(compare(
            &stores,
            Sequence {
                seed,
                steps: STEPS,
                replies,
            },
        ))
        .await;
        let divergence = compared
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(compared.is_ok(), "{divergence}");
        coverage.add(&compared.unwrap_or_default());
    }
    if seeds.count >= COVERING_SEQUENCES {
        assert!(
            coverage.missing().is_empty(),
            "{:?} never came: {seeds:?}",
            coverage.missing()
        );
    }
}
