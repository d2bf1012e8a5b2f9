//! A key that goes on without the store, and comes back to it.
//!
//! | what was known of the key when the store fell silent | without the store | back at the store |
//! |---|---|---|
//! | everything: it was in hand | goes on from its watermark with what it held, at once and with misses | the watermark moves on |
//! | where it once was, or nothing | what is not known to be old is handled at once; misses are declared from the first record on | what was handled is an island ahead of the watermark |
//!
//! What lies before an island is made up for at once when the store is back: what is held there is
//! handled, what is missing is declared missing. Declaring it without having asked the store would
//! tell of misses that others handled.

use super::Window;
use crate::limits::ISLANDS_MAX;
use crate::name::StreamKey;
use crate::stream::counts::{Count, Counts};
use crate::stream::record::Held;
use crate::stream::standing::{Ahead, Standing};
use crate::stream::stored::Change;
use crate::time::Time;

/// What is known of a key that is not in hand: where it once was. Others may have gone on since.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    watermark: Option<i64>,
    ahead: Vec<Ahead>,
    halted: Option<i64>,
    disabled: bool,
}

impl Known {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Window {
    /// What to remember of the key for when the store falls silent.
    pub fn to_remember(&self) -> Known {
        let Standing {
            ahead,
            halted,
            disabled,
            ..
        } = &self.standing;
        Known {
            watermark: self.watermark,
            ahead: ahead.clone(),
            halted: *halted,
            disabled: *disabled,
        }
    }

    /// A key without the store, of which only this is known.
    pub fn without_lease(key: StreamKey, known: Known) -> Self {
        let mut window = Self::new(key);
        window.is_loose = true;
        window.floor = known.watermark;
        window.standing.ahead = known.ahead;
        window.standing.halted = known.halted;
        window.standing.disabled = known.disabled;
        window
    }

    /// The same key as it goes on without the store: what is known, without what is held there.
    #[must_use]
    pub fn without_store(&self) -> Self {
        let mut window = Self::new(self.key.clone());
        window.watermark = self.watermark;
        window.standing.step = self.standing.step;
        window.standing.ahead.clone_from(&self.standing.ahead);
        window.standing.halted = self.standing.halted;
        window.standing.disabled = self.standing.disabled;
        window.standing.missed = self.standing.missed.clone();
        window
    }

    /// The same key as it goes on when the store did not take in its last change: with all that is
    /// in hand.
    #[must_use]
    pub fn adrift(&self, unsaved: &Change) -> Self {
        Self {
            counts: unsaved.counts,
            ..self.clone()
        }
    }

    /// Lets go of records that cannot be handled without the store: whoever brought them keeps
    /// them.
    pub fn let_go(&mut self, positions: impl IntoIterator<Item = i64>) {
        for position in positions {
            let Some(held) = self.held.remove(&position) else {
                continue;
            };
            self.fresh.remove(&position);
            if held.waits {
                self.standing.waiting = self.standing.waiting.saturating_sub(1);
                self.counts[Count::Added] = self.counts[Count::Added].saturating_sub(1);
            }
        }
    }

    /// Takes over what was done for this key without the store, while that did not answer.
    pub fn catch_up(&mut self, meanwhile: Self) {
        let counted = self.standing.waiting;
        if let (Some((from, step)), Some(to)) = (meanwhile.from, meanwhile.watermark) {
            let last_step = meanwhile.standing.step.unwrap_or(step);
            self.standing.go_ahead(Ahead {
                from,
                step,
                to,
                last_step,
            });
        } else if meanwhile.watermark > self.watermark {
            self.watermark = meanwhile.watermark;
            self.standing.step = meanwhile.standing.step;
            self.standing.gap = meanwhile.standing.gap;
        }
        for island in meanwhile.apart.into_iter().chain(meanwhile.standing.ahead) {
            self.standing.go_ahead(island);
        }
        self.standing.halted = self.standing.halted.or(meanwhile.standing.halted);
        self.standing.missed.merge(&meanwhile.standing.missed);
        for (position, at) in meanwhile.standing.late {
            self.standing.note_late(position, Time::from_micros(at));
        }
        for record in meanwhile.standing.off_step {
            self.standing.note_off_step(record);
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
        let mut counts = meanwhile.counts;
        let unknown = |at: &i64| !self.stored.contains(at);
        // What waits in memory only was counted as added, and arrives here.
        let waiting = meanwhile
            .held
            .iter()
            .filter(|(at, held)| held.waits && unknown(at))
            .count() as u64;
        counts[Count::Added] = counts[Count::Added].saturating_sub(waiting);
        let held = meanwhile.held.into_iter().map(|(at, held)| {
            (
                at,
                Held {
                    waits: false,
                    ..held
                },
            )
        });
        let arrived = held
            .chain(meanwhile.arrivals)
            .filter(|(at, _)| unknown(at))
            .collect();
        self.push_arrivals(arrived);
        self.counts.add(&counts);
        self.balance(counted, &counts);
    }

    fn was_handled(&self, position: i64) -> bool {
        self.is_passed(position) && !self.standing.missed.contains(position)
    }

    /// What was added and removed without the store may be unknown to it or not. What waits now is
    /// known: the rest follows from that.
    fn balance(&mut self, counted: u64, meanwhile: &Counts) {
        let waiting = self.held.values().filter(|held| held.waits).count() as u64 + self.beyond;
        let (added, removed) = (meanwhile[Count::Added], meanwhile[Count::Removed]);
        let (told, is) = (counted + added, waiting + removed);
        self.counts[Count::Removed] += told.saturating_sub(is);
        self.counts[Count::Added] += is.saturating_sub(told);
        self.standing.waiting = waiting;
    }

    /// Whether this position was handled or passed, with or without the store.
    pub(super) fn is_passed(&self, position: i64) -> bool {
        let is_behind = |mark: Option<i64>| mark.is_some_and(|mark| position <= mark);
        is_behind(self.floor)
            || (is_behind(self.watermark) && !self.is_before_first(position))
            || self
                .standing
                .ahead
                .iter()
                .chain(&self.apart)
                .any(|island| island.covers(position))
    }

    /// Whether nobody has looked at this position, although later ones were handled: only without
    /// the store.
    pub(super) fn is_unlooked(&self, position: i64) -> bool {
        self.is_before_first(position)
            && !self.is_passed(position)
            && self.apart.len() < ISLANDS_MAX
    }

    fn is_before_first(&self, position: i64) -> bool {
        self.is_loose && self.from.is_some_and(|(from, _)| position < from)
    }

    /// A record that nobody had looked at is an island of its own.
    pub(super) fn pass_apart(&mut self, position: i64) {
        let step = self.held.get(&position).map_or(1, |held| held.step);
        self.leave(position);
        self.apart.push(Ahead {
            from: position,
            step,
            to: position,
            last_step: step,
        });
    }

    /// Moves the watermark over what was handled without the store, where nothing lies before it
    /// any more.
    pub(super) fn cross(&mut self) {
        if self.is_loose && self.watermark.is_none() {
            return;
        }
        while let Some(ahead) = self.standing.ahead.first().copied() {
            let comes_first = self
                .head()
                .is_some_and(|(position, _)| !self.is_passed(position) && position < ahead.from);
            if comes_first || !self.sees(ahead.from) || self.missing_before(&ahead) > 0 {
                return;
            }
            self.standing.ahead.remove(0);
            if self.watermark.is_none_or(|watermark| watermark < ahead.to) {
                self.watermark = Some(ahead.to);
                self.standing.step = Some(ahead.last_step);
                (self.standing.gap, self.standing.wait) = (0, None);
            }
        }
    }

    /// How many positions are missing between the watermark and what was handled without the store.
    fn missing_before(&self, ahead: &Ahead) -> u64 {
        let Some(watermark) = self.watermark else {
            return 0;
        };
        self.count_missing(watermark, ahead.from, ahead.step)
    }
}
