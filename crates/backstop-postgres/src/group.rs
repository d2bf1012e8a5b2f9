//! Many callers, one commit: whatever is handed in while the last statements are under way is the next one.

use crate::enqueue::{Taken, enqueue};
use crate::link::{Commit, Link};
use backstop_core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use backstop_core::port::{Answer, Enqueued, StoreError};
use backstop_core::{NewJob, QueueName, Time};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::sleep;

/// Calls that may wait to be grouped; more than that wait to wait.
const WAITING_MAX: usize = 4_096;
/// Statements under way at once: one that waits for the disk, and one that the server works on meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// Jobs that are worth a statement, however many callers there are.
const BESIDE_MIN: usize = 250;
/// Callers that are worth a statement beside another: it costs as much as a dozen jobs.
const SHARE_MIN: usize = 12;
/// How long fewer of them wait for the other to end: one that waits for somebody's lock must not keep everybody waiting.
const BESIDE_WAIT: Duration = Duration::from_millis(2);
/// How long a statement is held back for callers that were answered a moment ago: most of them have more to push, and come back
/// one after the other.
const RETURN_WAIT: Duration = Duration::from_micros(200);
/// Looks for another call that find none before a statement is sent, where nobody is expected back.
const QUIET_MAX: usize = 8;
/// Queues with a bound that are remembered; the pushes of others go with everybody's.
const BOUNDED_MAX: usize = 1_024;
const DOING: &str = "enqueueing";

/// A call that waits.
struct Call {
    jobs: Vec<NewJob>,
    bytes: usize,
    /// Whether it may have to wait for others: then it does not make those wait that need not.
    may_wait: bool,
    now: Time,
    answer: oneshot::Sender<Answer<Vec<Enqueued>>>,
}

/// Queues that were seen to have a bound: whoever pushes to one may have to wait for others.
#[derive(Clone, Default)]
struct Bounded(Arc<Mutex<HashSet<QueueName>>>);

impl Bounded {
    fn names(&self) -> MutexGuard<'_, HashSet<QueueName>> {
        // A set is whole between any two of its changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_any_of(&self, jobs: &[NewJob]) -> bool {
        let names = self.names();
        !names.is_empty() && jobs.iter().any(|job| names.contains(&job.queue))
    }

    /// One whose bound is gone stays: its pushes still go in, beside those that may wait.
    fn note(&self, taken: Answer<Taken>) -> Answer<Vec<Enqueued>> {
        let taken = taken?;
        let mut names = self.names();
        if names.len() + taken.bounded.len() <= BOUNDED_MAX {
            names.extend(taken.bounded);
        }
        Ok(taken.answers)
    }
}

/// Where calls are handed in.
pub(crate) struct Group {
    calls: mpsc::Sender<Call>,
    bounded: Bounded,
    traffic: Arc<Traffic>,
}

impl Group {
    /// Begins to take calls in. Needs a runtime.
    pub(crate) fn begin(link: Arc<Link>, commit: Commit, done: impl Fn() + Send + Sync + 'static) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let (bounded, traffic) = (Bounded::default(), Arc::<Traffic>::default());
        let way = Way { link, commit, bounded: bounded.clone(), done: Arc::new(done) };
        tokio::spawn(gather(way, waiting, Arc::clone(&traffic)));
        Self { calls, bounded, traffic }
    }

    /// Whether it takes nothing in any more: its runtime is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// Takes jobs in with whatever else waits.
    pub(crate) async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        let (answer, answered) = oneshot::channel();
        let bytes = jobs.iter().map(|job| job.payload.len()).sum();
        let may_wait = jobs.iter().any(|job| job.unique.is_some()) || self.bounded.has_any_of(&jobs);
        let gone = || StoreError::unavailable(DOING, "the store is being closed");
        let place = self.calls.reserve().await.map_err(|_| gone())?;
        // Counted before it can be sent, and sent for certain once it is counted.
        let is_stirring = self.traffic.comes(jobs.len());
        place.send(Call { jobs, bytes, may_wait, now, answer });
        if is_stirring {
            self.traffic.stirred.notify_one();
        }
        answered.await.map_err(|_| gone())?
    }
}

/// How calls are sent, and who is told.
#[derive(Clone)]
struct Way {
    link: Arc<Link>,
    commit: Commit,
    bounded: Bounded,
    done: Arc<dyn Fn() + Send + Sync>,
}

/// Puts waiting calls together, as many as fit into one.
async fn gather(way: Way, mut waiting: mpsc::Receiver<Call>, traffic: Arc<Traffic>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let mut carried = None;
    loop {
        let Ok(slot) = Arc::clone(&under_way).acquire_owned().await else { return };
        let first = match carried.take() {
            Some(call) => call,
            None => match waiting.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let mut next = Next::of(first);
        next.fill(&mut waiting, &traffic).await;
        carried = next.left.take();
        traffic.sent(next.calls.len(), next.jobs);
        let (way, traffic) = (way.clone(), Arc::clone(&traffic));
        tokio::spawn(async move {
            way.send(next.calls, &traffic).await;
            drop(slot);
        });
    }
}

/// How many callers there are, as far as can be told: those that wait, those under way, and those that were answered a moment ago.
#[derive(Default)]
struct Traffic {
    /// Calls that are not under way yet, and their jobs.
    waiting: AtomicUsize,
    waiting_jobs: AtomicUsize,
    under_way: AtomicUsize,
    /// Of those that were answered: how many are not back yet.
    returning: AtomicUsize,
    /// Rung when there is something to decide: a wake for every call would cost more than the call.
    stirred: Notify,
}

impl Traffic {
    /// Counts a call; tells whether there is something to decide with it.
    fn comes(&self, jobs: usize) -> bool {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        let waiting_jobs = self.waiting_jobs.fetch_add(jobs, Ordering::AcqRel) + jobs;
        self.is_idle() || waiting_jobs >= BESIDE_MIN || waiting >= self.share()
    }

    fn sent(&self, calls: usize, jobs: usize) {
        self.under_way.fetch_add(calls, Ordering::AcqRel);
        self.waiting.fetch_sub(calls, Ordering::AcqRel);
        self.waiting_jobs.fetch_sub(jobs, Ordering::AcqRel);
        let came_back = |returning: usize| Some(returning.saturating_sub(calls));
        let _ = self.returning.fetch_update(Ordering::AcqRel, Ordering::Acquire, came_back);
    }

    fn answered(&self, calls: usize) {
        self.returning.fetch_add(calls, Ordering::AcqRel);
        self.under_way.fetch_sub(calls, Ordering::AcqRel);
        self.stirred.notify_one();
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

    /// Calls that make a statement: a fair part of all callers, so that statements beside each other are alike. Callers that are
    /// answered together stay together.
    fn share(&self) -> usize {
        let here = self.waiting.load(Ordering::Acquire).max(self.returning.load(Ordering::Acquire));
        let callers = here + self.under_way.load(Ordering::Acquire);
        callers.div_ceil((callers / SHARE_MIN).clamp(1, UNDER_WAY_MAX))
    }
}

/// The calls of the next statement.
struct Next {
    calls: Vec<Call>,
    jobs: usize,
    bytes: usize,
    /// One that does not go with them; nothing is taken in after it.
    left: Option<Call>,
}

impl Next {
    fn of(first: Call) -> Self {
        Self { jobs: first.jobs.len(), bytes: first.bytes, calls: vec![first], left: None }
    }

    fn take(&mut self, call: Call) {
        let (jobs, bytes) = (self.jobs + call.jobs.len(), self.bytes + call.bytes);
        if jobs > ENQUEUE_JOBS_MAX || bytes > ENQUEUE_BYTES_MAX || call.may_wait != self.calls[0].may_wait {
            self.left = Some(call);
        } else {
            (self.jobs, self.bytes) = (jobs, bytes);
            self.calls.push(call);
        }
    }

    /// Takes calls in until they are worth a statement: waits a moment for callers that were answered last, and while another
    /// is under way for that.
    async fn fill(&mut self, waiting: &mut mpsc::Receiver<Call>, traffic: &Traffic) {
        let patience = sleep(BESIDE_WAIT);
        tokio::pin!(patience);
        let (mut began, mut quiet) = (Instant::now(), 0);
        while self.jobs < BESIDE_MIN && self.left.is_none() {
            let is_enough = self.calls.len() >= traffic.share();
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
                () = traffic.stirred.notified() => began = Instant::now(),
                () = &mut patience => return,
            }
        }
    }
}

impl Way {
    /// Sends calls as one statement. What the store refuses for good is refused to its own caller only.
    async fn send(&self, calls: Vec<Call>, traffic: &Traffic) {
        let sent = calls.len();
        // A caller that went away may have handed the same jobs in again: harmless, but not worth a statement.
        let calls: Vec<Call> = calls.into_iter().filter(|call| !call.answer.is_closed()).collect();
        let answered = self.enqueue(all(&calls)).await;
        // Before anybody is told: who comes back at once is one of those.
        traffic.answered(sent);
        match answered {
            Ok(answers) => {
                if answers.contains(&Enqueued::Inserted) {
                    (self.done)();
                }
                let mut answers = answers.into_iter();
                for call in calls {
                    let own = answers.by_ref().take(call.jobs.len()).collect();
                    reply(call, Ok(own));
                }
            }
            Err(error) if error.is_transient() || calls.len() == 1 => {
                for call in calls {
                    reply(call, Err(error.clone()));
                }
            }
            Err(_) => {
                for call in calls {
                    let own = self.enqueue(call.jobs.iter().map(|job| (job, call.now))).await;
                    if own.as_ref().is_ok_and(|answers| answers.contains(&Enqueued::Inserted)) {
                        (self.done)();
                    }
                    reply(call, own);
                }
            }
        }
    }

    async fn enqueue(&self, jobs: impl Iterator<Item = (&NewJob, Time)>) -> Answer<Vec<Enqueued>> {
        self.bounded.note(enqueue(&self.link, self.commit, jobs).await)
    }
}

fn reply(call: Call, answer: Answer<Vec<Enqueued>>) {
    // A caller that went away asks again, or does not care.
    let _ = call.answer.send(answer);
}

fn all(calls: &[Call]) -> impl Iterator<Item = (&NewJob, Time)> {
    calls.iter().flat_map(|call| call.jobs.iter().map(|job| (job, call.now)))
}

#[cfg(test)]
mod tests;
