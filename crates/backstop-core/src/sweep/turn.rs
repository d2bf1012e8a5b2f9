//! Whose turn it is: a sweep runs once a period, however many processes have it.
//!
//! | what stands | who may begin |
//! |---|---|
//! | nothing | anybody |
//! | a run that has ended | anybody, one period after it began |
//! | a run that goes on | nobody until its time is over; then its runner is taken for dead |
//! | a run that began in the future | anybody: the clock was set back |

use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// A run of a sweep: the last one that began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepTurn {
    pub began: Time,
    /// When its runner is taken for dead, unless it has ended.
    pub until: Time,
    pub runner: String,
    pub ended: bool,
}

/// Somebody else runs the sweep, or did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{runner} has run it since {began}; look again at {again}")]
pub struct SweepBusyError {
    pub runner: String,
    pub began: Time,
    /// When it may be begun next.
    pub again: Time,
}

impl SweepTurn {
    /// When the next run may begin. `every` is the period, nothing to begin by hand.
    pub fn next(current: Option<&Self>, every: Span, now: Time) -> Time {
        match current {
            None => now,
            Some(turn) if turn.began.is_ahead_of(now) => now,
            Some(turn) if turn.ended => turn.began.after(every),
            Some(turn) => turn.until,
        }
    }

    /// The turn of whoever begins now, if they may.
    pub fn begin(
        current: Option<&Self>,
        runner: &str,
        every: Span,
        lasting: Span,
        now: Time,
    ) -> Result<Self, SweepBusyError> {
        let again = Self::next(current, every, now);
        match current {
            Some(turn) if again > now => Err(SweepBusyError {
                runner: turn.runner.clone(),
                began: turn.began,
                again,
            }),
            _ => Ok(Self {
                began: now,
                until: now.after(lasting),
                runner: runner.to_owned(),
                ended: false,
            }),
        }
    }
}
