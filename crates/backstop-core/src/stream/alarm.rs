//! Alarms of a stream: when an operator should look at it.

use super::counts::{StreamCounter, StreamCounts};
use std::collections::VecDeque;
use std::fmt;

/// The number of samples kept, one a minute: alarms cover the last ten minutes.
const SAMPLES: usize = 11;
const TIMEOUT_RATE_MAX: f64 = 0.05;
const OVERFLOW_RATE_MAX: f64 = 0.001;

/// The reason why an operator should look at a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamAlarm {
    /// Producers do not fill gaps in time.
    TimeoutRate,
    /// Keys hold more records than `max_held`.
    OverflowRate,
    /// The number of held records grows every minute.
    HeldGrowing,
}

impl StreamAlarm {
    pub const ALL: [Self; 3] = [Self::TimeoutRate, Self::OverflowRate, Self::HeldGrowing];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimeoutRate => "timeout_rate",
            Self::OverflowRate => "overflow_rate",
            Self::HeldGrowing => "held_growing",
        }
    }
}

impl fmt::Display for StreamAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TimeoutRate => "more than 5 % of the records that wait time out: their producers are late, or gone",
            Self::OverflowRate => "more than 0.1 % of the records that wait overflow their key; raise max_held, or look for what delays records",
            Self::HeldGrowing => "more is held every minute; handlers or producers fall behind",
        })
    }
}

/// The counts of a stream, one sample a minute.
#[derive(Clone, Debug, Default)]
pub struct AlarmWatch(VecDeque<StreamCounts>);

impl AlarmWatch {
    /// Adds the counts of this minute and returns the alarms that are on.
    pub fn observe(&mut self, counts: StreamCounts) -> Vec<StreamAlarm> {
        self.0.push_back(counts);
        if self.0.len() > SAMPLES {
            self.0.pop_front();
        }
        recent_alarms(self.0.make_contiguous(), &counts)
    }
}

/// Returns the alarms that are on. `minutes` has one sample a minute, the oldest first; `now` is
/// the current sample. Without earlier samples there is no alarm.
pub fn recent_alarms(minutes: &[StreamCounts], now: &StreamCounts) -> Vec<StreamAlarm> {
    let minutes = &minutes[minutes.len().saturating_sub(SAMPLES)..];
    let first = minutes.first().copied().unwrap_or(*now);
    let since = |count: StreamCounter| now[count].saturating_sub(first[count]);
    let lately = StreamCounts::from_numbers(StreamCounter::ALL.map(since));
    let grows =
        minutes.len() == SAMPLES && minutes.is_sorted_by(|one, next| one.held() < next.held());
    let rings = |alarm: &StreamAlarm| match alarm {
        StreamAlarm::TimeoutRate => lately
            .timeout_rate()
            .is_some_and(|rate| rate > TIMEOUT_RATE_MAX),
        StreamAlarm::OverflowRate => lately
            .overflow_rate()
            .is_some_and(|rate| rate > OVERFLOW_RATE_MAX),
        StreamAlarm::HeldGrowing => grows,
    };
    StreamAlarm::ALL.into_iter().filter(rings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(added: u64, removed: u64, timeout: u64, overflow: u64) -> StreamCounts {
        let mut counts = StreamCounts::from_numbers([added, removed]);
        counts[StreamCounter::Timeout] = timeout;
        counts[StreamCounter::CircuitBreaker] = overflow;
        counts
    }

    #[test]
    fn rates_ring_above_their_limit_and_not_at_it() {
        let since_nothing = |now: StreamCounts| recent_alarms(&[StreamCounts::default()], &now);
        assert_eq!(since_nothing(counts(0, 0, 0, 0)), []);
        assert_eq!(since_nothing(counts(1_000, 1_000, 50, 1)), []);
        assert_eq!(
            since_nothing(counts(1_000, 1_000, 51, 2)),
            [StreamAlarm::TimeoutRate, StreamAlarm::OverflowRate]
        );
    }

    #[test]
    fn a_good_year_does_not_hide_a_bad_hour_and_a_bad_year_does_not_ring_in_a_good_one() {
        let minutes = |from: StreamCounts, each: StreamCounts| -> Vec<StreamCounts> {
            let mut now = from;
            let mut next = || {
                now.add(&each);
                now
            };
            (0..SAMPLES).map(|_| next()).collect()
        };
        let rings = |minutes: &[StreamCounts]| recent_alarms(minutes, minutes.last().unwrap());
        let good_year = counts(1_000_000, 1_000_000, 0, 0);
        assert_eq!(
            rings(&minutes(good_year, counts(100, 100, 50, 0))),
            [StreamAlarm::TimeoutRate]
        );
        let bad_year = counts(1_000_000, 1_000_000, 500_000, 0);
        assert_eq!(rings(&minutes(bad_year, counts(100, 100, 0, 0))), []);
        assert_eq!(recent_alarms(&[], &bad_year), [], "nobody looked");
    }

    #[test]
    fn what_was_long_ago_does_not_ring() {
        let mut watch = AlarmWatch::default();
        watch.observe(counts(0, 0, 0, 0));
        assert_eq!(
            watch.observe(counts(100, 100, 90, 0)),
            [StreamAlarm::TimeoutRate]
        );
        let mut last = Vec::new();
        for minute in 0..SAMPLES as u64 {
            last = watch.observe(counts(100 + minute * 1_000, 100 + minute * 1_000, 90, 0));
        }
        assert_eq!(last, []);
    }

    #[test]
    fn growth_rings_when_it_goes_on_for_ten_minutes() {
        let mut watch = AlarmWatch::default();
        for minute in 0..10 {
            assert_eq!(
                watch.observe(counts(100 * (minute + 1), 90 * (minute + 1), 0, 0)),
                [],
                "minute {minute}"
            );
        }
        assert_eq!(
            watch.observe(counts(1_100, 990, 0, 0)),
            [StreamAlarm::HeldGrowing]
        );
        assert_eq!(watch.observe(counts(1_200, 1_200, 0, 0)), []);
    }
}
