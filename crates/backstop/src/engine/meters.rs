//! What recovery and rate limits tell through the `metrics` facade.
//!
//! | name | labels | what it is |
//! |---|---|---|
//! | `backstop_oldest_expired_lease_seconds` (gauge) | | how long the oldest expired lease has waited to be taken over, at most: since a sweep of this worker last left none. 0 if the last one found none |
//! | `backstop_recovered_total` | `queue`, `outcome` | jobs taken over from vanished workers: `charged`, `given_back` or `dead` |
//! | `backstop_detect_to_rerun_seconds` (histogram) | `queue` | from the detection of a lost lease, which follows its expiry within a sweep, to the start of the next run |
//! | `backstop_overlaps_total` | `queue` | runs that were alive while another worker could have had their job; `backstop job overlaps` lists them |
//! | `backstop_rate_limited_total` | `queue` | jobs that went back because their queue was over its rate limit |

use backstop_core::failure::Cause;
use backstop_core::{Leased, Outcome, QueueName, Span, Time};

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

/// Takes note of the first run after a loss.
pub(super) fn rerun(run: &Leased, now: Time) {
    if run.lost_leases == 0 {
        return;
    }
    let last = run.history.failures().pop().filter(|failure| failure.cause == Cause::Lost);
    if let Some(lost) = last {
        metrics::histogram!("backstop_detect_to_rerun_seconds", "queue" => run.lease.queue.to_string())
            .record(now.since(lost.at).as_secs_f64());
    }
}

pub(super) fn overlapped(queue: &QueueName) {
    metrics::counter!("backstop_overlaps_total", "queue" => queue.to_string()).increment(1);
}

pub(super) fn rate_limited(queue: &QueueName, jobs: usize) {
    metrics::counter!("backstop_rate_limited_total", "queue" => queue.to_string()).increment(jobs as u64);
}
