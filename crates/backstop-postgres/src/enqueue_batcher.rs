//! Many callers, one commit.
//!
//! Pushes that wait for nobody share statements (`share.rs`). One that may have to wait for
//! somebody's transaction goes by its queue (`lanes.rs`): whatever holds it up, it holds up no
//! other queue.

mod known_queues;
mod per_queue;
mod shared;

use crate::enqueue::enqueue;
use crate::link::{CallFailure, CommitMode, PostgresLink};
use backstop_core::port::{EnqueueOutcome, StoreError, StoreResult};
use backstop_core::{NewJob, Time};
use futures_util::stream::{self, StreamExt};
use known_queues::KnownQueues;
use per_queue::PerQueueBatcher;
use shared::SharedBatcher;
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

struct EnqueueCall {
    jobs: Vec<NewJob>,
    bytes: usize,
    now: Time,
    answer: oneshot::Sender<StoreResult<Vec<EnqueueOutcome>>>,
}

/// Where calls are handed in.
pub(crate) struct EnqueueBatcher {
    shared: SharedBatcher,
    per_queue: mpsc::Sender<EnqueueCall>,
    known_queues: KnownQueues,
}

impl EnqueueBatcher {
    /// Begins to take calls in. Needs a runtime.
    pub(crate) fn start(
        link: Arc<PostgresLink>,
        commit: CommitMode,
        max_queues: usize,
        on_inserted: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (per_queue, waiting) = mpsc::channel(WAITING_MAX);
        let known_queues = KnownQueues::default();
        let slots = PerQueueBatcher::slots(link.connections());
        let on_inserted = Arc::new(on_inserted);
        let sender = BatchSender {
            link,
            commit,
            max_queues,
            known_queues: known_queues.clone(),
            per_queue: per_queue.downgrade(),
            on_inserted,
        };
        tokio::spawn(per_queue::serve(sender.clone(), waiting, slots));
        Self {
            shared: SharedBatcher::start(sender),
            per_queue,
            known_queues,
        }
    }

    /// Whether it takes nothing in any more: its runtime is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Takes jobs in with whatever else waits.
    pub(crate) async fn enqueue(
        &self,
        jobs: Vec<NewJob>,
        now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        let (answer, answered) = oneshot::channel();
        let bytes = jobs.iter().map(|job| job.payload.len()).sum();
        let waits_for_nobody =
            self.known_queues.are_open(&jobs) && jobs.iter().all(|job| job.unique.is_none());
        let call = EnqueueCall {
            jobs,
            bytes,
            now,
            answer,
        };
        let is_taken = if waits_for_nobody {
            self.shared.submit(call).await
        } else {
            self.per_queue.send(call).await.is_ok()
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
struct BatchSender {
    link: Arc<PostgresLink>,
    commit: CommitMode,
    max_queues: usize,
    known_queues: KnownQueues,
    /// For those that wait though nobody thought so. They end with the group, not with this.
    per_queue: mpsc::WeakSender<EnqueueCall>,
    on_inserted: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchKind {
    /// All that wait for nobody.
    Shared,
    PerQueue,
}

impl BatchSender {
    /// Sends calls as one statement. What concerns one of them is answered to its own caller only.
    async fn send(&self, calls: Vec<EnqueueCall>, kind: BatchKind, answered: impl FnOnce()) {
        // A caller that went away may have handed the same jobs in again: harmless, but not worth a
        // statement.
        let calls: Vec<EnqueueCall> = calls
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
            Err(CallFailure::InTheWay(error)) if kind == BatchKind::Shared => {
                self.requeue_per_queue(calls, &error);
            }
            Err(CallFailure::InTheWay(error)) => self.send_alone(calls, &error).await,
            Err(CallFailure::Passing(error) | CallFailure::Lasting(error)) => {
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
    fn requeue_per_queue(&self, calls: Vec<EnqueueCall>, error: &StoreError) {
        for call in calls {
            self.known_queues.forget(&call.jobs);
            let unsent = match self.per_queue.upgrade() {
                Some(per_queue) => per_queue
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
    async fn send_alone(&self, calls: Vec<EnqueueCall>, error: &StoreError) {
        let (deadline, is_lone) = (Instant::now() + ALONE_TIME_MAX, calls.len() == 1);
        let alone = stream::iter(calls).map(|call| async move {
            let is_in_vain =
                is_lone || call.answer.is_closed() || !self.known_queues.are_seen(&call.jobs);
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

    async fn enqueue_one(&self, call: &EnqueueCall) -> StoreResult<Vec<EnqueueOutcome>> {
        self.enqueue(all(std::slice::from_ref(call)))
            .await
            .map_err(CallFailure::into_error)
    }

    /// Sends jobs as one statement, tells who waits for work, and remembers what it shows of their
    /// queues.
    async fn enqueue<'a>(
        &self,
        jobs: impl Iterator<Item = (&'a NewJob, Time)> + Clone,
    ) -> Result<Vec<EnqueueOutcome>, CallFailure> {
        let taken = enqueue(&self.link, self.commit, self.max_queues, jobs.clone()).await?;
        // One that took nothing in may not be there.
        let inserted = jobs
            .zip(&taken.answers)
            .filter(|(_, answer)| **answer == EnqueueOutcome::Inserted);
        self.known_queues
            .note(inserted.map(|((job, _), _)| &job.queue), taken.bounded);
        if taken.answers.contains(&EnqueueOutcome::Inserted) {
            (self.on_inserted)();
        }
        Ok(taken.answers)
    }
}

fn reply(call: EnqueueCall, answer: StoreResult<Vec<EnqueueOutcome>>) {
    // A caller that went away asks again, or does not care.
    let _ = call.answer.send(answer);
}

fn all(calls: &[EnqueueCall]) -> impl Iterator<Item = (&NewJob, Time)> + Clone {
    calls
        .iter()
        .flat_map(|call| call.jobs.iter().map(|job| (job, call.now)))
}
