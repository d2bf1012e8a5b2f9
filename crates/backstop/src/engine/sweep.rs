//! Runs the sweeps a worker was given, each in its period; of many workers one does.

use super::Engine;
use crate::sweeps::{Sweep, SweepError, SweepReport, Sweeper};
use backstop_core::Span;
use backstop_core::port::StoreResult;
use futures_util::future::join_all;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest time between two looks at whose turn it is, so that a runner that died is followed
/// soon.
const LOOK_MAX: Span = Span::minutes(1);
const LOOK_MIN: Span = Span::millis(100);
/// How long a stopping worker tries to leave a turn to others.
const LEAVE_TURN_MAX: Duration = Duration::from_secs(2);

/// Sweeps until told to stop.
pub(crate) async fn sweep_loop(engine: &Engine, stop: &CancellationToken) {
    join_all(
        engine
            .sweeps
            .iter()
            .map(|sweep| run_sweep(engine, sweep, stop)),
    )
    .await;
}

async fn run_sweep(engine: &Engine, sweep: &Sweep, stop: &CancellationToken) {
    let sweeper = Sweeper::by(
        &engine.backstop,
        sweep,
        &engine.name,
        engine.callers.clone(),
    );
    while !stop.is_cancelled() {
        let wait = match look(engine, &sweeper, stop).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, sweep = sweep.name(), "whose turn it is to sweep could not be read");
                LOOK_MAX
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait.max(LOOK_MIN).min(LOOK_MAX).into()) => {}
        }
    }
}

/// Runs the sweep if it is due and nobody else does; answers how long nothing is to be done.
async fn look(engine: &Engine, sweeper: &Sweeper, stop: &CancellationToken) -> StoreResult<Span> {
    let next = sweeper.next().await?;
    if next <= engine.now()
        && let Some(turn) = sweeper.take_turn().await?
    {
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                // Where this fails, others follow when the turn's time is over.
                let _ = tokio::time::timeout(LEAVE_TURN_MAX, sweeper.leave_turn(&turn)).await;
                return Ok(Span::ZERO);
            }
            outcome = sweeper.run_turn(&turn, turn.began) => log_report(sweeper.sweep(), &outcome),
        }
    }
    Ok(sweeper.next().await?.since(engine.now()))
}

fn log_report(sweep: &Sweep, outcome: &Result<SweepReport, SweepError>) {
    let sweep = sweep.name();
    match outcome {
        Err(error) => tracing::error!(%error, sweep, "a sweep failed; its next run looks again"),
        Ok(report) => {
            if !report.enqueued.is_empty() {
                tracing::warn!(
                    sweep,
                    count = report.enqueued.len(),
                    "lost work was found, and has jobs now"
                );
            }
            if !report.refused.is_empty() {
                tracing::warn!(
                    sweep,
                    count = report.refused.len(),
                    "lost work was found, and there is no room for it; the next run tries again"
                );
            }
            if report.unseen {
                tracing::warn!(
                    sweep,
                    found = report.found.len(),
                    unusable = report.unusable.len(),
                    "there are more rows than a run can look at; what is lost behind them is found when they are done with"
                );
            } else if report.is_cut {
                tracing::warn!(
                    sweep,
                    found = report.found.len(),
                    "there is more than one run deals with; the next one goes on. Raise max_per_run if it does not catch up"
                );
            }
            if let Some(first) = report.unusable.first() {
                let (count, row, why) = (report.unusable.len(), &first.row, &first.why);
                tracing::error!(sweep, count, %row, why, "rows were found that no job can be made of");
            }
        }
    }
}
