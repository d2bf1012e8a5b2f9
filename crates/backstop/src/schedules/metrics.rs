//! What schedules tell through the `metrics` facade. Every name has the label `schedule`.
//!
//! | name | what it is |
//! |---|---|
//! | `backstop_schedule_{fired,late,made_up,coalesced,missed,skipped,triggered}_total` | instants, by what became of them |
//! | `backstop_schedule_lateness_seconds` (histogram) | from an instant to the arrival of its job in the queue |
//! | `backstop_schedule_missing` (gauge) | instants found missing by the latest look, a minute ago at most |
//!
//! A counter is born with what it counts first, and Prometheus sees no increase in that: alerts for
//! what was given up go by `backstop_schedule_given_up`, which a server reads from the ledger.
//!
//! An instant is counted by the process that entered it: summed over all processes each counts
//! once.

use backstop_core::ScheduleName;
use backstop_core::schedule::LedgerEntry;

pub(super) fn count_entries(schedule: &ScheduleName, entries: &[LedgerEntry]) {
    for entry in entries {
        let name = format!("backstop_schedule_{}_total", entry.outcome);
        metrics::counter!(name, "schedule" => schedule.to_string()).increment(1);
        if entry.outcome.has_job() {
            metrics::histogram!("backstop_schedule_lateness_seconds", "schedule" => schedule.to_string())
                .record(entry.lateness().as_secs_f64());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
pub(super) fn count_missing(schedule: &ScheduleName, count: usize) {
    metrics::gauge!("backstop_schedule_missing", "schedule" => schedule.to_string())
        .set(count as f64);
}
