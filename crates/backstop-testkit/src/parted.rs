//! A store of which a part can be gone, as of a cluster: its queues do not answer, the others do.

use crate::forward::{forward_cells, forward_operator, forward_store, forward_streams};
use async_trait::async_trait;
use backstop_core::port::{
    Answer, Backlog, Beat, Claim, Enqueued, Hints, Promoted, Seize, Seized, Settled, Store, StoreError,
};
use backstop_core::verdict::Settlement;
use backstop_core::{Lease, Leased, NewJob, QueueName, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A store of which a part can be gone. What a call has for the other queues is done; it fails all the same where it has to answer
/// for all of them.
pub struct Parted {
    inner: Arc<dyn Store>,
    gone: Mutex<BTreeSet<QueueName>>,
}

impl Parted {
    /// Around this store, whole.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, gone: Mutex::default() }
    }

    /// From now on these queues do not answer, and all others do.
    pub fn set_gone(&self, queues: impl IntoIterator<Item = QueueName>) {
        *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = queues.into_iter().collect();
    }

    fn is_gone(&self, queue: &QueueName) -> bool {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).contains(queue)
    }

    fn is_whole(&self) -> bool {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// What is for queues that answer, and whether that is all.
    fn there<T>(&self, all: Vec<T>, queue: impl Fn(&T) -> &QueueName) -> (Vec<T>, bool) {
        let count = all.len();
        let there: Vec<T> = all.into_iter().filter(|one| !self.is_gone(queue(one))).collect();
        let is_all = there.len() == count;
        (there, is_all)
    }

    async fn pass<T, F>(&self, _doing: &'static str, call: impl Fn() -> F + Send) -> Answer<T>
    where
        F: Future<Output = Answer<T>> + Send,
    {
        call().await
    }

    fn hints(&self) -> Box<dyn Hints> {
        self.inner.watch()
    }
}

fn gone<T>(doing: &'static str) -> Answer<T> {
    Err(StoreError::unavailable(doing, "this part is gone"))
}

#[async_trait]
impl Backlog for Parted {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        let (there, is_all) = self.there(jobs, |job| &job.queue);
        let answers = self.inner.enqueue(there, now).await?;
        if is_all { Ok(answers) } else { gone("enqueueing") }
    }

    async fn claim(&self, mut claim: Claim, now: Time) -> Answer<Vec<Leased>> {
        let wanted = claim.wants.len();
        claim.wants.retain(|want| !self.is_gone(&want.queue));
        if claim.wants.is_empty() && wanted > 0 {
            gone("claiming")
        } else {
            self.inner.claim(claim, now).await
        }
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> Answer<Vec<Lease>> {
        let (there, is_all) = self.there(leases, |lease| &lease.queue);
        let lost = self.inner.begin(there, now).await?;
        if is_all { Ok(lost) } else { gone("noting that runs begin") }
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        let (there, is_all) = self.there(settlements, |settlement| &settlement.lease.queue);
        let answers = self.inner.settle(there, now).await?;
        if is_all { Ok(answers) } else { gone("settling") }
    }

    async fn beat(&self, mut beat: Beat, now: Time) -> Answer<Vec<Lease>> {
        let (there, is_all) = self.there(std::mem::take(&mut beat.leases), |lease| &lease.queue);
        let lost = self.inner.beat(Beat { leases: there, ..beat }, now).await?;
        if is_all { Ok(lost) } else { gone("beating") }
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        self.inner.promote(max, now).await
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Vec<Seized>> {
        if self.is_whole() { self.inner.seize(seize, now).await } else { Ok(Vec::new()) }
    }
}

forward_operator!(Parted);
forward_cells!(Parted);
forward_streams!(Parted);
forward_store!(Parted);
