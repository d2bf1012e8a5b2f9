//! Rounds over rows that are tried by their age: as of when each of them was tried last.
//!
//! A pass takes no more rows than its limit, so that what one tick makes due may take several
//! passes: a round, newest rows first. What is remembered between them is as of when rows were
//! tried: all of them at one time, or stretch by stretch.
//!
//! | a round is left open, and then | the rows it has passed | the rows it has not |
//! |---|---|---|
//! | no band ticks | wait | are tried for the tick of the round: each tick is one try |
//! | a band ticks | are tried for the newer tick, once the round is through | come first, and are tried once for both ticks |
//! | the clock is set back | wait for the next tick from then on | wait for the next tick from then on |
//!
//! | a row is out of its turn | and then |
//! |---|---|
//! | it was in the hands of a runner that is gone, and is tried at once | that was its try for every tick until then, wherever the round is |
//! | its owner had locked it when its turn came | the passes after it try it first, until one gets it: the same holds for that try |
//!
//! Where more stretches differ than can be remembered, neighbours are taken for one that was tried
//! at the later of their times: a row may then wait for its next tick, and is never tried twice for
//! one.

use super::state::stored_size;
use super::{TableRules, TableState};
use crate::limits::{TABLE_EXTRA_ROWS_BYTES_MAX, TABLE_LOCKED_BYTES_MAX, TABLE_SCAN_BYTES_MAX};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// A place in the order of rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RowCursor {
    /// When the row was inserted, as its column says it.
    pub inserted: String,
    pub key: String,
}

/// A round that goes on over several passes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableScan {
    /// As of when rows are looked at.
    pub at: Time,
    /// The last row that was taken; rows come newest first.
    pub cursor: Option<RowCursor>,
    /// What it passed before a newer tick, up to the last of them.
    #[serde(default)]
    pub passed: Vec<ScanRange>,
}

/// Rows behind the stretch before it and up to a place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScanRange {
    pub until: RowCursor,
    /// As of when they were tried.
    pub at: Time,
}

/// A row that was tried out of its turn, and not passed by a round since.
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

/// What a runner looks at next: the part of a round in which all rows were tried at the same time
/// before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPart {
    /// As of when they were tried before.
    pub since: Option<Time>,
    /// As of when they are looked at.
    pub at: Time,
    /// The rows behind this one.
    pub cursor: Option<RowCursor>,
    /// Up to this one; `None` for no end.
    pub until: Option<RowCursor>,
}

/// What became of a leg that somebody has gone through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanPartResult {
    /// There is another one behind it.
    MoreParts,
    /// It was the last of its round.
    Finished,
    /// Others have moved the round on meanwhile.
    Conflicted,
}

impl TableRules {
    /// Whether any band has ticked in (since, now].
    pub fn has_ticked(&self, since: Time, now: Time) -> bool {
        self.bands()
            .iter()
            .any(|band| super::has_ticked(*band, Some(since), now))
    }
}

impl TableScan {
    /// Goes on as of a later time: a band has ticked.
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
    /// What a pass as of `at` looks at next: the round that is open, or a new one. One of a time
    /// that the clock has not come to was begun before that was set back.
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

    /// All rows count as tried as of then.
    pub fn skip_to(&mut self, at: Time) {
        (self.last_pass, self.round) = (Some(at), None);
        self.stretches.clear();
        self.locked.clear();
    }

    /// Forgets the places of a round: rows are in another order by now.
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

    /// Whether the open round is at the beginning of this leg.
    pub fn is_at_part(&self, leg: &ScanPart) -> bool {
        let until = self.stretches.first().map(|stretch| &stretch.until);
        until == leg.until.as_ref()
            && self
                .round
                .as_ref()
                .is_some_and(|round| round.at == leg.at && round.cursor == leg.cursor)
    }

    /// Moves the round on within a leg; whether it still was at its beginning.
    pub fn advance(&mut self, leg: &ScanPart, to: RowCursor) -> bool {
        let is_on = self.is_at_part(leg);
        if let Some(round) = self.round.as_mut().filter(|_| is_on) {
            round.cursor = Some(to);
        }
        is_on
    }

    /// Ends a leg that has been gone through to its end.
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

    /// Notes rows that are tried out of their turn as of a time. Of more than can be noted those
    /// stay that were tried last.
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

    /// Notes rows that their owner had locked when their turn came; answers how many of them found
    /// no room, and wait for their next tick.
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

    /// A pass begins: what others passed over because it was locked comes first, as what somebody
    /// left does.
    pub fn recall_locked(&mut self) {
        self.orphans.append(&mut self.locked);
    }

    /// As of when a row was tried out of its turn; what lies ahead of the clock was before that was
    /// set back, and does not count.
    pub fn extra_try_at(&self, key: &str, clock: Time) -> Option<Time> {
        self.aside
            .iter()
            .find(|row| row.key == key && row.at <= clock)
            .map(|row| row.at)
    }
}

/// What stands beside the keys of a stretch, and of a row that was tried out of its turn: names,
/// times.
const RANGE_OVERHEAD: usize = 80;
const EXTRA_ROW_OVERHEAD: usize = 32;

/// Takes neighbours for one, two by two, until they can be remembered.
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
