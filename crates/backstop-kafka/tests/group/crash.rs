//! A member that is killed in the middle of its work, and those that take over.

use crate::brokers::Brokers;
use crate::ledger::Ledger;
use crate::member::{Member, UNCOMMITTED_MAX};
use crate::watch;
use std::collections::BTreeMap;

/// Three for each of two members.
const PARTITIONS: i32 = 6;
const RECORDS: u64 = 3_000;
/// The victim never ends with the batch that holds this offset.
const STALL: i64 = 57;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_member_had_in_hand_goes_to_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::at(&dir.path().join("ledger"));
    let brokers = Brokers::with_topic("crash", PARTITIONS).await;
    brokers.produce(0..RECORDS);
    let victim = Member::start_stalling("victim", &brokers, &ledger, STALL);
    watch(
        "the victim stalls everywhere",
        &brokers,
        &ledger,
        |ledger| beyond(ledger).len() == 6,
    )
    .await;
    let heir = Member::start("heir", &brokers, &ledger);
    watch("the heir has its half", &brokers, &ledger, |ledger| {
        ledger.partitions_of("heir").len() == 3
    })
    .await;

    let committed = brokers.committed();
    let (beyond, before) = (beyond(&ledger), ledger.entries());
    victim.kill();
    let other = Member::start("other", &brokers, &ledger);
    let all = usize::try_from(RECORDS).expect("few");
    watch(
        "the others take in everything",
        &brokers,
        &ledger,
        |ledger| ledger.numbers() == all,
    )
    .await;
    assert_eq!((heir.ended(), other.ended()), ((0, 0), (0, 0)));
    assert_eq!(
        brokers.committed_records(),
        i64::try_from(RECORDS).expect("few")
    );

    ledger.check_repeated(UNCOMMITTED_MAX, 3);
    check_committed_once(&ledger, before.len(), &committed);
    for (partition, offset) in beyond {
        let committed = committed.get(&partition).copied().unwrap_or(0);
        assert!(
            committed <= STALL,
            "{partition} is committed up to {committed}"
        );
        let of_victim = before
            .iter()
            .filter(|entry| entry.partition == partition && entry.offset >= committed);
        assert!(
            of_victim.count() <= UNCOMMITTED_MAX,
            "no more than may be uncommitted"
        );
        let repeated = ledger.repeated(0).remove(&partition).unwrap_or_default();
        assert!(
            repeated.contains(&offset),
            "{partition}:{offset} was not committed, so it comes again"
        );
    }
}

/// Of each partition that the victim has alone, the last offset that it took in behind the batch it
/// never ends with.
fn beyond(ledger: &Ledger) -> BTreeMap<i32, i64> {
    let others = ledger.partitions_of("heir");
    let entries = ledger.entries().into_iter();
    let beyond = entries.filter(|entry| entry.offset > STALL && !others.contains(&entry.partition));
    beyond
        .map(|entry| (entry.partition, entry.offset))
        .collect()
}

/// What was committed when the victim was killed was not taken in again afterwards.
fn check_committed_once(ledger: &Ledger, before: usize, committed: &BTreeMap<i32, i64>) {
    for entry in &ledger.entries()[before..] {
        let floor = committed.get(&entry.partition).copied().unwrap_or(0);
        assert!(
            entry.offset >= floor,
            "{entry:?} was committed: {committed:?}"
        );
    }
}
