//! What recovery and rate limits tell through the `metrics` facade.
//!
//! | name | labels | what it is |
//! |---|---|---|
//! | `backstop_oldest_expired_lease_seconds` (gauge) | | for how long the lease that ended first has not been taken over: 0 after a sweep that left none. Known by when its worker last beat, so to within a beat; while the store does not answer it grows with the time |
//! | `backstop_recovered_total` | `queue`, `outcome` | jobs taken over from vanished workers: `charged`, `given_back` or `dead` |
//! | `backstop_detect_to_rerun_seconds` (histogram) | `queue` | from the detection of a lost lease, which follows its end within a sweep, to the start of the run that makes up for it: once for each loss a job was charged with |
//! | `backstop_overlaps_total` | `queue` | runs that were alive while another worker could have had their job; `backstop job overlaps` lists them |
//! | `backstop_rate_limited_total` | `queue` | jobs that went back because their queue was over its rate limit |

use backstop_core::{Outcome, QueueName, Span};

pub(super) fn oldest_expired(waited: Span) {
    metrics::gauge!("backstop_oldest_expired_lease_seconds").set(waited.as_secs_f64());
}

pub(super) fn recovered(queue: &QueueName, outcome: &Outcome) {
    let outcome = match outcome {
        Outcome::Dead { .. } => "dead",
        Outcome::Released { .. } => "given_back",
        _ => "charged",
    };
    metrics::counter!("backstop_recovered_total", "queue" => queue.to_string(), "outcome" => outcome)
        .increment(1);
}

pub(crate) fn rerun(queue: &QueueName, waited: Span) {
    metrics::histogram!("backstop_detect_to_rerun_seconds", "queue" => queue.to_string())
        .record(waited.as_secs_f64());
}

pub(super) fn overlapped(queue: &QueueName) {
    metrics::counter!("backstop_overlaps_total", "queue" => queue.to_string()).increment(1);
}

pub(super) fn rate_limited(queue: &QueueName, jobs: usize) {
    metrics::counter!("backstop_rate_limited_total", "queue" => queue.to_string()).increment(jobs as u64);
}
