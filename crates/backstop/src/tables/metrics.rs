//! What tables tell through the `metrics` facade. Every name has the label `table`.
//!
//! | name | what it is |
//! |---|---|
//! | `backstop_table_passes_total` (label `outcome`: ok, failed) | passes that ended |
//! | `backstop_table_last_failed` (gauge) | 1 if the last pass failed |
//! | `backstop_table_rows_total` (label `outcome`: succeeded, failed, released, overtaken, taken, unwritten, buried) | rows, by what became of them |
//! | `backstop_table_due`, `backstop_table_expired` (gauges) | rows of the last pass |
//! | `backstop_table_pass_seconds` (histogram) | how long passes take |

use super::Table;
use super::adopted_table::TableError;
use super::pass::PassReport;
use backstop_core::Span;

pub(super) fn pass(table: &Table, outcome: &Result<PassReport, TableError>, took: Span) {
    let word = if outcome.is_ok() { "ok" } else { "failed" };
    let name = table.name().to_owned();
    metrics::counter!("backstop_table_passes_total", "table" => name.clone(), "outcome" => word)
        .increment(1);
    metrics::histogram!("backstop_table_pass_seconds", "table" => name.clone())
        .record(took.as_secs_f64());
    gauge(
        "backstop_table_last_failed",
        table,
        u64::from(outcome.is_err()),
    );
    let Ok(pass) = outcome else { return };
    let rows = [
        ("succeeded", pass.succeeded as u64),
        ("failed", pass.failed as u64),
        ("released", pass.released as u64),
        ("overtaken", pass.overtaken as u64),
        ("taken", pass.taken as u64),
        ("unwritten", pass.unwritten as u64),
        ("buried", pass.buried),
    ];
    for (outcome, count) in rows {
        metrics::counter!("backstop_table_rows_total", "table" => name.clone(), "outcome" => outcome)
            .increment(count);
    }
    gauge("backstop_table_due", table, pass.due as u64);
    gauge("backstop_table_expired", table, pass.expired);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
fn gauge(name: &'static str, table: &Table, count: u64) {
    metrics::gauge!(name, "table" => table.name().to_owned()).set(count as f64);
}
