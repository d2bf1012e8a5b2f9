//! One run of one job: the handler, its time limit, its panics, and being called off.

use super::Engine;
use crate::handler::Run;
use crate::worker::QueueSettings;
use backstop_core::failure::{Cause, ErrorReport};
use backstop_core::verdict::{Advice, Ending, Settlement, judge};
use backstop_core::{Leased, Span};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A job of a kind nobody here knows goes back for so long: another worker may know it.
const UNKNOWN_KIND_WAIT: Span = Span::secs(10);

/// Runs a job and judges how it ended.
pub(crate) async fn execute(
    engine: &Engine,
    settings: &QueueSettings,
    leased: Leased,
    cancel: CancellationToken,
) -> Settlement {
    engine.tally.started();
    let leased = Arc::new(leased);
    let ending = run_to_end(engine, settings, &leased, cancel).await;
    let rules = Engine::rules(settings);
    let roll = engine.backstop.random().roll();
    let outcome = judge(&leased, ending, &engine.name, rules, engine.now(), roll);
    Settlement { lease: leased.lease.clone(), outcome }
}

async fn run_to_end(
    engine: &Engine,
    settings: &QueueSettings,
    leased: &Arc<Leased>,
    cancel: CancellationToken,
) -> Ending {
    let Some(handler) = engine.handler(&leased.lease.queue, &leased.kind) else {
        tracing::warn!(queue = %leased.lease.queue, kind = %leased.kind, "no handler here for this kind; given back");
        return Ending::Released(UNKNOWN_KIND_WAIT);
    };
    let run = Run::new(Arc::clone(leased), engine.states.clone(), cancel.clone());
    let handled = AssertUnwindSafe(handler.run(run)).catch_unwind();
    let called_off = async {
        cancel.cancelled().await;
        tokio::time::sleep(engine.timing.cancel_grace.into()).await;
    };
    tokio::select! {
        biased;
        ended = handled => ended.unwrap_or_else(|panic| panicked(panic.as_ref())),
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

fn timed_out(timeout: Span) -> Ending {
    let error = ErrorReport {
        error_type: Some("Timeout".to_owned()),
        ..ErrorReport::message(format!("it ran longer than {timeout} and was stopped"))
    };
    Ending::Failed { cause: Cause::TimedOut, error, advice: Advice::Retry }
}

fn panicked(panic: &(dyn Any + Send)) -> Ending {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let message = text.unwrap_or_else(|| "the handler panicked without saying why".to_owned());
    let error = ErrorReport { error_type: Some("Panic".to_owned()), ..ErrorReport::message(message) };
    Ending::Failed { cause: Cause::Panicked, error, advice: Advice::Retry }
}
