//! How long runs took and how long their jobs waited over a window, as percentiles. A step without
//! a run is a gap.

use super::series::{Point, Series, Window};
use backstop::Backstop;
use backstop::core::port::Answer;
use backstop::core::spread::{Histogram, Spread};
use backstop::spreads::{Grain, Subject};
use backstop::{Kind, QueueName};
use backstop_core::{Span, Time};

/// What is told of how long things took.
pub const PERCENTS: [u8; 3] = [50, 95, 99];

/// How long runs took and how long their jobs waited, in seconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Durations {
    /// How long runs took: one series for each of [`PERCENTS`].
    pub run: [Series; 3],
    /// From when jobs were to run to the start of their runs.
    pub wait: [Series; 3],
}

/// What is read for a window: how far apart its steps are, and of what.
const fn grained(window: Window) -> (Grain, Span) {
    match window {
        Window::FiveMinutes | Window::Hour => (Grain::Minute, Span::minutes(1)),
        Window::Day => (Grain::Minute, Span::minutes(5)),
        Window::Week => (Grain::HalfHour, Span::minutes(30)),
    }
}

impl Durations {
    /// What the store says of a window.
    pub async fn read(backstop: &Backstop, of: &Subject, window: Window) -> Answer<Self> {
        let now = backstop.now();
        let (grain, step) = grained(window);
        let from = now.before(window.length()).before(step);
        Ok(Self::of(
            &backstop.spreads().of(of, grain, from, now).await?,
            window,
            now,
        ))
    }

    /// Of spreads by the beginnings of their minutes or half hours, the oldest first.
    fn of(rows: &[(Time, Spread)], window: Window, now: Time) -> Self {
        let (_, step) = grained(window);
        let count = window.length().as_micros() / step.as_micros();
        // What the step of now has counted so far is in the next look.
        let end = Time::from_micros(now.as_micros() - now.as_micros().rem_euclid(step.as_micros()));
        let mut durations = Self::default();
        for back in (0..count).rev() {
            let until = end.before(step.times(back));
            let start = rows.partition_point(|(at, _)| *at < until.before(step));
            let stop = rows.partition_point(|(at, _)| *at < until);
            let mut sum = Spread::default();
            for (_, spread) in &rows[start..stop.max(start)] {
                sum.merge(spread);
            }
            for (series, histogram) in [
                (&mut durations.run, &sum.run),
                (&mut durations.wait, &sum.wait),
            ] {
                for (line, percent) in series.iter_mut().zip(PERCENTS) {
                    line.points.push(Point {
                        at: until,
                        value: seconds(histogram, percent),
                    });
                }
            }
        }
        durations
    }
}

/// A percentile in seconds.
pub fn seconds(histogram: &Histogram, percent: u8) -> Option<f64> {
    histogram.percentile(percent).map(Span::as_secs_f64)
}

/// How it went with each kind that had a run in a window, the busiest first.
pub async fn kinds(backstop: &Backstop, window: Window) -> Answer<Vec<(QueueName, Kind, Spread)>> {
    let grain = match window {
        Window::FiveMinutes | Window::Hour => Grain::Minute,
        Window::Day | Window::Week => Grain::HalfHour,
    };
    let now = backstop.now();
    let from = grain.floor(now.before(window.length())).after(grain.step());
    let mut kinds = backstop.spreads().kinds(grain, from, now).await?;
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

    fn ran(seconds: i64) -> Spread {
        let mut spread = Spread::default();
        spread.note(Some(Span::secs(1)), Span::secs(seconds), false);
        spread
    }

    fn tail(series: &Series) -> Vec<bool> {
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
        let durations = Durations::of(&rows, Window::Hour, at(60).after(Span::secs(20)));
        assert_eq!(durations.run[0].points.len(), 60);
        assert_eq!(tail(&durations.run[0]), [true, false, true]);
        assert_eq!(tail(&durations.wait[2]), [true, false, true]);
    }

    #[test]
    fn windows_have_their_number_of_points() {
        for (window, points) in [
            (Window::FiveMinutes, 5),
            (Window::Hour, 60),
            (Window::Day, 288),
            (Window::Week, 336),
        ] {
            assert_eq!(
                Durations::of(&[], window, at(7)).wait[1].points.len(),
                points
            );
        }
    }

    #[test]
    fn five_minutes_of_a_day_are_one_point() {
        let rows: Vec<(Time, Spread)> = (0..5)
            .map(|minute| (at(minute), ran(if minute == 4 { 90 } else { 1 })))
            .collect();
        let durations = Durations::of(&rows, Window::Day, at(5));
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
