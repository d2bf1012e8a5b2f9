//! A stream on virtual time: the rules of a live one, without a store, a handler or a clock.
//!
//! Lines come in the order of their time. What is due at a line's own time comes before it. After
//! the last line time runs on until nothing is pending.

mod line;
mod told;

pub use line::{BadLine, Event, Line};
pub use told::{Effect, Summary};

use super::call::{Note, Step};
use super::counts::{Count, Counts};
use super::grid::OffStep;
use super::record::Record;
use super::rules::Rules;
use super::window::{Failed, Failure, Window};
use crate::name::StreamKey;
use crate::retry::Roll;
use crate::time::Time;
use std::collections::BTreeMap;

/// A stream on virtual time.
#[derive(Debug)]
pub struct Replay {
    rules: Rules,
    at_once: Rules,
    lanes: BTreeMap<StreamKey, Lane>,
    /// How often the handler is still to fail.
    fails: BTreeMap<(StreamKey, i64), u32>,
    is_down: bool,
    now: Time,
    effects: Vec<Effect>,
}

/// One key.
#[derive(Debug)]
struct Lane {
    window: Window,
    /// How it goes on while the store is down.
    meanwhile: Option<Window>,
}

impl Replay {
    /// A stream with nothing in it.
    pub fn new(rules: Rules) -> Self {
        Self {
            at_once: rules.at_once(),
            rules,
            lanes: BTreeMap::new(),
            fails: BTreeMap::new(),
            is_down: false,
            now: Time::from_micros(i64::MIN),
            effects: Vec::new(),
        }
    }

    /// Takes in a line and answers with all that happens up to it and because of it.
    pub fn play(&mut self, line: Line) -> Result<Vec<Effect>, BadLine> {
        if line.at < self.now {
            return Err(BadLine::OutOfOrder {
                at_ms: line.at.as_millis(),
                after_ms: self.now.as_millis(),
            });
        }
        self.run_until(line.at);
        self.now = line.at;
        match line.event {
            Event::Record { record, fail } => self.record(record, fail),
            Event::Forget(key) => self.forget(&key, false),
            Event::Disable(key) => self.forget(&key, true),
            Event::Enable(key) => {
                self.lane(&key).window.forget(false);
            }
            Event::StoreDown => self.is_down = true,
            Event::StoreUp => self.store_up(),
        }
        Ok(std::mem::take(&mut self.effects))
    }

    /// Lets time run on until nothing is pending.
    pub fn finish(&mut self) -> (Vec<Effect>, Summary) {
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
        let window = self.lane(&key).current(is_down);
        window.arrive([record], now);
        if is_down {
            window.count(Count::StoreFailures);
        }
        self.step(&key);
    }

    fn lane(&mut self, key: &StreamKey) -> &mut Lane {
        let fresh = || Lane {
            window: Window::new(key.clone()),
            meanwhile: None,
        };
        self.lanes.entry(key.clone()).or_insert_with(fresh)
    }

    fn forget(&mut self, key: &StreamKey, disabled: bool) {
        let lane = self.lane(key);
        let position = lane.watermark();
        if let Some(meanwhile) = lane.meanwhile.take() {
            lane.window.catch_up(meanwhile);
        }
        let count = lane.window.forget(disabled);
        self.tell(key, "forgotten", position, |effect| {
            effect.count = Some(count);
        });
    }

    fn store_up(&mut self) {
        self.is_down = false;
        for lane in self.lanes.values_mut() {
            if let Some(meanwhile) = lane.meanwhile.take() {
                lane.window.catch_up(meanwhile);
            }
        }
        for key in self.lanes.keys().cloned().collect::<Vec<_>>() {
            self.step(&key);
        }
    }

    /// Goes from one wake-up to the next, up to `end` and including it.
    fn run_until(&mut self, end: Time) {
        while let Some((at, key)) = self.next_wake().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.step(&key);
        }
    }

    fn next_wake(&self) -> Option<(Time, StreamKey)> {
        let wakes = self.lanes.iter().filter_map(|(key, lane)| {
            let (window, rules) = match (&lane.meanwhile, self.is_down) {
                (Some(meanwhile), true) => (meanwhile, &self.at_once),
                // The wake-ups are in the store.
                (None, true) => return None,
                (_, false) => (&lane.window, &self.rules),
            };
            window.wake(rules, self.now).map(|at| (at, key))
        });
        wakes.min().map(|(at, key)| (at, key.clone()))
    }

    /// Does all that follows for a key.
    fn step(&mut self, key: &StreamKey) {
        loop {
            let (is_down, now) = (self.is_down, self.now);
            let rules = if is_down { &self.at_once } else { &self.rules };
            let Some(lane) = self.lanes.get_mut(key) else {
                return;
            };
            let window = lane.current(is_down);
            match window.next(rules, now) {
                None => return,
                Some(Step::Note(note)) => self.tell_note(key, note),
                Some(Step::Call(call)) => {
                    let left = self
                        .fails
                        .get_mut(&(key.clone(), call.position()))
                        .filter(|left| **left > 0);
                    let Some(left) = left else {
                        let done = window.done(call, now);
                        self.tell_call(key, call, done.off_step);
                        continue;
                    };
                    *left -= 1;
                    let position = call.position();
                    let failure = Failure {
                        wish: None,
                        error: "the script says so",
                        roll: Roll::LOWEST,
                    };
                    match window.failed(call, rules, failure, now) {
                        Failed::Retry { until, attempt } => {
                            self.tell_wait(key, position, until, attempt);
                        }
                        Failed::ForGood { .. } => {
                            window.buried(call, rules);
                            self.tell(key, "dead", Some(position), |_| {});
                        }
                    }
                }
            }
        }
    }

    fn tell_call(&mut self, key: &StreamKey, call: super::Call, off_grid: Option<OffStep>) {
        self.tell(key, call.as_str(), Some(call.position()), |effect| {
            effect.off_grid = off_grid;
            if let super::Call::MissRange { to, count, .. } = call {
                (effect.to, effect.count) = (Some(to), Some(count));
            }
        });
    }

    fn tell_note(&mut self, key: &StreamKey, note: Note) {
        let (word, position) = match note {
            Note::Duplicate { position, off_step } => {
                return self.tell(key, "duplicate", Some(position), |effect| {
                    effect.off_step = off_step;
                });
            }
            Note::Late { position } => ("late", position),
            Note::Held { position } => ("held", position),
            Note::Overflow { position } => ("overflow", position),
            Note::Timeout { position } => ("timeout", position),
            Note::Cleared { position } => ("cleared", position),
            Note::Wait {
                position,
                until,
                attempt,
            } => return self.tell_wait(key, position, until, attempt),
            // It is counted; nothing happens to it.
            Note::Ignored { .. } => return,
        };
        self.tell(key, word, Some(position), |_| {});
    }

    fn tell_wait(&mut self, key: &StreamKey, position: i64, until: Time, attempt: u32) {
        self.tell(key, "wait", Some(position), |effect| {
            (effect.until_ms, effect.attempt) = (Some(until.as_millis()), Some(attempt));
        });
    }

    fn tell(
        &mut self,
        key: &StreamKey,
        word: &'static str,
        position: Option<i64>,
        more: impl FnOnce(&mut Effect),
    ) {
        let mut effect = Effect::new(self.now, key.clone(), word, position);
        more(&mut effect);
        self.effects.push(effect);
    }

    fn summary(&self) -> Summary {
        let mut counts = Counts::default();
        for lane in self.lanes.values() {
            counts.add(lane.window.counts());
            if let Some(meanwhile) = &lane.meanwhile {
                counts.add(meanwhile.counts());
            }
        }
        let watermarks = self
            .lanes
            .iter()
            .filter_map(|(key, lane)| Some((key.clone(), lane.watermark()?)));
        Summary::new(&counts, watermarks.collect())
    }
}

impl Lane {
    /// What decides now: the window in the store, or the one that goes on without it.
    fn current(&mut self, is_down: bool) -> &mut Window {
        if !is_down {
            return &mut self.window;
        }
        let window = &self.window;
        self.meanwhile.get_or_insert_with(|| window.without_store())
    }

    fn watermark(&self) -> Option<i64> {
        let meanwhile = self.meanwhile.as_ref().and_then(Window::watermark);
        self.window.watermark().max(meanwhile)
    }
}
