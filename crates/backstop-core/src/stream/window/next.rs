//! Decides what one key of a stream does next: report an event, call the handler, or wait.
//!
//! - The *grid* of a key consists of positions that are a step apart, counted from its watermark
//!   (see [`crate::stream::grid`]). A gap has as many missing positions as the grid has there.
//! - An *offline range* is a range of positions ahead of the watermark that a worker handled, or
//!   declared missing, while it could not reach the store (see [`super::offline`]).
//! - *Unloaded* records (`beyond` counts them) are held in the store above those that this window
//!   has loaded. It must not pass their positions before it has loaded them.
//!
//! The counters `TaskScheduled` (a key began to wait), `CircuitBreaker` (a key held too many
//! records) and `Rescheduling` (a key began another wait) keep their names, because published
//! metrics have them.

use super::KeyWindow;
use crate::stream::call::{HandlerCall, KeyEvent, KeyStep};
use crate::stream::counts::StreamCounter;
use crate::stream::grid::OffStep;
use crate::stream::key_state::{GapWait, OffStepRecord};
use crate::stream::record::HeldRecord;
use crate::stream::rules::{DrainMode, LatePolicy, StreamRules};
use crate::time::Time;

impl KeyWindow {
    /// The next step; `None` if there is none until a record arrives or [`KeyWindow::wake`] is
    /// reached.
    pub fn next(&mut self, rules: &StreamRules, now: Time) -> Option<KeyStep> {
        if let Some(note) = self.look_at_arrivals(rules, now) {
            return Some(KeyStep::Event(note));
        }
        if let Some(step) = self.look_at_head(rules, now) {
            return Some(step);
        }
        let note = self
            .count_as_waiting()
            .or_else(|| self.stop_waiting_for_gap(rules, now))
            .or_else(|| self.wait(rules, now));
        note.map(KeyStep::Event)
    }

    /// Like [`KeyWindow::next`], for a worker that shuts down: it holds all arrivals and calls no
    /// handler.
    pub fn hold_arrivals(&mut self, rules: &StreamRules, now: Time) -> Option<KeyEvent> {
        self.look_at_arrivals(rules, now)
            .or_else(|| self.count_as_waiting())
    }

    /// When to call [`KeyWindow::next`] again if no record arrives.
    pub fn wake(&self, rules: &StreamRules, now: Time) -> Option<Time> {
        if self.state.disabled || self.state.halted.is_some() {
            return None;
        }
        if self.is_blocked(rules, now) {
            return self
                .state
                .failing
                .as_ref()
                .map(|failing| Time::from_micros(failing.due));
        }
        if self.next_call(rules, now).is_some() {
            return Some(now);
        }
        if self.head().is_none() {
            // Unloaded records can be loaded now that the loaded ones are gone.
            return (self.beyond > 0 || !self.state.ahead.is_empty()).then_some(now);
        }
        Some(
            self.state
                .wait
                .map_or(now, |wait| self.find_wait_end(wait, rules)),
        )
    }

    /// Classifies arrivals as duplicate, late or ignored, or adds them to the held records.
    fn look_at_arrivals(&mut self, rules: &StreamRules, now: Time) -> Option<KeyEvent> {
        while let Some((position, held)) = self.arrivals.pop() {
            if self.state.disabled {
                self.counts[StreamCounter::Ignored] += 1;
                return Some(KeyEvent::Ignored { position });
            }
            if self.held.contains_key(&position) {
                self.counts[StreamCounter::Duplicates] += 1;
                return Some(KeyEvent::Duplicate {
                    position,
                    off_step: None,
                });
            }
            if let Some(note) = self.classify_if_passed(position, held.step, rules, now) {
                return Some(note);
            }
            self.held.insert(position, held);
            self.fresh.insert(position);
        }
        None
    }

    /// If the watermark or an offline range has already passed this position, reports the record as
    /// duplicate or late. `None` if neither has passed it, or if the handler is to amend a position
    /// that was declared missing.
    fn classify_if_passed(
        &mut self,
        position: i64,
        step: i64,
        rules: &StreamRules,
        now: Time,
    ) -> Option<KeyEvent> {
        if !self.is_passed(position) {
            return None;
        }
        if !self.state.missed.contains(position) {
            self.counts[StreamCounter::Duplicates] += 1;
            let off_step = OffStep::of(position, step, self.watermark, self.state.step);
            if let Some(place) = off_step {
                self.counts[StreamCounter::OffStep] += 1;
                let (is_handled, at) = (false, now.as_micros());
                self.state.note_off_step(OffStepRecord {
                    place,
                    is_handled,
                    at,
                });
            }
            return Some(KeyEvent::Duplicate { position, off_step });
        }
        match rules.late {
            LatePolicy::Amend => None,
            LatePolicy::Drop => {
                self.counts[StreamCounter::Late] += 1;
                self.state.note_late(position, now);
                Some(KeyEvent::Late { position })
            }
        }
    }

    fn look_at_head(&mut self, rules: &StreamRules, now: Time) -> Option<KeyStep> {
        if self.state.halted.is_some() {
            return None;
        }
        self.cross_offline_ranges();
        // Another worker, or an offline one, passed this position while the record waited. It must
        // not block the key.
        if let Some((position, step)) = self.head().map(|(position, held)| (position, held.step))
            && let Some(note) = self.classify_if_passed(position, step, rules, now)
        {
            self.leave(position);
            return Some(KeyStep::Event(note));
        }
        if let Some(failing) = self.state.failing.as_mut() {
            // If the clock was set back, the wait is still no longer than it was at the failure.
            let latest = failing
                .wait
                .map_or(i64::MAX, |wait| now.as_micros().saturating_add(wait));
            failing.due = failing.due.min(latest);
        }
        self.is_wait_over |= self
            .state
            .wait
            .is_some_and(|wait| self.find_wait_end(wait, rules) <= now);
        let call = self.next_call(rules, now)?;
        (!self.is_blocked(rules, now)).then_some(KeyStep::Call(call))
    }

    /// The next handler call for the lowest held record (or the first offline range), or `None` if
    /// it must wait.
    fn next_call(&self, rules: &StreamRules, now: Time) -> Option<HandlerCall> {
        let head = self.head();
        if let Some((position, _)) = head.filter(|(position, _)| self.is_passed(*position)) {
            return Some(HandlerCall::Amend { position });
        }
        if let Some((position, _)) = head.filter(|(position, _)| self.is_unexamined(*position)) {
            return Some(HandlerCall::Handle { position });
        }
        if let Some(call) =
            self.miss_before_offline_range(head.map(|(position, _)| position), rules)
        {
            return Some(call);
        }
        let (position, held) = head?;
        let Some(watermark) = self.watermark else {
            return Some(HandlerCall::Handle { position });
        };
        let may_skip_gap = self.state.drain_to.is_some_and(|to| position <= to)
            || self
                .state
                .ahead
                .first()
                .is_some_and(|ahead| position < ahead.from)
            || !self.is_covered(rules, held);
        if position <= watermark.saturating_add(held.step) {
            let waits_its_turn = rules.drain == DrainMode::Scheduled && self.state.waiting > 0;
            let has_its_turn =
                self.is_wait_over || may_skip_gap || self.is_retry_due(position, now);
            return (!waits_its_turn || has_its_turn).then_some(HandlerCall::Handle { position });
        }
        // A record whose handler failed already had its turn. It keeps it, whatever has changed
        // since.
        (may_skip_gap || self.is_retry_due(position, now))
            .then(|| self.next_missing(watermark, position, held.step, rules))
    }

    /// The next miss below the first offline range, if no held record comes before that range.
    fn miss_before_offline_range(
        &self,
        head: Option<i64>,
        rules: &StreamRules,
    ) -> Option<HandlerCall> {
        let ahead = self.state.ahead.first()?;
        let watermark = self.watermark?;
        if head.is_some_and(|position| position < ahead.from) || !self.sees(ahead.from) {
            return None;
        }
        let call = self.next_missing(watermark, ahead.from, ahead.step, rules);
        (call
            != HandlerCall::Handle {
                position: ahead.from,
            })
        .then_some(call)
    }

    /// The number of missing grid positions between the watermark and a record of this step. None
    /// are counted if the step has changed: the former record fixes no grid of the new step, so
    /// nobody can tell which positions should have come.
    pub(super) fn count_missing(&self, watermark: i64, position: i64, step: i64) -> u64 {
        let has_changed = self.state.step.is_some_and(|former| former != step);
        let count = if has_changed {
            0
        } else {
            position.saturating_sub(watermark) / step - 1
        };
        u64::try_from(count).unwrap_or(0)
    }

    /// The next miss of a gap that the key gives up, or the record behind the gap.
    fn next_missing(
        &self,
        watermark: i64,
        position: i64,
        step: i64,
        rules: &StreamRules,
    ) -> HandlerCall {
        let first = watermark.saturating_add(step);
        match self.count_missing(watermark, position, step) {
            0 => HandlerCall::Handle { position },
            _ if self.state.gap < u64::from(rules.max_misses) => {
                HandlerCall::Miss { position: first }
            }
            count => HandlerCall::MissRange {
                position: first,
                to: watermark + step * count.cast_signed(),
                count,
            },
        }
    }

    /// Whether the rollout covers the record's tenant, so that the stream waits for it.
    fn is_covered(&self, rules: &StreamRules, held: &HeldRecord) -> bool {
        rules
            .rollout
            .covers(held.tenant.as_deref().unwrap_or(self.key.as_str()))
    }

    fn is_retry_due(&self, position: i64, now: Time) -> bool {
        self.state
            .failing_at(position)
            .is_some_and(|failing| failing.due <= now.as_micros())
    }

    /// Whether the next call has failed and its next attempt is not due yet.
    fn is_blocked(&self, rules: &StreamRules, now: Time) -> bool {
        let Some(failing) = self
            .state
            .failing
            .as_ref()
            .filter(|failing| failing.due > now.as_micros())
        else {
            return false;
        };
        let next = self.head().map(|(position, _)| position);
        next == Some(failing.position)
            || self
                .next_call(rules, now)
                .is_some_and(|call| call.position() == failing.position)
    }

    fn count_as_waiting(&mut self) -> Option<KeyEvent> {
        let position = self.fresh.first().copied()?;
        self.hold(position);
        Some(KeyEvent::Held { position })
    }

    /// Counts a fresh record as waiting.
    pub(super) fn hold(&mut self, position: i64) {
        if !self.fresh.remove(&position) {
            return;
        }
        if let Some(held) = self.held.get_mut(&position) {
            held.waits = true;
        }
        if self.state.waiting == 0 {
            self.counts[StreamCounter::TaskScheduled] += 1;
        }
        self.state.waiting += 1;
        self.counts[StreamCounter::Added] += 1;
        self.has_held = true;
    }

    /// Stops waiting for the missing positions if the key holds `max_held` records, if its last
    /// wait has ended, or if a record has waited for `hold_for`. The key then handles all held
    /// records, up to the highest one.
    fn stop_waiting_for_gap(&mut self, rules: &StreamRules, now: Time) -> Option<KeyEvent> {
        let (position, _) = self.head()?;
        if self.state.halted.is_some()
            || self.state.drain_to.is_some()
            || self.is_blocked(rules, now)
        {
            return None;
        }
        let (count, note) = if self.len() >= u64::from(rules.max_held) {
            (
                StreamCounter::CircuitBreaker,
                KeyEvent::Overflow { position },
            )
        } else if self.is_out_of_time(rules, now) {
            (StreamCounter::Timeout, KeyEvent::Timeout { position })
        } else {
            return None;
        };
        self.counts[count] += 1;
        self.state.drain_to = self.highest();
        self.state.wait = None;
        Some(note)
    }

    fn is_out_of_time(&self, rules: &StreamRules, now: Time) -> bool {
        let waited_all = self
            .state
            .wait
            .is_some_and(|wait| rules.is_last(wait.attempt) && wait.due <= now.as_micros());
        waited_all
            || self
                .oldest()
                .is_some_and(|at| at.after(rules.hold_for) <= now)
    }

    fn wait(&mut self, rules: &StreamRules, now: Time) -> Option<KeyEvent> {
        let Some((position, _)) = self.head() else {
            return self.end_wait_if_empty();
        };
        if self.state.drain_to <= self.watermark {
            self.state.drain_to = None;
        }
        if self.state.halted.is_some() || self.is_blocked(rules, now) {
            return None;
        }
        let attempt = match self.state.wait {
            None => 1,
            Some(wait) if wait.due <= now.as_micros() => {
                self.counts[StreamCounter::Rescheduling] += 1;
                wait.attempt + 1
            }
            Some(wait) => {
                // If the clock was set back, the wait is still no longer than its step.
                let latest = now.after(rules.wait(wait.attempt)).as_micros();
                self.state.wait = Some(GapWait {
                    due: wait.due.min(latest),
                    ..wait
                });
                return None;
            }
        };
        self.is_wait_over = false;
        let wait = GapWait {
            attempt,
            due: now.after(rules.wait(attempt)).as_micros(),
        };
        self.state.wait = Some(wait);
        Some(KeyEvent::Wait {
            position,
            until: self.find_wait_end(wait, rules),
            attempt,
        })
    }

    /// Ends the wait once the key holds nothing any more.
    fn end_wait_if_empty(&mut self) -> Option<KeyEvent> {
        if self.beyond > 0 || !self.state.ahead.is_empty() {
            return None;
        }
        let gave_up = self.state.drain_to.take().is_some();
        (self.state.wait, self.state.failing, self.is_wait_over) = (None, None, false);
        let held_some = std::mem::take(&mut self.has_held);
        if !held_some || gave_up {
            return None;
        }
        self.counts[StreamCounter::Cleared] += 1;
        Some(KeyEvent::Cleared {
            position: self.watermark.unwrap_or_default(),
        })
    }

    /// When a wait ends: at its due time, or earlier if a record has been held for `hold_for`.
    fn find_wait_end(&self, wait: GapWait, rules: &StreamRules) -> Time {
        let due = Time::from_micros(wait.due);
        self.oldest()
            .map_or(due, |at| due.min(at.after(rules.hold_for)))
    }

    fn oldest(&self) -> Option<Time> {
        self.held
            .values()
            .filter(|held| held.waits)
            .map(|held| held.at)
            .min()
    }
}
