//! Starts, watches and stops a consumer.

use crate::assignment::PartitionAssignment;
use crate::client;
use crate::consumer_state::ConsumerState;
use crate::consumer_thread::ConsumerThread;
use crate::context::RebalanceHandler;
use crate::limits::LEAVE_WAIT_MAX;
use crate::meters;
use crate::settings::{KafkaSettings, KafkaSettingsError};
use crate::sink::MessageSink;
use crate::status::{ConsumerPhase, ConsumerStatus, ConsumerStopReport};
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;

/// Consumes the topics of a consumer group and passes the records to a sink.
#[derive(Debug)]
pub struct KafkaConsumer;

/// A running consumer. Dropping it stops the consumer, but does not wait for the end.
pub struct RunningConsumer {
    state: Arc<ConsumerState>,
    stop_wait: Duration,
}

/// Why a consumer cannot be started. No message repeats the value of a property.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerStartError {
    /// The settings failed their validation.
    #[error(transparent)]
    Settings(#[from] KafkaSettingsError),
    /// There is no tokio runtime for the sink to run on.
    #[error(
        "a source is started within a tokio runtime, which its sink runs on; there is none here"
    )]
    NoRuntime,
    /// librdkafka has no such property.
    #[error("librdkafka knows no property `{0}`; its CONFIGURATION.md lists them")]
    UnknownProperty(String),
    /// The property cannot have this value.
    #[error(
        "librdkafka does not take the value of `{0}`; its CONFIGURATION.md says what it may be. \
         For TLS and SCRAM, build with rdkafka's feature `ssl`"
    )]
    BadProperty(String),
    /// The client rejects the settings.
    #[error("the Kafka client does not take the settings: {0}")]
    Client(String),
    /// The operating system provides no thread.
    #[error("no thread for the Kafka client: {0}; raise the limit of threads")]
    Thread(#[from] std::io::Error),
}

impl KafkaConsumer {
    /// Joins the group and starts to pass records to the sink. Returns at once. While brokers
    /// cannot be reached, the consumer keeps trying, and [`RunningConsumer::status`] shows the
    /// failure.
    pub fn start(
        settings: &KafkaSettings,
        sink: Arc<dyn MessageSink>,
    ) -> Result<RunningConsumer, ConsumerStartError> {
        settings.check()?;
        let runtime = Handle::try_current().map_err(|_| ConsumerStartError::NoRuntime)?;
        meters::describe();
        let state = Arc::new(ConsumerState::new(PartitionAssignment::new(
            settings.rules(),
        )));
        let consumer = client::open(
            settings,
            RebalanceHandler {
                state: Arc::clone(&state),
            },
        )?;
        let stop_wait = settings.stop_wait;
        let consumer_thread = ConsumerThread {
            consumer,
            state: Arc::clone(&state),
            sink,
            runtime,
            settings: settings.clone(),
        };
        thread::Builder::new()
            .name("backstop-kafka".into())
            .spawn(move || consumer_thread.run())?;
        Ok(RunningConsumer { state, stop_wait })
    }
}

impl RunningConsumer {
    /// Hands out no further batches, finishes those under way, commits, and leaves the group.
    pub async fn stop(self) -> ConsumerStopReport {
        self.state.stopping.cancel();
        let stop_timeout = self.stop_wait + LEAVE_WAIT_MAX;
        if tokio::time::timeout(stop_timeout, self.ended())
            .await
            .is_err()
        {
            tracing::warn!(
                "the brokers do not let go of this member; the client goes on trying to leave the group"
            );
        }
        let left_behind = self.state.left_behind.get().copied();
        left_behind.unwrap_or_else(|| self.state.assignment().left_behind())
    }

    /// Waits until the consumer has left the group, because it was stopped or could not continue.
    pub async fn ended(&self) -> ConsumerPhase {
        let mut phase = self.state.phase.subscribe();
        let ended = phase
            .wait_for(|phase| matches!(phase, ConsumerPhase::Stopped | ConsumerPhase::Failed(_)))
            .await;
        ended.map_or(ConsumerPhase::Stopped, |phase| phase.clone())
    }

    pub fn status(&self) -> ConsumerStatus {
        self.state.status()
    }

    /// The lag of all partitions assigned to this member; `None` until each has been measured once.
    pub fn lag(&self) -> Option<u64> {
        self.status()
            .partitions
            .iter()
            .map(|partition| partition.lag)
            .sum()
    }
}

impl Drop for RunningConsumer {
    fn drop(&mut self) {
        self.state.stopping.cancel();
    }
}

impl fmt::Debug for RunningConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningConsumer")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
