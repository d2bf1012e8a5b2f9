//! The waits of a policy, laid out as the pages that made these policies known print them.

use backstop_core::retry::{Jitter, RetryBand, RetryCurve, RetryPreview};
use backstop_core::{RetryPolicy, Span};

/// Lines of cells under titles.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WaitTable {
    /// What stands above the columns.
    pub titles: Vec<String>,
    /// The lines, each with a cell for each title.
    pub rows: Vec<Vec<String>>,
}

impl WaitTable {
    fn new(titles: &[&str]) -> Self {
        Self {
            titles: titles.iter().map(|title| (*title).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    fn push_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// The waits of a policy.
pub fn wait_table(policy: &RetryPolicy, waits: &[RetryPreview]) -> WaitTable {
    match policy.curve() {
        RetryCurve::Exponential { cap, .. } => exponential_table(policy.jitter(), *cap, waits),
        RetryCurve::Fibonacci { .. } | RetryCurve::Steps(_) | RetryCurve::Constant(_) => {
            cumulative_table(policy.jitter(), waits)
        }
        RetryCurve::Progressive(bands) => age_table(bands),
        RetryCurve::Polynomial | RetryCurve::Custom(_) => bounds_table(waits),
    }
}

/// Base and jitter; from the cap on nothing changes, so one row stands for the rest.
fn exponential_table(jitter: Jitter, cap: Span, waits: &[RetryPreview]) -> WaitTable {
    let spread = spread_title(jitter);
    let titles = ["Attempt", "Base Delay"]
        .into_iter()
        .chain(spread.as_deref());
    let mut table = WaitTable::new(&titles.collect::<Vec<_>>());
    for wait in waits {
        let base = base(jitter, wait);
        let is_capped = base >= cap;
        let mut row = vec![
            format!("{}{}", wait.failures, if is_capped { "+" } else { "" }),
            format!(
                "{}{}",
                seconds(base),
                if is_capped { " (capped)" } else { "" }
            ),
        ];
        if spread.is_some() {
            row.push(format!("{} - {}", seconds(wait.min), seconds(wait.max)));
        }
        table.push_row(row);
        if is_capped {
            break;
        }
    }
    table
}

/// Each wait, and how long it has been in all.
fn cumulative_table(jitter: Jitter, waits: &[RetryPreview]) -> WaitTable {
    let spread = spread_title(jitter);
    let titles = ["Attempt", "Wait", "Total Wait"]
        .into_iter()
        .chain(spread.as_deref());
    let mut table = WaitTable::new(&titles.collect::<Vec<_>>());
    let all = waits
        .iter()
        .fold(Span::ZERO, |total, wait| total.plus(base(jitter, wait)));
    let form = if all <= Span::minutes(10) {
        whole_seconds
    } else {
        units
    };
    let mut total = Span::ZERO;
    for wait in waits {
        let base = base(jitter, wait);
        total = total.plus(base);
        let mut row = vec![wait.failures.to_string(), form(base), form(total)];
        if spread.is_some() {
            row.push(format!("{} - {}", form(wait.min), form(wait.max)));
        }
        table.push_row(row);
    }
    table
}

/// Band by band: how often, up to which age.
fn age_table(bands: &[RetryBand]) -> WaitTable {
    let mut table = WaitTable::new(&["Age", "Tried"]);
    for band in bands {
        let until = format!("up to {}", units(band.until));
        table.push_row([until, format!("once every {}", hours(band.every))]);
    }
    table
}

/// A period in hours where it is whole hours, as people compare periods; days are for ages.
fn hours(span: Span) -> String {
    let hour = Span::hours(1).as_micros();
    if span.as_micros() % hour == 0 {
        format!("{}h", span.as_micros() / hour)
    } else {
        units(span)
    }
}

/// The shortest and the longest wait.
fn bounds_table(waits: &[RetryPreview]) -> WaitTable {
    let mut table = WaitTable::new(&["Attempt", "Shortest Wait", "Longest Wait"]);
    for wait in waits {
        table.push_row([wait.failures.to_string(), units(wait.min), units(wait.max)]);
    }
    table
}

/// The title of the column that shows the jitter, if there is any.
fn spread_title(jitter: Jitter) -> Option<String> {
    let percent = |share: f64| share * 100.0;
    match jitter {
        Jitter::None => None,
        Jitter::Add(share) => Some(format!("With Jitter (0-{}%)", percent(share))),
        Jitter::Spread(share) => Some(format!("With Jitter (±{}%)", percent(share))),
        Jitter::Full => Some("With Jitter (full)".to_owned()),
        Jitter::Equal => Some("With Jitter (equal)".to_owned()),
    }
}

fn base(jitter: Jitter, wait: &RetryPreview) -> Span {
    match jitter {
        Jitter::None | Jitter::Add(_) => wait.min,
        Jitter::Spread(_) => wait.min.plus(wait.max).scaled(0.5),
        Jitter::Full | Jitter::Equal => wait.max,
    }
}

/// `1.0s`, `1.25s`, `37.5s`: at least one decimal, and no more than there are.
fn seconds(span: Span) -> String {
    if span >= Span::minutes(10) {
        return units(span);
    }
    let text = format!("{:.3}", span.as_secs_f64());
    let trimmed = text.trim_end_matches('0');
    if trimmed.ends_with('.') {
        format!("{trimmed}0s")
    } else {
        format!("{trimmed}s")
    }
}

/// `60s` rather than `1m`, so that a column can be added up in one's head.
fn whole_seconds(span: Span) -> String {
    let text = seconds(span);
    text.strip_suffix(".0s")
        .map_or(text.clone(), |whole| format!("{whole}s"))
}

/// All units it needs: `1d`, `2h 15m`, `1m 30s`.
fn units(span: Span) -> String {
    const UNITS: [(&str, i64); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut left = span.as_millis();
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        if left >= size {
            parts.push(format!("{}{unit}", left / size));
            left %= size;
        }
    }
    if parts.is_empty() {
        "0s".to_owned()
    } else {
        parts.join(" ")
    }
}

pub fn describe_end(policy: &RetryPolicy) -> String {
    match policy.max_attempts() {
        None => {
            "No max_attempts: a job is tried until its age, or an operator, ends it.".to_owned()
        }
        Some(1) => {
            "max_attempts 1 cuts all of this: the first failure is the last, the job is dead."
                .to_owned()
        }
        Some(max) => format!(
            "max_attempts {max} cuts this: failure {max} is the last, the job is dead; only the first {} used.",
            if max == 2 {
                "wait is".to_owned()
            } else {
                format!("{} waits are", max - 1)
            }
        ),
    }
}
