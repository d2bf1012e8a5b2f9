//! What a source says of itself.

use crate::flow::KafkaFlow;
use crate::message::TopicPartition;
use std::time::SystemTime;

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerStatus {
    pub phase: ConsumerPhase,
    /// The partitions that are assigned to it.
    pub partitions: Vec<PartitionStatus>,
    /// What went wrong last, if anything ever did. It may be over.
    pub last_failure: Option<ConsumerFailure>,
}

/// Where in its life a source is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConsumerPhase {
    /// It takes records, or waits for some.
    Running,
    /// It finishes what is under way.
    Stopping,
    /// It has left the group.
    Stopped,
    /// It has left the group because it could not go on. Start another when the cause is gone.
    Failed(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionStatus {
    pub place: TopicPartition,
    /// Whether its records are fetched.
    pub flow: KafkaFlow,
    /// Records that have arrived and were not given to the sink.
    pub records_waiting: usize,
    /// Records that were given to the sink and are not committed. After a crash these come again.
    pub records_uncommitted: usize,
    /// The offset after its last record, when the lag was last measured.
    pub high_watermark: Option<i64>,
    /// The offset up to which the group had committed then; nothing if it never has.
    pub committed: Option<i64>,
    /// The high watermark less what is committed; nothing before the first measurement.
    pub lag: Option<u64>,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerFailure {
    pub at: SystemTime,
    pub what: String,
}

/// What a stop left behind. Both are none unless the deadline passed or the brokers did not answer;
/// what is left behind comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerStopReport {
    /// Records that were with the sink and had not been taken in.
    pub unfinished: usize,
    /// Records that were taken in and could not be committed, because of an unfinished one before
    /// them or because no broker acknowledged it.
    pub uncommitted: usize,
}
