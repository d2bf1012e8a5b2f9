//! What is known of one key, in the hands of whoever has its lease.

mod next;
mod outcome;

pub use outcome::{Done, Failed, Failure, Resume};

use super::counts::{Count, Counts};
use super::record::{Held, Record};
use super::standing::{NotAStanding, Standing};
use super::stored::{Change, StoredKey, StoredRecord};
use crate::name::StreamKey;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one key.
#[derive(Clone, Debug)]
pub struct Window {
    key: StreamKey,
    watermark: Option<i64>,
    standing: Standing,
    held: BTreeMap<i64, Held>,
    /// Held records that have only just arrived: they may still be handled without ever having waited.
    fresh: BTreeSet<i64>,
    /// What has not been looked at yet, the highest position first.
    arrivals: Vec<(i64, Held)>,
    /// Positions whose records are in the store.
    stored: BTreeSet<i64>,
    /// Records in the store above those that were loaded, and the highest of them.
    beyond: u64,
    highest: Option<i64>,
    counts: Counts,
    /// Whether the wait has ended and what can be handled is: `drain = "scheduled"` handles nothing otherwise.
    fired: bool,
    /// Whether anything waited since the hold was last empty.
    held_some: bool,
}

impl Window {
    /// A key nobody has heard of.
    pub fn new(key: StreamKey) -> Self {
        Self {
            key,
            watermark: None,
            standing: Standing::default(),
            held: BTreeMap::new(),
            fresh: BTreeSet::new(),
            arrivals: Vec::new(),
            stored: BTreeSet::new(),
            beyond: 0,
            highest: None,
            counts: Counts::default(),
            fired: false,
            held_some: false,
        }
    }

    /// A key as a store has it. What was offered since it was last advanced arrives now.
    pub fn load(stored: StoredKey) -> Result<Self, NotAStanding> {
        let mut window = Self::new(stored.key);
        window.watermark = stored.watermark;
        window.standing = Standing::from_bytes(&stored.standing)?;
        window.held_some = window.standing.waiting > 0;
        window.stored = stored.records.iter().map(|record| record.position).collect();
        window.beyond = stored.count.saturating_sub(stored.records.len() as u64);
        window.highest = stored.highest.filter(|_| window.beyond > 0);
        let mut unseen = Vec::new();
        for record in stored.records {
            let waits = record.arrival <= window.standing.counted;
            let (position, held) = arrived(record);
            if waits {
                window.held.insert(position, Held { waits, ..held });
            } else {
                unseen.push((position, held));
            }
        }
        window.count_beyond();
        window.standing.counted = stored.arrived;
        window.push_arrivals(unseen);
        Ok(window)
    }

    /// Records that were not loaded may have arrived since the last time: they wait from now on.
    fn count_beyond(&mut self) {
        if self.beyond == 0 {
            return;
        }
        let known = self.standing.waiting.saturating_sub(self.held.len() as u64);
        let unknown = self.beyond.saturating_sub(known);
        self.standing.waiting += unknown;
        self.counts[Count::Added] += unknown;
        self.held_some = true;
    }

    /// Records arrive together: their order among each other does not count.
    pub fn arrive(&mut self, records: impl IntoIterator<Item = Record>, at: Time) {
        let held = |record: Record| {
            let Record { position, step, tenant, payload, .. } = record;
            (position, Held { step, tenant, payload, at, waits: false })
        };
        self.push_arrivals(records.into_iter().map(held).collect());
    }

    fn push_arrivals(&mut self, arrived: Vec<(i64, Held)>) {
        // Taken from the end: the lowest position first, and of two records for one position the one that came first.
        self.arrivals.splice(0..0, arrived.into_iter().rev());
        self.arrivals.sort_by_key(|(position, _)| std::cmp::Reverse(*position));
    }

    /// Takes over what was done for this key without the store, while that did not answer.
    pub fn catch_up(&mut self, meanwhile: Self) {
        if meanwhile.watermark > self.watermark {
            self.watermark = meanwhile.watermark;
            self.standing.step = meanwhile.standing.step;
            self.standing.gap = meanwhile.standing.gap;
        }
        self.standing.missed.merge(&meanwhile.standing.missed);
        for (position, at) in meanwhile.standing.late {
            self.standing.note_late(position, Time::from_micros(at));
        }
        // What waits there waits in memory only: it was counted as added, and arrives here.
        let mut counts = meanwhile.counts;
        counts[Count::Added] = counts[Count::Added].saturating_sub(meanwhile.standing.waiting);
        self.counts.add(&counts);
        let waiting = meanwhile.held.into_iter().map(|(at, held)| (at, Held { waits: false, ..held }));
        let arrived = waiting.chain(meanwhile.arrivals).collect();
        self.push_arrivals(arrived);
    }

    /// Sets out from where the key is known to be.
    pub fn pass_to(&mut self, watermark: i64, step: Option<i64>) {
        self.watermark = self.watermark.max(Some(watermark));
        self.standing.step = step;
    }

    /// The same key as it goes on without the store: what is known, without what is held there.
    #[must_use]
    pub fn without_store(&self) -> Self {
        let mut window = Self::new(self.key.clone());
        window.watermark = self.watermark;
        window.standing.step = self.standing.step;
        window.standing.disabled = self.standing.disabled;
        window.standing.missed = self.standing.missed.clone();
        window
    }

    /// The same key as it goes on when the store did not take in its last change: what was to be held there is here.
    #[must_use]
    pub fn adrift(&self, unsaved: Change) -> Self {
        let mut window = self.without_store();
        window.counts = unsaved.counts;
        let held = unsaved.hold.len() as u64;
        let counts = &mut window.counts;
        counts[Count::Added] = counts[Count::Added].saturating_sub(held);
        window.push_arrivals(unsaved.hold.into_iter().map(arrived).collect());
        window
    }

    /// What has changed since this was asked last, for the store.
    pub fn change(&mut self) -> Change {
        let waiting =
            self.held.iter().filter(|(position, held)| held.waits && !self.stored.contains(position));
        let hold: Vec<_> = waiting.map(|(position, held)| stored(*position, held)).collect();
        let is_here = |position: &i64| {
            self.held.contains_key(position) || self.arrivals.iter().any(|(arrived, _)| arrived == position)
        };
        let drop: Vec<i64> = self.stored.iter().filter(|position| !is_here(position)).copied().collect();
        for position in &drop {
            self.stored.remove(position);
        }
        self.stored.extend(hold.iter().map(|record| record.position));
        Change {
            watermark: self.watermark,
            standing: self.standing.to_bytes(),
            hold,
            drop,
            counts: std::mem::take(&mut self.counts),
        }
    }

    /// The key.
    pub const fn key(&self) -> &StreamKey {
        &self.key
    }

    /// The last position that was handled or passed.
    pub const fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    /// What the rules remember.
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// A record that is held.
    pub fn held(&self, position: i64) -> Option<&Held> {
        self.held.get(&position)
    }

    /// All that is held here, by position.
    pub fn all_held(&self) -> impl Iterator<Item = (i64, &Held)> {
        self.held.iter().map(|(position, held)| (*position, held))
    }

    /// The lowest record that is held: behind a gap, the one that shows it.
    pub fn head(&self) -> Option<(i64, &Held)> {
        self.held.first_key_value().map(|(position, held)| (*position, held))
    }

    /// What was counted since the last change was asked for.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts one more.
    pub fn count(&mut self, count: Count) {
        self.counts[count] += 1;
    }

    /// Forgets everything; answers how many waiting records are gone. The key is as good as new, or disabled.
    pub fn forget(&mut self, disabled: bool) -> u64 {
        let waiting = self.standing.waiting;
        let mut counts = self.counts;
        counts[Count::Removed] += waiting;
        *self = Self { counts, stored: std::mem::take(&mut self.stored), ..Self::new(self.key.clone()) };
        self.standing.disabled = disabled;
        waiting
    }

    fn len(&self) -> u64 {
        self.held.len() as u64 + self.beyond
    }

    fn highest(&self) -> Option<i64> {
        self.highest.max(self.held.last_key_value().map(|(position, _)| *position))
    }
}

fn arrived(record: StoredRecord) -> (i64, Held) {
    let StoredRecord { position, step, tenant, at, payload, .. } = record;
    (position, Held { step, tenant, payload, at, waits: false })
}

fn stored(position: i64, held: &Held) -> StoredRecord {
    let Held { step, tenant, payload, at, .. } = held;
    StoredRecord {
        position,
        step: *step,
        tenant: tenant.clone(),
        at: *at,
        arrival: 0,
        payload: payload.clone(),
    }
}
