//! When a partition is paused, and when it goes on.
//!
//! | was | in hand | becomes |
//! |---|---|---|
//! | any | a batch that the sink refuses | failing |
//! | flowing | less than every bound | flowing |
//! | flowing | as much as a bound | full |
//! | full, failing | half of a bound or more | full |
//! | full, failing | less than half of every bound | flowing |
//!
//! A pause throws away what the client has fetched ahead, and fetching begins again only after up
//! to a second. So a partition that is paused stays so until there is room worth fetching for, and
//! goes on while there is something left to hand out.

/// Whether records of a partition are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KafkaFlow {
    Flowing,
    /// Not until some of those that have arrived are on their way.
    Full,
    /// Not until the sink has taken in the batch it refuses.
    Failing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KafkaLoad {
    /// Batches of the partition whose last try failed.
    pub(crate) failing: usize,
    /// Records of the partition that were not given out.
    pub(crate) partition_waiting: usize,
    /// Records of all partitions that are not committed.
    pub(crate) records: usize,
    /// Bytes of all records that have not been taken in.
    pub(crate) bytes: usize,
}

/// What may be in hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KafkaBounds {
    pub(crate) partition_waiting: usize,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// What becomes of a partition.
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
