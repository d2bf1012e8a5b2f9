//! Geometry and markup of all charts: whatever comes in, what comes out can be drawn, and is only a
//! drawing.

use super::*;
use crate::history::{SeriesPoint, TimeSeries};
use backstop_core::{Span, Time};

const HOSTILE: &str = "\"><script>alert(1)</script><a href='javascript:alert(1)' onload=x>&\u{7}";

fn series(values: &[Option<f64>]) -> TimeSeries {
    let start = Time::from_millis(1_767_225_600_000);
    let point = |(at, value): (usize, &Option<f64>)| SeriesPoint {
        at: start.after(Span::minutes(i64::try_from(at).unwrap())),
        value: *value,
    };
    TimeSeries {
        points: values.iter().enumerate().map(point).collect(),
    }
}

/// Well formed, nothing but shapes and words, and every number a number.
fn check(markup: impl AsRef<str>) {
    let markup = markup.as_ref();
    for foreign in [
        "NaN",
        "inf",
        "<script",
        "style=",
        "<style",
        "javascript:alert(1)'",
        "\u{7}",
    ] {
        assert!(!markup.contains(foreign), "{foreign} in {markup}");
    }
    assert!(
        !markup.contains(" onload=") || markup.contains("&#39; onload="),
        "{markup}"
    );
    let mut open: Vec<&str> = Vec::new();
    for tag in markup.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{markup}");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap_or(tag));
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "{markup}");
}

fn chart(one: &TimeSeries, other: &TimeSeries, unit: ChartUnit) -> String {
    let line = |name, tone, series| ChartLine { name, tone, series };
    let lines = vec![
        line("enqueued", ChartTone::Plain, one),
        line("dead", ChartTone::Bad, other),
    ];
    LineChart {
        id: "rates",
        title: "Rates",
        unit,
        lines,
    }
    .figure()
    .to_string()
}

#[test]
fn whatever_the_values_are_a_chart_can_be_drawn() {
    let cases: [Vec<Option<f64>>; 9] = [
        vec![],
        vec![None],
        vec![Some(3.0)],
        vec![None, None, None],
        vec![Some(0.0), Some(0.0)],
        vec![Some(1.0), None, Some(2.0)],
        vec![Some(f64::MAX), Some(1.0)],
        vec![Some(f64::NAN), Some(f64::INFINITY), Some(-5.0)],
        vec![Some(1e-300), Some(1.8e19)],
    ];
    for values in &cases {
        for unit in [ChartUnit::Count, ChartUnit::PerSecond, ChartUnit::Seconds] {
            check(chart(&series(values), &series(&[]), unit));
            check(chart(&series(values), &series(&[Some(1.0); 400]), unit));
        }
        check(spark(&series(values), ChartTone::Good, "jobs a second"));
    }
}

#[test]
fn a_gap_is_no_line_and_no_zero() {
    let drawn = chart(
        &series(&[Some(4.0), Some(4.0), None, Some(4.0)]),
        &series(&[]),
        ChartUnit::Count,
    );
    let line = drawn.split("chart-line dash-0").nth(2).unwrap_or_default();
    assert_eq!(
        line.split('"')
            .nth(2)
            .unwrap_or_default()
            .matches('M')
            .count(),
        2,
        "two parts: {line}"
    );
    assert!(drawn.contains("enqueued unknown"), "{drawn}");
    assert!(drawn.contains("<td>–</td>"), "{drawn}");
}

#[test]
fn nothing_recorded_is_said() {
    assert!(
        chart(&series(&[None; 60]), &series(&[None; 60]), ChartUnit::Count)
            .contains("nothing recorded")
    );
}

#[test]
fn a_chart_says_its_values_to_who_cannot_see_it() {
    let drawn = chart(
        &series(&[Some(4.0), Some(2.0)]),
        &series(&[Some(0.0), Some(1.0)]),
        ChartUnit::PerSecond,
    );
    for part in [
        "role=\"img\"",
        "<title id=\"rates-title\">Rates</title>",
        "enqueued: now 2/s, at most 4/s; dead: now 1/s, at most 1/s",
        "<th scope=\"col\">dead</th>",
        "2026-01-01 00:01:00 UTC: enqueued 2/s, dead 1/s",
    ] {
        assert!(drawn.contains(part), "{part} in {drawn}");
    }
}

#[test]
fn a_week_has_no_more_places_to_point_at_than_fit() {
    let drawn = chart(
        &series(&[Some(1.0); 336]),
        &series(&[Some(1.0); 336]),
        ChartUnit::Count,
    );
    let hits = drawn.matches("chart-hit").count();
    assert!((30..=60).contains(&hits), "{hits}");
}

#[test]
fn everything_stays_within_the_drawing() {
    let drawn = chart(
        &series(&[Some(0.0), Some(1e9), Some(3.0)]),
        &series(&[Some(1e9)]),
        ChartUnit::Count,
    );
    let line = drawn
        .split("<path class=\"chart-line dash-0 t-plain\" d=\"")
        .nth(2)
        .unwrap();
    let numbers = line
        .split('"')
        .next()
        .unwrap()
        .split(|c: char| !c.is_ascii_digit() && c != '.');
    for number in numbers.filter_map(|text| text.parse::<f64>().ok()) {
        assert!((0.0..=560.0).contains(&number), "{number}");
    }
}

fn bar(name: &str, counts: [u64; 2]) -> ChartBar {
    let shares = vec![
        ChartSegment::new("new", ChartTone::Plain, counts[0]),
        ChartSegment::new("error", ChartTone::Bad, counts[1]),
    ];
    ChartBar {
        name: name.to_owned(),
        shares,
    }
}

#[test]
fn bars_are_drawn_for_nothing_and_for_the_most() {
    for bars in [
        vec![],
        vec![bar("none", [0, 0])],
        vec![
            bar("one", [1, 0]),
            bar("all", [u64::MAX, u64::MAX]),
            bar(HOSTILE, [3, 4]),
        ],
    ] {
        check(
            BarChart {
                id: "ages",
                title: HOSTILE,
                of: "Age",
                unit: ChartUnit::Count,
                bars,
            }
            .figure(),
        );
    }
    let seen = BarChart {
        id: "a",
        title: "a",
        of: "b",
        unit: ChartUnit::Millis,
        bars: vec![bar("x", [1_000_000, 1])],
    }
    .figure()
    .to_string();
    assert!(
        seen.contains("x: 1ms error"),
        "one of a million has a place: {seen}"
    );
}

#[test]
fn a_day_shows_its_worst_however_rare() {
    let day = |name: &str, fired, missed| CalendarDay {
        name: name.to_owned(),
        address: format!("?day={name}"),
        shares: vec![
            ChartSegment::new("fired", ChartTone::Good, fired),
            ChartSegment::new("missed", ChartTone::Bad, missed),
        ],
        is_chosen: false,
    };
    let days = vec![
        day("2026-11-16", 1_439, 1),
        day("2026-11-17", 0, 0),
        day(HOSTILE, 1, 0),
    ];
    let drawn = CalendarChart {
        id: "ledger",
        title: "Ledger",
        days,
    }
    .figure()
    .to_string();
    check(&drawn);
    assert!(
        drawn.contains("2026-11-16: 1,439 fired, 1 missed"),
        "{drawn}"
    );
    assert!(drawn.contains("2026-11-17: nothing entered"), "{drawn}");
    check(
        CalendarChart {
            id: "ledger",
            title: "Ledger",
            days: vec![],
        }
        .figure(),
    );
}

#[test]
fn a_line_shows_records_and_the_gaps_between() {
    let there = |name: &str| PositionMark::Record {
        name: name.to_owned(),
        tone: ChartTone::Plain,
        words: name.to_owned(),
    };
    let gap = |missing| PositionMark::Gap {
        missing,
        words: format!("{missing} missing"),
    };
    let marks = vec![
        there("60"),
        gap(2),
        there("240"),
        gap(u64::MAX),
        there(HOSTILE),
        gap(0),
    ];
    let drawn = PositionChart {
        id: "held",
        title: "Held",
        marks,
    }
    .figure()
    .to_string();
    check(&drawn);
    assert_eq!(
        drawn.matches("held-hole").count(),
        2,
        "short gaps one by one: {drawn}"
    );
    assert_eq!(drawn.matches("held-dot").count(), 3, "{drawn}");
    check(
        PositionChart {
            id: "held",
            title: "Held",
            marks: vec![],
        }
        .figure(),
    );
    check(
        PositionChart {
            id: "held",
            title: "Held",
            marks: vec![there("x"); 300],
        }
        .figure(),
    );
}

#[test]
fn text_cannot_become_markup() {
    let empty = series(&[Some(1.0)]);
    let line = ChartLine {
        name: HOSTILE,
        tone: ChartTone::Plain,
        series: &empty,
    };
    check(
        LineChart {
            id: HOSTILE,
            title: HOSTILE,
            unit: ChartUnit::Count,
            lines: vec![line],
        }
        .figure(),
    );
    check(spark(&empty, ChartTone::Plain, HOSTILE));
}
