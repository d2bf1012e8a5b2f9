//! Counters of what happened in a stream.

use std::ops::{Index, IndexMut};

/// One counter of a stream. Stores keep the counts in this order, so new counters go to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamCounter {
    /// Records that waited, or that arrived behind waiting records.
    Added,
    /// Records of `Added` that have left, for any reason. Added minus removed is the number of held
    /// records.
    Removed,
    /// Keys that began to wait.
    TaskScheduled,
    /// Keys whose wait ended without giving up a position.
    Cleared,
    /// Times that a key gave up because it had waited long enough.
    Timeout,
    /// Times that a key gave up because it held too many records.
    CircuitBreaker,
    /// Times that a wait ended with the gap still open, and the key began its next wait.
    Rescheduling,
    Handled,
    /// Positions declared missed, including those in ranges.
    Misses,
    /// Records at positions that were already handled, passed or held.
    Duplicates,
    /// Records that arrived after their position was declared missed.
    Late,
    /// Records that failed for good.
    Dead,
    Ignored,
    /// Records handled offline, because the store did not answer.
    StoreFailures,
    /// Handled records whose position is off the grid of their key.
    OffGrid,
    /// Failed runs of the handler.
    Failures,
    /// Duplicates that are off the grid of their key: the handler may never have seen them.
    OffStep,
}

impl StreamCounter {
    /// All counters, in the order in which stores keep them.
    pub const ALL: [Self; 17] = [
        Self::Added,
        Self::Removed,
        Self::TaskScheduled,
        Self::Cleared,
        Self::Timeout,
        Self::CircuitBreaker,
        Self::Rescheduling,
        Self::Handled,
        Self::Misses,
        Self::Duplicates,
        Self::Late,
        Self::Dead,
        Self::Ignored,
        Self::StoreFailures,
        Self::OffGrid,
        Self::Failures,
        Self::OffStep,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::TaskScheduled => "task_scheduled",
            Self::Cleared => "cleared",
            Self::Timeout => "timeout",
            Self::CircuitBreaker => "circuit_breaker",
            Self::Rescheduling => "rescheduling",
            Self::Handled => "handled",
            Self::Misses => "misses",
            Self::Duplicates => "duplicates",
            Self::Late => "late",
            Self::Dead => "dead",
            Self::Ignored => "ignored",
            Self::StoreFailures => "store_failures",
            Self::OffGrid => "off_grid",
            Self::Failures => "failures",
            Self::OffStep => "off_step",
        }
    }
}

/// One number for each [`StreamCounter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts([u64; StreamCounter::ALL.len()]);

impl StreamCounts {
    /// Builds counts from numbers in the order of [`StreamCounter::ALL`], as a store kept them.
    /// Counters that the store did not know yet are 0.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut counts = Self::default();
        for (place, number) in counts.0.iter_mut().zip(numbers) {
            *place = number;
        }
        counts
    }

    /// The numbers, in the order of [`StreamCounter::ALL`].
    pub const fn numbers(&self) -> &[u64] {
        &self.0
    }

    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        StreamCounter::ALL
            .into_iter()
            .map(|count| (count.as_str(), self[count]))
    }

    /// Adds the counts of `more` to these.
    pub fn add(&mut self, more: &Self) {
        for (sum, number) in self.0.iter_mut().zip(more.0) {
            *sum = sum.saturating_add(number);
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The number of held records, according to the counts.
    pub fn held(&self) -> u64 {
        self[StreamCounter::Added].saturating_sub(self[StreamCounter::Removed])
    }

    /// The share of waits that ended without giving up a position; `None` before the first wait.
    pub fn success_rate(&self) -> Option<f64> {
        self.share(StreamCounter::Cleared, StreamCounter::TaskScheduled)
    }

    /// Timeouts per added record; `None` before the first record. More than 5 % should raise an
    /// alarm.
    pub fn timeout_rate(&self) -> Option<f64> {
        self.share(StreamCounter::Timeout, StreamCounter::Added)
    }

    /// Overflows per added record; `None` before the first record. More than 0.1 % should raise an
    /// alarm.
    pub fn overflow_rate(&self) -> Option<f64> {
        self.share(StreamCounter::CircuitBreaker, StreamCounter::Added)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is for people; the counts beside it are exact"
    )]
    fn share(&self, part: StreamCounter, whole: StreamCounter) -> Option<f64> {
        (self[whole] > 0).then(|| self[part] as f64 / self[whole] as f64)
    }
}

impl Index<StreamCounter> for StreamCounts {
    type Output = u64;

    fn index(&self, count: StreamCounter) -> &u64 {
        &self.0[count as usize]
    }
}

impl IndexMut<StreamCounter> for StreamCounts {
    fn index_mut(&mut self, count: StreamCounter) -> &mut u64 {
        &mut self.0[count as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_in_the_order_of_the_list() {
        for (at, count) in StreamCounter::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at, "{count:?}");
        }
        let mut counts = StreamCounts::from_numbers([5, 2]);
        counts.add(&StreamCounts::from_numbers([1]));
        assert_eq!((counts[StreamCounter::Added], counts.held()), (6, 4));
    }

    #[test]
    fn rates_are_unknown_before_there_is_anything_to_share() {
        let mut counts = StreamCounts::default();
        assert_eq!(
            (
                counts.success_rate(),
                counts.timeout_rate(),
                counts.overflow_rate()
            ),
            (None, None, None)
        );
        counts[StreamCounter::Added] = 8;
        counts[StreamCounter::Timeout] = 2;
        assert_eq!(counts.timeout_rate(), Some(0.25));
    }
}
