//! The state of a key, beside its watermark and its records.

use super::grid::OffStep;
use super::missed::MissedPositions;
use crate::limits::{LATE_MAX, OFF_STEP_MAX};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The state of a key. Stores keep it as opaque bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyState {
    /// The step of the record at the watermark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Arrivals up to this number are already in the counts.
    #[serde(skip_serializing_if = "is_zero")]
    pub counted: u64,
    /// The current wait for a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<GapWait>,
    /// The latest failed call, until it succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailingCall>,
    /// Set once the key has given up: it handles everything up to this position without waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_to: Option<i64>,
    /// Misses declared since the last handled record.
    #[serde(skip_serializing_if = "is_zero")]
    pub gap: u64,
    /// The number of waiting records: those counted as added and not yet as removed.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// The position of the record that failed for good and halted the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<i64>,
    /// Whether the key ignores its records.
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// The ranges handled offline above the watermark, ordered by position.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<OfflineRange>,
    #[serde(skip_serializing_if = "MissedPositions::is_empty")]
    pub missed: MissedPositions,
    /// The latest late records: each position, and when its record arrived.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub late: VecDeque<(i64, i64)>,
    /// The latest records that were off the grid.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub off_step: VecDeque<OffStepRecord>,
}

/// A record that was off the grid of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffStepRecord {
    #[serde(flatten)]
    pub place: OffStep,
    /// Whether the record was handled; otherwise it was dropped as a duplicate.
    pub is_handled: bool,
    /// The time of the record's arrival or handling, in microseconds since 1970.
    pub at: i64,
}

/// One wait for a gap to be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GapWait {
    /// The number of this wait, counted from 1.
    pub attempt: u32,
    /// The end of the wait, in microseconds since 1970.
    pub due: i64,
}

/// Positions that were handled or declared missed offline. Serialized as four numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(i64, i64, i64, i64)", into = "(i64, i64, i64, i64)")]
pub struct OfflineRange {
    pub from: i64,
    /// The step of the record at `from`.
    pub step: i64,
    pub to: i64,
    /// The step of the record at `to`.
    pub last_step: i64,
}

impl From<(i64, i64, i64, i64)> for OfflineRange {
    fn from((from, step, to, last_step): (i64, i64, i64, i64)) -> Self {
        Self {
            from,
            step: step.max(1),
            to,
            last_step: last_step.max(1),
        }
    }
}

impl From<OfflineRange> for (i64, i64, i64, i64) {
    fn from(ahead: OfflineRange) -> Self {
        (ahead.from, ahead.step, ahead.to, ahead.last_step)
    }
}

impl OfflineRange {
    /// Whether a position lies in the range.
    pub(super) const fn covers(&self, position: i64) -> bool {
        self.from <= position && position <= self.to
    }
}

/// A call that failed, or that its handler postponed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailingCall {
    /// The position of the failed call.
    pub position: i64,
    pub failures: u32,
    /// The time of the next attempt, in microseconds since 1970.
    pub due: i64,
    /// The wait chosen at the failure, in microseconds. After the clock is set back, the key waits
    /// no longer than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<i64>,
    pub since: i64,
    /// The error message of the handler, truncated.
    #[serde(default)]
    pub error: String,
}

/// Bytes that are no valid key state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what was kept of a stream's key cannot be read: {0}")]
pub struct InvalidKeyState(String);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl KeyState {
    /// Reads the bytes of a store. A key that was never advanced has no bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidKeyState> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(bytes).map_err(|error| InvalidKeyState(error.to_string()))
    }

    /// The bytes for a store; empty if the state is that of a new key.
    pub fn to_bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        serde_json::to_vec(self).expect("numbers, flags and lists of them can be written")
    }

    /// The state of a key that ignores its records.
    pub fn disabled() -> Self {
        Self {
            disabled: true,
            ..Self::default()
        }
    }

    /// Adds a range that was handled offline, and merges it with the ranges it overlaps.
    pub(super) fn add_offline_range(&mut self, ahead: OfflineRange) {
        let (touching, mut apart): (Vec<OfflineRange>, Vec<OfflineRange>) = self
            .ahead
            .iter()
            .partition(|other| other.from <= ahead.to && ahead.from <= other.to);
        let whole = touching.into_iter().fold(ahead, |one, other| {
            let (first, last) = (
                if other.from < one.from { other } else { one },
                if other.to > one.to { other } else { one },
            );
            OfflineRange {
                from: first.from,
                step: first.step,
                to: last.to,
                last_step: last.last_step,
            }
        });
        apart.push(whole);
        apart.sort_by_key(|ahead| ahead.from);
        self.ahead = apart;
    }

    /// The failed call at this position, if there is one.
    pub(super) fn failing_at(&self, position: i64) -> Option<&FailingCall> {
        self.failing
            .as_ref()
            .filter(|failing| failing.position == position)
    }

    pub(super) fn note_late(&mut self, position: i64, now: Time) {
        self.late.push_back((position, now.as_micros()));
        if self.late.len() > LATE_MAX {
            self.late.pop_front();
        }
    }

    pub(super) fn note_off_step(&mut self, record: OffStepRecord) {
        self.off_step.push_back(record);
        if self.off_step.len() > OFF_STEP_MAX {
            self.off_step.pop_front();
        }
    }
}
