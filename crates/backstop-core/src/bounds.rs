//! How much a queue holds: live jobs, and dead ones.
//!
//! | a push finds | `reject` | `dead_letter_oldest` | `drop_oldest` |
//! |---|---|---|---|
//! | fewer live jobs than `max_size` | in | in | in |
//! | `max_size` of them | refused | in; the victim is dead, `overflow` | in; the victim is cancelled, `overflow` |
//! | no ready job among them, or no room for the dead one | refused | refused | refused, if none is ready |
//!
//! The victim is the first in line of the lowest level that has a ready job: the oldest of the
//! least urgent. Running jobs and jobs that wait for their time are never victims. A death that
//! finds `dead_max` dead letters is refused: the job stays with its worker, which gives it back.
//!
//! | an operator requeues, retries or moves an ended job, and its queue has | what becomes of it |
//! |---|---|
//! | fewer live jobs than `max_size` | ready |
//! | `max_size` of them | refused, whatever the overflow: it stays what it was |
//!
//! No job gives way to one that an operator brings back: with `dead_letter_oldest` each letter
//! would only be traded for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How many dead letters a queue holds, unless it is told otherwise.
pub const DEAD_MAX_DEFAULT: u64 = 10_000;

/// How much a queue holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBounds {
    /// Live jobs; `None` for no bound.
    pub max_size: Option<u64>,
    /// What gives way when it is full.
    pub overflow: Overflow,
    pub dead_max: u64,
}

impl Default for QueueBounds {
    fn default() -> Self {
        Self {
            max_size: None,
            overflow: Overflow::default(),
            dead_max: DEAD_MAX_DEFAULT,
        }
    }
}

/// The share of `max_size` from which on a queue is under pressure, in per cent.
const PRESSURE_PERCENT: u64 = 80;

impl QueueBounds {
    /// Whether so many live jobs are close to the bound, and somebody should know.
    pub fn is_under_pressure(&self, live: u64) -> bool {
        self.max_size
            .is_some_and(|max| live.saturating_mul(100) >= max.saturating_mul(PRESSURE_PERCENT))
    }
}

/// What gives way when a queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    #[default]
    Reject,
    /// The oldest ready job: it becomes a dead letter.
    DeadLetterOldest,
    /// The oldest ready job: it is cancelled.
    DropOldest,
}

impl Overflow {
    pub const ALL: [Self; 3] = [Self::Reject, Self::DeadLetterOldest, Self::DropOldest];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::DeadLetterOldest => "dead_letter_oldest",
            Self::DropOldest => "drop_oldest",
        }
    }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is no way to overflow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a way to overflow; use reject, dead_letter_oldest or drop_oldest")]
pub struct InvalidOverflow(String);

impl FromStr for Overflow {
    type Err = InvalidOverflow;

    fn from_str(text: &str) -> Result<Self, InvalidOverflow> {
        let found = Self::ALL
            .into_iter()
            .find(|overflow| overflow.as_str() == text);
        found.ok_or_else(|| InvalidOverflow(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_at_four_fifths() {
        let check = |max_size, live, expected| {
            let bounds = QueueBounds {
                max_size,
                ..QueueBounds::default()
            };
            assert_eq!(
                bounds.is_under_pressure(live),
                expected,
                "{live} of {max_size:?}"
            );
        };
        check(Some(10), 7, false);
        check(Some(10), 8, true);
        check(Some(10), 12, true);
        check(None, u64::MAX, false);
        check(Some(u64::MAX), 5, false);
    }

    #[test]
    fn words_read_back() {
        for overflow in Overflow::ALL {
            assert_eq!(overflow.as_str().parse(), Ok(overflow));
        }
        assert!("dlq".parse::<Overflow>().is_err());
    }
}
