//! The rules of a stream: how long it waits, how much it holds, and what it does with late records.

use super::rollout::Rollout;
use crate::limits::{DELAY_MAX, HELD_MAX, MISSES_MAX, WAITS_MAX};
use crate::retry::RetryPolicy;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// The rules of one stream.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamRules {
    /// The successive waits of a key with a gap; the key gives up at the end of the last one.
    pub steps: Vec<Span>,
    /// The number of held records at which a key gives up at once.
    pub max_held: u32,
    /// Misses of a gap that are reported one by one; the rest are reported as one range.
    pub max_misses: u32,
    /// The longest time that a key holds a record.
    pub hold_for: Span,
    /// When the records behind a filled gap are handled.
    pub drain: DrainMode,
    /// How the stream treats a record whose position was declared missed.
    pub late: LatePolicy,
    /// How a key treats a record that failed for good.
    pub on_dead: DeadRecordPolicy,
    /// The tenants for which the stream waits at gaps.
    pub rollout: Rollout,
    /// The retry policy of failing records.
    pub retry: RetryPolicy,
}

/// When the records behind a filled gap are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainMode {
    /// As soon as the missing record arrives.
    #[default]
    Immediate,
    /// At the end of the current wait of the key.
    Scheduled,
}

/// How the stream treats a record whose position was declared missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatePolicy {
    /// The stream drops and counts it.
    #[default]
    Drop,
    /// The handler gets it, as the correction of its miss.
    Amend,
}

/// How a key treats a record that failed for good. The record becomes a dead letter either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadRecordPolicy {
    #[default]
    Skip,
    /// The key handles nothing more until an operator acts.
    Halt,
}

/// Stream rules that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidStreamRules(String);

impl Default for StreamRules {
    fn default() -> Self {
        Self {
            steps: [10, 20, 30, 60, 60].map(Span::secs).to_vec(),
            max_held: 10,
            max_misses: 100,
            hold_for: Span::minutes(60),
            drain: DrainMode::default(),
            late: LatePolicy::default(),
            on_dead: DeadRecordPolicy::default(),
            rollout: Rollout::default(),
            retry: RetryPolicy::default(),
        }
    }
}

impl StreamRules {
    pub fn check(&self) -> Result<(), InvalidStreamRules> {
        let wrong = |problem: String| Err(InvalidStreamRules(problem));
        if self.steps.is_empty() || self.steps.len() > WAITS_MAX {
            return wrong(format!(
                "steps has {} waits; give 1 to {WAITS_MAX}",
                self.steps.len()
            ));
        }
        if let Some(step) = self
            .steps
            .iter()
            .find(|step| step.is_zero() || **step > DELAY_MAX)
        {
            return wrong(format!(
                "steps has a wait of {step}; give more than nothing and at most {DELAY_MAX}"
            ));
        }
        if self.max_held == 0 || self.max_held > HELD_MAX {
            return wrong(format!(
                "max_held is {}; give 1 to {HELD_MAX}",
                self.max_held
            ));
        }
        if self.max_misses > MISSES_MAX {
            return wrong(format!(
                "max_misses is {}; give 0 to {MISSES_MAX}",
                self.max_misses
            ));
        }
        if self.hold_for.is_zero() || self.hold_for > DELAY_MAX {
            return wrong(format!(
                "hold_for is {}; give more than nothing and at most {DELAY_MAX}",
                self.hold_for
            ));
        }
        if !(0.0..=100.0).contains(&self.rollout.percent) {
            return wrong(format!(
                "rollout.percent is {}; give 0 to 100",
                self.rollout.percent
            ));
        }
        Ok(())
    }

    /// The same rules without waiting: the stream handles every record at once, with misses. They
    /// apply while the store is down.
    #[must_use]
    pub fn without_waiting(&self) -> Self {
        let nobody = Rollout {
            percent: 0.0,
            include: Vec::new(),
            exclude: Vec::new(),
        };
        Self {
            rollout: nobody,
            drain: DrainMode::Immediate,
            ..self.clone()
        }
    }

    /// The wait number `attempt`, counted from 1.
    pub(super) fn wait(&self, attempt: u32) -> Span {
        let at = (attempt.max(1) as usize - 1).min(self.steps.len().saturating_sub(1));
        self.steps.get(at).copied().unwrap_or(Span::ZERO)
    }

    /// Whether wait number `attempt` is the last one.
    pub(super) fn is_last(&self, attempt: u32) -> bool {
        attempt as usize >= self.steps.len()
    }
}
