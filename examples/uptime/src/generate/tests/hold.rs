//! A stream as simple as can be, to see that a world is fair: it waits 10, 20, 30, 60 and 60 s for
//! a gap to close, begins anew with every progress, and holds less than ten results.

use super::super::HELD_MAX;
use crate::wire::SubscriptionId;
use crate::world::Slot;
use std::collections::{BTreeMap, BTreeSet};

const STEPS_MS: [i64; 5] = [10_000, 20_000, 30_000, 60_000, 60_000];

#[derive(Default)]
pub(super) struct Hold {
    keys: BTreeMap<SubscriptionId, Key>,
    pub(super) missed: BTreeSet<Slot>,
    pub(super) handled: u64,
    pub(super) timeouts: u64,
    pub(super) overflows: u64,
}

struct Key {
    watermark: i64,
    step: i64,
    held: BTreeSet<i64>,
    since_ms: i64,
}

impl Hold {
    pub(super) fn offer(&mut self, now_ms: i64, slot: Slot, step: i64) {
        self.give_up(slot.key, now_ms);
        let Some(key) = self.keys.get_mut(&slot.key) else {
            let (watermark, held) = (slot.position, BTreeSet::new());
            self.keys.insert(
                slot.key,
                Key {
                    watermark,
                    step,
                    held,
                    since_ms: now_ms,
                },
            );
            self.handled += 1;
            return;
        };
        if slot.position <= key.watermark {
            return;
        }
        if key.held.is_empty() {
            key.since_ms = now_ms;
        }
        key.held.insert(slot.position);
        while key.held.remove(&(key.watermark + key.step)) {
            key.watermark += key.step;
            key.since_ms = now_ms;
            self.handled += 1;
        }
        if key.held.len() >= HELD_MAX {
            self.overflows += 1;
            self.drain(slot.key);
        }
    }

    /// Nothing more comes; what is held is given up.
    pub(super) fn run_out(&mut self) {
        for key in self.keys.keys().copied().collect::<Vec<_>>() {
            self.give_up(key, i64::MAX);
        }
    }

    fn give_up(&mut self, key: SubscriptionId, now_ms: i64) {
        let wait_ms: i64 = STEPS_MS.iter().sum();
        if self
            .keys
            .get(&key)
            .is_some_and(|it| !it.held.is_empty() && it.since_ms + wait_ms <= now_ms)
        {
            self.timeouts += 1;
            self.drain(key);
        }
    }

    fn drain(&mut self, of: SubscriptionId) {
        let key = self.keys.get_mut(&of).expect("it holds something");
        while let Some(next) = key.held.pop_first() {
            while key.watermark + key.step < next {
                key.watermark += key.step;
                self.missed.insert(Slot {
                    key: of,
                    position: key.watermark,
                });
            }
            key.watermark = next;
            self.handled += 1;
        }
    }
}
