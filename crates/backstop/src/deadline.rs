//! A deadline around every call of a store: nothing here waits for ever.

use crate::store_runtime::StoreRuntime;
use async_trait::async_trait;
use backstop_core::port::{
    AdvanceOutcome, AmendJobsRequest, AmendResult, BeatRequest, BeatResult, Cell, CellStore,
    CellSwap, Claim, ClaimResult, DeadLetterGroup, EnqueueOutcome, ExaminationReport,
    ExpiredLeases, HintSubscription, JobStore, KeyAdvance, KeyLease, KeyStatus, ListCellsRequest,
    ListGroupsRequest, ListJobsRequest, ListJobsResult, ListKeysRequest, MigrationResult,
    NewDeadLetter, OfferOutcome, OperatorStore, PromoteResult, PruneRequest, PruneResult,
    QueueState, QueueStatus, SeizeRequest, SeizeResult, SettleOutcome, Store, StoreError,
    StoreResult, StreamStatus, StreamStore, SwapOutcome, TakeRequest, TakeResult, UniqueKeyHolder,
    WorkerStatus,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::Settlement;
use backstop_core::{
    Job, JobId, Lease, NewJob, QueueBounds, QueueName, Span, StreamKey, StreamName, Time,
};
use std::sync::Arc;
use std::time::Duration;

/// A store whose calls end in time, one way or the other.
pub(crate) struct WithDeadline {
    inner: Arc<dyn Store>,
    deadline: Duration,
    runtime: StoreRuntime,
}

impl WithDeadline {
    pub(crate) fn new(inner: Arc<dyn Store>, deadline: Span, runtime: StoreRuntime) -> Self {
        Self {
            inner,
            deadline: deadline.into(),
            runtime,
        }
    }

    async fn call<T, F>(
        &self,
        doing: &'static str,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        self.call_for(self.deadline, doing, call).await
    }

    async fn call_for<T, F>(
        &self,
        deadline: Duration,
        doing: &'static str,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        with_timeout(
            deadline,
            doing,
            self.runtime.run(doing, call(Arc::clone(&self.inner))),
        )
        .await
    }
}

async fn with_timeout<T>(
    deadline: Duration,
    doing: &'static str,
    call: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::unavailable(
            doing,
            format!("no answer within {deadline:?}"),
        )),
    }
}

#[async_trait]
impl JobStore for WithDeadline {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        // Stores group what many callers push: the work is done by a task of theirs, and callers
        // only wait for it.
        with_timeout(
            self.deadline,
            "enqueueing",
            self.runtime.wait(self.inner.enqueue(jobs, now)),
        )
        .await
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        self.call(
            "claiming",
            |store| async move { store.claim(claim, now).await },
        )
        .await
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> StoreResult<Vec<Lease>> {
        self.call("noting that runs begin", |store| async move {
            store.begin(leases, now).await
        })
        .await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        self.call("settling", |store| async move {
            store.settle(settlements, now).await
        })
        .await
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        self.call(
            "beating",
            |store| async move { store.beat(beat, now).await },
        )
        .await
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        self.call(
            "promoting",
            |store| async move { store.promote(max, now).await },
        )
        .await
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        self.call(
            "seizing",
            |store| async move { store.seize(seize, now).await },
        )
        .await
    }
}

#[async_trait]
impl OperatorStore for WithDeadline {
    async fn job(&self, id: JobId, now: Time) -> StoreResult<Option<Job>> {
        self.call(
            "reading a job",
            |store| async move { store.job(id, now).await },
        )
        .await
    }

    async fn locate(&self, id: JobId, now: Time) -> StoreResult<Vec<Job>> {
        self.call("reading jobs of an id", |store| async move {
            store.locate(id, now).await
        })
        .await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        now: Time,
    ) -> StoreResult<Vec<Option<Job>>> {
        self.call("finding jobs", |store| async move {
            store.find(queue, ids, now).await
        })
        .await
    }

    async fn jobs(&self, query: ListJobsRequest, now: Time) -> StoreResult<ListJobsResult> {
        self.call("listing jobs", |store| async move {
            store.jobs(query, now).await
        })
        .await
    }

    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult> {
        self.call("amending jobs", |store| async move {
            store.amend(amendment, now).await
        })
        .await
    }

    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        self.call(
            "burying",
            |store| async move { store.bury(burials, now).await },
        )
        .await
    }

    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        self.call("looking for holders", |store| async move {
            store.unique_holders(queue, keys, now).await
        })
        .await
    }

    async fn groups(
        &self,
        query: ListGroupsRequest,
        now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>> {
        self.call("grouping dead letters", |store| async move {
            store.groups(query, now).await
        })
        .await
    }

    async fn set_bounds(
        &self,
        queue: QueueName,
        bounds: QueueBounds,
        now: Time,
    ) -> StoreResult<()> {
        self.call("bounding a queue", |store| async move {
            store.set_bounds(queue, bounds, now).await
        })
        .await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()> {
        self.call("declaring queues", |store| async move {
            store.declare_queues(queues).await
        })
        .await
    }

    async fn queues(&self, now: Time) -> StoreResult<Vec<QueueStatus>> {
        self.call(
            "listing queues",
            |store| async move { store.queues(now).await },
        )
        .await
    }

    async fn set_queue_state(
        &self,
        queue: QueueName,
        gate: QueueState,
        now: Time,
    ) -> StoreResult<()> {
        self.call("pausing or resuming a queue", |store| async move {
            store.set_queue_state(queue, gate, now).await
        })
        .await
    }

    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>> {
        self.call("listing workers", |store| async move {
            store.workers(within, now).await
        })
        .await
    }

    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases> {
        self.call("counting expired leases", |store| async move {
            store.expired_leases(before).await
        })
        .await
    }

    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult> {
        self.call("pruning", |store| async move {
            store.prune(retention, now).await
        })
        .await
    }
}

#[async_trait]
impl CellStore for WithDeadline {
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>> {
        self.call(
            "reading cells",
            |store| async move { store.cells(names).await },
        )
        .await
    }

    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>> {
        self.call("listing cells", |store| async move {
            store.list_cells(query).await
        })
        .await
    }

    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>> {
        self.call(
            "swapping cells",
            |store| async move { store.swap(swaps).await },
        )
        .await
    }
}

#[async_trait]
impl StreamStore for WithDeadline {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>> {
        self.call("offering records", |store| async move {
            store.offer(stream, records, now).await
        })
        .await
    }

    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult> {
        self.call(
            "taking keys",
            |store| async move { store.take(take, now).await },
        )
        .await
    }

    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>> {
        self.call("keeping keys", |store| async move {
            store.keep(leases, until, now).await
        })
        .await
    }

    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>> {
        self.call("advancing keys", |store| async move {
            store.advance(advances, now).await
        })
        .await
    }

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>> {
        self.call(
            "listing streams",
            |store| async move { store.streams().await },
        )
        .await
    }

    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>> {
        self.call("listing keys", |store| async move {
            store.stream_keys(query, now).await
        })
        .await
    }

    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>> {
        self.call("looking at a key", |store| async move {
            store.stream_key(stream, key).await
        })
        .await
    }
}

/// Migrations and examinations may look at the whole store; they take this many times the usual
/// deadline.
const WHOLE_STORE_FACTOR: u32 = 60;

#[async_trait]
impl Store for WithDeadline {
    async fn migrate(&self) -> StoreResult<MigrationResult> {
        let patience = self.deadline * WHOLE_STORE_FACTOR;
        self.call_for(patience, "migrating", |store| async move {
            store.migrate().await
        })
        .await
    }

    async fn is_new(&self) -> StoreResult<bool> {
        self.call("looking for the store", |store| async move {
            store.is_new().await
        })
        .await
    }

    async fn time(&self) -> StoreResult<Time> {
        self.call("reading the store's clock", |store| async move {
            store.time().await
        })
        .await
    }

    fn watch(&self) -> Box<dyn HintSubscription> {
        self.runtime.enter(|| self.inner.watch())
    }

    async fn examine(&self) -> StoreResult<ExaminationReport> {
        let patience = self.deadline * WHOLE_STORE_FACTOR;
        self.call_for(patience, "examining the store", |store| async move {
            store.examine().await
        })
        .await
    }
}
