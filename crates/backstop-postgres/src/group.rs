//! Many callers, one commit.
//!
//! Pushes that wait for nobody share statements (`share.rs`). One that may have to wait for
//! somebody's transaction goes by its queue (`lanes.rs`): whatever holds it up, it holds up no
//! other queue.

mod known;
mod lanes;
mod share;

use crate::enqueue::enqueue;
use crate::link::{Commit, Failure, Link};
use backstop_core::port::{Answer, Enqueued, StoreError};
use backstop_core::{NewJob, Time};
use futures_util::stream::{self, StreamExt};
use known::Known;
use lanes::Lanes;
use share::Share;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Calls that may wait to be grouped; more than that wait to wait.
const WAITING_MAX: usize = 4_096;
/// Of calls that waited together in vain: how many are tried by themselves at once, and how long in
/// all.
const ALONE_AT_ONCE: usize = 2;
const ALONE_TIME_MAX: Duration = Duration::from_secs(4);
const DOING: &str = "enqueueing";

/// A call that waits.
struct Call {
    jobs: Vec<NewJob>,
    bytes: usize,
    now: Time,
    answer: oneshot::Sender<Answer<Vec<Enqueued>>>,
}

/// Where calls are handed in.
pub(crate) struct Group {
    share: Share,
    lanes: mpsc::Sender<Call>,
    known: Known,
}

impl Group {
    /// Begins to take calls in. Needs a runtime.
    pub(crate) fn begin(
        link: Arc<Link>,
        commit: Commit,
        max_queues: usize,
        done: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (lanes, waiting) = mpsc::channel(WAITING_MAX);
        let known = Known::default();
        let slots = Lanes::slots(link.connections());
        let done = Arc::new(done);
        let way = Way {
            link,
            commit,
            max_queues,
            known: known.clone(),
            lanes: lanes.downgrade(),
            done,
        };
        tokio::spawn(lanes::serve(way.clone(), waiting, slots));
        Self {
            share: Share::begin(way),
            lanes,
            known,
        }
    }

    /// Whether it takes nothing in any more: its runtime is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.share.is_closed()
    }

    /// Takes jobs in with whatever else waits.
    pub(crate) async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        let (answer, answered) = oneshot::channel();
        let bytes = jobs.iter().map(|job| job.payload.len()).sum();
        let waits_for_nobody =
            self.known.are_open(&jobs) && jobs.iter().all(|job| job.unique.is_none());
        let call = Call {
            jobs,
            bytes,
            now,
            answer,
        };
        let is_taken = if waits_for_nobody {
            self.share.give(call).await
        } else {
            self.lanes.send(call).await.is_ok()
        };
        let gone = || StoreError::unavailable(DOING, "the store is being closed");
        if is_taken {
            answered.await.map_err(|_| gone())?
        } else {
            Err(gone())
        }
    }
}

/// How calls are sent, and who is told.
#[derive(Clone)]
struct Way {
    link: Arc<Link>,
    commit: Commit,
    max_queues: usize,
    known: Known,
    /// For those that wait though nobody thought so. They end with the group, not with this.
    lanes: mpsc::WeakSender<Call>,
    done: Arc<dyn Fn() + Send + Sync>,
}

/// Which calls go together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// All that wait for nobody.
    Shared,
    /// Those of one queue.
    Lane,
}

impl Way {
    /// Sends calls as one statement. What concerns one of them is answered to its own caller only.
    async fn send(&self, calls: Vec<Call>, place: Place, answered: impl FnOnce()) {
        // A caller that went away may have handed the same jobs in again: harmless, but not worth a
        // statement.
        let calls: Vec<Call> = calls
            .into_iter()
            .filter(|call| !call.answer.is_closed())
            .collect();
        let answer = self.enqueue(all(&calls)).await;
        answered();
        match answer {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for call in calls {
                    let own = answers.by_ref().take(call.jobs.len()).collect();
                    reply(call, Ok(own));
                }
            }
            Err(Failure::InTheWay(error)) if place == Place::Shared => self.part(calls, &error),
            Err(Failure::InTheWay(error)) => self.send_alone(calls, &error).await,
            Err(Failure::Passing(error) | Failure::Lasting(error)) => {
                let is_everybodys = error.is_transient() || calls.len() == 1;
                for call in calls {
                    let own = if is_everybodys {
                        Err(error.clone())
                    } else {
                        self.enqueue_one(&call).await
                    };
                    reply(call, own);
                }
            }
        }
    }

    /// One of these queues is not open to everybody any more; from now on each is by itself, until
    /// it proves to be.
    fn part(&self, calls: Vec<Call>, error: &StoreError) {
        for call in calls {
            self.known.forget(&call.jobs);
            let unsent = match self.lanes.upgrade() {
                Some(lanes) => lanes
                    .try_send(call)
                    .err()
                    .map(mpsc::error::TrySendError::into_inner),
                None => Some(call),
            };
            if let Some(call) = unsent {
                reply(call, Err(error.clone()));
            }
        }
    }

    /// Of calls that waited for a lock: those that need not wait for it go in, as far as there is
    /// time. If their queue is still to come into being, all of them wait for the same.
    async fn send_alone(&self, calls: Vec<Call>, error: &StoreError) {
        let (deadline, is_lone) = (Instant::now() + ALONE_TIME_MAX, calls.len() == 1);
        let alone = stream::iter(calls).map(|call| async move {
            let is_in_vain = is_lone || call.answer.is_closed() || !self.known.are_seen(&call.jobs);
            let is_late = Instant::now() >= deadline;
            let own = if is_in_vain || is_late {
                Err(error.clone())
            } else {
                self.enqueue_one(&call).await
            };
            reply(call, own);
        });
        alone.buffer_unordered(ALONE_AT_ONCE).collect::<()>().await;
    }

    async fn enqueue_one(&self, call: &Call) -> Answer<Vec<Enqueued>> {
        self.enqueue(all(std::slice::from_ref(call)))
            .await
            .map_err(Failure::into_error)
    }

    /// Sends jobs as one statement, tells who waits for work, and remembers what it shows of their
    /// queues.
    async fn enqueue<'a>(
        &self,
        jobs: impl Iterator<Item = (&'a NewJob, Time)> + Clone,
    ) -> Result<Vec<Enqueued>, Failure> {
        let taken = enqueue(&self.link, self.commit, self.max_queues, jobs.clone()).await?;
        // One that took nothing in may not be there.
        let inserted = jobs
            .zip(&taken.answers)
            .filter(|(_, answer)| **answer == Enqueued::Inserted);
        self.known
            .note(inserted.map(|((job, _), _)| &job.queue), taken.bounded);
        if taken.answers.contains(&Enqueued::Inserted) {
            (self.done)();
        }
        Ok(taken.answers)
    }
}

fn reply(call: Call, answer: Answer<Vec<Enqueued>>) {
    // A caller that went away asks again, or does not care.
    let _ = call.answer.send(answer);
}

fn all(calls: &[Call]) -> impl Iterator<Item = (&NewJob, Time)> + Clone {
    calls
        .iter()
        .flat_map(|call| call.jobs.iter().map(|job| (job, call.now)))
}
