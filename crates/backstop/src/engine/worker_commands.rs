//! Tells who this worker is, and hears what its operator asks of it.
//!
//! A card is written when it has something new to say, and what changes all the time is told every
//! ten seconds: a fleet at work costs its store a tenth of a write a second for each worker, and at
//! rest none.

use super::Engine;
use super::beat::beat_period;
use crate::workers::WorkerDescription;
use crate::workers::heartbeat::{WorkerHeartbeat, read_command, withdraw, write_heartbeat};
use backstop_core::port::StoreResult;
use backstop_core::worker_command::{DesiredWorkerState, WorkerState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often orders are looked for.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// How often is looked whether there is something to tell.
const WRITE_PERIOD: Duration = Duration::from_secs(10);
/// How often a card is put down although it says nothing new: memory is no news by itself, and
/// somebody may have taken the card away.
const REWRITE_PERIOD: Duration = Duration::from_mins(1);
/// How long the last news of a worker that stops may take.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

/// What a worker does about its jobs.
#[derive(Default)]
pub(crate) struct LocalWorkerCommands {
    state: Mutex<LocalCommandState>,
    pub(crate) changed: Notify,
}

#[derive(Clone, Copy, Default)]
struct LocalCommandState {
    worker_state: WorkerState,
    /// Whether it stops because somebody asked for it.
    stopped_by_operator: bool,
}

impl LocalWorkerCommands {
    fn lock(&self) -> MutexGuard<'_, LocalCommandState> {
        // Two words, always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn worker_state(&self) -> WorkerState {
        self.lock().worker_state
    }

    /// Whether it takes new jobs.
    pub(crate) fn takes_jobs(&self) -> bool {
        self.worker_state() == WorkerState::Working
    }

    /// Whether it was an operator who had it stopped.
    pub(crate) fn was_stopped_by_operator(&self) -> bool {
        self.lock().stopped_by_operator
    }

    /// Heeds what is asked for; whether it is to stop from now on.
    fn apply(&self, desired_state: Option<DesiredWorkerState>) -> bool {
        let (before, after) = {
            let mut state = self.lock();
            let before = state.worker_state;
            state.worker_state = before.with_desired(desired_state);
            state.stopped_by_operator |=
                before != WorkerState::Stopping && state.worker_state == WorkerState::Stopping;
            (before, state.worker_state)
        };
        if before != after {
            self.changed.notify_one();
        }
        before != after && after == WorkerState::Stopping
    }

    /// It stops by itself, or by a signal.
    fn mark_stopping(&self) {
        self.lock().worker_state = WorkerState::Stopping;
    }
}

/// Tells and hears until told to stop; then takes back what it told. `worker_stop` stops the
/// worker.
pub(crate) async fn command_loop(
    engine: &Engine,
    stop: &CancellationToken,
    worker_stop: &CancellationToken,
) {
    let mut heartbeat_writer = HeartbeatWriter::default();
    loop {
        // A store that does not answer keeps nobody from ending.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sync_commands(engine, &mut heartbeat_writer, worker_stop) => {}
        }
        let is_stopping = engine.worker_commands.worker_state() == WorkerState::Stopping;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = worker_stop.cancelled(), if !is_stopping => engine.worker_commands.mark_stopping(),
            () = engine.permission_errors.wait_until_final(), if !is_stopping => engine.worker_commands.mark_stopping(),
            () = tokio::time::sleep(LOOK_PERIOD) => {}
        }
    }
    let withdrawn = tokio::time::timeout(
        WITHDRAW_TIMEOUT,
        withdraw(&engine.backstop, &engine.name, &engine.run),
    )
    .await;
    if !matches!(withdrawn, Ok(Ok(()))) {
        tracing::debug!(
            ?withdrawn,
            "what this worker told is still to be read; it is forgotten in a day"
        );
    }
}

async fn sync_commands(
    engine: &Engine,
    heartbeat_writer: &mut HeartbeatWriter,
    worker_stop: &CancellationToken,
) {
    if let Err(error) = load_command(engine, worker_stop).await {
        tracing::debug!(%error, "what this worker is asked for could not be read; what it was asked for last holds");
    }
    heartbeat_writer.write_if_due(engine).await;
}

async fn load_command(engine: &Engine, worker_stop: &CancellationToken) -> StoreResult<()> {
    let command = read_command(&engine.backstop, &engine.name)
        .await?
        .filter(|command| command.is_for(&engine.run));
    let before = engine.worker_commands.worker_state();
    let is_to_stop = engine
        .worker_commands
        .apply(command.as_ref().map(|command| command.desired_state));
    match (&command, engine.worker_commands.worker_state()) {
        (_, after) if after == before => {}
        (Some(command), _) => {
            tracing::info!(worker = %engine.name, by = command.by, "asked to {}", describe(command.desired_state));
        }
        (None, _) => {
            tracing::info!(worker = %engine.name, "goes on: what it was asked for was taken back");
        }
    }
    if is_to_stop {
        worker_stop.cancel();
    }
    Ok(())
}

const fn describe(desired_state: DesiredWorkerState) -> &'static str {
    match desired_state {
        DesiredWorkerState::Quiet => "take no new jobs; what runs may end",
        DesiredWorkerState::Stop => "stop; what runs may end within its grace",
    }
}

#[derive(Default)]
struct HeartbeatWriter(Option<WrittenHeartbeat>);

struct WrittenHeartbeat {
    heartbeat: WorkerHeartbeat,
    looked_at: Instant,
    written_at: Instant,
}

impl HeartbeatWriter {
    async fn write_if_due(&mut self, engine: &Engine) {
        let (now, worker_state) = (Instant::now(), engine.worker_commands.worker_state());
        let is_due = |last: &WrittenHeartbeat| {
            last.heartbeat.duty != worker_state || now - last.looked_at >= WRITE_PERIOD
        };
        if !self.0.as_ref().is_none_or(is_due) {
            return;
        }
        let heartbeat = engine.heartbeat();
        if let Some(last) = &mut self.0 {
            last.looked_at = now;
            if last.heartbeat.equals_but_memory(&heartbeat)
                && now - last.written_at < REWRITE_PERIOD
            {
                return;
            }
        }
        match write_heartbeat(&engine.backstop, &engine.name, &heartbeat).await {
            Ok(()) => {
                self.0 = Some(WrittenHeartbeat {
                    heartbeat,
                    looked_at: now,
                    written_at: now,
                });
            }
            Err(error) => {
                tracing::debug!(%error, "who this worker is could not be told; it is tried again");
                self.0 = None;
            }
        }
    }
}

impl Engine {
    /// What it tells of itself.
    fn heartbeat(&self) -> WorkerHeartbeat {
        let places: usize = self
            .queues
            .values()
            .map(|settings| settings.concurrency)
            .sum();
        let about = WorkerDescription {
            host: Some(
                rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
            ),
            pid: Some(std::process::id()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            since: Some(self.run.since),
            places: Some(u32::try_from(places).unwrap_or(u32::MAX)),
            memory: resident_bytes(),
        };
        WorkerHeartbeat::of_local_worker(
            about,
            self.run.clone(),
            self.active_leases.running(),
            self.worker_commands.worker_state(),
        )
        .beating_every(beat_period(self))
    }
}

/// What this process has in memory, where the system tells.
fn resident_bytes() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_where_the_system_tells_it() {
        assert_eq!(
            resident_in("Name:\tx\nVmRSS:\t   12344 kB\nThreads:\t1\n"),
            Some(12_344 * 1024)
        );
        for status in [
            "",
            "VmRSS:",
            "VmRSS: many kB",
            "VmRSS: 1 MB",
            "VmRSS: 18446744073709551615 kB",
        ] {
            assert_eq!(resident_in(status), None, "{status}");
        }
    }

    #[test]
    fn who_stops_by_a_signal_was_not_asked_to_and_does_not_go_back() {
        let orders = LocalWorkerCommands::default();
        orders.mark_stopping();
        assert!(
            !orders.apply(Some(DesiredWorkerState::Stop)),
            "it stops already"
        );
        assert!(!orders.was_stopped_by_operator());
        assert!(!orders.apply(None) && orders.worker_state() == WorkerState::Stopping);
    }

    #[test]
    fn an_order_is_heeded_once_and_taken_back() {
        let orders = LocalWorkerCommands::default();
        assert!(!orders.apply(Some(DesiredWorkerState::Quiet)) && !orders.takes_jobs());
        assert!(!orders.apply(None) && orders.takes_jobs());
        assert!(orders.apply(Some(DesiredWorkerState::Stop)) && orders.was_stopped_by_operator());
        assert!(
            !orders.apply(Some(DesiredWorkerState::Stop)),
            "it was told already"
        );
    }
}
