//! Why a record that a stream holds is not handled: behind which gap of its key, or behind what
//! else.

use super::render::plural;
use backstop_core::stream::{InvalidKeyState, KeyState, StoredKey, StoredRecord};
use backstop_core::{StreamKey, Time};
use serde_json::{Map, Value, json};
use std::fmt;

/// Why a record is not handled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordExplanation {
    /// No record of this position is held, and none was dealt with.
    NotFound,
    /// Its position was dealt with: it was handled, is a duplicate, or was declared missing.
    Passed {
        /// Up to where the key was dealt with.
        watermark: i64,
    },
    /// Records of its key are ignored.
    Disabled,
    /// Its key stands still behind a record that failed for good.
    Halted { at: i64 },
    /// The record whose turn it is failed, and is tried again.
    BehindFailing {
        /// That record; it may be this one.
        at: i64,
        failures: u32,
        /// When it is tried again.
        next: Time,
        error: String,
    },
    /// Something before it is missing, and is waited for.
    BehindGap {
        key: StreamKey,
        /// The first position that is missing.
        gap: i64,
        missing: u64,
        /// The how manieth wait this is.
        attempt: Option<u32>,
        /// When the key is looked at again.
        until: Option<Time>,
    },
    /// Nothing is before it but records whose turn has come.
    Next { before: u64 },
}

/// How a record that is held follows what is before it: the record before, or the watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordLink {
    Close,
    /// Nearer than its step says, and not where it is expected: the grid goes on from it.
    OffGrid,
    /// Behind positions that are missing, and waited for.
    Missing(PositionGap),
    /// Behind positions that are missing, and no longer waited for.
    GivenUp(PositionGap),
    /// Behind positions of which some were dealt with without the store; the rest is not waited
    /// for.
    Bridged(PositionGap),
}

/// Positions that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PositionGap {
    pub first: i64,
    pub count: u64,
}

impl RecordLink {
    fn new(behind: i64, record: &StoredRecord, state: &KeyState) -> Self {
        let step = record.step.max(1);
        let expected = behind.saturating_add(step);
        if record.position <= expected {
            return Self::Close;
        }
        let slots = (i128::from(record.position) - i128::from(behind)) / i128::from(step) - 1;
        let gap = PositionGap {
            first: expected,
            count: u64::try_from(slots).unwrap_or(u64::MAX),
        };
        if gap.count == 0 {
            Self::OffGrid
        } else if state.drain_to.is_some_and(|to| record.position <= to) {
            Self::GivenUp(gap)
        } else if state.ahead.iter().any(|ahead| ahead.from <= expected) {
            Self::Bridged(gap)
        } else {
            Self::Missing(gap)
        }
    }
}

impl fmt::Display for RecordLink {
    /// In a few words; none where there is nothing to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut say = |PositionGap { first, count }: PositionGap, one: &str, many: &str| {
            let are = if count == 1 { one } else { many };
            write!(f, "{} {are} from {first} on", plural(count, "position"))
        };
        match *self {
            Self::Close => Ok(()),
            Self::OffGrid => f.write_str("off the grid"),
            Self::Missing(gap) => say(gap, "is missing", "are missing"),
            Self::GivenUp(gap) => say(gap, "is given up", "are given up"),
            Self::Bridged(gap) => say(
                gap,
                "was passed without the store",
                "were passed without the store",
            ),
        }
    }
}

/// How each of the records that a key shows follows what is before it, in their order.
pub fn record_links<'a>(
    stored: &'a StoredKey,
    state: &'a KeyState,
) -> impl Iterator<Item = (&'a StoredRecord, RecordLink)> {
    let mut behind = stored.watermark;
    stored.records.iter().map(move |record| {
        let joint = behind.map_or(RecordLink::Close, |behind| {
            RecordLink::new(behind, record, state)
        });
        behind = Some(record.position);
        (record, joint)
    })
}

/// The answer for the record of this position.
pub fn explain_record(
    stored: &StoredKey,
    position: i64,
) -> Result<RecordExplanation, InvalidKeyState> {
    let state = KeyState::from_bytes(&stored.state)?;
    if state.disabled {
        return Ok(RecordExplanation::Disabled);
    }
    if let Some(watermark) = stored.watermark.filter(|watermark| position <= *watermark) {
        return Ok(RecordExplanation::Passed { watermark });
    }
    // What the window does not show is held behind what it shows.
    let is_held = stored
        .records
        .iter()
        .any(|record| record.position == position)
        || (stored.count > stored.records.len() as u64
            && stored
                .records
                .last()
                .is_some_and(|last| last.position < position)
            && stored.highest.is_some_and(|highest| position <= highest));
    if !is_held {
        return Ok(RecordExplanation::NotFound);
    }
    Ok(explain_before(stored, &state, position))
}

/// What stands before a record that is held.
fn explain_before(stored: &StoredKey, state: &KeyState, position: i64) -> RecordExplanation {
    if let Some(at) = state.halted {
        return RecordExplanation::Halted { at };
    }
    if let Some(failing) = state
        .failing
        .as_ref()
        .filter(|failing| failing.position <= position)
    {
        return RecordExplanation::BehindFailing {
            at: failing.position,
            failures: failing.failures,
            next: Time::from_micros(failing.due),
            error: failing.error.clone(),
        };
    }
    let earlier =
        || record_links(stored, state).take_while(|(record, _)| record.position <= position);
    let missing = |(_, joint)| match joint {
        RecordLink::Missing(gap) => Some(gap),
        _ => None,
    };
    match earlier().find_map(missing) {
        Some(gap) => RecordExplanation::BehindGap {
            key: stored.key.clone(),
            gap: gap.first,
            missing: gap.count,
            attempt: state.wait.map(|wait| wait.attempt),
            until: state.wait.map(|wait| Time::from_micros(wait.due)),
        },
        None => RecordExplanation::Next {
            before: (earlier().count() as u64).saturating_sub(1),
        },
    }
}

impl RecordExplanation {
    /// The gate in one word.
    pub const fn gate(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Passed { .. } => "passed",
            Self::Disabled => "disabled",
            Self::Halted { .. } => "halted",
            Self::BehindFailing { .. } => "behind_failing",
            Self::BehindGap { .. } => "behind_gap",
            Self::Next { .. } => "next",
        }
    }

    /// What the sentence is made of, by name: for programs and pages.
    pub fn details(&self) -> Map<String, Value> {
        let value = match self {
            Self::NotFound | Self::Disabled => json!({}),
            Self::Passed { watermark } => json!({ "watermark": watermark }),
            Self::Halted { at } => json!({ "at": at }),
            Self::BehindFailing {
                at,
                failures,
                next,
                error,
            } => {
                json!({ "at": at, "failures": failures, "next": next, "error": error })
            }
            Self::BehindGap {
                key,
                gap,
                missing,
                attempt,
                until,
            } => {
                json!({ "key": key, "gap": gap, "missing": missing, "attempt": attempt, "until": until })
            }
            Self::Next { before } => json!({ "before": before }),
        };
        match value {
            Value::Object(details) => details,
            _ => Map::new(),
        }
    }
}

impl fmt::Display for RecordExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no record of this position is held"),
            Self::Passed { watermark } => {
                write!(
                    f,
                    "its position was dealt with: the key is handled or declared missing up to {watermark}"
                )
            }
            Self::Disabled => {
                f.write_str("its key is disabled: its records are ignored until it is enabled")
            }
            Self::Halted { at } => {
                write!(
                    f,
                    "its key stands still at {at}, which failed for good, until somebody resumes it"
                )
            }
            Self::BehindFailing {
                at,
                failures,
                next,
                error,
            } => write!(
                f,
                "the record at {at} failed {}, and is tried again at {next}: {error}",
                plural((*failures).into(), "time")
            ),
            Self::BehindGap {
                key,
                gap,
                missing,
                attempt,
                until,
            } => {
                write!(f, "it waits behind key {key} at gap {gap}")?;
                if *missing > 1 {
                    write!(f, " and {} more", plural(missing - 1, "position"))?;
                }
                match (attempt, until) {
                    (Some(attempt), Some(until)) => {
                        write!(f, "; wait {attempt} for what is missing ends at {until}")
                    }
                    _ => f.write_str("; what is missing is waited for"),
                }
            }
            Self::Next { before: 0 } => {
                f.write_str("it is next: whoever serves the stream takes it")
            }
            Self::Next { before } => write!(
                f,
                "only {} whose turn has come {} before it: whoever serves the stream takes them",
                plural(*before, "record"),
                if *before == 1 { "is" } else { "are" }
            ),
        }
    }
}

#[cfg(test)]
mod tests;
