//! A store that refuses the ends of some jobs for good, as one does that cannot hold what they say;
//! all others it takes.

use crate::forward::{forward_cells, forward_operator, forward_store, forward_streams};
use async_trait::async_trait;
use backstop_core::port::{
    BeatRequest, BeatResult, Claim, ClaimResult, EnqueueOutcome, HintSubscription, JobStore,
    PromoteResult, SeizeRequest, SeizeResult, SettleOutcome, Store, StoreError, StoreResult,
};
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, Lease, NewJob, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store that refuses the ends of some jobs for good, and whatever it is told together with them.
pub struct Strict {
    inner: Arc<dyn Store>,
    refused: BTreeSet<JobId>,
}

impl Strict {
    /// Around this store, for jobs of these names.
    pub fn new(inner: Arc<dyn Store>, refused: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let refused = refused
            .into_iter()
            .map(|name| JobId::named(name.as_ref()))
            .collect();
        Self { inner, refused }
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

#[async_trait]
impl JobStore for Strict {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        self.inner.enqueue(jobs, now).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        self.inner.claim(claim, now).await
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> StoreResult<Vec<Lease>> {
        self.inner.begin(leases, now).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        if settlements
            .iter()
            .any(|settlement| self.refused.contains(&settlement.lease.job))
        {
            return Err(StoreError::misuse("settling", "an end that cannot be held"));
        }
        self.inner.settle(settlements, now).await
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        self.inner.beat(beat, now).await
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        self.inner.promote(max, now).await
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        self.inner.seize(seize, now).await
    }
}

forward_operator!(Strict);
forward_cells!(Strict);
forward_streams!(Strict);
forward_store!(Strict);
