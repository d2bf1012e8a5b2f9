//! Group commit for enqueues: calls for a queue that arrive while its previous scripts are under
//! way are sent together in its next script.
//!
//! Each queue has its own batch. In a cluster, queues are on different servers, and a server that
//! does not answer delays only its own queues.

use crate::context::StoreContext;
use crate::enqueue::{DOING, JOBS_AT_ONCE, NumberedJob, enqueue as send_in};
use crate::link::CALL_TIME_MAX;
use backstop_core::limits::ENQUEUE_BYTES_MAX;
use backstop_core::port::{EnqueueOutcome, StoreError, StoreResult};
use backstop_core::{NewJob, QueueName, Time};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// The most calls that wait in a batch; further calls wait for room.
const CALLS_MAX: usize = 4_096;
/// The most scripts of a queue under way: one that the server runs, and one on its way.
const UNDER_WAY_MAX: usize = 2;
/// How many looks in a row must find no new call before a script is sent. Callers that were
/// answered together come back one by one; without this wait they would cause many small scripts.
const QUIET_MAX: usize = 8;
/// How long a call waits in all. It is longer than the retries of a script, so that a caller learns
/// why its script failed.
const WAIT_TIME_MAX: Duration = CALL_TIME_MAX.saturating_add(Duration::from_millis(500));

/// Collects the enqueue calls of all callers.
pub(crate) struct EnqueueBatcher {
    backlogs: Mutex<HashMap<QueueName, QueueBacklog>>,
    room: Semaphore,
}

/// The calls of one queue. It exists as long as a call waits or is under way.
#[derive(Default)]
struct QueueBacklog {
    waiting: VecDeque<CallPart>,
    under_way: usize,
}

/// The part of a call that concerns one queue.
struct CallPart {
    jobs: Vec<NewJob>,
    arrivals: Vec<i64>,
    bytes: usize,
    now: Time,
    answer: oneshot::Sender<StoreResult<Vec<EnqueueOutcome>>>,
}

impl Default for EnqueueBatcher {
    fn default() -> Self {
        Self {
            backlogs: Mutex::default(),
            room: Semaphore::new(CALLS_MAX),
        }
    }
}

/// Enqueues jobs together with other calls that wait for the same queues. Needs a tokio runtime.
pub(crate) async fn enqueue(
    base: &Arc<StoreContext>,
    jobs: Vec<NewJob>,
    now: Time,
) -> StoreResult<Vec<EnqueueOutcome>> {
    // The calls of a caller that gave up are skipped, unless they were already sent.
    let too_late = || StoreError::unavailable(DOING, "no answer in time");
    timeout(WAIT_TIME_MAX, submit_all(base, jobs, now))
        .await
        .unwrap_or_else(|_| Err(too_late()))
}

async fn submit_all(
    base: &Arc<StoreContext>,
    jobs: Vec<NewJob>,
    now: Time,
) -> StoreResult<Vec<EnqueueOutcome>> {
    let closed = || StoreError::unavailable(DOING, "the store is being closed");
    let _room = base.batcher.room.acquire().await.map_err(|_| closed())?;
    if !base.eviction_check.is_fresh(&base.link) {
        check(base).await?;
    }
    admit(base, &jobs).await?;
    let mut answers = vec![EnqueueOutcome::Same; jobs.len()];
    // Arrivals are drawn for the whole call, so that lists over several queues keep its order.
    let arrivals = base
        .arrivals
        .draw(jobs.len(), base.link.clock_offset_micros());
    let first = arrivals.start;
    let waiting = by_queue(jobs, arrivals)
        .into_iter()
        .map(|(queue, (jobs, arrivals))| {
            let places: Vec<usize> = arrivals
                .iter()
                .filter_map(|arrival| usize::try_from(arrival - first).ok())
                .collect();
            (places, submit(base, queue, jobs, arrivals, now))
        });
    for (places, answered) in waiting.collect::<Vec<_>>() {
        for (at, answer) in places
            .into_iter()
            .zip(answered.await.map_err(|_| closed())??)
        {
            answers[at] = answer;
        }
    }
    Ok(answers)
}

/// Runs the check in a task of its own: a caller that is no longer polled must not hold a
/// connection that others wait for.
async fn check(base: &Arc<StoreContext>) -> StoreResult<()> {
    let context = Arc::clone(base);
    let checked =
        tokio::spawn(async move { context.eviction_check.check(&context.link, DOING).await });
    checked
        .await
        .unwrap_or_else(|error| Err(StoreError::unavailable(DOING, error)))
}

/// Registers the queues of these jobs, if they are new and there is room for them.
async fn admit(base: &Arc<StoreContext>, jobs: &[NewJob]) -> StoreResult<()> {
    let mut queues: Vec<QueueName> = Vec::new();
    for job in jobs {
        if queues.last() != Some(&job.queue) {
            queues.push(job.queue.clone());
        }
    }
    if base.registry.has_seen(&queues) {
        return Ok(());
    }
    queues.sort_unstable();
    queues.dedup();
    let context = Arc::clone(base);
    let admitted = tokio::spawn(async move {
        context
            .registry
            .admit(&context.link, &context.keys, DOING, &queues)
            .await
    });
    admitted
        .await
        .unwrap_or_else(|error| Err(StoreError::unavailable(DOING, error)))
}

type QueuedJobs = (Vec<NewJob>, Vec<i64>);

/// The jobs of each queue, with their arrivals.
fn by_queue(jobs: Vec<NewJob>, arrivals: Range<i64>) -> BTreeMap<QueueName, QueuedJobs> {
    let mut queues: BTreeMap<QueueName, QueuedJobs> = BTreeMap::new();
    for (job, arrival) in jobs.into_iter().zip(arrivals) {
        let (jobs, arrivals) = queues.entry(job.queue.clone()).or_default();
        jobs.push(job);
        arrivals.push(arrival);
    }
    queues
}

/// Adds jobs to the backlog of their queue, and starts a sender if none is free.
fn submit(
    base: &Arc<StoreContext>,
    queue: QueueName,
    jobs: Vec<NewJob>,
    arrivals: Vec<i64>,
    now: Time,
) -> oneshot::Receiver<StoreResult<Vec<EnqueueOutcome>>> {
    let (answer, answered) = oneshot::channel();
    let bytes = jobs.iter().map(|job| job.payload.len()).sum();
    let is_first = base.batcher.join(
        &queue,
        CallPart {
            jobs,
            arrivals,
            bytes,
            now,
            answer,
        },
    );
    if is_first {
        tokio::spawn(serve(SendGuard {
            base: Arc::clone(base),
            queue,
            is_over: false,
        }));
    }
    answered
}

impl EnqueueBatcher {
    fn backlogs(&self) -> MutexGuard<'_, HashMap<QueueName, QueueBacklog>> {
        self.backlogs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part to the backlog. If it returns `true`, one more script may be under way, and the
    /// caller must start its sender.
    fn join(&self, queue: &QueueName, part: CallPart) -> bool {
        let mut backlogs = self.backlogs();
        let backlog = backlogs.entry(queue.clone()).or_default();
        backlog.waiting.push_back(part);
        let is_free = backlog.under_way < UNDER_WAY_MAX;
        backlog.under_way += usize::from(is_free);
        is_free
    }

    /// Moves parts from the backlog to a batch, as far as they fit.
    fn fill(&self, queue: &QueueName, batch: &mut ScriptBatch) -> FillResult {
        let mut backlogs = self.backlogs();
        let Some(backlog) = backlogs.get_mut(queue) else {
            return FillResult::Nothing;
        };
        let before = batch.parts.len();
        while let Some(part) = backlog.waiting.pop_front() {
            // A caller that went away may have sent the same jobs again. Sending them twice is
            // harmless but useless.
            if part.answer.is_closed() {
                continue;
            }
            if !batch.has_room_for(&part) {
                backlog.waiting.push_front(part);
                return FillResult::ToTheBrim;
            }
            batch.push(part);
        }
        if batch.parts.len() > before {
            FillResult::Some
        } else {
            FillResult::Nothing
        }
    }

    /// Ends a sender, unless parts still wait for it; returns whether it ended.
    fn leave(&self, queue: &QueueName, leave: LeaveMode) -> bool {
        let mut backlogs = self.backlogs();
        let Some(backlog) = backlogs.get_mut(queue) else {
            return true;
        };
        if leave == LeaveMode::IfNothingWaits && !backlog.waiting.is_empty() {
            return false;
        }
        backlog.under_way -= 1;
        if backlog.under_way == 0 && backlog.waiting.is_empty() {
            backlogs.remove(queue);
        }
        true
    }
}

/// The result of one look into a backlog.
#[derive(PartialEq, Eq)]
enum FillResult {
    Nothing,
    Some,
    /// A part waits that no longer fits into the batch.
    ToTheBrim,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LeaveMode {
    IfNothingWaits,
    Anyway,
}

/// The parts that go into one script.
#[derive(Default)]
struct ScriptBatch {
    parts: Vec<CallPart>,
    jobs: usize,
    bytes: usize,
}

impl ScriptBatch {
    /// Whether a part fits. A part that is too large for one script goes alone and takes several
    /// scripts.
    fn has_room_for(&self, part: &CallPart) -> bool {
        let fits = self.jobs + part.jobs.len() <= JOBS_AT_ONCE
            && self.bytes + part.bytes <= ENQUEUE_BYTES_MAX;
        self.parts.is_empty() || fits
    }

    fn push(&mut self, part: CallPart) {
        self.jobs += part.jobs.len();
        self.bytes += part.bytes;
        self.parts.push(part);
    }
}

/// The right to send scripts of a queue, one after the other.
struct SendGuard {
    base: Arc<StoreContext>,
    queue: QueueName,
    is_over: bool,
}

impl Drop for SendGuard {
    fn drop(&mut self) {
        // Dropped with its runtime: the next caller starts a new sender, which finds the waiting
        // parts.
        if !self.is_over {
            self.base.batcher.leave(&self.queue, LeaveMode::Anyway);
        }
    }
}

/// Sends parts until none waits.
async fn serve(mut guard: SendGuard) {
    while !guard.is_over {
        let batch = gather(&guard).await;
        send(&guard, batch.parts).await;
        guard.is_over = guard
            .base
            .batcher
            .leave(&guard.queue, LeaveMode::IfNothingWaits);
    }
}

async fn gather(guard: &SendGuard) -> ScriptBatch {
    let (mut batch, mut quiet) = (ScriptBatch::default(), 0);
    while quiet < QUIET_MAX {
        match guard.base.batcher.fill(&guard.queue, &mut batch) {
            FillResult::ToTheBrim => break,
            FillResult::Some => quiet = 0,
            FillResult::Nothing => quiet += 1,
        }
        tokio::task::yield_now().await;
    }
    batch
}

/// Sends parts as one script. If the store refuses them for good, only the caller at fault gets the
/// error.
async fn send(guard: &SendGuard, mut parts: Vec<CallPart>) {
    if parts.is_empty() {
        return;
    }
    // Calls may join the backlog in another order than they drew arrivals. Sorted by arrival, they
    // are one ordered sequence.
    parts.sort_by_key(|part| part.arrivals.first().copied());
    let jobs: Vec<NumberedJob<'_>> = parts.iter().flat_map(numbered_jobs).collect();
    match send_in(&guard.base, &guard.queue, &jobs).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for part in parts {
                let own = answers.by_ref().take(part.jobs.len()).collect();
                reply(part, Ok(own));
            }
        }
        Err(error) if error.is_transient() || parts.len() == 1 => {
            for part in parts {
                reply(part, Err(error.clone()));
            }
        }
        Err(_) => {
            for part in parts {
                let jobs: Vec<NumberedJob<'_>> = numbered_jobs(&part).collect();
                let own = send_in(&guard.base, &guard.queue, &jobs).await;
                reply(part, own);
            }
        }
    }
}

fn numbered_jobs(part: &CallPart) -> impl Iterator<Item = NumberedJob<'_>> {
    let arrived = part.jobs.iter().zip(&part.arrivals);
    arrived.map(|(job, arrival)| NumberedJob {
        job,
        now: part.now,
        arrival: *arrival,
    })
}

fn reply(part: CallPart, answer: StoreResult<Vec<EnqueueOutcome>>) {
    // A caller that went away either asks again or needs no answer.
    let _ = part.answer.send(answer);
}

#[cfg(test)]
mod tests;
