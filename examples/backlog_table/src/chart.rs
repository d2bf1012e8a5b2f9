//! The tries of each row on a terminal: a line for its tries over time, and a table of how many at
//! which age.

#[cfg(test)]
mod tests;

use crate::{Played, Sample};
use backstop::Span;
use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use std::fmt::Write as _;

/// Columns for ten times as long: time is drawn by its logarithm, for the first hour matters as
/// much as the last half year.
const PER_DECADE: f64 = 10.0;
/// From a minute to 360 days.
const COLUMNS: usize = 58;
/// Where a line begins, behind the name of its row.
const LEFT: usize = 12;
/// One try, up to 2, 4, 8 …
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What stands under the lines.
const MARKS: [(&str, Span); 8] = [
    ("1m", Span::minutes(1)),
    ("10m", Span::minutes(10)),
    ("1h", Span::hours(1)),
    ("6h", Span::hours(6)),
    ("1d", Span::days(1)),
    ("7d", Span::days(7)),
    ("30d", Span::days(30)),
    ("180d", Span::days(180)),
];
/// The ages by which tries are counted: those of the bands.
const AGES: [Span; 6] = [
    Span::days(1),
    Span::days(7),
    Span::days(14),
    Span::days(30),
    Span::days(180),
    Span::days(360),
];
/// A line under the header and no other.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Both for each of these rows.
pub fn draw(played: &Played, rows: &[Sample]) -> String {
    let mut text = format!("{}\n\n", played.strategy.name());
    for row in rows {
        let tries = played.of(row.id);
        let line: String = counted(&tries).map(height).into_iter().collect();
        let _ = writeln!(text, "{:<LEFT$}{line}  {} tries", named(row), tries.len());
    }
    let _ = writeln!(text, "{:LEFT$}{}\n\n{}", "", axis(), table(played, rows));
    text
}

/// How many tries are in each column.
fn counted(tries: &[Span]) -> [usize; COLUMNS] {
    let mut counts = [0; COLUMNS];
    for after in tries {
        counts[column(*after)] += 1;
    }
    counts
}

/// The column of a time after the beginning; all of the first minute is the first.
fn column(after: Span) -> usize {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "one of 58 columns, the logarithm of at least 1"
    )]
    let column =
        ((after.as_millis() as f64 / 60_000.0).max(1.0).log10() * PER_DECADE + 1e-9) as usize;
    column.min(COLUMNS - 1)
}

fn height(count: usize) -> char {
    match count.checked_ilog2() {
        None => ' ',
        Some(power) => HEIGHTS[(power as usize).min(HEIGHTS.len() - 1)],
    }
}

fn axis() -> String {
    let mut axis = String::new();
    for (mark, at) in MARKS {
        let column = column(at);
        let _ = write!(
            axis,
            "{:gap$}{mark}",
            "",
            gap = column.saturating_sub(axis.chars().count())
        );
    }
    axis
}

/// What a row is called: its id and its age in the beginning.
pub(crate) fn named(row: &Sample) -> String {
    if row.age.is_zero() {
        format!("{}  new", row.id)
    } else {
        format!("{}  {} old", row.id, row.age)
    }
}

fn table(played: &Played, rows: &[Sample]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let ages = AGES.iter().map(|age| right(format!("to {age}")));
    table.set_header(
        [Cell::new("tries at an age")]
            .into_iter()
            .chain(ages)
            .chain([right("in all".to_owned())]),
    );
    for row in rows {
        let ages: Vec<Span> = played
            .of(row.id)
            .iter()
            .map(|after| row.age.plus(*after))
            .collect();
        let mut from = None;
        let mut counts = Vec::new();
        for until in AGES {
            let is_so_old = |age: &&Span| **age <= until && from.is_none_or(|from| **age > from);
            counts.push(ages.iter().filter(is_so_old).count());
            from = Some(until);
        }
        let cells = counts
            .into_iter()
            .chain([ages.len()])
            .map(|count| right(count.to_string()));
        table.add_row([Cell::new(named(row))].into_iter().chain(cells));
    }
    table
}
