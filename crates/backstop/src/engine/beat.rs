//! Keeps leases alive, and calls off runs whose lease is lost or can no longer be trusted.

use super::Engine;
use backstop_core::limits::BEAT_LEASES_MAX;
use backstop_core::port::Beat;
use backstop_core::{Lease, QueueName, Span, Time};
use tokio_util::sync::CancellationToken;

/// Beats until told to stop.
pub(crate) async fn beat_loop(engine: &Engine, stop: &CancellationToken) {
    let queues: Vec<QueueName> = engine.queues.keys().cloned().collect();
    loop {
        let beaten = beat(engine, &queues).await;
        give_up_uncertain(engine);
        let period = if beaten { period(engine) } else { period(engine).scaled(0.2) };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(period.into()) => {}
        }
    }
}

/// Three beats fit into the shortest lease, so that two may be lost.
fn period(engine: &Engine) -> Span {
    let shortest = engine.queues.values().map(|settings| settings.lease).min().unwrap_or_default();
    shortest.scaled(1.0 / 3.0)
}

/// Whether every beat got through.
async fn beat(engine: &Engine, queues: &[QueueName]) -> bool {
    let mut by_term = engine.held.by_term();
    if by_term.is_empty() {
        // A worker with nothing to do is alive too.
        by_term.insert(engine.longest_lease(), Vec::new());
    }
    let mut all_through = true;
    for (term, leases) in by_term {
        let mut parts = leases.chunks(BEAT_LEASES_MAX).peekable();
        if parts.peek().is_none() {
            all_through &= beat_part(engine, queues, term, Vec::new()).await;
        }
        for part in parts {
            all_through &= beat_part(engine, queues, term, part.to_vec()).await;
        }
    }
    all_through
}

async fn beat_part(engine: &Engine, queues: &[QueueName], term: Span, leases: Vec<Lease>) -> bool {
    let now = engine.now();
    let until: Time = now.after(term);
    let beat = Beat { worker: engine.name.clone(), queues: queues.to_vec(), leases, until };
    match engine.store().beat(beat, now).await {
        Ok(lost) => {
            engine.held.extended(term, until);
            call_off(engine, &lost, "its lease was lost");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "a beat did not get through");
            false
        }
    }
}

/// Without a beat in time, somebody else may already run the job: stop before that can be.
fn give_up_uncertain(engine: &Engine) {
    let uncertain = engine.held.uncertain(engine.now());
    call_off(engine, &uncertain, "no beat got through in time");
}

fn call_off(engine: &Engine, leases: &[Lease], why: &str) {
    // A lease may have been settled while the beat was under way; only what is still held was lost.
    let held: Vec<Lease> = leases.iter().filter(|lease| engine.held.holds(lease)).cloned().collect();
    for lease in &held {
        tracing::warn!(?lease, "a run is called off: {why}");
        engine.tally.lost();
    }
    engine.held.lose(&held);
}
