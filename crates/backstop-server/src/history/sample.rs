//! What is noted of a queue or a stream at a moment: first numbers that only grow, then numbers
//! that go up and down.

use super::block::SampleValues;
use backstop::core::port::QueueStatus;
use backstop::streams::{StreamCounter, StreamCounts, StreamStatus};
use backstop_core::{JobState, Time};

/// Figures as a row of numbers and back.
pub(super) trait HistorySample: Sized {
    /// Of a row; what it does not have is 0.
    fn of(row: &SampleValues) -> Self;

    fn row(&self) -> SampleValues;
}

/// A queue, or several, at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueSample {
    pub enqueued: u64,
    pub done: u64,
    pub dead: u64,
    pub cancelled: u64,
    /// Jobs whose time has not come.
    pub scheduled: u64,
    /// Jobs that wait for a worker.
    pub ready: u64,
    pub running: u64,
    /// Jobs that wait for their next attempt.
    pub retrying: u64,
    /// Dead letters that lie there.
    pub letters: u64,
    /// How long the job that is claimed next has waited, in milliseconds.
    pub oldest_ready_ms: u64,
}

/// A stream at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamSample {
    pub added: u64,
    pub handled: u64,
    pub misses: u64,
    /// Keys given up because they had waited long enough, ever.
    pub timeouts: u64,
    /// Records that came after they were declared missing, ever.
    pub late: u64,
    pub held: u64,
    pub holding: u64,
    /// Keys given up because they held too much, ever. It stands last, since rows of before it was
    /// noted end there; the highest of what only grows is also its last.
    pub overflows: u64,
}

/// How many of a queue's numbers only grow.
pub(super) const QUEUE_COUNTS: usize = 4;
/// How many of a stream's numbers only grow.
pub(super) const STREAM_COUNTS: usize = 5;
/// How many numbers are noted of a stream.
pub(super) const STREAM_NUMBERS: usize = 8;

impl QueueSample {
    /// Several queues together as they stand at `now`.
    pub fn of_all(queues: &[QueueStatus], now: Time) -> Self {
        queues.iter().fold(Self::default(), |all, queue| {
            all.plus(Self::new(queue, now))
        })
    }

    /// A queue as it stands at `now`.
    pub fn new(status: &QueueStatus, now: Time) -> Self {
        let in_state = |state| status.counts.of(state);
        let oldest = status
            .next_ready
            .map_or(0, |since| now.since(since).as_millis());
        Self {
            enqueued: status.totals.enqueued,
            done: status.totals.done,
            dead: status.totals.dead,
            cancelled: status.totals.cancelled,
            scheduled: in_state(JobState::Scheduled),
            ready: in_state(JobState::Ready),
            running: in_state(JobState::Running),
            retrying: in_state(JobState::Retrying),
            letters: in_state(JobState::Dead),
            oldest_ready_ms: if in_state(JobState::Ready) > 0 {
                oldest.unsigned_abs()
            } else {
                0
            },
        }
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            enqueued: self.enqueued.saturating_add(other.enqueued),
            done: self.done.saturating_add(other.done),
            dead: self.dead.saturating_add(other.dead),
            cancelled: self.cancelled.saturating_add(other.cancelled),
            scheduled: self.scheduled.saturating_add(other.scheduled),
            ready: self.ready.saturating_add(other.ready),
            running: self.running.saturating_add(other.running),
            retrying: self.retrying.saturating_add(other.retrying),
            letters: self.letters.saturating_add(other.letters),
            oldest_ready_ms: if self.oldest_ready_ms > other.oldest_ready_ms {
                self.oldest_ready_ms
            } else {
                other.oldest_ready_ms
            },
        }
    }
}

impl HistorySample for QueueSample {
    fn of(row: &SampleValues) -> Self {
        let at = |place: usize| row.get(place).copied().unwrap_or_default();
        Self {
            enqueued: at(0),
            done: at(1),
            dead: at(2),
            cancelled: at(3),
            scheduled: at(4),
            ready: at(5),
            running: at(6),
            retrying: at(7),
            letters: at(8),
            oldest_ready_ms: at(9),
        }
    }

    fn row(&self) -> SampleValues {
        vec![
            self.enqueued,
            self.done,
            self.dead,
            self.cancelled,
            self.scheduled,
            self.ready,
            self.running,
            self.retrying,
            self.letters,
            self.oldest_ready_ms,
        ]
    }
}

impl StreamSample {
    /// A stream as it stands.
    pub fn new(status: &StreamStatus) -> Self {
        Self {
            added: status.counts[StreamCounter::Added],
            handled: status.counts[StreamCounter::Handled],
            misses: status.counts[StreamCounter::Misses],
            timeouts: status.counts[StreamCounter::Timeout],
            late: status.counts[StreamCounter::Late],
            held: status.records,
            holding: status.holding,
            overflows: status.counts[StreamCounter::CircuitBreaker],
        }
    }

    /// As the rules for alarms count them.
    pub(super) fn counts(&self) -> StreamCounts {
        // Records that nobody has looked at yet are not counted as added, and wait all the same.
        let added = self.added.max(self.held);
        let mut counts = StreamCounts::from_numbers([added, added - self.held]);
        counts[StreamCounter::Timeout] = self.timeouts;
        counts[StreamCounter::CircuitBreaker] = self.overflows;
        counts
    }
}

impl HistorySample for StreamSample {
    fn of(row: &SampleValues) -> Self {
        let at = |place: usize| row.get(place).copied().unwrap_or_default();
        Self {
            added: at(0),
            handled: at(1),
            misses: at(2),
            timeouts: at(3),
            late: at(4),
            held: at(5),
            holding: at(6),
            overflows: at(7),
        }
    }

    fn row(&self) -> SampleValues {
        vec![
            self.added,
            self.handled,
            self.misses,
            self.timeouts,
            self.late,
            self.held,
            self.holding,
            self.overflows,
        ]
    }
}
