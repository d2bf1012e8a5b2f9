//! Keeps leases alive, and calls off runs whose lease is lost or can no longer be trusted.
//!
//! | what came of a beat | what follows |
//! |---|---|
//! | all queues answered | the next one in a third of the shortest lease |
//! | some did not, as those in a part of a cluster that is gone | the leases of the others are extended; the next one five times as soon |
//! | nobody did | nothing is extended; the next one five times as soon |
//!
//! Nothing else is waited for between two beats.

use super::Engine;
use super::permission_errors::VitalCall;
use crate::worker::QueueSettings;
use crate::worker_kinds;
use backstop_core::limits::BEAT_LEASES_MAX;
use backstop_core::port::{BeatRequest, BeatResult};
use backstop_core::{Lease, QueueName, Span};
use futures_util::FutureExt;
use futures_util::future::{FusedFuture, join_all};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Beats until told to stop.
pub(crate) async fn beat_loop(engine: &Engine, stop: &CancellationToken) {
    let queues: Vec<QueueName> = engine.queues.keys().cloned().collect();
    let mut announcing = std::pin::pin!(announce_kinds(engine).fuse());
    loop {
        let period = if beat(engine, &queues).await {
            beat_period(engine)
        } else {
            beat_period(engine).scaled(0.2)
        };
        let mut rest = std::pin::pin!(tokio::time::sleep(period.into()));
        let is_over = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break true,
                () = engine.beat_requested.notified() => break false,
                () = &mut rest => break false,
                () = &mut announcing, if !announcing.is_terminated() => {}
            }
        };
        if is_over {
            break;
        }
    }
    // Farewell: a worker that stopped by itself serves nothing from now on, and nobody has to wait
    // to find that out.
    send_beat(engine, &[], engine.longest_lease(), Vec::new()).await;
    if let Err(error) = worker_kinds::withdraw(&engine.backstop, &engine.name).await {
        tracing::debug!(%error, "which kinds this worker knew is still to be read; it is forgotten in a day");
    }
}

/// Says which kinds this worker knows, until the store has taken it.
async fn announce_kinds(engine: &Engine) {
    while let Err(error) =
        worker_kinds::announce(&engine.backstop, &engine.name, &engine.known_kinds()).await
    {
        tracing::debug!(%error, "it could not be said which kinds this worker knows; it is tried again");
        tokio::time::sleep(beat_period(engine).into()).await;
    }
}

/// Looks after what must not run on, beside the beats: a beat that hangs must not delay this.
pub(crate) async fn fence_loop(engine: &Engine, stop: &CancellationToken) {
    loop {
        let now = Instant::now();
        // Without a beat in time, somebody else may already run the job: stop before that can be.
        cancel_runs(
            engine,
            engine.active_leases.expiring(now),
            "no beat got through in time",
        );
        cancel_runs(
            engine,
            engine.active_leases.overdue(now),
            "it blocks its thread past its time limit; no more beats for it",
        );
        engine.active_leases.free_suspect_slots(now);
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
pub(super) fn beat_period(engine: &Engine) -> Span {
    shortest_lease(engine).scaled(1.0 / 3.0)
}

/// Whether every beat got through to every queue. Leases of different terms are beaten for side by
/// side: none waits for another's.
async fn beat(engine: &Engine, queues: &[QueueName]) -> bool {
    let mut by_term = engine.active_leases.by_term();
    if by_term.is_empty() {
        // A worker with nothing to do is alive too.
        by_term.insert(engine.longest_lease(), Vec::new());
    }
    let beats = by_term
        .into_iter()
        .map(|(term, leases)| beat_term(engine, queues, term, leases));
    join_all(beats)
        .await
        .into_iter()
        .all(|got_through| got_through)
}

/// As many leases at a time as go into one beat.
async fn beat_term(
    engine: &Engine,
    queues: &[QueueName],
    term: Span,
    mut leases: Vec<Lease>,
) -> bool {
    let mut all_through = true;
    loop {
        let rest = leases.split_off(leases.len().min(BEAT_LEASES_MAX));
        all_through &= send_beat(engine, queues, term, leases).await;
        if rest.is_empty() {
            return all_through;
        }
        leases = rest;
    }
}

async fn send_beat(engine: &Engine, queues: &[QueueName], term: Span, leases: Vec<Lease>) -> bool {
    let (now, sent) = (engine.now(), Instant::now());
    let beat = BeatRequest {
        worker: engine.name.clone(),
        queues: queues.to_vec(),
        leases: leases.clone(),
        until: now.after(term),
    };
    let answer = engine.store().beat(beat, now).await;
    engine
        .permission_errors
        .note(VitalCall::Beat, &answer, Instant::now());
    match answer {
        Ok(BeatResult { lost, unanswered }) => {
            let is_answered = |lease: &&Lease| !unanswered.contains(&lease.queue);
            engine
                .active_leases
                .note_extended(leases.iter().filter(is_answered), sent);
            cancel_runs(
                engine,
                lost,
                "its lease ended: it was cancelled, or another worker has it",
            );
            if let Some(queue) = unanswered.first() {
                tracing::warn!(%queue, count = unanswered.len(), "a beat was not answered for every queue");
            }
            unanswered.is_empty()
        }
        Err(error) => {
            tracing::warn!(%error, "a beat did not get through");
            false
        }
    }
}

fn cancel_runs(engine: &Engine, leases: Vec<Lease>, why: &str) {
    // A lease may have been settled while the beat was under way; only what still waits or runs
    // here was lost.
    for lease in engine.active_leases.drop_lost(leases) {
        let Lease { queue, job, .. } = &lease;
        tracing::warn!(%job, %queue, "a run is called off: {why}");
        engine.tally.count_lost();
    }
}
