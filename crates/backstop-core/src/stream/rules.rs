//! What a stream is told: how long to wait, how much to hold, what to do with what comes too late.

use super::rollout::Rollout;
use crate::limits::{DELAY_MAX, HELD_MAX, MISSES_MAX, WAITS_MAX};
use crate::retry::RetryPolicy;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What a stream is told.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamRules {
    /// The waits of a key with a gap, one after the other; it gives up at the end of the last.
    pub steps: Vec<Span>,
    /// Records a key holds before it gives up at once.
    pub max_held: u32,
    /// Misses of a gap that are told one by one; the others are told as one range.
    pub max_misses: u32,
    /// The longest any record is held.
    pub hold_for: Span,
    /// When a run that is complete is handled.
    pub drain: DrainMode,
    /// What becomes of a record that was declared missing.
    pub late: LatePolicy,
    /// What a key does about a record that failed for good.
    pub on_dead: DeadRecordPolicy,
    /// For whom the stream waits at all.
    pub rollout: Rollout,
    /// How often a failing record is tried again.
    pub retry: RetryPolicy,
}

/// When a run that is complete is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainMode {
    /// As soon as its missing record arrives.
    #[default]
    Immediate,
    /// When its key is looked at the next time.
    Scheduled,
}

/// What becomes of a record that was declared missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatePolicy {
    /// It is dropped and counted.
    #[default]
    Drop,
    /// The handler gets it as the correction of its miss.
    Amend,
}

/// What a key does about a record that failed for good. It is a dead letter either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadRecordPolicy {
    #[default]
    Skip,
    /// Handles nothing more until somebody acts.
    Halt,
}

/// Rules that make no sense.
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

    /// The same rules where nothing can be waited for: every record is handled at once, with
    /// misses.
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

    /// The wait number `attempt`, from 1 on.
    pub(super) fn wait(&self, attempt: u32) -> Span {
        let at = (attempt.max(1) as usize - 1).min(self.steps.len().saturating_sub(1));
        self.steps.get(at).copied().unwrap_or(Span::ZERO)
    }

    /// Whether there is no wait behind number `attempt`.
    pub(super) fn is_last(&self, attempt: u32) -> bool {
        attempt as usize >= self.steps.len()
    }
}
