//! A record as the sink sees it.

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// About what a record takes up beside its key and payload.
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

/// A record. Topic, partition and offset name it: whoever sees the same three again sees the same
/// record again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaMessage {
    pub topic: Arc<str>,
    /// The partition of the topic.
    pub partition: i32,
    /// Its place in the partition. Offsets grow, with gaps.
    pub offset: i64,
    /// Its key, if it has one.
    pub key: Option<Bytes>,
    /// What it says; nothing in a tombstone.
    pub payload: Option<Bytes>,
    /// Milliseconds since 1970, set by the producer or the broker.
    pub timestamp_ms: Option<i64>,
}

impl KafkaMessage {
    /// The partition it belongs to.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition {
            topic: Arc::clone(&self.topic),
            partition: self.partition,
        }
    }

    /// What it counts for in bounds of bytes.
    pub(crate) fn weight(&self) -> usize {
        let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        OVERHEAD_BYTES + length(&self.key) + length(&self.payload)
    }
}
