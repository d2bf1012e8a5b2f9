//! Streams where PostgreSQL has ways of its own: many at once, what is left in pages and plans,
//! rows that somebody damaged.

use super::{fresh_store, open, user};
use backstop_core::limits::TAKE_BYTES_MAX;
use backstop_core::port::{
    AdvanceOutcome, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeySelection, ListKeysRequest,
    OfferOutcome, PruneRequest, Store, TakeRequest, TakeResult,
};
use backstop_core::stream::{KeyChange, Record, StoredKey, StreamCounter, StreamCounts};
use backstop_core::{LeaseNumber, Payload, StreamKey, StreamName, Time, WorkerName};
use backstop_postgres::schema_of;
use backstop_testkit::given::{LEASE, Scene};
use backstop_testkit::servers;
use backstop_testkit::servers::postgres::{Postgres, Settings};
use std::sync::Arc;

/// Bytes of a payload that is as large as they get.
const LARGE: usize = 1 << 20;
/// Keys that several want at once.
const KEYS: usize = 40;

fn stream() -> StreamName {
    StreamName::new("uptime").expect("a name")
}

fn key(number: usize) -> StreamKey {
    StreamKey::new(&format!("monitor-{number:06}")).expect("a key")
}

fn record(number: usize, position: i64) -> Record {
    Record {
        key: key(number),
        position,
        step: 60,
        tenant: None,
        payload: Payload::from_stored(b"{}".to_vec()),
    }
}

async fn offer(store: &dyn Store, records: Vec<Record>, now: Time) -> Vec<OfferOutcome> {
    store
        .offer(stream(), records, now)
        .await
        .expect("the store answers")
}

async fn take(
    store: &dyn Store,
    number: LeaseNumber,
    wanted: KeySelection,
    now: Time,
) -> TakeResult {
    let worker = WorkerName::new("w");
    let take = TakeRequest {
        stream: stream(),
        number,
        worker,
        until: now.after(LEASE),
        wanted,
    };
    store.take(take, now).await.expect("the store answers")
}

/// The end of a take of this key: what it kept is dropped, and counted as handled.
fn done(number: LeaseNumber, stored: &StoredKey, then: KeyLeaseAction) -> KeyAdvance {
    let mut counts = StreamCounts::default();
    counts[StreamCounter::Handled] = stored.records.len() as u64;
    let drop = stored
        .records
        .iter()
        .map(|record| record.position)
        .collect();
    let change = KeyChange {
        watermark: Some(60),
        counts,
        drop,
        ..KeyChange::default()
    };
    let lease = KeyLease {
        stream: stream(),
        key: stored.key.clone(),
        number,
    };
    KeyAdvance {
        lease,
        turn: 1,
        seen: stored.arrived,
        change,
        lease_action: then,
    }
}

async fn finish(
    store: &dyn Store,
    number: LeaseNumber,
    taken: &TakeResult,
    now: Time,
) -> Vec<AdvanceOutcome> {
    let advances = taken
        .keys
        .iter()
        .map(|stored| done(number, stored, KeyLeaseAction::Release(None)))
        .collect();
    store
        .advance(advances, now)
        .await
        .expect("the store answers")
}

async fn number(schema: &str, sql: &str) -> i64 {
    let sql = format!("SET search_path = {schema}; {sql}");
    let rows = user().await.simple_query(&sql).await.expect("an answer");
    let number = rows.iter().find_map(|row| match row {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    number.expect("a number").parse().expect("a number")
}

/// Pushes, takes and decides about the same keys as others; tells how many records it brought in,
/// and how many it handled.
async fn work(store: &dyn Store, scene: &mut Scene, worker: usize) -> (usize, usize) {
    let (mut held, mut handled) = (0, 0);
    for round in 0..30_u32 {
        let keys = (0..KEYS).map(|n| (n * 7 + round as usize + worker) % KEYS);
        let records = keys
            .clone()
            .take(25)
            .map(|n| record(n, i64::from(round) * 60))
            .collect();
        let answers = offer(store, records, scene.now).await;
        held += answers
            .iter()
            .filter(|answer| **answer == OfferOutcome::Held)
            .count();
        let wanted = match round % 3 {
            0 => KeySelection::Due(10),
            1 => KeySelection::Keys(keys.skip(10).map(key).collect()),
            _ => KeySelection::Seized(keys.skip(30).map(key).collect()),
        };
        let number = scene.draw();
        let taken = take(store, number, wanted, scene.now).await.keys;
        let then = if round % 5 == 0 {
            KeyLeaseAction::Clear
        } else {
            KeyLeaseAction::Release(None)
        };
        let advances = taken
            .iter()
            .rev()
            .map(|stored| done(number, stored, then))
            .collect();
        let answers = store
            .advance(advances, scene.now)
            .await
            .expect("the store answers");
        let applied = taken
            .iter()
            .rev()
            .zip(answers)
            .filter(|(_, answer)| *answer == AdvanceOutcome::Applied);
        handled += applied
            .map(|(stored, _)| stored.records.len())
            .sum::<usize>();
    }
    (held, handled)
}

/// Each record is handled at most once, the counts are right, and nobody ever waits in a circle.
/// The server counts circles of all that run beside this, so that one may be somebody else's: of
/// three in a row it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_with_the_same_keys_lose_nothing_and_never_wait_in_a_circle() {
    let mut circles = 1;
    for _ in 0..3 {
        circles = many_with_the_same_keys().await;
        if circles == 0 {
            break;
        }
    }
    assert_eq!(circles, 0);
}

/// Has many work on the same keys; tells how often somebody on the server waited in a circle
/// meanwhile.
async fn many_with_the_same_keys() -> i64 {
    let (store, schema) = fresh_store().await;
    let address = format!("{}?schema={schema}", servers::postgres().url());
    let scene = Scene::new(Arc::clone(&store));
    let deadlocks = "SELECT sum(deadlocks)::bigint FROM pg_stat_database";
    let before = number(&schema, deadlocks).await;
    let workers = (0..6).map(|worker: u32| {
        let (mut apart, address) = (scene.apart(worker), address.clone());
        tokio::spawn(async move { work(&*open(&address).await, &mut apart, worker as usize).await })
    });
    let (mut held, mut handled) = (0, 0);
    for worker in workers.collect::<Vec<_>>() {
        let (more_held, more_handled) = worker.await.expect("no task panics");
        (held, handled) = (held + more_held, handled + more_handled);
    }
    assert!(
        held > 0 && handled > 0 && handled <= held,
        "{handled} of {held}"
    );
    let found = store.streams().await.expect("streams").remove(0);
    assert_eq!(found.counts[StreamCounter::Handled], handled as u64);
    for (counted, sql) in [
        (found.keys, "SELECT count(*) FROM stream_key"),
        (
            found.holding,
            "SELECT count(*) FROM stream_key WHERE records > 0",
        ),
        (found.records, "SELECT count(*) FROM stream_record"),
        (found.records, "SELECT sum(records) FROM stream_key"),
    ] {
        assert_eq!(counted, number(&schema, sql).await.unsigned_abs(), "{sql}");
    }
    let wrong = "SELECT count(*) FROM stream_key k WHERE records <> (SELECT count(*) FROM stream_record r WHERE r.key = k.key)";
    assert_eq!(number(&schema, wrong).await, 0);
    number(&schema, deadlocks).await - before
}

/// Rows are changed in place: no index grows. On a server where nobody else holds a snapshot.
#[tokio::test]
async fn a_record_in_order_leaves_every_index_as_it_is() {
    let server = Postgres::start(Settings::default());
    let address = server.fresh_url();
    let (store, schema) = (
        open(&address).await,
        schema_of(&address).expect("an address"),
    );
    let user = backstop_postgres::connect(&address)
        .await
        .expect("a connection");
    let mut scene = Scene::new(Arc::clone(&store));
    let keys: Vec<StreamKey> = (0..2_000).map(key).collect();
    let size = format!(
        "SELECT sum(pg_relation_size(indexrelid))::bigint FROM pg_index WHERE indrelid = '{schema}.stream_key'::regclass"
    );
    let mut sizes = Vec::new();
    for _ in 0..20 {
        let number = scene.draw();
        let taken = take(&*store, number, KeySelection::Keys(keys.clone()), scene.now).await;
        assert_eq!(taken.keys.len(), keys.len());
        assert_eq!(
            finish(&*store, number, &taken, scene.now).await,
            vec![AdvanceOutcome::Applied; keys.len()]
        );
        sizes.push(
            user.query_one(&size, &[])
                .await
                .expect("a size")
                .get::<_, i64>(0),
        );
    }
    assert_eq!(sizes[1], sizes[19], "{sizes:?}");
}

/// What is counted is the same before and after it is added up.
#[tokio::test]
async fn counts_are_added_up_and_stay_the_same() {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(Arc::clone(&store));
    offer(&*store, (0..30).map(|n| record(n, 60)).collect(), scene.now).await;
    let number = scene.draw();
    let taken = take(&*store, number, KeySelection::Due(10), scene.now).await;
    finish(&*store, number, &taken, scene.now).await;
    let before = store.streams().await.expect("streams");
    assert_eq!(
        (before[0].keys, before[0].holding, before[0].records),
        (30, 20, 20)
    );
    assert_eq!(before[0].counts[StreamCounter::Handled], 10);
    let retention = PruneRequest {
        default: None,
        queues: Vec::new(),
        max: 1,
    };
    store.prune(retention, scene.now).await.expect("it prunes");
    assert_eq!(
        self::number(&schema, "SELECT count(*) FROM stream_tally").await,
        0
    );
    assert_eq!(store.streams().await.expect("streams"), before);
}

/// A take stops where its records are too much to carry; the others are there for the next one.
#[tokio::test]
async fn a_take_brings_no_more_than_can_be_carried() {
    let (store, _schema) = fresh_store().await;
    let mut scene = Scene::new(Arc::clone(&store));
    let keys = TAKE_BYTES_MAX / LARGE + 8;
    for n in 0..keys {
        let large = Record {
            payload: Payload::from_stored(vec![b' '; LARGE]),
            ..record(n, 60)
        };
        offer(&*store, vec![large], scene.now).await;
    }
    for (mut wanted, left) in [
        (KeySelection::Due(1_000), 7),
        (KeySelection::Keys((0..keys).map(key).collect()), 7),
    ] {
        let number = scene.draw();
        let first = take(&*store, number, wanted.clone(), scene.now).await.keys;
        assert_eq!(first.len(), keys - left);
        if let KeySelection::Keys(names) = &mut wanted {
            names.retain(|name| !first.iter().any(|stored| stored.key == *name));
        }
        let rest = take(&*store, scene.draw(), wanted, scene.now).await.keys;
        assert_eq!(rest.len(), left);
        scene.pass(LEASE.plus(backstop_core::Span::secs(1)));
    }
}

/// What is decided about one key twice in a call counts in its order.
#[tokio::test]
async fn two_decisions_about_a_key_are_taken_in_one_after_the_other() {
    let (store, _schema) = fresh_store().await;
    let mut scene = Scene::new(Arc::clone(&store));
    offer(&*store, vec![record(1, 60), record(2, 60)], scene.now).await;
    let number = scene.draw();
    let taken = take(&*store, number, KeySelection::Due(9), scene.now).await;
    let mut advances = Vec::new();
    for turn in [1, 2, 3] {
        for stored in &taken.keys {
            let then = if turn == 3 {
                KeyLeaseAction::Release(None)
            } else {
                KeyLeaseAction::Keep(scene.now.after(LEASE))
            };
            let mut advance = KeyAdvance {
                turn,
                ..done(number, stored, then)
            };
            advance.change.watermark = Some(i64::from(turn) * 60);
            advances.push(advance);
        }
    }
    assert_eq!(
        store.advance(advances, scene.now).await.expect("answers"),
        [AdvanceOutcome::Applied; 6]
    );
    let found = store
        .stream_key(stream(), key(2))
        .await
        .expect("an answer")
        .expect("it is known");
    assert_eq!((found.watermark, found.count), (Some(180), 0));
}

/// A row whose name is none costs itself: nobody else waits for it.
#[tokio::test]
async fn a_damaged_key_hides_no_other() {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(Arc::clone(&store));
    offer(&*store, (0..3).map(|n| record(n, 60)).collect(), scene.now).await;
    let damage = format!(
        "UPDATE {schema}.stream_key SET key = key || repeat('k', 600) WHERE key = '{key}';
         UPDATE {schema}.stream_record SET key = key || repeat('k', 600) WHERE key = '{key}'",
        key = key(1)
    );
    user()
        .await
        .batch_execute(&damage)
        .await
        .expect("an owner may do so");
    let query = ListKeysRequest {
        stream: stream(),
        after: None,
        filter: KeyFilter::All,
        limit: 9,
    };
    let listed = store.stream_keys(query, scene.now).await.expect("keys");
    assert_eq!(
        listed
            .iter()
            .map(|found| found.key.clone())
            .collect::<Vec<_>>(),
        [key(0), key(2)]
    );
    let taken = take(&*store, scene.draw(), KeySelection::Due(9), scene.now).await;
    assert_eq!(taken.keys.len(), 2);
}
