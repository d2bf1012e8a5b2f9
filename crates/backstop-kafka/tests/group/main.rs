//! The source against brokers over TCP: librdkafka's mock cluster, or the real ones that
//! `BACKSTOP_KAFKA_BROKERS` names (see `scripts/kafka-real`). What only the mock can do is left out
//! there.

mod brokers;
mod commits;
mod crash;
mod farewell;
mod ledger;
mod lost;
mod member;
mod outage;
mod pressure;
mod recorder;
mod refusal;

use brokers::Brokers;
use ledger::Ledger;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Far more than anything takes: only a hang gets there.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until something holds of the ledger, and all the while sees that no commit is ahead of it.
async fn watch(
    what: &str,
    brokers: &Brokers,
    ledger: &Ledger,
    mut holds: impl FnMut(&Ledger) -> bool,
) {
    until(what, || {
        check_commits(brokers, ledger);
        holds(ledger)
    })
    .await;
}

/// Whatever is committed has been taken in. Commits are read first: what is taken in meanwhile does
/// no harm.
fn check_commits(brokers: &Brokers, ledger: &Ledger) {
    let committed = brokers.committed();
    let taken: BTreeSet<(i32, i64)> = ledger
        .entries()
        .iter()
        .map(|entry| (entry.partition, entry.offset))
        .collect();
    for (partition, committed) in committed {
        let missing = (0..committed).find(|offset| !taken.contains(&(partition, *offset)));
        assert_eq!(
            missing, None,
            "partition {partition} is committed up to {committed}"
        );
    }
}
