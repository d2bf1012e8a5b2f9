//! A line in a word's place: how something went lately, without axes.

use super::scale::sound;
use super::{ChartMarkup, ChartTone};
use crate::history::TimeSeries;
use crate::markup::escape_markup;
use std::fmt::Write as _;

const WIDTH: f64 = 96.0;
const HEIGHT: f64 = 20.0;

/// The line; `label` says what it shows to who cannot see it, and where the pointer rests.
#[expect(clippy::cast_precision_loss, reason = "a few dozen points")]
pub fn spark(series: &TimeSeries, tone: ChartTone, label: &str) -> ChartMarkup {
    let most = series.maximum().map_or(0.0, sound).max(f64::MIN_POSITIVE);
    let steps = series.points.len().saturating_sub(1).max(1) as f64;
    let mut path = String::new();
    let mut is_drawing = false;
    for (at, point) in series.points.iter().enumerate() {
        let Some(value) = point.value else {
            is_drawing = false;
            continue;
        };
        let x = 1.0 + (WIDTH - 2.0) * at as f64 / steps;
        let y = HEIGHT - 2.0 - (HEIGHT - 4.0) * (sound(value) / most).min(1.0);
        if !is_drawing {
            write!(path, "M{x:.1} {y:.1}").expect("a string takes everything");
        }
        write!(path, "L{x:.1} {y:.1}").expect("a string takes everything");
        is_drawing = true;
    }
    let (label, class) = (escape_markup(label), tone.class());
    ChartMarkup(format!(
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\"><title>{label}</title>\
         <path class=\"chart-line {class}\" d=\"{path}\"/></svg>"
    ))
}
