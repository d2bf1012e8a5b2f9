//! What is known of one key, in the hands of whoever has its lease.

mod next;
mod offline;
mod outcome;

pub use offline::RememberedKey;
pub use outcome::{CallCompletion, FailedCallDecision, HandlerFailure, ResumeFrom};

use super::counts::{StreamCounter, StreamCounts};
use super::key_state::{InvalidKeyState, KeyState, OfflineRange};
use super::record::{HeldRecord, Record};
use super::stored::{KeyChange, StoredKey, StoredRecord};
use crate::name::StreamKey;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one key.
#[derive(Clone, Debug)]
pub struct KeyWindow {
    key: StreamKey,
    watermark: Option<i64>,
    state: KeyState,
    held: BTreeMap<i64, HeldRecord>,
    /// Held records that have only just arrived: they may still be handled without ever having
    /// waited.
    fresh: BTreeSet<i64>,
    /// What has not been looked at yet, the highest position first.
    arrivals: Vec<(i64, HeldRecord)>,
    /// Positions whose records are in the store.
    stored: BTreeSet<i64>,
    /// Records in the store above those that were loaded, the highest of them, and the highest that
    /// was loaded.
    beyond: u64,
    highest: Option<i64>,
    loaded_to: Option<i64>,
    /// Whether it knows only where the key once was: it goes on without the store, and was not in
    /// hand when that fell silent.
    lacks_lease: bool,
    /// Where the key once was: everything up to here was handled or passed.
    known_watermark: Option<i64>,
    /// The first record it met, if it knew of no watermark, and its step.
    from: Option<(i64, i64)>,
    /// What came after that and belongs before it.
    separate_ranges: Vec<OfflineRange>,
    counts: StreamCounts,
    /// Whether the wait has ended and what can be handled is: `drain = "scheduled"` handles nothing
    /// otherwise.
    is_wait_over: bool,
    /// Whether anything waited since the hold was last empty.
    has_held: bool,
}

impl KeyWindow {
    /// A key nobody has heard of.
    pub fn new(key: StreamKey) -> Self {
        Self {
            key,
            watermark: None,
            state: KeyState::default(),
            held: BTreeMap::new(),
            fresh: BTreeSet::new(),
            arrivals: Vec::new(),
            stored: BTreeSet::new(),
            beyond: 0,
            highest: None,
            loaded_to: None,
            lacks_lease: false,
            known_watermark: None,
            from: None,
            separate_ranges: Vec::new(),
            counts: StreamCounts::default(),
            is_wait_over: false,
            has_held: false,
        }
    }

    /// A key as a store has it. What was offered since it was last advanced arrives now.
    pub fn load(stored: StoredKey) -> Result<Self, InvalidKeyState> {
        let mut window = Self::new(stored.key);
        window.watermark = stored.watermark;
        window.state = KeyState::from_bytes(&stored.state)?;
        window.has_held = window.state.waiting > 0;
        window.stored = stored
            .records
            .iter()
            .map(|record| record.position)
            .collect();
        window.beyond = stored.count.saturating_sub(stored.records.len() as u64);
        window.highest = stored.highest.filter(|_| window.beyond > 0);
        window.loaded_to = stored.records.last().map(|record| record.position);
        let mut unseen = Vec::new();
        for record in stored.records {
            let waits = record.arrival <= window.state.counted;
            let (position, held) = to_arrival(record);
            if waits {
                window.held.insert(position, HeldRecord { waits, ..held });
            } else {
                unseen.push((position, held));
            }
        }
        window.count_waiting();
        window.state.counted = stored.arrived;
        window.push_arrivals(unseen);
        Ok(window)
    }

    /// What waits is counted as added: also what was not loaded, and what arrived under a worker
    /// that died before it had looked at it.
    fn count_waiting(&mut self) {
        let (counted, waiting) = (self.state.waiting, self.held.len() as u64 + self.beyond);
        self.counts[StreamCounter::TaskScheduled] += u64::from(counted == 0 && waiting > 0);
        self.counts[StreamCounter::Added] += waiting.saturating_sub(counted);
        self.counts[StreamCounter::Removed] += counted.saturating_sub(waiting);
        self.state.waiting = waiting;
        self.has_held |= waiting > 0;
    }

    /// Records arrive together: their order among each other does not count.
    pub fn arrive(&mut self, records: impl IntoIterator<Item = Record>, at: Time) {
        let held = |record: Record| {
            let Record {
                position,
                step,
                tenant,
                payload,
                ..
            } = record;
            (
                position,
                HeldRecord {
                    step,
                    tenant,
                    payload,
                    at,
                    waits: false,
                },
            )
        };
        self.push_arrivals(records.into_iter().map(held).collect());
    }

    fn push_arrivals(&mut self, arrived: Vec<(i64, HeldRecord)>) {
        // Taken from the end: the lowest position first, and of two records for one position the
        // one that came first.
        self.arrivals.splice(0..0, arrived.into_iter().rev());
        self.arrivals
            .sort_by_key(|(position, _)| std::cmp::Reverse(*position));
    }

    /// What has changed since this was asked last, for the store.
    pub fn take_change(&mut self) -> KeyChange {
        let waiting = self
            .held
            .iter()
            .filter(|(position, held)| held.waits && !self.stored.contains(position));
        let hold: Vec<_> = waiting
            .map(|(position, held)| to_stored_record(*position, held))
            .collect();
        let is_here = |position: &i64| {
            self.held.contains_key(position)
                || self.arrivals.iter().any(|(arrived, _)| arrived == position)
        };
        let drop: Vec<i64> = self
            .stored
            .iter()
            .filter(|position| !is_here(position))
            .copied()
            .collect();
        for position in &drop {
            self.stored.remove(position);
        }
        self.stored
            .extend(hold.iter().map(|record| record.position));
        KeyChange {
            watermark: self.watermark,
            state: self.state.to_bytes(),
            hold,
            drop,
            counts: std::mem::take(&mut self.counts),
        }
    }

    pub const fn key(&self) -> &StreamKey {
        &self.key
    }

    /// The last position that was handled or passed.
    pub const fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    pub const fn state(&self) -> &KeyState {
        &self.state
    }

    /// A record that is held.
    pub fn held(&self, position: i64) -> Option<&HeldRecord> {
        self.held.get(&position)
    }

    /// All that is held here, by position.
    pub fn all_held(&self) -> impl Iterator<Item = (i64, &HeldRecord)> {
        self.held.iter().map(|(position, held)| (*position, held))
    }

    /// The lowest record of the key that is held: behind a gap, the one that shows it. `None` also
    /// if records that were not loaded come first.
    pub fn head(&self) -> Option<(i64, &HeldRecord)> {
        let (position, held) = self.held.first_key_value()?;
        self.sees(*position).then_some((*position, held))
    }

    /// Whether every record that waits below this position is known here.
    fn sees(&self, position: i64) -> bool {
        self.beyond == 0 || self.loaded_to.is_some_and(|loaded| position <= loaded)
    }

    /// What was counted since the last change was asked for.
    pub const fn counts(&self) -> &StreamCounts {
        &self.counts
    }

    pub fn count(&mut self, count: StreamCounter) {
        self.counts[count] += 1;
    }

    /// Forgets everything; answers how many waiting records are gone. The key is as good as new, or
    /// disabled.
    pub fn forget(&mut self, disabled: bool) -> u64 {
        let waiting = self.state.waiting;
        let mut counts = self.counts;
        counts[StreamCounter::Removed] += waiting;
        *self = Self {
            counts,
            stored: std::mem::take(&mut self.stored),
            ..Self::new(self.key.clone())
        };
        self.state.disabled = disabled;
        waiting
    }

    fn len(&self) -> u64 {
        self.held.len() as u64 + self.beyond
    }

    fn highest(&self) -> Option<i64> {
        self.highest
            .max(self.held.last_key_value().map(|(position, _)| *position))
    }
}

/// A record of the store as one that has only just arrived.
fn to_arrival(record: StoredRecord) -> (i64, HeldRecord) {
    let StoredRecord {
        position,
        step,
        tenant,
        at,
        payload,
        ..
    } = record;
    (
        position,
        HeldRecord {
            step,
            tenant,
            payload,
            at,
            waits: false,
        },
    )
}

fn to_stored_record(position: i64, held: &HeldRecord) -> StoredRecord {
    let HeldRecord {
        step,
        tenant,
        payload,
        at,
        ..
    } = held;
    StoredRecord {
        position,
        step: *step,
        tenant: tenant.clone(),
        at: *at,
        arrival: 0,
        payload: payload.clone(),
    }
}
