//! The figures as a picture: a panel for each figure, a bar for each run. Readable on light and on
//! dark ground.
#![expect(clippy::cast_precision_loss, reason = "a bar has few pixels")]

#[cfg(test)]
mod tests;

use crate::mode::Mode;
use crate::report::{Figures, Summary, grouped};
use std::fmt::Write as _;

const WIDTH: u32 = 760;
const MARGIN: u32 = 24;
const HEADER: u32 = 78;
const PANEL_TITLE: u32 = 26;
const BAR: u32 = 22;
const BAR_GAP: u32 = 6;
const PANEL_GAP: u32 = 16;
/// Where bars begin: behind the name of the run.
const BARS_LEFT: u32 = 130;
/// What a bar may take: the rest is for its number.
const BARS_WIDTH: u32 = 470;

/// Colours by the ground they are on; the second is for whoever prefers dark.
const STYLE: &str = "
  svg { font: 14px system-ui, sans-serif; }
  .ground { fill: #ffffff; } text { fill: #1f2328; } .quiet { fill: #59636e; } .title { font-size: 19px; font-weight: 600; }
  .panel { font-weight: 600; } .rail { fill: #eaeef2; } .first { fill: #c2410c; } .second { fill: #0f766e; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; } text { fill: #e6edf3; } .quiet { fill: #9198a1; } .rail { fill: #21262d; }
    .first { fill: #fb923c; } .second { fill: #2dd4bf; }
  }";

/// One figure of all runs.
struct Panel {
    title: &'static str,
    /// What a whole bar would be; nothing is drawn where that is 0.
    whole: f64,
    /// How long each bar is, in the panel's own measure, and what is written behind it.
    bars: Vec<(Mode, f64, String)>,
}

/// Draws it.
pub fn draw(summary: &Summary, runs: &[Figures]) -> String {
    let panels = panels(runs);
    let panel_height = PANEL_TITLE + (BAR + BAR_GAP) * runs.len() as u32 + PANEL_GAP;
    let height = HEADER + panel_height * panels.len() as u32 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"title what\">\n\
         <title id=\"title\">Uptime results that arrive out of order</title>\n\
         <desc id=\"what\">{}</desc>\n<style>{STYLE}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" class=\"ground\"/>\n",
        escape(&described(&panels))
    );
    text(
        &mut svg,
        MARGIN,
        36,
        "title",
        "Uptime results that arrive out of order",
    );
    text(&mut svg, MARGIN, 60, "quiet", &told(summary));
    for (nth, panel) in (0..).zip(&panels) {
        draw_panel(&mut svg, panel, HEADER + nth * panel_height);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panels(runs: &[Figures]) -> Vec<Panel> {
    let none = || "–".to_owned();
    let found = |run: &Figures| {
        format!(
            "{} of {}",
            grouped(run.true_misses_found),
            grouped(run.true_misses)
        )
    };
    let seconds = |ms: i64| format!("{:.1} s", ms as f64 / 1000.0);
    vec![
        panel("False misses", runs, |run| {
            (run.false_misses as f64, grouped(run.false_misses))
        }),
        Panel {
            whole: runs
                .iter()
                .map(|run| run.true_misses as f64)
                .fold(0.0, f64::max),
            ..panel("True misses found", runs, |run| {
                (run.true_misses_found as f64, found(run))
            })
        },
        panel("Timeouts", runs, |run| {
            run.hold.map_or_else(
                || (0.0, none()),
                |hold| (hold.timeouts as f64, grouped(hold.timeouts)),
            )
        }),
        panel("Overflows", runs, |run| {
            run.hold.map_or_else(
                || (0.0, none()),
                |hold| (hold.overflows as f64, grouped(hold.overflows)),
            )
        }),
        panel("Mean held", runs, |run| {
            run.hold.map_or_else(
                || (0.0, none()),
                |hold| (hold.mean_held, format!("{:.1}", hold.mean_held)),
            )
        }),
        panel("Delay, half of the results", runs, |run| {
            (run.delay_p50_ms as f64, seconds(run.delay_p50_ms))
        }),
        panel("Delay, 99 in 100 results", runs, |run| {
            (run.delay_p99_ms as f64, seconds(run.delay_p99_ms))
        }),
    ]
}

/// A panel whose largest figure is a whole bar.
fn panel(
    title: &'static str,
    runs: &[Figures],
    figure: impl Fn(&Figures) -> (f64, String),
) -> Panel {
    let bars: Vec<(Mode, f64, String)> = runs
        .iter()
        .map(|run| {
            let (length, written) = figure(run);
            (run.mode, length, written)
        })
        .collect();
    Panel {
        title,
        whole: bars
            .iter()
            .map(|(_, length, _)| *length)
            .fold(0.0, f64::max),
        bars,
    }
}

fn draw_panel(svg: &mut String, panel: &Panel, top: u32) {
    text(svg, MARGIN, top + 16, "panel", panel.title);
    for (nth, (mode, length, written)) in (0..).zip(&panel.bars) {
        let y = top + PANEL_TITLE + nth * (BAR + BAR_GAP);
        text(svg, MARGIN, y + 16, "quiet", &mode.to_string());
        let filled = if panel.whole > 0.0 {
            length / panel.whole * f64::from(BARS_WIDTH)
        } else {
            0.0
        };
        rect(svg, y, f64::from(BARS_WIDTH), "rail");
        rect(svg, y, filled, if nth == 0 { "first" } else { "second" });
        text(svg, BARS_LEFT + BARS_WIDTH + 12, y + 16, "figure", written);
    }
}

fn rect(svg: &mut String, y: u32, width: f64, class: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{BARS_LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"3\" class=\"{class}\"/>"
    );
}

fn text(svg: &mut String, x: u32, y: u32, class: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>",
        escape(words)
    );
}

fn told(summary: &Summary) -> String {
    format!(
        "{} results arrive in time, {} never, {} too late",
        grouped(summary.in_time),
        grouped(summary.dropped as u64),
        grouped(summary.late as u64)
    )
}

/// All of it in words, for whoever does not see it.
fn described(panels: &[Panel]) -> String {
    let told = panels.iter().map(|panel| {
        let bars = panel
            .bars
            .iter()
            .map(|(mode, _, written)| format!("{mode} {written}"));
        format!("{}: {}.", panel.title, bars.collect::<Vec<_>>().join(", "))
    });
    told.collect::<Vec<_>>().join(" ")
}

fn escape(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
