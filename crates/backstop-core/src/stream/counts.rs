//! What happened in a stream, counted.

use std::ops::{Index, IndexMut};

/// What is counted. The order is how stores keep them: new ones go to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamCounter {
    /// Records that waited, or came in behind others that did.
    Added,
    /// Those that left, in whatever way: added less removed is what is held.
    Removed,
    /// Keys that began to wait.
    TaskScheduled,
    /// Keys whose wait ended with nothing given up.
    Cleared,
    /// Times a key was given up because it had waited long enough.
    Timeout,
    /// Times a key was given up because it held too much.
    CircuitBreaker,
    /// Times a key was looked at in vain and waits on.
    Rescheduling,
    Handled,
    /// Positions declared missing, those in ranges included.
    Misses,
    /// Records for positions that were handled, passed or held.
    Duplicates,
    /// Records that came after they were declared missing.
    Late,
    /// Records that failed for good.
    Dead,
    Ignored,
    /// Records handled without the store, because it did not answer.
    StoreFailures,
    /// Records nearer than their step.
    OffGrid,
    /// Failed runs of the handler.
    Failures,
    /// Duplicates that are off the grid of their key: nobody may have seen them.
    OffStep,
}

impl StreamCounter {
    /// All of them, in the order in which stores keep them.
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

/// One number for each [`Count`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts([u64; StreamCounter::ALL.len()]);

impl StreamCounts {
    /// Of numbers in the order of [`Count::ALL`], as a store kept them; those it did not know are
    /// 0.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut counts = Self::default();
        for (place, number) in counts.0.iter_mut().zip(numbers) {
            *place = number;
        }
        counts
    }

    /// The numbers in the order of [`Count::ALL`].
    pub const fn numbers(&self) -> &[u64] {
        &self.0
    }

    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        StreamCounter::ALL
            .into_iter()
            .map(|count| (count.as_str(), self[count]))
    }

    /// Counts what `more` has counted.
    pub fn add(&mut self, more: &Self) {
        for (sum, number) in self.0.iter_mut().zip(more.0) {
            *sum = sum.saturating_add(number);
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is held, by the counts.
    pub fn held(&self) -> u64 {
        self[StreamCounter::Added].saturating_sub(self[StreamCounter::Removed])
    }

    /// Which share of the waits ended with nothing given up; `None` before the first.
    pub fn success_rate(&self) -> Option<f64> {
        self.share(StreamCounter::Cleared, StreamCounter::TaskScheduled)
    }

    /// Timeouts per record added; `None` before the first. More than 5 % should alarm somebody.
    pub fn timeout_rate(&self) -> Option<f64> {
        self.share(StreamCounter::Timeout, StreamCounter::Added)
    }

    /// Overflows per record added; `None` before the first. More than 0.1 % should alarm somebody.
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
