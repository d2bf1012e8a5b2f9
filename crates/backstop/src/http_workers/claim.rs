//! Claiming on behalf of workers elsewhere, where a part of the store may be away, as of a cluster.
//!
//! | a queue | then |
//! |---|---|
//! | is asked | together with all others of the request, under one number |
//! | did not answer, and others did | what it granted all the same nobody knows, and the others' beats keep it: it is asked after that number until it answers, and what it granted goes back |
//! | is asked after such a number | is left out where others are asked: it would hold them up, and leave a number behind each time |

use super::admission::HttpPermit;
use super::lease::LeaseRequest;
use super::{HttpWorkers, release};
use crate::client::Backstop;
use backstop_core::plan::QueueQuota;
use backstop_core::port::{Claim, ClaimResult, StoreResult};
use backstop_core::{Lease, LeasedRun, QueueName, Span};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Numbers that are asked after at a time. Of more what they granted lies until nobody beats for
/// its neighbours.
const RECALLS_MAX: usize = 256;
/// Between two of these questions, at first and at last; and how many there are, over an hour
/// together.
const RECALL_FIRST: Duration = Duration::from_secs(1);
const RECALL_LAST: Duration = Duration::from_secs(10);
const RECALL_TRIES: u32 = 365;

/// Queues that did not answer while others did, and are asked until they do.
#[derive(Clone, Debug)]
pub(super) struct HttpUnreachableQueues {
    queues: Arc<Mutex<BTreeSet<QueueName>>>,
    recalls: Arc<Semaphore>,
}

impl Default for HttpUnreachableQueues {
    fn default() -> Self {
        Self {
            queues: Arc::default(),
            recalls: Arc::new(Semaphore::new(RECALLS_MAX)),
        }
    }
}

impl HttpUnreachableQueues {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<QueueName>> {
        // One set, always whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves of `wants` what is to be asked for: nothing of silent queues, unless nothing else is
    /// wanted.
    fn filter_wants(&self, wants: Vec<QueueQuota>) -> Vec<QueueQuota> {
        let unreachable = self.lock();
        if unreachable.is_empty() || wants.iter().all(|want| unreachable.contains(&want.queue)) {
            return wants;
        }
        wants
            .into_iter()
            .filter(|want| !unreachable.contains(&want.queue))
            .collect()
    }

    fn mark(&self, wants: &[QueueQuota]) {
        self.lock()
            .extend(wants.iter().map(|want| want.queue.clone()));
    }

    fn unmark<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>) {
        let mut unreachable = self.lock();
        for queue in queues {
            unreachable.remove(queue);
        }
    }
}

impl HttpWorkers<'_> {
    /// One claim of what is allowed.
    pub(super) async fn claim(
        &self,
        request: &LeaseRequest,
        term: Span,
        permits: &[HttpPermit],
    ) -> StoreResult<Vec<LeasedRun>> {
        let wants = permits.iter().map(|one| one.want.clone()).collect();
        let wants = self.seen_workers.unreachable.filter_wants(wants);
        let number = self.backstop.random().lease_number();
        let until = self.backstop.now().after(term);
        let claim = Claim {
            number,
            worker: request.worker.clone(),
            until,
            wants,
        };
        let ClaimResult { runs, unanswered } = match claim_again(self.backstop, &claim, term).await
        {
            // An answer that was lost on the way: the number makes it the same claim.
            Err(error) if error.is_transient() => claim_again(self.backstop, &claim, term).await?,
            answer => answer?,
        };
        // Who is asked although it was silent has answered.
        let answered = claim
            .wants
            .iter()
            .map(|want| &want.queue)
            .filter(|queue| !unanswered.contains(queue));
        self.seen_workers.unreachable.unmark(answered);
        if !unanswered.is_empty() {
            spawn_recall(
                self.backstop,
                &self.seen_workers.unreachable,
                claim,
                term,
                &unanswered,
            );
        }
        Ok(runs)
    }
}

/// Claims for as long from now on, however late.
async fn claim_again(backstop: &Backstop, claim: &Claim, term: Span) -> StoreResult<ClaimResult> {
    let now = backstop.now();
    backstop
        .store()
        .claim(
            Claim {
                until: now.after(term),
                ..claim.clone()
            },
            now,
        )
        .await
}

/// Has queues asked that did not answer, until they do, and what they granted given back.
fn spawn_recall(
    backstop: &Backstop,
    unreachable: &HttpUnreachableQueues,
    mut claim: Claim,
    term: Span,
    queues: &[QueueName],
) {
    claim.wants.retain(|want| queues.contains(&want.queue));
    // What was granted is asked for, and nothing more.
    for want in &mut claim.wants {
        want.max = 0;
    }
    match Arc::clone(&unreachable.recalls).try_acquire_owned() {
        Ok(permit) => {
            unreachable.mark(&claim.wants);
            drop(tokio::spawn(recall_until_answered(
                backstop.clone(),
                unreachable.clone(),
                claim,
                term,
                permit,
            )));
        }
        Err(_) => {
            tracing::warn!(
                ?queues,
                "too many claims are not answered for: what these granted is found when its leases run out"
            );
        }
    }
}

async fn recall_until_answered(
    backstop: Backstop,
    unreachable: HttpUnreachableQueues,
    mut claim: Claim,
    term: Span,
    _permit: OwnedSemaphorePermit,
) {
    let (mut wait, mut refused) = (RECALL_FIRST, None);
    for _ in 0..RECALL_TRIES {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RECALL_LAST);
        match give_back(&backstop, &claim, term).await {
            Ok(unanswered) => {
                let answered = claim.wants.iter().map(|want| &want.queue);
                unreachable.unmark(answered.filter(|queue| !unanswered.contains(queue)));
                claim.wants.retain(|want| unanswered.contains(&want.queue));
                if claim.wants.is_empty() {
                    return;
                }
            }
            Err(error) if error.is_transient() => {}
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    unreachable.unmark(claim.wants.iter().map(|want| &want.queue));
    match refused {
        Some(error) => {
            tracing::warn!(%error, "what a silent queue granted cannot be asked for; its leases run out");
        }
        None => {
            tracing::error!(wants = ?claim.wants, "queues did not answer; what they granted is found when its leases run out");
        }
    }
}

/// Gives back what was granted under a number; tells who has not answered. Where it cannot be given
/// back, nobody has.
async fn give_back(backstop: &Backstop, claim: &Claim, term: Span) -> StoreResult<Vec<QueueName>> {
    let ClaimResult { runs, unanswered } = claim_again(backstop, claim, term).await?;
    // A store that is whole tells all that is under the number, also what the worker has.
    let is_wanted = |lease: &Lease| claim.wants.iter().any(|want| want.queue == lease.queue);
    let leases: Vec<Lease> = runs
        .into_iter()
        .map(|run| run.lease)
        .filter(is_wanted)
        .collect();
    release::release(backstop, &leases)
        .await
        .map_err(|stuck| stuck.error)?;
    Ok(unanswered)
}
