//! What queues, recovery and rate limits tell through the `metrics` facade.
//!
//! | name | labels | what it is |
//! |---|---|---|
//! | `backstop_pushed_total` | `queue`, `result` | jobs pushed by this process: `inserted`, `same`, `duplicate` or `full` |
//! | `backstop_runs_total` | `queue`, `outcome` | runs that ended here: `done`, `retry`, `dead`, `cancelled` or `released` |
//! | `backstop_run_seconds` (histogram) | `queue` | how long runs took |
//! | `backstop_start_delay_seconds` (histogram) | `queue` | from when a job was to run to the start of its run |
//! | `backstop_oldest_expired_lease_seconds` (gauge) | | for how long the lease that ended first has not been taken over: 0 after a sweep that left none. While the store does not answer it grows with the time |
//! | `backstop_recovered_total` | `queue`, `outcome` | jobs taken over from vanished workers: `charged`, `given_back` or `dead` |
//! | `backstop_detect_to_rerun_seconds` (histogram) | `queue` | from the detection of a lost lease, which follows its end within a sweep, to the start of the run that makes up for it: once for each loss a job was charged with |
//! | `backstop_overlaps_total` | `queue` | runs that were alive while another worker could have had their job; `backstop job overlaps` lists them |
//! | `backstop_rate_limited_total` | `queue` | jobs that went back because their queue was over its rate limit |

use backstop_core::port::EnqueueOutcome;
use backstop_core::{LeasedRun, Outcome, QueueName, Span, Time};
use std::collections::BTreeMap;

/// What became of the jobs of one push; `queues` are theirs.
pub(crate) fn count_pushed(queues: &[QueueName], answers: &[EnqueueOutcome]) {
    let mut counts: BTreeMap<(&QueueName, &'static str), u64> = BTreeMap::new();
    for (queue, answer) in queues.iter().zip(answers) {
        let result = match answer {
            EnqueueOutcome::Inserted => "inserted",
            EnqueueOutcome::Same => "same",
            EnqueueOutcome::Duplicate(_) => "duplicate",
            EnqueueOutcome::Full => "full",
            EnqueueOutcome::Conflict => "conflict",
        };
        *counts.entry((queue, result)).or_default() += 1;
    }
    for ((queue, result), count) in counts {
        metrics::counter!("backstop_pushed_total", "queue" => queue.to_string(), "result" => result)
            .increment(count);
    }
}

/// The word for how a run ended.
pub(super) const fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(_) => "done",
        Outcome::Retry { .. } => "retry",
        Outcome::Dead { .. } => "dead",
        Outcome::Cancelled { .. } => "cancelled",
        Outcome::Released { .. } | Outcome::Reran { .. } | Outcome::Lost { .. } => "released",
    }
}

/// A run that ended here.
pub(super) fn record_run(leased: &LeasedRun, began_at: Time, ended_at: Time, outcome: &Outcome) {
    let queue = leased.lease.queue.to_string();
    metrics::counter!("backstop_runs_total", "queue" => queue.clone(), "outcome" => outcome_word(outcome))
        .increment(1);
    metrics::histogram!("backstop_run_seconds", "queue" => queue.clone())
        .record(ended_at.since(began_at).as_secs_f64());
    metrics::histogram!("backstop_start_delay_seconds", "queue" => queue)
        .record(began_at.since(leased.run_at).as_secs_f64());
}

pub(super) fn set_recovery_lag(waited: Span) {
    metrics::gauge!("backstop_oldest_expired_lease_seconds").set(waited.as_secs_f64());
}

pub(super) fn count_recovered(queue: &QueueName, outcome: &Outcome) {
    let outcome = match outcome {
        Outcome::Dead { .. } => "dead",
        Outcome::Released { .. } => "given_back",
        _ => "charged",
    };
    metrics::counter!("backstop_recovered_total", "queue" => queue.to_string(), "outcome" => outcome)
        .increment(1);
}

pub(crate) fn record_rerun(queue: &QueueName, waited: Span) {
    metrics::histogram!("backstop_detect_to_rerun_seconds", "queue" => queue.to_string())
        .record(waited.as_secs_f64());
}

pub(crate) fn count_overlap(queue: &QueueName) {
    metrics::counter!("backstop_overlaps_total", "queue" => queue.to_string()).increment(1);
}

pub(super) fn count_rate_limited(queue: &QueueName, jobs: usize) {
    metrics::counter!("backstop_rate_limited_total", "queue" => queue.to_string())
        .increment(jobs as u64);
}
