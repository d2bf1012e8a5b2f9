//! Keeps leases alive, and calls off runs whose lease is lost or can no longer be trusted.

use super::Engine;
use super::refusals::Vital;
use crate::kinds;
use crate::worker::QueueSettings;
use backstop_core::limits::BEAT_LEASES_MAX;
use backstop_core::port::Beat;
use backstop_core::{Lease, QueueName, Span};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Beats until told to stop.
pub(crate) async fn beat_loop(engine: &Engine, stop: &CancellationToken) {
    let queues: Vec<QueueName> = engine.queues.keys().cloned().collect();
    let mut is_announced = false;
    loop {
        let beaten = beat(engine, &queues).await;
        if beaten && !is_announced {
            is_announced = announce(engine).await;
        }
        let period = if beaten { period(engine) } else { period(engine).scaled(0.2) };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = engine.beat_now.notified() => {}
            () = tokio::time::sleep(period.into()) => {}
        }
    }
    // Farewell: a worker that stopped by itself serves nothing from now on, and nobody has to wait to find that out.
    beat_part(engine, &[], engine.longest_lease(), Vec::new()).await;
    if let Err(error) = kinds::withdraw(&engine.backstop, &engine.name).await {
        tracing::debug!(%error, "which kinds this worker knew is still to be read; it is forgotten in a day");
    }
}

/// Says which kinds this worker knows; whether the store took it.
async fn announce(engine: &Engine) -> bool {
    let answer = kinds::announce(&engine.backstop, &engine.name, &engine.known_kinds()).await;
    if let Err(error) = &answer {
        tracing::debug!(%error, "it could not be said which kinds this worker knows; it is tried again with the next beat");
    }
    answer.is_ok()
}

/// Looks after what must not run on, beside the beats: a beat that hangs must not delay this.
pub(crate) async fn fence_loop(engine: &Engine, stop: &CancellationToken) {
    loop {
        let now = Instant::now();
        // Without a beat in time, somebody else may already run the job: stop before that can be.
        call_off(engine, engine.held.uncertain(now), "no beat got through in time");
        call_off(
            engine,
            engine.held.overdue(now),
            "it blocks its thread past its time limit; no more beats for it",
        );
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(shortest_lease(engine).scaled(0.05).into()) => {}
        }
    }
}

/// The usual one if it serves no queue.
fn shortest_lease(engine: &Engine) -> Span {
    let shortest = engine.queues.values().map(|settings| settings.lease).min();
    shortest.unwrap_or_else(|| QueueSettings::default().lease)
}

/// Three beats fit into the shortest lease, so that two may be lost.
pub(super) fn period(engine: &Engine) -> Span {
    shortest_lease(engine).scaled(1.0 / 3.0)
}

/// Whether every beat got through.
async fn beat(engine: &Engine, queues: &[QueueName]) -> bool {
    let mut by_term = engine.held.by_term();
    if by_term.is_empty() {
        // A worker with nothing to do is alive too.
        by_term.insert(engine.longest_lease(), Vec::new());
    }
    let mut all_through = true;
    for (term, mut leases) in by_term {
        loop {
            let rest = leases.split_off(leases.len().min(BEAT_LEASES_MAX));
            all_through &= beat_or_split(engine, queues, term, leases).await;
            if rest.is_empty() {
                break;
            }
            leases = rest;
        }
    }
    all_through
}

/// Beats for leases of several queues at once; where that does not get through, for those of each queue by themselves: one that does
/// not answer, as one in a part of a cluster may not, takes no lease of another with it.
async fn beat_or_split(engine: &Engine, queues: &[QueueName], term: Span, leases: Vec<Lease>) -> bool {
    let mut by_queue: BTreeMap<QueueName, Vec<Lease>> = BTreeMap::new();
    for lease in &leases {
        by_queue.entry(lease.queue.clone()).or_default().push(lease.clone());
    }
    let got_through = beat_part(engine, queues, term, leases).await;
    if !got_through && by_queue.len() > 1 {
        join_all(by_queue.into_values().map(|leases| beat_part(engine, queues, term, leases))).await;
    }
    got_through
}

async fn beat_part(engine: &Engine, queues: &[QueueName], term: Span, leases: Vec<Lease>) -> bool {
    let (now, sent) = (engine.now(), Instant::now());
    let beat = Beat {
        worker: engine.name.clone(),
        queues: queues.to_vec(),
        leases: leases.clone(),
        until: now.after(term),
    };
    let answer = engine.store().beat(beat, now).await;
    engine.refusals.note(Vital::Beat, &answer, Instant::now());
    match answer {
        Ok(lost) => {
            engine.held.extended(&leases, sent);
            call_off(engine, lost, "its lease ended: it was cancelled, or another worker has it");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "a beat did not get through");
            false
        }
    }
}

fn call_off(engine: &Engine, leases: Vec<Lease>, why: &str) {
    // A lease may have been settled while the beat was under way; only what still waits or runs here was lost.
    for lease in engine.held.lose(leases) {
        let Lease { queue, job, .. } = &lease;
        tracing::warn!(%job, %queue, "a run is called off: {why}");
        engine.tally.lost();
    }
}
