//! How many jobs a queue holds: live jobs and dead letters.
//!
//! | a push finds | `reject` | `dead_letter_oldest` | `drop_oldest` |
//! |---|---|---|---|
//! | fewer live jobs than `max_size` | inserted | inserted | inserted |
//! | `max_size` live jobs | refused | inserted; victim dead | inserted; victim cancelled |
//! | the same, but no job is ready | refused | refused | refused |
//! | the same, but no room for a dead letter | refused | refused | inserted; victim cancelled |
//!
//! The victim is the oldest ready job of the lowest priority that has one. It ends with the reason
//! `overflow`. Running jobs and jobs that wait until they are due are never victims. If the queue
//! has `dead_max` dead letters, the store refuses the death of a running job: the job stays with
//! its worker, which gives it back.
//!
//! | an operator requeues, retries or moves an ended job, and its queue has | the job |
//! |---|---|
//! | fewer live jobs than `max_size` | becomes ready |
//! | `max_size` live jobs | is refused, whatever the overflow, and stays as it was |
//!
//! No job makes room for one that an operator brings back: `dead_letter_oldest` would only trade
//! one dead letter for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The number of dead letters that a queue holds by default.
pub const DEAD_MAX_DEFAULT: u64 = 10_000;

/// The bounds of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBounds {
    /// The maximum number of live jobs; `None` for no bound.
    pub max_size: Option<u64>,
    /// What a push to the full queue does.
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

/// A queue with this share of `max_size`, in per cent, is under pressure.
const PRESSURE_PERCENT: u64 = 80;

impl QueueBounds {
    /// Whether `live` jobs are so close to the bound that the user should know.
    pub fn is_under_pressure(&self, live: u64) -> bool {
        self.max_size
            .is_some_and(|max| live.saturating_mul(100) >= max.saturating_mul(PRESSURE_PERCENT))
    }
}

/// What a push to a full queue does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    #[default]
    Reject,
    /// The oldest ready job becomes a dead letter.
    DeadLetterOldest,
    /// The oldest ready job is cancelled.
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

/// Text that is not an overflow.
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
