//! The sink that receives the records.

use crate::message::KafkaMessage;
use async_trait::async_trait;
use std::fmt;

/// Accepts records. A batch for which it returned `Ok` is committed, and never delivered again by
/// this consumer.
#[async_trait]
pub trait MessageSink: Send + Sync + 'static {
    /// Accepts records of one partition, in the order of the partition. `Ok` means that every one
    /// of them is durably stored or handled. An error means that the same batch comes again, after
    /// a backoff, for as long as the partition is assigned to us; until then no further batch of
    /// the partition is handed out.
    ///
    /// If a record is invalid, the sink should put it aside itself; an error would block its
    /// partition.
    ///
    /// Records may come more than once: after an error, and after a partition has changed its
    /// owner. A call is cancelled only when the deadline of a stop has passed.
    async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError>;
}

/// Why a batch was not accepted. It will be tried again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MessageSinkError(String);

impl MessageSinkError {
    /// An error with this reason.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}
