//! A key that survives crashes: its worker may die between any two steps, and its records are
//! brought again.

use super::super::call::{HandlerCall, KeyStep};
use super::*;
use crate::payload::Payload;
use crate::time::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(super) const STEP: i64 = 60;

/// The minimal state that a store keeps of a key.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) watermark: Option<i64>,
    pub(super) standing: Vec<u8>,
    pub(super) arrived: u64,
    pub(super) records: BTreeMap<i64, StoredRecord>,
    pub(super) counts: StreamCounts,
    /// The number of records that one load brings.
    pub(super) window: usize,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            watermark: None,
            standing: Vec::new(),
            arrived: 0,
            records: BTreeMap::new(),
            counts: StreamCounts::default(),
            window: 256,
        }
    }
}

impl Kept {
    pub(super) fn offer(&mut self, record: &Record, now: Time) {
        if !self.records.contains_key(&record.position) {
            self.arrived += 1;
            let Record {
                position,
                step,
                tenant,
                payload,
                ..
            } = record.clone();
            let kept = StoredRecord {
                position,
                step,
                tenant,
                at: now,
                arrival: self.arrived,
                payload,
            };
            self.records.insert(position, kept);
        }
    }

    pub(super) fn load(&self) -> KeyWindow {
        KeyWindow::load(StoredKey {
            key: StreamKey::new("a").unwrap(),
            watermark: self.watermark,
            state: self.standing.clone(),
            arrived: self.arrived,
            records: self.records.values().take(self.window).cloned().collect(),
            count: self.records.len() as u64,
            highest: self.records.keys().max().copied(),
        })
        .unwrap()
    }

    pub(super) fn advance(&mut self, change: KeyChange) {
        assert!(
            change.watermark >= self.watermark,
            "the watermark never falls"
        );
        (self.watermark, self.standing) = (change.watermark, change.state);
        for position in change.drop {
            self.records.remove(&position);
        }
        for record in change.hold {
            self.records
                .entry(record.position)
                .or_insert(record)
                .arrival = 0;
        }
        self.counts.add(&change.counts);
    }
}

pub(super) fn record(slot: i64) -> Record {
    let key = StreamKey::new("a").unwrap();
    Record {
        key,
        position: slot * STEP,
        step: STEP,
        tenant: None,
        payload: Payload::default(),
    }
}

/// How a worker gets a record: directly from its producer, or through the store.
#[derive(Clone, Copy, Debug)]
enum Way {
    InHand,
    Offered,
}

/// Works on the key and writes after each call. Dies after `crash_after` of its calls and writes,
/// before the last one is written. Records in memory that were not written are brought again.
fn work(
    kept: &mut Kept,
    in_hand: &[Record],
    now: Time,
    crash_after: &mut u32,
    calls: &mut Vec<HandlerCall>,
) -> bool {
    let rules = usual();
    let mut window = kept.load();
    window.arrive(in_hand.iter().cloned(), now);
    while let Some(step) = window.next(&rules, now) {
        let KeyStep::Call(call) = step else { continue };
        calls.push(call);
        window.complete(call, now);
        if *crash_after == 0 {
            return false;
        }
        *crash_after -= 1;
        kept.advance(window.take_change());
    }
    if *crash_after == 0 {
        return false;
    }
    *crash_after -= 1;
    kept.advance(window.take_change());
    true
}

proptest! {
    #[test]
    fn a_crash_repeats_the_call_in_flight_and_nothing_else(
        slots in prop::collection::vec((0_i64..15, prop_oneof![Just(Way::InHand), Just(Way::Offered)], 0_i64..70), 1..25),
        crashes in prop::collection::vec(0_u32..4, 0..20),
    ) {
        let (mut kept, mut now, mut calls) = (Kept::default(), Time::default(), Vec::new());
        let mut crashes = crashes.into_iter();
        let run = |kept: &mut Kept, in_hand: &[Record], now: Time, calls: &mut Vec<HandlerCall>, crashes: &mut dyn Iterator<Item = u32>| {
            loop {
                let mut left = crashes.next().unwrap_or(u32::MAX);
                if work(kept, in_hand, now, &mut left, calls) {
                    break;
                }
            }
        };
        for (slot, way, after) in slots {
            now = now.after(Span::secs(after));
            let record = record(slot);
            match way {
                Way::InHand => run(&mut kept, &[record], now, &mut calls, &mut crashes),
                Way::Offered => {
                    kept.offer(&record, now);
                    run(&mut kept, &[], now, &mut calls, &mut crashes);
                }
            }
        }
        for _ in 0..20 {
            now = now.after(Span::secs(61));
            run(&mut kept, &[], now, &mut calls, &mut crashes);
        }
        // The call in flight is repeated at once: unchanged, or as the record that has arrived for
        // it meanwhile.
        calls.dedup_by_key(|call| call.position());
        let positions: Vec<i64> = calls.iter().map(|call| call.position()).collect();
        prop_assert!(positions.is_sorted_by(|one, next| one < next), "{calls:?}");
        prop_assert!(positions.windows(2).all(|pair| pair[1] - pair[0] == STEP), "{calls:?}");
        prop_assert!(kept.records.is_empty());
        prop_assert_eq!(kept.counts.held(), 0);
        prop_assert_eq!(kept.counts[StreamCounter::Handled] + kept.counts[StreamCounter::Misses], positions.len() as u64);
    }
}

#[test]
fn records_that_were_not_loaded_are_counted_and_drained_in_turn() {
    let rules = rules(|rules| rules.max_held = 3);
    let records: Vec<StoredRecord> = (2..5)
        .map(|slot| {
            let Record {
                position,
                step,
                tenant,
                payload,
                ..
            } = record(slot);
            StoredRecord {
                position,
                step,
                tenant,
                at: Time::default(),
                arrival: slot.cast_unsigned(),
                payload,
            }
        })
        .collect();
    let stored = StoredKey {
        key: StreamKey::new("a").unwrap(),
        watermark: Some(0),
        state: Vec::new(),
        arrived: 10,
        records,
        count: 7,
        highest: Some(8 * STEP),
    };
    let mut window = KeyWindow::load(stored).unwrap();
    let mut told = Vec::new();
    while let Some(step) = window.next(&rules, Time::default()) {
        if let KeyStep::Call(call) = step {
            window.complete(call, Time::default());
        }
        told.push(step);
    }
    assert!(
        told.contains(&KeyStep::Event(KeyEvent::Overflow { position: 2 * STEP })),
        "{told:?}"
    );
    assert_eq!(
        window.state().drain_to,
        Some(8 * STEP),
        "also for those that were not loaded"
    );
    assert_eq!(
        window.wake(&rules, Time::default()),
        Some(Time::default()),
        "there is more to do at once"
    );
    assert_eq!(
        (
            window.counts()[StreamCounter::Added],
            window.counts().held()
        ),
        (7, 4)
    );
}
