//! Charts of a simulation: calls over time, what failed of them, and the backlog.

use crate::output::paint::TextPaint;
use crate::output::words::{about, count};
use backstop::Span;
use backstop_core::simulate::{Scenario, SimulationBucket, SimulationResult};

const ROWS: u64 = 10;
/// The least columns there are, however narrow the terminal.
const COLUMNS_MIN: usize = 20;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const FAILED: char = '░';
/// Less than half a line of them: to be seen, and not to be taken for many.
const FEW_FAILED: char = '·';
const OUT: char = '━';

/// A column of the chart: a few buckets together.
#[derive(Clone, Copy)]
struct SimulationColumn {
    calls: u64,
    failed: u64,
    backlog: u64,
    is_out: bool,
}

/// The chart, at most `width` characters wide.
pub(super) fn render(
    scenario: &Scenario,
    simulated: &SimulationResult,
    width: usize,
    paint: TextPaint,
) -> String {
    let margin = "backlog".len().max(count(simulated.calls).len()) + 2;
    let room = width.saturating_sub(margin).max(COLUMNS_MIN);
    let together = simulated.buckets.len().div_ceil(room).max(1);
    let columns: Vec<SimulationColumn> = simulated
        .buckets
        .chunks(together)
        .map(|buckets| column(scenario, buckets))
        .collect();
    let most = columns
        .iter()
        .map(|column| column.calls)
        .max()
        .unwrap_or_default();
    let span = scenario
        .bucket
        .times(i64::try_from(together).unwrap_or(i64::MAX));
    let label = |text: &str| format!("{text:>width$} ", width = margin - 2);
    let mut lines = vec![format!(
        "Calls of the service per {span}: █ succeeded, {FAILED} failed, {FEW_FAILED} a few failed"
    )];
    for row in (0..ROWS).rev() {
        let scale = if row == ROWS - 1 {
            count(most)
        } else {
            String::new()
        };
        let cells = columns.iter().map(|column| cell(*column, row, most));
        lines.push(format!("{}┤{}", label(&scale), paint_cells(cells, paint)));
    }
    lines.push(format!("{}└{}", label("0"), "─".repeat(columns.len())));
    let out = columns
        .iter()
        .map(|column| if column.is_out { OUT } else { ' ' });
    lines.push(format!(
        "{} {}",
        label("out"),
        out.collect::<String>().trim_end()
    ));
    lines.push(format!("{} {}", label("backlog"), sparkline(&columns)));
    lines.push(format!(
        "{} {}",
        label("time"),
        times(scenario, span, columns.len())
    ));
    lines.join("\n") + "\n"
}

fn column(scenario: &Scenario, buckets: &[SimulationBucket]) -> SimulationColumn {
    let (from, until) = scenario.outage;
    let is_out =
        |bucket: &SimulationBucket| bucket.at < until && bucket.at.plus(scenario.bucket) > from;
    SimulationColumn {
        calls: buckets.iter().map(|bucket| bucket.calls).sum(),
        failed: buckets.iter().map(|bucket| bucket.failed).sum(),
        backlog: buckets
            .iter()
            .map(|bucket| bucket.backlog)
            .max()
            .unwrap_or_default(),
        is_out: buckets.iter().any(is_out),
    }
}

/// One character of a column. What failed stands below, in whole characters, and is never too
/// little to be seen; what succeeded stands on it.
fn cell(column: SimulationColumn, row: u64, most: u64) -> char {
    let most = most.max(1);
    let failed_rows = (column.failed * ROWS + most / 2) / most;
    let good_eighths = ((column.calls - column.failed) * ROWS * 8).div_ceil(most);
    match (row < failed_rows, row) {
        (true, _) => FAILED,
        (false, 0) if column.failed > 0 => FEW_FAILED,
        (false, _) => {
            EIGHTHS[(failed_rows * 8 + good_eighths)
                .saturating_sub(row * 8)
                .min(8) as usize]
        }
    }
}

/// The characters of a row in their colours, and no spaces at its end.
fn paint_cells(cells: impl Iterator<Item = char>, paint: TextPaint) -> String {
    let row: String = cells.collect();
    let mut text = String::new();
    let mut rest = row.trim_end();
    while let Some(first) = rest.chars().next() {
        let tone = |c: char| (matches!(c, FAILED | FEW_FAILED), c == ' ');
        let end = rest.find(|c| tone(c) != tone(first)).unwrap_or(rest.len());
        let (run, following) = rest.split_at(end);
        match first {
            ' ' => text.push_str(run),
            FAILED | FEW_FAILED => text.push_str(&paint.bad(run)),
            _ => text.push_str(&paint.good(run)),
        }
        rest = following;
    }
    text
}

fn sparkline(columns: &[SimulationColumn]) -> String {
    let most = columns
        .iter()
        .map(|column| column.backlog)
        .max()
        .unwrap_or_default()
        .max(1);
    let height =
        |column: &SimulationColumn| EIGHTHS[(column.backlog * 8).div_ceil(most).min(8) as usize];
    columns
        .iter()
        .map(height)
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// The beginning, the outage and the end, each below its column where there is room.
fn times(scenario: &Scenario, span: Span, columns: usize) -> String {
    let (from, until) = scenario.outage;
    let end = scenario.run_for;
    let end_at = columns.saturating_sub(about(end).len());
    let mut line = String::new();
    for (at, time) in [
        (0, Span::ZERO),
        (place(from, span), from),
        (place(until, span), until),
        (end_at, end),
    ] {
        let text = about(time);
        let is_clear = line.is_empty() || line.len() < at;
        if is_clear && at + text.len() <= columns.max(1) {
            line.push_str(&" ".repeat(at - line.len()));
            line.push_str(&text);
        }
    }
    line
}

fn place(time: Span, span: Span) -> usize {
    usize::try_from(time.as_micros() / span.as_micros().max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
