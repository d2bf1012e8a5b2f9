//! What the client calls back: assignments that come and go, errors, its log.
//!
//! All of it runs on the polling thread, within a poll. Nothing here waits.

use crate::assignment::Departure;
use crate::board::{Board, Part};
use crate::committer;
use crate::message::TopicPartition;
use crate::meters;
use crate::places;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use std::sync::Arc;

/// The client's view of a source.
pub(crate) struct Context {
    pub(crate) board: Arc<Board>,
}

impl Context {
    fn assigned(&self, places: Vec<TopicPartition>) {
        tracing::info!(?places, "partitions assigned");
        meters::assigned();
        self.board.assignment().assign(places);
    }

    /// The commit need not be waited for: the client sends it before it gives the partitions up,
    /// and does not rejoin the group, or leave it, until it has been answered or has timed out. Its
    /// log tells of a refusal.
    fn released(&self, consumer: &BaseConsumer<Self>, places: &[TopicPartition]) {
        let departure = if consumer.assignment_lost() {
            Departure::Lost
        } else {
            Departure::Revoked
        };
        tracing::info!(?places, %departure, "partitions gone");
        meters::released(departure);
        let commits = self.board.assignment().release(places, departure);
        for place in places {
            meters::lag(place, 0);
        }
        if let Err(error) = committer::send(consumer, &commits, CommitMode::Async) {
            self.board.trouble(
                Part::Commit,
                &format!("offsets of revoked partitions are not committed: {error}"),
            );
        }
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.assigned(places::from_list(list)),
            Rebalance::Revoke(list) => self.released(consumer, &places::from_list(list)),
            Rebalance::Error(error) => {
                self.board
                    .trouble(Part::Client, &format!("a rebalance failed: {error}"));
            }
        }
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        self.board
            .trouble(Part::Client, &format!("{error}: {reason}"));
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
