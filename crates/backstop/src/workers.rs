//! Workers as an operator sees them: who they are, what they do, and what they are asked for.
//!
//! A worker writes a heartbeat of what it is and does. An operator's command to it is kept beside
//! that. [`backstop_core::worker_command`] decides what a command means. An operator gives one with
//! [`AuditedChanges::command_worker`](crate::operate::AuditedChanges::command_worker).
//!
//! | a worker | shown as |
//! |---|---|
//! | missed two heartbeats, and holds jobs | not heard: they are taken over once its leases are over |
//! | missed two heartbeats, or has said goodbye, and holds nothing | stopped |
//! | was told to stop, or stops by itself | stopping |
//! | was asked to take no new jobs | quiet |
//! | anything else | live |
//!
//! A worker without a card hears no orders: it is of a version that knows none. It is shown as it
//! is, whatever it was asked for.

pub(crate) mod heartbeat;

use crate::client::Backstop;
use crate::shared_cells::read;
use crate::why::LIVE_WITHIN;
use crate::worker_kinds;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, StoreResult, WorkerStatus};
use backstop_core::worker_command::{
    ActiveCommand, CommandOutcome, DesiredWorkerState, WORKER_SILENCE_MAX, WorkerCommand,
    WorkerState,
};
use backstop_core::{Kind, QueueName, Span, Time, WorkerName};
use heartbeat::WorkerHeartbeat;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Workers are shown, and can be asked for something, for so long after their last sign of life.
pub const LISTED: Span = Span::hours(1);
/// What is said to who asks for something of a worker that does not listen.
pub const NOT_LISTENING: &str = "it has told nothing of itself; if it is of a version that hears no orders, it works on. End its process instead";
/// What a heartbeat may be late by: as long as a store may take for it.
const BEAT_SLACK: Span = Span::secs(1);
/// Cells that are read for each worker of a list: card, order, kinds.
const CELLS_EACH: usize = 3;

/// What a worker tells of itself; what it does not tell is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerDescription {
    /// The machine it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The version of backstop it is built with; of a worker elsewhere, whatever it calls its
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How many jobs it can run at once, over all its queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u32>,
    /// How much memory its process has in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// A worker, with all that is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerInfo {
    pub status: WorkerStatus,
    /// What it tells of itself.
    pub about: WorkerDescription,
    /// How many of its places are taken, as it told in the last ten seconds; of a worker
    /// elsewhere, the jobs it holds.
    pub taken: u64,
    /// The kinds it knows, for each queue of which it does not know every kind.
    pub kinds: BTreeMap<QueueName, BTreeSet<Kind>>,
    /// What it says that it does.
    pub state: WorkerState,
    /// What it is asked for.
    pub active_command: Option<ActiveCommand>,
    /// Whether it has told anything of itself, and so hears what it is asked for.
    has_heartbeat: bool,
    /// Whether it is a worker of a process, which takes its card away when it ends.
    is_of_process: bool,
    /// How often it sends heartbeats, where it tells that.
    beats_every: Option<Span>,
}

/// Some of the workers, by name.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerInfoPage {
    pub workers: Vec<WorkerInfo>,
    /// The last one, where there are more.
    pub next: Option<WorkerName>,
}

/// Whether a worker is alive, by its last heartbeat and its state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkerHealth {
    /// It holds jobs and is not heard: they are taken over once its leases are over.
    Silent,
    /// It ends with the last job it has.
    Stopping,
    /// It takes no new jobs.
    Quiet,
    Live,
    /// It is not heard, or has said goodbye, and holds nothing.
    Stopped,
}

impl WorkerHealth {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "not heard",
            Self::Stopping => "stopping",
            Self::Quiet => "quiet",
            Self::Live => "live",
            Self::Stopped => "stopped",
        }
    }

    /// Whether it is heard and takes no new jobs.
    pub const fn takes_nothing(self) -> bool {
        matches!(self, Self::Quiet | Self::Stopping)
    }

    /// Whether it can still be asked for something.
    pub const fn is_there(self) -> bool {
        !matches!(self, Self::Stopped)
    }
}

/// Whether a worker's last sign of life is no older than one of the living's.
pub fn is_heard(worker: &WorkerStatus, now: Time) -> bool {
    now.since(worker.seen_at) <= LIVE_WITHIN
}

impl WorkerInfo {
    fn new(
        status: WorkerStatus,
        heartbeat: Option<WorkerHeartbeat>,
        command: Option<ActiveCommand>,
        known: worker_kinds::WorkerKinds,
    ) -> Self {
        let has_heartbeat = heartbeat.is_some();
        let heartbeat = heartbeat.unwrap_or_default();
        let (is_of_process, beats_every) = (heartbeat.is_of_process(), heartbeat.beats_every);
        let active_command =
            command.filter(|command| heartbeat.run.as_ref().is_none_or(|run| command.is_for(run)));
        Self {
            // The card may be older than the beats.
            taken: heartbeat
                .taken
                .map_or(status.running, u64::from)
                .min(status.running),
            status,
            about: heartbeat.about,
            kinds: known.into_queues(),
            state: heartbeat.duty,
            active_command,
            has_heartbeat,
            is_of_process,
            beats_every,
        }
    }

    /// Whether it is heard at `now` and takes new jobs.
    pub fn takes_jobs(&self, now: Time) -> bool {
        self.health(now) == WorkerHealth::Live
    }

    /// Whether it keeps house for workers elsewhere and serves no queue, as a server without
    /// handlers does. A worker that stopped serves none either, and is none of these.
    pub fn serves_nothing(&self, now: Time) -> bool {
        let is_idle = self.status.queues.is_empty() && self.status.running == 0;
        is_idle && self.health(now) != WorkerHealth::Stopped
    }

    /// How it is at `now`.
    pub fn health(&self, now: Time) -> WorkerHealth {
        // Two missed heartbeats, and a moment for the next one to arrive.
        let silence_max = self
            .beats_every
            .map_or(LIVE_WITHIN, |period| period.times(2).plus(BEAT_SLACK));
        let is_heard = now.since(self.status.seen_at) <= silence_max;
        // A worker that stops takes its card away, and its last beat names no queue.
        let has_left = !self.is_of_process && self.status.queues.is_empty();
        let desired_state = self
            .active_command
            .as_ref()
            .filter(|_| self.has_heartbeat)
            .map(|command| command.desired_state);
        match (is_heard, self.status.running) {
            (false, 1..) => WorkerHealth::Silent,
            (false, 0) => WorkerHealth::Stopped,
            (true, 0) if has_left => WorkerHealth::Stopped,
            (true, _) => match self.state.with_desired(desired_state) {
                WorkerState::Working => WorkerHealth::Live,
                WorkerState::Quiet => WorkerHealth::Quiet,
                WorkerState::Stopping => WorkerHealth::Stopping,
            },
        }
    }
}

/// What became of an order, and what stands now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerCommandResult {
    pub outcome: CommandOutcome,
    /// What the worker is asked for from now on.
    pub desired_state: Option<DesiredWorkerState>,
    /// Whether it has ever told anything of itself. One that has not is of a version that hears no
    /// orders.
    pub listens: bool,
}

impl Backstop {
    /// All workers that beat within `within`, by name, with what they tell of themselves and what
    /// they are asked for.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// for worker in backstop.workers(backstop::workers::LISTED).await? {
    ///     let health = worker.health(backstop.current_time().await);
    ///     println!("{} {}", worker.status.name, health.as_str());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn workers(&self, within: Span) -> StoreResult<Vec<WorkerInfo>> {
        let workers = self
            .store()
            .workers(within, self.current_time().await)
            .await?;
        self.with_heartbeats(workers).await
    }

    /// Some of them, by name, behind the worker `after`.
    pub async fn workers_page(
        &self,
        within: Span,
        after: Option<&WorkerName>,
        limit: usize,
    ) -> StoreResult<WorkerInfoPage> {
        let mut found = self
            .store()
            .workers(within, self.current_time().await)
            .await?;
        found.retain(|worker| after.is_none_or(|after| worker.name > *after));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found
            .last()
            .filter(|_| has_more)
            .map(|worker| worker.name.clone());
        Ok(WorkerInfoPage {
            workers: self.with_heartbeats(found).await?,
            next,
        })
    }

    pub(crate) async fn with_heartbeats(
        &self,
        workers: Vec<WorkerStatus>,
    ) -> StoreResult<Vec<WorkerInfo>> {
        let mut infos = Vec::with_capacity(workers.len());
        for part in workers.chunks(CELLS_MAX / CELLS_EACH) {
            let names = |worker: &WorkerStatus| {
                [
                    heartbeat::heartbeat_cell(&worker.name),
                    heartbeat::command_cell(&worker.name),
                    worker_kinds::cell(&worker.name),
                ]
            };
            let cells = self
                .store()
                .cells(part.iter().flat_map(names).collect())
                .await?;
            let mut cells = cells.into_iter();
            for worker in part {
                let mut next = || cells.next().flatten();
                let (heartbeat, command, known) = (next(), next(), next());
                infos.push(WorkerInfo::new(
                    worker.clone(),
                    heartbeat.as_ref().and_then(read::<WorkerHeartbeat>),
                    command.as_ref().and_then(read_command),
                    known
                        .as_ref()
                        .and_then(read::<worker_kinds::WorkerKinds>)
                        .unwrap_or_default(),
                ));
            }
        }
        Ok(infos)
    }

    /// Gives an order to a worker, in the name of `by`; `None` if there is no such worker to be
    /// asked: it was not heard of within the hour, or, if it never said which run of it this is,
    /// lately.
    pub(crate) async fn command_worker(
        &self,
        name: &WorkerName,
        command: WorkerCommand,
        by: &str,
    ) -> StoreResult<Option<WorkerCommandResult>> {
        let now = self.current_time().await;
        let workers = self.store().workers(LISTED, now).await?;
        let Some(status) = workers.into_iter().find(|worker| worker.name == *name) else {
            return Ok(None);
        };
        let heartbeat = heartbeat::read_heartbeat(self, name).await?;
        let has_run = heartbeat
            .as_ref()
            .is_some_and(|heartbeat| heartbeat.run.is_some());
        if !has_run && now.since(status.seen_at) > WORKER_SILENCE_MAX {
            return Ok(None);
        }
        Ok(Some(
            heartbeat::change_command(self, name, heartbeat.as_ref(), command, by).await?,
        ))
    }
}

fn read_command(cell: &Cell) -> Option<ActiveCommand> {
    read::<heartbeat::CommandCell>(cell).and_then(|command| command.0)
}

#[cfg(test)]
mod tests;
