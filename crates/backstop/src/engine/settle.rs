//! Ends runs, many at a time: whatever ended while the store was busy with the last batch is the next one.

use super::Engine;
use super::refusals::Vital;
use crate::client::Backstop;
use backstop_core::failure::History;
use backstop_core::port::{Answer, Settled, StoreError};
use backstop_core::verdict::Settlement;
use backstop_core::{Lease, Outcome, QueueName, Span, Time};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Settlements of one call.
const BATCH_MAX: usize = 1_000;
/// Calls under way at once: one that waits for a disk or a network, and one that the store works on meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// Settlements that are worth a call beside another.
const BESIDE_MIN: usize = 250;
/// Ended runs that may wait to be settled; handlers then wait too, and nothing more is claimed.
pub(crate) const WAITING_MAX: usize = 8_192;
/// How long a job stays away whose death found no room.
const NO_ROOM_WAIT: Span = Span::secs(60);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// Settles until every sender is gone. A batch waits a moment for company; while others are under way it waits for more of
/// it, and goes out beside them once it is worth a call. What was not answered is tried again by its queue, beside all that:
/// a queue that does not answer, as one in a part of a cluster may be, holds up no other.
pub(crate) async fn settle_loop(engine: &Engine, mut ended: mpsc::Receiver<Settlement>) {
    let linger: Duration = engine.timing.settle_linger.into();
    let (mut under_way, mut again) = (FuturesUnordered::new(), FuturesUnordered::new());
    let (mut batch, mut is_open, mut due) = (Vec::with_capacity(BATCH_MAX), true, Instant::now());
    while is_open || !batch.is_empty() || !under_way.is_empty() || !again.is_empty() {
        let waited = linger.is_zero() || !is_open || Instant::now() >= due;
        let is_ready = match under_way.len() {
            0 => !batch.is_empty() && (waited || batch.len() >= BATCH_MAX),
            others => others < UNDER_WAY_MAX && batch.len() >= BESIDE_MIN,
        };
        if is_ready {
            under_way.push(settle_once(engine, std::mem::replace(&mut batch, Vec::with_capacity(BATCH_MAX))));
        }
        let room = BATCH_MAX - batch.len();
        tokio::select! {
            biased;
            Some(rest) = under_way.next(), if !under_way.is_empty() => {
                again.extend(by_queue(rest).map(|part| settle_later(engine, part)));
            }
            Some(()) = again.next(), if !again.is_empty() => {}
            got = ended.recv_many(&mut batch, room), if is_open && room > 0 => {
                is_open = got > 0;
                if got == batch.len() {
                    due = Instant::now() + linger;
                }
            }
            () = tokio::time::sleep_until(due), if under_way.is_empty() && !batch.is_empty() => {}
        }
    }
}

/// Settles one batch, however long the store takes to answer: repeating is harmless, and giving up would cost a run
/// that has already been done.
pub(crate) async fn settle(engine: &Engine, batch: Vec<Settlement>) {
    let rest = settle_once(engine, batch).await;
    settle_later(engine, rest).await;
}

/// Settles one batch, and tells what is left of it: all of it if the store did not answer.
async fn settle_once(engine: &Engine, batch: Vec<Settlement>) -> Vec<Settlement> {
    engine.held.settling(batch.iter().map(|settlement| &settlement.lease));
    match settle_in_parts(engine, &batch).await {
        Ok(answers) => account(engine, &batch, answers),
        Err(error) => {
            tracing::warn!(%error, count = batch.len(), "settling not answered; trying again");
            batch
        }
    }
}

/// Settles what is left of a batch until nothing is.
async fn settle_later(engine: &Engine, mut batch: Vec<Settlement>) {
    let mut wait = RETRY_FIRST;
    while !batch.is_empty() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_LAST);
        batch.retain(|settlement| {
            let is_held = engine.held.holds(&settlement.lease);
            if !is_held {
                engine.guards.forget(&settlement.lease);
                engine.overlaps.confirm(&settlement.lease);
            }
            is_held
        });
        batch = settle_once(engine, batch).await;
    }
}

/// The settlements of each queue, in their order.
fn by_queue(batch: Vec<Settlement>) -> impl Iterator<Item = Vec<Settlement>> {
    let mut queues: BTreeMap<QueueName, Vec<Settlement>> = BTreeMap::new();
    for settlement in batch {
        queues.entry(settlement.lease.queue.clone()).or_default().push(settlement);
    }
    queues.into_values()
}

/// Settles a batch; what the store refuses for good is refused alone, not with its neighbours: the batch is cut in half
/// until only that is left. Fails only where trying again may help.
pub(crate) async fn settle_in_parts(engine: &Engine, batch: &[Settlement]) -> Answer<Vec<Answer<Settled>>> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut waiting = vec![batch];
    while let Some(part) = waiting.pop() {
        let answer = engine.store().settle(part.to_vec(), engine.now()).await;
        note(engine, part, &answer);
        match answer {
            Ok(settled) => answers.extend(settled.into_iter().map(Ok)),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) if part.len() <= 1 => answers.push(Err(error)),
            Err(_) => {
                let (first, second) = part.split_at(part.len() / 2);
                waiting.extend([second, first]);
            }
        }
    }
    Ok(answers)
}

/// Takes note of whether this worker may settle. What is refused beside others is asked again by itself.
fn note(engine: &Engine, part: &[Settlement], answer: &Answer<Vec<Settled>>) {
    let is_decided = part.len() == 1 || answer.as_ref().err().is_none_or(StoreError::is_transient);
    if let Some(settlement) = part.first().filter(|_| is_decided) {
        engine.refusals.note(Vital::Settlement(settlement.lease.job), answer, Instant::now());
    }
}

/// A deploy that kills a whole queue must not leave an empty journal.
pub(crate) fn tell(backstop: &Backstop, settlement: &Settlement) {
    let plainly = |history: &History| backstop.redaction().text(&history.last_error());
    let Lease { queue, job, .. } = &settlement.lease;
    match &settlement.outcome {
        Outcome::Dead { reason, history } => {
            tracing::warn!(%job, %queue, %reason, error = %plainly(history), "a job is dead");
        }
        Outcome::Retry { at, history, .. } => {
            tracing::info!(%job, %queue, next = %at, error = %plainly(history), "a run failed; it is tried again");
        }
        Outcome::Cancelled { reason, .. } => tracing::info!(%job, %queue, %reason, "a job is cancelled"),
        Outcome::Done(_) | Outcome::Released { .. } | Outcome::Reran { .. } | Outcome::Lost { .. } => {}
    }
}

/// Takes note of answers; tells what is to be settled in another way, because there is no room for its death.
fn account(engine: &Engine, batch: &[Settlement], answers: Vec<Answer<Settled>>) -> Vec<Settlement> {
    let mut refused = Vec::new();
    for (settlement, answer) in batch.iter().zip(answers) {
        if matches!(answer, Ok(Settled::Full)) {
            engine.guards.died(&settlement.lease, false);
            refused.push(given_back(settlement, engine.now()));
            continue;
        }
        let (lease, was_held) = (&settlement.lease, engine.held.remove(&settlement.lease));
        match answer {
            Ok(Settled::Full) => {}
            Ok(Settled::Applied) => {
                engine.tally.settled(&settlement.outcome);
                engine.overlaps.dismiss(lease);
                engine.guards.died(lease, true);
                tell(&engine.backstop, settlement);
            }
            Ok(Settled::Stale) => {
                engine.guards.forget(lease);
                engine.overlaps.confirm(lease);
                let Lease { queue, job, .. } = lease;
                tracing::warn!(%job, %queue, "a run ended that was no longer this worker's: its job was cancelled or taken over; its outcome does not count");
                if was_held {
                    engine.tally.lost();
                }
            }
            // The lease runs out and the job runs again: late, but not lost.
            Err(error) => {
                engine.guards.forget(lease);
                engine.overlaps.dismiss(lease);
                let Lease { queue, job, .. } = lease;
                tracing::error!(%error, %job, %queue, "the store refused to settle; the job will run again");
            }
        }
    }
    refused
}

/// A job that was to die and finds no room: it stays alive, as if it had not run, and its kind waits for room.
pub(crate) fn given_back(settlement: &Settlement, now: Time) -> Settlement {
    let Lease { queue, job, .. } = &settlement.lease;
    tracing::error!(%job, %queue, "the queue's dead letters are at their bound; the job stays alive. Make room with `backstop dead`");
    Settlement { lease: settlement.lease.clone(), outcome: Outcome::Released { at: now.after(NO_ROOM_WAIT) } }
}
