//! Members that stop as they should, and those that go on.

use crate::brokers::Brokers;
use crate::ledger::Ledger;
use crate::member::Member;
use crate::watch;
use std::collections::BTreeMap;

const PARTITIONS: i32 = 4;
/// Records that come each time somebody looks, so that there is always something to do.
const MORE: i64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_nothing_is_taken_in_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::at(&dir.path().join("ledger"));
    let brokers = Brokers::with_topic("farewell", PARTITIONS).await;
    let mut produced = 0;
    let mut produce = || {
        produced += MORE;
        brokers.produce((produced - MORE).unsigned_abs()..produced.unsigned_abs());
        produced
    };
    let [one, two] = ["one", "two"].map(|name| Member::start(name, &brokers, &ledger));
    watch("both work", &brokers, &ledger, |ledger| {
        produce();
        ["one", "two"]
            .iter()
            .all(|name| !ledger.partitions_of(name).is_empty())
    })
    .await;
    let all = produce();
    watch("nothing is under way", &brokers, &ledger, |_| {
        brokers.committed_records() == all
    })
    .await;

    // Joining may have brought records twice; leaving must not.
    let before = ledger.entries().len();
    produce();
    assert_eq!(one.ended(), (0, 0));
    watch(
        "the other has all partitions",
        &brokers,
        &ledger,
        |ledger| {
            produce();
            ledger.partitions_of("two").len() == 4
        },
    )
    .await;
    assert_eq!(two.ended(), (0, 0));
    assert_eq!(
        brokers.committed_records(),
        i64::try_from(ledger.numbers()).expect("few")
    );

    let all = produce();
    let three = Member::start("three", &brokers, &ledger);
    watch("the rest is taken in", &brokers, &ledger, |ledger| {
        i64::try_from(ledger.numbers()) == Ok(all)
    })
    .await;
    assert_eq!(three.ended(), (0, 0));
    assert!(!ledger.partitions_of("three").is_empty());
    assert_eq!(ledger.repeated(before), BTreeMap::new());
}
