//! A source: started, watched, stopped.

use crate::assignment::Assignment;
use crate::board::Board;
use crate::client;
use crate::context::Context;
use crate::life::Life;
use crate::limits::LEAVE_WAIT_MAX;
use crate::meters;
use crate::settings::{Settings, SettingsError};
use crate::sink::Sink;
use crate::status::{Phase, Status, Stopped};
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;

/// A consumer group's records, for a sink.
#[derive(Debug)]
pub struct Source;

/// A source at work. Dropped, it stops all the same, but nobody waits for that.
pub struct Running {
    board: Arc<Board>,
    stop_wait: Duration,
}

/// Why a source cannot be started. No message repeats the value of a property.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings make no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The sink would have nowhere to run.
    #[error(
        "a source is started within a tokio runtime, which its sink runs on; there is none here"
    )]
    NoRuntime,
    /// There is no such property.
    #[error("librdkafka knows no property `{0}`; its CONFIGURATION.md lists them")]
    UnknownProperty(String),
    /// A property cannot have this value.
    #[error(
        "librdkafka does not take the value of `{0}`; its CONFIGURATION.md says what it may be. \
         For TLS and SCRAM, build with rdkafka's feature `ssl`"
    )]
    BadProperty(String),
    /// The client does not take the settings.
    #[error("the Kafka client does not take the settings: {0}")]
    Client(String),
    /// The system gives no thread.
    #[error("no thread for the Kafka client: {0}; raise the limit of threads")]
    Thread(#[from] std::io::Error),
}

impl Source {
    /// Joins the group and begins to hand records to the sink. Answers at once: brokers that cannot
    /// be reached are tried until they can, and [`Running::status`] says so.
    pub fn start(settings: &Settings, sink: Arc<dyn Sink>) -> Result<Running, StartError> {
        settings.check()?;
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        meters::describe();
        let board = Arc::new(Board::new(Assignment::new(settings.rules())));
        let consumer = client::open(
            settings,
            Context {
                board: Arc::clone(&board),
            },
        )?;
        let stop_wait = settings.stop_wait;
        let life = Life {
            consumer,
            board: Arc::clone(&board),
            sink,
            runtime,
            settings: settings.clone(),
        };
        thread::Builder::new()
            .name("backstop-kafka".into())
            .spawn(move || life.live())?;
        Ok(Running { board, stop_wait })
    }
}

impl Running {
    /// Hands out nothing further, finishes what is under way, commits, and leaves the group.
    pub async fn stop(self) -> Stopped {
        self.board.stopping.cancel();
        let patience = self.stop_wait + LEAVE_WAIT_MAX;
        if tokio::time::timeout(patience, self.ended()).await.is_err() {
            tracing::warn!(
                "the brokers do not let go of this member; the client goes on trying to leave the group"
            );
        }
        let left_behind = self.board.left_behind.get().copied();
        left_behind.unwrap_or_else(|| self.board.assignment().left_behind())
    }

    /// Waits until the source has left the group, because it was stopped or because it could not go
    /// on.
    pub async fn ended(&self) -> Phase {
        let mut phase = self.board.phase.subscribe();
        let ended = phase
            .wait_for(|phase| matches!(phase, Phase::Stopped | Phase::Failed(_)))
            .await;
        ended.map_or(Phase::Stopped, |phase| phase.clone())
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        self.board.status()
    }

    /// The lag of all partitions assigned to this member; nothing until each has been measured
    /// once.
    pub fn lag(&self) -> Option<u64> {
        self.status()
            .partitions
            .iter()
            .map(|partition| partition.lag)
            .sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.board.stopping.cancel();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
