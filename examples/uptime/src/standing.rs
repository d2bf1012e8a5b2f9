//! How a detector stands, and what a result does to that: onboarding, then incidents that open and
//! close.
//!
//! A function of values. Results come in order and once; whoever calls sees to that.

#[cfg(test)]
mod tests;

use crate::directory::Beginning;
use crate::wire::Status;
use serde::{Deserialize, Serialize};

/// How a detector stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It is not trusted to open incidents yet.
    Onboarding {
        /// Good results in a row.
        good: u32,
    },
    /// What it watches is up.
    Up {
        /// Failures in a row.
        failures: u32,
    },
    /// What it watches is down: an incident is open.
    Down {
        /// The failure that opened it.
        since_ms: i64,
        /// Successes in a row.
        successes: u32,
    },
}

impl Standing {
    /// How a detector stands before its first result.
    pub const fn first(begins: Beginning) -> Self {
        match begins {
            Beginning::Onboarding => Self::Onboarding { good: 0 },
            Beginning::Active => Self::Up { failures: 0 },
        }
    }

    /// The name of its mode.
    pub const fn mode(self) -> &'static str {
        match self {
            Self::Onboarding { .. } => "onboarding",
            Self::Up { .. } | Self::Down { .. } => "active",
        }
    }

    /// Whether an incident is open.
    pub const fn is_down(self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

/// How many results in a row it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Good results that end onboarding.
    pub onboarding_good: u32,
    /// Failures that open an incident.
    pub failures: u32,
    /// Successes that close it.
    pub successes: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            onboarding_good: 3,
            failures: 2,
            successes: 2,
        }
    }
}

/// Something people are told about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Onboarding is over.
    Activated,
    /// An incident opened with the failure of this position.
    Opened {
        /// The failure.
        at_ms: i64,
    },
    /// The incident closed.
    Closed {
        /// The failure that had opened it.
        opened_ms: i64,
        /// The success that closed it.
        at_ms: i64,
    },
}

/// How a detector stands after a result, and what there is to tell.
///
/// A check that was not made says nothing about the site, so it changes nothing. Results that
/// robots forbid never get here; they would change nothing either.
pub fn judge(
    standing: Standing,
    status: Status,
    position_ms: i64,
    thresholds: &Thresholds,
) -> (Standing, Option<Notice>) {
    match status {
        Status::Success => succeed(standing, position_ms, thresholds),
        Status::Failure => fail(standing, position_ms, thresholds),
        Status::MissedWindow | Status::DisallowedByRobots => (standing, None),
    }
}

fn succeed(standing: Standing, at_ms: i64, thresholds: &Thresholds) -> (Standing, Option<Notice>) {
    match standing {
        Standing::Onboarding { good } if good + 1 >= thresholds.onboarding_good => {
            (Standing::Up { failures: 0 }, Some(Notice::Activated))
        }
        Standing::Onboarding { good } => (Standing::Onboarding { good: good + 1 }, None),
        Standing::Up { .. } => (Standing::Up { failures: 0 }, None),
        Standing::Down {
            since_ms,
            successes,
        } if successes + 1 >= thresholds.successes => (
            Standing::Up { failures: 0 },
            Some(Notice::Closed {
                opened_ms: since_ms,
                at_ms,
            }),
        ),
        Standing::Down {
            since_ms,
            successes,
        } => (
            Standing::Down {
                since_ms,
                successes: successes + 1,
            },
            None,
        ),
    }
}

fn fail(standing: Standing, at_ms: i64, thresholds: &Thresholds) -> (Standing, Option<Notice>) {
    match standing {
        Standing::Onboarding { .. } => (Standing::Onboarding { good: 0 }, None),
        Standing::Up { failures } if failures + 1 >= thresholds.failures => (
            Standing::Down {
                since_ms: at_ms,
                successes: 0,
            },
            Some(Notice::Opened { at_ms }),
        ),
        Standing::Up { failures } => (
            Standing::Up {
                failures: failures + 1,
            },
            None,
        ),
        Standing::Down { since_ms, .. } => (
            Standing::Down {
                since_ms,
                successes: 0,
            },
            None,
        ),
    }
}
