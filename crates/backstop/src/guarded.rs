//! A deadline around every call of a store: nothing here waits for ever.

use async_trait::async_trait;
use backstop_core::port::{
    Amended, Amendment, Answer, Backlog, Beat, Claim, Enqueued, Examination, Gate, Hints, Migrated, Operator,
    Page, PageQuery, Promoted, Pruned, QueueStatus, Retention, Seize, Seized, Settled, Store, StoreError,
    WorkerStatus,
};
use backstop_core::verdict::Settlement;
use backstop_core::{Job, JobId, Lease, Leased, NewJob, QueueName, Span, Time};
use std::sync::Arc;
use std::time::Duration;

/// A store whose calls end in time, one way or the other.
pub(crate) struct Guarded {
    inner: Arc<dyn Store>,
    deadline: Duration,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Store>, deadline: Span) -> Self {
        Self { inner, deadline: deadline.into() }
    }

    async fn within<T>(&self, doing: &'static str, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unavailable(doing, format!("no answer within {:?}", self.deadline))),
        }
    }
}

#[async_trait]
impl Backlog for Guarded {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        self.within("enqueueing", self.inner.enqueue(jobs, now)).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> Answer<Vec<Leased>> {
        self.within("claiming", self.inner.claim(claim, now)).await
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> Answer<Vec<Lease>> {
        self.within("noting that runs begin", self.inner.begin(leases, now)).await
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        self.within("settling", self.inner.settle(settlements, now)).await
    }

    async fn beat(&self, beat: Beat, now: Time) -> Answer<Vec<Lease>> {
        self.within("beating", self.inner.beat(beat, now)).await
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        self.within("promoting", self.inner.promote(max, now)).await
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Vec<Seized>> {
        self.within("seizing", self.inner.seize(seize, now)).await
    }
}

#[async_trait]
impl Operator for Guarded {
    async fn job(&self, id: JobId, now: Time) -> Answer<Option<Job>> {
        self.within("reading a job", self.inner.job(id, now)).await
    }

    async fn jobs(&self, query: PageQuery, now: Time) -> Answer<Page> {
        self.within("listing jobs", self.inner.jobs(query, now)).await
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        self.within("amending jobs", self.inner.amend(amendment, now)).await
    }

    async fn queues(&self, now: Time) -> Answer<Vec<QueueStatus>> {
        self.within("listing queues", self.inner.queues(now)).await
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, now: Time) -> Answer<()> {
        self.within("pausing or resuming a queue", self.inner.set_gate(queue, gate, now)).await
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        self.within("listing workers", self.inner.workers(within, now)).await
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        self.within("pruning", self.inner.prune(retention, now)).await
    }
}

/// Migrations and examinations may look at the whole store; they take this many times the usual deadline.
const WHOLE_STORE_FACTOR: u32 = 60;

#[async_trait]
impl Store for Guarded {
    async fn migrate(&self) -> Answer<Migrated> {
        let patient = Self { inner: Arc::clone(&self.inner), deadline: self.deadline * WHOLE_STORE_FACTOR };
        patient.within("migrating", self.inner.migrate()).await
    }

    async fn time(&self) -> Answer<Time> {
        self.within("reading the store's clock", self.inner.time()).await
    }

    fn watch(&self) -> Box<dyn Hints> {
        self.inner.watch()
    }

    async fn examine(&self) -> Answer<Examination> {
        let patient = Self { inner: Arc::clone(&self.inner), deadline: self.deadline * WHOLE_STORE_FACTOR };
        patient.within("examining the store", self.inner.examine()).await
    }
}
