//! What only a file can do to streams: be shared, be reopened, be damaged.

use backstop_core::limits::TAKE_BYTES_MAX;
use backstop_core::port::{
    AdvanceOutcome, FindingSeverity, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeySelection,
    ListKeysRequest, OfferOutcome, Store, StreamStore, TakeRequest, TakeResult,
};
use backstop_core::stream::{KeyChange, Record, StoredKey, StreamCounter, StreamCounts};
use backstop_core::{LeaseNumber, Payload, Span, StreamKey, StreamName, Time, WorkerName};
use backstop_sqlite::{SqliteOptions, SqliteStore};
use backstop_testkit::given::{START, at};
use rusqlite::Connection;
use std::sync::Arc;
use tempfile::TempDir;

const LEASE: Span = Span::secs(30);

fn stream() -> StreamName {
    StreamName::new("s").expect("a name")
}

fn key(text: &str) -> StreamKey {
    StreamKey::new(text).expect("a key")
}

fn record(key: &str, position: i64) -> Record {
    let payload = Payload::from_stored(format!("\"{key}/{position}\"").into_bytes());
    Record {
        key: self::key(key),
        position,
        step: 1,
        tenant: None,
        payload,
    }
}

struct Waters {
    dir: TempDir,
    store: Arc<SqliteStore>,
    now: Time,
    draws: u64,
}

impl Waters {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(&dir);
        store.migrate().await.expect("it migrates");
        Self {
            dir,
            store,
            now: START,
            draws: 0,
        }
    }

    /// Somebody else's connection to the same file.
    fn connection(&self) -> Connection {
        Connection::open(self.dir.path().join("store.db")).expect("a connection")
    }

    async fn hold(&self, key: &str, positions: &[i64]) {
        let records: Vec<_> = positions
            .iter()
            .map(|position| record(key, *position))
            .collect();
        let held = vec![OfferOutcome::Held; records.len()];
        assert_eq!(
            self.store.offer(stream(), records, self.now).await,
            Ok(held)
        );
    }

    fn take_of(&mut self, wanted: KeySelection) -> TakeRequest {
        self.draws += 1;
        let (number, until) = (LeaseNumber::draw(self.draws), self.now.after(LEASE));
        TakeRequest {
            stream: stream(),
            number,
            worker: WorkerName::new("w"),
            until,
            wanted,
        }
    }

    async fn take(&mut self, wanted: KeySelection) -> (LeaseNumber, TakeResult) {
        let take = self.take_of(wanted);
        (
            take.number,
            self.store.take(take, self.now).await.expect("taken"),
        )
    }

    async fn advance(
        &self,
        number: LeaseNumber,
        key: &StoredKey,
        then: KeyLeaseAction,
    ) -> AdvanceOutcome {
        let advanced = self
            .store
            .advance(vec![advance(number, key, then)], self.now)
            .await;
        advanced.expect("advanced")[0]
    }

    fn count(&self, sql: &str) -> i64 {
        self.connection()
            .query_row(sql, [], |row| row.get(0))
            .expect("a count")
    }
}

fn open(dir: &TempDir) -> Arc<SqliteStore> {
    let store = SqliteStore::open(dir.path().join("store.db"), SqliteOptions::default());
    Arc::new(store.expect("the file opens"))
}

/// The next position is handled, and all records go.
fn advance(number: LeaseNumber, key: &StoredKey, then: KeyLeaseAction) -> KeyAdvance {
    let mut counts = StreamCounts::default();
    counts[StreamCounter::Handled] = 1;
    let change = KeyChange {
        watermark: Some(key.watermark.unwrap_or(0) + 1),
        state: b"{\"step\":1}".to_vec(),
        hold: Vec::new(),
        drop: key.records.iter().map(|record| record.position).collect(),
        counts,
    };
    let lease = KeyLease {
        stream: stream(),
        key: key.key.clone(),
        number,
    };
    KeyAdvance {
        lease,
        turn: 1,
        seen: key.arrived,
        change,
        lease_action: then,
    }
}

fn names(taken: &TakeResult) -> Vec<&str> {
    let mut names: Vec<&str> = taken
        .keys
        .iter()
        .map(|stored| stored.key.as_str())
        .collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_reopened_store_has_its_streams() {
    let mut waters = Waters::new().await;
    waters.hold("a", &[1, 2]).await;
    let (number, taken) = waters
        .take(KeySelection::Keys(vec![key("a"), key("b")]))
        .await;
    let before = (
        waters.store.streams().await,
        waters.store.stream_key(stream(), key("a")).await,
    );
    let Waters {
        dir,
        store,
        now,
        draws,
    } = waters;
    drop(store);
    let waters = Waters {
        store: open(&dir),
        dir,
        now,
        draws,
    };
    let after = (
        waters.store.streams().await,
        waters.store.stream_key(stream(), key("a")).await,
    );
    assert_eq!(after, before);
    for stored in &taken.keys {
        let advanced = waters
            .advance(number, stored, KeyLeaseAction::Release(None))
            .await;
        assert_eq!(
            advanced,
            AdvanceOutcome::Applied,
            "a lease outlives the process"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_share_the_keys() {
    const ROUNDS: usize = 40;
    let waters = Waters::new().await;
    let workers = (0..4_u64).map(|worker| {
        let store = if worker % 2 == 0 {
            Arc::clone(&waters.store)
        } else {
            open(&waters.dir)
        };
        tokio::spawn(async move {
            let (mut applied, names) = (0, ["a", "b", "c", "d", "e"]);
            for round in 0..ROUNDS {
                let number = LeaseNumber::draw(worker * 1_000 + round as u64 + 1);
                let wanted = KeySelection::Keys(names.map(key).to_vec());
                let until = START.after(LEASE);
                let take = TakeRequest {
                    stream: stream(),
                    number,
                    worker: WorkerName::new("w"),
                    until,
                    wanted,
                };
                let taken = store.take(take, START).await.expect("taken");
                let decided = taken
                    .keys
                    .iter()
                    .map(|stored| advance(number, stored, KeyLeaseAction::Release(None)));
                let advanced = store
                    .advance(decided.collect(), START)
                    .await
                    .expect("advanced");
                assert!(
                    advanced
                        .iter()
                        .all(|advanced| *advanced == AdvanceOutcome::Applied)
                );
                applied += advanced.len() as u64;
            }
            applied
        })
    });
    let mut applied = 0;
    for worker in workers.collect::<Vec<_>>() {
        applied += worker.await.expect("no panic");
    }
    let status = waters.store.streams().await.expect("streams").remove(0);
    assert_eq!(
        (status.keys, status.counts[StreamCounter::Handled]),
        (5, applied)
    );
    let query = ListKeysRequest {
        stream: stream(),
        after: None,
        filter: KeyFilter::All,
        limit: 9,
    };
    let keys = waters.store.stream_keys(query, START).await.expect("keys");
    let moved: i64 = keys.iter().filter_map(|key| key.watermark).sum();
    assert_eq!(
        moved,
        i64::try_from(applied).expect("it fits"),
        "no step was taken twice, and none was lost"
    );
    for table in ["backstop_stream_lease", "backstop_stream_take"] {
        assert_eq!(
            waters.count(&format!("SELECT count(*) FROM {table}")),
            0,
            "{table}"
        );
    }
}

#[tokio::test]
async fn a_key_in_order_is_overwritten_in_place_and_only_when_it_is_advanced() {
    let mut waters = Waters::new().await;
    let wanted = || KeySelection::Keys((0..50).map(|n| key(&n.to_string())).collect());
    // The positions 0 and 1 are kept in no bytes at all.
    for _ in 0..2 {
        let (number, taken) = waters.take(wanted()).await;
        for stored in &taken.keys {
            waters
                .advance(number, stored, KeyLeaseAction::Release(None))
                .await;
        }
    }
    let db = waters.connection();
    db.execute_batch(
        "CREATE TABLE touched (n);
         CREATE TRIGGER touch AFTER UPDATE ON backstop_stream_key BEGIN INSERT INTO touched VALUES (1); END",
    )
    .expect("a trigger");
    let width = "SELECT sum(payload) FROM dbstat WHERE name = 'backstop_stream_key'";
    let (before, touched) = (waters.count(width), "SELECT count(*) FROM touched");
    let (number, taken) = waters.take(wanted()).await;
    assert_eq!((taken.keys.len(), waters.count(touched)), (50, 0));
    for stored in &taken.keys {
        waters
            .advance(number, stored, KeyLeaseAction::Release(None))
            .await;
    }
    assert_eq!((waters.count(width), waters.count(touched)), (before, 50));
}

#[tokio::test]
async fn a_take_ends_where_its_records_are_too_many_bytes() {
    let mut waters = Waters::new().await;
    let megabyte = Payload::from_stored(vec![b' '; 1 << 20]);
    let keys = TAKE_BYTES_MAX / (8 << 20);
    for n in 0..=keys {
        let records = (0..8).map(|position| Record {
            payload: megabyte.clone(),
            ..record(&n.to_string(), position)
        });
        waters
            .store
            .offer(stream(), records.collect(), waters.now)
            .await
            .expect("offered");
        waters.now = waters.now.after(Span::secs(1));
    }
    let (_, taken) = waters.take(KeySelection::Due(9)).await;
    assert_eq!(taken.keys.len(), keys);
    assert!(
        taken.next_due.is_some_and(|due| due <= waters.now),
        "more is due"
    );
    let (_, rest) = waters.take(KeySelection::Due(9)).await;
    assert_eq!(names(&rest), [keys.to_string()]);
}

#[tokio::test]
async fn a_damaged_key_does_not_keep_its_neighbours_waiting() {
    let mut waters = Waters::new().await;
    for name in ["b", "a", "c"] {
        waters.hold(name, &[1]).await;
        waters.now = waters.now.after(Span::secs(1));
    }
    let damage = "UPDATE backstop_stream_key SET key = x'ff' WHERE key = 'b'";
    waters.connection().execute_batch(damage).expect("damage");
    assert_eq!(
        names(&waters.take(KeySelection::Due(1)).await.1),
        Vec::<&str>::new()
    );
    assert_eq!(
        names(&waters.take(KeySelection::Due(9)).await.1),
        ["a", "c"]
    );
    let query = ListKeysRequest {
        stream: stream(),
        after: None,
        filter: KeyFilter::All,
        limit: 9,
    };
    let keys = waters
        .store
        .stream_keys(query, waters.now)
        .await
        .expect("keys");
    assert_eq!(keys.len(), 2);
}

#[tokio::test]
async fn a_damaged_record_keeps_its_place_in_the_order() {
    let mut waters = Waters::new().await;
    waters.hold("a", &[1, 2, 3]).await;
    let damage = "UPDATE backstop_stream_record SET payload = 5, tenant = x'ff', step = 'x' WHERE position = 2";
    waters.connection().execute_batch(damage).expect("damage");
    let (_, taken) = waters.take(KeySelection::Due(1)).await;
    let [one, two, three] = &taken.keys[0].records[..] else {
        panic!("{taken:?}")
    };
    assert_eq!([one.position, two.position, three.position], [1, 2, 3]);
    assert_eq!((two.step, &two.tenant, two.payload.len()), (1, &None, 0));
}

#[tokio::test]
async fn records_that_are_lost_are_found_by_an_examination_and_at_the_next_take() {
    let mut waters = Waters::new().await;
    waters.hold("a", &[1, 2]).await;
    waters.hold("b", &[1]).await;
    let bad = |examined: backstop_core::port::ExaminationReport| {
        let bad = examined
            .findings
            .into_iter()
            .filter(|finding| finding.severity == FindingSeverity::Bad);
        bad.map(|finding| finding.what).collect::<Vec<_>>()
    };
    assert_eq!(
        bad(waters.store.examine().await.expect("examined")),
        Vec::<String>::new()
    );
    waters
        .connection()
        .execute_batch("DELETE FROM backstop_stream_record WHERE position = 2")
        .expect("damage");
    waters
        .connection()
        .execute_batch("UPDATE backstop_stream_record SET key = 99 WHERE key = 2")
        .expect("damage");
    let found = bad(waters.store.examine().await.expect("examined"));
    assert_eq!(
        found,
        ["streams: 1 records without a key, 2 keys that count their records wrong"]
    );
    let (_, taken) = waters.take(KeySelection::Due(9)).await;
    let counts: Vec<u64> = taken.keys.iter().map(|stored| stored.count).collect();
    assert_eq!((names(&taken), counts), (vec!["a", "b"], vec![1, 0]));
    let status = waters.store.streams().await.expect("streams").remove(0);
    assert_eq!(
        (status.records, status.holding, status.oldest),
        (1, 1, Some(at(0)))
    );
}
