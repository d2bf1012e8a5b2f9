//! Replays a stream on virtual time. A replay uses the rules of a live stream, without a store, a
//! handler or a clock.
//!
//! Input lines are ordered by time. Whatever is due at the time of a line happens before that line.
//! After the last line, time runs on until nothing is pending.

mod effect;
mod line;

pub use effect::{ReplayEffect, ReplaySummary};
pub use line::{InvalidReplayLine, ReplayEvent, ReplayLine};

use super::call::{KeyEvent, KeyStep};
use super::counts::{StreamCounter, StreamCounts};
use super::grid::OffStep;
use super::record::Record;
use super::rules::StreamRules;
use super::window::{FailedCallDecision, HandlerFailure, KeyWindow};
use crate::name::StreamKey;
use crate::retry::RandomDraw;
use crate::time::Time;
use std::collections::BTreeMap;

/// A stream that runs on virtual time.
#[derive(Debug)]
pub struct Replay {
    rules: StreamRules,
    no_wait_rules: StreamRules,
    keys: BTreeMap<StreamKey, ReplayKey>,
    /// How many more times the handler will fail for a record.
    fails: BTreeMap<(StreamKey, i64), u32>,
    is_down: bool,
    now: Time,
    effects: Vec<ReplayEffect>,
}

#[derive(Debug)]
struct ReplayKey {
    window: KeyWindow,
    /// The offline copy of the window, while the store is down.
    offline: Option<KeyWindow>,
}

impl Replay {
    /// A replay that starts with an empty stream.
    pub fn new(rules: StreamRules) -> Self {
        Self {
            no_wait_rules: rules.without_waiting(),
            rules,
            keys: BTreeMap::new(),
            fails: BTreeMap::new(),
            is_down: false,
            now: Time::from_micros(i64::MIN),
            effects: Vec::new(),
        }
    }

    /// Plays one line. Returns everything that happens up to its time, and because of it.
    pub fn play(&mut self, line: ReplayLine) -> Result<Vec<ReplayEffect>, InvalidReplayLine> {
        if line.at < self.now {
            return Err(InvalidReplayLine::OutOfOrder {
                at_ms: line.at.as_millis(),
                after_ms: self.now.as_millis(),
            });
        }
        self.run_until(line.at);
        self.now = line.at;
        match line.event {
            ReplayEvent::Record { record, fail } => self.record(record, fail),
            ReplayEvent::Forget(key) => self.forget(&key, false),
            ReplayEvent::Disable(key) => self.forget(&key, true),
            ReplayEvent::Enable(key) => {
                self.key_mut(&key).window.forget(false);
            }
            ReplayEvent::StoreDown => self.is_down = true,
            ReplayEvent::StoreUp => self.store_up(),
        }
        Ok(std::mem::take(&mut self.effects))
    }

    /// Lets time run on until nothing is pending.
    pub fn finish(&mut self) -> (Vec<ReplayEffect>, ReplaySummary) {
        self.run_until(Time::from_micros(i64::MAX));
        (std::mem::take(&mut self.effects), self.summary())
    }

    fn record(&mut self, record: Record, fail: u32) {
        let (key, position) = (record.key.clone(), record.position);
        if fail > 0 {
            self.fails.insert((key.clone(), position), fail);
        }
        let now = self.now;
        let is_down = self.is_down;
        let window = self.key_mut(&key).current(is_down);
        window.arrive([record], now);
        if is_down {
            window.count(StreamCounter::StoreFailures);
        }
        self.step(&key);
    }

    fn key_mut(&mut self, key: &StreamKey) -> &mut ReplayKey {
        let fresh = || ReplayKey {
            window: KeyWindow::new(key.clone()),
            offline: None,
        };
        self.keys.entry(key.clone()).or_insert_with(fresh)
    }

    fn forget(&mut self, key: &StreamKey, disabled: bool) {
        let lane = self.key_mut(key);
        let position = lane.watermark();
        if let Some(meanwhile) = lane.offline.take() {
            lane.window.catch_up(meanwhile);
        }
        let count = lane.window.forget(disabled);
        self.push_effect(key, "forgotten", position, |effect| {
            effect.count = Some(count);
        });
    }

    fn store_up(&mut self) {
        self.is_down = false;
        for lane in self.keys.values_mut() {
            if let Some(meanwhile) = lane.offline.take() {
                lane.window.catch_up(meanwhile);
            }
        }
        for key in self.keys.keys().cloned().collect::<Vec<_>>() {
            self.step(&key);
        }
    }

    /// Moves from one wake-up to the next, up to and including `end`.
    fn run_until(&mut self, end: Time) {
        while let Some((at, key)) = self.next_wake().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.step(&key);
        }
    }

    fn next_wake(&self) -> Option<(Time, StreamKey)> {
        let wakes = self.keys.iter().filter_map(|(key, lane)| {
            let (window, rules) = match (&lane.offline, self.is_down) {
                (Some(meanwhile), true) => (meanwhile, &self.no_wait_rules),
                // Wake-ups are in the store, which is down.
                (None, true) => return None,
                (_, false) => (&lane.window, &self.rules),
            };
            window.wake(rules, self.now).map(|at| (at, key))
        });
        wakes.min().map(|(at, key)| (at, key.clone()))
    }

    /// Performs all steps of a key that are due.
    fn step(&mut self, key: &StreamKey) {
        loop {
            let (is_down, now) = (self.is_down, self.now);
            let rules = if is_down {
                &self.no_wait_rules
            } else {
                &self.rules
            };
            let Some(lane) = self.keys.get_mut(key) else {
                return;
            };
            let window = lane.current(is_down);
            match window.next(rules, now) {
                None => return,
                Some(KeyStep::Event(note)) => self.push_event(key, note),
                Some(KeyStep::Call(call)) => {
                    let left = self
                        .fails
                        .get_mut(&(key.clone(), call.position()))
                        .filter(|left| **left > 0);
                    let Some(left) = left else {
                        let done = window.complete(call, now);
                        self.push_call(key, call, done.off_step);
                        continue;
                    };
                    *left -= 1;
                    let position = call.position();
                    let failure = HandlerFailure {
                        requested_wait: None,
                        error: "the script says so",
                        roll: RandomDraw::LOWEST,
                    };
                    match window.fail(call, rules, failure, now) {
                        FailedCallDecision::Retry { until, attempt } => {
                            self.push_wait(key, position, until, attempt);
                        }
                        FailedCallDecision::ForGood { .. } => {
                            window.bury(call, rules);
                            self.push_effect(key, "dead", Some(position), |_| {});
                        }
                    }
                }
            }
        }
    }

    fn push_call(&mut self, key: &StreamKey, call: super::HandlerCall, off_grid: Option<OffStep>) {
        self.push_effect(key, call.as_str(), Some(call.position()), |effect| {
            effect.off_grid = off_grid;
            if let super::HandlerCall::MissRange { to, count, .. } = call {
                (effect.to, effect.count) = (Some(to), Some(count));
            }
        });
    }

    fn push_event(&mut self, key: &StreamKey, note: KeyEvent) {
        let (word, position) = match note {
            KeyEvent::Duplicate { position, off_step } => {
                return self.push_effect(key, "duplicate", Some(position), |effect| {
                    effect.off_step = off_step;
                });
            }
            KeyEvent::Late { position } => ("late", position),
            KeyEvent::Held { position } => ("held", position),
            KeyEvent::Overflow { position } => ("overflow", position),
            KeyEvent::Timeout { position } => ("timeout", position),
            KeyEvent::Cleared { position } => ("cleared", position),
            KeyEvent::Wait {
                position,
                until,
                attempt,
            } => return self.push_wait(key, position, until, attempt),
            // The window has counted it; there is no effect to show.
            KeyEvent::Ignored { .. } => return,
        };
        self.push_effect(key, word, Some(position), |_| {});
    }

    fn push_wait(&mut self, key: &StreamKey, position: i64, until: Time, attempt: u32) {
        self.push_effect(key, "wait", Some(position), |effect| {
            (effect.until_ms, effect.attempt) = (Some(until.as_millis()), Some(attempt));
        });
    }

    fn push_effect(
        &mut self,
        key: &StreamKey,
        word: &'static str,
        position: Option<i64>,
        more: impl FnOnce(&mut ReplayEffect),
    ) {
        let mut effect = ReplayEffect::new(self.now, key.clone(), word, position);
        more(&mut effect);
        self.effects.push(effect);
    }

    fn summary(&self) -> ReplaySummary {
        let mut counts = StreamCounts::default();
        for lane in self.keys.values() {
            counts.add(lane.window.counts());
            if let Some(meanwhile) = &lane.offline {
                counts.add(meanwhile.counts());
            }
        }
        let watermarks = self
            .keys
            .iter()
            .filter_map(|(key, lane)| Some((key.clone(), lane.watermark()?)));
        ReplaySummary::new(&counts, watermarks.collect())
    }
}

impl ReplayKey {
    /// The window that decides now: the regular one, or its offline copy while the store is down.
    fn current(&mut self, is_down: bool) -> &mut KeyWindow {
        if !is_down {
            return &mut self.window;
        }
        let window = &self.window;
        self.offline.get_or_insert_with(|| window.offline_copy())
    }

    fn watermark(&self) -> Option<i64> {
        let meanwhile = self.offline.as_ref().and_then(KeyWindow::watermark);
        self.window.watermark().max(meanwhile)
    }
}
