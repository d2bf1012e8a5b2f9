use super::*;
use crate::given::{DETECTOR, KEY, Kept, event};

#[test]
fn a_transaction_that_is_dropped_has_changed_nothing() {
    let kept = Kept::new();
    let mut memory = kept.open();
    let mut transaction = memory.begin().unwrap();
    transaction
        .note(&event(1, Effect::Handled), "{}", 5)
        .unwrap();
    transaction
        .set_standing(DETECTOR, Standing::Up { failures: 1 })
        .unwrap();
    transaction
        .change(&Change::DetectorDisabled {
            detector: DETECTOR,
            at_ms: 5,
        })
        .unwrap();
    transaction
        .set_last_update(
            KEY,
            LastUpdate {
                position: 1,
                step: 1,
            },
        )
        .unwrap();
    drop(transaction);
    assert_eq!(
        (memory.lines(0).unwrap(), memory.changes(0).unwrap()),
        (vec![], vec![])
    );
    let mut transaction = memory.begin().unwrap();
    assert_eq!(transaction.standing(DETECTOR).unwrap(), None);
    assert_eq!(transaction.last_update(KEY).unwrap(), None);
}

#[test]
fn what_is_committed_is_there_for_other_processes() {
    let kept = Kept::new();
    let mut memory = kept.open();
    let range = Effect::MissRange { to: 900, count: 3 };
    let (change, reached) = (
        Change::DetectorDisabled {
            detector: DETECTOR,
            at_ms: 5,
        },
        LastUpdate {
            position: 7,
            step: 60,
        },
    );
    let mut transaction = memory.begin().unwrap();
    transaction
        .note(&event(1, Effect::Handled), "{\"a\":1}", 5)
        .unwrap();
    transaction.note(&event(2, range), "{}", 6).unwrap();
    transaction
        .set_standing(DETECTOR, Standing::Up { failures: 1 })
        .unwrap();
    transaction.change(&change).unwrap();
    transaction.set_last_update(KEY, reached).unwrap();
    transaction.commit().unwrap();

    let mut other = kept.open();
    let lines = other.lines(0).unwrap();
    assert_eq!(
        (lines[0].effect, lines[0].line.as_str(), lines[0].at_ms),
        (Effect::Handled, "{\"a\":1}", 5)
    );
    assert_eq!(lines[1].effect, range);
    assert_eq!(other.lines(lines[0].seq).unwrap(), lines[1..]);
    let changes = other.changes(0).unwrap();
    assert_eq!(changes, [(changes[0].0, change)]);
    assert_eq!(other.changes(changes[0].0).unwrap(), []);
    let mut transaction = other.begin().unwrap();
    assert!(transaction.is_noted(&event(1, Effect::Handled)).unwrap());
    assert!(!transaction.is_noted(&event(1, Effect::Amended)).unwrap());
    assert_eq!(
        transaction.standing(DETECTOR).unwrap(),
        Some(Standing::Up { failures: 1 })
    );
    assert_eq!(transaction.last_update(KEY).unwrap(), Some(reached));
    transaction.forget_last_update(KEY).unwrap();
    assert_eq!(transaction.last_update(KEY).unwrap(), None);
}

#[test]
fn a_file_of_another_version_is_refused() {
    let kept = Kept::new();
    drop(kept.open());
    let path = kept.folder().join("memory.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", 9)
        .unwrap();
    let refused = SqliteMemory::open(&path, Durability::Relaxed)
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        refused.as_deref(),
        Some("the memory is of version 9, this program reads version 1; give it a file of its own")
    );
}

#[test]
fn processes_wait_for_each_other() {
    let kept = Kept::new();
    drop(kept.open());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mut memory = kept.open();
            scope.spawn(move || {
                for minute in 0..50 {
                    let mut transaction = memory.begin().unwrap();
                    transaction
                        .note(&event(worker * 100 + minute, Effect::Handled), "{}", 0)
                        .unwrap();
                    transaction.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(kept.open().lines(0).unwrap().len(), 200);
}
