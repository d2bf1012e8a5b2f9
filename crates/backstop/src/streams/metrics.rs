//! What a stream tells through the `metrics` facade. Every name has the label `stream`.
//!
//! | here | in the document this grew out of | what it is |
//! |---|---|---|
//! | `backstop_stream_added_total` | `uptime.backlog.added` | records that waited, or came in behind others that did |
//! | `backstop_stream_removed_total` | `uptime.backlog.removed` | those that left, in whatever way |
//! | `backstop_stream_task_scheduled_total` | `uptime.backlog.task_scheduled` | keys that began to wait |
//! | `backstop_stream_cleared_total` | `uptime.backlog.cleared` | keys whose wait ended with nothing given up |
//! | `backstop_stream_timeout_total` | `uptime.backlog.timeout` | keys given up because they had waited long enough |
//! | `backstop_stream_circuit_breaker_total` | `uptime.backlog.circuit_breaker` | keys given up because they held too much |
//! | `backstop_stream_rescheduling_total` | `uptime.backlog.rescheduling` | looks in vain |
//! | `backstop_stream_missing` (histogram) | `uptime.result_processer.num_missing_check` | misses of one gap |
//! | `backstop_stream_store_failures_total` | `uptime.backlog.lock_failed` and what it never counted | records handled without the store |
//! | `backstop_stream_{handled,misses,duplicates,late,dead,ignored,off_grid,off_step,failures}_total` | | as their names say |
//! | `backstop_stream_delay_seconds` (histogram) | | from the arrival of a record to the end of its handling |
//! | `backstop_stream_held` (gauge) | added − removed | records that wait, as this process sees the store |
//! | `backstop_stream_alarm` (gauge, label `alarm`) | the alerts | 1 while it should be looked at |
//!
//! | alarm | when |
//! |---|---|
//! | `timeout_rate` | more than 5 % timeouts per record added, over the last ten minutes |
//! | `overflow_rate` | more than 0.1 % overflows per record added, over the last ten minutes |
//! | `held_growing` | more is held each minute than the minute before, ten minutes long |

use backstop_core::stream::{StreamAlarm, StreamCounter, StreamCounts};
use backstop_core::{Span, StreamName};

/// The name of a count's metric.
fn name(count: StreamCounter) -> String {
    format!("backstop_stream_{}_total", count.as_str())
}

pub(super) fn count(stream: &StreamName, counts: &StreamCounts) {
    for count in StreamCounter::ALL {
        if counts[count] > 0 {
            metrics::counter!(name(count), "stream" => stream.to_string()).increment(counts[count]);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a histogram is of doubles")]
pub(super) fn missing(stream: &StreamName, count: u64) {
    metrics::histogram!("backstop_stream_missing", "stream" => stream.to_string())
        .record(count as f64);
}

pub(super) fn delay(stream: &StreamName, delay: Span) {
    let seconds = std::time::Duration::from(delay).as_secs_f64();
    metrics::histogram!("backstop_stream_delay_seconds", "stream" => stream.to_string())
        .record(seconds);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
pub(super) fn held(stream: &StreamName, held: u64) {
    metrics::gauge!("backstop_stream_held", "stream" => stream.to_string()).set(held as f64);
}

pub(super) fn alarms(stream: &StreamName, ringing: &[StreamAlarm]) {
    for alarm in StreamAlarm::ALL {
        let value = f64::from(u8::from(ringing.contains(&alarm)));
        metrics::gauge!("backstop_stream_alarm", "stream" => stream.to_string(), "alarm" => alarm.as_str())
            .set(value);
    }
}
