//! Ends runs, many at a time: whatever ended while the store was busy with the last batch is the
//! next one.
//!
//! What was not answered is told again for as long as it takes, also of leases that were lost
//! meanwhile: whether they are somebody else's only the store knows, and one that nobody took goes
//! back. It is done as [`super::settle_retry`] says, and is bounded like everything else: in number
//! by [`WAITING_MAX`], from which on nothing is claimed, and what runs then; in calls by
//! [`UNDER_WAY_MAX`], [`SLOW_MAX`] and the two that ask again. Beats and claims have the rest of
//! the store.

use super::Engine;
use super::settle_retry::{RetryQueue, SettleCallKind};
use crate::client::Backstop;
use backstop_core::failure::FailureHistory;
use backstop_core::port::{SettleOutcome, StoreError, StoreResult};
use backstop_core::verdict::Settlement;
use backstop_core::{Lease, Outcome, QueueName, Span, Time};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(super) const BATCH_MAX: usize = 1_000;
/// Calls under way at once: one that waits for a disk or a network, and one that the store works on
/// meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// A call that takes longer is not waited for by other queues; and so many may.
const SLOW_AFTER: Duration = Duration::from_secs(1);
const SLOW_MAX: usize = 2;
/// Settlements that are worth a call beside another.
const PARALLEL_MIN: usize = 250;
/// Ended runs that may wait to be settled, before they are taken up: handlers then wait too. Of as
/// many that were not answered for nothing more is claimed; those that run meanwhile are still
/// taken up, since only what is here is not called off.
pub(crate) const WAITING_MAX: usize = 4_096;
/// How long a job stays away whose death found no room.
const NO_ROOM_WAIT: Span = Span::secs(60);
/// Between two tries where there is nothing else to do.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Settles until every sender is gone. A batch waits a moment for company; while others are under
/// way it waits for more of it, and goes out beside them once it is worth a call. What was not
/// answered is told again beside all that: a queue that does not answer, as one in a part of a
/// cluster may be, holds up no other.
pub(crate) async fn settle_loop(engine: &Engine, mut ended: mpsc::Receiver<Settlement>) {
    let linger: Duration = engine.timing.settle_linger.into();
    let (mut under_way, mut retries) = (FuturesUnordered::new(), FuturesUnordered::new());
    let (mut batch, mut is_open, mut due) = (Vec::with_capacity(BATCH_MAX), true, Instant::now());
    let (mut retry_queue, mut calls) = (RetryQueue::default(), FirstCalls::default());
    while is_open || !batch.is_empty() || !under_way.is_empty() || !retry_queue.is_empty() {
        let now = Instant::now();
        for slow in calls.grow_slow(now) {
            retry_queue.track_call(&slow, now);
        }
        retry_queue.take_queued_from(&mut batch);
        engine
            .unanswered
            .store(retry_queue.len(), Ordering::Relaxed);
        let waited = linger.is_zero() || !is_open || now >= due;
        let is_ready = match calls.quick.len() {
            0 => !batch.is_empty() && (waited || batch.len() >= BATCH_MAX),
            others => others < UNDER_WAY_MAX && batch.len() >= PARALLEL_MIN,
        };
        if is_ready {
            let batch = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_MAX));
            let call = calls.begin(&batch, now);
            under_way.push(async move { (call, settle_once(engine, batch).await) });
        }
        while let Some((kind, batch)) = retry_queue.next(now) {
            retries.push(settle_retried(engine, kind, batch));
        }
        let room = BATCH_MAX - batch.len();
        tokio::select! {
            biased;
            Some((call, left)) = under_way.next(), if !under_way.is_empty() => match calls.end(call) {
                Some(slow) => retry_queue.finish_call(SettleCallKind::First, &slow, left, Instant::now()),
                None => retry_queue.add(left, Instant::now()),
            },
            Some((kind, queues, left)) = retries.next(), if !retries.is_empty() => {
                retry_queue.finish_call(kind, &queues, left, Instant::now());
            }
            got = ended.recv_many(&mut batch, room), if is_open && room > 0 => {
                is_open = got > 0;
                if got == batch.len() {
                    due = Instant::now() + linger;
                }
                // A run that has ended is not called off, however long its end has to wait.
                engine.active_leases.note_settling(batch[batch.len() - got..].iter().map(|settlement| &settlement.lease));
            }
            () = tokio::time::sleep_until(due), if calls.quick.is_empty() && !batch.is_empty() => {}
            () = sleep_until_due(retry_queue.due()) => {}
            () = sleep_until_due(calls.slow_at()) => {}
        }
    }
}

/// First calls under way, and of which queues their settlements are.
#[derive(Default)]
struct FirstCalls {
    next: u64,
    quick: BTreeMap<u64, (Instant, Vec<QueueName>)>,
    /// Those that take long: they hold up no other.
    slow: BTreeMap<u64, Vec<QueueName>>,
}

impl FirstCalls {
    fn begin(&mut self, batch: &[Settlement], now: Instant) -> u64 {
        let queues = batch
            .iter()
            .map(|settlement| settlement.lease.queue.clone())
            .collect();
        self.next += 1;
        self.quick.insert(self.next, (now, queues));
        self.next
    }

    /// Notes the end of a call; of which queues it was, if it took long.
    fn end(&mut self, call: u64) -> Option<Vec<QueueName>> {
        self.quick.remove(&call);
        self.slow.remove(&call)
    }

    /// When the next call takes long; `None` if no more may.
    fn slow_at(&self) -> Option<Instant> {
        let first = self
            .quick
            .values()
            .map(|(began, _)| *began + SLOW_AFTER)
            .min();
        first.filter(|_| self.slow.len() < SLOW_MAX)
    }

    /// Those that take long from now on.
    fn grow_slow(&mut self, now: Instant) -> Vec<Vec<QueueName>> {
        let mut grown = Vec::new();
        while self.slow_at().is_some_and(|at| at <= now) {
            let Some((call, (_, queues))) = self.quick.pop_first() else {
                break;
            };
            self.slow.insert(call, queues.clone());
            grown.push(queues);
        }
        grown
    }
}

/// Returns then; never, if there is no such time.
async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Settles one batch, however long the store takes to answer: repeating is harmless, and giving up
/// would cost a run that has already been done.
pub(crate) async fn settle(engine: &Engine, batch: Vec<Settlement>) {
    let mut left = settle_once(engine, batch).await;
    while !left.is_empty() {
        tokio::time::sleep(RETRY_WAIT).await;
        left = settle_once(engine, left).await;
    }
}

/// Settles one batch, and tells what is left of it: what the store did not answer for.
async fn settle_once(engine: &Engine, batch: Vec<Settlement>) -> Vec<Settlement> {
    engine
        .active_leases
        .note_settling(batch.iter().map(|settlement| &settlement.lease));
    match settle_in_parts(engine, &batch).await {
        Ok(answers) => record_answers(engine, batch, answers),
        Err(error) => {
            tracing::warn!(%error, count = batch.len(), "settling not answered; trying again");
            batch
        }
    }
}

/// Settles what was not answered; tells of which queues that was, one by one, and what is left of
/// it.
async fn settle_retried(
    engine: &Engine,
    kind: SettleCallKind,
    batch: Vec<Settlement>,
) -> (SettleCallKind, Vec<QueueName>, Vec<Settlement>) {
    let queues = batch
        .iter()
        .map(|settlement| settlement.lease.queue.clone())
        .collect();
    (kind, queues, settle_once(engine, batch).await)
}

/// Settles a batch. Where the store refused the last that it was told, some are told first, one by
/// one: a worker that may not settle does not tell all of them again and again, half by half. Fails
/// only where trying again may help, and nothing was answered.
async fn settle_in_parts(
    engine: &Engine,
    batch: &[Settlement],
) -> StoreResult<Vec<StoreResult<SettleOutcome>>> {
    let probes = if batch.len() > 1 {
        engine.permission_errors.probe_indexes(batch)
    } else {
        Vec::new()
    };
    if probes.is_empty() {
        return settle_by_halves(engine, batch).await;
    }
    let mut answers = vec![Ok(SettleOutcome::Unanswered); batch.len()];
    for (before, &probe) in probes.iter().enumerate() {
        let answer = settle_part(engine, &batch[probe..=probe]).await;
        match answer.map(|settled| {
            settled
                .first()
                .copied()
                .unwrap_or(SettleOutcome::Unanswered)
        }) {
            Err(error) if error.is_transient() && before == 0 => return Err(error),
            Err(error) if error.is_transient() => break,
            Err(error) => answers[probe] = Err(error),
            Ok(settled) => {
                answers[probe] = Ok(settled);
                settle_others(engine, batch, &probes[..=before], &mut answers).await;
                break;
            }
        }
    }
    Ok(answers)
}

/// Settles what was not told yet. What was is not told again: a job that is gone by it would be
/// taken for lost.
async fn settle_others(
    engine: &Engine,
    batch: &[Settlement],
    probed: &[usize],
    answers: &mut [StoreResult<SettleOutcome>],
) {
    let others: Vec<usize> = (0..batch.len()).filter(|at| !probed.contains(at)).collect();
    if others.is_empty() {
        return;
    }
    let part: Vec<Settlement> = others.iter().map(|at| batch[*at].clone()).collect();
    match settle_by_halves(engine, &part).await {
        Ok(settled) => {
            for (at, answer) in others.into_iter().zip(settled) {
                answers[at] = answer;
            }
        }
        Err(error) => tracing::warn!(%error, count = part.len(), "settling answered in part"),
    }
}

/// Settles a batch; what the store refuses for good is refused alone, not with its neighbours: the
/// batch is cut in half until only that is left. Fails only where trying again may help, and
/// nothing was answered.
pub(crate) async fn settle_by_halves(
    engine: &Engine,
    batch: &[Settlement],
) -> StoreResult<Vec<StoreResult<SettleOutcome>>> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut waiting = vec![batch];
    while let Some(part) = waiting.pop() {
        match settle_part(engine, part).await {
            Ok(settled) => answers.extend(settled.into_iter().map(Ok)),
            Err(error) if error.is_transient() && answers.is_empty() => return Err(error),
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "settling answered in part");
                answers.resize(batch.len(), Ok(SettleOutcome::Unanswered));
                break;
            }
            Err(error) if part.len() <= 1 => answers.push(Err(error)),
            Err(_) => {
                let (first, second) = part.split_at(part.len() / 2);
                waiting.extend([second, first]);
            }
        }
    }
    Ok(answers)
}

/// Settles in one call, and takes note of whether this worker may settle.
async fn settle_part(engine: &Engine, part: &[Settlement]) -> StoreResult<Vec<SettleOutcome>> {
    let answer = engine.store().settle(part.to_vec(), engine.now()).await;
    engine
        .permission_errors
        .note_settle_answer(part, &answer, Instant::now());
    answer
}

/// A deploy that kills a whole queue must not leave an empty journal.
pub(crate) fn log_outcome(backstop: &Backstop, settlement: &Settlement) {
    let plainly = |history: &FailureHistory| backstop.redaction().text(&history.last_error());
    let Lease { queue, job, .. } = &settlement.lease;
    match &settlement.outcome {
        Outcome::Dead { reason, history } => {
            tracing::warn!(%job, %queue, %reason, error = %plainly(history), "a job is dead");
        }
        Outcome::Retry { at, history, .. } => {
            tracing::info!(%job, %queue, next = %at, error = %plainly(history), "a run failed; it is tried again");
        }
        Outcome::Cancelled { reason, .. } => {
            tracing::info!(%job, %queue, %reason, "a job is cancelled");
        }
        Outcome::Done(_)
        | Outcome::Released { .. }
        | Outcome::Reran { .. }
        | Outcome::Lost { .. } => {}
    }
}

/// Takes note of answers; tells what is to be settled again: what was not answered, what was
/// refused and may yet be taken, and in another way what there is no room for the death of.
fn record_answers(
    engine: &Engine,
    batch: Vec<Settlement>,
    answers: Vec<StoreResult<SettleOutcome>>,
) -> Vec<Settlement> {
    let mut left = Vec::new();
    for (settlement, answer) in batch.into_iter().zip(answers) {
        match answer {
            Ok(SettleOutcome::Full) => {
                engine.breakers.note_death(&settlement.lease, false);
                left.push(released_for_room(&settlement, engine.now()));
            }
            Ok(SettleOutcome::Unanswered) => left.push(settlement),
            Err(StoreError::Misuse { .. })
                if engine
                    .permission_errors
                    .should_retry(settlement.lease.job, Instant::now()) =>
            {
                left.push(settlement);
            }
            Ok(SettleOutcome::Applied | SettleOutcome::Stale) | Err(_) => {
                finish_settlement(engine, &settlement, answer);
            }
        }
    }
    left
}

/// Takes note of the last that is heard of a settlement.
fn finish_settlement(engine: &Engine, settlement: &Settlement, answer: StoreResult<SettleOutcome>) {
    let (lease, was_held) = (
        &settlement.lease,
        engine.active_leases.remove(&settlement.lease),
    );
    match answer {
        Ok(SettleOutcome::Full | SettleOutcome::Unanswered) => {}
        Ok(SettleOutcome::Applied) => {
            engine.permission_errors.forget(lease.job);
            engine.tally.count_settled(&settlement.outcome);
            engine.overlaps.dismiss(lease);
            engine.breakers.note_death(lease, true);
            // That a run is tried again was told when it failed.
            if !matches!(settlement.outcome, Outcome::Retry { .. }) {
                log_outcome(&engine.backstop, settlement);
            }
        }
        Ok(SettleOutcome::Stale) => {
            engine.permission_errors.forget(lease.job);
            engine.breakers.forget(lease);
            engine.overlaps.confirm(lease);
            let Lease { queue, job, .. } = lease;
            tracing::warn!(%job, %queue, "a run ended that was no longer this worker's: its job was cancelled or taken over; its outcome does not count");
            if was_held {
                engine.tally.count_lost();
            }
        }
        // The lease runs out and the job runs again: late, but not lost.
        Err(error) => {
            engine.breakers.forget(lease);
            engine.overlaps.dismiss(lease);
            let Lease { queue, job, .. } = lease;
            tracing::error!(%error, %job, %queue, "the store refused to settle; the job will run again");
        }
    }
}

/// A job that was to die and finds no room: it stays alive, as if it had not run, and its kind
/// waits for room.
pub(crate) fn released_for_room(settlement: &Settlement, now: Time) -> Settlement {
    let Lease { queue, job, .. } = &settlement.lease;
    tracing::error!(%job, %queue, "the queue's dead letters are at their bound; the job stays alive. Make room with `backstop dead`");
    Settlement {
        lease: settlement.lease.clone(),
        outcome: Outcome::Released {
            at: now.after(NO_ROOM_WAIT),
        },
    }
}

#[cfg(test)]
mod tests;
