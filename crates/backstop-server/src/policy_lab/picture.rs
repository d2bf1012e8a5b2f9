//! The chart as a picture that stands for itself: no script, no font and nothing else to be
//! fetched, light or dark as its reader likes it.

use super::round_step;
use crate::markup::escape_markup;
use crate::words::{about, count, counted, cut};
use backstop_core::Span;
use backstop_core::simulate::{Scenario, SimulationBucket, SimulationResult};
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 936.0;
const MARKS_MAX: i64 = 10;
/// Characters of a policy's text that fit on a line.
const TEXT_CHARS_MAX: usize = 130;

/// Where a panel stands, and what its top means.
#[derive(Clone, Copy)]
struct PicturePanel {
    top: f64,
    bottom: f64,
    most: u64,
}

/// Plain colours, and others for the dark: not every viewer knows variables.
const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 18px; font-weight: 600; }
.ground { fill: #ffffff; }
.grid { stroke: #d8dee4; fill: none; }
.good { fill: #1a7f5a; }
.failed { fill: url(#hatch); stroke: #c93c20; stroke-width: 0.5; }
.hatch { stroke: #c93c20; stroke-width: 6; }
.out { fill: #c93c20; fill-opacity: 0.1; }
.backlog { fill: none; stroke: #3667b0; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e8ea; }
.ground { fill: #14171a; }
.grid { stroke: #343a40; }
.good { fill: #3fb68b; }
.failed, .hatch { stroke: #ff7b5c; }
.out { fill: #ff7b5c; fill-opacity: 0.15; }
.backlog { stroke: #7fabf0; }
}
";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PictureStyle {
    /// Alone, in a file: with its colours in it.
    Standalone,
    /// In a page, which has the colours.
    Embedded,
}

pub fn render_picture(
    scenario: &Scenario,
    simulated: &SimulationResult,
    style: PictureStyle,
) -> String {
    let most = |part: fn(&SimulationBucket) -> u64| {
        simulated.buckets.iter().map(part).max().unwrap_or_default()
    };
    let calls = PicturePanel {
        top: 122.0,
        bottom: 362.0,
        most: round_top(most(|bucket| bucket.calls)),
    };
    let backlog = PicturePanel {
        top: 416.0,
        bottom: 516.0,
        most: round_top(most(|bucket| bucket.backlog)),
    };
    let mut svg = String::new();
    head(&mut svg, scenario, simulated, style);
    for panel in [calls, backlog] {
        outage(&mut svg, scenario, panel);
        grid(&mut svg, panel);
    }
    marks(&mut svg, scenario, backlog);
    text(
        &mut svg,
        LEFT,
        113.0,
        "label",
        &format!("calls of the service per {}", scenario.bucket),
    );
    text(
        &mut svg,
        LEFT,
        407.0,
        "label",
        "backlog: jobs that have arrived and not ended",
    );
    bars(&mut svg, scenario, simulated, calls);
    line(&mut svg, scenario, simulated, backlog);
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, scenario: &Scenario, simulated: &SimulationResult, style: PictureStyle) {
    let (from, until) = scenario.outage;
    let title = format!(
        "A service out for {}, and the calls it gets",
        about(until.minus(from))
    );
    let summary = format!(
        "{} of {}; {} while it was out; {} died",
        counted(simulated.calls, "call"),
        counted(simulated.jobs, "job"),
        count(simulated.calls_during_outage),
        count(simulated.dead),
    );
    let policy = String::from_utf8_lossy(&scenario.policy.to_json()).into_owned();
    let breaker = scenario
        .breaker
        .as_ref()
        .and_then(|breaker| serde_json::to_string(breaker).ok());
    let breaker = breaker.map_or("no breaker".to_owned(), |json| format!("breaker {json}"));
    let style = match style {
        PictureStyle::Standalone => format!("<style>\n{STYLE}</style>\n"),
        PictureStyle::Embedded => String::new(),
    };
    push(
        svg,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" class=\"chart outage\" role=\"img\" \
             aria-labelledby=\"title told\">\n<title id=\"title\">{}</title>\n<desc id=\"told\">{}</desc>\n\
             {style}<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V6\"/>\
             </pattern></defs>\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
            escape_markup(&title),
            escape_markup(&summary),
        ),
    );
    text(svg, LEFT, 28.0, "title", &title);
    let room = format!(
        "{} at a time, {} each",
        scenario.concurrency, scenario.service_time
    );
    text(svg, LEFT, 48.0, "label", &format!("{summary}; {room}"));
    text(svg, LEFT, 66.0, "label", &format!("policy {policy}"));
    text(svg, LEFT, 84.0, "label", &breaker);
}

fn outage(svg: &mut String, scenario: &Scenario, panel: PicturePanel) {
    let (from, until) = (
        x(scenario, scenario.outage.0),
        x(scenario, scenario.outage.1),
    );
    push(
        svg,
        format_args!(
            "<rect class=\"out\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"/>\n",
            panel.top,
            until - from,
            panel.bottom - panel.top
        ),
    );
}

/// Lines at nothing, half and the top, with what they mean.
fn grid(svg: &mut String, panel: PicturePanel) {
    for value in [0, panel.most / 2, panel.most] {
        let y = y(panel, value);
        push(
            svg,
            format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>\n"),
        );
        push(
            svg,
            format_args!(
                "<text class=\"label\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 8.0,
                y + 4.0,
                count(value)
            ),
        );
    }
}

/// Round times below the last panel.
fn marks(svg: &mut String, scenario: &Scenario, panel: PicturePanel) {
    let step = round_step(scenario.run_for, MARKS_MAX);
    let marks = (0..=MARKS_MAX)
        .map(|n| step.times(n))
        .take_while(|time| *time <= scenario.run_for);
    for time in marks {
        push(
            svg,
            format_args!(
                "<text class=\"label\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                x(scenario, time),
                panel.bottom + 18.0,
                about(time)
            ),
        );
    }
}

/// One path for all that succeeded and one for all that failed: a bar is a few characters.
fn bars(svg: &mut String, scenario: &Scenario, simulated: &SimulationResult, panel: PicturePanel) {
    let (mut good, mut failed) = (String::new(), String::new());
    for bucket in &simulated.buckets {
        let left = x(scenario, bucket.at);
        let width = x(
            scenario,
            bucket.at.plus(scenario.bucket).min(scenario.run_for),
        ) - left;
        let (middle, top) = (y(panel, bucket.failed), y(panel, bucket.calls));
        let bar = |path: &mut String, from: f64, to: f64| {
            if from > to {
                push(
                    path,
                    format_args!("M{left:.1} {from:.1}V{to:.1}h{width:.2}V{from:.1}z"),
                );
            }
        };
        bar(&mut failed, panel.bottom, middle);
        bar(&mut good, middle, top);
    }
    push(
        svg,
        format_args!(
            "<path class=\"good\" d=\"{good}\"/>\n<path class=\"failed\" d=\"{failed}\"/>\n"
        ),
    );
}

fn line(svg: &mut String, scenario: &Scenario, simulated: &SimulationResult, panel: PicturePanel) {
    let mut points = format!("{LEFT},{}", panel.bottom);
    for bucket in &simulated.buckets {
        let end = bucket.at.plus(scenario.bucket).min(scenario.run_for);
        push(
            &mut points,
            format_args!(" {:.1},{:.1}", x(scenario, end), y(panel, bucket.backlog)),
        );
    }
    push(
        svg,
        format_args!("<polyline class=\"backlog\" points=\"{points}\"/>\n"),
    );
}

fn legend(svg: &mut String) {
    for (x, class, words) in [
        (560.0, "good", "succeeded"),
        (672.0, "failed", "failed"),
        (752.0, "out", "service out"),
    ] {
        push(
            svg,
            format_args!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"103\" width=\"14\" height=\"11\"/>\n"
            ),
        );
        text(svg, x + 20.0, 113.0, "label", words);
    }
    push(
        svg,
        format_args!("<path class=\"backlog\" d=\"M866 109h14\"/>\n"),
    );
    text(svg, 886.0, 113.0, "label", "backlog");
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let words = escape_markup(&cut(words, TEXT_CHARS_MAX));
    push(
        svg,
        format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>\n"),
    );
}

fn push(svg: &mut String, part: std::fmt::Arguments<'_>) {
    svg.write_fmt(part).expect("a string takes everything");
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a pixel is all that can be lost"
)]
fn y(panel: PicturePanel, value: u64) -> f64 {
    panel.bottom - (panel.bottom - panel.top) * value as f64 / panel.most as f64
}

fn x(scenario: &Scenario, time: Span) -> f64 {
    LEFT + (RIGHT - LEFT) * time.as_secs_f64() / scenario.run_for.as_secs_f64()
}

/// The next number of the form 2, 4, 6, 8, 10, 20, 40 …: it can be halved.
fn round_top(most: u64) -> u64 {
    let mut unit = 2;
    loop {
        if let Some(top) = (1..=5).map(|n| unit * n).find(|top| *top >= most) {
            return top;
        }
        unit *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_round_and_above_all() {
        for (most, top) in [
            (0, 2),
            (1, 2),
            (2, 2),
            (3, 4),
            (9, 10),
            (11, 20),
            (100, 100),
            (101, 200),
            (799, 800),
        ] {
            assert_eq!(round_top(most), top, "{most}");
        }
    }
}
