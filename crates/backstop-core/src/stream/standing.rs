//! What the rules remember of a key beside its watermark and its records.

use super::missed::Missed;
use crate::limits::LATE_MAX;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What the rules remember of a key. Stores keep it as bytes and never look inside.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    /// The step of the record at the watermark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Arrivals up to this number were counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub counted: u64,
    /// The wait for a gap to be filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// The call that failed last, until it succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
    /// Given up: up to this position nothing is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_to: Option<i64>,
    /// Misses declared since the last record was handled.
    #[serde(skip_serializing_if = "is_zero")]
    pub gap: u64,
    /// How many records wait: were counted as added, and not yet as removed.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// The record at this position failed for good, and the key stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<i64>,
    /// Whether its records are ignored.
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// What was declared missing.
    #[serde(skip_serializing_if = "Missed::is_empty")]
    pub missed: Missed,
    /// What came after it was declared missing, and when; the latest ones.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub late: VecDeque<(i64, i64)>,
}

/// The wait for a gap to be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// The how manieth wait, from 1 on.
    pub attempt: u32,
    /// When it ends, in microseconds since 1970.
    pub due: i64,
}

/// A call that failed, or that its handler put off.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failing {
    /// The position it was about.
    pub position: i64,
    /// How often it failed.
    pub failures: u32,
    /// When it is tried again, in microseconds since 1970.
    pub due: i64,
    /// When it failed first.
    pub since: i64,
    /// What its handler said, cut short.
    #[serde(default)]
    pub error: String,
}

/// Bytes that are no standing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what was kept of a stream's key cannot be read: {0}")]
pub struct NotAStanding(String);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Standing {
    /// From a store. A key that was never advanced has no bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAStanding> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(bytes).map_err(|error| NotAStanding(error.to_string()))
    }

    /// For a store; nothing for a key as good as new.
    pub fn to_bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        serde_json::to_vec(self).expect("numbers, flags and lists of them can be written")
    }

    /// That of a key whose records are to be ignored.
    pub fn disabled() -> Self {
        Self { disabled: true, ..Self::default() }
    }

    /// The failures of the call about this position.
    pub(super) fn failing_at(&self, position: i64) -> Option<&Failing> {
        self.failing.as_ref().filter(|failing| failing.position == position)
    }

    pub(super) fn note_late(&mut self, position: i64, now: Time) {
        self.late.push_back((position, now.as_micros()));
        if self.late.len() > LATE_MAX {
            self.late.pop_front();
        }
    }
}
