//! Table scans over rows that are tried by age: for which tick each row was last tried.
//!
//! A pass takes no more rows than its limit, so the rows of one tick may take several passes. These
//! passes form one scan, newest rows first. Between passes, the table state remembers the time for
//! which rows were last tried: one time for all rows, or one time per range.
//!
//! | a scan is still open when | the rows it has passed | the rows ahead of it |
//! |---|---|---|
//! | no band ticks | wait | are tried for the tick of the scan: each tick is one try |
//! | a band ticks | are tried for the newer tick, after the scan has finished | come first, and are tried once for both ticks |
//! | the clock is set back | wait for the next tick from then on | wait for the next tick from then on |
//!
//! | a row is tried out of turn because | and then |
//! |---|---|
//! | its runner is gone, so it is an orphan and is tried at once | this is its try for every tick until then, wherever the scan is |
//! | its owner had it locked when its turn came | the following passes try it first, until one gets the row: the same holds for that try |
//!
//! If there are more ranges than the table state can hold, neighbouring ranges are merged, and the
//! later of their times holds for both. A row may then have to wait for its next tick, but is never
//! tried twice for one.

use super::state::stored_size;
use super::{TableRules, TableState};
use crate::limits::{TABLE_EXTRA_ROWS_BYTES_MAX, TABLE_LOCKED_BYTES_MAX, TABLE_SCAN_BYTES_MAX};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// A position in the order of rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RowCursor {
    /// The time of the row's insertion, as its column stores it.
    pub inserted: String,
    pub key: String,
}

/// A scan that continues over several passes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableScan {
    /// The time for which rows are tried.
    pub at: Time,
    /// The last row that was taken; rows come newest first.
    pub cursor: Option<RowCursor>,
    /// The ranges that the scan passed before a newer tick, up to the last such row.
    #[serde(default)]
    pub passed: Vec<ScanRange>,
}

/// The rows after the previous range, up to `until`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScanRange {
    pub until: RowCursor,
    /// The time for which the rows were last tried.
    pub at: Time,
}

/// A row that was tried out of turn, and that no scan has passed since.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(String, Time)", into = "(String, Time)")]
pub struct ScanExtraRow {
    pub key: String,
    pub at: Time,
}

impl From<(String, Time)> for ScanExtraRow {
    fn from((key, at): (String, Time)) -> Self {
        Self { key, at }
    }
}

impl From<ScanExtraRow> for (String, Time) {
    fn from(row: ScanExtraRow) -> Self {
        (row.key, row.at)
    }
}

/// The part of a scan that a runner works on next. All of its rows were last tried for the same
/// time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPart {
    /// The time for which the rows were last tried.
    pub since: Option<Time>,
    /// The time for which the rows are tried now.
    pub at: Time,
    /// The part begins after this row.
    pub cursor: Option<RowCursor>,
    /// The part ends with this row; `None` for no end.
    pub until: Option<RowCursor>,
}

/// The state of a scan after a runner has finished a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanPartResult {
    /// Another part of the scan follows.
    MoreParts,
    /// The part was the last of the scan.
    Finished,
    /// Other runners have moved the scan on meanwhile.
    Conflicted,
}

impl TableRules {
    /// Whether any band has a tick in (since, now].
    pub fn has_ticked(&self, since: Time, now: Time) -> bool {
        self.bands()
            .iter()
            .any(|band| super::has_ticked(*band, Some(since), now))
    }
}

impl TableScan {
    /// Continues the scan for a later time, because a band has ticked.
    fn restarted_at(mut self, at: Time) -> Self {
        let is_new =
            |cursor: &RowCursor| self.passed.last().is_none_or(|last| last.until != *cursor);
        if let Some(until) = self.cursor.clone().filter(is_new) {
            self.passed.push(ScanRange { until, at: self.at });
            merge_ranges(&mut self.passed);
        }
        Self { at, ..self }
    }
}

impl TableState {
    /// The next part for a pass at `at`: of the open scan, or of a new one. A scan whose time is
    /// still in the future began before the clock was set back.
    pub fn next_part(&mut self, rules: &TableRules, at: Time, clock: Time) -> ScanPart {
        let mut round = match self.round.take() {
            None => TableScan {
                at,
                cursor: None,
                passed: Vec::new(),
            },
            Some(round) if round.at > clock.max(at) => TableScan { at, ..round },
            Some(round) if round.at < at && rules.has_ticked(round.at, at) => {
                round.restarted_at(at)
            }
            Some(round) => round,
        };
        let is_done = |stretch: &&ScanRange| !rules.has_ticked(stretch.at, round.at);
        let done = self.stretches.iter().take_while(is_done).count();
        if let Some(stretch) = self.stretches.drain(..done).next_back() {
            round.cursor = Some(stretch.until);
        }
        let next = self.stretches.first();
        let leg = ScanPart {
            since: next
                .map(|stretch| stretch.at)
                .or(self.last_pass)
                .map(|since| since.min(round.at)),
            at: round.at,
            cursor: round.cursor.clone(),
            until: next.map(|stretch| stretch.until.clone()),
        };
        self.round = Some(round);
        leg
    }

    /// Marks all rows as tried for this time.
    pub fn skip_to(&mut self, at: Time) {
        (self.last_pass, self.round) = (Some(at), None);
        self.stretches.clear();
        self.locked.clear();
    }

    /// Forgets the cursors of a scan, because the order of the rows has changed.
    pub fn forget_cursors(&mut self) {
        self.stretches.clear();
        if let Some(round) = &mut self.round {
            *round = TableScan {
                at: round.at,
                cursor: None,
                passed: Vec::new(),
            };
        }
    }

    /// Whether the open scan is at the beginning of this part.
    pub fn is_at_part(&self, leg: &ScanPart) -> bool {
        let until = self.stretches.first().map(|stretch| &stretch.until);
        until == leg.until.as_ref()
            && self
                .round
                .as_ref()
                .is_some_and(|round| round.at == leg.at && round.cursor == leg.cursor)
    }

    /// Moves the scan on within a part. Returns whether the scan was still at the beginning of the
    /// part.
    pub fn advance(&mut self, leg: &ScanPart, to: RowCursor) -> bool {
        let is_on = self.is_at_part(leg);
        if let Some(round) = self.round.as_mut().filter(|_| is_on) {
            round.cursor = Some(to);
        }
        is_on
    }

    /// Ends a part whose rows have all been examined.
    pub fn finish_part(&mut self, leg: &ScanPart) -> ScanPartResult {
        if !self.is_at_part(leg) {
            return ScanPartResult::Conflicted;
        }
        let Some(mut round) = self.round.take() else {
            return ScanPartResult::Conflicted;
        };
        if self.stretches.is_empty() {
            self.last_pass = Some(round.at);
            self.stretches = round.passed;
            let first = self
                .stretches
                .iter()
                .map(|stretch| stretch.at)
                .fold(round.at, Time::min);
            self.aside.retain(|row| row.at > first);
            return ScanPartResult::Finished;
        }
        round.cursor = Some(self.stretches.remove(0).until);
        self.round = Some(round);
        ScanPartResult::MoreParts
    }

    /// Records rows that are tried out of turn for a time. If there are too many, the rows tried
    /// last are kept.
    pub fn note_extra_rows(&mut self, keys: Vec<String>, at: Time) {
        self.aside
            .retain(|old| old.at <= at && !keys.contains(&old.key));
        self.aside
            .extend(keys.into_iter().map(|key| ScanExtraRow { key, at }));
        self.aside.sort_by_key(|row| std::cmp::Reverse(row.at));
        let mut bytes = 0;
        let fits = |row: &&ScanExtraRow| {
            bytes += stored_size(&row.key) + EXTRA_ROW_OVERHEAD;
            bytes <= TABLE_EXTRA_ROWS_BYTES_MAX
        };
        let count = self.aside.iter().take_while(fits).count();
        self.aside.truncate(count);
    }

    /// Records rows that their owner had locked when their turn came. Returns the number of rows
    /// for which there was no room; these wait for their next tick.
    pub fn note_locked(&mut self, keys: Vec<String>) -> usize {
        let mut bytes: usize = self.locked.iter().map(|key| stored_size(key)).sum();
        let mut left_out = 0;
        for key in keys {
            if self.locked.contains(&key) {
                continue;
            }
            bytes += stored_size(&key);
            if bytes <= TABLE_LOCKED_BYTES_MAX {
                self.locked.push(key);
            } else {
                left_out += 1;
            }
        }
        left_out
    }

    /// Makes the locked rows of former passes orphans, so that the pass which begins now tries them
    /// first.
    pub fn recall_locked(&mut self) {
        self.orphans.append(&mut self.locked);
    }

    /// The time for which a row was tried out of turn. A time ahead of the clock does not count: it
    /// is from before the clock was set back.
    pub fn extra_try_at(&self, key: &str, clock: Time) -> Option<Time> {
        self.aside
            .iter()
            .find(|row| row.key == key && row.at <= clock)
            .map(|row| row.at)
    }
}

/// The bytes of a range, and of an extra row, besides its keys: field names and times.
const RANGE_OVERHEAD: usize = 80;
const EXTRA_ROW_OVERHEAD: usize = 32;

/// Merges ranges pairwise until they fit into the table state.
fn merge_ranges(stretches: &mut Vec<ScanRange>) {
    let bytes = |stretches: &[ScanRange]| -> usize {
        let sizes = stretches
            .iter()
            .map(|ScanRange { until, .. }| stored_size(&until.inserted) + stored_size(&until.key));
        sizes.map(|size| size + RANGE_OVERHEAD).sum()
    };
    while stretches.len() > 1 && bytes(stretches) > TABLE_SCAN_BYTES_MAX {
        let one = |two: &[ScanRange]| {
            let at = two.iter().map(|stretch| stretch.at).max()?;
            Some(ScanRange {
                until: two.last()?.until.clone(),
                at,
            })
        };
        *stretches = stretches.chunks(2).filter_map(one).collect();
    }
}

#[cfg(test)]
mod tests;
