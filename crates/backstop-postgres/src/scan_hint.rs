//! Where scans for due rows start.
//!
//! Due rows are indexed by time, and the rows before them are already removed. But while any long
//! transaction is open, the server keeps the dead tuples of removed rows in its indexes, and a scan
//! from the beginning walks over all of them, once a second. So a process remembers the time up to
//! which its last scan left nothing, and starts the next scan a little before it. A long
//! transaction, or a clock that is behind, may add a row with an earlier time; a full scan from the
//! beginning, made now and then, finds it. The hints only save time; nothing else depends on them.

use backstop_core::{JobState, QueueName, Span, StreamName, Time};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How far before the remembered time a scan starts. Longer than any store call takes: a call may
/// commit a row whose time passed while the call ran.
const OVERLAP: Span = Span::secs(10);
/// How many targets are remembered. If there are more, all are forgotten, and scans start from the
/// beginning.
const REMEMBERED_MAX: usize = 10_000;

/// What a scan looks for. Each target is scanned by time and has a mark of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ScanTarget {
    /// The scheduled and retrying jobs of all queues that are due, by `run_at`.
    WaitingJobs,
    /// The leases of all workers that have expired, by their end.
    ExpiredLeases,
    /// The keys of one stream that are due, by the time at which they became due.
    DueStreamKeys(StreamName),
    /// The jobs of one queue that ended in this state and whose retention is over, by their end.
    Ended(QueueName, JobState),
    /// The unique keys that outlasted their job and whose period is over, by its end.
    ExpiredUniqueKeys,
}

impl ScanTarget {
    /// How often the target is scanned from the beginning.
    const fn full_every(&self) -> Span {
        match self {
            Self::WaitingJobs | Self::ExpiredLeases | Self::DueStreamKeys(_) => Span::minutes(1),
            Self::Ended(..) | Self::ExpiredUniqueKeys => Span::minutes(10),
        }
    }
}

/// Where one scan of a target starts, and when it was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScanStart {
    /// The earliest row time that the scan reads; `None` for a full scan from the beginning.
    from: Option<Time>,
    /// The clock's time when the scan was begun.
    at: Time,
}

impl ScanStart {
    /// The start of the scan as a parameter of the SQL functions.
    pub(crate) fn begins_at(self) -> i64 {
        self.from.map_or(i64::MIN, Time::as_micros)
    }
}

/// What is remembered of the scans of one target.
#[derive(Clone, Copy, Debug)]
struct ScanMark {
    /// A row time: the last scan left no row before it that the next one would have to find.
    to: Time,
    /// When the last scan was begun. If the clock is before this time, it was set back.
    last_at: Time,
    /// When the last full scan, from the beginning, was begun.
    full_at: Time,
}

#[derive(Default, Debug)]
pub(crate) struct ScanHints(Mutex<HashMap<ScanTarget, ScanMark>>);

impl ScanHints {
    /// Decides where a scan starts now.
    pub(crate) fn begin_scan(&self, target: &ScanTarget, now: Time) -> ScanStart {
        let mark = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(target)
            .copied();
        // If the clock was set back, the remembered time may be too late, so scan from the
        // beginning.
        let mark = mark
            .filter(|mark| now >= mark.last_at && now.since(mark.full_at) < target.full_every());
        ScanStart {
            from: mark.map(|mark| mark.to.before(OVERLAP)),
            at: now,
        }
    }

    /// Records that nothing due is left up to `to`. If the mark of the target was forgotten during
    /// the scan, only a full scan is recorded.
    pub(crate) fn record_cleared(&self, target: ScanTarget, scan: ScanStart, to: Time) {
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

    /// Forgets all hints, because a row was added that may be older than they are.
    pub(crate) fn forget(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests;
