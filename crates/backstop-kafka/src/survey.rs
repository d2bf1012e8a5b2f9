//! How far the group is behind, as the brokers see it.
//!
//! They are asked, on a thread of its own: the client's idea of a high watermark stands still while
//! a partition is paused, which is when the lag matters most.

use crate::board::{Board, Part};
use crate::context::Context;
use crate::limits::LAG_ANSWER_MAX;
use crate::message::TopicPartition;
use crate::meters;
use crate::places;
use crate::settings::Start;
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// What the brokers say of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) high: i64,
    pub(crate) committed: Option<i64>,
    pub(crate) lag: u64,
}

/// Measures the lag again and again.
pub(crate) struct Surveyor<'a> {
    pub(crate) consumer: &'a BaseConsumer<Context>,
    pub(crate) board: &'a Board,
    pub(crate) every: Duration,
    pub(crate) start: Start,
}

type Offsets = BTreeMap<TopicPartition, i64>;

impl Surveyor<'_> {
    /// Goes on until the other end of `stop` is dropped.
    pub(crate) fn run(&self, stop: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(self.every) {
            if let Err(error) = self.round() {
                self.board.trouble(
                    Part::Survey,
                    &format!("the lag cannot be measured: {error}"),
                );
            }
        }
    }

    fn round(&self) -> KafkaResult<()> {
        let ours = self.board.assignment().places();
        if ours.is_empty() {
            return Ok(());
        }
        let places = || ours.iter().map(|(place, _)| place);
        let list = self
            .consumer
            .committed_offsets(places::to_list(places()), LAG_ANSWER_MAX)?;
        let committed: Offsets = places::offsets(&list);
        let high = self.ask(places(), Offset::End)?;
        let low = self.ask(
            places().filter(|place| !committed.contains_key(place)),
            Offset::Beginning,
        )?;
        for (place, generation) in &ours {
            let Some(high) = high.get(place).copied() else {
                continue;
            };
            let committed = committed.get(place).copied();
            let lag = lag(high, low.get(place).copied(), committed, self.start);
            let seen = Seen {
                high,
                committed,
                lag,
            };
            // Noted and shown under one lock: a partition that goes meanwhile must not leave its
            // lag standing.
            let mut assignment = self.board.assignment();
            if assignment.surveyed(place, *generation, seen) {
                meters::lag(place, lag);
            }
        }
        Ok(())
    }

    /// One request to each broker, however many partitions there are.
    fn ask<'a>(
        &self,
        places: impl Iterator<Item = &'a TopicPartition>,
        offset: Offset,
    ) -> KafkaResult<Offsets> {
        let list = places::to_list_at(places.map(|place| (place, offset)))?;
        if list.count() == 0 {
            return Ok(Offsets::new());
        }
        Ok(places::offsets(
            &self.consumer.offsets_for_times(list, LAG_ANSWER_MAX)?,
        ))
    }
}

/// The high watermark less what is committed. Where nothing is, the group begins where the settings
/// say.
fn lag(high: i64, low: Option<i64>, committed: Option<i64>, start: Start) -> u64 {
    let begins = match start {
        Start::Earliest => low.unwrap_or(0),
        Start::Latest => high,
    };
    u64::try_from(high - committed.unwrap_or(begins)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
