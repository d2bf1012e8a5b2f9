//! Claiming on behalf of workers elsewhere, where a part of the store may be away, as of a cluster.
//!
//! | a queue | then |
//! |---|---|
//! | is asked | together with all others of the request, under one number |
//! | did not answer, and others did | what it granted all the same nobody knows, and the others' beats keep it: it is asked after that number until it answers, and what it granted goes back |
//! | is asked after such a number | is left out where others are asked: it would hold them up, and leave a number behind each time |

use super::guards::Allowed;
use super::lease::Ask;
use super::{Remote, back};
use crate::client::Backstop;
use backstop_core::plan::Want;
use backstop_core::port::{Answer, Claim, Claimed};
use backstop_core::{Lease, Leased, QueueName, Span};
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
pub(super) struct Silence {
    queues: Arc<Mutex<BTreeSet<QueueName>>>,
    recalls: Arc<Semaphore>,
}

impl Default for Silence {
    fn default() -> Self {
        Self {
            queues: Arc::default(),
            recalls: Arc::new(Semaphore::new(RECALLS_MAX)),
        }
    }
}

impl Silence {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<QueueName>> {
        // One set, always whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves of `wants` what is to be asked for: nothing of silent queues, unless nothing else is
    /// wanted.
    fn leave_out(&self, wants: Vec<Want>) -> Vec<Want> {
        let silent = self.lock();
        if silent.is_empty() || wants.iter().all(|want| silent.contains(&want.queue)) {
            return wants;
        }
        wants
            .into_iter()
            .filter(|want| !silent.contains(&want.queue))
            .collect()
    }

    fn begin(&self, wants: &[Want]) {
        self.lock()
            .extend(wants.iter().map(|want| want.queue.clone()));
    }

    fn end<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>) {
        let mut silent = self.lock();
        for queue in queues {
            silent.remove(queue);
        }
    }
}

impl Remote<'_> {
    /// One claim of what is allowed.
    pub(super) async fn claim(
        &self,
        ask: &Ask,
        term: Span,
        allowed: &[Allowed],
    ) -> Answer<Vec<Leased>> {
        let wants = allowed.iter().map(|one| one.want.clone()).collect();
        let wants = self.attendance.silence.leave_out(wants);
        let number = self.backstop.random().lease_number();
        let until = self.backstop.now().after(term);
        let claim = Claim {
            number,
            worker: ask.worker.clone(),
            until,
            wants,
        };
        let Claimed { runs, unanswered } = match claim_again(self.backstop, &claim, term).await {
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
        self.attendance.silence.end(answered);
        if !unanswered.is_empty() {
            recall(
                self.backstop,
                &self.attendance.silence,
                claim,
                term,
                &unanswered,
            );
        }
        Ok(runs)
    }
}

/// Claims for as long from now on, however late.
async fn claim_again(backstop: &Backstop, claim: &Claim, term: Span) -> Answer<Claimed> {
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
fn recall(
    backstop: &Backstop,
    silence: &Silence,
    mut claim: Claim,
    term: Span,
    queues: &[QueueName],
) {
    claim.wants.retain(|want| queues.contains(&want.queue));
    // What was granted is asked for, and nothing more.
    for want in &mut claim.wants {
        want.max = 0;
    }
    match Arc::clone(&silence.recalls).try_acquire_owned() {
        Ok(permit) => {
            silence.begin(&claim.wants);
            drop(tokio::spawn(ask_until_answered(
                backstop.clone(),
                silence.clone(),
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

async fn ask_until_answered(
    backstop: Backstop,
    silence: Silence,
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
                silence.end(answered.filter(|queue| !unanswered.contains(queue)));
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
    silence.end(claim.wants.iter().map(|want| &want.queue));
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
async fn give_back(backstop: &Backstop, claim: &Claim, term: Span) -> Answer<Vec<QueueName>> {
    let Claimed { runs, unanswered } = claim_again(backstop, claim, term).await?;
    // A store that is whole tells all that is under the number, also what the worker has.
    let is_asked = |lease: &Lease| claim.wants.iter().any(|want| want.queue == lease.queue);
    let leases: Vec<Lease> = runs
        .into_iter()
        .map(|run| run.lease)
        .filter(is_asked)
        .collect();
    back::release(backstop, &leases)
        .await
        .map_err(|stuck| stuck.error)?;
    Ok(unanswered)
}
