//! What sweeps tell through the `metrics` facade. Every name has the label `sweep`.
//!
//! | name | what it is |
//! |---|---|
//! | `backstop_sweep_runs_total` (label `outcome`: ok, failed) | runs that ended |
//! | `backstop_sweep_found`, `_alive`, `_dead` (gauges) | rows of the last run |
//! | `backstop_sweep_enqueued_total`, `_buried_total`, `_unusable_total` | rows that got a job, were given up, or cannot be used |
//! | `backstop_sweep_seconds` (histogram) | how long runs take |
//! | `backstop_reconcile_rows_without_jobs`, `_jobs_without_rows` (gauges) | what the last comparison found past the threshold |

use super::{ReconcileReport, Sweep, SweepError, SweepReport};
use backstop_core::Span;

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
fn gauge(name: &'static str, sweep: &Sweep, count: usize) {
    metrics::gauge!(name, "sweep" => sweep.name().to_owned()).set(count as f64);
}

fn counter(name: &'static str, sweep: &Sweep, count: usize) {
    metrics::counter!(name, "sweep" => sweep.name().to_owned()).increment(count as u64);
}

pub(super) fn run(sweep: &Sweep, outcome: &Result<SweepReport, SweepError>, took: Span) {
    let word = if outcome.is_ok() { "ok" } else { "failed" };
    let name = sweep.name().to_owned();
    metrics::counter!("backstop_sweep_runs_total", "sweep" => name.clone(), "outcome" => word)
        .increment(1);
    metrics::histogram!("backstop_sweep_seconds", "sweep" => name).record(took.as_secs_f64());
    let Ok(report) = outcome else { return };
    gauge("backstop_sweep_found", sweep, report.found.len());
    gauge("backstop_sweep_alive", sweep, report.alive.len());
    gauge("backstop_sweep_dead", sweep, report.dead.len());
    counter(
        "backstop_sweep_enqueued_total",
        sweep,
        report.enqueued.len(),
    );
    counter("backstop_sweep_buried_total", sweep, report.buried.len());
    counter(
        "backstop_sweep_unusable_total",
        sweep,
        report.unusable.len(),
    );
}

pub(super) fn reconciled(sweep: &Sweep, found: &ReconcileReport) {
    gauge(
        "backstop_reconcile_rows_without_jobs",
        sweep,
        found.rows_without_jobs.len(),
    );
    gauge(
        "backstop_reconcile_jobs_without_rows",
        sweep,
        found.overdue().count(),
    );
}
