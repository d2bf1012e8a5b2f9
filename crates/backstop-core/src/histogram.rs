//! How long runs took and how long their jobs waited, counted in buckets: small enough to be kept
//! for every minute, and added up in any order to the same.
//!
//! | | |
//! |---|---|
//! | a bucket | a power of two and what is halfway to the next: at most 256 µs, 384 µs, 512 µs, 768 µs, 1.02 ms, … 76 h, and all above |
//! | a percentile | lies in the bucket that the true one is in: at most half as much again |
//! | two histograms | added up bucket by bucket: in whatever order and however grouped, the sum is the same |

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// How many buckets there are; the last has no upper end.
pub const BUCKETS: usize = 62;
/// The first bucket ends at this power of two, in microseconds.
const FIRST_POWER: usize = 8;

/// How many of what took how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The longest that falls into a bucket, in microseconds; the last has none.
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

/// What a bucket begins behind.
pub const fn lower(bucket: usize) -> Span {
    match bucket.checked_sub(1) {
        None => Span::ZERO,
        Some(before) => match upper(before) {
            Some(end) => end,
            None => Span::ZERO,
        },
    }
}

/// The bucket that something falls into that took so long.
pub fn bucket_of(took: Span) -> usize {
    (0..BUCKETS)
        .find(|bucket| upper(*bucket).is_none_or(|end| took <= end))
        .unwrap_or(BUCKETS - 1)
}

impl Histogram {
    /// Counts one that took so long.
    pub fn note(&mut self, took: Span) {
        let count = &mut self.0[bucket_of(took)];
        *count = count.saturating_add(1);
    }

    /// Counts what `more` has counted.
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

    /// The buckets, the shortest first.
    pub const fn buckets(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// What so many per cent did not exceed, as if those of a bucket were spread over it evenly; of
    /// the last bucket its beginning. `None` of none.
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

/// So many per cent of a count, rounded up.
fn share(count: u64, percent: u8) -> u64 {
    let share = (u128::from(count) * u128::from(percent)).div_ceil(100);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// How the runs of a queue or a kind went in a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RunHistograms {
    /// Runs that failed: their jobs are tried again, or dead.
    #[serde(default, rename = "f")]
    pub failed: u64,
    /// How long runs took; as many as there were.
    #[serde(default, rename = "r", with = "sparse")]
    pub run: Histogram,
    /// From when a job was to run to the start of its run, where that is known.
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

    /// Counts what `more` has counted.
    pub fn merge(&mut self, more: &Self) {
        self.failed = self.failed.saturating_add(more.failed);
        self.run.merge(&more.run);
        self.wait.merge(&more.wait);
    }

    pub fn runs(&self) -> u64 {
        self.run.count()
    }
}

/// As pairs of bucket and count, without those that are empty.
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
