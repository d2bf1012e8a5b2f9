//! The output of a replay.

use crate::name::StreamKey;
use crate::stream::counts::{StreamCounter, StreamCounts};
use crate::stream::grid::OffStep;
use crate::time::Time;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ReplayEffect {
    pub at_ms: i64,
    pub key: StreamKey,
    pub effect: &'static str,
    /// The position of the effect: the first of a range, the lowest held one of a key that waits
    /// or gives up, or the watermark of a key that was cleared.
    pub position: Option<i64>,
    /// The last position of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// The number of positions or records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The end of a wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// The number of the wait, or of the failed run; both count from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The off-grid position of a duplicate, if it is off the grid of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_step: Option<OffStep>,
    /// The off-grid position of a handled record, if it is off the grid of its key.
    #[serde(skip)]
    pub off_grid: Option<OffStep>,
}

impl ReplayEffect {
    pub(super) fn new(
        at: Time,
        key: StreamKey,
        effect: &'static str,
        position: Option<i64>,
    ) -> Self {
        Self {
            at_ms: at.as_millis(),
            key,
            effect,
            position,
            to: None,
            count: None,
            until_ms: None,
            attempt: None,
            off_step: None,
            off_grid: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the fields are those of `Count`, which says what they count"
)]
pub struct ReplaySummary {
    pub added: u64,
    pub removed: u64,
    pub task_scheduled: u64,
    pub cleared: u64,
    pub timeout: u64,
    pub circuit_breaker: u64,
    pub rescheduling: u64,
    pub handled: u64,
    pub misses: u64,
    pub duplicates: u64,
    /// Duplicates that are off the grid of their key.
    #[serde(skip_serializing_if = "is_zero")]
    pub off_step: u64,
    pub late: u64,
    pub held: u64,
    pub watermarks: BTreeMap<StreamKey, i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ReplaySummary {
    pub(super) fn new(counts: &StreamCounts, watermarks: BTreeMap<StreamKey, i64>) -> Self {
        Self {
            added: counts[StreamCounter::Added],
            removed: counts[StreamCounter::Removed],
            task_scheduled: counts[StreamCounter::TaskScheduled],
            cleared: counts[StreamCounter::Cleared],
            timeout: counts[StreamCounter::Timeout],
            circuit_breaker: counts[StreamCounter::CircuitBreaker],
            rescheduling: counts[StreamCounter::Rescheduling],
            handled: counts[StreamCounter::Handled],
            misses: counts[StreamCounter::Misses],
            duplicates: counts[StreamCounter::Duplicates],
            off_step: counts[StreamCounter::OffStep],
            late: counts[StreamCounter::Late],
            held: counts.held(),
            watermarks,
        }
    }
}
