//! One partition in one assignment: what has arrived, what is with the sink, how far it may be
//! committed.
//!
//! Decides when a batch is cut and whether records flow. Knows nothing of other partitions.

use crate::flow::{self, Bounds, Flow, Load};
use crate::message::Message;
use crate::prefix::{Number, Prefix};
use crate::survey::Seen;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Tells one assignment of a partition from all others. What was given out in one never counts in
/// another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Generation(pub(crate) u64);

/// When a batch is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutting {
    pub(crate) records_max: usize,
    pub(crate) bytes_max: usize,
    /// How long a record waits for company.
    pub(crate) wait: Duration,
    /// Batches of a partition that may be with the sink at once.
    pub(crate) batches_max: usize,
    /// Records of a partition that may have been given out and not be committed.
    pub(crate) uncommitted_max: usize,
}

/// Records cut off to be given to the sink.
pub(crate) struct Cut {
    pub(crate) number: Number,
    pub(crate) messages: Vec<Message>,
    pub(crate) bytes: usize,
}

/// A partition that is ours.
pub(crate) struct Partition {
    pub(crate) generation: Generation,
    pub(crate) prefix: Prefix,
    /// What the brokers said last.
    pub(crate) seen: Option<Seen>,
    waiting: VecDeque<Waiting>,
    out: BTreeSet<Number>,
    failing: BTreeSet<Number>,
    told: Told,
}

struct Waiting {
    since: Instant,
    message: Message,
}

/// What the client was told about the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// Nothing in this assignment. The client may still hold to a pause of an earlier one.
    Nothing,
    This(Flow),
}

/// What to tell the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Pause,
    Resume,
}

impl Partition {
    pub(crate) fn new(generation: Generation) -> Self {
        Self {
            generation,
            prefix: Prefix::default(),
            seen: None,
            waiting: VecDeque::new(),
            out: BTreeSet::new(),
            failing: BTreeSet::new(),
            told: Told::Nothing,
        }
    }

    pub(crate) fn arrive(&mut self, message: Message, now: Instant) {
        self.waiting.push_back(Waiting {
            since: now,
            message,
        });
    }

    /// The next batch, if it is time for one and the sink has room.
    pub(crate) fn cut(&mut self, cutting: &Cutting, now: Instant) -> Option<Cut> {
        let count = self.fitting(cutting);
        let has_room = self.failing.is_empty()
            && self.out.len() < cutting.batches_max
            && self.prefix.records() + count <= cutting.uncommitted_max;
        if !has_room || !self.is_ripe(count, cutting, now) {
            return None;
        }
        let messages: Vec<Message> = self
            .waiting
            .drain(..count)
            .map(|waiting| waiting.message)
            .collect();
        let end = messages.last()?.offset + 1;
        let number = self.prefix.give(end, messages.len());
        self.out.insert(number);
        let bytes = messages.iter().map(Message::weight).sum();
        Some(Cut {
            number,
            messages,
            bytes,
        })
    }

    /// Notes that a try of a batch has failed.
    pub(crate) fn failed(&mut self, number: Number) {
        self.failing.insert(number);
    }

    /// Notes that a batch is no longer with the sink.
    pub(crate) fn returned(&mut self, number: Number) {
        self.out.remove(&number);
        self.failing.remove(&number);
    }

    /// What to tell the client, if it is something else than last time.
    pub(crate) fn turn(&mut self, records: usize, bytes: usize, bounds: &Bounds) -> Option<Turn> {
        let load = Load {
            failing: self.failing.len(),
            partition_waiting: self.records_waiting(),
            records,
            bytes,
        };
        let flow = flow::decide(self.flow(), &load, bounds);
        let turn = match (self.told, flow) {
            (Told::Nothing | Told::This(Flow::Full | Flow::Failing), Flow::Flowing) => {
                Some(Turn::Resume)
            }
            (Told::Nothing | Told::This(Flow::Flowing), Flow::Full | Flow::Failing) => {
                Some(Turn::Pause)
            }
            (Told::This(_), _) => None,
        };
        self.told = Told::This(flow);
        turn
    }

    pub(crate) fn flow(&self) -> Flow {
        match self.told {
            Told::Nothing => Flow::Flowing,
            Told::This(flow) => flow,
        }
    }

    /// Records that have arrived and are not committed.
    pub(crate) fn records(&self) -> usize {
        self.records_waiting() + self.prefix.records()
    }

    /// Of those, the ones that were not given out.
    pub(crate) fn records_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Drops what was not given out; tells how many bytes that were.
    pub(crate) fn drop_waiting(&mut self) -> usize {
        self.waiting
            .drain(..)
            .map(|waiting| waiting.message.weight())
            .sum()
    }

    /// Full, waited long enough, or nothing more will come for now.
    fn is_ripe(&self, count: usize, cutting: &Cutting, now: Instant) -> bool {
        let Some(first) = self.waiting.front() else {
            return false;
        };
        count == cutting.records_max
            || count < self.waiting.len()
            || now.saturating_duration_since(first.since) >= cutting.wait
            || self.flow() != Flow::Flowing
    }

    /// How many of those that wait make one batch: at least one, however large it is.
    fn fitting(&self, cutting: &Cutting) -> usize {
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
