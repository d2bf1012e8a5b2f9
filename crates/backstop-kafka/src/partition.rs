//! One partition in one assignment: the records that wait, the batches in the sink, and the
//! accepted prefix.
//!
//! Decides when a batch is cut and whether records are fetched. It knows nothing of other
//! partitions.

use crate::flow::{self, KafkaBounds, KafkaFlow, KafkaLoad};
use crate::lag_monitor::PartitionOffsets;
use crate::message::KafkaMessage;
use crate::prefix::{AcceptedPrefix, BatchNumber};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Distinguishes one assignment of a partition from all others. A batch of one assignment never
/// counts in another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AssignmentGeneration(pub(crate) u64);

/// The rules for cutting batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchCutting {
    pub(crate) records_max: usize,
    pub(crate) bytes_max: usize,
    /// How long a record waits for others to fill its batch.
    pub(crate) wait: Duration,
    /// The most batches of a partition in the sink at once.
    pub(crate) batches_max: usize,
    /// The most records of a partition that were handed to the sink and are not committed.
    pub(crate) uncommitted_max: usize,
}

/// A batch that was cut for the sink.
pub(crate) struct CutBatch {
    pub(crate) number: BatchNumber,
    pub(crate) messages: Vec<KafkaMessage>,
    pub(crate) bytes: usize,
}

/// A partition that is assigned to us.
pub(crate) struct KafkaPartition {
    pub(crate) generation: AssignmentGeneration,
    pub(crate) prefix: AcceptedPrefix,
    /// The offsets that the brokers reported last.
    pub(crate) offsets: Option<PartitionOffsets>,
    waiting: VecDeque<BufferedMessage>,
    in_flight: BTreeSet<BatchNumber>,
    failing: BTreeSet<BatchNumber>,
    client_flow: ClientFlow,
}

struct BufferedMessage {
    since: Instant,
    message: KafkaMessage,
}

/// The flow that the client was last set to for this partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientFlow {
    /// Not set in this assignment. The client may still apply a pause of an earlier assignment.
    Unset,
    Set(KafkaFlow),
}

/// The change of flow to request from the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowChange {
    Pause,
    Resume,
}

impl KafkaPartition {
    pub(crate) fn new(generation: AssignmentGeneration) -> Self {
        Self {
            generation,
            prefix: AcceptedPrefix::default(),
            offsets: None,
            waiting: VecDeque::new(),
            in_flight: BTreeSet::new(),
            failing: BTreeSet::new(),
            client_flow: ClientFlow::Unset,
        }
    }

    pub(crate) fn arrive(&mut self, message: KafkaMessage, now: Instant) {
        self.waiting.push_back(BufferedMessage {
            since: now,
            message,
        });
    }

    /// Cuts the next batch, if one is due and the sink has room.
    pub(crate) fn cut(&mut self, cutting: &BatchCutting, now: Instant) -> Option<CutBatch> {
        let count = self.next_batch_len(cutting);
        let has_room = self.failing.is_empty()
            && self.in_flight.len() < cutting.batches_max
            && self.prefix.records() + count <= cutting.uncommitted_max;
        if !has_room || !self.is_ripe(count, cutting, now) {
            return None;
        }
        let messages: Vec<KafkaMessage> = self
            .waiting
            .drain(..count)
            .map(|waiting| waiting.message)
            .collect();
        let end = messages.last()?.offset + 1;
        let number = self.prefix.push(end, messages.len());
        self.in_flight.insert(number);
        let bytes = messages.iter().map(KafkaMessage::weight).sum();
        Some(CutBatch {
            number,
            messages,
            bytes,
        })
    }

    /// Marks that a try of a batch has failed.
    pub(crate) fn mark_failed(&mut self, number: BatchNumber) {
        self.failing.insert(number);
    }

    /// Marks that a batch is no longer in the sink.
    pub(crate) fn mark_returned(&mut self, number: BatchNumber) {
        self.in_flight.remove(&number);
        self.failing.remove(&number);
    }

    /// The change to request from the client; `None` if its flow is already right.
    pub(crate) fn change_flow(
        &mut self,
        records: usize,
        bytes: usize,
        bounds: &KafkaBounds,
    ) -> Option<FlowChange> {
        let load = KafkaLoad {
            failing: self.failing.len(),
            partition_waiting: self.records_waiting(),
            records,
            bytes,
        };
        let flow = flow::decide(self.flow(), &load, bounds);
        let change = match (self.client_flow, flow) {
            (
                ClientFlow::Unset | ClientFlow::Set(KafkaFlow::Full | KafkaFlow::Failing),
                KafkaFlow::Flowing,
            ) => Some(FlowChange::Resume),
            (
                ClientFlow::Unset | ClientFlow::Set(KafkaFlow::Flowing),
                KafkaFlow::Full | KafkaFlow::Failing,
            ) => Some(FlowChange::Pause),
            (ClientFlow::Set(_), _) => None,
        };
        self.client_flow = ClientFlow::Set(flow);
        change
    }

    pub(crate) fn flow(&self) -> KafkaFlow {
        match self.client_flow {
            ClientFlow::Unset => KafkaFlow::Flowing,
            ClientFlow::Set(flow) => flow,
        }
    }

    /// Records that have arrived and are not committed.
    pub(crate) fn records(&self) -> usize {
        self.records_waiting() + self.prefix.records()
    }

    /// Those of [`KafkaPartition::records`] that were not handed to the sink.
    pub(crate) fn records_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Drops the records that were not handed to the sink; returns how many bytes they had.
    pub(crate) fn drop_waiting(&mut self) -> usize {
        self.waiting
            .drain(..)
            .map(|waiting| waiting.message.weight())
            .sum()
    }

    /// Whether the batch is full, has waited long enough, or cannot grow for now.
    fn is_ripe(&self, count: usize, cutting: &BatchCutting, now: Instant) -> bool {
        let Some(first) = self.waiting.front() else {
            return false;
        };
        count == cutting.records_max
            || count < self.waiting.len()
            || now.saturating_duration_since(first.since) >= cutting.wait
            || self.flow() != KafkaFlow::Flowing
    }

    /// How many waiting records make up the next batch: at least one, however large it is.
    fn next_batch_len(&self, cutting: &BatchCutting) -> usize {
        let weights = self.waiting.iter().map(|waiting| waiting.message.weight());
        let sums = weights.scan(0_usize, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        let within = sums
            .take(cutting.records_max)
            .take_while(|sum| *sum <= cutting.bytes_max)
            .count();
        within.max(1).min(self.waiting.len())
    }
}

#[cfg(test)]
mod tests;
