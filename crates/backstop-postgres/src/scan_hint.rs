//! From when on to look for what is due.
//!
//! What is due stands in the order of its time, and what was before it is gone. But as long as
//! anybody has a long transaction open, the server keeps what is gone in its indexes, and whoever
//! looks from the beginning walks over all of it, once a second. So a process remembers up to when
//! it left nothing, and looks from a little before that on. What comes in later than that, by a
//! transaction that took long or a clock that is behind, is found by a look from the beginning now
//! and then. What is remembered saves time, and nothing else depends on it.

use backstop_core::{JobState, QueueName, Span, StreamName, Time};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How much earlier than what is remembered a look begins: more than a call of a store lasts.
const OVERLAP: Span = Span::secs(10);
/// How many things are remembered; with more there are only looks from the beginning until they are
/// fewer again.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ScanTarget {
    Waiting,
    Leases,
    /// Keys of a stream that are due.
    Due(StreamName),
    /// Ended jobs of a queue whose retention is over.
    Ended(QueueName, JobState),
    /// Unique keys that are to be forgotten.
    Keys,
}

impl ScanTarget {
    /// How often it is looked for from the beginning.
    const fn full_every(&self) -> Span {
        match self {
            Self::Waiting | Self::Leases | Self::Due(_) => Span::minutes(1),
            Self::Ended(..) | Self::Keys => Span::minutes(10),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScanStart {
    from: Option<Time>,
    at: Time,
}

impl ScanStart {
    /// From when on, as the server's functions have it.
    pub(crate) fn begins_at(self) -> i64 {
        self.from.map_or(i64::MIN, Time::as_micros)
    }
}

/// Up to when nothing was left.
#[derive(Clone, Copy, Debug)]
struct ScanMark {
    to: Time,
    last_at: Time,
    full_at: Time,
}

#[derive(Default, Debug)]
pub(crate) struct ScanHints(Mutex<HashMap<ScanTarget, ScanMark>>);

impl ScanHints {
    /// How to look for something now.
    pub(crate) fn begin_scan(&self, target: &ScanTarget, now: Time) -> ScanStart {
        let mark = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(target)
            .copied();
        // A clock that was set back is no reason to look at less.
        let mark = mark
            .filter(|mark| now >= mark.last_at && now.since(mark.full_at) < target.full_every());
        ScanStart {
            from: mark.map(|mark| mark.to.before(OVERLAP)),
            at: now,
        }
    }

    /// A look left nothing up to then.
    pub(crate) fn record_empty(&self, target: ScanTarget, scan: ScanStart, to: Time) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        let full_at = if scan.from.is_none() {
            Some(scan.at)
        } else {
            all.get(&target).map(|mark| mark.full_at)
        };
        if let Some(full_at) = full_at {
            all.insert(
                target,
                ScanMark {
                    to,
                    last_at: scan.at,
                    full_at,
                },
            );
        }
    }

    /// Something came in that may be older than what is remembered.
    pub(crate) fn forget(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests;
