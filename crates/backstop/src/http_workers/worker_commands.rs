//! What workers elsewhere tell of themselves, and what they are asked for. Both go through whoever
//! speaks for them: nothing is handed out to one that was asked to take no new jobs, and its beats
//! tell it so.
//!
//! Which order is for whom, [`backstop_core::order`] says. Anybody may go by any name here. So what
//! was asked of a run that is told stands until it is taken back or forgotten, whoever calls; only
//! an order that a silence has ended is taken away, since nobody could tell it from one for the
//! next run.

use super::{HttpWorkers, NOTED_MAX};
use crate::shared_cells::remove;
use crate::workers::WorkerDescription;
use crate::workers::heartbeat::{
    WorkerHeartbeat, read_heartbeat_and_command, run_identity, write_http_heartbeat,
};
use backstop_core::port::StoreResult;
use backstop_core::worker_command::{
    ActiveCommand, DesiredWorkerState, RunIdentity, WORKER_SILENCE_MAX,
};
use backstop_core::{Span, Time, WorkerName};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The store is asked for a worker's orders no more often than this.
const COMMANDS_EVERY: Span = Span::secs(2);
/// What changes all the time is told no more often than this.
const HEARTBEATS_EVERY: Span = Span::secs(10);
/// How often a card is put down although it says nothing new: somebody may have taken it away.
const HEARTBEATS_REWRITTEN_EVERY: Span = Span::minutes(1);

/// Something that was true of a worker at a time.
#[derive(Clone, Debug)]
struct CachedValue<T> {
    at: Time,
    value: T,
}

impl<T> CachedValue<T> {
    fn is_within(&self, within: Span, now: Time) -> bool {
        self.at <= now && now.since(self.at) < within
    }
}

/// What was last seen of each worker. With more of them than there is room for, some are looked at
/// more often.
#[derive(Debug)]
pub(super) struct HttpWorkerCache<T>(Mutex<BTreeMap<WorkerName, CachedValue<T>>>);

impl<T> Default for HttpWorkerCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> HttpWorkerCache<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerName, CachedValue<T>>> {
        // One map, always whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, worker: &WorkerName) -> Option<CachedValue<T>> {
        self.lock().get(worker).cloned()
    }

    /// Remembers what was seen now; `within` says for how long others are worth remembering.
    fn note(&self, worker: &WorkerName, value: T, within: Span, now: Time) {
        let mut seen = self.lock();
        if seen.len() >= NOTED_MAX && !seen.contains_key(worker) {
            seen.retain(|_, seen| seen.is_within(within, now));
        }
        if seen.len() < NOTED_MAX || seen.contains_key(worker) {
            seen.insert(worker.clone(), CachedValue { at: now, value });
        }
    }

    /// Changes what is remembered, if anything is.
    fn change(&self, worker: &WorkerName, change: impl FnOnce(&mut T)) {
        if let Some(seen) = self.lock().get_mut(worker) {
            change(&mut seen.value);
        }
    }
}

/// What was last heard about the orders of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpCommandState {
    command: Option<ActiveCommand>,
    /// The run that was told last under its name.
    last_run: Option<String>,
    /// The order that it was told of.
    delivered: Option<ActiveCommand>,
}

impl HttpCommandState {
    /// The order that is for whoever makes a call, and was not silent before.
    fn command_for(&self, identity: &RunIdentity) -> Option<ActiveCommand> {
        self.command
            .clone()
            .filter(|command| command.is_for_call(identity, self.last_run.as_deref(), false))
    }
}

impl HttpWorkers<'_> {
    /// What this worker, which tells `about` of itself, is asked for; asked of the store every
    /// other second at most. To be called before the worker is noted as alive: one that was silent
    /// for long may be another one by now. It counts as told.
    pub async fn desired_state(
        &self,
        worker: &WorkerName,
        about: &WorkerDescription,
    ) -> StoreResult<Option<DesiredWorkerState>> {
        let command = self.command_for(worker, about).await?;
        Ok(command.map(|command| self.deliver(worker, command)))
    }

    /// The same, within this time and in any case: where it cannot be read, what was heard last
    /// holds.
    pub(super) async fn desired_state_within(
        &self,
        worker: &WorkerName,
        about: &WorkerDescription,
        within: Duration,
    ) -> Option<DesiredWorkerState> {
        match tokio::time::timeout(within, self.desired_state(worker, about)).await {
            Ok(Ok(desired_state)) => desired_state,
            failed => {
                tracing::debug!(?failed, %worker, "what a worker is asked for could not be read; what it was asked for last holds");
                let state = self.seen_workers.commands.of(worker)?.value;
                state
                    .command_for(&run_identity(about))
                    .map(|command| self.deliver(worker, command))
            }
        }
    }

    /// Whether what it is asked for has to be read before it is noted as alive: it does not say
    /// when it was started, and nobody here has heard it lately.
    pub(super) fn may_be_another(&self, worker: &WorkerName, about: &WorkerDescription) -> bool {
        about.since.is_none() && !self.was_read_lately(worker)
    }

    fn was_read_lately(&self, worker: &WorkerName) -> bool {
        let now = self.backstop.now();
        self.seen_workers
            .commands
            .of(worker)
            .is_some_and(|seen| seen.is_within(WORKER_SILENCE_MAX, now))
    }

    /// The order that is for this worker.
    pub(super) async fn command_for(
        &self,
        worker: &WorkerName,
        about: &WorkerDescription,
    ) -> StoreResult<Option<ActiveCommand>> {
        let (now, identity, cache) = (
            self.backstop.now(),
            run_identity(about),
            &self.seen_workers.commands,
        );
        let seen = cache.of(worker);
        if let Some(seen) = seen
            .as_ref()
            .filter(|seen| seen.is_within(COMMANDS_EVERY, now))
        {
            return Ok(seen.value.command_for(&identity));
        }
        let (heartbeat, command) = read_heartbeat_and_command(self.backstop, worker).await?;
        // Whoever goes by the name of a worker of a process is not that one.
        let last = heartbeat
            .filter(|heartbeat| !heartbeat.is_of_process())
            .and_then(|heartbeat| heartbeat.run)
            .map(|run| run.id);
        let command = match command {
            Some((command, cell))
                if command.depends_on_silence(&identity, last.as_deref())
                    && self.was_silent(worker).await? =>
            {
                // It was for a run that is over. If it stood, it would be taken for an order to
                // this one.
                remove(self.backstop, &[cell]).await?;
                None
            }
            command => command.map(|(command, _)| command),
        };
        let state = HttpCommandState {
            command,
            last_run: last,
            delivered: seen.and_then(|seen| seen.value.delivered),
        };
        cache.note(worker, state.clone(), COMMANDS_EVERY, now);
        Ok(state.command_for(&identity))
    }

    async fn was_silent(&self, worker: &WorkerName) -> StoreResult<bool> {
        if self.was_read_lately(worker) {
            return Ok(false);
        }
        let workers = self
            .backstop
            .store()
            .workers(WORKER_SILENCE_MAX, self.backstop.now())
            .await?;
        Ok(!workers.iter().any(|one| one.name == *worker))
    }

    /// Whether it was told of this order.
    pub(super) fn was_delivered(&self, worker: &WorkerName, command: &ActiveCommand) -> bool {
        self.seen_workers
            .commands
            .of(worker)
            .is_some_and(|seen| seen.value.delivered.as_ref() == Some(command))
    }

    /// It is told of an order: what it asks for.
    pub(super) fn deliver(
        &self,
        worker: &WorkerName,
        command: ActiveCommand,
    ) -> DesiredWorkerState {
        let desired_state = command.desired_state;
        self.seen_workers
            .commands
            .change(worker, |state| state.delivered = Some(command));
        desired_state
    }

    /// Puts down what a worker tells of itself, in time or not at all: it is no reason to fail.
    pub(super) async fn save_heartbeat(
        &self,
        worker: &WorkerName,
        about: &WorkerDescription,
        within: Duration,
    ) {
        let put = tokio::time::timeout(within, self.save_new_heartbeat(worker, about)).await;
        if !matches!(put, Ok(Ok(()))) {
            tracing::debug!(?put, %worker, "what a worker tells of itself was not put down");
        }
    }

    /// If it is new, or was not put down for a while.
    async fn save_new_heartbeat(
        &self,
        worker: &WorkerName,
        about: &WorkerDescription,
    ) -> StoreResult<()> {
        let (now, cache) = (self.backstop.now(), &self.seen_workers.heartbeats);
        let last = cache.of(worker);
        let before = last
            .as_ref()
            .map(|last| last.value.clone())
            .unwrap_or_default();
        let heartbeat = WorkerHeartbeat::of_http_worker(about).merged_over(&before);
        let is_known = |last: &CachedValue<WorkerHeartbeat>| {
            let says_as = heartbeat.equals_but_time(&last.value)
                && last.is_within(HEARTBEATS_REWRITTEN_EVERY, now);
            says_as
                || (heartbeat.equals_but_memory(&last.value)
                    && last.is_within(HEARTBEATS_EVERY, now))
        };
        if last.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        write_http_heartbeat(self.backstop, worker, &heartbeat).await?;
        cache.note(worker, heartbeat, HEARTBEATS_REWRITTEN_EVERY, now);
        Ok(())
    }
}
