//! The grid of a key: the positions that are a whole number of steps away from its watermark.
//!
//! | the key | a record with | is |
//! |---|---|---|
//! | has handled nothing | any position | on the grid: it is the baseline |
//! | handled a record of another step last | any position | on the grid: no grid of that step is known |
//! | handled a record of the same step last | a position a whole number of steps before or after the watermark | on the grid |
//! | | any other position before the watermark | off the grid: a duplicate, though the handler may never have seen it |
//! | | any other position after the watermark | off the grid: handled in its turn, and the grid continues from it |

use serde::{Deserialize, Serialize};
use std::fmt;

/// A position that is off the grid of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffStep {
    pub position: i64,
    /// The step of the record and of its key.
    pub step: i64,
    /// The watermark from which the steps are counted.
    pub from: i64,
}

impl OffStep {
    /// Returns the off-grid position of a record, or `None` if it is on the grid. `watermark` and
    /// `last_step` are those of its key.
    pub fn of(
        position: i64,
        step: i64,
        watermark: Option<i64>,
        last_step: Option<i64>,
    ) -> Option<Self> {
        let from = watermark?;
        let is_known = last_step == Some(step) && step > 0;
        // The distance between two positions may exceed an `i64`.
        let is_off = is_known && (i128::from(position) - i128::from(from)) % i128::from(step) != 0;
        is_off.then_some(Self {
            position,
            step,
            from,
        })
    }
}

impl fmt::Display for OffStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position,
            step,
            from,
        } = self;
        write!(f, "{position} is not on the step of {step} from {from}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        position: i64,
        step: i64,
        watermark: Option<i64>,
        last_step: Option<i64>,
        is_off: bool,
    ) {
        let off = OffStep::of(position, step, watermark, last_step);
        assert_eq!(
            off.is_some(),
            is_off,
            "{position} by {step} from {watermark:?} by {last_step:?}"
        );
    }

    #[test]
    fn whole_steps_from_the_watermark_are_on_the_grid() {
        for steps in -3..=3 {
            check(
                60_000 + steps * 300_000,
                300_000,
                Some(60_000),
                Some(300_000),
                false,
            );
        }
        for position in [180_000, 60_001, 59_999, -180_000] {
            check(position, 300_000, Some(60_000), Some(300_000), true);
        }
        check(i64::MAX, 2, Some(i64::MIN), Some(2), true);
    }

    #[test]
    fn without_a_record_of_the_same_step_there_is_no_grid() {
        check(180_000, 300_000, None, None, false);
        check(180_000, 300_000, Some(60_000), None, false);
        check(180_000, 300_000, Some(60_000), Some(60_000), false);
    }

    #[test]
    fn it_says_what_the_position_is_not_on() {
        let off = OffStep {
            position: 180_000,
            step: 300_000,
            from: 60_000,
        };
        assert_eq!(
            off.to_string(),
            "180000 is not on the step of 300000 from 60000"
        );
    }
}
