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
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::sleep;

/// Calls that may wait to be grouped; more than that wait to wait.
const WAITING_MAX: usize = 4_096;
/// Statements under way at once: one that waits for the disk, and one that the server works on meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// Jobs that are worth a statement beside another. Fewer wait for it to end, and for those it answers: a statement costs as much
/// as dozens of jobs, and callers that are answered apart would stay apart.
const BESIDE_MIN: usize = 250;
/// How long they do: one that waits for somebody's lock must not keep everybody waiting.
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
}

impl Group {
    /// Begins to take calls in. Needs a runtime.
    pub(crate) fn begin(link: Arc<Link>, commit: Commit, done: impl Fn() + Send + Sync + 'static) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let bounded = Bounded::default();
        let way = Way { link, commit, bounded: bounded.clone(), done: Arc::new(done) };
        tokio::spawn(gather(way, waiting));
        Self { calls, bounded }
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
        self.calls.send(Call { jobs, bytes, may_wait, now, answer }).await.map_err(|_| gone())?;
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
async fn gather(way: Way, mut waiting: mpsc::Receiver<Call>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let answered = Arc::new(AtomicUsize::new(0));
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
        next.wait_for_others(&mut waiting, &under_way).await;
        next.fill(&mut waiting, answered.swap(0, Ordering::AcqRel)).await;
        carried = next.left.take();
        let (way, answered) = (way.clone(), Arc::clone(&answered));
        tokio::spawn(async move {
            let calls = next.calls.len();
            way.send(next.calls).await;
            answered.fetch_add(calls, Ordering::AcqRel);
            drop(slot);
        });
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

    /// Takes calls in while another statement is under way, until they are worth one of their own.
    async fn wait_for_others(&mut self, waiting: &mut mpsc::Receiver<Call>, under_way: &Semaphore) {
        let patience = sleep(BESIDE_WAIT);
        tokio::pin!(patience);
        while self.jobs < BESIDE_MIN && self.left.is_none() {
            tokio::select! {
                biased;
                _ = under_way.acquire() => return,
                () = &mut patience => return,
                Some(call) = waiting.recv() => self.take(call),
            }
        }
    }

    /// Takes in what is there, and waits a moment for as many calls as were answered last. Calls that are worth a statement of
    /// their own stay apart: two statements beside each other are faster than one of twice the size.
    async fn fill(&mut self, waiting: &mut mpsc::Receiver<Call>, returning: usize) {
        let (began, mut quiet) = (Instant::now(), 0);
        while self.jobs < BESIDE_MIN && self.left.is_none() {
            if let Ok(call) = waiting.try_recv() {
                quiet = 0;
                self.take(call);
                continue;
            }
            let all_are_back = self.calls.len() >= returning || began.elapsed() >= RETURN_WAIT;
            if all_are_back && quiet >= QUIET_MAX {
                return;
            }
            quiet += 1;
            tokio::task::yield_now().await;
        }
    }
}

impl Way {
    /// Sends calls as one statement. What the store refuses for good is refused to its own caller only.
    async fn send(&self, calls: Vec<Call>) {
        // A caller that went away may have handed the same jobs in again: harmless, but not worth a statement.
        let calls: Vec<Call> = calls.into_iter().filter(|call| !call.answer.is_closed()).collect();
        match self.enqueue(all(&calls)).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for call in calls {
                    let own = answers.by_ref().take(call.jobs.len()).collect();
                    self.reply(call, Ok(own));
                }
            }
            Err(error) if error.is_transient() || calls.len() == 1 => {
                for call in calls {
                    self.reply(call, Err(error.clone()));
                }
            }
            Err(_) => {
                for call in calls {
                    let own = self.enqueue(call.jobs.iter().map(|job| (job, call.now))).await;
                    self.reply(call, own);
                }
            }
        }
    }

    async fn enqueue(&self, jobs: impl Iterator<Item = (&NewJob, Time)>) -> Answer<Vec<Enqueued>> {
        self.bounded.note(enqueue(&self.link, self.commit, jobs).await)
    }

    /// Answers, and then gives a hint: whoever follows it finds the jobs there.
    fn reply(&self, call: Call, answer: Answer<Vec<Enqueued>>) {
        let stirred = answer.as_ref().is_ok_and(|answers| answers.contains(&Enqueued::Inserted));
        // A caller that went away asks again, or does not care.
        let _ = call.answer.send(answer);
        if stirred {
            (self.done)();
        }
    }
}

fn all(calls: &[Call]) -> impl Iterator<Item = (&NewJob, Time)> {
    calls.iter().flat_map(|call| call.jobs.iter().map(|job| (job, call.now)))
}
