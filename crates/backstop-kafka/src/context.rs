//! The client's callbacks: rebalances, errors, its log.
//!
//! They all run on the polling thread, within a poll, so nothing here waits.

use crate::assignment::ReleaseReason;
use crate::committer;
use crate::consumer_state::{ConsumerPart, ConsumerState};
use crate::message::TopicPartition;
use crate::meters;
use crate::topic_partitions;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use std::sync::Arc;

/// The callback context of the client.
pub(crate) struct RebalanceHandler {
    pub(crate) state: Arc<ConsumerState>,
}

impl RebalanceHandler {
    fn on_assign(&self, places: Vec<TopicPartition>) {
        tracing::info!(?places, "partitions assigned");
        meters::count_assign();
        self.state.assignment().assign(places);
    }

    /// The commit need not be waited for. The client sends it before it gives up the partitions,
    /// and does not rejoin or leave the group until it was answered or timed out. The client's log
    /// reports a refusal.
    fn on_release(&self, consumer: &BaseConsumer<Self>, places: &[TopicPartition]) {
        let departure = if consumer.assignment_lost() {
            ReleaseReason::Lost
        } else {
            ReleaseReason::Revoked
        };
        tracing::info!(?places, %departure, "partitions gone");
        meters::count_release(departure);
        let commits = self.state.assignment().release(places, departure);
        for place in places {
            meters::record_lag(place, 0);
        }
        if let Err(error) = committer::send(consumer, &commits, CommitMode::Async) {
            self.state.record_failure(
                ConsumerPart::Commit,
                &format!("offsets of revoked partitions are not committed: {error}"),
            );
        }
    }
}

impl ConsumerContext for RebalanceHandler {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.on_assign(topic_partitions::from_list(list)),
            Rebalance::Revoke(list) => {
                self.on_release(consumer, &topic_partitions::from_list(list));
            }
            Rebalance::Error(error) => {
                self.state.record_failure(
                    ConsumerPart::Client,
                    &format!("a rebalance failed: {error}"),
                );
            }
        }
    }
}

impl ClientContext for RebalanceHandler {
    fn error(&self, error: KafkaError, reason: &str) {
        self.state
            .record_failure(ConsumerPart::Client, &format!("{error}: {reason}"));
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => tracing::error!(facility, "{line}"),
            RDKafkaLogLevel::Warning => tracing::warn!(facility, "{line}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, "{line}"),
            RDKafkaLogLevel::Debug => tracing::debug!(facility, "{line}"),
        }
    }
}
