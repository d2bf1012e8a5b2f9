//! One run of one job: the handler, its time limit, its panics, and being called off.

use super::Engine;
use super::breakers::GateDecision;
use super::metrics;
use crate::handler::Run;
use crate::run_times::RunSample;
use crate::trace;
use crate::worker::QueueSettings;
use backstop_core::blame::is_suspect;
use backstop_core::breaker::CallOutcome;
use backstop_core::failure::{ErrorReport, FailureCause};
use backstop_core::verdict::{FailureAdvice, RunEnding, Settlement, judge};
use backstop_core::{Lease, LeasedRun, Outcome, Span, Time};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A job of a kind nobody here knows goes back for so long: another worker may know it.
pub(crate) const UNKNOWN_KIND_WAIT: Span = Span::secs(10);
/// A suspect whose beginning the store did not note goes back for so long.
const UNNOTED_WAIT: Span = Span::secs(1);

/// Runs a job if its kind's gate lets it through, and tells its breaker how it ended; `None` if its
/// lease was lost before it could begin.
pub(crate) async fn run_through_gate(
    engine: &Engine,
    settings: &QueueSettings,
    leased: LeasedRun,
    epoch: u64,
) -> Option<Settlement> {
    let (lease, kind) = (leased.lease.clone(), leased.kind.clone());
    let probe = match engine.gate_decision(&lease.queue, &kind).await {
        GateDecision::Open(probe) => probe,
        GateDecision::Blocked(until) => {
            engine.report(&lease.queue, epoch, CallOutcome::Neutral);
            return Some(Settlement {
                lease,
                outcome: Outcome::Released { at: until },
            });
        }
    };
    let (sign, settlement) = match execute(engine, settings, leased).await {
        Some((sign, settlement)) => (sign, Some(settlement)),
        None => (CallOutcome::Neutral, None),
    };
    engine.report(&lease.queue, epoch, sign);
    let outcome = settlement.as_ref().map(|settlement| &settlement.outcome);
    if matches!(outcome, Some(Outcome::Dead { .. })) {
        engine.breakers.note_dying(&lease, &kind, probe);
    } else if let Some(epoch) = probe {
        engine.breakers.note_probe(
            &lease.queue,
            &kind,
            epoch,
            outcome.unwrap_or(&Outcome::Released { at: engine.now() }),
        );
    }
    settlement
}

/// The target of the log's lines of failed runs, one each: whoever runs handlers by hand wants to
/// see them.
pub const FAILED_RUNS: &str = "backstop::failed_runs";

/// Runs a job and judges how it ended, and what that says about its service; `None` if its lease
/// was lost before it could begin.
pub(crate) async fn execute(
    engine: &Engine,
    settings: &QueueSettings,
    leased: LeasedRun,
) -> Option<(CallOutcome, Settlement)> {
    let limit = settings
        .timeout
        .map(|timeout| Instant::now() + timeout.plus(engine.timing.cancel_grace).into());
    let cancel = engine.active_leases.start_run(&leased.lease, limit)?;
    match record_begin(engine, &leased).await {
        BeginOutcome::Noted => {}
        BeginOutcome::Lost => {
            engine.active_leases.remove(&leased.lease);
            return None;
        }
        BeginOutcome::Unknown => {
            let outcome = Outcome::Released {
                at: engine.now().after(UNNOTED_WAIT),
            };
            return Some((
                CallOutcome::Neutral,
                Settlement {
                    lease: leased.lease,
                    outcome,
                },
            ));
        }
    }
    engine.tally.count_started();
    let began_at = engine.now();
    let leased = Arc::new(with_rerun_history(engine, leased, began_at));
    // Around all of it: a handler may also panic before its first await, or while it is dropped.
    let (span, here) = trace::run_span(&leased, &engine.name);
    let run = Run::new(Arc::clone(&leased), engine.states.clone(), cancel.clone()).with_trace(here);
    let progress = run.progress();
    let running = AssertUnwindSafe(run_to_end(engine, settings, run, cancel)).catch_unwind();
    let ended = running.instrument(span.clone()).await;
    let mut ending = ended.unwrap_or_else(|panic| panic_ending("handler", panic.as_ref()));
    engine.note_late_end(&leased, began_at);
    if let RunEnding::Failed { progressed, .. } = &mut ending {
        *progressed |= progress.load(Ordering::Relaxed);
    }
    let rules = Engine::rules(settings);
    let roll = engine.backstop.random().roll();
    let sign = ending.judge_service();
    let outcome = match judge(&leased, ending, &engine.name, rules, engine.now(), roll) {
        Outcome::Dead { reason, history } => Outcome::Dead {
            reason,
            history: history.with_context(engine.context().await),
        },
        other => other,
    };
    metrics::record_run(&leased, began_at, engine.now(), &outcome);
    engine.count_run(&leased, began_at, &outcome);
    log_failed(engine, settings, &leased, &outcome);
    trace::record_end(
        &span,
        metrics::outcome_word(&outcome),
        matches!(outcome, Outcome::Retry { .. } | Outcome::Dead { .. }),
    );
    Some((
        sign,
        Settlement {
            lease: leased.lease.clone(),
            outcome,
        },
    ))
}

/// One line for a run that failed and is tried again; that of one that is not is told once the
/// store has taken it for dead.
fn log_failed(engine: &Engine, settings: &QueueSettings, leased: &LeasedRun, outcome: &Outcome) {
    let Outcome::Retry { history, .. } = outcome else {
        return;
    };
    let Some(failure) = history.failures().pop() else {
        return;
    };
    let Lease { queue, job, .. } = &leased.lease;
    let attempt = leased.attempt();
    let own_policy = leased.options.retry();
    let max = own_policy
        .as_ref()
        .unwrap_or(&settings.retry)
        .max_attempts();
    let of = max.map(|max| format!(" of {max}")).unwrap_or_default();
    let error = engine.backstop.redaction().text(&failure.error.message);
    let error = error.lines().next().unwrap_or_default();
    let next = failure.retry_in.unwrap_or_default().plain();
    tracing::info!(target: FAILED_RUNS, %job, %queue, "attempt {attempt}{of} failed: {error}; next try in {next}");
}

impl Engine {
    /// Counts a run for the charts. One that was given back did not run.
    fn count_run(&self, leased: &LeasedRun, began_at: Time, outcome: &Outcome) {
        let Some(failed) = outcome.has_failed() else {
            return;
        };
        let now = self.now();
        let ran = RunSample {
            queue: &leased.lease.queue,
            kind: Some(&leased.kind),
            wait: Some(began_at.since(leased.run_at)),
            took: now.since(began_at),
            failed,
        };
        self.backstop.run_times_counter().note(&ran, now);
    }
}

/// A run that makes up for a lost one carries that in its history, so that the loss is counted
/// once, whoever runs the job next.
fn with_rerun_history(engine: &Engine, leased: LeasedRun, now: Time) -> LeasedRun {
    if leased.lost_leases == 0 || engine.handler(&leased.lease.queue, &leased.kind).is_none() {
        return leased;
    }
    let Some((waited, history)) = leased.history.record_rerun(now) else {
        return leased;
    };
    metrics::record_rerun(&leased.lease.queue, waited);
    LeasedRun { history, ..leased }
}

/// Whether the store knows that a run begins.
enum BeginOutcome {
    /// It does, or need not.
    Noted,
    /// The lease is no longer ours.
    Lost,
    Unknown,
}

/// A suspect is noted before it begins: if this process dies, the note is all that tells it from
/// its neighbours. One that cannot be noted does not run.
async fn record_begin(engine: &Engine, leased: &LeasedRun) -> BeginOutcome {
    if !is_suspect(leased, engine.now()) {
        return BeginOutcome::Noted;
    }
    match engine
        .store()
        .begin(vec![leased.lease.clone()], engine.now())
        .await
    {
        Ok(lost) if lost.is_empty() => BeginOutcome::Noted,
        Ok(_) => BeginOutcome::Lost,
        Err(error) => {
            let Lease { queue, job, .. } = &leased.lease;
            tracing::warn!(%error, %job, %queue, "it could not be noted that this run begins; it is given back");
            BeginOutcome::Unknown
        }
    }
}

async fn run_to_end(
    engine: &Engine,
    settings: &QueueSettings,
    run: Run,
    cancel: CancellationToken,
) -> RunEnding {
    let Some(handler) = engine.handler(run.queue(), run.kind()) else {
        tracing::warn!(queue = %run.queue(), kind = %run.kind(), "no handler here for this kind; given back");
        engine.note_unrunnable();
        return RunEnding::Released(UNKNOWN_KIND_WAIT);
    };
    let called_off = async {
        cancel.cancelled().await;
        tokio::time::sleep(engine.timing.cancel_grace.into()).await;
    };
    tokio::select! {
        biased;
        ending = handler.run(run) => ending,
        () = time_limit(settings.timeout) => timeout_ending(settings.timeout.unwrap_or_default()),
        () = called_off => RunEnding::Released(Span::ZERO),
    }
}

async fn time_limit(timeout: Option<Span>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout.into()).await,
        None => std::future::pending().await,
    }
}

/// The end of a run that took too long.
pub(crate) fn timeout_ending(timeout: Span) -> RunEnding {
    let error = ErrorReport {
        error_type: Some("Timeout".to_owned()),
        ..ErrorReport::message(format!("it ran longer than {timeout} and was stopped"))
    };
    RunEnding::Failed {
        cause: FailureCause::TimedOut,
        error,
        advice: FailureAdvice::Retry,
        progressed: false,
    }
}

/// The end of a run that panicked; `what` did, if it did not say why.
pub(crate) fn panic_ending(what: &str, panic: &(dyn Any + Send)) -> RunEnding {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let message = text.unwrap_or_else(|| format!("the {what} panicked without saying why"));
    let error = ErrorReport {
        error_type: Some("Panic".to_owned()),
        ..ErrorReport::message(message)
    };
    RunEnding::Failed {
        cause: FailureCause::Panicked,
        error,
        advice: FailureAdvice::Retry,
        progressed: false,
    }
}
