//! What came of a call.

use super::Window;
use crate::limits::WHY_CHARS_MAX;
use crate::retry::{Next, Roll};
use crate::stream::call::Call;
use crate::stream::counts::Count;
use crate::stream::grid::OffStep;
use crate::stream::rules::{OnDead, Rules};
use crate::stream::standing::{Failing, OffStepRecord};
use crate::time::{Span, Time};

/// What a record's handling showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// How many positions right before it were declared missing.
    pub missing: u64,
    /// Where it was, if that was off the grid of its key, which goes on from it.
    pub off_step: Option<OffStep>,
}

/// What follows a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// The key is blocked until the call is tried again.
    Retry {
        /// When.
        until: Time,
        /// The how manieth run has failed.
        attempt: u32,
    },
    /// It failed for good: it is to become a dead letter, and then [`Window::buried`].
    ForGood {
        /// The how manieth run has failed.
        attempt: u32,
    },
}

/// How a call failed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Failure<'a> {
    /// How long the handler itself wants to wait.
    pub wish: Option<Span>,
    /// What it said.
    pub error: &'a str,
    /// A random draw, to spread the wait.
    pub roll: Roll,
}

impl Window {
    /// The call did what it should.
    pub fn done(&mut self, call: Call, now: Time) -> Done {
        match call {
            Call::Handle { .. } => self.counts[Count::Handled] += 1,
            Call::Amend { position } => {
                self.counts[Count::Late] += 1;
                self.standing.note_late(position, now);
            }
            Call::Miss { .. } | Call::MissRange { .. } => {}
        }
        let done = self.pass(call);
        if let Some(place) = done.off_step {
            let (is_handled, at) = (true, now.as_micros());
            self.standing.note_off_step(OffStepRecord {
                place,
                is_handled,
                at,
            });
        }
        done
    }

    /// The call failed.
    pub fn failed(&mut self, call: Call, rules: &Rules, failure: Failure<'_>, now: Time) -> Failed {
        self.counts[Count::Failures] += 1;
        let former = self.standing.failing_at(call.position());
        let failures = former
            .map_or(0, |failing| failing.failures)
            .saturating_add(1);
        let age = former.map_or(Span::ZERO, |failing| {
            now.since(Time::from_micros(failing.since))
        });
        match rules.retry.next(failures, age, failure.roll) {
            Next::In(wait) => {
                let until = now.after(failure.wish.unwrap_or(wait));
                self.block(call, failures, until, failure.error, now);
                Failed::Retry {
                    until,
                    attempt: failures,
                }
            }
            Next::AttemptsExhausted | Next::TooOld => Failed::ForGood { attempt: failures },
        }
    }

    /// The handler wants to be called again then; nothing went wrong.
    pub fn put_off(&mut self, call: Call, until: Time, now: Time) {
        let former = self.standing.failing_at(call.position());
        let (failures, error) = former.map_or((0, String::new()), |former| {
            (former.failures, former.error.clone())
        });
        self.block(call, failures, until, &error, now);
    }

    /// The key goes no further before the call was tried again.
    fn block(&mut self, call: Call, failures: u32, until: Time, error: &str, now: Time) {
        let position = call.position();
        // A failing record waits like one behind a gap does.
        self.hold(position);
        let since = self
            .standing
            .failing_at(position)
            .map_or(now.as_micros(), |failing| failing.since);
        let error = error.chars().take(WHY_CHARS_MAX).collect();
        let (due, wait) = (until.as_micros(), Some(until.since(now).as_micros()));
        self.standing.failing = Some(Failing {
            position,
            failures,
            due,
            wait,
            since,
            error,
        });
    }

    /// The call failed for good and is a dead letter.
    pub fn buried(&mut self, call: Call, rules: &Rules) {
        self.counts[Count::Dead] += 1;
        match rules.on_dead {
            OnDead::Skip => {
                self.pass(call);
            }
            OnDead::Halt => {
                self.hold(call.position());
                self.standing.halted = Some(call.position());
            }
        }
    }

    /// Sets a halted key going again, with the record it halted at or past it; whether it was
    /// halted.
    pub fn resume(&mut self, halted_at: Resume) -> bool {
        let Some(position) = self.standing.halted.take() else {
            return false;
        };
        self.standing.failing = None;
        if halted_at == Resume::Past {
            let behind = self
                .watermark
                .is_some_and(|watermark| position <= watermark);
            let call = if behind {
                Call::Amend { position }
            } else {
                Call::Handle { position }
            };
            self.pass(call);
        }
        true
    }

    /// The key goes past what the call was about.
    fn pass(&mut self, call: Call) -> Done {
        if self.standing.failing_at(call.position()).is_some() {
            self.standing.failing = None;
        }
        let former = self.watermark;
        match call {
            Call::Handle { position } if self.is_unlooked(position) => self.pass_apart(position),
            Call::Handle { position } => return self.pass_record(position),
            Call::Amend { position } => {
                self.leave(position);
                self.standing.missed.remove(position);
            }
            Call::Miss { position } => self.pass_missing(former, position, position, 1),
            Call::MissRange {
                position,
                to,
                count,
            } => self.pass_missing(former, position, to, count),
        }
        Done::default()
    }

    fn pass_record(&mut self, position: i64) -> Done {
        let step = self.held.get(&position).map(|held| held.step);
        let off_step =
            step.and_then(|step| OffStep::of(position, step, self.watermark, self.standing.step));
        self.counts[Count::OffGrid] += u64::from(off_step.is_some());
        if self.watermark.is_none() {
            self.from = step.map(|step| (position, step));
        }
        self.leave(position);
        self.watermark = self.watermark.max(Some(position));
        self.standing.step = step.or(self.standing.step);
        // Progress: the next gap has a wait of its own.
        self.standing.wait = None;
        Done {
            missing: std::mem::take(&mut self.standing.gap),
            off_step,
        }
    }

    fn pass_missing(&mut self, former: Option<i64>, first: i64, last: i64, count: u64) {
        let step = former.map_or(1, |watermark| first - watermark);
        self.standing.missed.add(first, step, count);
        self.standing.gap += count;
        self.counts[Count::Misses] += count;
        self.watermark = self.watermark.max(Some(last));
    }

    /// A record leaves the hold.
    pub(super) fn leave(&mut self, position: i64) {
        let Some(held) = self.held.remove(&position) else {
            return;
        };
        self.fresh.remove(&position);
        if held.waits {
            self.standing.waiting = self.standing.waiting.saturating_sub(1);
            self.counts[Count::Removed] += 1;
        } else if self.standing.waiting > 0 {
            // It came in behind others that wait, and went on at once.
            self.counts[Count::Added] += 1;
            self.counts[Count::Removed] += 1;
        }
    }
}

/// Where a halted key goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// With the record it halted at.
    Again,
    /// Past it.
    Past,
}
