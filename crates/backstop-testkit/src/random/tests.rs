use super::*;
use crate::flaky::{Fault, Flaky};
use crate::given::{START, job, queue};
use backstop_core::port::{JobStore, OperatorStore, QueueState};
use backstop_memory::MemoryStore;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn sequence(seed: u64) -> Sequence {
    Sequence {
        seed,
        steps: 80,
        replies: Replies::Heard,
    }
}

#[tokio::test]
async fn every_answer_comes_now_and_then() {
    for replies in [Replies::Heard, Replies::SometimesLost] {
        let mut coverage = Coverage::default();
        for seed in 0..40 {
            let stores = [("one", memory()), ("another", memory())];
            let seen = compare(
                &stores,
                Sequence {
                    replies,
                    ..sequence(seed)
                },
            )
            .await;
            coverage.add(&seen.unwrap_or_else(|divergence| panic!("{divergence}")));
        }
        assert_eq!(coverage.missing(), [""; 0], "{coverage:?}");
    }
}

#[tokio::test]
async fn a_store_that_fails_is_found() {
    let flaky = Arc::new(Flaky::new(memory(), 1));
    flaky.next_call(Fault::Refused);
    let stores: [(&str, Arc<dyn Store>); 2] = [("memory", memory()), ("flaky", flaky)];
    let divergence = compare(&stores, sequence(1))
        .await
        .expect_err("it failed once");
    assert_eq!(
        (divergence.store.as_str(), divergence.step, divergence.seed),
        ("flaky", 1, 1)
    );
    assert!(
        divergence.to_string().contains("BACKSTOP_SEED=1"),
        "{divergence}"
    );
}

#[tokio::test]
async fn a_store_that_holds_something_else_is_found() {
    let with_a_job = MemoryStore::new();
    with_a_job
        .enqueue(vec![job("z", "stranger").into()], START)
        .await
        .expect("memory takes it");
    let paused = MemoryStore::new();
    paused
        .set_queue_state(queue("a"), QueueState::Paused, START)
        .await
        .expect("memory pauses it");
    for different in [with_a_job, paused] {
        let stores: [(&str, Arc<dyn Store>); 3] = [
            ("memory", memory()),
            ("same", memory()),
            ("different", Arc::new(different)),
        ];
        let divergence = compare(&stores, sequence(2))
            .await
            .expect_err("it holds something else");
        assert_eq!(divergence.store, "different", "{divergence}");
    }
}
