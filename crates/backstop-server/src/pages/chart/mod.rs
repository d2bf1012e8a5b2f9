//! Charts, drawn on the server: SVG that needs no script, no font and no style of its own.
//!
//! Colours come from the page's style by class, so that they follow light and dark. Every chart has
//! a title and a description, says its values where the pointer is, and has its values as a table
//! for who cannot see it.
//!
//! | what | where |
//! |---|---|
//! | [`LineChart`]: values over time, with gaps | `line` |
//! | [`spark`]: a line in a word's place | `spark` |
//! | [`BarChart`]: shares of wholes, side by side | `bars` |
//! | [`CalendarChart`]: what became of the instants of days | `calendar` |
//! | [`PositionChart`]: records in their order, with the gaps between | `timeline` |
//! | numbers on axes | `scale` |
//!
//! All text is escaped here: a chart is markup that a template may take as it is.

mod bars;
mod calendar;
mod line;
mod scale;
mod spark;
mod svg;
mod timeline;

pub use bars::{BarChart, ChartBar, ChartSegment};
pub use calendar::{CalendarChart, CalendarDay};
pub use line::{ChartLine, LineChart};
pub use scale::ChartUnit;
pub use spark::spark;
pub use timeline::{PositionChart, PositionMark};

use askama::filters::HtmlSafe;
use std::fmt;

/// Markup that a template takes as it is: made here, with every text in it escaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChartMarkup(String);

impl fmt::Display for ChartMarkup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ChartMarkup {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl HtmlSafe for ChartMarkup {}

/// What a colour means. Lines of a chart also differ in how they are dashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChartTone {
    /// What comes in, what is there.
    #[default]
    Plain,
    Good,
    /// What waits, or is late.
    Warn,
    Bad,
    /// What is of no concern.
    Calm,
    /// Something else that is there.
    Other,
}

impl ChartTone {
    /// The class that has its colour.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Plain => "t-plain",
            Self::Good => "t-good",
            Self::Warn => "t-warn",
            Self::Bad => "t-bad",
            Self::Calm => "t-calm",
            Self::Other => "t-other",
        }
    }
}

#[cfg(test)]
mod tests;
