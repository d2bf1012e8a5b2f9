//! The status of a consumer.

use crate::flow::KafkaFlow;
use crate::message::TopicPartition;
use std::time::SystemTime;

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerStatus {
    pub phase: ConsumerPhase,
    /// The partitions that are assigned to it.
    pub partitions: Vec<PartitionStatus>,
    /// The last failure, if there was one. Its cause may be gone by now.
    pub last_failure: Option<ConsumerFailure>,
}

/// The phase in the life of a consumer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConsumerPhase {
    /// It receives records, or waits for some.
    Running,
    /// It finishes batches and commits under way.
    Stopping,
    /// It has left the group.
    Stopped,
    /// It has left the group because it could not continue. Start another one when the cause is
    /// gone.
    Failed(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionStatus {
    pub place: TopicPartition,
    /// Whether its records are fetched.
    pub flow: KafkaFlow,
    /// Records that have arrived and were not handed to the sink.
    pub records_waiting: usize,
    /// Records that were handed to the sink and are not committed. After a crash these come again.
    pub records_uncommitted: usize,
    /// The offset after its last record, when the lag was last measured.
    pub high_watermark: Option<i64>,
    /// The offset that the group had committed then; `None` if it never has.
    pub committed: Option<i64>,
    /// The high watermark less the committed offset; `None` before the first measurement.
    pub lag: Option<u64>,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerFailure {
    pub at: SystemTime,
    pub what: String,
}

/// What a stop left behind. Both counts are 0 unless the deadline passed or the brokers did not
/// answer. The records that they count come again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerStopReport {
    /// Records in the sink that were not accepted.
    pub unfinished: usize,
    /// Records that were accepted and could not be committed, because an unfinished one precedes
    /// them or no broker acknowledged the commit.
    pub uncommitted: usize,
}
