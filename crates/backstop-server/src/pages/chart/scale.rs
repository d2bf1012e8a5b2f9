//! Numbers on axes: round, few, with their unit.

use crate::policy_lab::round_step;
use crate::words::{about, count};
use backstop_core::{Span, Time};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChartUnit {
    Count,
    PerSecond,
    Seconds,
    Millis,
}

impl ChartUnit {
    /// A number as people read it.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Count => short(value),
            Self::PerSecond => format!("{}/s", short(value)),
            Self::Seconds => seconds(sound(value)),
            Self::Millis => millis(sound(value)),
        }
    }

    /// A whole number to the last digit that matters.
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds of a length of time that people wait for"
    )]
    pub(super) fn exact(self, number: u64) -> String {
        match self {
            Self::Count => count(number),
            Self::PerSecond => format!("{}/s", count(number)),
            Self::Seconds => about(Span::secs(i64::try_from(number).unwrap_or(i64::MAX))),
            Self::Millis => millis(number as f64),
        }
    }
}

/// Seconds: below a minute with their fraction, or two marks of an axis would read the same.
fn seconds(value: f64) -> String {
    match value {
        1.0..60.0 => format!("{}s", trimmed(value, 2)),
        value => about(Span::secs(1).scaled(value)),
    }
}

/// Milliseconds: below a minute with their fraction, as people compare waits.
fn millis(value: f64) -> String {
    const MINUTE: f64 = 60_000.0;
    match value {
        value if value >= MINUTE => about(Span::millis(1).scaled(value)),
        value if value >= 1_000.0 => format!("{}s", trimmed(value / 1_000.0, 2)),
        value => format!("{}ms", trimmed(value, 0)),
    }
}

/// A number that can be drawn: finite, and not below nothing.
pub(super) fn sound(value: f64) -> f64 {
    // Far beyond any count, and far from where a float stops being exact enough to draw with.
    const MOST: f64 = 1e18;
    if value.is_finite() {
        value.clamp(0.0, MOST)
    } else {
        0.0
    }
}

/// A number in at most five characters or so.
#[expect(clippy::cast_sign_loss, reason = "a sound number is not below nothing")]
fn short(value: f64) -> String {
    const NAMES: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let value = sound(value);
    for (size, name) in NAMES {
        if value >= size {
            let unit = if name == "k" { 1e3 } else { size };
            return format!("{}{name}", trimmed(value / unit, 1));
        }
    }
    if value >= 100.0 || value.fract() == 0.0 {
        return count(value.round() as u64);
    }
    let digits = if value >= 10.0 { 1 } else { 2 };
    if value < 0.005 {
        "<0.01".to_owned()
    } else {
        trimmed(value, digits)
    }
}

/// With at most so many decimals, and no zeros at their end.
fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Round numbers from nothing to at least `most`, at most five of them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a logarithm of a sound number is small"
)]
pub(super) fn marks(most: f64, unit: ChartUnit) -> Vec<f64> {
    let most = sound(most);
    let step = match unit {
        ChartUnit::Seconds if most > 60.0 => round_step(Span::secs(1).scaled(most), 4)
            .as_secs_f64()
            .max(most / 8.0),
        _ => {
            let least = if unit == ChartUnit::Count { 1.0 } else { 0.01 };
            let raw = (most / 4.0).max(least);
            let size = 10_f64.powi(raw.log10().floor() as i32);
            let times = [1.0, 2.0, 5.0, 10.0]
                .into_iter()
                .find(|times| times * size >= raw * 0.999);
            times.unwrap_or(10.0) * size
        }
    };
    let mut marks = vec![0.0];
    let mut at = 0.0;
    while at < most.max(step * 0.001) && marks.len() < 10 {
        at += step;
        marks.push(at);
    }
    marks
}

/// Round moments between two times, at most `most`, with their words: a time of day, or a day.
pub(super) fn moments(from: Time, until: Time, most: i64) -> Vec<(Time, String)> {
    let length = until.since(from);
    let step = round_step(length, most);
    if step.is_zero() || length.is_zero() {
        return Vec::new();
    }
    let first = from.as_micros().div_euclid(step.as_micros()) + 1;
    let times =
        (first..first.saturating_add(most + 1)).map(|n| Time::from_micros(n * step.as_micros()));
    times
        .take_while(|time| *time <= until)
        .map(|time| (time, moment(time, step)))
        .collect()
}

/// A moment as precisely as moments `step` apart have to be told.
fn moment(time: Time, step: Span) -> String {
    let text = time.to_string();
    let (date, clock) = text.split_once('T').unwrap_or((&text, ""));
    if step >= Span::days(1) {
        date.get(5..).unwrap_or(date).to_owned()
    } else if step < Span::minutes(1) {
        clock.get(..8).unwrap_or(clock).to_owned()
    } else {
        clock.get(..5).unwrap_or(clock).to_owned()
    }
}

/// Date and time of day, to the second: `2026-11-17 08:30:00`.
pub(super) fn stamp(time: Time) -> String {
    let text = time.to_string();
    text.get(..19)
        .map_or_else(|| text.clone(), |text| text.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_few_and_reach_the_top() {
        for most in [
            0.0,
            0.003,
            0.4,
            1.0,
            7.0,
            99.0,
            100.0,
            1_234.0,
            9.9e6,
            1e18,
            f64::INFINITY,
            f64::NAN,
        ] {
            for unit in [ChartUnit::Count, ChartUnit::PerSecond, ChartUnit::Seconds] {
                let marks = marks(most, unit);
                assert!(
                    (2..=10).contains(&marks.len()),
                    "{most} {unit:?}: {marks:?}"
                );
                assert!(
                    marks.last().is_some_and(|top| *top >= sound(most)),
                    "{most} {unit:?}: {marks:?}"
                );
                assert!(
                    marks.iter().all(|mark| mark.is_finite()),
                    "{most} {unit:?}: {marks:?}"
                );
            }
        }
        assert_eq!(marks(7.0, ChartUnit::Count), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(marks(0.0, ChartUnit::Count), [0.0, 1.0]);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.001, "<0.01"),
            (0.25, "0.25"),
            (12.34, "12.3"),
            (1_234.0, "1,234"),
            (12_345.0, "12.3k"),
            (1_500_000.0, "1.5M"),
            (f64::NAN, "0"),
            (-3.0, "0"),
            (1e300, "1000P"),
        ];
        for (value, text) in cases {
            assert_eq!(ChartUnit::Count.format(value), text);
        }
        assert_eq!(ChartUnit::PerSecond.format(2.0), "2/s");
        assert_eq!(ChartUnit::Seconds.format(90.0), "1m 30s");
        assert_eq!(
            ["0s", "500ms", "1s", "1.5s", "2s"],
            [0.0, 0.5, 1.0, 1.5, 2.0].map(|value| ChartUnit::Seconds.format(value))
        );
        assert_eq!(
            ["1ms", "37.5s", "1m 30s"],
            [1, 37_500, 90_000].map(|number| ChartUnit::Millis.exact(number))
        );
    }

    #[test]
    fn moments_are_round_and_within() {
        let time = |text: &str| text.parse::<Time>().unwrap();
        let (from, until) = (time("2026-11-17T07:58:20Z"), time("2026-11-17T08:58:20Z"));
        let words: Vec<String> = moments(from, until, 6)
            .into_iter()
            .map(|(_, words)| words)
            .collect();
        assert_eq!(
            words,
            ["08:00", "08:10", "08:20", "08:30", "08:40", "08:50"]
        );
        assert_eq!(moments(from, from, 6), []);
        let week = moments(from.before(Span::days(7)), from, 7);
        assert_eq!(week.first().map(|(_, words)| words.as_str()), Some("11-11"));
    }
}
