//! The metrics; the head of the crate lists their names.

use crate::assignment::ReleaseReason;
use crate::consumer_state::ConsumerPart;
use crate::message::TopicPartition;

pub(crate) fn describe() {
    metrics::describe_gauge!(
        "backstop_kafka_lag",
        "Records of an assigned partition that are not committed."
    );
    metrics::describe_counter!("backstop_kafka_records_total", "Records taken in.");
    metrics::describe_counter!("backstop_kafka_batches_total", "Batches taken in.");
    metrics::describe_counter!(
        "backstop_kafka_commits_total",
        "Offsets of partitions committed."
    );
    metrics::describe_counter!(
        "backstop_kafka_rebalances_total",
        "Changes of the assignment."
    );
    metrics::describe_counter!(
        "backstop_kafka_failures_total",
        "Failures, by the part that failed."
    );
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nobody tells lags of more than 2^53 apart"
)]
pub(crate) fn record_lag(place: &TopicPartition, record_lag: u64) {
    let labels = [
        ("topic", place.topic.to_string()),
        ("partition", place.partition.to_string()),
    ];
    metrics::gauge!("backstop_kafka_lag", &labels).set(record_lag as f64);
}

pub(crate) fn count_accepted(place: &TopicPartition, records: usize) {
    let labels = [("topic", place.topic.to_string())];
    metrics::counter!("backstop_kafka_records_total", &labels).increment(records as u64);
    metrics::counter!("backstop_kafka_batches_total", &labels).increment(1);
}

pub(crate) fn count_commit(place: &TopicPartition) {
    metrics::counter!("backstop_kafka_commits_total", "topic" => place.topic.to_string())
        .increment(1);
}

pub(crate) fn count_assign() {
    metrics::counter!("backstop_kafka_rebalances_total", "change" => "assigned").increment(1);
}

pub(crate) fn count_release(departure: ReleaseReason) {
    metrics::counter!("backstop_kafka_rebalances_total", "change" => departure.to_string())
        .increment(1);
}

pub(crate) fn count_failure(part: ConsumerPart) {
    metrics::counter!("backstop_kafka_failures_total", "part" => part.to_string()).increment(1);
}
