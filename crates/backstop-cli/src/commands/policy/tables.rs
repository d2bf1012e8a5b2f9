//! The waits of a policy as a table.

use crate::output::table::TextTable;
use backstop::RetryPolicy;
use backstop_core::retry::RetryPreview;
use backstop_server::policy_lab::{describe_end, wait_table};

/// The table, and what ends the waits.
pub(super) fn render(policy: &RetryPolicy, waits: &[RetryPreview]) -> String {
    let grid = wait_table(policy, waits);
    let mut table = TextTable::new(&grid.titles.iter().map(String::as_str).collect::<Vec<_>>());
    for row in grid.rows {
        table.row(row);
    }
    let policy_json = String::from_utf8_lossy(&policy.to_json()).into_owned();
    format!(
        "{}\n\n{}\nPolicy: {policy_json}",
        table.markdown(),
        describe_end(policy)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::retry::preview;

    fn check(policy: &str, attempts: u32, expected: &[&str]) {
        let policy = RetryPolicy::from_json(policy.as_bytes()).unwrap();
        let text = render(&policy, &preview(&policy, attempts));
        let table: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with('|'))
            .collect();
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
                "| Attempt | Wait | Total Wait |",
                "| ------- | ---- | ---------- |",
                "| 1       | 10s  | 10s        |",
                "| 2       | 20s  | 30s        |",
                "| 3       | 30s  | 60s        |",
                "| 4       | 60s  | 120s       |",
                "| 5       | 60s  | 180s       |",
            ],
        );
    }

    #[test]
    fn fibonacci_starts_with_a_new_row_that_is_due_at_once() {
        check(
            r#"{"kind":"fibonacci","unit":"1m"}"#,
            6,
            &[
                "| Attempt | Wait | Total Wait |",
                "| ------- | ---- | ---------- |",
                "| 0       | 0s   | 0s         |",
                "| 1       | 1m   | 1m         |",
                "| 2       | 1m   | 2m         |",
                "| 3       | 2m   | 4m         |",
                "| 4       | 3m   | 7m         |",
                "| 5       | 5m   | 12m        |",
                "| 6       | 8m   | 20m        |",
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
            (
                r#"{"kind":"exponential","jitter":"none"}"#,
                "| 1       | 1.0s       |",
            ),
            (
                r#"{"kind":"exponential","jitter":"full"}"#,
                "| 1       | 1.0s       | 0.0s - 1.0s        |",
            ),
            (
                r#"{"kind":"exponential","jitter":"equal"}"#,
                "| 1       | 1.0s       | 0.5s - 1.0s         |",
            ),
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
    fn the_last_line_names_what_max_attempts_cuts() {
        let last_line = |max: &str| {
            let json = format!(r#"{{"kind":"exponential","max_attempts":{max}}}"#);
            describe_end(&RetryPolicy::from_json(json.as_bytes()).unwrap())
        };
        assert!(
            last_line("3").contains("failure 3 is the last")
                && last_line("3").contains("2 waits are used")
        );
        assert!(last_line("2").contains("first wait is used"));
        assert!(last_line("1").contains("first failure is the last"));
        assert!(last_line("\"unlimited\"").starts_with("No max_attempts"));
    }
}
