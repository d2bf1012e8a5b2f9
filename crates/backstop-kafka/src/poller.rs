//! The polling thread: does what the assignment plans, and polls, so that the group never takes
//! this member for dead while the sink works.

use crate::assignment::{Commit, Plan, Room};
use crate::board::{Board, Part};
use crate::context::Context;
use crate::deliver::deliver;
use crate::limits::{POLL_BUSY, POLL_IDLE, POLL_RECORDS_MAX};
use crate::message::Message;
use crate::places;
use crate::sink::Sink;
use bytes::Bytes;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::BorrowedMessage;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// What the thread works with.
pub(crate) struct Poller<'a> {
    pub(crate) consumer: &'a BaseConsumer<Context>,
    pub(crate) board: &'a Arc<Board>,
    pub(crate) sink: &'a Arc<dyn Sink>,
    /// Where the sink runs.
    pub(crate) runtime: &'a Handle,
    pub(crate) topics: &'a [Arc<str>],
    /// To the committer.
    pub(crate) commits: Sender<Vec<Commit>>,
}

/// What a poll came to.
enum Polled {
    Record(Room),
    Nothing,
    /// The client cannot go on.
    Fatal(String),
}

impl Poller<'_> {
    /// Works until the source stops, or until the client cannot go on; then tells why.
    pub(crate) fn work(&self) -> Result<(), String> {
        while !self.board.stopping.is_cancelled() {
            self.round()?;
        }
        Ok(())
    }

    /// Waits for what is with the sink, and for commits, until the deadline.
    pub(crate) fn finish(&self, deadline: Instant) {
        self.board.assignment().close();
        let ours = self.board.assignment().places();
        self.note(
            self.consumer
                .pause(&places::to_list(ours.iter().map(|(place, _)| place))),
        );
        while self.board.assignment().is_unsettled() && Instant::now() < deadline {
            if let Err(fatal) = self.round() {
                return self.board.trouble(Part::Client, &fatal);
            }
        }
    }

    fn round(&self) -> Result<(), String> {
        let plan = self.board.assignment().plan(Instant::now());
        self.carry_out(plan)?;
        self.receive()
    }

    fn carry_out(&self, plan: Plan) -> Result<(), String> {
        if !plan.pause.is_empty() {
            self.note(self.consumer.pause(&places::to_list(&plan.pause)));
        }
        if !plan.resume.is_empty() {
            self.note(self.consumer.resume(&places::to_list(&plan.resume)));
        }
        for batch in plan.batches {
            self.runtime.spawn(deliver(
                batch,
                Arc::clone(self.sink),
                Arc::clone(self.board),
            ));
        }
        if !plan.commits.is_empty() {
            self.commits
                .send(plan.commits)
                .map_err(|_| "the thread that commits is gone".to_owned())?;
        }
        Ok(())
    }

    /// Takes what has come, within bounds, and waits a little if nothing has.
    fn receive(&self) -> Result<(), String> {
        let mut wait = if self.board.assignment().is_busy() {
            POLL_BUSY
        } else {
            POLL_IDLE
        };
        for _ in 0..POLL_RECORDS_MAX {
            match self.poll(wait) {
                Polled::Record(Room::Left) => wait = Duration::ZERO,
                Polled::Record(Room::None) | Polled::Nothing => break,
                Polled::Fatal(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn poll(&self, wait: Duration) -> Polled {
        match self.consumer.poll(wait) {
            Some(Ok(record)) => {
                let message = self.message(&record);
                Polled::Record(self.board.assignment().arrive(message, Instant::now()))
            }
            Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => {
                Polled::Fatal(error.to_string())
            }
            // The context has noted it; the client tries again by itself.
            Some(Err(_)) | None => Polled::Nothing,
        }
    }

    fn message(&self, record: &BorrowedMessage<'_>) -> Message {
        let known = self.topics.iter().find(|topic| &***topic == record.topic());
        Message {
            topic: known.map_or_else(|| record.topic().into(), Arc::clone),
            partition: record.partition(),
            offset: record.offset(),
            key: record.key().map(Bytes::copy_from_slice),
            payload: record.payload().map(Bytes::copy_from_slice),
            timestamp_ms: record.timestamp().to_millis(),
        }
    }

    fn note(&self, result: KafkaResult<()>) {
        if let Err(error) = result {
            self.board.trouble(Part::Client, &error.to_string());
        }
    }
}
