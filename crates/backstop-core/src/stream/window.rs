//! The state of one key, in the hands of the worker that holds its lease.

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

/// The state of one key, and the rules that move it on.
#[derive(Clone, Debug)]
pub struct KeyWindow {
    key: StreamKey,
    watermark: Option<i64>,
    state: KeyState,
    held: BTreeMap<i64, HeldRecord>,
    /// Held records that have only just arrived. The handler may still get them before they are
    /// counted as waiting.
    fresh: BTreeSet<i64>,
    /// Arrivals that `next` has not examined yet, the highest position first.
    arrivals: Vec<(i64, HeldRecord)>,
    /// Positions whose records are in the store.
    stored: BTreeSet<i64>,
    /// `beyond` counts the records in the store above those that were loaded. `highest` is the
    /// highest of them, `loaded_to` the highest loaded position.
    beyond: u64,
    highest: Option<i64>,
    loaded_to: Option<i64>,
    /// Offline mode, and this worker did not hold the key's lease when the store went down: only
    /// an old watermark is known.
    lacks_lease: bool,
    /// An old watermark: everything up to here was handled or passed. The key may have moved on
    /// since.
    known_watermark: Option<i64>,
    /// The position and step of the first record handled without a known watermark.
    from: Option<(i64, i64)>,
    /// Ranges handled offline below `from`.
    separate_ranges: Vec<OfflineRange>,
    counts: StreamCounts,
    /// Whether the wait has ended, so that the handler gets what is complete. With `drain =
    /// "scheduled"` it gets nothing before that.
    is_wait_over: bool,
    /// Whether any record has waited since the key last held none.
    has_held: bool,
}

impl KeyWindow {
    /// A new key, without a watermark or records.
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

    /// Loads a key from a store. Records that were offered since its last advance arrive now.
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

    /// Counts all waiting records as added. This includes records that were not loaded, and records
    /// that arrived under a worker that died before it examined them.
    fn count_waiting(&mut self) {
        let (counted, waiting) = (self.state.waiting, self.held.len() as u64 + self.beyond);
        self.counts[StreamCounter::TaskScheduled] += u64::from(counted == 0 && waiting > 0);
        self.counts[StreamCounter::Added] += waiting.saturating_sub(counted);
        self.counts[StreamCounter::Removed] += counted.saturating_sub(waiting);
        self.state.waiting = waiting;
        self.has_held |= waiting > 0;
    }

    /// Adds records that arrive together; their order among each other does not matter.
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
        // `next` pops from the end, so it gets the lowest position first, and of two records at one
        // position the one that arrived first.
        self.arrivals.splice(0..0, arrived.into_iter().rev());
        self.arrivals
            .sort_by_key(|(position, _)| std::cmp::Reverse(*position));
    }

    /// Returns the changes since the last call, for the store.
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

    /// The held record at this position.
    pub fn held(&self, position: i64) -> Option<&HeldRecord> {
        self.held.get(&position)
    }

    /// All held records in this window, by position.
    pub fn all_held(&self) -> impl Iterator<Item = (i64, &HeldRecord)> {
        self.held.iter().map(|(position, held)| (*position, held))
    }

    /// The lowest held record of the key; behind a gap, this is the record that reveals it. `None`
    /// also if records that were not loaded come before it.
    pub fn head(&self) -> Option<(i64, &HeldRecord)> {
        let (position, held) = self.held.first_key_value()?;
        self.sees(*position).then_some((*position, held))
    }

    /// Whether this window has loaded every waiting record below this position.
    fn sees(&self, position: i64) -> bool {
        self.beyond == 0 || self.loaded_to.is_some_and(|loaded| position <= loaded)
    }

    /// The counts since the last [`Self::take_change`].
    pub const fn counts(&self) -> &StreamCounts {
        &self.counts
    }

    pub fn count(&mut self, count: StreamCounter) {
        self.counts[count] += 1;
    }

    /// Resets the key to a new one, or to a disabled one. Returns the number of waiting records
    /// that it dropped.
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

/// Turns a record of the store into one that has just arrived.
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
