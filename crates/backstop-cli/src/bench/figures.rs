//! What is measured: rates and times, and the middle of repetitions.

use serde::Serialize;
use std::time::Duration;

/// So many in so much time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct BenchRate {
    pub(super) count: usize,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
}

impl BenchRate {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a benchmark fit a double exactly"
    )]
    pub(super) fn of(count: usize, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        Self {
            count,
            seconds,
            per_second: count as f64 / seconds.max(1e-9),
        }
    }

    #[expect(clippy::cast_sign_loss, reason = "a rate is not negative")]
    pub(super) fn count_per_second(self) -> usize {
        self.per_second.round() as usize
    }

    /// This as a share of `other`, to three digits.
    pub(super) fn ratio_to(self, other: Self) -> f64 {
        (self.per_second / other.per_second * 1_000.0).round() / 1_000.0
    }

    /// The middle one of repetitions; of an even number, the lower of the two in the middle.
    pub(super) fn median(repetitions: impl IntoIterator<Item = Self>) -> Self {
        let mut rates: Vec<Self> = repetitions.into_iter().collect();
        rates.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        rates[(rates.len() - 1) / 2]
    }
}

/// The middle and the tail of a set of times.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct BenchLatency {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) samples: usize,
}

impl BenchLatency {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: usize| {
            times.get((times.len() * share / 100).min(times.len().saturating_sub(1)))
        };
        let ms = |share| at(share).map_or(0.0, |time| time.as_secs_f64() * 1_000.0);
        Self {
            p50_ms: ms(50),
            p99_ms: ms(99),
            samples: times.len(),
        }
    }
}

/// The middle one of times.
pub(super) fn median_time(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_repetitions_is_one_of_them() {
        let rate = |count| BenchRate::of(count, Duration::from_secs(1));
        let middle =
            |counts: &[usize]| BenchRate::median(counts.iter().map(|count| rate(*count))).count;
        assert_eq!(
            (middle(&[7]), middle(&[9, 1, 5]), middle(&[4, 8])),
            (7, 5, 4)
        );
        assert!((rate(1).ratio_to(rate(3)) - 0.333).abs() < 1e-9);
        assert_eq!(
            median_time((1..=3).map(Duration::from_secs).collect()),
            Duration::from_secs(2)
        );
    }
}
