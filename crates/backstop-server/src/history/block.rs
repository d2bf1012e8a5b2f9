//! Rows of an hour or a day in one cell, and how minutes become ten minutes.

use backstop_core::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The numbers of one moment.
pub(super) type SampleValues = Vec<u64>;

/// How far rows are apart, and how many share a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum HistoryResolution {
    /// A row a minute, an hour in a cell.
    Minute,
    /// A row every ten minutes, a day in a cell.
    TenMinutes,
}

impl HistoryResolution {
    /// How far rows are apart.
    pub(super) const fn step(self) -> Span {
        match self {
            Self::Minute => Span::minutes(1),
            Self::TenMinutes => Span::minutes(10),
        }
    }

    /// How long a cell is.
    pub(super) const fn block(self) -> Span {
        match self {
            Self::Minute => Span::hours(1),
            Self::TenMinutes => Span::days(1),
        }
    }

    /// How long rows are kept.
    pub(super) const fn kept_for(self) -> Span {
        match self {
            Self::Minute => Span::hours(25),
            Self::TenMinutes => Span::days(7),
        }
    }

    /// Where its cells are: the names of older ones come first.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Minute => "history/m/",
            Self::TenMinutes => "history/t/",
        }
    }

    /// The last moment at or before `time` that may have a row.
    pub(super) const fn floor(self, time: Time) -> Time {
        floor(time, self.step())
    }

    /// Which block a moment falls into, counted from 1970 on.
    pub(super) const fn block_of(self, time: Time) -> i64 {
        time.as_micros().div_euclid(self.block().as_micros())
    }

    /// Which row of its block a moment has.
    pub(super) const fn slot_of(self, time: Time) -> i64 {
        time.as_micros().rem_euclid(self.block().as_micros()) / self.step().as_micros()
    }

    /// The moment of a row.
    pub(super) const fn time_of(self, block: i64, slot: i64) -> Time {
        let start = block.saturating_mul(self.block().as_micros());
        Time::from_micros(start.saturating_add(slot.saturating_mul(self.step().as_micros())))
    }
}

/// The last multiple of `step` at or before `time`.
pub(super) const fn floor(time: Time, step: Span) -> Time {
    Time::from_micros(time.as_micros() - time.as_micros().rem_euclid(step.as_micros()))
}

/// The rows of a cell. Written as what changed from row to row: an idle queue takes a few bytes.
///
/// With ten numbers of at most twenty digits a day of ten minutes takes 31 KB: it always fits into
/// a cell.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Vec<i64>>", into = "Vec<Vec<i64>>")]
pub(super) struct HistoryBlock(BTreeMap<i64, SampleValues>);

impl HistoryBlock {
    /// Writes a row where there is none; whether it counts.
    pub(super) fn enter(&mut self, slot: i64, row: SampleValues) -> bool {
        let is_free = !self.0.contains_key(&slot);
        if is_free {
            self.0.insert(slot, row);
        }
        is_free
    }

    /// Whether a row is there.
    pub(super) fn has(&self, slot: i64) -> bool {
        self.0.contains_key(&slot)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (i64, &SampleValues)> {
        self.0.iter().map(|(slot, row)| (*slot, row))
    }
}

impl From<HistoryBlock> for Vec<Vec<i64>> {
    fn from(block: HistoryBlock) -> Self {
        let mut before: SampleValues = Vec::new();
        let mut lines = Self::with_capacity(block.0.len());
        for (slot, row) in block.0 {
            let known = |at: usize| before.get(at).copied().unwrap_or_default();
            let changes = row
                .iter()
                .enumerate()
                .map(|(at, number)| number.wrapping_sub(known(at)).cast_signed());
            lines.push([slot].into_iter().chain(changes).collect());
            before = row;
        }
        lines
    }
}

impl From<Vec<Vec<i64>>> for HistoryBlock {
    fn from(lines: Vec<Vec<i64>>) -> Self {
        let mut before: SampleValues = Vec::new();
        let mut rows = BTreeMap::new();
        for line in lines {
            let Some((slot, changes)) = line.split_first() else {
                continue;
            };
            let known = |at: usize| before.get(at).copied().unwrap_or_default();
            let row: SampleValues = changes
                .iter()
                .enumerate()
                .map(|(at, change)| known(at).wrapping_add(change.cast_unsigned()))
                .collect();
            before.clone_from(&row);
            rows.insert(*slot, row);
        }
        Self(rows)
    }
}

/// Rows of a while as one: of what only grows the last, of what goes up and down the highest, so
/// that a peak between two looks at a week can still be seen. `None` of none.
pub(super) fn merge_rows<'a>(
    rows: impl IntoIterator<Item = &'a SampleValues>,
    counts: usize,
) -> Option<SampleValues> {
    rows.into_iter().cloned().reduce(|before, row| {
        let merged = row.iter().enumerate().map(|(at, number)| {
            if at < counts {
                *number
            } else {
                before.get(at).copied().unwrap_or_default().max(*number)
            }
        });
        merged.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_written_stands() {
        let mut block = HistoryBlock::default();
        assert!(block.enter(3, vec![7]));
        assert!(!block.enter(3, vec![8]));
        assert_eq!(block.rows().collect::<Vec<_>>(), [(3, &vec![7])]);
    }

    #[test]
    fn rows_come_back_as_they_were_also_the_largest_ones() {
        let mut block = HistoryBlock::default();
        for (slot, row) in [
            (0, vec![u64::MAX, 0, 5]),
            (1, vec![0, u64::MAX, 5]),
            (59, vec![1, 2, 3]),
        ] {
            block.enter(slot, row);
        }
        let text = serde_json::to_vec(&block).unwrap();
        assert_eq!(
            serde_json::from_slice::<HistoryBlock>(&text).unwrap(),
            block
        );
    }

    #[test]
    fn a_full_block_of_the_worst_numbers_fits_into_a_cell() {
        for grain in [HistoryResolution::Minute, HistoryResolution::TenMinutes] {
            let mut block = HistoryBlock::default();
            let slots = grain.block().as_micros() / grain.step().as_micros();
            for slot in 0..slots {
                // From the highest to half and back: the changes with the most digits.
                let number = if slot % 2 == 0 { u64::MAX / 2 + 1 } else { 0 };
                block.enter(slot, vec![number; 10]);
            }
            let bytes = serde_json::to_vec(&block).unwrap().len();
            assert!(
                bytes < backstop_core::limits::CELL_BYTES_MAX,
                "{grain:?}: {bytes}"
            );
        }
    }

    #[test]
    fn ten_minutes_keep_the_last_total_and_the_highest_depth() {
        let rows = [vec![10, 3], vec![12, 9], vec![15, 1]];
        assert_eq!(merge_rows(&rows, 1), Some(vec![15, 9]));
        assert_eq!(merge_rows(&[], 1), None);
    }

    #[test]
    fn moments_have_their_place() {
        let time = |text: &str| text.parse::<Time>().unwrap();
        let at = time("2026-11-17T08:47:00Z");
        let (block, slot) = (
            HistoryResolution::Minute.block_of(at),
            HistoryResolution::Minute.slot_of(at),
        );
        assert_eq!(
            (slot, HistoryResolution::Minute.time_of(block, slot)),
            (47, at)
        );
        let ten = HistoryResolution::TenMinutes.floor(at);
        assert_eq!(
            (ten, HistoryResolution::TenMinutes.slot_of(ten)),
            (time("2026-11-17T08:40:00Z"), 52)
        );
    }
}
