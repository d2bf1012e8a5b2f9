//! Batches of pushes that wait for no lock: the calls that arrive while the last statements are
//! under way form the next one.

use super::{BatchKind, BatchSender, EnqueueCall, WAITING_MAX};
use backstop_core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::sleep;

/// Statements under way at once: one that waits for the disk, and one that the server is executing
/// meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// Jobs that are worth a statement of their own, however many callers there are.
const PARALLEL_JOBS_MIN: usize = 250;
/// Callers that are worth a second statement in parallel: a statement costs as much as a dozen
/// jobs.
const SHARE_MIN: usize = 12;
/// How long fewer callers wait for the statement under way: if it waits for a lock, it must not
/// delay them all.
const PARALLEL_WAIT: Duration = Duration::from_millis(2);
/// How long a statement is delayed for callers that just got an answer: most of them have more to
/// push, and return one after the other.
const RETURN_WAIT: Duration = Duration::from_micros(200);
/// How often the loop finds no further call before it sends a statement, if no caller is expected
/// to return.
const QUIET_MAX: usize = 8;

/// Takes calls, and sends them in shared batches.
pub(super) struct SharedBatcher {
    calls: mpsc::Sender<EnqueueCall>,
    traffic: Arc<CallerTraffic>,
}

impl SharedBatcher {
    /// Starts the batching task. Needs a runtime.
    pub(super) fn start(sender: BatchSender) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let traffic = Arc::<CallerTraffic>::default();
        tokio::spawn(gather(sender, waiting, Arc::clone(&traffic)));
        Self { calls, traffic }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// Sends a call to the batching task; returns whether that is still there.
    pub(super) async fn submit(&self, call: EnqueueCall) -> bool {
        let Ok(place) = self.calls.reserve().await else {
            return false;
        };
        // The order matters: the call is counted before the task can send it, and once counted it
        // is sent for certain, because its place in the channel is reserved.
        let is_waking = self.traffic.record_arrival(call.jobs.len());
        place.send(call);
        if is_waking {
            self.traffic.wake.notify_one();
        }
        true
    }
}

/// Collects waiting calls into statements, as many as fit into one.
async fn gather(
    sender: BatchSender,
    mut waiting: mpsc::Receiver<EnqueueCall>,
    traffic: Arc<CallerTraffic>,
) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let mut carried = None;
    loop {
        let Ok(slot) = Arc::clone(&under_way).acquire_owned().await else {
            return;
        };
        let first = match carried.take() {
            Some(call) => call,
            None => match waiting.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let mut batch = NextBatch::of(first);
        batch.fill(&mut waiting, &traffic).await;
        carried = batch.left.take();
        traffic.record_sent(batch.calls.len(), batch.jobs);
        let (sender, traffic) = (sender.clone(), Arc::clone(&traffic));
        tokio::spawn(async move {
            let sent = batch.calls.len();
            // Before the callers get their answers: a caller that returns at once must be counted
            // as returning.
            sender
                .send(batch.calls, BatchKind::Shared, || {
                    traffic.record_answered(sent);
                })
                .await;
            drop(slot);
        });
    }
}

/// Estimates how many callers there are: those that wait, those whose statement is under way, and
/// those that just got an answer.
#[derive(Default)]
struct CallerTraffic {
    /// The calls that are not under way yet, and their jobs.
    waiting: AtomicUsize,
    waiting_jobs: AtomicUsize,
    under_way: AtomicUsize,
    /// The callers that got an answer and have not returned yet.
    returning: AtomicUsize,
    /// Notified only when a batch may be complete: waking the task for every call would cost more
    /// than the call.
    wake: Notify,
}

impl CallerTraffic {
    /// Counts a call; returns whether the batching task must be woken for it.
    fn record_arrival(&self, jobs: usize) -> bool {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        let waiting_jobs = self.waiting_jobs.fetch_add(jobs, Ordering::AcqRel) + jobs;
        self.is_idle() || waiting_jobs >= PARALLEL_JOBS_MIN || waiting >= self.fair_share()
    }

    fn record_sent(&self, calls: usize, jobs: usize) {
        self.under_way.fetch_add(calls, Ordering::AcqRel);
        self.waiting.fetch_sub(calls, Ordering::AcqRel);
        self.waiting_jobs.fetch_sub(jobs, Ordering::AcqRel);
        let came_back = |returning: usize| Some(returning.saturating_sub(calls));
        let _ = self
            .returning
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, came_back);
    }

    fn record_answered(&self, calls: usize) {
        self.returning.fetch_add(calls, Ordering::AcqRel);
        self.under_way.fetch_sub(calls, Ordering::AcqRel);
        self.wake.notify_one();
    }

    /// Stops waiting for callers that have not returned.
    fn forget(&self) {
        self.returning.store(0, Ordering::Release);
    }

    fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    fn expects_more(&self) -> bool {
        self.returning.load(Ordering::Acquire) > self.waiting.load(Ordering::Acquire)
    }

    /// The number of calls that make a statement: an equal share of all callers, so that parallel
    /// statements are of similar size. Callers that get their answers together stay together.
    fn fair_share(&self) -> usize {
        let here = self
            .waiting
            .load(Ordering::Acquire)
            .max(self.returning.load(Ordering::Acquire));
        let callers = here + self.under_way.load(Ordering::Acquire);
        callers.div_ceil((callers / SHARE_MIN).clamp(1, UNDER_WAY_MAX))
    }
}

/// The calls of the next statement.
struct NextBatch {
    calls: Vec<EnqueueCall>,
    jobs: usize,
    bytes: usize,
    /// A call that did not fit; no call is added after it.
    left: Option<EnqueueCall>,
}

impl NextBatch {
    fn of(first: EnqueueCall) -> Self {
        Self {
            jobs: first.jobs.len(),
            bytes: first.bytes,
            calls: vec![first],
            left: None,
        }
    }

    fn take(&mut self, call: EnqueueCall) {
        let (jobs, bytes) = (self.jobs + call.jobs.len(), self.bytes + call.bytes);
        if jobs > ENQUEUE_JOBS_MAX || bytes > ENQUEUE_BYTES_MAX {
            self.left = Some(call);
        } else {
            (self.jobs, self.bytes) = (jobs, bytes);
            self.calls.push(call);
        }
    }

    /// Adds calls until they are worth a statement. It waits a moment for callers that just got an
    /// answer, and longer while another statement is under way.
    async fn fill(&mut self, waiting: &mut mpsc::Receiver<EnqueueCall>, traffic: &CallerTraffic) {
        let patience = sleep(PARALLEL_WAIT);
        tokio::pin!(patience);
        let (mut began, mut quiet) = (Instant::now(), 0);
        while self.jobs < PARALLEL_JOBS_MIN && self.left.is_none() {
            let is_enough = self.calls.len() >= traffic.fair_share();
            if is_enough && (quiet >= QUIET_MAX || !traffic.is_idle() || !waiting.is_empty()) {
                return;
            }
            if let Ok(call) = waiting.try_recv() {
                quiet = 0;
                self.take(call);
                continue;
            }
            if began.elapsed() >= RETURN_WAIT {
                traffic.forget();
            }
            if traffic.is_idle() && (is_enough || traffic.expects_more()) {
                quiet += 1;
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = traffic.wake.notified() => began = Instant::now(),
                () = &mut patience => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
