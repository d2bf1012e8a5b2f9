//! What became of the instants of days: a column a day, filled from below by what became of how
//! many.

use super::bars::ChartSegment;
use super::svg::{SvgRect, SvgWriter, TextAnchor, figure, table};
use super::{ChartMarkup, ChartTone};
use crate::markup::escape_markup;
use crate::words::{count, counted};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 96.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = 952.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 72.0;
/// The least a share is drawn with: one miss among a thousand runs must be seen.
const SEEN_MIN: f64 = 5.0;
/// Names of days that fit below.
const NAMES_MAX: usize = 16;

#[derive(Clone, Debug)]
pub struct CalendarChart<'a> {
    /// An id of its own in its page: letters and `-`.
    pub id: &'a str,
    pub title: &'a str,
    /// The days, the oldest first.
    pub days: Vec<CalendarDay>,
}

/// A day of a strip.
#[derive(Clone, Debug)]
pub struct CalendarDay {
    pub name: String,
    /// Where its runs are listed.
    pub address: String,
    /// What became of its instants; the same names in all days.
    pub shares: Vec<ChartSegment>,
    /// Whether it is the one that is looked at.
    pub is_chosen: bool,
}

impl CalendarDay {
    fn total(&self) -> u64 {
        self.shares
            .iter()
            .fold(0, |sum, share| sum.saturating_add(share.count))
    }

    fn describe(&self) -> String {
        let there = self.shares.iter().filter(|share| share.count > 0);
        let fates: Vec<String> = there
            .map(|share| format!("{} {}", count(share.count), share.name))
            .collect();
        match fates.len() {
            0 => format!("{}: nothing entered", self.name),
            _ => format!("{}: {}", self.name, fates.join(", ")),
        }
    }
}

impl CalendarChart<'_> {
    /// The strip with its legend and its table.
    pub fn figure(&self) -> ChartMarkup {
        let names = self.days.first().into_iter().flat_map(|day| &day.shares);
        let titles: Vec<String> = ["Day".to_owned()]
            .into_iter()
            .chain(names.map(|share| share.name.to_owned()))
            .collect();
        let row = |day: &CalendarDay| {
            [day.name.clone()]
                .into_iter()
                .chain(day.shares.iter().map(|share| count(share.count)))
                .collect()
        };
        let rows: Vec<Vec<String>> = self.days.iter().rev().map(row).collect();
        ChartMarkup(figure(
            self.id,
            self.title,
            &self.legend(),
            &self.drawing(),
            &table(&titles, &rows),
        ))
    }

    #[expect(clippy::cast_precision_loss, reason = "a month has few days")]
    fn drawing(&self) -> String {
        let description = format!("{}, a column each", counted(self.days.len() as u64, "day"));
        let mut svg = SvgWriter::with_links(
            self.id,
            "calendar",
            (WIDTH, HEIGHT),
            self.title,
            &description,
        );
        let step = (RIGHT - LEFT) / self.days.len().max(1) as f64;
        let named = self.days.len().div_ceil(NAMES_MAX).max(1);
        for (at, day) in self.days.iter().enumerate() {
            let x = LEFT + step * at as f64;
            let width = (step - 3.0).max(1.0);
            svg.link(&day.address, &day.describe());
            let class = if day.is_chosen {
                "calendar-day chosen"
            } else {
                "calendar-day"
            };
            svg.rect(
                class,
                SvgRect {
                    x,
                    y: TOP,
                    width,
                    height: BOTTOM - TOP,
                },
                &day.describe(),
            );
            fill(&mut svg, day, x, width);
            svg.end_link();
            if (self.days.len() - 1 - at).is_multiple_of(named) {
                let name = day.name.get(5..).unwrap_or(&day.name);
                svg.text(
                    "chart-label",
                    (x + width / 2.0, BOTTOM + 16.0),
                    TextAnchor::Middle,
                    name,
                );
            }
        }
        svg.end()
    }

    /// Of what there is: a colour that stands for nothing here only takes room.
    fn legend(&self) -> String {
        let is_there = |at: usize| {
            self.days
                .iter()
                .any(|day| day.shares.get(at).is_some_and(|share| share.count > 0))
        };
        let shares = self
            .days
            .first()
            .into_iter()
            .flat_map(|day| day.shares.iter().enumerate());
        let key = |(_, share): (usize, &ChartSegment)| {
            format!(
                "<span class=\"chart-key\"><svg class=\"chart-swatch\" viewBox=\"0 0 18 8\" aria-hidden=\"true\">\
                 <rect class=\"chart-bar {}\" x=\"2\" width=\"14\" height=\"8\"/></svg>{}</span>",
                share.tone.class(),
                escape_markup(share.name)
            )
        };
        let keys: String = shares.filter(|(at, _)| is_there(*at)).map(key).collect();
        format!("<span class=\"chart-legend\">{keys}</span>")
    }
}

/// Shares of the day's own total, the worst on top and never too thin to be seen.
#[expect(
    clippy::cast_precision_loss,
    reason = "a day has at most 1,440 instants"
)]
fn fill(svg: &mut SvgWriter, day: &CalendarDay, x: f64, width: f64) {
    let total = day.total();
    if total == 0 {
        return;
    }
    let room = BOTTOM - TOP - 2.0;
    let there: Vec<&ChartSegment> = day.shares.iter().filter(|share| share.count > 0).collect();
    let spare = room - SEEN_MIN * there.len() as f64;
    let mut y = BOTTOM - 1.0;
    for share in there {
        let height = SEEN_MIN + spare.max(0.0) * share.count as f64 / total as f64;
        y -= height;
        let class = format!("chart-bar {}", share.tone.class());
        svg.rect(
            &class,
            SvgRect {
                x: x + 1.0,
                y,
                width: width - 2.0,
                height,
            },
            &day.describe(),
        );
    }
}

impl ChartSegment {
    /// So many of something that became of instants.
    pub const fn new(name: &'static str, tone: ChartTone, count: u64) -> Self {
        Self { name, tone, count }
    }
}
