//! Values over time: lines with gaps where nobody looked.

use super::scale::{ChartUnit, marks, moments, sound, stamp};
use super::svg::{SvgRect, SvgWriter, TextAnchor, figure, table};
use super::{ChartMarkup, ChartTone};
use crate::history::TimeSeries;
use crate::markup::escape_markup;
use backstop_core::Time;
use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 550.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 172.0;
/// Places where the pointer finds words, and lines of the table: what is finer shares one.
const COLUMNS_MAX: usize = 60;
const MOMENTS_MAX: i64 = 7;
/// Half as wide as the name of a moment.
const MOMENT_HALF: f64 = 18.0;

#[derive(Clone, Debug)]
pub struct LineChart<'a> {
    /// An id of its own in its page: letters and `-`.
    pub id: &'a str,
    pub title: &'a str,
    pub unit: ChartUnit,
    /// The lines, all with the same steps. The first has its area filled.
    pub lines: Vec<ChartLine<'a>>,
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct ChartLine<'a> {
    pub name: &'a str,
    pub tone: ChartTone,
    pub series: &'a TimeSeries,
}

/// Where values and times are drawn.
struct PlotArea {
    from: Time,
    until: Time,
    top: f64,
}

impl PlotArea {
    fn x(&self, at: Time) -> f64 {
        let whole = self.until.since(self.from).as_secs_f64();
        if whole <= 0.0 {
            RIGHT
        } else {
            LEFT + (RIGHT - LEFT) * at.since(self.from).as_secs_f64() / whole
        }
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (sound(value) / self.top).min(1.0)
    }
}

impl LineChart<'_> {
    /// The chart with its legend and its table.
    pub fn figure(&self) -> ChartMarkup {
        let (titles, rows) = self.values();
        ChartMarkup(figure(
            self.id,
            self.title,
            &self.legend(),
            &self.drawing(),
            &table(&titles, &rows),
        ))
    }

    fn drawing(&self) -> String {
        let times = || {
            self.lines
                .iter()
                .flat_map(|line| &line.series.points)
                .map(|point| point.at)
        };
        let (from, until) = (
            times().min().unwrap_or_default(),
            times().max().unwrap_or_default(),
        );
        let most = self
            .lines
            .iter()
            .filter_map(|line| line.series.maximum())
            .map(sound)
            .fold(0.0, f64::max);
        let marks = marks(most, self.unit);
        let field = PlotArea {
            from,
            until,
            top: marks.last().copied().unwrap_or(1.0),
        };
        let mut svg = SvgWriter::new(
            self.id,
            "line-chart",
            (WIDTH, HEIGHT),
            self.title,
            &self.describe(),
        );
        self.axes(&mut svg, &field, &marks);
        if self.lines.iter().all(|line| line.series.is_empty()) {
            let middle = (LEFT.midpoint(RIGHT), TOP.midpoint(BOTTOM));
            svg.text(
                "chart-none",
                middle,
                TextAnchor::Middle,
                "nothing recorded in this time",
            );
            return svg.end();
        }
        for (at, line) in self.lines.iter().enumerate().rev() {
            let (stroke, area) = paths(line.series, &field);
            if at == 0 {
                svg.path(&format!("chart-area {}", line.tone.class()), &area);
            }
            svg.path(
                &format!("chart-line dash-{at} {}", line.tone.class()),
                &stroke,
            );
        }
        self.hits(&mut svg, &field);
        svg.end()
    }

    fn axes(&self, svg: &mut SvgWriter, field: &PlotArea, marks: &[f64]) {
        for mark in marks {
            let y = field.y(*mark);
            svg.path("chart-grid", &format!("M{LEFT} {y:.1}H{RIGHT}"));
            svg.text(
                "chart-label",
                (LEFT - 6.0, y + 4.0),
                TextAnchor::End,
                &self.unit.format(*mark),
            );
        }
        for (time, words) in moments(field.from, field.until, MOMENTS_MAX) {
            // The first would stand in the name of the zone.
            if field.x(time) > LEFT + MOMENT_HALF {
                svg.text(
                    "chart-label",
                    (field.x(time), BOTTOM + 16.0),
                    TextAnchor::Middle,
                    &words,
                );
            }
        }
        svg.text(
            "chart-label",
            (LEFT - 6.0, BOTTOM + 16.0),
            TextAnchor::End,
            "UTC",
        );
    }

    /// Words where the pointer rests.
    fn hits(&self, svg: &mut SvgWriter, field: &PlotArea) {
        for column in self.columns() {
            let place = SvgRect {
                x: field.x(column.from),
                y: TOP,
                width: field.x(column.until) - field.x(column.from),
                height: BOTTOM - TOP,
            };
            let values = self.lines.iter().zip(&column.values).map(|(line, value)| {
                format!(
                    "{} {}",
                    line.name,
                    value.map_or("unknown".to_owned(), |value| self.unit.format(value))
                )
            });
            let words = format!(
                "{} UTC: {}",
                stamp(column.until),
                values.collect::<Vec<_>>().join(", ")
            );
            svg.rect("chart-hit", place, &words);
        }
    }

    fn legend(&self) -> String {
        let mut html = String::from("<span class=\"chart-legend\">");
        for (at, line) in self.lines.iter().enumerate() {
            let last = line
                .series
                .last()
                .map_or("–".to_owned(), |value| self.unit.format(value));
            let (class, name) = (line.tone.class(), escape_markup(line.name));
            write!(
                html,
                "<span class=\"chart-key\"><svg class=\"chart-swatch\" viewBox=\"0 0 18 8\" aria-hidden=\"true\">\
                 <path class=\"chart-line dash-{at} {class}\" d=\"M1 4H17\"/></svg>{name} <b>{}</b></span>",
                escape_markup(&last)
            )
            .expect("a string takes everything");
        }
        html + "</span>"
    }

    fn describe(&self) -> String {
        let line = |line: &ChartLine<'_>| {
            let format_value = |value: Option<f64>| {
                value.map_or("unknown".to_owned(), |value| self.unit.format(value))
            };
            format!(
                "{}: now {}, at most {}",
                line.name,
                format_value(line.series.last()),
                format_value(line.series.maximum())
            )
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    fn values(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let names = self.lines.iter().map(|line| line.name.to_owned());
        let row = |column: &ChartColumn| {
            let format_value = |value: &Option<f64>| {
                value.map_or("–".to_owned(), |value| self.unit.format(value))
            };
            [stamp(column.until)]
                .into_iter()
                .chain(column.values.iter().map(format_value))
                .collect()
        };
        let titles = ["Until (UTC)".to_owned()]
            .into_iter()
            .chain(names)
            .collect();
        (titles, self.columns().iter().rev().map(row).collect())
    }

    /// Steps together, so that there are not too many: of each line the most.
    fn columns(&self) -> Vec<ChartColumn> {
        let length = self
            .lines
            .iter()
            .map(|line| line.series.points.len())
            .max()
            .unwrap_or_default();
        let together = length.div_ceil(COLUMNS_MAX).max(1);
        let mut columns: Vec<ChartColumn> = Vec::new();
        for start in (0..length).step_by(together) {
            let part = |line: &ChartLine<'_>| {
                let points = &line.series.points;
                let end = (start + together).min(points.len());
                points.get(start..end).unwrap_or_default().to_vec()
            };
            let parts: Vec<_> = self.lines.iter().map(part).collect();
            let times = || parts.iter().flatten().map(|point| point.at);
            let (Some(first), Some(until)) = (times().min(), times().max()) else {
                continue;
            };
            let from = columns.last().map_or(first, |column| column.until);
            let most = |points: &Vec<_>| {
                TimeSeries {
                    points: points.clone(),
                }
                .maximum()
            };
            columns.push(ChartColumn {
                from,
                until,
                values: parts.iter().map(most).collect(),
            });
        }
        columns
    }
}

struct ChartColumn {
    from: Time,
    until: Time,
    values: Vec<Option<f64>>,
}

/// The line, and the area below it. A gap ends a part; a point alone is a dot.
fn paths(series: &TimeSeries, field: &PlotArea) -> (String, String) {
    let (mut stroke, mut area) = (String::new(), String::new());
    let known = |point: &crate::history::SeriesPoint| point.value.is_some();
    for part in series
        .points
        .split(|point| !known(point))
        .filter(|part| !part.is_empty())
    {
        let places: Vec<(f64, f64)> = part
            .iter()
            .map(|point| (field.x(point.at), field.y(point.value.unwrap_or_default())))
            .collect();
        let (first, last) = (places[0], places[places.len() - 1]);
        write!(stroke, "M{:.1} {:.1}", first.0, first.1).expect("a string takes everything");
        write!(area, "M{:.1} {BOTTOM}", first.0).expect("a string takes everything");
        for (x, y) in &places {
            write!(stroke, "L{x:.1} {y:.1}").expect("a string takes everything");
            write!(area, "L{x:.1} {y:.1}").expect("a string takes everything");
        }
        write!(area, "L{:.1} {BOTTOM}Z", last.0).expect("a string takes everything");
    }
    (stroke, area)
}
