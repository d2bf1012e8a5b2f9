//! The tables that people read.

use super::{Check, Report};
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// A line under the header and no other.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// What should be and what is, and below it what happened on the way.
pub(super) fn draw(report: &Report) -> String {
    format!("{}\n\n{}", checks(report), story(report))
}

fn checks(report: &Report) -> String {
    let rows = report.checks.iter().map(|check| {
        let mark = if Check::holds(check) { "" } else { "OFF" };
        [
            check.what.to_owned(),
            grouped(check.expected),
            grouped(check.found),
            mark.to_owned(),
        ]
    });
    table(["", "should be", "is", ""], rows)
}

fn story(report: &Report) -> String {
    let story = &report.story;
    let count = |count: u64| grouped(i64::try_from(count).unwrap_or(i64::MAX));
    let mut rows = vec![
        [
            "worker processes killed".to_owned(),
            count(u64::from(story.kills - story.sweeper_kills)),
        ],
        [
            "jobs that lost a worker".to_owned(),
            count(story.jobs_that_lost_a_worker),
        ],
        [
            "enqueues lost after a commit".to_owned(),
            count(story.enqueues_lost),
        ],
    ];
    if story.sweeper_kills > 0 {
        rows.insert(
            1,
            [
                "processes that sweep killed".to_owned(),
                count(u64::from(story.sweeper_kills)),
            ],
        );
    }
    for (sweep, recovered) in story
        .recovered
        .iter()
        .filter(|(_, recovered)| **recovered > 0)
    {
        rows.push([
            format!("recovered by the sweep {sweep}"),
            count(*recovered as u64),
        ]);
    }
    rows.extend([
        [
            "digest runs of past days made up".to_owned(),
            count(story.made_up),
        ],
        [
            "dead letters requeued by an operator".to_owned(),
            count(story.requeued),
        ],
        [
            "calls of the provider".to_owned(),
            count(story.provider.calls),
        ],
        ["… that failed".to_owned(), count(story.provider.failures)],
        [
            "… for emails delivered before".to_owned(),
            count(story.provider.repeats),
        ],
        [
            "… with an address that cannot be".to_owned(),
            count(story.provider.refusals),
        ],
        [
            "until nothing was left to do".to_owned(),
            format!(
                "{}.{} s",
                story.took_ms / 1_000,
                story.took_ms % 1_000 / 100
            ),
        ],
    ]);
    table(["what happened", ""], rows.into_iter())
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// `12345` as `12,345`.
fn grouped(number: i64) -> String {
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
