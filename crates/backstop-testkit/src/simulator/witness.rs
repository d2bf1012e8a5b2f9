//! Stands right before the store and writes down what it gave out and which settlements it
//! accepted, whoever hears of it.

use crate::forward::{forward_cells, forward_operator, forward_store, forward_streams};
use crate::history::Recorder;
use async_trait::async_trait;
use backstop_core::port::{
    BeatRequest, BeatResult, Claim, ClaimResult, EnqueueOutcome, HintSubscription, JobStore,
    PromoteResult, SeizeRequest, SeizeResult, SettleOutcome, Store, StoreResult,
};
use backstop_core::verdict::Settlement;
use backstop_core::{Lease, NewJob, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The store, watched.
pub(super) struct Witness {
    inner: Arc<dyn Store>,
    recorder: Recorder,
    /// What was accepted before: a repetition is answered alike, and is no second acceptance.
    accepted: Mutex<BTreeSet<(Lease, u8)>>,
}

impl Witness {
    pub(super) fn new(inner: Arc<dyn Store>, recorder: Recorder) -> Self {
        Self {
            inner,
            recorder,
            accepted: Mutex::default(),
        }
    }

    async fn pass<T, F>(&self, _: &'static str, call: impl Fn() -> F + Send) -> StoreResult<T>
    where
        T: Send,
        F: Future<Output = StoreResult<T>> + Send,
    {
        call().await
    }

    fn hints(&self) -> Box<dyn HintSubscription> {
        self.inner.watch()
    }

    fn note(&self, settlement: &Settlement) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.insert((settlement.lease.clone(), settlement.outcome.tag())) {
            self.recorder.accepted(settlement);
        }
    }
}

#[async_trait]
impl JobStore for Witness {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        self.inner.enqueue(jobs, now).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        let granted = self.inner.claim(claim, now).await?;
        for run in &granted.runs {
            self.recorder.granted(&run.lease);
        }
        Ok(granted)
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> StoreResult<Vec<Lease>> {
        self.inner.begin(leases, now).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        let answers = self.inner.settle(settlements.clone(), now).await?;
        let applied = settlements
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| **answer == SettleOutcome::Applied);
        applied.for_each(|(settlement, _)| self.note(settlement));
        Ok(answers)
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        self.inner.beat(beat, now).await
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        self.inner.promote(max, now).await
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        let seizure = self.inner.seize(seize, now).await?;
        for seized in &seizure.runs {
            self.recorder.granted(&seized.run.lease);
        }
        Ok(seizure)
    }
}

forward_cells!(Witness);
forward_streams!(Witness);
forward_operator!(Witness);
forward_store!(Witness);
