//! Many callers, one commit: whatever is handed in while the last statements are under way is the next one.

use crate::enqueue::enqueue;
use crate::link::{Commit, Link};
use backstop_core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use backstop_core::port::{Answer, Enqueued, StoreError};
use backstop_core::{NewJob, Time};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Calls that may wait to be grouped; more than that wait to wait.
const WAITING_MAX: usize = 4_096;
/// Statements under way at once: one that waits for the disk, and one that the server works on meanwhile.
const UNDER_WAY_MAX: usize = 2;
/// Looks for another call that find none before a statement is sent. Callers that were answered at once come back one
/// after the other, and would otherwise make many small statements of what fits into one.
const QUIET_MAX: usize = 8;
const DOING: &str = "enqueueing";

/// A call that waits.
struct Call {
    jobs: Vec<NewJob>,
    bytes: usize,
    /// Whether it may have to wait for others: then it does not make those wait that need not.
    keyed: bool,
    now: Time,
    answer: oneshot::Sender<Answer<Vec<Enqueued>>>,
}

/// Where calls are handed in.
pub(crate) struct Group(mpsc::Sender<Call>);

impl Group {
    /// Begins to take calls in. Needs a runtime.
    pub(crate) fn begin(link: Arc<Link>, commit: Commit, done: impl Fn() + Send + Sync + 'static) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(gather(link, commit, waiting, Arc::new(done)));
        Self(calls)
    }

    /// Whether it takes nothing in any more: its runtime is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Takes jobs in with whatever else waits.
    pub(crate) async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        let (answer, answered) = oneshot::channel();
        let bytes = jobs.iter().map(|job| job.payload.len()).sum();
        let keyed = jobs.iter().any(|job| job.unique.is_some());
        let gone = || StoreError::unavailable(DOING, "the store is being closed");
        self.0.send(Call { jobs, bytes, keyed, now, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Puts waiting calls together, as many as fit into one.
async fn gather(
    link: Arc<Link>,
    commit: Commit,
    mut waiting: mpsc::Receiver<Call>,
    done: Arc<dyn Fn() + Send + Sync>,
) {
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
        let (mut jobs, mut bytes, mut calls) = (first.jobs.len(), first.bytes, vec![first]);
        let mut quiet = 0;
        while quiet < QUIET_MAX {
            let Ok(call) = waiting.try_recv() else {
                quiet += 1;
                tokio::task::yield_now().await;
                continue;
            };
            quiet = 0;
            let fits = jobs + call.jobs.len() <= ENQUEUE_JOBS_MAX && bytes + call.bytes <= ENQUEUE_BYTES_MAX;
            if !fits || call.keyed != calls[0].keyed {
                carried = Some(call);
                break;
            }
            jobs += call.jobs.len();
            bytes += call.bytes;
            calls.push(call);
        }
        let (link, done) = (Arc::clone(&link), Arc::clone(&done));
        tokio::spawn(async move {
            send(&link, commit, calls, &*done).await;
            drop(slot);
        });
    }
}

/// Sends calls as one statement. What the store refuses for good is refused to its own caller only.
async fn send(link: &Link, commit: Commit, calls: Vec<Call>, done: &(dyn Fn() + Send + Sync)) {
    // A caller that went away may have handed the same jobs in again: harmless, but not worth a statement.
    let calls: Vec<Call> = calls.into_iter().filter(|call| !call.answer.is_closed()).collect();
    let together = enqueue(link, commit, all(&calls)).await;
    match together {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for call in calls {
                let own = answers.by_ref().take(call.jobs.len()).collect();
                reply(call, Ok(own), done);
            }
        }
        Err(error) if error.is_transient() || calls.len() == 1 => {
            for call in calls {
                reply(call, Err(error.clone()), done);
            }
        }
        Err(_) => {
            for call in calls {
                let own = enqueue(link, commit, call.jobs.iter().map(|job| (job, call.now))).await;
                reply(call, own, done);
            }
        }
    }
}

fn all(calls: &[Call]) -> impl Iterator<Item = (&NewJob, Time)> {
    calls.iter().flat_map(|call| call.jobs.iter().map(|job| (job, call.now)))
}

/// Answers, and then gives a hint: whoever follows it finds the jobs there.
fn reply(call: Call, answer: Answer<Vec<Enqueued>>, done: &(dyn Fn() + Send + Sync)) {
    let stirred = answer.as_ref().is_ok_and(|answers| answers.contains(&Enqueued::Inserted));
    // A caller that went away asks again, or does not care.
    let _ = call.answer.send(answer);
    if stirred {
        done();
    }
}
