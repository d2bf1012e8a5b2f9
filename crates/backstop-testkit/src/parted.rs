//! A store of which a part can be gone, as of a cluster: its queues do not answer, the others do.

use crate::forward::{forward_cells, forward_operator, forward_store, forward_streams};
use async_trait::async_trait;
use backstop_core::port::{
    BeatRequest, BeatResult, Claim, ClaimResult, EnqueueOutcome, HintSubscription, JobStore,
    PromoteResult, SeizeRequest, SeizeResult, SettleOutcome, Store, StoreError, StoreResult,
};
use backstop_core::verdict::Settlement;
use backstop_core::{Lease, NewJob, QueueName, Span, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long somebody waits for silence who has others to answer for; and who has not.
const BESIDE: Duration = Duration::from_millis(2_500);
const WHOLE: Duration = Duration::from_secs(9);

/// How a part is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// Whoever asks hears at once that nobody is there.
    Refusing,
    /// Whoever asks hears nothing.
    Silent,
    /// As [`Gone::Refusing`]; but claims are granted before their answers are lost.
    Granting,
}

/// A store of which a part can be gone. What a call has for the other queues is done and answered;
/// it fails if there is nothing else.
pub struct Parted {
    inner: Arc<dyn Store>,
    gone: Mutex<(BTreeSet<QueueName>, Option<Gone>)>,
}

impl Parted {
    /// Around this store, whole.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            gone: Mutex::default(),
        }
    }

    /// From now on these queues do not answer, and all others do.
    pub fn set_gone(&self, queues: impl IntoIterator<Item = QueueName>, how: Gone) {
        *self.lock() = (queues.into_iter().collect(), Some(how));
    }

    /// From now on all queues answer.
    pub fn set_whole(&self) {
        *self.lock() = Default::default();
    }

    fn lock(&self) -> MutexGuard<'_, (BTreeSet<QueueName>, Option<Gone>)> {
        // Two values that are written together.
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_gone(&self, queue: &QueueName) -> bool {
        self.lock().0.contains(queue)
    }

    fn all_gone(&self) -> Vec<QueueName> {
        self.lock().0.iter().cloned().collect()
    }

    /// What is for queues that answer, and the queues of the rest.
    fn there<T>(
        &self,
        all: Vec<T>,
        queue: impl Fn(&T) -> &QueueName,
    ) -> (Vec<T>, BTreeSet<QueueName>) {
        let (gone, there): (Vec<T>, Vec<T>) =
            all.into_iter().partition(|one| self.is_gone(queue(one)));
        (there, gone.iter().map(|one| queue(one).clone()).collect())
    }

    /// Waits for those that say nothing; a sixth of a lease, if one is asked for.
    async fn listen(&self, gone: &BTreeSet<QueueName>, has_others: bool, lease: Option<Span>) {
        if gone.is_empty() || self.lock().1 != Some(Gone::Silent) {
            return;
        }
        let usual = if has_others { BESIDE } else { WHOLE };
        tokio::time::sleep(lease.map_or(usual, |lease| lease.scaled(1.0 / 6.0).into())).await;
    }

    async fn pass<T, F>(&self, _doing: &'static str, call: impl Fn() -> F + Send) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
    {
        call().await
    }

    fn hints(&self) -> Box<dyn HintSubscription> {
        self.inner.watch()
    }
}

fn gone<T>(doing: &'static str) -> StoreResult<T> {
    Err(StoreError::unavailable(doing, "this part is gone"))
}

#[async_trait]
impl JobStore for Parted {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        let (there, away) = self.there(jobs, |job| &job.queue);
        let answers = self.inner.enqueue(there, now).await?;
        if away.is_empty() {
            Ok(answers)
        } else {
            gone("enqueueing")
        }
    }

    async fn claim(&self, mut claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        let lease = claim.until.since(now);
        let (there, away) = self.there(claim.wants.clone(), |want| &want.queue);
        if self.lock().1 != Some(Gone::Granting) {
            claim.wants = there.clone();
        }
        let mut claimed = if claim.wants.is_empty() {
            ClaimResult::default()
        } else {
            self.inner.claim(claim, now).await?
        };
        self.listen(&away, !there.is_empty(), Some(lease)).await;
        if there.is_empty() && !away.is_empty() {
            return gone("claiming");
        }
        claimed.runs.retain(|run| !away.contains(&run.lease.queue));
        claimed.unanswered.extend(away);
        Ok(claimed)
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> StoreResult<Vec<Lease>> {
        let (there, away) = self.there(leases, |lease| &lease.queue);
        let lost = self.inner.begin(there, now).await?;
        if away.is_empty() {
            Ok(lost)
        } else {
            gone("noting that runs begin")
        }
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        let all: Vec<QueueName> = settlements
            .iter()
            .map(|settlement| settlement.lease.queue.clone())
            .collect();
        let (there, away) = self.there(settlements, |settlement| &settlement.lease.queue);
        let has_others = !there.is_empty();
        let mut answers = self.inner.settle(there, now).await?.into_iter();
        self.listen(&away, has_others, None).await;
        if !has_others && !away.is_empty() {
            return gone("settling");
        }
        let answer = |queue: &QueueName| {
            if away.contains(queue) {
                Some(SettleOutcome::Unanswered)
            } else {
                answers.next()
            }
        };
        Ok(all.iter().filter_map(answer).collect())
    }

    async fn beat(&self, mut beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        let (lease, all) = (beat.until.since(now), std::mem::take(&mut beat.leases));
        let (there, away) = self.there(all, |lease| &lease.queue);
        let has_others = !there.is_empty();
        let mut beaten = self
            .inner
            .beat(
                BeatRequest {
                    leases: there,
                    ..beat
                },
                now,
            )
            .await?;
        self.listen(&away, has_others, Some(lease)).await;
        if !has_others && !away.is_empty() {
            return gone("beating");
        }
        beaten.unanswered.extend(away);
        Ok(beaten)
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        let away = self.all_gone();
        let mut promoted = self.inner.promote(max, now).await?;
        self.listen(&away.iter().cloned().collect(), true, None)
            .await;
        promoted.unanswered.extend(away);
        Ok(promoted)
    }

    async fn seize(&self, mut seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        seize.spared.extend(self.all_gone());
        self.inner.seize(seize, now).await
    }
}

forward_operator!(Parted);
forward_cells!(Parted);
forward_streams!(Parted);
forward_store!(Parted);
