//! When a partition is paused, and when it is resumed.
//!
//! | was | load | becomes |
//! |---|---|---|
//! | any | a batch that the sink refuses | failing |
//! | flowing | less than every bound | flowing |
//! | flowing | as much as a bound | full |
//! | full, failing | half of a bound or more | full |
//! | full, failing | less than half of every bound | flowing |
//!
//! A pause discards the records that the client has prefetched, and fetching resumes only after up
//! to a second. So a paused partition stays paused until there is enough room to make fetching
//! worthwhile, and it resumes while there are still records left to hand out.

/// Whether records of a partition are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KafkaFlow {
    Flowing,
    /// Paused until some of the records that have arrived are handed out or committed.
    Full,
    /// Paused until the sink accepts the batch that it refuses.
    Failing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KafkaLoad {
    /// Batches of the partition whose last try failed.
    pub(crate) failing: usize,
    /// Records of the partition that were not handed to the sink.
    pub(crate) partition_waiting: usize,
    /// Records of all partitions that are not committed.
    pub(crate) records: usize,
    /// Bytes of all records that the sink has not accepted.
    pub(crate) bytes: usize,
}

/// The bounds on records and bytes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KafkaBounds {
    pub(crate) partition_waiting: usize,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// The next flow of a partition.
pub(crate) fn decide(was: KafkaFlow, load: &KafkaLoad, bounds: &KafkaBounds) -> KafkaFlow {
    let over = |share: usize| {
        load.partition_waiting >= bounds.partition_waiting.div_ceil(share)
            || load.records >= bounds.records.div_ceil(share)
            || load.bytes >= bounds.bytes.div_ceil(share)
    };
    match was {
        _ if load.failing > 0 => KafkaFlow::Failing,
        KafkaFlow::Flowing if over(1) => KafkaFlow::Full,
        KafkaFlow::Full | KafkaFlow::Failing if over(2) => KafkaFlow::Full,
        KafkaFlow::Flowing | KafkaFlow::Full | KafkaFlow::Failing => KafkaFlow::Flowing,
    }
}

#[cfg(test)]
mod tests;
