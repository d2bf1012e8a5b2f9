//! The tables of a policy, as the pages that made these policies known print them.

use crate::output::table::Table;
use backstop::{RetryPolicy, Span};
use backstop_core::retry::{Band, Curve, Jitter, Preview};

/// The table, and what ends the waits.
pub(super) fn render(policy: &RetryPolicy, waits: &[Preview]) -> String {
    let table = match policy.curve() {
        Curve::Exponential { cap, .. } => capped(policy.jitter(), *cap, waits),
        Curve::Fibonacci { .. } | Curve::Steps(_) | Curve::Constant(_) => cumulative(policy.jitter(), waits),
        Curve::Progressive(bands) => by_age(bands),
        Curve::Polynomial | Curve::Custom(_) => bounds(waits),
    };
    let policy_json = String::from_utf8_lossy(&policy.to_json()).into_owned();
    format!("{}\n\n{}\nPolicy: {policy_json}", table.markdown(), ends(policy))
}

/// Base and jitter; from the cap on nothing changes, so one row stands for the rest.
fn capped(jitter: Jitter, cap: Span, waits: &[Preview]) -> Table {
    let spread = spread_title(jitter);
    let titles = ["Attempt", "Base Delay"].into_iter().chain(spread.as_deref());
    let mut table = Table::new(&titles.collect::<Vec<_>>());
    for wait in waits {
        let base = base(jitter, wait);
        let is_capped = base >= cap;
        let mut row = vec![
            format!("{}{}", wait.failures, if is_capped { "+" } else { "" }),
            format!("{}{}", seconds(base), if is_capped { " (capped)" } else { "" }),
        ];
        if spread.is_some() {
            row.push(format!("{} - {}", seconds(wait.min), seconds(wait.max)));
        }
        table.row(row);
        if is_capped {
            break;
        }
    }
    table
}

/// Each wait, and how long it has been in all.
fn cumulative(jitter: Jitter, waits: &[Preview]) -> Table {
    let spread = spread_title(jitter);
    let titles = ["Failures", "Wait", "Total Wait"].into_iter().chain(spread.as_deref());
    let mut table = Table::new(&titles.collect::<Vec<_>>());
    let all = waits.iter().fold(Span::ZERO, |total, wait| total.plus(base(jitter, wait)));
    let form = if all <= Span::minutes(10) { whole_seconds } else { units };
    let mut total = Span::ZERO;
    for wait in waits {
        let base = base(jitter, wait);
        total = total.plus(base);
        let mut row = vec![wait.failures.to_string(), form(base), form(total)];
        if spread.is_some() {
            row.push(format!("{} - {}", form(wait.min), form(wait.max)));
        }
        table.row(row);
    }
    table
}

/// Band by band: how often, up to which age.
fn by_age(bands: &[Band]) -> Table {
    let mut table = Table::new(&["Age", "Tried"]);
    for band in bands {
        let until = format!("up to {}", units(band.until));
        table.row([until, format!("once every {}", hours(band.every))]);
    }
    table
}

/// A period in hours where it is whole hours, as people compare periods; days are for ages.
fn hours(span: Span) -> String {
    let hour = Span::hours(1).as_micros();
    if span.as_micros() % hour == 0 { format!("{}h", span.as_micros() / hour) } else { units(span) }
}

/// The shortest and the longest wait.
fn bounds(waits: &[Preview]) -> Table {
    let mut table = Table::new(&["Failures", "Shortest Wait", "Longest Wait"]);
    for wait in waits {
        table.row([wait.failures.to_string(), units(wait.min), units(wait.max)]);
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

/// The wait before jitter.
fn base(jitter: Jitter, wait: &Preview) -> Span {
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
    if trimmed.ends_with('.') { format!("{trimmed}0s") } else { format!("{trimmed}s") }
}

/// `60s` rather than `1m`, so that a column can be added up in one's head.
fn whole_seconds(span: Span) -> String {
    let text = seconds(span);
    text.strip_suffix(".0s").map_or(text.clone(), |whole| format!("{whole}s"))
}

/// All units it needs: `1d`, `2h 15m`, `1m 30s`.
fn units(span: Span) -> String {
    const UNITS: [(&str, i64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut left = span.as_millis();
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        if left >= size {
            parts.push(format!("{}{unit}", left / size));
            left %= size;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// What ends the waits.
fn ends(policy: &RetryPolicy) -> String {
    match policy.max_attempts() {
        None => "No max_attempts: a job is tried until its age, or an operator, ends it.".to_owned(),
        Some(1) => {
            "max_attempts 1 cuts all of this: the first failure is the last, the job is dead.".to_owned()
        }
        Some(max) => format!(
            "max_attempts {max} cuts this: failure {max} is the last, the job is dead; only the first {} used.",
            if max == 2 { "wait is".to_owned() } else { format!("{} waits are", max - 1) }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::retry::preview;

    fn check(policy: &str, attempts: u32, expected: &[&str]) {
        let policy = RetryPolicy::from_json(policy.as_bytes()).unwrap();
        let text = render(&policy, &preview(&policy, attempts));
        let table: Vec<&str> = text.lines().take_while(|line| line.starts_with('|')).collect();
        assert_eq!(table, expected);
    }

    #[test]
    fn exponential_is_the_table_of_its_page() {
        let expected = [
            "| Attempt | Base Delay     | With Jitter (0-25%) |",
            "| ------- | -------------- | ------------------- |",
            "| 1       | 1.0s           | 1.0s - 1.25s        |",
            "| 2       | 2.0s           | 2.0s - 2.5s         |",
            "| 3       | 4.0s           | 4.0s - 5.0s         |",
            "| 4       | 8.0s           | 8.0s - 10.0s        |",
            "| 5       | 16.0s          | 16.0s - 20.0s       |",
            "| 6+      | 30.0s (capped) | 30.0s - 37.5s       |",
        ];
        check(r#"{"kind":"exponential"}"#, 6, &expected);
        check(r#"{"kind":"exponential"}"#, 100, &expected);
        let short = [
            "| Attempt | Base Delay | With Jitter (0-25%) |",
            "| ------- | ---------- | ------------------- |",
        ];
        let first = "| 1       | 1.0s       | 1.0s - 1.25s        |";
        check(r#"{"kind":"exponential"}"#, 1, &[short[0], short[1], first]);
    }

    #[test]
    fn steps_add_up() {
        let policy = r#"{"kind":"steps","delays":["10s","20s","30s","60s","60s"]}"#;
        check(
            policy,
            5,
            &[
                "| Failures | Wait | Total Wait |",
                "| -------- | ---- | ---------- |",
                "| 1        | 10s  | 10s        |",
                "| 2        | 20s  | 30s        |",
                "| 3        | 30s  | 60s        |",
                "| 4        | 60s  | 120s       |",
                "| 5        | 60s  | 180s       |",
            ],
        );
    }

    #[test]
    fn fibonacci_starts_with_a_new_row_that_is_due_at_once() {
        check(
            r#"{"kind":"fibonacci","unit":"1m"}"#,
            6,
            &[
                "| Failures | Wait | Total Wait |",
                "| -------- | ---- | ---------- |",
                "| 0        | 0s   | 0s         |",
                "| 1        | 1m   | 1m         |",
                "| 2        | 1m   | 2m         |",
                "| 3        | 2m   | 4m         |",
                "| 4        | 3m   | 7m         |",
                "| 5        | 5m   | 12m        |",
                "| 6        | 8m   | 20m        |",
            ],
        );
    }

    #[test]
    fn progressive_goes_by_bands() {
        check(
            r#"{"kind":"progressive"}"#,
            6,
            &[
                "| Age        | Tried           |",
                "| ---------- | --------------- |",
                "| up to 1d   | once every 5m   |",
                "| up to 7d   | once every 1h   |",
                "| up to 14d  | once every 12h  |",
                "| up to 30d  | once every 24h  |",
                "| up to 180d | once every 96h  |",
                "| up to 360d | once every 192h |",
            ],
        );
    }

    #[test]
    fn the_base_is_the_wait_without_its_jitter() {
        let rows = [
            (r#"{"kind":"exponential","jitter":"none"}"#, "| 1       | 1.0s       |"),
            (r#"{"kind":"exponential","jitter":"full"}"#, "| 1       | 1.0s       | 0.0s - 1.0s        |"),
            (r#"{"kind":"exponential","jitter":"equal"}"#, "| 1       | 1.0s       | 0.5s - 1.0s         |"),
            (
                r#"{"kind":"exponential","jitter":{"spread":0.1}}"#,
                "| 1       | 1.0s       | 0.9s - 1.1s        |",
            ),
        ];
        for (policy, row) in rows {
            let policy = RetryPolicy::from_json(policy.as_bytes()).unwrap();
            let text = render(&policy, &preview(&policy, 1));
            assert_eq!(text.lines().nth(2), Some(row));
        }
    }

    #[test]
    fn what_max_attempts_cuts_is_said() {
        let said = |max: &str| {
            let json = format!(r#"{{"kind":"exponential","max_attempts":{max}}}"#);
            ends(&RetryPolicy::from_json(json.as_bytes()).unwrap())
        };
        assert!(said("3").contains("failure 3 is the last") && said("3").contains("2 waits are used"));
        assert!(said("2").contains("first wait is used"));
        assert!(said("1").contains("first failure is the last"));
        assert!(said("\"unlimited\"").starts_with("No max_attempts"));
    }
}
