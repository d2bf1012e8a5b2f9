//! Where records go.

use crate::message::KafkaMessage;
use async_trait::async_trait;
use std::fmt;

/// Takes records in. What it has answered `Ok` for is committed and, from then on, nobody else's
/// business.
#[async_trait]
pub trait MessageSink: Send + Sync + 'static {
    /// Takes in records of one partition, in the order of the partition. `Ok` means that every one
    /// of them is durably held or handled. An error means that the same batch comes again, after a
    /// wait, for as long as the partition is ours; meanwhile nothing further of the partition is
    /// handed out.
    ///
    /// A record that makes no sense is for the sink to put aside; answering with an error holds up
    /// its partition.
    ///
    /// Records may come more than once: after an error, and after a partition has changed hands. A
    /// call is dropped only when the deadline of a stop has passed.
    async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError>;
}

/// Why a batch was not taken in. It will be tried again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MessageSinkError(String);

impl MessageSinkError {
    /// An error that says why.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}
