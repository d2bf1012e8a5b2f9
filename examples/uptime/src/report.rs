//! What a run came to, measured against the truth: figures, and the table of them.
#![expect(
    clippy::cast_precision_loss,
    reason = "figures are shown with few digits"
)]

#[cfg(test)]
mod tests;

use crate::consumer::Counts;
use crate::event::Effect;
use crate::memory::KeptLine;
use crate::mode::Mode;
use crate::run::Ran;
use crate::sequencer::Hold;
use crate::world::{Seen, Slot, World};
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// What a run came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// How results were put in order.
    pub mode: Mode,
    /// Checks that were called missed although their result arrives in time.
    pub false_misses: u64,
    /// Checks that were rightly called missed.
    pub true_misses_found: u64,
    /// Checks that had to be.
    pub true_misses: u64,
    /// Results in time that were handled.
    pub handled: u64,
    /// Results in time that were dropped.
    pub lost: u64,
    /// What the hold went through; nothing where there is none.
    pub hold: Option<Hold>,
    /// The delay from arrival to handling that half of the results stay below, in the world's
    /// time.
    pub delay_p50_ms: i64,
    /// The one that 99 in 100 stay below.
    pub delay_p99_ms: i64,
    /// How long the run took.
    pub took_ms: u64,
    /// The furthest that the machine fell behind, in the world's time.
    pub behind_ms: i64,
    /// How many results came to what end.
    pub counts: Counts,
}

/// What a world is like, in numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Subscriptions in the directory.
    pub subscriptions: usize,
    /// Everything that arrives.
    pub arrivals: usize,
    /// Checks of those who are watched whose results arrive in time.
    pub in_time: u64,
    /// Those whose results never arrive.
    pub dropped: usize,
    /// Those whose results arrive when they have been given up.
    pub late: usize,
    /// Second copies.
    pub duplicates: u64,
    /// Arrivals that are no results.
    pub broken: u64,
}

impl Summary {
    /// Of a world.
    pub fn of(world: &World) -> Self {
        Self {
            subscriptions: world.directory.subscriptions.len(),
            arrivals: world.trace.len(),
            in_time: world.truth.in_time,
            dropped: world.truth.dropped.len(),
            late: world.truth.late.len(),
            duplicates: world.truth.duplicates,
            broken: world.truth.broken,
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        format!(
            "{} arrivals for {} subscriptions: {} results in time, {} never, {} too late; {} second copies, {} broken",
            grouped(self.arrivals as u64),
            grouped(self.subscriptions as u64),
            grouped(self.in_time),
            grouped(self.dropped as u64),
            grouped(self.late as u64),
            grouped(self.duplicates),
            grouped(self.broken),
        )
    }
}

/// Measures a run.
pub fn measure(world: &World, seen: &[Option<Seen>], mode: Mode, ran: &Ran) -> Figures {
    let missed: BTreeSet<Slot> = ran.lines.iter().flat_map(missed_slots).collect();
    let true_misses_found = missed
        .iter()
        .filter(|slot| world.truth.is_missing(**slot))
        .count() as u64;
    let handled = ran
        .lines
        .iter()
        .filter(|line| line.effect == Effect::Handled && !world.truth.is_missing(slot(line)))
        .count() as u64;
    let delays = delays(world, seen, &ran.lines);
    Figures {
        mode,
        false_misses: missed.len() as u64 - true_misses_found,
        true_misses_found,
        true_misses: world.truth.missing(),
        handled,
        lost: world.truth.in_time.saturating_sub(handled),
        hold: ran.hold,
        delay_p50_ms: percentile(&delays, 50),
        delay_p99_ms: percentile(&delays, 99),
        took_ms: u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX),
        behind_ms: ran.behind_ms,
        counts: ran.counts,
    }
}

/// A line under the header and no other.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The table that people read: a row for each figure, a column for each run.
pub fn table(runs: &[Figures]) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(
        std::iter::once(String::new()).chain(runs.iter().map(|figures| figures.mode.to_string())),
    );
    for (title, figure) in ROWS {
        table.add_row(std::iter::once((*title).to_owned()).chain(runs.iter().map(figure)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// The rows of the table: what it is, and how it is written.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: &[Row] = &[
    ("false misses", |it| grouped(it.false_misses)),
    ("true misses found", |it| {
        format!(
            "{} of {}",
            grouped(it.true_misses_found),
            grouped(it.true_misses)
        )
    }),
    ("results handled", |it| grouped(it.handled)),
    ("results lost", |it| grouped(it.lost)),
    ("timeouts", |it| {
        of_hold(it, |hold| share(hold.timeouts, hold.added))
    }),
    ("overflows", |it| {
        of_hold(it, |hold| share(hold.overflows, hold.added))
    }),
    ("mean held", |it| {
        of_hold(it, |hold| format!("{:.1}", hold.mean_held))
    }),
    ("delay p50", |it| duration(it.delay_p50_ms)),
    ("delay p99", |it| duration(it.delay_p99_ms)),
];

/// Every check that a line calls missed.
fn missed_slots(line: &KeptLine) -> Vec<Slot> {
    match line.effect {
        Effect::Miss => vec![slot(line)],
        Effect::MissRange { to, count } => {
            let steps = i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(1);
            let step = (to - line.position) / steps.max(1);
            (0..=steps)
                .map(|nth| Slot {
                    key: line.key,
                    position: line.position + nth * step,
                })
                .collect()
        }
        Effect::Handled | Effect::Amended => Vec::new(),
    }
}

fn slot(line: &KeptLine) -> Slot {
    Slot {
        key: line.key,
        position: line.position,
    }
}

/// From the first arrival of each result that was handled to its handling, shortest first.
fn delays(world: &World, seen: &[Option<Seen>], lines: &[KeptLine]) -> Vec<i64> {
    let mut arrived: HashMap<Slot, i64> = HashMap::new();
    for (arrival, seen) in world.trace.iter().zip(seen) {
        if let Some(seen) = seen.filter(|seen| seen.is_admitted) {
            arrived.entry(seen.slot).or_insert(arrival.at_ms);
        }
    }
    let handled = lines.iter().filter(|line| line.effect == Effect::Handled);
    let mut delays: Vec<i64> = handled
        .filter_map(|line| {
            arrived
                .get(&slot(line))
                .map(|arrived_ms| (line.at_ms - arrived_ms).max(0))
        })
        .collect();
    delays.sort_unstable();
    delays
}

/// The nearest rank: the smallest value that so many in a hundred do not exceed.
fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

fn of_hold(figures: &Figures, write: impl Fn(&Hold) -> String) -> String {
    figures.hold.as_ref().map_or_else(|| "–".to_owned(), write)
}

/// A count, and what it is of all that was held.
fn share(count: u64, of: u64) -> String {
    if of == 0 {
        return grouped(count);
    }
    format!(
        "{} ({:.1} %)",
        grouped(count),
        count as f64 * 100.0 / of as f64
    )
}

fn duration(ms: i64) -> String {
    if ms < 1000 {
        format!("{ms} ms")
    } else {
        format!("{:.1} s", ms as f64 / 1000.0)
    }
}

/// `12345` as `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
