//! A consumer group of Kafka as a source of records.
//!
//! Records go to a [`MessageSink`] in batches, partitions in parallel. What the sink has taken in is
//! committed, and nothing else: a crash, a rebalance or an outage may bring a record twice, never
//! lose one. How many come twice is bounded by [`KafkaSettings::partition_uncommitted_max`], for each
//! partition and each time it changes hands without a farewell.
//!
//! Knows Kafka and the sink's answer. Does not know what a record says, and keeps nothing of its
//! own: the group's committed offsets are all there is to remember.
//!
//! ```no_run
//! use async_trait::async_trait;
//! use backstop_kafka::{KafkaMessage, KafkaSettings, MessageSink, MessageSinkError, KafkaConsumer};
//! use std::sync::Arc;
//!
//! struct Print;
//!
//! #[async_trait]
//! impl MessageSink for Print {
//!     async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError> {
//!         println!("{} records of partition {}", batch.len(), batch[0].partition);
//!         Ok(())
//!     }
//! }
//!
//! # async fn example() -> Result<(), backstop_kafka::ConsumerStartError> {
//! let mut settings = KafkaSettings::new("localhost:9092", ["orders"], "billing");
//! settings.properties.set("security.protocol", "sasl_plaintext");
//! let source = KafkaConsumer::start(&settings, Arc::new(Print))?;
//! // … until it is time to go:
//! let left_behind = source.stop().await;
//! assert_eq!(left_behind.unfinished, 0);
//! # Ok(())
//! # }
//! ```
//!
//! ## Rebalances
//!
//! Members share partitions by the classic protocol, by default with the cooperative-sticky
//! strategy (the property `partition.assignment.strategy` chooses another). A partition that is
//! revoked is committed as far as it has been taken in without a gap; what is still with the sink
//! no longer counts, and comes again to the next owner. So a sink must recognise a record it has
//! seen: topic, partition and offset name it.
//!
//! ## Back-pressure
//!
//! A partition of which too much waits, or whose batch the sink refuses, is paused; polling goes
//! on, so the group never mistakes a busy member for a dead one. What was given to the sink counts
//! until its commit is acknowledged.
//!
//! ## Metrics
//!
//! | name | kind | labels | counts |
//! |---|---|---|---|
//! | `backstop_kafka_lag` | gauge | `topic`, `partition` | high watermark less committed offset, of assigned partitions; 0 once a partition is gone |
//! | `backstop_kafka_records_total` | counter | `topic` | records taken in |
//! | `backstop_kafka_batches_total` | counter | `topic` | batches taken in |
//! | `backstop_kafka_commits_total` | counter | `topic` | committed offsets that were acknowledged |
//! | `backstop_kafka_rebalances_total` | counter | `change` | partitions `assigned`, `revoked` or `lost` |
//! | `backstop_kafka_failures_total` | counter | `part` | failures of `sink`, `commit`, `client`, `survey` |
//!
//! ## TLS
//!
//! Properties of TLS and SASL are passed on as they are. TLS and SCRAM need OpenSSL, which the
//! client is built with if the program depends on `rdkafka` with the feature `ssl`; SASL/PLAIN does
//! not.

mod assignment;
mod backoff;
mod client;
mod committer;
mod consumer_state;
mod consumer_thread;
mod context;
mod deliver;
mod flow;
mod lag_monitor;
mod limits;
mod message;
mod meters;
mod partition;
mod poller;
mod prefix;
mod settings;
mod sink;
mod source;
mod status;
mod stream;
mod topic_partitions;

pub use flow::KafkaFlow;
pub use message::{KafkaMessage, TopicPartition};
pub use settings::{KafkaProperties, KafkaSettings, KafkaSettingsError, StartOffset};
pub use sink::{MessageSink, MessageSinkError};
pub use source::{ConsumerStartError, KafkaConsumer, RunningConsumer};
pub use status::{
    ConsumerFailure, ConsumerPhase, ConsumerStatus, ConsumerStopReport, PartitionStatus,
};
pub use stream::StreamSink;
