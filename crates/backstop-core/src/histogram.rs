//! Histograms of how long runs took and how long their jobs waited. A histogram is small enough to
//! be stored for every minute, and histograms add up to the same sum in any order.
//!
//! | | |
//! |---|---|
//! | a bucket | ends at a power of two or halfway to the next: at most 256 µs, 384 µs, 512 µs, 768 µs, 1.02 ms, … 76 h, and all above |
//! | a percentile | lies in the same bucket as the true one: at most half as much again |
//! | two histograms | are added bucket by bucket: the sum is the same in any order and any grouping |

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// The number of buckets; the last has no upper end.
pub const BUCKETS: usize = 62;
/// The first bucket ends at 2 to this power, in microseconds.
const FIRST_POWER: usize = 8;

/// The number of durations in each bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The longest duration of a bucket; `None` for the last one.
pub const fn upper(bucket: usize) -> Option<Span> {
    if bucket + 1 >= BUCKETS {
        return None;
    }
    let power = 1_i64 << (FIRST_POWER + bucket / 2);
    Some(Span::micros(if bucket.is_multiple_of(2) {
        power
    } else {
        power + power / 2
    }))
}

/// The exclusive lower end of a bucket.
pub const fn lower(bucket: usize) -> Span {
    match bucket.checked_sub(1) {
        None => Span::ZERO,
        Some(before) => match upper(before) {
            Some(end) => end,
            None => Span::ZERO,
        },
    }
}

/// The bucket of a duration.
pub fn bucket_of(took: Span) -> usize {
    (0..BUCKETS)
        .find(|bucket| upper(*bucket).is_none_or(|end| took <= end))
        .unwrap_or(BUCKETS - 1)
}

impl Histogram {
    /// Counts one duration in its bucket.
    pub fn note(&mut self, took: Span) {
        let count = &mut self.0[bucket_of(took)];
        *count = count.saturating_add(1);
    }

    /// Adds the counts of `more` to these.
    pub fn merge(&mut self, more: &Self) {
        for (sum, count) in self.0.iter_mut().zip(more.0) {
            *sum = sum.saturating_add(count);
        }
    }

    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The buckets, the shortest durations first.
    pub const fn buckets(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// A percentile, interpolated as if durations were spread evenly over their bucket; for the
    /// last bucket, its lower end. `None` if the histogram is empty.
    pub fn percentile(&self, percent: u8) -> Option<Span> {
        let rank = share(self.count(), percent.min(100)).max(1);
        let mut before = 0_u64;
        for (bucket, number) in self.0.iter().enumerate() {
            if before.saturating_add(*number) >= rank {
                let Some(end) = upper(bucket) else {
                    return Some(lower(bucket));
                };
                let (start, end) = (lower(bucket).as_micros(), end.as_micros());
                let (place, of) = (i128::from(rank - before), i128::from((*number).max(1)));
                let within = i128::from(end - start) * place / of;
                return Some(Span::micros(
                    start + i64::try_from(within.max(1)).unwrap_or(end - start),
                ));
            }
            before = before.saturating_add(*number);
        }
        None
    }
}

/// A percentage of a count, rounded up.
fn share(count: u64, percent: u8) -> u64 {
    let share = (u128::from(count) * u128::from(percent)).div_ceil(100);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The runs of a queue or a kind during some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RunHistograms {
    /// Runs that failed: their jobs are tried again, or dead.
    #[serde(default, rename = "f")]
    pub failed: u64,
    /// How long each run took; its count is the number of runs.
    #[serde(default, rename = "r", with = "sparse")]
    pub run: Histogram,
    /// The time from a job's due time to the start of its run, where that is known.
    #[serde(default, rename = "w", with = "sparse")]
    pub wait: Histogram,
}

impl RunHistograms {
    pub fn note(&mut self, wait: Option<Span>, took: Span, failed: bool) {
        self.failed = self.failed.saturating_add(u64::from(failed));
        self.run.note(took);
        if let Some(wait) = wait {
            self.wait.note(wait);
        }
    }

    /// Adds the counts of `more` to these.
    pub fn merge(&mut self, more: &Self) {
        self.failed = self.failed.saturating_add(more.failed);
        self.run.merge(&more.run);
        self.wait.merge(&more.wait);
    }

    pub fn runs(&self) -> u64 {
        self.run.count()
    }
}

/// Serializes a histogram as pairs of bucket and count, without the empty buckets.
mod sparse {
    use super::{BUCKETS, Histogram};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        histogram: &Histogram,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let counted = histogram
            .0
            .iter()
            .zip(0_u64..)
            .filter(|(count, _)| **count > 0);
        counted
            .flat_map(|(count, bucket)| [bucket, *count])
            .collect::<Vec<u64>>()
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Histogram, D::Error> {
        let pairs = Vec::<u64>::deserialize(deserializer)?;
        let mut histogram = Histogram::default();
        for pair in pairs.chunks_exact(2) {
            let bucket = usize::try_from(pair[0]).unwrap_or(BUCKETS).min(BUCKETS - 1);
            histogram.0[bucket] = histogram.0[bucket].saturating_add(pair[1]);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests;
