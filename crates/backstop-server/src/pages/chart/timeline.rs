//! Records in the order of their positions, with the gaps between: what a key waits for, drawn.
//!
//! A gap is as wide as the positions that are missing, up to a few; a longer one is cut short and
//! says its length.

use super::svg::{SvgRect, SvgWriter, TextAnchor, figure, table};
use super::{ChartMarkup, ChartTone};
use crate::words::{count, counted};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 92.0;
const LEFT: f64 = 24.0;
const RIGHT: f64 = 936.0;
const LINE: f64 = 44.0;
/// Missing positions of a gap that are drawn one by one.
const DRAWN_MAX: u64 = 6;
/// How wide a letter of a name is, about: names that would run into each other are left out.
const LETTER: f64 = 6.6;

#[derive(Clone, Debug)]
pub struct PositionChart<'a> {
    /// An id of its own in its page: letters and `-`.
    pub id: &'a str,
    pub title: &'a str,
    /// What is on it, from the left.
    pub marks: Vec<PositionMark>,
}

/// What is on a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PositionMark {
    Record {
        name: String,
        tone: ChartTone,
        /// What appears where the pointer rests.
        words: String,
    },
    Gap {
        missing: u64,
        /// What appears where the pointer rests.
        words: String,
    },
}

impl PositionMark {
    const fn width(&self) -> u64 {
        match self {
            Self::Record { .. } => 1,
            Self::Gap { missing, .. } => {
                let drawn = if *missing > DRAWN_MAX {
                    DRAWN_MAX
                } else {
                    *missing
                };
                if drawn == 0 { 1 } else { drawn }
            }
        }
    }

    fn words(&self) -> &str {
        match self {
            Self::Record { words, .. } | Self::Gap { words, .. } => words,
        }
    }
}

impl PositionChart<'_> {
    /// The line with its table.
    pub fn figure(&self) -> ChartMarkup {
        let row = |(at, mark): (usize, &PositionMark)| {
            vec![(at + 1).to_string(), mark.words().to_owned()]
        };
        let rows: Vec<Vec<String>> = self.marks.iter().enumerate().map(row).collect();
        let titles = ["From the left".to_owned(), "What it is".to_owned()];
        ChartMarkup(figure(
            self.id,
            self.title,
            "",
            &self.drawing(),
            &table(&titles, &rows),
        ))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a line has a few hundred places"
    )]
    fn drawing(&self) -> String {
        let places: u64 = self.marks.iter().map(PositionMark::width).sum();
        let step = (RIGHT - LEFT) / places.max(1) as f64;
        let step = step.min(64.0);
        let mut svg = SvgWriter::new(
            self.id,
            "held-line",
            (WIDTH, HEIGHT),
            self.title,
            &self.describe(),
        );
        svg.path(
            "held-line-axis",
            &format!("M{LEFT} {LINE}H{:.1}", LEFT + step * places.max(1) as f64),
        );
        let mut named_to = 0.0;
        let mut at = 0;
        for mark in &self.marks {
            let x = LEFT + step * at as f64;
            match mark {
                PositionMark::Record { name, tone, words } => {
                    let place = (x + step / 2.0, LINE);
                    let radius = (step / 2.0 - 1.0).clamp(2.0, 8.0);
                    svg.dot(&format!("held-dot {}", tone.class()), place, radius, words);
                    let half = name.chars().count() as f64 * LETTER / 2.0;
                    let middle = place.0.max(half + 2.0).min(WIDTH - half - 2.0);
                    if middle - half > named_to {
                        svg.text(
                            "chart-label",
                            (middle, LINE + 30.0),
                            TextAnchor::Middle,
                            name,
                        );
                        named_to = middle + half + LETTER;
                    }
                }
                PositionMark::Gap { missing, words } => {
                    gap(&mut svg, *missing, words, x, step * mark.width() as f64);
                }
            }
            at += mark.width();
        }
        svg.end()
    }

    fn describe(&self) -> String {
        let gaps = self.marks.iter().filter_map(|mark| match mark {
            PositionMark::Gap { missing, .. } => Some(*missing),
            PositionMark::Record { .. } => None,
        });
        let (number, missing) =
            gaps.fold((0, 0_u64), |(n, all), one| (n + 1, all.saturating_add(one)));
        format!(
            "{} on the line, {} with {} missing",
            counted((self.marks.len() as u64).saturating_sub(number), "mark"),
            counted(number, "gap"),
            counted(missing, "position")
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few places")]
fn gap(svg: &mut SvgWriter, missing: u64, words: &str, x: f64, width: f64) {
    svg.rect(
        "held-gap",
        SvgRect {
            x,
            y: LINE - 14.0,
            width,
            height: 28.0,
        },
        words,
    );
    if missing > DRAWN_MAX {
        let label = format!("{} missing", count(missing));
        svg.text(
            "chart-label gap-label",
            (x + width / 2.0, LINE - 20.0),
            TextAnchor::Middle,
            &label,
        );
        return;
    }
    let step = width / missing.max(1) as f64;
    for nth in 0..missing {
        let middle = x + step * (nth as f64 + 0.5);
        svg.dot(
            "held-hole",
            (middle, LINE),
            (step / 2.0 - 1.0).clamp(2.0, 6.0),
            words,
        );
    }
}
