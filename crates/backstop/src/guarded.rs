//! A deadline around every call of a store: nothing here waits for ever.

use crate::seat::Seat;
use async_trait::async_trait;
use backstop_core::port::{
    Advance, Advanced, Amended, Amendment, Answer, Backlog, Beat, Beaten, Burial, Cell, CellQuery,
    Cells, Claim, Claimed, Enqueued, Examination, ExpiredLeases, Gate, Group, GroupQuery, Hints,
    KeyHolder, KeyLease, KeyQuery, KeyStatus, Migrated, Offered, Operator, Page, PageQuery,
    Promoted, Pruned, QueueStatus, Retention, Seize, Seizure, Settled, Store, StoreError,
    StreamStatus, Streams, Swap, Swapped, Take, Taken, WorkerStatus,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::Settlement;
use backstop_core::{
    Bounds, Job, JobId, Lease, NewJob, QueueName, Span, StreamKey, StreamName, Time,
};
use std::sync::Arc;
use std::time::Duration;

/// A store whose calls end in time, one way or the other.
pub(crate) struct Guarded {
    inner: Arc<dyn Store>,
    deadline: Duration,
    seat: Seat,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Store>, deadline: Span, seat: Seat) -> Self {
        Self {
            inner,
            deadline: deadline.into(),
            seat,
        }
    }

    async fn within<T, F>(
        &self,
        doing: &'static str,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        self.within_for(self.deadline, doing, call).await
    }

    async fn within_for<T, F>(
        &self,
        deadline: Duration,
        doing: &'static str,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        in_time(
            deadline,
            doing,
            self.seat.run(doing, call(Arc::clone(&self.inner))),
        )
        .await
    }
}

async fn in_time<T>(
    deadline: Duration,
    doing: &'static str,
    call: impl Future<Output = Answer<T>>,
) -> Answer<T> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::unavailable(
            doing,
            format!("no answer within {deadline:?}"),
        )),
    }
}

#[async_trait]
impl Backlog for Guarded {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        // Stores group what many callers push: the work is done by a task of theirs, and callers
        // only wait for it.
        in_time(
            self.deadline,
            "enqueueing",
            self.seat.wait(self.inner.enqueue(jobs, now)),
        )
        .await
    }

    async fn claim(&self, claim: Claim, now: Time) -> Answer<Claimed> {
        self.within(
            "claiming",
            |store| async move { store.claim(claim, now).await },
        )
        .await
    }

    async fn begin(&self, leases: Vec<Lease>, now: Time) -> Answer<Vec<Lease>> {
        self.within("noting that runs begin", |store| async move {
            store.begin(leases, now).await
        })
        .await
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        self.within("settling", |store| async move {
            store.settle(settlements, now).await
        })
        .await
    }

    async fn beat(&self, beat: Beat, now: Time) -> Answer<Beaten> {
        self.within(
            "beating",
            |store| async move { store.beat(beat, now).await },
        )
        .await
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        self.within(
            "promoting",
            |store| async move { store.promote(max, now).await },
        )
        .await
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Seizure> {
        self.within(
            "seizing",
            |store| async move { store.seize(seize, now).await },
        )
        .await
    }
}

#[async_trait]
impl Operator for Guarded {
    async fn job(&self, id: JobId, now: Time) -> Answer<Option<Job>> {
        self.within(
            "reading a job",
            |store| async move { store.job(id, now).await },
        )
        .await
    }

    async fn namesakes(&self, id: JobId, now: Time) -> Answer<Vec<Job>> {
        self.within("reading jobs of an id", |store| async move {
            store.namesakes(id, now).await
        })
        .await
    }

    async fn find(&self, queue: QueueName, ids: Vec<JobId>, now: Time) -> Answer<Vec<Option<Job>>> {
        self.within("finding jobs", |store| async move {
            store.find(queue, ids, now).await
        })
        .await
    }

    async fn jobs(&self, query: PageQuery, now: Time) -> Answer<Page> {
        self.within("listing jobs", |store| async move {
            store.jobs(query, now).await
        })
        .await
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        self.within("amending jobs", |store| async move {
            store.amend(amendment, now).await
        })
        .await
    }

    async fn bury(&self, burials: Vec<Burial>, now: Time) -> Answer<Vec<Enqueued>> {
        self.within(
            "burying",
            |store| async move { store.bury(burials, now).await },
        )
        .await
    }

    async fn holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> Answer<Vec<Option<KeyHolder>>> {
        self.within("looking for holders", |store| async move {
            store.holders(queue, keys, now).await
        })
        .await
    }

    async fn groups(&self, query: GroupQuery, now: Time) -> Answer<Vec<Group>> {
        self.within("grouping dead letters", |store| async move {
            store.groups(query, now).await
        })
        .await
    }

    async fn set_bounds(&self, queue: QueueName, bounds: Bounds, now: Time) -> Answer<()> {
        self.within("bounding a queue", |store| async move {
            store.set_bounds(queue, bounds, now).await
        })
        .await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> Answer<()> {
        self.within("declaring queues", |store| async move {
            store.declare_queues(queues).await
        })
        .await
    }

    async fn queues(&self, now: Time) -> Answer<Vec<QueueStatus>> {
        self.within(
            "listing queues",
            |store| async move { store.queues(now).await },
        )
        .await
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, now: Time) -> Answer<()> {
        self.within("pausing or resuming a queue", |store| async move {
            store.set_gate(queue, gate, now).await
        })
        .await
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        self.within("listing workers", |store| async move {
            store.workers(within, now).await
        })
        .await
    }

    async fn expired_leases(&self, before: Time) -> Answer<ExpiredLeases> {
        self.within("counting expired leases", |store| async move {
            store.expired_leases(before).await
        })
        .await
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        self.within("pruning", |store| async move {
            store.prune(retention, now).await
        })
        .await
    }
}

#[async_trait]
impl Cells for Guarded {
    async fn cells(&self, names: Vec<String>) -> Answer<Vec<Option<Cell>>> {
        self.within(
            "reading cells",
            |store| async move { store.cells(names).await },
        )
        .await
    }

    async fn list_cells(&self, query: CellQuery) -> Answer<Vec<Cell>> {
        self.within("listing cells", |store| async move {
            store.list_cells(query).await
        })
        .await
    }

    async fn swap(&self, swaps: Vec<Swap>) -> Answer<Vec<Swapped>> {
        self.within(
            "swapping cells",
            |store| async move { store.swap(swaps).await },
        )
        .await
    }
}

#[async_trait]
impl Streams for Guarded {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> Answer<Vec<Offered>> {
        self.within("offering records", |store| async move {
            store.offer(stream, records, now).await
        })
        .await
    }

    async fn take(&self, take: Take, now: Time) -> Answer<Taken> {
        self.within(
            "taking keys",
            |store| async move { store.take(take, now).await },
        )
        .await
    }

    async fn keep(&self, leases: Vec<KeyLease>, until: Time, now: Time) -> Answer<Vec<KeyLease>> {
        self.within("keeping keys", |store| async move {
            store.keep(leases, until, now).await
        })
        .await
    }

    async fn advance(&self, advances: Vec<Advance>, now: Time) -> Answer<Vec<Advanced>> {
        self.within("advancing keys", |store| async move {
            store.advance(advances, now).await
        })
        .await
    }

    async fn streams(&self) -> Answer<Vec<StreamStatus>> {
        self.within(
            "listing streams",
            |store| async move { store.streams().await },
        )
        .await
    }

    async fn stream_keys(&self, query: KeyQuery, now: Time) -> Answer<Vec<KeyStatus>> {
        self.within("listing keys", |store| async move {
            store.stream_keys(query, now).await
        })
        .await
    }

    async fn stream_key(&self, stream: StreamName, key: StreamKey) -> Answer<Option<StoredKey>> {
        self.within("looking at a key", |store| async move {
            store.stream_key(stream, key).await
        })
        .await
    }
}

/// Migrations and examinations may look at the whole store; they take this many times the usual
/// deadline.
const WHOLE_STORE_FACTOR: u32 = 60;

#[async_trait]
impl Store for Guarded {
    async fn migrate(&self) -> Answer<Migrated> {
        let patience = self.deadline * WHOLE_STORE_FACTOR;
        self.within_for(patience, "migrating", |store| async move {
            store.migrate().await
        })
        .await
    }

    async fn is_new(&self) -> Answer<bool> {
        self.within("looking for the store", |store| async move {
            store.is_new().await
        })
        .await
    }

    async fn time(&self) -> Answer<Time> {
        self.within("reading the store's clock", |store| async move {
            store.time().await
        })
        .await
    }

    fn watch(&self) -> Box<dyn Hints> {
        self.seat.enter(|| self.inner.watch())
    }

    async fn examine(&self) -> Answer<Examination> {
        let patience = self.deadline * WHOLE_STORE_FACTOR;
        self.within_for(patience, "examining the store", |store| async move {
            store.examine().await
        })
        .await
    }
}
