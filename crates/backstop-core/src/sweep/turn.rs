//! Turns: a sweep runs once per period, however many processes serve it.
//!
//! | the last run | who may begin the next one |
//! |---|---|
//! | does not exist | any process |
//! | has ended | any process, one period after the run began |
//! | goes on | no process until the run's time is over; then its runner is taken for dead |
//! | began in the future | any process: the clock was set back |

use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// The latest run of a sweep.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepTurn {
    pub began: Time,
    /// When its runner is taken for dead, unless the run has ended.
    pub until: Time,
    pub runner: String,
    pub ended: bool,
}

/// Another process runs the sweep, or has run it in this period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{runner} has run it since {began}; look again at {again}")]
pub struct SweepBusyError {
    pub runner: String,
    pub began: Time,
    /// The earliest time of the next run.
    pub again: Time,
}

impl SweepTurn {
    /// The earliest time of the next run. `every` is the period; zero for a run that an operator
    /// begins.
    pub fn next(current: Option<&Self>, every: Span, now: Time) -> Time {
        match current {
            None => now,
            Some(turn) if turn.began.is_ahead_of(now) => now,
            Some(turn) if turn.ended => turn.began.after(every),
            Some(turn) => turn.until,
        }
    }

    /// Begins a run, if one may begin now.
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
