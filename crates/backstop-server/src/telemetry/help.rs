//! What the metrics of this process mean, in the words that a scrape shows beside them. Those of
//! Kafka describe themselves.

use super::recorder::HISTOGRAMS;
use backstop_core::stream::StreamCounter;
use metrics::Recorder;

/// Every metric with a name of its own.
const HELP: [(&str, &str); 32] = [
    (
        "backstop_pushed_total",
        "Jobs pushed by this process, by what became of that.",
    ),
    (
        "backstop_runs_total",
        "Runs that ended in this process, by how.",
    ),
    ("backstop_run_seconds", "How long runs took."),
    (
        "backstop_start_delay_seconds",
        "From when a job was to run to the start of its run.",
    ),
    (
        "backstop_oldest_expired_lease_seconds",
        "For how long the lease that ended first has not been taken over.",
    ),
    (
        "backstop_recovered_total",
        "Jobs taken over from vanished workers, by what became of them.",
    ),
    (
        "backstop_detect_to_rerun_seconds",
        "From the detection of a lost lease to the start of the run that makes up for it.",
    ),
    (
        "backstop_overlaps_total",
        "Runs that were alive while another worker could have had their job.",
    ),
    (
        "backstop_rate_limited_total",
        "Jobs that went back because their queue was over its rate limit.",
    ),
    (
        "backstop_locks_total",
        "Wishes for a lock, by what became of them.",
    ),
    (
        "backstop_already_done_total",
        "Work that was found done already.",
    ),
    (
        "backstop_schedule_lateness_seconds",
        "From an instant of a schedule to the arrival of its job in the queue.",
    ),
    (
        "backstop_schedule_missing",
        "Instants of a schedule found missing by the latest look.",
    ),
    (
        "backstop_schedule_fired_total",
        "Instants of a schedule that got their job in time.",
    ),
    (
        "backstop_schedule_late_total",
        "Instants of a schedule that got their job late.",
    ),
    (
        "backstop_schedule_made_up_total",
        "Missed instants of a schedule that got their job afterwards.",
    ),
    (
        "backstop_schedule_coalesced_total",
        "Missed instants of a schedule that another one stands for.",
    ),
    (
        "backstop_schedule_missed_total",
        "Instants of a schedule that got no job.",
    ),
    (
        "backstop_schedule_skipped_total",
        "Instants of a schedule that were to get no job.",
    ),
    (
        "backstop_schedule_triggered_total",
        "Jobs of a schedule that somebody asked for.",
    ),
    (
        "backstop_sweep_runs_total",
        "Runs of a sweep that ended, by how.",
    ),
    ("backstop_sweep_seconds", "How long runs of a sweep took."),
    (
        "backstop_sweep_found",
        "Rows that the last run of a sweep found.",
    ),
    (
        "backstop_sweep_alive",
        "Rows of the last run of a sweep whose job is alive.",
    ),
    (
        "backstop_sweep_dead",
        "Rows of the last run of a sweep whose job is dead.",
    ),
    (
        "backstop_sweep_enqueued_total",
        "Rows that got a job by a sweep.",
    ),
    ("backstop_sweep_buried_total", "Rows that a sweep gave up."),
    (
        "backstop_sweep_unusable_total",
        "Rows that a sweep found and cannot use.",
    ),
    (
        "backstop_reconcile_rows_without_jobs",
        "Rows past the threshold of a sweep without a job, by the last comparison.",
    ),
    (
        "backstop_reconcile_jobs_without_rows",
        "Jobs past the threshold of a sweep without a row, by the last comparison.",
    ),
    (
        "backstop_http_requests_total",
        "Requests that were answered, by the pattern of their route.",
    ),
    (
        "backstop_http_request_seconds",
        "How long answers took, up to their first byte.",
    ),
];

/// Those of streams and tables.
const HELP_ORDERED: [(&str, &str); 10] = [
    ("backstop_stream_missing", "Misses of one gap of a stream."),
    (
        "backstop_stream_delay_seconds",
        "From the arrival of a record to the end of its handling.",
    ),
    (
        "backstop_stream_held",
        "Records of a stream that wait, as this process sees the store.",
    ),
    (
        "backstop_stream_alarm",
        "1 while a stream should be looked at, by why.",
    ),
    (
        "backstop_table_last_failed",
        "1 if the last pass over a table failed.",
    ),
    (
        "backstop_table_passes_total",
        "Passes over a table that ended, by how.",
    ),
    (
        "backstop_table_rows_total",
        "Rows of a table, by what became of them.",
    ),
    (
        "backstop_table_due",
        "Rows that the last pass over a table found due.",
    ),
    (
        "backstop_table_expired",
        "Rows of a table that are never tried again, by the last pass.",
    ),
    (
        "backstop_table_pass_seconds",
        "How long passes over a table took.",
    ),
];

/// What a count of a stream counts.
const fn counted(count: StreamCounter) -> &'static str {
    match count {
        StreamCounter::Added => {
            "Records of a stream that waited, or came in behind others that did."
        }
        StreamCounter::Removed => "Records of a stream that left the hold, in whatever way.",
        StreamCounter::TaskScheduled => "Keys of a stream that began to wait.",
        StreamCounter::Cleared => "Keys of a stream whose wait ended with nothing given up.",
        StreamCounter::Timeout => "Keys of a stream given up because they had waited long enough.",
        StreamCounter::CircuitBreaker => "Keys of a stream given up because they held too much.",
        StreamCounter::Rescheduling => "Looks at keys of a stream in vain.",
        StreamCounter::Handled => "Records of a stream that were handled.",
        StreamCounter::Misses => "Positions of a stream that were declared missing.",
        StreamCounter::Duplicates => "Records of a stream that came twice.",
        StreamCounter::Late => "Records of a stream that came after they were declared missing.",
        StreamCounter::Dead => "Records of a stream that failed for good.",
        StreamCounter::Ignored => "Records of disabled keys of a stream.",
        StreamCounter::StoreFailures => "Records of a stream handled without the store.",
        StreamCounter::OffGrid => "Records of a stream at positions between two steps.",
        StreamCounter::OffStep => "Duplicates of a stream at positions between two steps.",
        StreamCounter::Failures => "Runs over records of a stream that failed.",
    }
}

/// Tells a recorder what everything means.
pub(super) fn describe(recorder: &impl Recorder) {
    for (name, help) in HELP.into_iter().chain(HELP_ORDERED) {
        tell(recorder, name.to_owned(), help);
    }
    for count in StreamCounter::ALL {
        tell(
            recorder,
            format!("backstop_stream_{}_total", count.as_str()),
            counted(count),
        );
    }
}

fn tell(recorder: &impl Recorder, name: String, help: &'static str) {
    if HISTOGRAMS.iter().any(|(histogram, _)| *histogram == name) {
        recorder.describe_histogram(name.into(), None, help.into());
    } else if name.ends_with("_total") {
        recorder.describe_counter(name.into(), None, help.into());
    } else {
        recorder.describe_gauge(name.into(), None, help.into());
    }
}
