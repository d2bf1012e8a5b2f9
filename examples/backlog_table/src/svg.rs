//! The tries of each row as a picture: a lane for each row, a stroke for each try. Readable on
//! light and on dark ground.
#![expect(clippy::cast_precision_loss, reason = "a stroke has few pixels")]

#[cfg(test)]
mod tests;

use crate::chart::named;
use crate::{Played, Sample};
use backstop::Span;
use std::fmt::Write as _;

const WIDTH: u32 = 760;
const MARGIN: u32 = 24;
const HEADER: u32 = 78;
const PANEL_TITLE: u32 = 28;
const LANE: u32 = 20;
const LANE_GAP: u32 = 6;
const AXIS: u32 = 40;
/// Where lanes begin: behind the name of the row.
const LEFT: u32 = 110;
/// What a lane takes: the rest is for its number.
const LENGTH: u32 = 540;
/// The last minute of a lane; time is drawn by its logarithm.
const MINUTES_MAX: f64 = 360.0 * 1_440.0;
const MARKS: [(&str, Span); 6] = [
    ("1 min", Span::minutes(1)),
    ("10 min", Span::minutes(10)),
    ("1 h", Span::hours(1)),
    ("1 d", Span::days(1)),
    ("7 d", Span::days(7)),
    ("360 d", Span::days(360)),
];
const TITLE: &str = "When rows are tried whose every try fails";

/// Colours by the ground they are on; the second is for whoever prefers dark.
const STYLE: &str = "
  svg { font: 14px system-ui, sans-serif; }
  .ground { fill: #ffffff; } text { fill: #1f2328; } .quiet { fill: #59636e; } .title { font-size: 19px; font-weight: 600; }
  .panel { font-weight: 600; } .rail { fill: #eaeef2; } .first { stroke: #c2410c; } .second { stroke: #0f766e; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; } text { fill: #e6edf3; } .quiet { fill: #9198a1; } .rail { fill: #21262d; }
    .first { stroke: #fb923c; } .second { stroke: #2dd4bf; }
  }";

/// Draws it.
pub fn draw(played: &[Played], rows: &[Sample]) -> String {
    let panel = PANEL_TITLE + (LANE + LANE_GAP) * rows.len() as u32 + AXIS;
    let height = HEADER + panel * played.len() as u32;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"title what\">\n<title id=\"title\">{TITLE}</title>\n\
         <desc id=\"what\">{}</desc>\n<style>{STYLE}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" class=\"ground\"/>\n",
        described(played, rows)
    );
    text(&mut svg, MARGIN, 36, "title", TITLE);
    text(
        &mut svg,
        MARGIN,
        60,
        "quiet",
        "a stroke is a try; the time since the beginning, by its logarithm",
    );
    for (nth, played) in (0..).zip(played) {
        draw_panel(
            &mut svg,
            played,
            rows,
            HEADER + nth * panel,
            if nth == 0 { "first" } else { "second" },
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, played: &Played, rows: &[Sample], top: u32, class: &str) {
    text(svg, MARGIN, top + 16, "panel", played.strategy.name());
    let lane = |nth: u32| top + PANEL_TITLE + nth * (LANE + LANE_GAP);
    for (nth, row) in (0..).zip(rows) {
        let tries = played.of(row.id);
        let y = lane(nth);
        text(svg, MARGIN, y + 15, "quiet", &named(row));
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{LENGTH}\" height=\"{LANE}\" rx=\"3\" class=\"rail\"/>"
        );
        let _ = writeln!(
            svg,
            "<path d=\"{}\" class=\"{class}\"/>",
            strokes(&tries, y)
        );
        text(
            svg,
            LEFT + LENGTH + 12,
            y + 15,
            "figure",
            &format!("{} tries", tries.len()),
        );
    }
    for (mark, at) in MARKS {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" class=\"quiet\" text-anchor=\"middle\">{mark}</text>",
            x(at),
            lane(rows.len() as u32) + 14
        );
    }
}

/// A stroke for each try; those that would lie on each other are one.
fn strokes(tries: &[Span], y: u32) -> String {
    let mut places: Vec<String> = tries
        .iter()
        .map(|after| format!("{:.1}", x(*after)))
        .collect();
    places.dedup();
    places.iter().fold(String::new(), |mut path, place| {
        let _ = write!(path, "M{place} {}v{}", y + 2, LANE - 4);
        path
    })
}

fn x(after: Span) -> f64 {
    let minutes = (after.as_millis() as f64 / 60_000.0).clamp(1.0, MINUTES_MAX);
    f64::from(LEFT) + minutes.log10() / MINUTES_MAX.log10() * f64::from(LENGTH)
}

fn text(svg: &mut String, x: u32, y: u32, class: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{words}</text>"
    );
}

/// All of it in words, for whoever does not see it.
fn described(played: &[Played], rows: &[Sample]) -> String {
    let of = |played: &Played| {
        let tries = rows
            .iter()
            .map(|row| format!("row {} {} tries", named(row), played.of(row.id).len()));
        format!(
            "{}: {}.",
            played.strategy.name(),
            tries.collect::<Vec<_>>().join(", ")
        )
    };
    played.iter().map(of).collect::<Vec<_>>().join(" ")
}
