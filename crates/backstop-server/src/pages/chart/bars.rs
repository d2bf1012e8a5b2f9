//! Shares of wholes, one bar below the other, all on one scale.

use super::scale::{ChartUnit, sound};
use super::svg::{SvgRect, SvgWriter, TextAnchor, figure, table};
use super::{ChartMarkup, ChartTone};
use crate::markup::escape_markup;

const WIDTH: f64 = 600.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 530.0;
const ROW: f64 = 28.0;
/// The least a share is drawn with, so that one of a million can be seen.
const SEEN_MIN: f64 = 2.0;

#[derive(Clone, Debug)]
pub struct BarChart<'a> {
    /// An id of its own in its page: letters and `-`.
    pub id: &'a str,
    pub title: &'a str,
    /// What the names of the bars are.
    pub of: &'a str,
    pub unit: ChartUnit,
    pub bars: Vec<ChartBar>,
}

#[derive(Clone, Debug)]
pub struct ChartBar {
    pub name: String,
    /// Its parts, from the left; the same names in all bars.
    pub shares: Vec<ChartSegment>,
}

/// A part of a bar.
#[derive(Clone, Copy, Debug)]
pub struct ChartSegment {
    pub name: &'static str,
    pub tone: ChartTone,
    pub count: u64,
}

impl ChartBar {
    fn total(&self) -> u64 {
        self.shares
            .iter()
            .fold(0, |sum, share| sum.saturating_add(share.count))
    }
}

impl BarChart<'_> {
    /// The bars with their legend and their table.
    pub fn figure(&self) -> ChartMarkup {
        let names = self.shares().map(|share| share.name.to_owned());
        let titles: Vec<String> = [self.of.to_owned()].into_iter().chain(names).collect();
        let row = |bar: &ChartBar| {
            let counts = bar.shares.iter().map(|share| self.unit.exact(share.count));
            [bar.name.clone()].into_iter().chain(counts).collect()
        };
        let rows: Vec<Vec<String>> = self.bars.iter().map(row).collect();
        ChartMarkup(figure(
            self.id,
            self.title,
            &self.legend(),
            &self.drawing(),
            &table(&titles, &rows),
        ))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a pixel is all that can be lost"
    )]
    fn drawing(&self) -> String {
        let most = self
            .bars
            .iter()
            .map(ChartBar::total)
            .max()
            .unwrap_or_default()
            .max(1) as f64;
        let height = 10.0 + ROW * self.bars.len().max(1) as f64;
        let mut svg = SvgWriter::new(
            self.id,
            "bar-chart",
            (WIDTH, height),
            self.title,
            &self.describe(),
        );
        for (at, bar) in self.bars.iter().enumerate() {
            let y = 6.0 + ROW * at as f64;
            svg.text(
                "chart-label",
                (LEFT - 10.0, y + 15.0),
                TextAnchor::End,
                &bar.name,
            );
            svg.rect(
                "chart-track",
                SvgRect {
                    x: LEFT,
                    y,
                    width: RIGHT - LEFT,
                    height: ROW - 8.0,
                },
                "",
            );
            let mut x = LEFT;
            for share in bar.shares.iter().filter(|share| share.count > 0) {
                let width = ((RIGHT - LEFT) * sound(share.count as f64) / most).max(SEEN_MIN);
                let words = format!(
                    "{}: {} {}",
                    bar.name,
                    self.unit.exact(share.count),
                    share.name
                );
                let place = SvgRect {
                    x,
                    y,
                    width: width.min(RIGHT + 20.0 - x),
                    height: ROW - 8.0,
                };
                svg.rect(&format!("chart-bar {}", share.tone.class()), place, &words);
                x += width;
            }
            let total = self.unit.format(bar.total() as f64);
            svg.text(
                "chart-label",
                (x.max(LEFT) + 8.0, y + 15.0),
                TextAnchor::Start,
                &total,
            );
        }
        svg.end()
    }

    fn shares(&self) -> impl Iterator<Item = &ChartSegment> {
        self.bars.first().into_iter().flat_map(|bar| &bar.shares)
    }

    fn legend(&self) -> String {
        let key = |share: &ChartSegment| {
            format!(
                "<span class=\"chart-key\"><svg class=\"chart-swatch\" viewBox=\"0 0 18 8\" aria-hidden=\"true\">\
                 <rect class=\"chart-bar {}\" x=\"2\" width=\"14\" height=\"8\"/></svg>{}</span>",
                share.tone.class(),
                escape_markup(share.name)
            )
        };
        format!(
            "<span class=\"chart-legend\">{}</span>",
            self.shares().map(key).collect::<String>()
        )
    }

    fn describe(&self) -> String {
        let bar = |bar: &ChartBar| {
            let shares = bar
                .shares
                .iter()
                .map(|share| format!("{} {}", self.unit.exact(share.count), share.name));
            format!("{}: {}", bar.name, shares.collect::<Vec<_>>().join(", "))
        };
        self.bars.iter().map(bar).collect::<Vec<_>>().join("; ")
    }
}
