//! Pushes that wait for nobody: whatever is handed in while the last statements are under way is
//! the next one.

use super::{BatchKind, BatchSender, EnqueueCall, WAITING_MAX};
use backstop_core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::sleep;

/// Statements under way at once: one that waits for the disk, and one that the server works on
/// meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// Jobs that are worth a statement, however many callers there are.
const PARALLEL_JOBS_MIN: usize = 250;
/// Callers that are worth a statement beside another: it costs as much as a dozen jobs.
const SHARE_MIN: usize = 12;
/// How long fewer of them wait for the other to end: one that waits for somebody's lock must not
/// keep everybody waiting.
const PARALLEL_WAIT: Duration = Duration::from_millis(2);
/// How long a statement is held back for callers that were answered a moment ago: most of them have
/// more to push, and come back one after the other.
const RETURN_WAIT: Duration = Duration::from_micros(200);
/// Looks for another call that find none before a statement is sent, where nobody is expected back.
const QUIET_MAX: usize = 8;

/// Where such calls are handed in.
pub(super) struct SharedBatcher {
    calls: mpsc::Sender<EnqueueCall>,
    traffic: Arc<CallerTraffic>,
}

impl SharedBatcher {
    /// Begins to take calls in. Needs a runtime.
    pub(super) fn start(sender: BatchSender) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let traffic = Arc::<CallerTraffic>::default();
        tokio::spawn(gather(sender, waiting, Arc::clone(&traffic)));
        Self { calls, traffic }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// Takes a call in; whether there was somebody to take it.
    pub(super) async fn submit(&self, call: EnqueueCall) -> bool {
        let Ok(place) = self.calls.reserve().await else {
            return false;
        };
        // Counted before it can be sent, and sent for certain once it is counted.
        let is_waking = self.traffic.record_arrival(call.jobs.len());
        place.send(call);
        if is_waking {
            self.traffic.wake.notify_one();
        }
        true
    }
}

/// Puts waiting calls together, as many as fit into one.
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
            // Before anybody is told: who comes back at once is one of those.
            sender
                .send(batch.calls, BatchKind::Shared, || {
                    traffic.record_answered(sent);
                })
                .await;
            drop(slot);
        });
    }
}

/// How many callers there are, as far as can be told: those that wait, those under way, and those
/// that were answered a moment ago.
#[derive(Default)]
struct CallerTraffic {
    /// Calls that are not under way yet, and their jobs.
    waiting: AtomicUsize,
    waiting_jobs: AtomicUsize,
    under_way: AtomicUsize,
    /// Of those that were answered: how many are not back yet.
    returning: AtomicUsize,
    /// Rung when there is something to decide: a wake for every call would cost more than the call.
    wake: Notify,
}

impl CallerTraffic {
    /// Counts a call; tells whether there is something to decide with it.
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

    /// Those that did not come back have gone elsewhere.
    fn forget(&self) {
        self.returning.store(0, Ordering::Release);
    }

    fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    fn expects_more(&self) -> bool {
        self.returning.load(Ordering::Acquire) > self.waiting.load(Ordering::Acquire)
    }

    /// Calls that make a statement: a fair part of all callers, so that statements beside each
    /// other are alike. Callers that are answered together stay together.
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
    /// One that does not go with them; nothing is taken in after it.
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

    /// Takes calls in until they are worth a statement: waits a moment for callers that were
    /// answered last, and while another is under way for that.
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
