//! The polling thread. It carries out the plan of the assignment, and polls, so that the group
//! never takes this member for dead while the sink works.

use crate::assignment::{BufferRoom, OffsetCommit, PollPlan};
use crate::consumer_state::{ConsumerPart, ConsumerState};
use crate::context::RebalanceHandler;
use crate::deliver::deliver;
use crate::limits::{POLL_BUSY, POLL_IDLE, POLL_RECORDS_MAX};
use crate::message::KafkaMessage;
use crate::sink::MessageSink;
use crate::topic_partitions;
use bytes::Bytes;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::BorrowedMessage;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The context of the polling thread.
pub(crate) struct ConsumerPoller<'a> {
    pub(crate) consumer: &'a BaseConsumer<RebalanceHandler>,
    pub(crate) state: &'a Arc<ConsumerState>,
    pub(crate) sink: &'a Arc<dyn MessageSink>,
    pub(crate) runtime: &'a Handle,
    pub(crate) topics: &'a [Arc<str>],
    pub(crate) commits: Sender<Vec<OffsetCommit>>,
}

/// The result of one poll.
enum KafkaPollResult {
    Record(BufferRoom),
    Nothing,
    /// The client failed and cannot continue.
    Fatal(String),
}

impl ConsumerPoller<'_> {
    /// Runs until the consumer stops, or until the client cannot continue; then returns why.
    pub(crate) fn work(&self) -> Result<(), String> {
        while !self.state.stopping.is_cancelled() {
            self.round()?;
        }
        Ok(())
    }

    /// Waits for the batches in the sink, and for commits, until the deadline.
    pub(crate) fn finish(&self, deadline: Instant) {
        self.state.assignment().close();
        let ours = self.state.assignment().places();
        self.record_error(self.consumer.pause(&topic_partitions::to_list(
            ours.iter().map(|(place, _)| place),
        )));
        while self.state.assignment().is_unsettled() && Instant::now() < deadline {
            if let Err(fatal) = self.round() {
                return self.state.record_failure(ConsumerPart::Client, &fatal);
            }
        }
    }

    fn round(&self) -> Result<(), String> {
        let plan = self.state.assignment().plan(Instant::now());
        self.carry_out(plan)?;
        self.receive()
    }

    fn carry_out(&self, plan: PollPlan) -> Result<(), String> {
        if !plan.pause.is_empty() {
            self.record_error(self.consumer.pause(&topic_partitions::to_list(&plan.pause)));
        }
        if !plan.resume.is_empty() {
            self.record_error(
                self.consumer
                    .resume(&topic_partitions::to_list(&plan.resume)),
            );
        }
        for batch in plan.batches {
            self.runtime.spawn(deliver(
                batch,
                Arc::clone(self.sink),
                Arc::clone(self.state),
            ));
        }
        if !plan.commits.is_empty() {
            self.commits
                .send(plan.commits)
                .map_err(|_| "the thread that commits is gone".to_owned())?;
        }
        Ok(())
    }

    /// Takes fetched records, within bounds, and waits a little if there are none.
    fn receive(&self) -> Result<(), String> {
        let mut wait = if self.state.assignment().is_busy() {
            POLL_BUSY
        } else {
            POLL_IDLE
        };
        for _ in 0..POLL_RECORDS_MAX {
            match self.poll(wait) {
                KafkaPollResult::Record(BufferRoom::Left) => wait = Duration::ZERO,
                KafkaPollResult::Record(BufferRoom::None) | KafkaPollResult::Nothing => break,
                KafkaPollResult::Fatal(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn poll(&self, wait: Duration) -> KafkaPollResult {
        match self.consumer.poll(wait) {
            Some(Ok(record)) => {
                let message = self.message(&record);
                KafkaPollResult::Record(self.state.assignment().arrive(message, Instant::now()))
            }
            Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => {
                KafkaPollResult::Fatal(error.to_string())
            }
            // The context has recorded the error; the client retries by itself.
            Some(Err(_)) | None => KafkaPollResult::Nothing,
        }
    }

    fn message(&self, record: &BorrowedMessage<'_>) -> KafkaMessage {
        let shared_topic = self.topics.iter().find(|topic| &***topic == record.topic());
        KafkaMessage {
            topic: shared_topic.map_or_else(|| record.topic().into(), Arc::clone),
            partition: record.partition(),
            offset: record.offset(),
            key: record.key().map(Bytes::copy_from_slice),
            payload: record.payload().map(Bytes::copy_from_slice),
            timestamp_ms: record.timestamp().to_millis(),
        }
    }

    fn record_error(&self, result: KafkaResult<()>) {
        if let Err(error) = result {
            self.state
                .record_failure(ConsumerPart::Client, &error.to_string());
        }
    }
}
