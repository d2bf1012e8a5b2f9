//! How far the group is behind, as the brokers see it.
//!
//! A thread of its own asks the brokers. The client's own high watermark stands still while a
//! partition is paused, and that is when the lag matters most.

use crate::consumer_state::{ConsumerPart, ConsumerState};
use crate::context::RebalanceHandler;
use crate::limits::LAG_ANSWER_MAX;
use crate::message::TopicPartition;
use crate::meters;
use crate::settings::StartOffset;
use crate::topic_partitions;
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The offsets that the brokers report for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartitionOffsets {
    pub(crate) high: i64,
    pub(crate) committed: Option<i64>,
    pub(crate) lag: u64,
}

/// Measures the lag at a fixed interval.
pub(crate) struct LagMonitor<'a> {
    pub(crate) consumer: &'a BaseConsumer<RebalanceHandler>,
    pub(crate) state: &'a ConsumerState,
    pub(crate) every: Duration,
    pub(crate) start: StartOffset,
}

type OffsetMap = BTreeMap<TopicPartition, i64>;

impl LagMonitor<'_> {
    /// Runs until the sender of `stop` is dropped.
    pub(crate) fn run(&self, stop: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(self.every) {
            if let Err(error) = self.round() {
                self.state.record_failure(
                    ConsumerPart::Survey,
                    &format!("the lag cannot be measured: {error}"),
                );
            }
        }
    }

    fn round(&self) -> KafkaResult<()> {
        let ours = self.state.assignment().places();
        if ours.is_empty() {
            return Ok(());
        }
        let places = || ours.iter().map(|(place, _)| place);
        let list = self
            .consumer
            .committed_offsets(topic_partitions::to_list(places()), LAG_ANSWER_MAX)?;
        let committed: OffsetMap = topic_partitions::offsets(&list);
        let high = self.fetch_offsets(places(), Offset::End)?;
        let low = self.fetch_offsets(
            places().filter(|place| !committed.contains_key(place)),
            Offset::Beginning,
        )?;
        for (place, generation) in &ours {
            let Some(high) = high.get(place).copied() else {
                continue;
            };
            let committed = committed.get(place).copied();
            let lag = lag(high, low.get(place).copied(), committed, self.start);
            let offsets = PartitionOffsets {
                high,
                committed,
                lag,
            };
            // Stored and published under one lock: if the partition is taken away meanwhile, its
            // lag must not remain in the metrics.
            let mut assignment = self.state.assignment();
            if assignment.set_offsets(place, *generation, offsets) {
                meters::record_lag(place, lag);
            }
        }
        Ok(())
    }

    /// Sends one request to each broker, however many partitions there are.
    fn fetch_offsets<'a>(
        &self,
        places: impl Iterator<Item = &'a TopicPartition>,
        offset: Offset,
    ) -> KafkaResult<OffsetMap> {
        let list = topic_partitions::to_list_at(places.map(|place| (place, offset)))?;
        if list.count() == 0 {
            return Ok(OffsetMap::new());
        }
        Ok(topic_partitions::offsets(
            &self.consumer.offsets_for_times(list, LAG_ANSWER_MAX)?,
        ))
    }
}

/// The high watermark less the committed offset. Without a committed offset, the group starts where
/// the settings say.
fn lag(high: i64, low: Option<i64>, committed: Option<i64>, start: StartOffset) -> u64 {
    let begins = match start {
        StartOffset::Earliest => low.unwrap_or(0),
        StartOffset::Latest => high,
    };
    u64::try_from(high - committed.unwrap_or(begins)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
