//! One run of one job: the handler, its time limit, its panics, and being called off.

use super::Engine;
use super::guards::Way;
use super::meters;
use crate::handler::Run;
use crate::spreads::Ran;
use crate::trace;
use crate::worker::QueueSettings;
use backstop_core::blame::is_suspect;
use backstop_core::breaker::Sign;
use backstop_core::failure::{Cause, ErrorReport};
use backstop_core::verdict::{Advice, Ending, Settlement, judge};
use backstop_core::{Lease, Leased, Outcome, Span, Time};
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
pub(crate) async fn pass(
    engine: &Engine,
    settings: &QueueSettings,
    leased: Leased,
    epoch: u64,
) -> Option<Settlement> {
    let (lease, kind) = (leased.lease.clone(), leased.kind.clone());
    let probe = match engine.way(&lease.queue, &kind).await {
        Way::Through(probe) => probe,
        Way::Not(until) => {
            engine.report(&lease.queue, epoch, Sign::Neutral);
            return Some(Settlement {
                lease,
                outcome: Outcome::Released { at: until },
            });
        }
    };
    let (sign, settlement) = match execute(engine, settings, leased).await {
        Some((sign, settlement)) => (sign, Some(settlement)),
        None => (Sign::Neutral, None),
    };
    engine.report(&lease.queue, epoch, sign);
    let outcome = settlement.as_ref().map(|settlement| &settlement.outcome);
    if matches!(outcome, Some(Outcome::Dead { .. })) {
        engine.guards.dying(&lease, &kind, probe);
    } else if let Some(epoch) = probe {
        engine.guards.probed(
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
    leased: Leased,
) -> Option<(Sign, Settlement)> {
    let limit = settings
        .timeout
        .map(|timeout| Instant::now() + timeout.plus(engine.timing.cancel_grace).into());
    let cancel = engine.held.begin(&leased.lease, limit)?;
    match note_begun(engine, &leased).await {
        Begun::Noted => {}
        Begun::Lost => {
            engine.held.remove(&leased.lease);
            return None;
        }
        Begun::Unknown => {
            let outcome = Outcome::Released {
                at: engine.now().after(UNNOTED_WAIT),
            };
            return Some((
                Sign::Neutral,
                Settlement {
                    lease: leased.lease,
                    outcome,
                },
            ));
        }
    }
    engine.tally.started();
    let began_at = engine.now();
    let leased = Arc::new(made_up_for(engine, leased, began_at));
    // Around all of it: a handler may also panic before its first await, or while it is dropped.
    let (span, here) = trace::running(&leased, &engine.name);
    let run = Run::new(Arc::clone(&leased), engine.states.clone(), cancel.clone()).at(here);
    let progress = run.progress();
    let running = AssertUnwindSafe(run_to_end(engine, settings, run, cancel)).catch_unwind();
    let ended = running.instrument(span.clone()).await;
    let mut ending = ended.unwrap_or_else(|panic| panicked("handler", panic.as_ref()));
    engine.note_end(&leased, began_at);
    if let Ending::Failed { progressed, .. } = &mut ending {
        *progressed |= progress.load(Ordering::Relaxed);
    }
    let rules = Engine::rules(settings);
    let roll = engine.backstop.random().roll();
    let sign = ending.sign();
    let outcome = match judge(&leased, ending, &engine.name, rules, engine.now(), roll) {
        Outcome::Dead { reason, history } => Outcome::Dead {
            reason,
            history: history.in_context(engine.context().await),
        },
        other => other,
    };
    meters::ran(&leased, began_at, engine.now(), &outcome);
    engine.note_ran(&leased, began_at, &outcome);
    tell_failed(engine, settings, &leased, &outcome);
    trace::ended(
        &span,
        meters::word(&outcome),
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
fn tell_failed(engine: &Engine, settings: &QueueSettings, leased: &Leased, outcome: &Outcome) {
    let Outcome::Retry { history, .. } = outcome else {
        return;
    };
    let Some(failure) = history.failures().pop() else {
        return;
    };
    let Lease { queue, job, .. } = &leased.lease;
    let attempt = leased.attempt();
    let own_policy = leased.terms.retry();
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
    fn note_ran(&self, leased: &Leased, began_at: Time, outcome: &Outcome) {
        let Some(failed) = outcome.has_failed() else {
            return;
        };
        let now = self.now();
        let ran = Ran {
            queue: &leased.lease.queue,
            kind: Some(&leased.kind),
            wait: Some(began_at.since(leased.run_at)),
            took: now.since(began_at),
            failed,
        };
        self.backstop.tally().note(&ran, now);
    }
}

/// A run that makes up for a lost one carries that in its history, so that the loss is counted
/// once, whoever runs the job next.
fn made_up_for(engine: &Engine, leased: Leased, now: Time) -> Leased {
    if leased.lost_leases == 0 || engine.handler(&leased.lease.queue, &leased.kind).is_none() {
        return leased;
    }
    let Some((waited, history)) = leased.history.rerun(now) else {
        return leased;
    };
    meters::rerun(&leased.lease.queue, waited);
    Leased { history, ..leased }
}

/// Whether the store knows that a run begins.
enum Begun {
    /// It does, or need not.
    Noted,
    /// The lease is no longer ours.
    Lost,
    /// It did not answer.
    Unknown,
}

/// A suspect is noted before it begins: if this process dies, the note is all that tells it from
/// its neighbours. One that cannot be noted does not run.
async fn note_begun(engine: &Engine, leased: &Leased) -> Begun {
    if !is_suspect(leased, engine.now()) {
        return Begun::Noted;
    }
    match engine
        .store()
        .begin(vec![leased.lease.clone()], engine.now())
        .await
    {
        Ok(lost) if lost.is_empty() => Begun::Noted,
        Ok(_) => Begun::Lost,
        Err(error) => {
            let Lease { queue, job, .. } = &leased.lease;
            tracing::warn!(%error, %job, %queue, "it could not be noted that this run begins; it is given back");
            Begun::Unknown
        }
    }
}

async fn run_to_end(
    engine: &Engine,
    settings: &QueueSettings,
    run: Run,
    cancel: CancellationToken,
) -> Ending {
    let Some(handler) = engine.handler(run.queue(), run.kind()) else {
        tracing::warn!(queue = %run.queue(), kind = %run.kind(), "no handler here for this kind; given back");
        engine.note_stranger();
        return Ending::Released(UNKNOWN_KIND_WAIT);
    };
    let called_off = async {
        cancel.cancelled().await;
        tokio::time::sleep(engine.timing.cancel_grace.into()).await;
    };
    tokio::select! {
        biased;
        ending = handler.run(run) => ending,
        () = time_limit(settings.timeout) => timed_out(settings.timeout.unwrap_or_default()),
        () = called_off => Ending::Released(Span::ZERO),
    }
}

async fn time_limit(timeout: Option<Span>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout.into()).await,
        None => std::future::pending().await,
    }
}

/// The end of a run that took too long.
pub(crate) fn timed_out(timeout: Span) -> Ending {
    let error = ErrorReport {
        error_type: Some("Timeout".to_owned()),
        ..ErrorReport::message(format!("it ran longer than {timeout} and was stopped"))
    };
    Ending::Failed {
        cause: Cause::TimedOut,
        error,
        advice: Advice::Retry,
        progressed: false,
    }
}

/// The end of a run that panicked; `what` did, if it did not say why.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> Ending {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let message = text.unwrap_or_else(|| format!("the {what} panicked without saying why"));
    let error = ErrorReport {
        error_type: Some("Panic".to_owned()),
        ..ErrorReport::message(message)
    };
    Ending::Failed {
        cause: Cause::Panicked,
        error,
        advice: Advice::Retry,
        progressed: false,
    }
}
