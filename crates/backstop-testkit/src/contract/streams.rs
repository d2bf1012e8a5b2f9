//! Ordered streams: the held records, the leases of keys, and when keys are due.

use crate::given::{LEASE, Scene, WORKER, at};
use backstop_core::limits::{
    DUE_KEYS_MAX, KEY_RECORDS_MAX, KEY_STATE_BYTES_MAX, OFFER_MAX, PAGE_BYTES_MAX,
    PAYLOAD_BYTES_MAX, POSITION_MAX, STREAM_KEYS_MAX, WINDOW_RECORDS_MAX,
};
use backstop_core::port::KeyLeaseHolder;
use backstop_core::port::{
    AdvanceOutcome, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeySelection, KeyStatus,
    ListKeysRequest, OfferOutcome, Store, StoreError, StreamStatus, TakeRequest, TakeResult,
};
use backstop_core::stream::{
    KeyChange, Record, StoredKey, StoredRecord, StreamCounter, StreamCounts,
};
use backstop_core::{LeaseNumber, Payload, Span, StreamKey, StreamName, Time, WorkerName};
use std::sync::Arc;

fn stream() -> StreamName {
    StreamName::new("uptime").expect("a name")
}

fn key(text: &str) -> StreamKey {
    StreamKey::new(text).expect("a key")
}

fn record(key: &str, position: i64) -> Record {
    Record {
        key: self::key(key),
        position,
        step: 60,
        tenant: None,
        payload: Payload::from_stored(format!("\"{key}/{position}\"").into_bytes()),
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).expect("limits are small")
}

fn kept(position: i64, at: Time, arrival: u64, key: &str) -> StoredRecord {
    let Record {
        step,
        tenant,
        payload,
        ..
    } = record(key, position);
    StoredRecord {
        position,
        step,
        tenant,
        at,
        arrival,
        payload,
    }
}

/// A scene with methods for streams.
struct Waters(Scene);

impl Waters {
    fn new(store: Arc<dyn Store>) -> Self {
        Self(Scene::new(store))
    }

    async fn offer(&self, records: Vec<Record>) -> Vec<OfferOutcome> {
        self.0
            .store
            .offer(stream(), records, self.0.now)
            .await
            .expect("the store answers")
    }

    async fn hold(&self, key: &str, positions: &[i64]) {
        let records: Vec<_> = positions
            .iter()
            .map(|position| record(key, *position))
            .collect();
        let expected = vec![OfferOutcome::Held; records.len()];
        assert_eq!(self.offer(records).await, expected);
    }

    fn take_of(&mut self, wanted: KeySelection) -> TakeRequest {
        let worker = WorkerName::new(WORKER);
        TakeRequest {
            stream: stream(),
            number: self.0.draw(),
            worker,
            until: self.0.now.after(LEASE),
            wanted,
        }
    }

    async fn take_as(&self, take: &TakeRequest) -> TakeResult {
        let mut taken = self
            .0
            .store
            .take(take.clone(), self.0.now)
            .await
            .expect("the store answers");
        taken.keys.sort_by(|one, other| one.key.cmp(&other.key));
        taken
    }

    /// Takes a key that must be available.
    async fn take(&mut self, key: &str) -> Hand {
        let take = self.take_of(KeySelection::Keys(vec![self::key(key)]));
        let stored = self
            .take_as(&take)
            .await
            .keys
            .pop()
            .expect("the key is to be had");
        Hand {
            number: take.number,
            stored,
            turn: 0,
        }
    }

    /// The names of the due keys, and when the next key is due.
    async fn due(&mut self, max: usize) -> (Vec<String>, Option<Time>) {
        let take = self.take_of(KeySelection::Due(max));
        let taken = self.take_as(&take).await;
        (
            taken
                .keys
                .iter()
                .map(|stored| stored.key.to_string())
                .collect(),
            taken.next_due,
        )
    }

    async fn advance(&self, advance: KeyAdvance) -> AdvanceOutcome {
        self.0
            .store
            .advance(vec![advance], self.0.now)
            .await
            .expect("the store answers")
            .remove(0)
    }

    async fn look(&self, key: &str) -> Option<StoredKey> {
        self.0
            .store
            .stream_key(stream(), self::key(key))
            .await
            .expect("the store answers")
    }

    async fn positions(&self, key: &str) -> Vec<i64> {
        let found = self.look(key).await;
        found.map_or(Vec::new(), |stored| {
            stored
                .records
                .iter()
                .map(|record| record.position)
                .collect()
        })
    }

    async fn streams(&self) -> Vec<StreamStatus> {
        self.0.store.streams().await.expect("the store answers")
    }

    async fn keys(&self, after: Option<&str>, which: KeyFilter, limit: usize) -> Vec<KeyStatus> {
        let query = ListKeysRequest {
            stream: stream(),
            after: after.map(key),
            filter: which,
            limit,
        };
        self.0
            .store
            .stream_keys(query, self.0.now)
            .await
            .expect("the store answers")
    }
}

/// A key that was taken, with its lease number.
struct Hand {
    number: LeaseNumber,
    stored: StoredKey,
    turn: u32,
}

impl Hand {
    fn lease(&self) -> KeyLease {
        KeyLease {
            stream: stream(),
            key: self.stored.key.clone(),
            number: self.number,
        }
    }

    /// The next advance: the watermark moves to `watermark`, and the records in `drop` are removed.
    fn next(&mut self, watermark: i64, drop: &[i64], then: KeyLeaseAction) -> KeyAdvance {
        self.turn += 1;
        let mut counts = StreamCounts::default();
        counts[StreamCounter::Handled] = 1;
        let change = KeyChange {
            watermark: Some(watermark),
            state: format!("{{\"step\":{watermark}}}").into_bytes(),
            hold: Vec::new(),
            drop: drop.to_vec(),
            counts,
        };
        KeyAdvance {
            lease: self.lease(),
            turn: self.turn,
            seen: self.stored.arrived,
            change,
            lease_action: then,
        }
    }
}

/// Of two records at one position the first stays, with all its fields.
pub async fn offer_twice_is_once(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[120]).await;
    let other = Record {
        payload: Payload::from_stored(b"2".to_vec()),
        ..record("a", 120)
    };
    let both = vec![other.clone(), record("a", 180), record("a", 180)];
    waters.0.pass(Span::secs(1));
    assert_eq!(
        waters.offer(both).await,
        [
            OfferOutcome::Duplicate,
            OfferOutcome::Held,
            OfferOutcome::Duplicate
        ]
    );
    let found = waters.look("a").await.expect("the key is known");
    assert_eq!(
        found.records,
        [kept(120, at(0), 1, "a"), kept(180, at(1), 2, "a")]
    );
    assert_eq!(
        (found.arrived, found.count, found.highest, found.watermark),
        (2, 2, Some(180), None)
    );
}

/// Held records come in position order, whatever the order of their arrival.
pub async fn held_records_come_in_position_order(store: Arc<dyn Store>) {
    let waters = Waters::new(store);
    let far = [
        0,
        POSITION_MAX,
        -POSITION_MAX,
        1,
        -1,
        POSITION_MAX - 1,
        10,
        9,
        100,
    ];
    waters.hold("a", &far).await;
    let mut sorted = far.to_vec();
    sorted.sort_unstable();
    assert_eq!(waters.positions("a").await, sorted);
}

/// A record keeps its step, tenant, time and the bytes of its payload.
pub async fn a_record_comes_back_as_it_went_in(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let odd = Record {
        key: key("ключ 🙂 \"'\\{}:"),
        position: -5,
        step: POSITION_MAX,
        tenant: Some("o'rg \u{1F642}".into()),
        payload: Payload::from_stored(b" {\"a\": \"\\u0000\xc3\xa9\"}\n".to_vec()),
    };
    assert_eq!(waters.offer(vec![odd.clone()]).await, [OfferOutcome::Held]);
    let hand = waters.take(odd.key.as_str()).await;
    let Record {
        position,
        step,
        tenant,
        payload,
        ..
    } = odd;
    let expected = StoredRecord {
        position,
        step,
        tenant,
        at: waters.0.now,
        arrival: 1,
        payload,
    };
    assert_eq!(hand.stored.records, [expected]);
}

/// Of 64 concurrent takes of a key, one gets it.
pub async fn take_leases_a_key_to_one_worker(store: Arc<dyn Store>) {
    let waters = Waters::new(store.clone());
    waters.hold("a", &[1]).await;
    let takers = (0..64).map(|worker| {
        let mut apart = Waters(waters.0.apart(worker));
        tokio::spawn(async move {
            let wanted = if worker % 2 == 0 {
                KeySelection::Due(1)
            } else {
                KeySelection::Keys(vec![key("a")])
            };
            let take = apart.take_of(wanted);
            apart.take_as(&take).await.keys.len()
        })
    });
    let mut got = 0;
    for taker in takers.collect::<Vec<_>>() {
        got += taker.await.expect("no task panics");
    }
    assert_eq!(got, 1);
}

/// A worker that lost the answer of a take repeats it.
pub async fn a_repeated_take_returns_the_same_keys(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[1]).await;
    waters.hold("b", &[1]).await;
    let take = waters.take_of(KeySelection::Due(1));
    let first = waters.take_as(&take).await.keys;
    assert_eq!(first.len(), 1);
    assert_eq!(waters.take_as(&take).await.keys, first);
    let both = waters.take_of(KeySelection::Keys(vec![key("a"), key("b"), key("c")]));
    let names = |taken: TakeResult| {
        taken
            .keys
            .iter()
            .map(|stored| stored.key.to_string())
            .collect::<Vec<_>>()
    };
    let free = if first[0].key == key("a") { "b" } else { "a" };
    assert_eq!(names(waters.take_as(&both).await), [free, "c"]);
    assert_eq!(names(waters.take_as(&both).await), [free, "c"]);
}

/// A repeated take does not restore a key that was forgotten under its lease.
pub async fn a_repeated_take_brings_no_forgotten_key_back(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("b", &[1]).await;
    let take = waters.take_of(KeySelection::Keys(vec![key("a"), key("b"), key("c")]));
    let taken = waters.take_as(&take).await;
    assert_eq!(taken.keys.len(), 3);
    let lease = KeyLease {
        stream: take.stream.clone(),
        key: key("a"),
        number: take.number,
    };
    let clear = KeyAdvance {
        lease,
        turn: 1,
        seen: 0,
        change: KeyChange::default(),
        lease_action: KeyLeaseAction::Clear,
    };
    assert_eq!(waters.advance(clear).await, AdvanceOutcome::Applied);
    let names: Vec<String> = waters
        .take_as(&take)
        .await
        .keys
        .iter()
        .map(|stored| stored.key.to_string())
        .collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(waters.streams().await[0].keys, 2);
    assert_eq!(waters.look("a").await, None);
}

/// A key that the store does not know can be taken, and then has an empty state.
pub async fn an_unknown_key_can_be_taken(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let mut hand = waters.take("new").await;
    let expected = StoredKey {
        key: key("new"),
        watermark: None,
        state: Vec::new(),
        arrived: 0,
        records: Vec::new(),
        count: 0,
        highest: None,
    };
    assert_eq!(hand.stored, expected);
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Release(None)))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(
        waters.look("new").await.and_then(|stored| stored.watermark),
        Some(60)
    );
}

/// Watermark, state, records and counts change together.
pub async fn an_advance_changes_all_of_a_key(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[120, 180, 300]).await;
    let mut hand = waters.take("a").await;
    let mut advance = hand.next(180, &[120, 180], KeyLeaseAction::Release(None));
    advance.change.hold = vec![kept(240, at(0), 0, "a"), kept(300, at(7), 0, "a")];
    assert_eq!(waters.advance(advance).await, AdvanceOutcome::Applied);
    let found = waters.look("a").await.expect("the key is known");
    assert_eq!(
        found.records,
        [kept(240, at(0), 0, "a"), kept(300, at(0), 0, "a")],
        "what is held stays"
    );
    assert_eq!(
        (found.watermark, found.count, found.arrived),
        (Some(180), 2, 3)
    );
    assert_eq!(found.state, b"{\"step\":180}");
    assert_eq!(waters.streams().await[0].counts[StreamCounter::Handled], 1);
}

/// A repeated advance gets the same answer and is counted once, even after its lease has ended.
pub async fn a_repeated_advance_counts_once(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[60, 120]).await;
    let mut hand = waters.take("a").await;
    let until = waters.0.now.after(LEASE);
    let first = hand.next(60, &[60], KeyLeaseAction::Keep(until));
    let second = hand.next(120, &[120], KeyLeaseAction::Release(None));
    for advance in [first.clone(), first.clone(), second.clone(), second, first] {
        assert_eq!(waters.advance(advance).await, AdvanceOutcome::Applied);
    }
    assert_eq!(
        waters.look("a").await.and_then(|stored| stored.watermark),
        Some(120)
    );
    assert_eq!(waters.streams().await[0].counts[StreamCounter::Handled], 2);
    let third = hand.next(180, &[], KeyLeaseAction::Release(None));
    assert_eq!(
        waters.advance(third).await,
        AdvanceOutcome::Stale,
        "the lease has ended"
    );
}

/// A process that was paused for longer than its lease cannot change the key.
pub async fn a_stale_advance_changes_nothing(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[60]).await;
    let mut paused = waters.take("a").await;
    waters.0.pass(LEASE.plus(Span::millis(1)));
    let mut other = waters.take("a").await;
    let late = paused.next(60, &[60], KeyLeaseAction::Release(None));
    assert_eq!(waters.advance(late.clone()).await, AdvanceOutcome::Stale);
    assert_eq!(waters.positions("a").await, [60]);
    assert_eq!(
        waters
            .advance(other.next(60, &[60], KeyLeaseAction::Release(None)))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(waters.advance(late).await, AdvanceOutcome::Stale);
    assert_eq!(waters.streams().await[0].counts[StreamCounter::Handled], 1);
    let unknown = KeyLease {
        key: key("unknown"),
        ..other.lease()
    };
    let advance = KeyAdvance {
        lease: unknown,
        ..other.next(1, &[], KeyLeaseAction::Release(None))
    };
    assert_eq!(waters.advance(advance).await, AdvanceOutcome::Stale);
}

/// Only a seizure takes a key from its holder; the former holder's advances are then stale.
pub async fn a_key_is_seized_from_its_holder(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[60]).await;
    let mut former = waters.take("a").await;
    let plain = waters.take_of(KeySelection::Keys(vec![key("a")]));
    assert_eq!(waters.take_as(&plain).await.keys, []);
    let seizure = waters.take_of(KeySelection::Seized(vec![key("a")]));
    assert_eq!(waters.take_as(&seizure).await.keys.len(), 1);
    assert_eq!(
        waters
            .advance(former.next(60, &[60], KeyLeaseAction::Release(None)))
            .await,
        AdvanceOutcome::Stale
    );
    assert_eq!(waters.positions("a").await, [60]);
}

/// A lease that is not renewed expires; held records make the key due then, and not before.
pub async fn the_wake_up_survives_a_crash_and_cannot_double(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[120]).await;
    let mut hand = waters.take("a").await;
    let wake = waters.0.now.after(Span::secs(10));
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Release(Some(wake))))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(waters.due(9).await, (vec![], Some(wake)));
    waters.0.pass(Span::secs(10));
    let (due, next) = waters.due(9).await;
    assert_eq!(due, ["a"]);
    let end = waters.0.now.after(LEASE);
    assert_eq!(next, Some(end), "whoever has it may die");
    assert_eq!(waters.due(9).await, (vec![], Some(end)));
    waters.0.pass(LEASE.plus(Span::micros(1)));
    assert_eq!(waters.due(9).await.0, ["a"]);
}

/// A record that arrives between take and advance makes the key due at once.
pub async fn a_record_offered_while_its_key_is_advanced_is_never_stranded(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let mut hand = waters.take("a").await;
    waters.hold("a", &[120]).await;
    let later = waters.0.now.after(Span::hours(1));
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Release(Some(later))))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(waters.due(9).await.0, ["a"]);
}

/// This also holds if the worker never returns, or keeps the key for another advance.
pub async fn a_record_offered_under_a_lease_is_due_when_it_ends(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let mut hand = waters.take("a").await;
    waters.hold("a", &[120]).await;
    assert_eq!(
        waters.due(9).await,
        (vec![], Some(waters.0.now.after(LEASE)))
    );
    waters.0.pass(Span::secs(10));
    let until = waters.0.now.after(LEASE);
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Keep(until)))
            .await,
        AdvanceOutcome::Applied
    );
    waters.0.pass(LEASE);
    assert_eq!(
        waters.due(9).await,
        (vec![], Some(until)),
        "not expired yet"
    );
    waters.0.pass(Span::micros(1));
    assert_eq!(waters.due(9).await.0, ["a"]);
}

/// A key without records is never due, whatever becomes of its holder.
pub async fn a_key_without_records_is_never_due(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let mut hand = waters.take("a").await;
    assert_eq!(waters.due(9).await, (vec![], None));
    let until = waters.0.now.after(LEASE);
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Keep(until)))
            .await,
        AdvanceOutcome::Applied
    );
    waters.0.pass(Span::hours(1));
    assert_eq!(waters.due(9).await, (vec![], None));
    let mut again = waters.take("a").await;
    assert_eq!(again.stored.watermark, Some(60));
    assert_eq!(
        waters
            .advance(again.next(120, &[], KeyLeaseAction::Release(None)))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(waters.due(9).await, (vec![], None));
}

/// A take gets at most `max` keys; the others stay due.
pub async fn the_longest_due_are_taken_first(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    for name in ["c", "a", "b"] {
        waters.hold(name, &[1]).await;
        waters.0.pass(Span::secs(1));
    }
    let (due, next) = waters.due(2).await;
    assert_eq!(due, ["a", "c"]);
    assert_eq!(next, Some(at(2)), "one is left");
    assert_eq!(waters.due(2).await.0, ["b"]);
}

/// An arriving record makes a key due earlier, never later.
pub async fn an_arrival_ends_a_wait(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[120]).await;
    let mut hand = waters.take("a").await;
    let wake = waters.0.now.after(Span::secs(60));
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Release(Some(wake))))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(waters.due(1).await, (vec![], Some(wake)));
    assert_eq!(
        waters.offer(vec![record("a", 120)]).await,
        [OfferOutcome::Duplicate]
    );
    assert_eq!(
        waters.due(1).await,
        (vec![], Some(wake)),
        "what is there already changes nothing"
    );
    waters.hold("a", &[180]).await;
    assert_eq!(waters.due(1).await.0, ["a"]);
}

/// A renewal in time extends the lease of a key; a worker that lost the key is told.
pub async fn keep_extends_and_reports_lost(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    waters.hold("a", &[1]).await;
    let hand = waters.take("a").await;
    waters.0.pass(Span::secs(20));
    let unknown = KeyLease {
        key: key("b"),
        ..hand.lease()
    };
    let until = waters.0.now.after(LEASE);
    let keep = |waters: &Waters, until| {
        let (store, now, leases) = (
            waters.0.store.clone(),
            waters.0.now,
            vec![hand.lease(), unknown.clone()],
        );
        async move {
            store
                .keep(leases, until, now)
                .await
                .expect("the store answers")
        }
    };
    assert_eq!(keep(&waters, until).await, std::slice::from_ref(&unknown));
    waters.0.pass(Span::secs(20));
    assert_eq!(
        waters.due(9).await,
        (vec![], Some(until)),
        "still under the lease"
    );
    waters.0.pass(LEASE);
    assert_eq!(waters.due(9).await.0, ["a"]);
    let until = waters.0.now.after(LEASE);
    assert_eq!(keep(&waters, until).await, [hand.lease(), unknown.clone()]);
}

/// A clear removes all records, seen or not. Nothing is left of the key, unless the caller has
/// something to remember.
pub async fn clear_forgets_a_key(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    for (name, standing) in [("gone", &b""[..]), ("disabled", b"{\"disabled\":true}")] {
        waters.hold(name, &[60, 120]).await;
        let mut hand = waters.take(name).await;
        waters.hold(name, &[180]).await;
        let mut advance = hand.next(0, &[], KeyLeaseAction::Clear);
        (advance.change.watermark, advance.change.state) = (None, standing.to_vec());
        assert_eq!(
            waters.advance(advance.clone()).await,
            AdvanceOutcome::Applied
        );
        assert_eq!(waters.advance(advance).await, AdvanceOutcome::Applied);
        assert_eq!(waters.positions(name).await, Vec::<i64>::new());
    }
    assert_eq!(waters.look("gone").await, None);
    assert_eq!(
        waters.look("disabled").await.map(|stored| stored.state),
        Some(b"{\"disabled\":true}".to_vec())
    );
    assert_eq!(waters.due(9).await, (vec![], None));
    waters.hold("gone", &[60]).await;
    assert_eq!(waters.due(9).await.0, ["gone"]);
}

/// Many processes offer records of one key: each position is held once, and none is lost.
pub async fn many_offer_one_key_at_once(store: Arc<dyn Store>) {
    let waters = Waters::new(store.clone());
    let offers = (0..16).map(|worker: u32| {
        let apart = Waters(waters.0.apart(worker));
        tokio::spawn(async move {
            let positions = (0..50).map(|n| i64::from(n * 16 + worker) / 2);
            apart
                .offer(positions.map(|position| record("a", position)).collect())
                .await
        })
    });
    let mut held = 0;
    for offer in offers.collect::<Vec<_>>() {
        let answers = offer.await.expect("no task panics");
        held += answers
            .iter()
            .filter(|answer| **answer == OfferOutcome::Held)
            .count();
    }
    let found = waters.look("a").await.expect("the key is known");
    assert_eq!(
        (held, found.count, found.arrived, found.highest),
        (400, 400, 400, Some(399))
    );
    let mut arrivals: Vec<u64> = found.records.iter().map(|record| record.arrival).collect();
    arrivals.sort_unstable();
    arrivals.dedup();
    assert_eq!(
        arrivals.len(),
        WINDOW_RECORDS_MAX,
        "no two have the same number"
    );
}

/// A take returns the records at the lowest positions, and only counts the others.
pub async fn a_window_is_bounded(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let window = whole(WINDOW_RECORDS_MAX);
    let count = window + 50;
    let positions: Vec<i64> = (0..count).rev().collect();
    waters.hold("a", &positions).await;
    let mut hand = waters.take("a").await;
    let found: Vec<i64> = hand
        .stored
        .records
        .iter()
        .map(|record| record.position)
        .collect();
    assert_eq!(found, (0..window).collect::<Vec<_>>());
    assert_eq!(
        (hand.stored.count, hand.stored.highest),
        (count.cast_unsigned(), Some(count - 1))
    );
    assert_eq!(
        waters
            .advance(hand.next(255, &found, KeyLeaseAction::Release(None)))
            .await,
        AdvanceOutcome::Applied
    );
    assert_eq!(
        waters.positions("a").await,
        (256..count).collect::<Vec<_>>()
    );
}

/// A lookup of a key with large records stops at its limit of bytes and counts the others. A take
/// returns them all.
pub async fn a_look_at_a_key_ends_at_its_bytes(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    for position in 0..8 {
        let large = Record {
            payload: Payload::from_stored(vec![b'1'; PAYLOAD_BYTES_MAX]),
            ..record("a", position)
        };
        assert_eq!(waters.offer(vec![large]).await, [OfferOutcome::Held]);
    }
    let looked = waters.look("a").await.expect("the key is known");
    assert_eq!(looked.bytes(), PAGE_BYTES_MAX);
    let shown: Vec<i64> = looked
        .records
        .iter()
        .map(|record| record.position)
        .collect();
    assert_eq!(shown, [0, 1, 2, 3]);
    assert_eq!(
        (looked.count, looked.more(), looked.highest),
        (8, 4, Some(7))
    );
    assert_eq!(waters.take("a").await.stored.records.len(), 8);
}

/// A key that no worker takes holds at most its bound of records; other keys are not affected.
pub async fn a_full_key_refuses_records(store: Arc<dyn Store>) {
    let waters = Waters::new(store);
    for from in (0..KEY_RECORDS_MAX.cast_signed()).step_by(OFFER_MAX) {
        let records: Vec<_> = (from..from + whole(OFFER_MAX))
            .map(|position| record("a", position))
            .collect();
        assert!(
            waters
                .offer(records)
                .await
                .iter()
                .all(|answer| *answer == OfferOutcome::Held)
        );
    }
    let next = vec![record("a", -1), record("b", 1), record("a", 0)];
    assert_eq!(
        waters.offer(next).await,
        [
            OfferOutcome::Full,
            OfferOutcome::Held,
            OfferOutcome::Duplicate
        ]
    );
    let found = waters.look("a").await.expect("the key is known");
    assert_eq!(
        (found.count, found.arrived),
        (KEY_RECORDS_MAX, KEY_RECORDS_MAX)
    );
}

/// One call may advance several keys; each has its own answer, in the order given.
pub async fn advances_of_one_call_stand_alone(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    let names = ["a", "b", "c"];
    let take = waters.take_of(KeySelection::Keys(names.map(key).to_vec()));
    let mut hands: Vec<Hand> = waters
        .take_as(&take)
        .await
        .keys
        .into_iter()
        .map(|stored| Hand {
            number: take.number,
            stored,
            turn: 0,
        })
        .collect();
    let mut advances: Vec<KeyAdvance> = hands
        .iter_mut()
        .map(|hand| hand.next(60, &[], KeyLeaseAction::Release(None)))
        .collect();
    advances[1].lease.number = waters.0.draw();
    let answers = waters
        .0
        .store
        .advance(advances, waters.0.now)
        .await
        .expect("the store answers");
    assert_eq!(
        answers,
        [
            AdvanceOutcome::Applied,
            AdvanceOutcome::Stale,
            AdvanceOutcome::Applied
        ]
    );
    let status = waters.streams().await.remove(0);
    assert_eq!((status.keys, status.counts[StreamCounter::Handled]), (3, 2));
}

/// The same key name in two streams is two keys.
pub async fn streams_are_apart(store: Arc<dyn Store>) {
    let waters = Waters::new(store.clone());
    waters.hold("a", &[1]).await;
    let other = StreamName::new("other").expect("a name");
    let offered = store
        .offer(
            other.clone(),
            vec![record("a", 1), record("a", 2)],
            waters.0.now,
        )
        .await;
    assert_eq!(
        offered.expect("the store answers"),
        [OfferOutcome::Held, OfferOutcome::Held]
    );
    let seen: Vec<(String, u64)> = waters
        .streams()
        .await
        .iter()
        .map(|status| (status.name.to_string(), status.records))
        .collect();
    assert_eq!(seen, [("other".to_owned(), 2), ("uptime".to_owned(), 1)]);
    assert_eq!(waters.positions("a").await, [1]);
}

/// Operators see streams and their keys.
pub async fn streams_and_keys_are_listed(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store);
    assert_eq!(waters.streams().await, []);
    let mut hand = waters.take("b").await;
    assert_eq!(
        waters
            .advance(hand.next(60, &[], KeyLeaseAction::Release(None)))
            .await,
        AdvanceOutcome::Applied
    );
    waters.hold("Z", &[180, 120]).await;
    waters.0.pass(Span::secs(1));
    waters.hold("é", &[180]).await;
    let held = waters.take("é").await;
    let mut counts = StreamCounts::default();
    counts[StreamCounter::Handled] = 1;
    let expected = StreamStatus {
        name: stream(),
        keys: 3,
        holding: 2,
        records: 3,
        oldest: Some(at(0)),
        counts,
    };
    assert_eq!(waters.streams().await, [expected]);
    let bare = |name: &str| KeyStatus {
        key: key(name),
        watermark: None,
        state: Vec::new(),
        records: 0,
        oldest: None,
        due: None,
        holder: None,
    };
    let holder = KeyLeaseHolder {
        worker: WorkerName::new(WORKER),
        until: waters.0.now.after(LEASE),
    };
    let all = [
        KeyStatus {
            records: 2,
            oldest: Some(at(0)),
            due: Some(at(0)),
            ..bare("Z")
        },
        KeyStatus {
            watermark: Some(60),
            state: b"{\"step\":60}".to_vec(),
            ..bare("b")
        },
        KeyStatus {
            records: 1,
            oldest: Some(at(1)),
            holder: Some(holder),
            ..bare("é")
        },
    ];
    assert_eq!(waters.keys(None, KeyFilter::All, 9).await, all);
    assert_eq!(waters.keys(Some("Z"), KeyFilter::All, 1).await, all[1..2]);
    assert_eq!(
        waters.keys(None, KeyFilter::Holding, 9).await,
        [all[0].clone(), all[2].clone()]
    );
    assert_eq!(held.stored.records.len(), 1);
    assert_eq!(waters.look("nobody").await, None);
}

/// A worker that waits for hints gets one when a record arrives.
pub async fn a_hint_arrives_after_an_offer(store: Arc<dyn Store>) {
    let waters = Waters::new(store.clone());
    let mut hints = store.watch();
    waters.hold("a", &[1]).await;
    let hint = tokio::time::timeout(std::time::Duration::from_secs(10), hints.next()).await;
    assert!(hint.is_ok(), "no hint came");
}

/// Calls above the bounds are refused completely.
pub async fn oversized_calls_are_misuse(store: Arc<dyn Store>) {
    let mut waters = Waters::new(store.clone());
    let now = waters.0.now;
    let misuse = |error: StoreError| assert!(matches!(error, StoreError::Misuse { .. }), "{error}");
    let many: Vec<Record> = (0..=whole(OFFER_MAX))
        .map(|position| record("a", position))
        .collect();
    misuse(
        store
            .offer(stream(), many, now)
            .await
            .expect_err("it is over a limit"),
    );
    let large = Record {
        payload: Payload::from_stored(vec![b' '; 1 << 20]),
        ..record("a", 1)
    };
    misuse(
        store
            .offer(stream(), vec![large; 9], now)
            .await
            .expect_err("it is over a limit"),
    );
    for bad in [
        Record {
            position: POSITION_MAX + 1,
            ..record("a", 1)
        },
        Record {
            step: 0,
            ..record("a", 1)
        },
        Record {
            tenant: Some("x".repeat(257).into()),
            ..record("a", 1)
        },
    ] {
        misuse(
            store
                .offer(stream(), vec![bad], now)
                .await
                .expect_err("it is over a limit"),
        );
    }
    let names: Vec<StreamKey> = (0..=STREAM_KEYS_MAX).map(|n| key(&n.to_string())).collect();
    for wanted in [
        KeySelection::Keys(names.clone()),
        KeySelection::Seized(names),
        KeySelection::Due(DUE_KEYS_MAX + 1),
    ] {
        let take = waters.take_of(wanted);
        misuse(store.take(take, now).await.expect_err("it is over a limit"));
    }
    let mut hand = waters.take("b").await;
    misuse(
        store
            .keep(vec![hand.lease()], now, now)
            .await
            .expect_err("it is over a limit"),
    );
    misuse(
        store
            .advance(vec![hand.next(1, &[], KeyLeaseAction::Keep(now))], now)
            .await
            .expect_err("it is over a limit"),
    );
    let mut advance = hand.next(1, &[], KeyLeaseAction::Release(None));
    advance.change.state = vec![b' '; KEY_STATE_BYTES_MAX + 1];
    misuse(
        store
            .advance(vec![advance.clone()], now)
            .await
            .expect_err("it is over a limit"),
    );
    misuse(
        store
            .advance(vec![advance; STREAM_KEYS_MAX + 1], now)
            .await
            .expect_err("it is over a limit"),
    );
    assert_eq!(waters.positions("a").await, Vec::<i64>::new());
}
