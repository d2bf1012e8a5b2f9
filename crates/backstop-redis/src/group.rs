//! Many callers, one script: whatever is handed in for a queue while its last calls are under way
//! is its next one.
//!
//! Each queue has a lane of its own. In a cluster queues are on different servers, and one that
//! does not answer holds up only its own.

use crate::base::Base;
use crate::enqueue::{DOING, Handed, JOBS_AT_ONCE, enqueue as send_in};
use crate::link::CALL_TIME_MAX;
use backstop_core::limits::ENQUEUE_BYTES_MAX;
use backstop_core::port::{Answer, Enqueued, StoreError};
use backstop_core::{NewJob, QueueName, Time};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Calls that may wait to be grouped; more than that wait to wait.
const CALLS_MAX: usize = 4_096;
/// Scripts of a queue under way at once: one that the server works on, and one that is on its way.
const UNDER_WAY_MAX: usize = 2;
/// Looks for another call that find none before a script is sent. Callers that were answered at
/// once come back one after the other, and would otherwise make many small scripts of what fits
/// into one.
const QUIET_MAX: usize = 8;
/// How long a call waits in all: a script that is tried until its own time is up still tells why it
/// failed.
const WAIT_TIME_MAX: Duration = CALL_TIME_MAX.saturating_add(Duration::from_millis(500));

/// Where calls are handed in.
pub(crate) struct Group {
    lanes: Mutex<HashMap<QueueName, Lane>>,
    room: Semaphore,
}

/// The calls of a queue. There is one as long as something waits or is under way.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Part>,
    under_way: usize,
}

/// What a call has for one queue.
struct Part {
    jobs: Vec<NewJob>,
    arrivals: Vec<i64>,
    bytes: usize,
    now: Time,
    answer: oneshot::Sender<Answer<Vec<Enqueued>>>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            room: Semaphore::new(CALLS_MAX),
        }
    }
}

/// Takes jobs in with whatever else waits for their queues. Needs a runtime.
pub(crate) async fn enqueue(
    base: &Arc<Base>,
    jobs: Vec<NewJob>,
    now: Time,
) -> Answer<Vec<Enqueued>> {
    // Whoever gives up waiting is skipped, if its jobs are not on their way already.
    let too_late = || StoreError::unavailable(DOING, "no answer in time");
    timeout(WAIT_TIME_MAX, hand_in(base, jobs, now))
        .await
        .unwrap_or_else(|_| Err(too_late()))
}

async fn hand_in(base: &Arc<Base>, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
    let closed = || StoreError::unavailable(DOING, "the store is being closed");
    let _room = base.group.room.acquire().await.map_err(|_| closed())?;
    if !base.guard.is_fresh(&base.link) {
        check(base).await?;
    }
    admit(base, &jobs).await?;
    let mut answers = vec![Enqueued::Same; jobs.len()];
    // Drawn for the call as a whole: lists over several queues have its jobs in its order.
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
            (places, give(base, queue, jobs, arrivals, now))
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

/// Asked by a task of the store's own: a caller that stands still must not keep a connection from
/// everybody who waits for one.
async fn check(base: &Arc<Base>) -> Answer<()> {
    let asking = Arc::clone(base);
    let checked = tokio::spawn(async move { asking.guard.check(&asking.link, DOING).await });
    checked
        .await
        .unwrap_or_else(|error| Err(StoreError::unavailable(DOING, error)))
}

/// Enters the queues of these jobs, if they are new and there is room for them.
async fn admit(base: &Arc<Base>, jobs: &[NewJob]) -> Answer<()> {
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
    let asking = Arc::clone(base);
    let admitted = tokio::spawn(async move {
        asking
            .registry
            .admit(&asking.link, &asking.keys, DOING, &queues)
            .await
    });
    admitted
        .await
        .unwrap_or_else(|error| Err(StoreError::unavailable(DOING, error)))
}

type Queued = (Vec<NewJob>, Vec<i64>);

/// The jobs of each queue, and their arrivals.
fn by_queue(jobs: Vec<NewJob>, arrivals: Range<i64>) -> BTreeMap<QueueName, Queued> {
    let mut queues: BTreeMap<QueueName, Queued> = BTreeMap::new();
    for (job, arrival) in jobs.into_iter().zip(arrivals) {
        let (jobs, arrivals) = queues.entry(job.queue.clone()).or_default();
        jobs.push(job);
        arrivals.push(arrival);
    }
    queues
}

/// Puts jobs into the lane of their queue, and sees to it that the lane moves.
fn give(
    base: &Arc<Base>,
    queue: QueueName,
    jobs: Vec<NewJob>,
    arrivals: Vec<i64>,
    now: Time,
) -> oneshot::Receiver<Answer<Vec<Enqueued>>> {
    let (answer, answered) = oneshot::channel();
    let bytes = jobs.iter().map(|job| job.payload.len()).sum();
    let is_first = base.group.join(
        &queue,
        Part {
            jobs,
            arrivals,
            bytes,
            now,
            answer,
        },
    );
    if is_first {
        tokio::spawn(serve(Turn {
            base: Arc::clone(base),
            queue,
            is_over: false,
        }));
    }
    answered
}

impl Group {
    fn lanes(&self) -> MutexGuard<'_, HashMap<QueueName, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits in a lane. Whether one more script may be under way: then the turn is the caller's to
    /// begin.
    fn join(&self, queue: &QueueName, part: Part) -> bool {
        let mut lanes = self.lanes();
        let lane = lanes.entry(queue.clone()).or_default();
        lane.waiting.push_back(part);
        let is_free = lane.under_way < UNDER_WAY_MAX;
        lane.under_way += usize::from(is_free);
        is_free
    }

    /// Moves what fits from a lane to a batch.
    fn fill(&self, queue: &QueueName, batch: &mut Batch) -> Filled {
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(queue) else {
            return Filled::Nothing;
        };
        let before = batch.parts.len();
        while let Some(part) = lane.waiting.pop_front() {
            // A caller that went away may have handed the same jobs in again: harmless, but not
            // worth sending.
            if part.answer.is_closed() {
                continue;
            }
            if !batch.has_room_for(&part) {
                lane.waiting.push_front(part);
                return Filled::ToTheBrim;
            }
            batch.push(part);
        }
        if batch.parts.len() > before {
            Filled::Some
        } else {
            Filled::Nothing
        }
    }

    /// Ends a turn, unless something waits that it has to see to; whether it ended.
    fn leave(&self, queue: &QueueName, leave: Leave) -> bool {
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(queue) else {
            return true;
        };
        if leave == Leave::IfNothingWaits && !lane.waiting.is_empty() {
            return false;
        }
        lane.under_way -= 1;
        if lane.under_way == 0 && lane.waiting.is_empty() {
            lanes.remove(queue);
        }
        true
    }
}

/// How a look into a lane went.
#[derive(PartialEq, Eq)]
enum Filled {
    Nothing,
    Some,
    /// Something waits that does not fit any more.
    ToTheBrim,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    IfNothingWaits,
    Anyway,
}

/// What goes into one script.
#[derive(Default)]
struct Batch {
    parts: Vec<Part>,
    jobs: usize,
    bytes: usize,
}

impl Batch {
    /// A part that is too large for one script goes alone, and makes several.
    fn has_room_for(&self, part: &Part) -> bool {
        let fits = self.jobs + part.jobs.len() <= JOBS_AT_ONCE
            && self.bytes + part.bytes <= ENQUEUE_BYTES_MAX;
        self.parts.is_empty() || fits
    }

    fn push(&mut self, part: Part) {
        self.jobs += part.jobs.len();
        self.bytes += part.bytes;
        self.parts.push(part);
    }
}

/// The right to have scripts of a queue under way, one after the other.
struct Turn {
    base: Arc<Base>,
    queue: QueueName,
    is_over: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Dropped with its runtime: whoever comes next begins another, and finds what still waits.
        if !self.is_over {
            self.base.group.leave(&self.queue, Leave::Anyway);
        }
    }
}

/// Sends what waits until nothing does.
async fn serve(mut turn: Turn) {
    while !turn.is_over {
        let batch = gather(&turn).await;
        send(&turn, batch.parts).await;
        turn.is_over = turn.base.group.leave(&turn.queue, Leave::IfNothingWaits);
    }
}

async fn gather(turn: &Turn) -> Batch {
    let (mut batch, mut quiet) = (Batch::default(), 0);
    while quiet < QUIET_MAX {
        match turn.base.group.fill(&turn.queue, &mut batch) {
            Filled::ToTheBrim => break,
            Filled::Some => quiet = 0,
            Filled::Nothing => quiet += 1,
        }
        tokio::task::yield_now().await;
    }
    batch
}

/// Sends parts as one. What the store refuses for good is refused to its own caller only.
async fn send(turn: &Turn, mut parts: Vec<Part>) {
    if parts.is_empty() {
        return;
    }
    // Who drew first may have come second; in order of arrival they stand in line as one piece.
    parts.sort_by_key(|part| part.arrivals.first().copied());
    let jobs: Vec<Handed<'_>> = parts.iter().flat_map(handed).collect();
    match send_in(&turn.base, &turn.queue, &jobs).await {
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
                let jobs: Vec<Handed<'_>> = handed(&part).collect();
                let own = send_in(&turn.base, &turn.queue, &jobs).await;
                reply(part, own);
            }
        }
    }
}

fn handed(part: &Part) -> impl Iterator<Item = Handed<'_>> {
    let arrived = part.jobs.iter().zip(&part.arrivals);
    arrived.map(|(job, arrival)| Handed {
        job,
        now: part.now,
        arrival: *arrival,
    })
}

fn reply(part: Part, answer: Answer<Vec<Enqueued>>) {
    // A caller that went away asks again, or does not care.
    let _ = part.answer.send(answer);
}

#[cfg(test)]
mod tests;
