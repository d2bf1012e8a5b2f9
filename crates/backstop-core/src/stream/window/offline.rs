//! A key that continues while the store is down, and merges the result once it is back.
//!
//! | known when the store went down | while the store is down | when the store is back |
//! |---|---|---|
//! | everything: this worker held the key's lease | the key continues from its watermark with what it held, at once and with misses | the watermark moves on |
//! | an old watermark, or nothing | each record not known to be old is handled at once; misses are declared from the first record on | the handled positions become an offline range ahead of the watermark |
//!
//! When the store is back, the key catches up below an offline range at once: it handles the
//! records held there, and declares the missing positions missed. An offline worker does not
//! declare those itself, because other workers may have handled them.

use super::KeyWindow;
use crate::limits::OFFLINE_RANGES_MAX;
use crate::name::StreamKey;
use crate::stream::counts::{StreamCounter, StreamCounts};
use crate::stream::key_state::{KeyState, OfflineRange};
use crate::stream::record::HeldRecord;
use crate::stream::stored::KeyChange;
use crate::time::Time;

/// What a worker remembers of a key whose lease it no longer holds: an old watermark. Other workers
/// may have moved the key on since.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RememberedKey {
    watermark: Option<i64>,
    ahead: Vec<OfflineRange>,
    halted: Option<i64>,
    disabled: bool,
}

impl RememberedKey {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl KeyWindow {
    /// What to remember of the key in case the store goes down.
    pub fn remember(&self) -> RememberedKey {
        let KeyState {
            ahead,
            halted,
            disabled,
            ..
        } = &self.state;
        RememberedKey {
            watermark: self.watermark,
            ahead: ahead.clone(),
            halted: *halted,
            disabled: *disabled,
        }
    }

    /// An offline window of a key of which only an old watermark is known.
    pub fn offline_without_lease(key: StreamKey, known: RememberedKey) -> Self {
        let mut window = Self::new(key);
        window.lacks_lease = true;
        window.known_watermark = known.watermark;
        window.state.ahead = known.ahead;
        window.state.halted = known.halted;
        window.state.disabled = known.disabled;
        window
    }

    /// An offline copy of this window: the same state, without the held records, which are in the
    /// store.
    #[must_use]
    pub fn offline_copy(&self) -> Self {
        let mut window = Self::new(self.key.clone());
        window.watermark = self.watermark;
        window.state.step = self.state.step;
        window.state.ahead.clone_from(&self.state.ahead);
        window.state.halted = self.state.halted;
        window.state.disabled = self.state.disabled;
        window.state.missed = self.state.missed.clone();
        window
    }

    /// An offline copy for when the store did not accept the last change: it keeps all records in
    /// memory, and the counts of that change.
    #[must_use]
    pub fn offline_with_unsaved(&self, unsaved: &KeyChange) -> Self {
        Self {
            counts: unsaved.counts,
            ..self.clone()
        }
    }

    /// Drops records that cannot be handled offline: their producer keeps them.
    pub fn release(&mut self, positions: impl IntoIterator<Item = i64>) {
        for position in positions {
            let Some(held) = self.held.remove(&position) else {
                continue;
            };
            self.fresh.remove(&position);
            if held.waits {
                self.state.waiting = self.state.waiting.saturating_sub(1);
                self.counts[StreamCounter::Added] =
                    self.counts[StreamCounter::Added].saturating_sub(1);
            }
        }
    }

    /// Merges what an offline window did for this key while the store was down.
    pub fn catch_up(&mut self, offline: Self) {
        let counted = self.state.waiting;
        if let (Some((from, step)), Some(to)) = (offline.from, offline.watermark) {
            let last_step = offline.state.step.unwrap_or(step);
            self.state.add_offline_range(OfflineRange {
                from,
                step,
                to,
                last_step,
            });
        } else if offline.watermark > self.watermark {
            self.watermark = offline.watermark;
            self.state.step = offline.state.step;
            self.state.gap = offline.state.gap;
        }
        for island in offline
            .separate_ranges
            .into_iter()
            .chain(offline.state.ahead)
        {
            self.state.add_offline_range(island);
        }
        self.state.halted = self.state.halted.or(offline.state.halted);
        self.state.missed.merge(&offline.state.missed);
        for (position, at) in offline.state.late {
            self.state.note_late(position, Time::from_micros(at));
        }
        for record in offline.state.off_step {
            self.state.note_off_step(record);
        }
        let handled: Vec<i64> = self
            .held
            .keys()
            .copied()
            .filter(|at| self.was_handled(*at))
            .collect();
        for position in handled {
            self.held.remove(&position);
        }
        let mut counts = offline.counts;
        let unknown = |at: &i64| !self.stored.contains(at);
        // Records that wait only in memory were counted as added. They arrive again here and are
        // counted then.
        let waiting = offline
            .held
            .iter()
            .filter(|(at, held)| held.waits && unknown(at))
            .count() as u64;
        counts[StreamCounter::Added] = counts[StreamCounter::Added].saturating_sub(waiting);
        let held = offline.held.into_iter().map(|(at, held)| {
            (
                at,
                HeldRecord {
                    waits: false,
                    ..held
                },
            )
        });
        let arrived = held
            .chain(offline.arrivals)
            .filter(|(at, _)| unknown(at))
            .collect();
        self.push_arrivals(arrived);
        self.counts.add(&counts);
        self.balance(counted, &counts);
    }

    fn was_handled(&self, position: i64) -> bool {
        self.is_passed(position) && !self.state.missed.contains(position)
    }

    /// Corrects the counts after an outage. The store may or may not know what was added and
    /// removed offline. The number of records that wait now is known, and the rest follows from it.
    fn balance(&mut self, counted: u64, offline: &StreamCounts) {
        let waiting = self.held.values().filter(|held| held.waits).count() as u64 + self.beyond;
        let (added, removed) = (
            offline[StreamCounter::Added],
            offline[StreamCounter::Removed],
        );
        let (recorded, actual) = (counted + added, waiting + removed);
        self.counts[StreamCounter::Removed] += recorded.saturating_sub(actual);
        self.counts[StreamCounter::Added] += actual.saturating_sub(recorded);
        self.state.waiting = waiting;
    }

    /// Whether this position was handled or passed, online or offline.
    pub(super) fn is_passed(&self, position: i64) -> bool {
        let is_behind = |mark: Option<i64>| mark.is_some_and(|mark| position <= mark);
        is_behind(self.known_watermark)
            || (is_behind(self.watermark) && !self.is_before_first(position))
            || self
                .state
                .ahead
                .iter()
                .chain(&self.separate_ranges)
                .any(|island| island.covers(position))
    }

    /// Whether this position was never examined although later ones were handled, which happens
    /// only offline.
    pub(super) fn is_unexamined(&self, position: i64) -> bool {
        self.is_before_first(position)
            && !self.is_passed(position)
            && self.separate_ranges.len() < OFFLINE_RANGES_MAX
    }

    fn is_before_first(&self, position: i64) -> bool {
        self.lacks_lease && self.from.is_some_and(|(from, _)| position < from)
    }

    /// Records an unexamined position as an offline range of its own.
    pub(super) fn pass_separately(&mut self, position: i64) {
        let step = self.held.get(&position).map_or(1, |held| held.step);
        self.leave(position);
        self.separate_ranges.push(OfflineRange {
            from: position,
            step,
            to: position,
            last_step: step,
        });
    }

    /// Moves the watermark past offline ranges that have no missing position below them any more.
    pub(super) fn cross_offline_ranges(&mut self) {
        if self.lacks_lease && self.watermark.is_none() {
            return;
        }
        while let Some(ahead) = self.state.ahead.first().copied() {
            let comes_first = self
                .head()
                .is_some_and(|(position, _)| !self.is_passed(position) && position < ahead.from);
            if comes_first || !self.sees(ahead.from) || self.missing_before(&ahead) > 0 {
                return;
            }
            self.state.ahead.remove(0);
            if self.watermark.is_none_or(|watermark| watermark < ahead.to) {
                self.watermark = Some(ahead.to);
                self.state.step = Some(ahead.last_step);
                (self.state.gap, self.state.wait) = (0, None);
            }
        }
    }

    /// The number of missing positions between the watermark and an offline range.
    fn missing_before(&self, ahead: &OfflineRange) -> u64 {
        let Some(watermark) = self.watermark else {
            return 0;
        };
        self.count_missing(watermark, ahead.from, ahead.step)
    }
}
