//! A worker from its start to its end.

use super::Engine;
use super::beat::{beat_loop, fence_loop};
use super::breakers::breaker_loop;
use super::dispatch::Dispatcher;
use super::maintenance::maintenance_loop;
use super::progress::WorkerProgress;
use super::scheduler::scheduler_loop;
use super::settle::{WAITING_MAX, settle_loop};
use super::signals::LastSignal;
use super::sweep::sweep_loop;
use super::table::table_loop;
use super::worker_commands::command_loop;
use crate::worker::{ServicePlacement, WorkerSetupError};
use backstop_core::port::StoreError;
use backstop_core::{Span, WorkerName};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What is still to be settled when all runs have ended gets this long to reach the store.
const LAST_SETTLE: Span = Span::secs(10);

/// A worker that runs. Dropping it stops it without waiting; its leases then run out.
#[must_use = "dropping a running worker stops it"]
pub struct RunningWorker {
    engine: Arc<Engine>,
    stop: CancellationToken,
    force: CancellationToken,
    supervisor: Option<JoinHandle<()>>,
}

impl RunningWorker {
    pub(crate) fn start(
        engine: Engine,
        services: ServicePlacement,
    ) -> Result<Self, WorkerSetupError> {
        let engine = Arc::new(engine);
        let (stop, force) = (CancellationToken::new(), CancellationToken::new());
        let services_stop = CancellationToken::new();
        let services = start_services(&engine, services, services_stop.clone(), stop.clone())?;
        let supervise = supervise(
            Arc::clone(&engine),
            stop.clone(),
            force.clone(),
            services,
            services_stop,
        );
        tracing::info!(
            worker = %engine.name,
            "started; a dead worker's job runs again within {}", engine.recovery_bound()
        );
        Ok(Self {
            engine,
            stop,
            force,
            supervisor: Some(tokio::spawn(supervise)),
        })
    }

    pub fn name(&self) -> &WorkerName {
        &self.engine.name
    }

    /// The longest time from a worker's death to the next run of its job, as the settings give it,
    /// while another worker lives and has room for it. After a restart of the store, or of
    /// everything, it counts from then on.
    pub fn recovery_bound(&self) -> Span {
        self.engine.recovery_bound()
    }

    /// What it has done so far.
    pub fn progress(&self) -> WorkerProgress {
        self.engine.tally.progress()
    }

    /// Whether it stops, or has stopped, because an operator asked for it, as
    /// [`AuditedChanges::command_worker`](crate::operate::AuditedChanges::command_worker) does.
    pub fn was_stopped_by_operator(&self) -> bool {
        self.engine.worker_commands.was_stopped_by_operator()
    }

    /// Why it stopped, or is about to, by itself: the store refuses its claims, settlements or
    /// beats for good, for lack of rights or of the right schema. An outage of the store stops no
    /// worker, and neither does a refusal that passes within half a minute.
    pub fn permission_error(&self) -> Option<StoreError> {
        self.engine.permission_errors.final_error()
    }

    /// Whether the store ever answered a claim of it, or what it refuses now. Then it had the right
    /// to work once, and may have it again.
    pub fn was_served(&self) -> bool {
        self.engine.permission_errors.was_served()
    }

    /// Tells it to stop: no more claims, running jobs may end, the rest is given back.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells it to stop at once: running jobs are called off and given back, with their attempt
    /// refunded.
    pub fn force(&self) {
        self.stop.cancel();
        self.force.cancel();
    }

    /// Waits until it has stopped.
    pub async fn stopped(mut self) -> WorkerProgress {
        self.ended().await;
        self.engine.tally.progress()
    }

    /// Waits until it has stopped. Safe to drop while waiting and to call again, so that it can be
    /// watched, or forced, in between.
    pub async fn ended(&mut self) {
        if let Some(supervisor) = self.supervisor.as_mut() {
            // The supervisor does not panic by itself; if the runtime is going down there is
            // nothing left to wait for.
            let _ = supervisor.await;
            self.supervisor = None;
        }
    }

    /// Stops on Ctrl-C, at once on the second, as far as it counts by [`LastSignal`]; ends as well
    /// if the worker has stopped by itself, see [`RunningWorker::permission_error`].
    pub async fn until_ctrl_c(mut self) -> WorkerProgress {
        let mut last = LastSignal::default();
        tokio::select! {
            () = self.ended() => {}
            heard = tokio::signal::ctrl_c() => {
                last.counts(Instant::now());
                if heard.is_err() {
                    tracing::error!("Ctrl-C cannot be listened for; the worker stops");
                }
            }
        }
        self.stop();
        let (force, stop) = (self.force.clone(), self.stop.clone());
        let second = tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if last.counts(Instant::now()) {
                    stop.cancel();
                    force.cancel();
                    return;
                }
            }
        });
        let progress = self.stopped().await;
        second.abort();
        progress
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.force();
        }
    }
}

/// How to wait for the services to end.
enum ServicesHandle {
    Thread(std::thread::JoinHandle<()>),
    Task(JoinHandle<()>),
}

/// A worker without beats would claim on, lose what it claims, and look healthy. If its services
/// end before they are told to, by a panic or with their runtime, the worker stops.
struct ServicesGuard {
    stop: CancellationToken,
    worker_stop: CancellationToken,
}

impl Drop for ServicesGuard {
    fn drop(&mut self) {
        if !self.stop.is_cancelled() && !self.worker_stop.is_cancelled() {
            tracing::error!("beats and recovery ended unexpectedly; the worker stops");
            self.worker_stop.cancel();
        }
    }
}

fn start_services(
    engine: &Arc<Engine>,
    services: ServicePlacement,
    stop: CancellationToken,
    worker_stop: CancellationToken,
) -> Result<ServicesHandle, WorkerSetupError> {
    let engine = Arc::clone(engine);
    let indispensable = ServicesGuard {
        stop: stop.clone(),
        worker_stop: worker_stop.clone(),
    };
    let serve = async move {
        let _indispensable = indispensable;
        tokio::join!(
            beat_loop(&engine, &stop),
            fence_loop(&engine, &stop),
            maintenance_loop(&engine, &stop),
            breaker_loop(&engine, &stop),
            command_loop(&engine, &stop, &worker_stop),
            sweep_loop(&engine, &stop),
            table_loop(&engine, &stop),
            scheduler_loop(&engine, &stop)
        );
    };
    match services {
        ServicePlacement::CallersRuntime => Ok(ServicesHandle::Task(tokio::spawn(serve))),
        ServicePlacement::OwnThread => {
            let failed = |error: std::io::Error| WorkerSetupError::Thread(error.to_string());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(failed)?;
            let thread = std::thread::Builder::new().name("backstop-services".to_owned());
            Ok(ServicesHandle::Thread(
                thread
                    .spawn(move || runtime.block_on(serve))
                    .map_err(failed)?,
            ))
        }
    }
}

async fn supervise(
    engine: Arc<Engine>,
    stop: CancellationToken,
    force: CancellationToken,
    services: ServicesHandle,
    services_stop: CancellationToken,
) {
    // Also when the caller's runtime goes away and drops this: beats for runs that are gone would
    // hold their jobs for ever.
    let _services_end_with_us = services_stop.clone().drop_guard();
    let (ended_in, ended_out) = mpsc::channel(WAITING_MAX);
    let mut settler = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { settle_loop(&engine, ended_out).await }
    });
    let runs = TaskTracker::new();
    Dispatcher::new(Arc::clone(&engine), ended_in, runs.clone())
        .run(stop)
        .await;
    runs.close();
    end_runs(&engine, &runs, &force).await;
    // All senders are gone unless a handler blocks its thread; what is in the channel is settled
    // either way.
    if tokio::time::timeout(LAST_SETTLE.into(), &mut settler)
        .await
        .is_err()
    {
        settler.abort();
        tracing::warn!(
            "some runs did not end in time; their leases run out and the jobs run again"
        );
    }
    services_stop.cancel();
    match services {
        ServicesHandle::Task(task) => drop(task.await),
        ServicesHandle::Thread(thread) => {
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
    }
    if !engine.active_leases.is_empty() {
        tracing::warn!("stopped with leases left; they run out by themselves");
    }
}

/// Lets runs end; calls them off when the grace is over or a second signal comes.
async fn end_runs(engine: &Engine, runs: &TaskTracker, force: &CancellationToken) {
    tokio::select! {
        biased;
        () = runs.wait() => return,
        () = force.cancelled() => {}
        () = tokio::time::sleep(engine.timing.grace.into()) => {
            tracing::warn!("running jobs did not end within {}; they are called off", engine.timing.grace);
        }
    }
    engine.active_leases.cancel_all();
    let patience = engine.timing.cancel_grace.plus(Span::secs(1));
    if tokio::time::timeout(patience.into(), runs.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            "{} runs block their threads and cannot be called off",
            runs.len()
        );
    }
}
