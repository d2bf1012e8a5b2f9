//! The result of a handler call.

use super::KeyWindow;
use crate::limits::EVENT_REASON_CHARS_MAX;
use crate::retry::{RandomDraw, RetryDecision};
use crate::stream::call::HandlerCall;
use crate::stream::counts::StreamCounter;
use crate::stream::grid::OffStep;
use crate::stream::key_state::{FailingCall, OffStepRecord};
use crate::stream::rules::{DeadRecordPolicy, StreamRules};
use crate::time::{Span, Time};

/// What the window found out when a call succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallCompletion {
    /// The number of positions directly before the record that were declared missed.
    pub missing: u64,
    /// Set if the record is off the grid of its key. The grid then continues from this position.
    pub off_step: Option<OffStep>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedCallDecision {
    /// The key is blocked until the next attempt of the call.
    Retry {
        until: Time,
        /// The number of failed runs so far.
        attempt: u32,
    },
    /// The call failed for good: the caller writes a dead letter, and then calls
    /// [`KeyWindow::bury`].
    ForGood {
        /// The number of failed runs so far.
        attempt: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HandlerFailure<'a> {
    /// The wait that the handler itself asks for.
    pub requested_wait: Option<Span>,
    pub error: &'a str,
    /// A random draw, for the jitter of the wait.
    pub roll: RandomDraw,
}

impl KeyWindow {
    /// Records that the call succeeded.
    pub fn complete(&mut self, call: HandlerCall, now: Time) -> CallCompletion {
        match call {
            HandlerCall::Handle { .. } => self.counts[StreamCounter::Handled] += 1,
            HandlerCall::Amend { position } => {
                self.counts[StreamCounter::Late] += 1;
                self.state.note_late(position, now);
            }
            HandlerCall::Miss { .. } | HandlerCall::MissRange { .. } => {}
        }
        let done = self.pass(call);
        if let Some(place) = done.off_step {
            let (is_handled, at) = (true, now.as_micros());
            self.state.note_off_step(OffStepRecord {
                place,
                is_handled,
                at,
            });
        }
        done
    }

    pub fn fail(
        &mut self,
        call: HandlerCall,
        rules: &StreamRules,
        failure: HandlerFailure<'_>,
        now: Time,
    ) -> FailedCallDecision {
        self.counts[StreamCounter::Failures] += 1;
        let former = self.state.failing_at(call.position());
        let failures = former
            .map_or(0, |failing| failing.failures)
            .saturating_add(1);
        let age = former.map_or(Span::ZERO, |failing| {
            now.since(Time::from_micros(failing.since))
        });
        match rules.retry.next(failures, age, failure.roll) {
            RetryDecision::RetryAfter(wait) => {
                let until = now.after(failure.requested_wait.unwrap_or(wait));
                self.block(call, failures, until, failure.error, now);
                FailedCallDecision::Retry {
                    until,
                    attempt: failures,
                }
            }
            RetryDecision::AttemptsExhausted | RetryDecision::TooOld => {
                FailedCallDecision::ForGood { attempt: failures }
            }
        }
    }

    /// Postpones the call to `until`, as its handler asked. This is no failure.
    pub fn put_off(&mut self, call: HandlerCall, until: Time, now: Time) {
        let former = self.state.failing_at(call.position());
        let (failures, error) = former.map_or((0, String::new()), |former| {
            (former.failures, former.error.clone())
        });
        self.block(call, failures, until, &error, now);
    }

    /// Blocks the key until the next attempt of the call.
    fn block(&mut self, call: HandlerCall, failures: u32, until: Time, error: &str, now: Time) {
        let position = call.position();
        // A failing record waits like a record behind a gap.
        self.hold(position);
        let since = self
            .state
            .failing_at(position)
            .map_or(now.as_micros(), |failing| failing.since);
        let error = error.chars().take(EVENT_REASON_CHARS_MAX).collect();
        let (due, wait) = (until.as_micros(), Some(until.since(now).as_micros()));
        self.state.failing = Some(FailingCall {
            position,
            failures,
            due,
            wait,
            since,
            error,
        });
    }

    /// Records that the call failed for good and is a dead letter now.
    pub fn bury(&mut self, call: HandlerCall, rules: &StreamRules) {
        self.counts[StreamCounter::Dead] += 1;
        match rules.on_dead {
            DeadRecordPolicy::Skip => {
                self.pass(call);
            }
            DeadRecordPolicy::Halt => {
                self.hold(call.position());
                self.state.halted = Some(call.position());
            }
        }
    }

    /// Resumes a halted key, with the record at which it halted or with the next one. Returns
    /// whether the key was halted.
    pub fn resume(&mut self, halted_at: ResumeFrom) -> bool {
        let Some(position) = self.state.halted.take() else {
            return false;
        };
        self.state.failing = None;
        if halted_at == ResumeFrom::NextRecord {
            let behind = self
                .watermark
                .is_some_and(|watermark| position <= watermark);
            let call = if behind {
                HandlerCall::Amend { position }
            } else {
                HandlerCall::Handle { position }
            };
            self.pass(call);
        }
        true
    }

    /// Moves the key past the position or range of a call.
    fn pass(&mut self, call: HandlerCall) -> CallCompletion {
        if self.state.failing_at(call.position()).is_some() {
            self.state.failing = None;
        }
        let former = self.watermark;
        match call {
            HandlerCall::Handle { position } if self.is_unexamined(position) => {
                self.pass_separately(position);
            }
            HandlerCall::Handle { position } => return self.pass_record(position),
            HandlerCall::Amend { position } => {
                self.leave(position);
                self.state.missed.remove(position);
            }
            HandlerCall::Miss { position } => self.pass_missing(former, position, position, 1),
            HandlerCall::MissRange {
                position,
                to,
                count,
            } => self.pass_missing(former, position, to, count),
        }
        CallCompletion::default()
    }

    fn pass_record(&mut self, position: i64) -> CallCompletion {
        let step = self.held.get(&position).map(|held| held.step);
        let off_step =
            step.and_then(|step| OffStep::of(position, step, self.watermark, self.state.step));
        self.counts[StreamCounter::OffGrid] += u64::from(off_step.is_some());
        if self.watermark.is_none() {
            self.from = step.map(|step| (position, step));
        }
        self.leave(position);
        self.watermark = self.watermark.max(Some(position));
        self.state.step = step.or(self.state.step);
        // The key made progress, so the next gap gets a new wait.
        self.state.wait = None;
        CallCompletion {
            missing: std::mem::take(&mut self.state.gap),
            off_step,
        }
    }

    fn pass_missing(&mut self, former: Option<i64>, first: i64, last: i64, count: u64) {
        let step = former.map_or(1, |watermark| first - watermark);
        self.state.missed.add(first, step, count);
        self.state.gap += count;
        self.counts[StreamCounter::Misses] += count;
        self.watermark = self.watermark.max(Some(last));
    }

    /// Removes a held record, and counts that.
    pub(super) fn leave(&mut self, position: i64) {
        let Some(held) = self.held.remove(&position) else {
            return;
        };
        self.fresh.remove(&position);
        if held.waits {
            self.state.waiting = self.state.waiting.saturating_sub(1);
            self.counts[StreamCounter::Removed] += 1;
        } else if self.state.waiting > 0 {
            // The record arrived behind waiting records and left without waiting.
            self.counts[StreamCounter::Added] += 1;
            self.counts[StreamCounter::Removed] += 1;
        }
    }
}

/// Where a halted key resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResumeFrom {
    /// With the record at which it halted.
    SameRecord,
    NextRecord,
}
