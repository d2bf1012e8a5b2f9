//! Makes due jobs ready, takes over what dead workers left, prunes what has ended, and keeps the
//! clock right.

use super::Engine;
use super::gc::CellCollector;
use super::grace::RecoveryGrace;
use super::recover::{
    BatchSizer, RecoveryLeader, RecoveryRemainder, RecoveryResult, recover_batches,
};
use super::recovery_lag::RecoveryLag;
use backstop_core::limits::PROMOTE_MAX;
use backstop_core::port::{PromoteResult, StoreResult};
use backstop_core::{Span, Time};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Promotions follow hints no closer than this: a busy store gives thousands a second.
const PROMOTE_GAP: Span = Span::millis(20);
/// Calls in a row before the other duties get their turn.
const ROUNDS_MAX: usize = 20;
/// The same for pruning, which must keep up with whatever rate jobs are done at.
const PRUNE_ROUNDS_MAX: usize = 500;
/// How often the store's clock is read.
const CLOCK_PERIOD: Span = Span::secs(10);
/// How often it is told how long runs took.
const RUN_TIMES_PERIOD: Span = Span::minutes(1);
/// How long the last news of a worker that stops may take.
const LAST_NEWS: Duration = Duration::from_secs(2);

/// Keeps house until told to stop.
pub(crate) async fn maintenance_loop(engine: &Engine, stop: &CancellationToken) {
    let mut hints = engine.store().watch();
    let mut state = MaintenanceState::at_start(engine).await;
    loop {
        if state.clock.is_due(engine.now(), CLOCK_PERIOD) {
            follow_clock(engine).await;
        }
        state.grace.check_clock(engine);
        let promoted = promote_all(engine).await;
        state.grace.note_answer(
            engine,
            promoted
                .as_ref()
                .ok()
                .map(|promoted| &promoted.unanswered[..]),
        );
        state.recover(engine).await;
        if state.prune.is_due(engine.now(), engine.timing.prune) {
            prune_all(engine).await;
            state.gc.collect_next(engine).await;
        }
        engine.overlaps.write_confirmed(engine).await;
        if state.run_times.is_due(engine.now(), RUN_TIMES_PERIOD) {
            write_run_times(engine).await;
        }
        let wait = if state.more_expired {
            Span::ZERO
        } else {
            until_due(engine, promoted.ok().and_then(|promoted| promoted.next_due))
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = tokio::time::sleep(wait.max(PROMOTE_GAP).into()) => {}
            () = async {
                hints.next().await;
                tokio::time::sleep(PROMOTE_GAP.into()).await;
            } => {}
        }
    }
    // What the store does not take by then is in the log.
    let _ = tokio::time::timeout(LAST_NEWS, engine.overlaps.write_confirmed(engine)).await;
    let _ = tokio::time::timeout(LAST_NEWS, write_run_times(engine)).await;
}

fn until_due(engine: &Engine, next_due: Option<Time>) -> Span {
    let now = engine.now();
    next_due.map_or(engine.timing.maintenance_interval, |due| {
        due.since(now).min(engine.timing.maintenance_interval)
    })
}

struct MaintenanceState {
    recovery: PeriodicTask,
    prune: PeriodicTask,
    gc: CellCollector,
    clock: PeriodicTask,
    run_times: PeriodicTask,
    grace: RecoveryGrace,
    batch_sizer: BatchSizer,
    leader: RecoveryLeader,
    recovery_lag: RecoveryLag,
    /// The last sweep stopped before it came to an end.
    more_expired: bool,
}

impl MaintenanceState {
    async fn at_start(engine: &Engine) -> Self {
        Self {
            recovery: PeriodicTask::default(),
            prune: PeriodicTask::default(),
            gc: CellCollector::default(),
            clock: PeriodicTask::default(),
            run_times: PeriodicTask(Some(engine.now())),
            grace: RecoveryGrace::at_start(engine).await,
            batch_sizer: BatchSizer::default(),
            leader: RecoveryLeader::default(),
            recovery_lag: RecoveryLag::default(),
            more_expired: false,
        }
    }

    /// Takes over what dead workers left, if it is time to.
    async fn recover(&mut self, engine: &Engine) {
        let now = engine.now();
        let is_due = self
            .recovery
            .is_due(now, engine.timing.maintenance_interval)
            || self.more_expired;
        if !is_due {
            return;
        }
        if !self.grace.is_over(engine) {
            return self.recovery_lag.measure(engine).await;
        }
        self.more_expired = false;
        let spared = self.grace.spared_queues(engine);
        match recover_batches(engine, &mut self.batch_sizer, &mut self.leader, &spared).await {
            Ok(RecoveryResult { jobs, left }) => {
                if jobs > 0 {
                    tracing::info!(jobs, ?left, "expired leases were taken over");
                }
                self.more_expired = left == RecoveryRemainder::More;
                if left == RecoveryRemainder::None && spared.is_empty() {
                    return self.recovery_lag.clear();
                }
            }
            Err(error) => tracing::warn!(%error, "jobs of dead workers were not taken over"),
        }
        self.recovery_lag.measure(engine).await;
    }
}

/// When something was last done.
#[derive(Default)]
struct PeriodicTask(Option<Time>);

impl PeriodicTask {
    fn is_due(&mut self, now: Time, every: Span) -> bool {
        // A clock set back makes `since` zero: the duty is then done one period later, not hours.
        let due = self
            .0
            .is_none_or(|last| now < last || now.since(last) >= every);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// Makes ready what is due; answers when the next job is, and which queues did not say.
async fn promote_all(engine: &Engine) -> StoreResult<PromoteResult> {
    let mut last = PromoteResult::default();
    for _ in 0..ROUNDS_MAX {
        match engine.store().promote(PROMOTE_MAX, engine.now()).await {
            Ok(promoted) if promoted.moved < PROMOTE_MAX => return Ok(promoted),
            Ok(promoted) => last = promoted,
            Err(error) => {
                tracing::warn!(%error, "due jobs were not made ready");
                return Err(error);
            }
        }
    }
    Ok(PromoteResult {
        next_due: Some(engine.now()),
        ..last
    })
}

async fn prune_all(engine: &Engine) {
    for _ in 0..PRUNE_ROUNDS_MAX {
        match engine.store().prune(engine.retention(), engine.now()).await {
            Ok(pruned) => {
                if pruned.dead > 0 {
                    tracing::warn!(
                        count = pruned.dead,
                        "dead jobs were removed: their retention is over"
                    );
                }
                if !pruned.more {
                    return;
                }
            }
            Err(error) => return tracing::warn!(%error, "ended jobs were not pruned"),
        }
    }
}

async fn write_run_times(engine: &Engine) {
    if let Err(error) = engine.backstop.run_times().write().await {
        tracing::warn!(%error, "how long runs took is missing in the charts: the store did not take it");
    }
}

async fn follow_clock(engine: &Engine) {
    if let Err(error) = engine.backstop.follow_clock().await {
        tracing::warn!(%error, "the store's clock could not be read");
    }
}
