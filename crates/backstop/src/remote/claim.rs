//! Claiming on behalf of workers elsewhere, where a part of the store may be away, as of a cluster.
//!
//! | a queue | then |
//! |---|---|
//! | is asked | together with all others of the request, under one number |
//! | did not answer, and others did | what it granted all the same nobody knows, and the others' beats keep it: it is asked again under the same number until it answers, and what it says goes back |
//! | did not answer less than [`SILENT_FOR`] ago | is left out where others are asked: it would hold them up, and leave a number behind each time |
//! | did not answer longer ago | one request at a time asks it again |

use super::guards::Allowed;
use super::lease::Ask;
use super::{Attendance, Remote, back};
use crate::client::Backstop;
use backstop_core::plan::Want;
use backstop_core::port::{Answer, Claim, Claimed};
use backstop_core::{Leased, QueueName, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const SILENT_FOR: Span = Span::secs(10);
/// Queues that are remembered as silent; more are asked as if they were not.
const SILENT_MAX: usize = 10_000;
/// Numbers that are asked for again at a time. Of more what they granted lies until nobody beats for its neighbours.
const RECALLS_MAX: usize = 256;
/// Between two of these questions, at first and at last; and how many there are, over an hour together.
const RECALL_FIRST: Duration = Duration::from_secs(1);
const RECALL_LAST: Duration = Duration::from_secs(30);
const RECALL_TRIES: u32 = 125;

/// Queues that did not answer while others did, and what is asked of them again.
#[derive(Debug)]
pub(super) struct Silence {
    since: Mutex<BTreeMap<QueueName, Time>>,
    recalls: Arc<Semaphore>,
}

impl Default for Silence {
    fn default() -> Self {
        Self { since: Mutex::default(), recalls: Arc::new(Semaphore::new(RECALLS_MAX)) }
    }
}

impl Silence {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, Time>> {
        // One map, always whole.
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves of `wants` what is to be asked for. Silent queues are, if it is time again, or nothing else is left.
    pub(super) fn leave_out(&self, wants: Vec<Want>, now: Time) -> Vec<Want> {
        let mut since = self.lock();
        if since.is_empty() {
            return wants;
        }
        let is_silent =
            |want: &Want| since.get(&want.queue).is_some_and(|at| *at <= now && now.since(*at) < SILENT_FOR);
        let (silent, heard): (Vec<Want>, Vec<Want>) = wants.into_iter().partition(is_silent);
        for want in &heard {
            // Whoever asks it first asks for all: the others leave it out until it has answered.
            since.entry(want.queue.clone()).and_modify(|at| *at = now);
        }
        if heard.is_empty() { silent } else { heard }
    }

    /// Takes in who answered.
    pub(super) fn note(&self, asked: &[Want], unanswered: &[QueueName], now: Time) {
        let mut since = self.lock();
        if since.is_empty() && unanswered.is_empty() {
            return;
        }
        let unanswered: BTreeSet<&QueueName> = unanswered.iter().collect();
        for want in asked {
            if !unanswered.contains(&want.queue) {
                since.remove(&want.queue);
            } else if since.len() < SILENT_MAX || since.contains_key(&want.queue) {
                since.insert(want.queue.clone(), now);
            }
        }
    }
}

impl Remote<'_> {
    /// One claim of what is allowed.
    pub(super) async fn claim(&self, ask: &Ask, term: Span, allowed: &[Allowed]) -> Answer<Vec<Leased>> {
        let wants = allowed.iter().map(|one| one.want.clone()).collect();
        let wants = self.attendance.silence.leave_out(wants, self.backstop.now());
        let number = self.backstop.random().lease_number();
        let until = self.backstop.now().after(term);
        let claim = Claim { number, worker: ask.worker.clone(), until, wants };
        let Claimed { runs, unanswered } = match self.ask(claim.clone(), term).await {
            // An answer that was lost on the way: the number makes it the same claim.
            Err(error) if error.is_transient() => self.ask(claim.clone(), term).await?,
            answer => answer?,
        };
        self.attendance.silence.note(&claim.wants, &unanswered, self.backstop.now());
        if !unanswered.is_empty() {
            recall(self.backstop, self.attendance, claim, term, &unanswered);
        }
        Ok(runs)
    }

    async fn ask(&self, claim: Claim, term: Span) -> Answer<Claimed> {
        ask(self.backstop, claim, term).await
    }
}

/// Asks for as long from now on, however late.
async fn ask(backstop: &Backstop, claim: Claim, term: Span) -> Answer<Claimed> {
    let now = backstop.now();
    backstop.store().claim(Claim { until: now.after(term), ..claim }, now).await
}

/// Has queues asked again that did not answer, and what they granted given back.
fn recall(backstop: &Backstop, attendance: &Attendance, mut claim: Claim, term: Span, queues: &[QueueName]) {
    claim.wants.retain(|want| queues.contains(&want.queue));
    match Arc::clone(&attendance.silence.recalls).try_acquire_owned() {
        Ok(permit) => drop(tokio::spawn(ask_until_answered(backstop.clone(), claim, term, permit))),
        Err(_) => {
            tracing::warn!(
                ?queues,
                "too many claims are not answered for: what these granted is found when its leases run out"
            );
        }
    }
}

async fn ask_until_answered(backstop: Backstop, mut claim: Claim, term: Span, _permit: OwnedSemaphorePermit) {
    let mut wait = RECALL_FIRST;
    for _ in 0..RECALL_TRIES {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RECALL_LAST);
        match ask(&backstop, claim.clone(), term).await {
            Ok(Claimed { runs, unanswered }) => {
                let leases = runs.into_iter().map(|run| run.lease).collect();
                if let Err(error) = back::release(&backstop, leases).await {
                    tracing::warn!(%error, "what a silent queue granted could not be given back; its leases run out");
                }
                claim.wants.retain(|want| unanswered.contains(&want.queue));
                if claim.wants.is_empty() {
                    return;
                }
            }
            Err(error) if error.is_transient() => {}
            Err(error) => {
                tracing::warn!(%error, "what a silent queue granted cannot be asked for; its leases run out");
                return;
            }
        }
    }
    tracing::error!(wants = ?claim.wants, "queues have not answered for an hour; what they granted is found when its leases run out");
}
