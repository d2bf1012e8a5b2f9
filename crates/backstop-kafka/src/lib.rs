//! A Kafka consumer group as a source of records.
//!
//! Records go to a [`MessageSink`] in batches, partitions in parallel. Only records that the sink
//! has accepted are committed: a crash, a rebalance or an outage may deliver a record twice, but
//! never loses one. [`KafkaSettings::partition_uncommitted_max`] bounds how many records come
//! twice, for each partition and each time it changes its owner without a clean hand-over.
//!
//! This crate knows Kafka and the sink's answer. It does not know what a record means, and it
//! stores nothing itself: the committed offsets of the group are its only state.
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
//! strategy (the property `partition.assignment.strategy` chooses another). When a partition is
//! revoked, its accepted records up to the first gap are committed. Batches that the sink still
//! works on no longer count, and come again to the next owner. So a sink must recognise a record it
//! has seen: topic, partition and offset identify it.
//!
//! ## Back-pressure
//!
//! A partition is paused if too many of its records wait, or if the sink refuses its batch. Polling
//! continues, so the group never mistakes a busy member for a dead one. Records that were handed to
//! the sink count until their commit is acknowledged.
//!
//! ## Metrics
//!
//! | name | kind | labels | counts |
//! |---|---|---|---|
//! | `backstop_kafka_lag` | gauge | `topic`, `partition` | high watermark less committed offset, of assigned partitions; 0 once a partition is gone |
//! | `backstop_kafka_records_total` | counter | `topic` | records that the sink accepted |
//! | `backstop_kafka_batches_total` | counter | `topic` | batches that the sink accepted |
//! | `backstop_kafka_commits_total` | counter | `topic` | committed offsets that were acknowledged |
//! | `backstop_kafka_rebalances_total` | counter | `change` | partitions `assigned`, `revoked` or `lost` |
//! | `backstop_kafka_failures_total` | counter | `part` | failures of `sink`, `commit`, `client`, `survey` |
//!
//! ## TLS
//!
//! Properties of TLS and SASL are passed to the client unchanged. TLS and SCRAM need OpenSSL: the
//! client is built with it if the program depends on `rdkafka` with the feature `ssl`. SASL/PLAIN
//! does not need it.

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
