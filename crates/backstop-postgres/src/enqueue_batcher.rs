//! Group commit for pushes: many callers share one statement and one commit.
//!
//! Pushes that wait for no lock share statements (`shared.rs`). A push that may have to wait for
//! another transaction goes through the batches of its queues (`per_queue.rs`): whatever delays it,
//! it delays no other queue.

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

/// Capacity of each channel of calls. When it is full, callers wait to send.
const WAITING_MAX: usize = 4_096;
/// After the calls of a batch waited in vain for a lock, each is tried alone: so many at the same
/// time, and for so long in all.
const ALONE_AT_ONCE: usize = 2;
const ALONE_TIME_MAX: Duration = Duration::from_secs(4);
const DOING: &str = "enqueueing";

struct EnqueueCall {
    jobs: Vec<NewJob>,
    bytes: usize,
    now: Time,
    answer: oneshot::Sender<StoreResult<Vec<EnqueueOutcome>>>,
}

/// Takes enqueue calls and sends them in batches.
pub(crate) struct EnqueueBatcher {
    shared: SharedBatcher,
    per_queue: mpsc::Sender<EnqueueCall>,
    known_queues: KnownQueues,
}

impl EnqueueBatcher {
    /// Starts the batching tasks. Needs a runtime.
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

    /// Whether it accepts no more calls, because its runtime is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Enqueues jobs in a batch with other waiting calls.
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

/// Sends batches, and distributes their answers and hints.
#[derive(Clone)]
struct BatchSender {
    link: Arc<PostgresLink>,
    commit: CommitMode,
    max_queues: usize,
    known_queues: KnownQueues,
    /// For calls that had to wait for a lock though none was expected. Weak, so that the channel
    /// closes with the batcher and not with this sender.
    per_queue: mpsc::WeakSender<EnqueueCall>,
    on_inserted: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchKind {
    /// All calls that should wait for no lock.
    Shared,
    PerQueue,
}

impl BatchSender {
    /// Sends calls as one statement. An error that concerns one call is returned to its own caller
    /// only.
    async fn send(&self, calls: Vec<EnqueueCall>, kind: BatchKind, answered: impl FnOnce()) {
        // Skip calls whose caller is gone. It may have sent the same jobs again, which would be
        // harmless but not worth a statement.
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

    /// A lock blocked this batch, so one of its queues may have a bound by now. From now on its
    /// calls go through the batches of their queues, until a push shows that these have no bound.
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

    /// Tries calls alone after they waited together for a lock, as far as there is time: those that
    /// do not need the lock succeed. If their queue is being created by another transaction, they
    /// all wait for the same lock, and are not tried.
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

    /// Sends jobs as one statement, hints to the workers, and records what the result shows of
    /// their queues.
    async fn enqueue<'a>(
        &self,
        jobs: impl Iterator<Item = (&'a NewJob, Time)> + Clone,
    ) -> Result<Vec<EnqueueOutcome>, CallFailure> {
        let taken = enqueue(&self.link, self.commit, self.max_queues, jobs.clone()).await?;
        // A queue that no job was inserted into may not exist.
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
    // If this fails, the caller is gone: it retries, or does not care.
    let _ = call.answer.send(answer);
}

fn all(calls: &[EnqueueCall]) -> impl Iterator<Item = (&NewJob, Time)> + Clone {
    calls
        .iter()
        .flat_map(|call| call.jobs.iter().map(|job| (job, call.now)))
}
