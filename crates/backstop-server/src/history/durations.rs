//! How long runs took and how long their jobs waited over a window, as percentiles. A step without
//! a run is a gap.

use super::series::{SeriesPoint, TimeSeries, TimeWindow};
use backstop::Backstop;
use backstop::core::histogram::{Histogram, RunHistograms};
use backstop::core::port::StoreResult;
use backstop::run_times::{RunTimeResolution, RunTimeSubject};
use backstop::{Kind, QueueName};
use backstop_core::{Span, Time};

/// What is told of how long things took.
pub const PERCENTS: [u8; 3] = [50, 95, 99];

/// How long runs took and how long their jobs waited, in seconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DurationSeries {
    /// How long runs took: one series for each of [`PERCENTS`].
    pub run: [TimeSeries; 3],
    /// From when jobs were to run to the start of their runs.
    pub wait: [TimeSeries; 3],
}

/// What is read for a window: how far apart its steps are, and of what.
const fn resolution_of(window: TimeWindow) -> (RunTimeResolution, Span) {
    match window {
        TimeWindow::FiveMinutes | TimeWindow::Hour => (RunTimeResolution::Minute, Span::minutes(1)),
        TimeWindow::Day => (RunTimeResolution::Minute, Span::minutes(5)),
        TimeWindow::Week => (RunTimeResolution::HalfHour, Span::minutes(30)),
    }
}

impl DurationSeries {
    /// What the store says of a window.
    pub async fn read(
        backstop: &Backstop,
        of: &RunTimeSubject,
        window: TimeWindow,
    ) -> StoreResult<Self> {
        let now = backstop.now();
        let (resolution, step) = resolution_of(window);
        let from = now.before(window.length()).before(step);
        Ok(Self::of(
            &backstop.run_times().of(of, resolution, from, now).await?,
            window,
            now,
        ))
    }

    /// Of spreads by the beginnings of their minutes or half hours, the oldest first.
    fn of(rows: &[(Time, RunHistograms)], window: TimeWindow, now: Time) -> Self {
        let (_, step) = resolution_of(window);
        let count = window.length().as_micros() / step.as_micros();
        // What the step of now has counted so far is in the next look.
        let end = Time::from_micros(now.as_micros() - now.as_micros().rem_euclid(step.as_micros()));
        let mut durations = Self::default();
        for back in (0..count).rev() {
            let until = end.before(step.times(back));
            let start = rows.partition_point(|(at, _)| *at < until.before(step));
            let stop = rows.partition_point(|(at, _)| *at < until);
            let mut sum = RunHistograms::default();
            for (_, spread) in &rows[start..stop.max(start)] {
                sum.merge(spread);
            }
            for (series, histogram) in [
                (&mut durations.run, &sum.run),
                (&mut durations.wait, &sum.wait),
            ] {
                for (line, percent) in series.iter_mut().zip(PERCENTS) {
                    line.points.push(SeriesPoint {
                        at: until,
                        value: percentile_seconds(histogram, percent),
                    });
                }
            }
        }
        durations
    }
}

pub fn percentile_seconds(histogram: &Histogram, percent: u8) -> Option<f64> {
    histogram.percentile(percent).map(Span::as_secs_f64)
}

/// How it went with each kind that had a run in a window, the busiest first.
pub async fn read_kinds(
    backstop: &Backstop,
    window: TimeWindow,
) -> StoreResult<Vec<(QueueName, Kind, RunHistograms)>> {
    let resolution = match window {
        TimeWindow::FiveMinutes | TimeWindow::Hour => RunTimeResolution::Minute,
        TimeWindow::Day | TimeWindow::Week => RunTimeResolution::HalfHour,
    };
    let now = backstop.now();
    let from = resolution
        .floor(now.before(window.length()))
        .after(resolution.step());
    let mut kinds = backstop.run_times().kinds(resolution, from, now).await?;
    kinds.sort_by(|(queue, kind, spread), (other_queue, other, more)| {
        (more.runs(), queue, kind).cmp(&(spread.runs(), other_queue, other))
    });
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Time {
        Time::from_millis(1_767_225_600_000 + minute * 60_000)
    }

    fn ran(seconds: i64) -> RunHistograms {
        let mut spread = RunHistograms::default();
        spread.note(Some(Span::secs(1)), Span::secs(seconds), false);
        spread
    }

    fn tail(series: &TimeSeries) -> Vec<bool> {
        series
            .points
            .iter()
            .rev()
            .take(3)
            .rev()
            .map(|point| point.value.is_some())
            .collect()
    }

    #[test]
    fn a_minute_without_a_run_is_a_gap_and_that_of_now_is_not_told_yet() {
        let rows = [(at(57), ran(1)), (at(59), ran(1)), (at(60), ran(1))];
        let durations = DurationSeries::of(&rows, TimeWindow::Hour, at(60).after(Span::secs(20)));
        assert_eq!(durations.run[0].points.len(), 60);
        assert_eq!(tail(&durations.run[0]), [true, false, true]);
        assert_eq!(tail(&durations.wait[2]), [true, false, true]);
    }

    #[test]
    fn windows_have_their_number_of_points() {
        for (window, points) in [
            (TimeWindow::FiveMinutes, 5),
            (TimeWindow::Hour, 60),
            (TimeWindow::Day, 288),
            (TimeWindow::Week, 336),
        ] {
            assert_eq!(
                DurationSeries::of(&[], window, at(7)).wait[1].points.len(),
                points
            );
        }
    }

    #[test]
    fn five_minutes_of_a_day_are_one_point() {
        let rows: Vec<(Time, RunHistograms)> = (0..5)
            .map(|minute| (at(minute), ran(if minute == 4 { 90 } else { 1 })))
            .collect();
        let durations = DurationSeries::of(&rows, TimeWindow::Day, at(5));
        let (median, worst) = (
            durations.run[0].last().unwrap(),
            durations.run[2].last().unwrap(),
        );
        assert!(
            (0.7..1.1).contains(&median) && (60.0..110.0).contains(&worst),
            "{median} {worst}"
        );
    }
}
