//! Streams whose parts were removed or spoilt by hand, and work that stays bounded.

use crate::place::Place;
use backstop_core::limits::{KEY_RECORDS_MAX, OFFER_MAX, STREAM_KEYS_MAX, TAKE_BYTES_MAX};
use backstop_core::port::{
    AdvanceOutcome, FindingSeverity, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeySelection,
    ListKeysRequest, OfferOutcome, Store, StoreError, StreamStatus, StreamStore, TakeRequest,
    TakeResult,
};
use backstop_core::stream::{KeyChange, Record, StreamCounter, StreamCounts};
use backstop_core::{LeaseNumber, Payload, Span, StreamKey, StreamName, Time, WorkerName};
use backstop_testkit::given::{LEASE, START};
use backstop_testkit::servers::redis::{Append, Settings};
use backstop_testkit::servers::{self, Redis};
use std::time::{Duration, Instant};

const SHARDS: usize = 16;

fn stream() -> StreamName {
    StreamName::new("uptime").expect("a name")
}

fn key(text: &str) -> StreamKey {
    StreamKey::new(text).expect("a key")
}

fn record(key: &str, position: i64) -> Record {
    let payload = Payload::from_stored(format!("\"{key}/{position}\"").into_bytes());
    Record {
        key: self::key(key),
        position,
        step: 60,
        tenant: None,
        payload,
    }
}

async fn hold(store: &dyn Store, records: Vec<Record>) {
    let count = records.len();
    let answers = store
        .offer(stream(), records, START)
        .await
        .expect("the store answers");
    assert_eq!(answers, vec![OfferOutcome::Held; count]);
}

fn take_of(number: u64, wanted: KeySelection, now: Time) -> TakeRequest {
    let (number, worker) = (LeaseNumber::draw(number), WorkerName::new("worker"));
    TakeRequest {
        stream: stream(),
        number,
        worker,
        until: now.after(LEASE),
        wanted,
    }
}

async fn take(store: &dyn Store, number: u64, wanted: KeySelection) -> TakeResult {
    store
        .take(take_of(number, wanted, START), START)
        .await
        .expect("the store answers")
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

/// The first turn of a lease.
fn advance_of(number: u64, key: &StreamKey, then: KeyLeaseAction) -> KeyAdvance {
    let mut counts = StreamCounts::default();
    counts[StreamCounter::Handled] = 1;
    KeyAdvance {
        lease: KeyLease {
            stream: stream(),
            key: key.clone(),
            number: LeaseNumber::draw(number),
        },
        turn: 1,
        seen: 0,
        change: KeyChange {
            watermark: Some(60),
            counts,
            ..KeyChange::default()
        },
        lease_action: then,
    }
}

async fn release(store: &dyn Store, number: u64, name: &str, due: Option<Time>) {
    let advance = advance_of(number, &key(name), KeyLeaseAction::Release(due));
    assert_eq!(
        store.advance(vec![advance], START).await,
        Ok(vec![AdvanceOutcome::Applied])
    );
}

async fn status(store: &dyn Store) -> StreamStatus {
    store.streams().await.expect("the store answers").remove(0)
}

/// Removes a part of all shards.
fn delete(place: &Place<'_>, part: &str) {
    for shard in 0..SHARDS {
        place.server.cli(&[
            "del",
            &format!("{}:{{:uptime:{shard}}}:{part}", place.prefix()),
        ]);
    }
}

async fn agrees(place: &Place<'_>) -> bool {
    let examination = place.store.examine().await.expect("it is examined");
    examination
        .findings
        .iter()
        .all(|finding| finding.severity != FindingSeverity::Bad || !finding.what.contains("stream"))
}

/// Five keys: one that nobody has, one that waits, one that somebody has because it was due, one
/// whose records nobody waits for, and one without records.
async fn furnish(store: &dyn Store) {
    hold(store, vec![record("due", 1)]).await;
    let taken = take(store, 1, KeySelection::Due(9)).await;
    assert_eq!(names(&taken), ["due"]);
    hold(
        store,
        ["free", "waits", "halted"]
            .map(|name| record(name, 1))
            .to_vec(),
    )
    .await;
    hold(store, vec![record("free", 2)]).await;
    take(
        store,
        2,
        KeySelection::Keys(["waits", "halted", "none"].map(key).to_vec()),
    )
    .await;
    for (name, due) in [
        ("waits", Some(START.after(Span::hours(1)))),
        ("halted", None),
        ("none", None),
    ] {
        let mut advance = advance_of(2, &key(name), KeyLeaseAction::Release(due));
        advance.seen = 1;
        assert_eq!(
            store.advance(vec![advance], START).await,
            Ok(vec![AdvanceOutcome::Applied])
        );
    }
}

/// All that is to be seen of the furnished stream.
async fn seen(store: &dyn Store) -> String {
    let query = ListKeysRequest {
        stream: stream(),
        after: None,
        filter: KeyFilter::All,
        limit: 100,
    };
    let all = store
        .stream_keys(query.clone(), START)
        .await
        .expect("keys are listed");
    let query = ListKeysRequest {
        filter: KeyFilter::Holding,
        ..query
    };
    let holding = store
        .stream_keys(query, START)
        .await
        .expect("keys are listed");
    let mut keys = Vec::new();
    for status in &all {
        keys.push(
            store
                .stream_key(stream(), status.key.clone())
                .await
                .expect("a key"),
        );
    }
    let again = take(store, 1, KeySelection::Due(9)).await;
    format!(
        "{:#?}",
        (
            status(store).await,
            all,
            holding,
            keys,
            names(&again),
            again.next_due
        )
    )
}

#[tokio::test]
async fn every_index_of_a_stream_is_rebuilt_from_its_keys_and_records() {
    for part in ["names", "places", "ages", "holding"] {
        let place = Place::on(servers::redis()).await;
        furnish(&*place.store).await;
        let before = seen(&*place.store).await;
        assert!(agrees(&place).await, "before");
        delete(&place, part);
        assert!(!agrees(&place).await, "{part} is missing");
        place.store.migrate().await.expect("it repairs");
        assert!(agrees(&place).await, "{part} was rebuilt");
        assert_eq!(seen(&*place.store).await, before, "{part}");
    }
}

#[tokio::test]
async fn after_a_restart_what_is_due_and_who_has_it_is_rebuilt_without_being_asked_for() {
    let server = Redis::start(Settings {
        append: Append::Always,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    furnish(&*place.store).await;
    let before = seen(&*place.store).await;
    for part in ["due", "taken"] {
        delete(&place, part);
    }
    server.cli(&["del", &format!("{}:streams", place.prefix())]);
    server.restart();
    let deadline = Instant::now() + Duration::from_secs(30);
    while place
        .store
        .streams()
        .await
        .expect("the store answers")
        .is_empty()
        || seen(&*place.store).await != before
    {
        assert!(Instant::now() < deadline, "the stream was not repaired");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn records_whose_key_is_lost_are_due_and_those_whose_payload_is_lost_are_handed_out_without()
{
    let place = Place::on(servers::redis()).await;
    hold(&*place.store, vec![record("a", 1), record("a", 2)]).await;
    delete(&place, "heads");
    delete(&place, "payloads");
    assert!(!agrees(&place).await);
    place.store.migrate().await.expect("it repairs");
    assert!(agrees(&place).await);
    let now = place
        .store
        .time()
        .await
        .expect("the time")
        .after(Span::hours(1));
    let taken = place
        .store
        .take(take_of(1, KeySelection::Due(9), now), now)
        .await
        .expect("the store answers");
    assert_eq!((names(&taken), taken.keys[0].count), (vec!["a"], 2));
    assert!(
        taken.keys[0]
            .records
            .iter()
            .all(|record| record.payload.is_empty())
    );
}

#[tokio::test]
async fn places_without_a_record_go() {
    let place = Place::on(servers::redis()).await;
    hold(
        &*place.store,
        ["a", "b", "c"].map(|name| record(name, 1)).to_vec(),
    )
    .await;
    delete(&place, "records");
    place.store.migrate().await.expect("it repairs");
    assert!(agrees(&place).await);
    let status = status(&*place.store).await;
    assert_eq!(
        (status.keys, status.holding, status.records, status.oldest),
        (3, 0, 0, None)
    );
}

/// Overwrites the head of a key with bytes that are none.
fn spoil(place: &Place<'_>, key: &str, bytes: &str) {
    let spoilt = (0..SHARDS).filter(|shard| {
        let heads = format!("{}:{{:uptime:{shard}}}:heads", place.prefix());
        let is_here = place.server.cli(&["hexists", &heads, key]).trim() == "1";
        is_here && place.server.cli(&["hset", &heads, key, bytes]).trim() == "0"
    });
    assert_eq!(spoilt.count(), 1, "the key is in one shard");
}

#[tokio::test]
async fn a_damaged_key_keeps_nobody_from_the_others_and_is_for_who_seizes_it() {
    for garbage in ["", "garbage", &"x".repeat(200)] {
        let place = Place::on(servers::redis()).await;
        let store = &*place.store;
        hold(store, vec![record("bad", 1), record("good", 1)]).await;
        spoil(&place, "bad", garbage);
        let both = KeySelection::Keys(vec![key("bad"), key("good")]);
        assert_eq!(
            names(&take(store, 1, both.clone()).await),
            ["good"],
            "{garbage}"
        );
        release(store, 1, "good", None).await;
        let due = take(store, 2, KeySelection::Due(9)).await;
        assert_eq!(
            (names(&due), due.next_due),
            (vec!["good"], Some(START.after(LEASE))),
            "{garbage}"
        );
        let offered = store
            .offer(stream(), vec![record("bad", 2), record("good", 2)], START)
            .await;
        assert_eq!(
            offered,
            Ok(vec![OfferOutcome::Full, OfferOutcome::Held]),
            "{garbage}"
        );
        let looked = store.stream_key(stream(), key("bad")).await;
        assert!(
            matches!(looked, Err(StoreError::Corrupt { .. })),
            "{looked:?}"
        );
        assert_eq!(seen_names(store).await, ["bad", "good"], "{garbage}");
        let seized = take(store, 3, KeySelection::Seized(vec![key("bad")])).await;
        let positions: Vec<i64> = seized.keys[0]
            .records
            .iter()
            .map(|record| record.position)
            .collect();
        assert_eq!(
            (positions, seized.keys[0].watermark),
            (vec![1], None),
            "{garbage}"
        );
        let mut clear = advance_of(3, &key("bad"), KeyLeaseAction::Clear);
        clear.change.watermark = None;
        assert_eq!(
            store.advance(vec![clear], START).await,
            Ok(vec![AdvanceOutcome::Applied])
        );
        assert_eq!(seen_names(store).await, ["good"], "{garbage}");
        place.store.migrate().await.expect("it repairs");
        assert!(agrees(&place).await, "{garbage}");
    }
}

async fn seen_names(store: &dyn Store) -> Vec<String> {
    let query = ListKeysRequest {
        stream: stream(),
        after: None,
        filter: KeyFilter::All,
        limit: 9,
    };
    let keys = store
        .stream_keys(query, START)
        .await
        .expect("keys are listed");
    keys.into_iter()
        .map(|status| status.key.to_string())
        .collect()
}

#[tokio::test]
async fn a_repeated_take_gives_back_what_other_shards_have_free_by_then() {
    let place = Place::on(servers::redis()).await;
    let store = &*place.store;
    let all: Vec<String> = (0..40).map(|n| format!("key-{n}")).collect();
    let wanted = || KeySelection::Keys(all.iter().map(|name| key(name)).collect());
    hold(store, all.iter().map(|name| record(name, 1)).collect()).await;
    take(
        store,
        1,
        KeySelection::Keys(all[1..].iter().map(|name| key(name)).collect()),
    )
    .await;
    assert_eq!(names(&take(store, 2, wanted()).await), ["key-0"]);
    let wake = START.after(Span::hours(1));
    for name in &all[1..] {
        let mut advance = advance_of(1, &key(name), KeyLeaseAction::Release(Some(wake)));
        advance.seen = 1;
        assert_eq!(
            store.advance(vec![advance], START).await,
            Ok(vec![AdvanceOutcome::Applied])
        );
    }
    assert_eq!(
        names(&take(store, 2, wanted()).await),
        ["key-0"],
        "and no others"
    );
    let due = take(store, 3, KeySelection::Due(9)).await;
    assert_eq!(
        (due.keys.len(), due.next_due),
        (0, Some(START.after(LEASE)))
    );
    assert_eq!(
        take(store, 4, wanted()).await.keys.len(),
        39,
        "nobody has the others"
    );
    let repeated = store
        .advance(
            vec![advance_of(1, &key("key-1"), KeyLeaseAction::Clear)],
            START,
        )
        .await;
    assert_eq!(repeated, Ok(vec![AdvanceOutcome::Stale]));
}

#[tokio::test]
async fn large_records_are_handed_out_over_several_takes() {
    const LARGE: usize = 60;
    let server = Redis::start(Settings {
        append: Append::Off,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let store = &*place.store;
    let all: Vec<StreamKey> = (0..LARGE).map(|n| key(&format!("key-{n}"))).collect();
    for name in &all {
        let payload = Payload::from_stored(vec![b'1'; 1 << 20]);
        hold(
            store,
            vec![Record {
                payload,
                ..record(name.as_str(), 1)
            }],
        )
        .await;
    }
    let first = take(store, 1, KeySelection::Keys(all.clone()))
        .await
        .keys
        .len();
    assert!(
        (TAKE_BYTES_MAX >> 20..LARGE).contains(&first),
        "{first} at once"
    );
    let second = take(store, 2, KeySelection::Due(LARGE)).await;
    assert_eq!(second.keys.len(), LARGE - first);
    assert_eq!(take(store, 3, KeySelection::Keys(all)).await.keys.len(), 0);
}

#[tokio::test]
async fn no_script_keeps_the_server_for_long_with_100000_keys() {
    const MANY: usize = 100_000;
    let server = Redis::start(Settings {
        append: Append::Off,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let store = &*place.store;
    let all: Vec<StreamKey> = (0..MANY).map(|n| key(&format!("key-{n}"))).collect();
    server.cli(&["config", "set", "slowlog-log-slower-than", "500000"]);
    for (number, batch) in (0..).zip(all.chunks(STREAM_KEYS_MAX)) {
        assert_eq!(
            take(store, number, KeySelection::Keys(batch.to_vec()))
                .await
                .keys
                .len(),
            batch.len()
        );
        let advances = batch
            .iter()
            .map(|key| advance_of(number, key, KeyLeaseAction::Release(Some(START))));
        let answers = store
            .advance(advances.collect(), START)
            .await
            .expect("the store answers");
        assert!(
            answers
                .iter()
                .all(|answer| *answer == AdvanceOutcome::Applied)
        );
    }
    assert_eq!(
        take(store, 100, KeySelection::Due(1_000)).await.keys.len(),
        1_000
    );
    let positions: Vec<i64> = (0..KEY_RECORDS_MAX.cast_signed()).collect();
    for batch in positions.chunks(OFFER_MAX) {
        hold(
            store,
            batch
                .iter()
                .map(|position| record("full", *position))
                .collect(),
        )
        .await;
    }
    assert_eq!(
        take(store, 101, KeySelection::Keys(vec![key("full")]))
            .await
            .keys
            .len(),
        1
    );
    let clear = advance_of(101, &key("full"), KeyLeaseAction::Clear);
    assert_eq!(
        store.advance(vec![clear], START).await,
        Ok(vec![AdvanceOutcome::Applied])
    );
    let status = status(store).await;
    assert_eq!(
        (status.keys, status.records, status.oldest),
        (MANY as u64 + 1, 0, None)
    );
    assert_eq!(
        server.cli(&["slowlog", "len"]).trim(),
        "0",
        "{}",
        server.cli(&["slowlog", "get"])
    );
}
