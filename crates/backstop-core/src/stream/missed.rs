//! The positions of a key that were declared missed.

use crate::limits::MISSED_RUNS_MAX;
use serde::{Deserialize, Serialize};

/// The positions declared missed, as runs of equal steps, the oldest run first. The number of runs
/// is bounded: the oldest run is forgotten first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MissedPositions(Vec<PositionRange>);

/// `count` positions from `first` on, `step` apart. Serialized as three numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(i64, i64, u64)", into = "(i64, i64, u64)")]
struct PositionRange {
    first: i64,
    step: i64,
    count: u64,
}

impl From<(i64, i64, u64)> for PositionRange {
    fn from((first, step, count): (i64, i64, u64)) -> Self {
        Self {
            first,
            step: step.max(1),
            count,
        }
    }
}

impl From<PositionRange> for (i64, i64, u64) {
    fn from(run: PositionRange) -> Self {
        (run.first, run.step, run.count)
    }
}

impl PositionRange {
    /// The position `nth` steps after the first. It cannot overflow, because `nth` is at most the
    /// number of positions in a gap between two positions.
    fn nth(&self, nth: u64) -> i64 {
        self.first
            .saturating_add(self.step.saturating_mul(nth.cast_signed()))
    }

    /// The number of steps from the first position to this one, if the run contains it.
    fn rank(&self, position: i64) -> Option<u64> {
        let distance = position.checked_sub(self.first)?;
        let rank = u64::try_from(distance / self.step).ok()?;
        (distance >= 0 && distance % self.step == 0 && rank < self.count).then_some(rank)
    }
}

impl MissedPositions {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this position was declared missed.
    pub fn contains(&self, position: i64) -> bool {
        self.0.iter().any(|run| run.rank(position).is_some())
    }

    /// The first position, step and count of each run, the oldest run first.
    pub fn runs(&self) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
        self.0.iter().map(|run| (*run).into())
    }

    /// Declares `count` positions from `first` on as missed.
    pub fn add(&mut self, first: i64, step: i64, count: u64) {
        match self.0.last_mut() {
            Some(last) if last.step == step && last.nth(last.count) == first => last.count += count,
            _ => self.0.push(PositionRange { first, step, count }),
        }
        self.forget_oldest();
    }

    /// Removes a position whose record has arrived after all.
    pub fn remove(&mut self, position: i64) {
        let found = self
            .0
            .iter()
            .enumerate()
            .find_map(|(at, run)| Some((at, run.rank(position)?)));
        let Some((at, rank)) = found else { return };
        let run = self.0[at];
        let before = PositionRange { count: rank, ..run };
        let behind = PositionRange {
            first: run.nth(rank + 1),
            count: run.count - rank - 1,
            ..run
        };
        self.0.splice(
            at..=at,
            [before, behind].into_iter().filter(|part| part.count > 0),
        );
        self.forget_oldest();
    }

    /// Adds the missed positions of another copy of the key.
    pub fn merge(&mut self, other: &Self) {
        for run in &other.0 {
            let is_known =
                self.contains(run.first) && self.contains(run.nth(run.count.saturating_sub(1)));
            if !is_known {
                self.0.push(*run);
            }
        }
        self.0.sort_by_key(|run| run.first);
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        let excess = self.0.len().saturating_sub(MISSED_RUNS_MAX);
        self.0.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn misses_in_a_row_are_one_run() {
        let mut missed = MissedPositions::default();
        for position in [10, 20, 30, 50] {
            missed.add(position, 10, 1);
        }
        assert_eq!(
            missed.runs().collect::<Vec<_>>(),
            [(10, 10, 3), (50, 10, 1)]
        );
        missed.remove(20);
        assert_eq!(
            missed.runs().collect::<Vec<_>>(),
            [(10, 10, 1), (30, 10, 1), (50, 10, 1)]
        );
    }

    #[test]
    fn the_oldest_run_is_forgotten_first() {
        let mut missed = MissedPositions::default();
        let runs = i64::try_from(MISSED_RUNS_MAX).unwrap();
        for n in 0..=runs {
            missed.add(n * 100, 10, 2);
        }
        assert!(!missed.contains(0) && missed.contains(100) && missed.contains(runs * 100));
    }

    #[test]
    fn a_run_at_the_end_of_numbers_does_not_overflow() {
        let mut missed = MissedPositions::default();
        missed.add(i64::MAX - 1, 1, 1);
        assert!(!missed.contains(i64::MIN) && missed.contains(i64::MAX - 1));
    }

    proptest! {
        #[test]
        fn it_is_a_set(gaps in prop::collection::vec((1_i64..5, 1_u64..6, 1_i64..4), 0..30), taken in prop::collection::vec(0_i64..300, 0..60)) {
            let (mut missed, mut model, mut at) = (MissedPositions::default(), BTreeSet::new(), 0);
            for (distance, count, step) in gaps {
                at += distance;
                missed.add(at, step, count);
                model.extend((0..count.cast_signed()).map(|n| at + n * step));
                at += count.cast_signed() * step;
            }
            for position in taken {
                missed.remove(position);
                model.remove(&position);
            }
            prop_assert_eq!((0..400).filter(|p| missed.contains(*p)).collect::<BTreeSet<_>>(), model);
        }
    }
}
