//! A Kafka record as the sink gets it.

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// The approximate memory of a record besides its key and payload.
const OVERHEAD_BYTES: usize = 200;

/// A partition of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    /// The number of the partition.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// A record. Topic, partition and offset identify it: the same three always mean the same record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaMessage {
    pub topic: Arc<str>,
    /// The partition of the topic.
    pub partition: i32,
    /// The offset in the partition. Offsets grow, with gaps.
    pub offset: i64,
    /// The record's key, if it has one.
    pub key: Option<Bytes>,
    /// The record's value; `None` in a tombstone.
    pub payload: Option<Bytes>,
    /// Milliseconds since 1970, set by the producer or the broker.
    pub timestamp_ms: Option<i64>,
}

impl KafkaMessage {
    /// The partition that the record belongs to.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition {
            topic: Arc::clone(&self.topic),
            partition: self.partition,
        }
    }

    /// The weight of the record in bounds of bytes.
    pub(crate) fn weight(&self) -> usize {
        let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        OVERHEAD_BYTES + length(&self.key) + length(&self.payload)
    }
}
