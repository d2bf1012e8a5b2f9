//! A consumer group of Kafka as a source of records.
//!
//! Records go to a [`Sink`] in batches, partitions in parallel. What the sink has taken in is
//! committed, and nothing else: a crash, a rebalance or an outage may bring a record twice, never
//! lose one. How many come twice is bounded by [`Settings::partition_uncommitted_max`], for each
//! partition and each time it changes hands without a farewell.
//!
//! Knows Kafka and the sink's answer. Does not know what a record says, and keeps nothing of its
//! own: the group's committed offsets are all there is to remember.
//!
//! ```no_run
//! use async_trait::async_trait;
//! use backstop_kafka::{Message, Settings, Sink, SinkError, Source};
//! use std::sync::Arc;
//!
//! struct Print;
//!
//! #[async_trait]
//! impl Sink for Print {
//!     async fn take_in(&self, batch: Vec<Message>) -> Result<(), SinkError> {
//!         println!("{} records of partition {}", batch.len(), batch[0].partition);
//!         Ok(())
//!     }
//! }
//!
//! # async fn example() -> Result<(), backstop_kafka::StartError> {
//! let mut settings = Settings::new("localhost:9092", ["orders"], "billing");
//! settings.properties.set("security.protocol", "sasl_plaintext");
//! let source = Source::start(&settings, Arc::new(Print))?;
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
mod board;
mod client;
mod committer;
mod context;
mod deliver;
mod flow;
mod life;
mod limits;
mod message;
mod meters;
mod partition;
mod places;
mod poller;
mod prefix;
mod settings;
mod sink;
mod source;
mod status;
mod stream;
mod survey;

pub use flow::Flow;
pub use message::{Message, TopicPartition};
pub use settings::{Properties, Settings, SettingsError, Start};
pub use sink::{Sink, SinkError};
pub use source::{Running, Source, StartError};
pub use status::{PartitionStatus, Phase, Status, Stopped, Trouble};
pub use stream::StreamSink;
