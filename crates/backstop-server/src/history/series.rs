//! Rows as points of a chart. Where nobody looked there is a gap: neither a zero nor a line across
//! it.

use super::block::{HistoryResolution, floor};
use super::sample::{QueueSample, StreamSample};
use backstop_core::{Span, Time};
use std::fmt;
use std::str::FromStr;

/// How far back a chart looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeWindow {
    /// Five minutes, every five seconds.
    FiveMinutes,
    /// An hour, minute by minute.
    #[default]
    Hour,
    /// A day, every five minutes.
    Day,
    /// A week, every half hour.
    Week,
}

impl TimeWindow {
    /// All of them, the shortest first.
    pub const ALL: [Self; 4] = [Self::FiveMinutes, Self::Hour, Self::Day, Self::Week];

    /// Its word in an address.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    pub const fn length(self) -> Span {
        match self {
            Self::FiveMinutes => Span::minutes(5),
            Self::Hour => Span::hours(1),
            Self::Day => Span::days(1),
            Self::Week => Span::days(7),
        }
    }

    /// How far apart its points are.
    pub const fn step(self) -> Span {
        match self {
            Self::FiveMinutes => Span::secs(5),
            Self::Hour => Span::minutes(1),
            Self::Day => Span::minutes(5),
            Self::Week => Span::minutes(30),
        }
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5 minutes",
            Self::Hour => "1 hour",
            Self::Day => "24 hours",
            Self::Week => "7 days",
        }
    }

    /// Which rows of the store it is drawn from; none for what the process itself saw.
    pub(super) const fn resolution(self) -> Option<HistoryResolution> {
        match self {
            Self::FiveMinutes => None,
            Self::Hour | Self::Day => Some(HistoryResolution::Minute),
            Self::Week => Some(HistoryResolution::TenMinutes),
        }
    }

    /// The steps, the oldest first: from (not included) and until. The last ends at the last full
    /// step before `now`.
    fn steps(self, now: Time) -> impl Iterator<Item = (Time, Time)> {
        let step = self.step();
        let count = self.length().as_micros() / step.as_micros();
        let end = floor(now, step);
        (0..count).rev().map(move |back| {
            let until = end.before(step.times(back));
            (until.before(step), until)
        })
    }
}

impl fmt::Display for TimeWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a window is 5m, 1h, 24h or 7d")]
pub struct InvalidTimeWindow;

impl FromStr for TimeWindow {
    type Err = InvalidTimeWindow;

    fn from_str(text: &str) -> Result<Self, InvalidTimeWindow> {
        Self::ALL
            .into_iter()
            .find(|window| window.as_str() == text)
            .ok_or(InvalidTimeWindow)
    }
}

/// A point of a chart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SeriesPoint {
    /// The end of its step.
    pub at: Time,
    /// What it was; `None` where nobody looked.
    pub value: Option<f64>,
}

/// A line of a chart, the oldest point first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TimeSeries {
    /// The points, one for each step.
    pub points: Vec<SeriesPoint>,
}

impl TimeSeries {
    /// The latest value there is.
    pub fn last(&self) -> Option<f64> {
        self.points.iter().rev().find_map(|point| point.value)
    }

    /// The highest value there is.
    pub fn maximum(&self) -> Option<f64> {
        self.points
            .iter()
            .filter_map(|point| point.value)
            .reduce(f64::max)
    }

    /// How many of its steps are known.
    pub fn known_steps(&self) -> usize {
        self.points
            .iter()
            .filter(|point| point.value.is_some())
            .count()
    }

    /// Whether there is nothing but gaps.
    pub fn is_empty(&self) -> bool {
        self.last().is_none()
    }
}

/// A queue over a window: what happened, per second, and what was there, the most of each step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueueSeries {
    /// Jobs taken in, per second.
    pub enqueued: TimeSeries,
    pub done: TimeSeries,
    /// Jobs that died, per second.
    pub dead: TimeSeries,
    /// Jobs called off, per second.
    pub cancelled: TimeSeries,
    /// Jobs whose time has not come.
    pub scheduled: TimeSeries,
    /// Jobs that wait for a worker.
    pub ready: TimeSeries,
    pub running: TimeSeries,
    /// Jobs that wait for their next attempt.
    pub retrying: TimeSeries,
    pub letters: TimeSeries,
    /// How long the oldest ready job has waited, in seconds.
    pub oldest_ready: TimeSeries,
}

impl QueueSeries {
    pub(super) fn of(rows: &[(Time, QueueSample)], window: TimeWindow, now: Time) -> Self {
        let rate = |of: fn(&QueueSample) -> u64| rate(rows, of, window, now);
        let level = |of: fn(&QueueSample) -> u64| level(rows, of, window, now);
        Self {
            enqueued: rate(|figures| figures.enqueued),
            done: rate(|figures| figures.done),
            dead: rate(|figures| figures.dead),
            cancelled: rate(|figures| figures.cancelled),
            scheduled: level(|figures| figures.scheduled),
            ready: level(|figures| figures.ready),
            running: level(|figures| figures.running),
            retrying: level(|figures| figures.retrying),
            letters: level(|figures| figures.letters),
            oldest_ready: level(|figures| figures.oldest_ready_ms).scaled(0.001),
        }
    }
}

impl QueueSeries {
    /// Ending with what was seen at `now`: a chart of what is there ends where the numbers beside
    /// it stand.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a depth in a chart is for people"
    )]
    pub fn ending_with(mut self, seen: QueueSample, now: Time) -> Self {
        let ends = [
            (&mut self.scheduled, seen.scheduled as f64),
            (&mut self.ready, seen.ready as f64),
            (&mut self.running, seen.running as f64),
            (&mut self.retrying, seen.retrying as f64),
            (&mut self.letters, seen.letters as f64),
            (&mut self.oldest_ready, seen.oldest_ready_ms as f64 * 0.001),
        ];
        for (series, value) in ends {
            // One moment makes no line where nothing was recorded.
            if !series.is_empty() {
                series.points.push(SeriesPoint {
                    at: now,
                    value: Some(value),
                });
            }
        }
        self
    }
}

/// A stream over a window.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamSeries {
    pub handled: TimeSeries,
    /// Records that had to wait, per second.
    pub added: TimeSeries,
    /// Positions declared missing, per second.
    pub misses: TimeSeries,
    /// Keys given up because they had waited long enough, per second.
    pub timeouts: TimeSeries,
    /// Records that came too late, per second.
    pub late: TimeSeries,
    pub held: TimeSeries,
    pub holding: TimeSeries,
}

impl StreamSeries {
    pub(super) fn of(rows: &[(Time, StreamSample)], window: TimeWindow, now: Time) -> Self {
        let rate = |of: fn(&StreamSample) -> u64| rate(rows, of, window, now);
        let level = |of: fn(&StreamSample) -> u64| level(rows, of, window, now);
        Self {
            handled: rate(|figures| figures.handled),
            added: rate(|figures| figures.added),
            misses: rate(|figures| figures.misses),
            timeouts: rate(|figures| figures.timeouts),
            late: rate(|figures| figures.late),
            held: level(|figures| figures.held),
            holding: level(|figures| figures.holding),
        }
    }
}

impl TimeSeries {
    fn scaled(mut self, factor: f64) -> Self {
        for point in &mut self.points {
            point.value = point.value.map(|value| value * factor);
        }
        self
    }
}

/// What was added in each step, per second. A step without a row is a gap; so is one whose
/// beginning nobody saw, and one in which a total fell: it is another queue of the same name.
#[expect(clippy::cast_precision_loss, reason = "a rate is for people")]
fn rate<F>(rows: &[(Time, F)], of: fn(&F) -> u64, window: TimeWindow, now: Time) -> TimeSeries {
    let reach = window.step().times(2);
    let value = |from: Time, until: Time| {
        let end = rows
            .partition_point(|(at, _)| *at <= until)
            .checked_sub(1)?;
        let start = rows.partition_point(|(at, _)| *at <= from).checked_sub(1)?;
        let ((began, first), (ended, last)) = (&rows[start], &rows[end]);
        let took = ended.since(*began);
        if end == start || took > reach {
            return None;
        }
        let added = of(last).checked_sub(of(first))?;
        Some(added as f64 / took.as_secs_f64())
    };
    let points = window.steps(now).map(|(from, until)| SeriesPoint {
        at: until,
        value: value(from, until),
    });
    TimeSeries {
        points: points.collect(),
    }
}

/// The most there was in each step.
#[expect(
    clippy::cast_precision_loss,
    reason = "a depth in a chart is for people"
)]
fn level<F>(rows: &[(Time, F)], of: fn(&F) -> u64, window: TimeWindow, now: Time) -> TimeSeries {
    let value = |from: Time, until: Time| {
        let start = rows.partition_point(|(at, _)| *at <= from);
        let end = rows.partition_point(|(at, _)| *at <= until);
        rows[start..end]
            .iter()
            .map(|(_, figures)| of(figures) as f64)
            .reduce(f64::max)
    };
    let points = window.steps(now).map(|(from, until)| SeriesPoint {
        at: until,
        value: value(from, until),
    });
    TimeSeries {
        points: points.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Time {
        Time::from_millis(1_767_225_600_000 + minute * 60_000)
    }

    fn seen(totals: &[(i64, u64)]) -> Vec<(Time, QueueSample)> {
        let figures = |n| QueueSample {
            done: n,
            ready: n,
            ..QueueSample::default()
        };
        totals
            .iter()
            .map(|(minute, n)| (at(*minute), figures(*n)))
            .collect()
    }

    fn tail(series: &TimeSeries, n: usize) -> Vec<Option<f64>> {
        series
            .points
            .iter()
            .rev()
            .take(n)
            .rev()
            .map(|point| point.value)
            .collect()
    }

    #[test]
    fn a_rate_is_what_a_total_grew_by() {
        let series = QueueSeries::of(
            &seen(&[(57, 0), (58, 60), (59, 60), (60, 180)]),
            TimeWindow::Hour,
            at(60),
        );
        assert_eq!(series.done.points.len(), 60);
        assert_eq!(
            tail(&series.done, 4),
            [None, Some(1.0), Some(0.0), Some(2.0)]
        );
        assert_eq!(
            tail(&series.ready, 4),
            [Some(0.0), Some(60.0), Some(60.0), Some(180.0)]
        );
    }

    #[test]
    fn where_nobody_looked_there_is_a_gap_and_what_happened_in_it_is_not_heaped_on_what_follows() {
        let series = QueueSeries::of(
            &seen(&[(50, 0), (58, 6_000), (59, 6_060)]),
            TimeWindow::Hour,
            at(60),
        );
        assert_eq!(tail(&series.done, 4), [None, None, Some(1.0), None]);
        assert_eq!(
            tail(&series.ready, 4),
            [None, Some(6_000.0), Some(6_060.0), None]
        );
    }

    #[test]
    fn a_minute_that_was_skipped_is_a_gap_and_the_next_one_covers_both() {
        let series = QueueSeries::of(&seen(&[(57, 0), (59, 120)]), TimeWindow::Hour, at(59));
        assert_eq!(tail(&series.done, 2), [None, Some(1.0)]);
    }

    #[test]
    fn a_total_that_fell_is_a_gap() {
        let series = QueueSeries::of(
            &seen(&[(57, 500), (58, 3), (59, 63)]),
            TimeWindow::Hour,
            at(59),
        );
        assert_eq!(tail(&series.done, 2), [None, Some(1.0)]);
    }

    #[test]
    fn windows_have_their_number_of_points_and_nothing_is_known_of_an_empty_store() {
        for (window, points) in [
            (TimeWindow::FiveMinutes, 60),
            (TimeWindow::Hour, 60),
            (TimeWindow::Day, 288),
            (TimeWindow::Week, 336),
        ] {
            let series = QueueSeries::of(&[], window, at(0));
            assert_eq!(series.done.points.len(), points);
            assert!(series.done.is_empty() && series.oldest_ready.is_empty());
            assert_eq!(window.as_str().parse(), Ok(window));
        }
        assert_eq!("1y".parse::<TimeWindow>(), Err(InvalidTimeWindow));
    }

    #[test]
    fn a_day_shows_the_highest_of_its_steps() {
        let mut rows = seen(&[(0, 5), (1, 90), (2, 5), (3, 5), (4, 5), (5, 5)]);
        rows.sort_by_key(|(at, _)| *at);
        let series = QueueSeries::of(&rows, TimeWindow::Day, at(5));
        assert_eq!(tail(&series.ready, 1), [Some(90.0)]);
    }
}
