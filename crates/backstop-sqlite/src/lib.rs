//! The embedded store: one SQLite file, one machine, any number of processes.
//!
//! One thread writes, and commits all waiting requests in one transaction (group commit). A few
//! other threads read. This crate knows SQLite and the port; every decision that is not about
//! tables is made in `backstop-core`. Its tables are named `backstop_…`, so that they can live in a
//! database of the user's, where [`enqueue_in`] enqueues jobs inside the user's own transaction.

mod amend;
mod beat;
mod begin;
mod bury;
mod cells;
mod claim;
mod enqueue;
mod error;
mod examine;
mod file_identity;
mod groups;
mod hints;
mod job_view;
mod list;
mod migrate;
mod open;
mod overflow;
mod promote;
mod prune;
mod queues;
mod readers;
mod recovery;
mod row;
mod seize;
mod settle;
mod state_index;
mod streams;
mod transaction;
mod unique_holders;
mod workers;
mod writer;

#[cfg(test)]
mod plans;

pub use enqueue::enqueue_in;
pub use open::{SqliteDurability, SqliteOpenError, SqliteOptions};

use async_trait::async_trait;
use backstop_core::limits::{
    BEAT_LEASES_MAX, BURY_MAX, CLAIM_JOBS_MAX, DECLARE_MAX, PROMOTE_MAX, PRUNE_MAX, QUEUES_MAX,
    SEIZE_MAX, SETTLE_MAX,
};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_lease_duration};
use backstop_core::port::cells::{check_names, check_swaps};
use backstop_core::port::cursor::{AmendTarget, JobCursor};
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::{
    AmendJobsRequest, AmendResult, BeatRequest, BeatResult, Cell, CellStore, CellSwap, Claim,
    ClaimResult, DeadLetterGroup, EnqueueOutcome, ExaminationReport, ExpiredLeases,
    HintSubscription, JobStore, ListCellsRequest, ListGroupsRequest, ListJobsRequest,
    ListJobsResult, MigrationResult, NewDeadLetter, OperatorStore, PromoteResult, PruneRequest,
    PruneResult, QueueState, QueueStatus, SeizeRequest, SeizeResult, SettleOutcome, Store,
    StoreResult, SwapOutcome, UniqueKeyHolder, WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::{Settlement, can_skip_fsync};
use backstop_core::{Job, JobId, Lease, NewJob, QueueBounds, QueueName, Span, Time};
use error::store_error;
use file_identity::FileIdentity;
use hints::Notifier;
use readers::ReaderPool;
use seize::PendingSeizures;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use transaction::WriteTransaction;
use writer::{WriteDurability, WriteTask, WriterFile, WriterHandle};

/// Bytes of one page of the file, to estimate the cost of a write.
const PAGE_BYTES: usize = 4_096;

pub struct SqliteStore {
    path: PathBuf,
    durability: SqliteDurability,
    notifier: Notifier,
    // Fields are dropped in this order. The readers come first, because the writer can move the
    // whole log into the file only when no connection reads any more. Lists have readers of their
    // own, so that workers, health checks and reads of single jobs never wait behind a list.
    readers: ReaderPool,
    lists: ReaderPool,
    writer: WriterHandle,
    pending_seizures: Arc<Mutex<PendingSeizures>>,
    /// The cursor of pruning: the next call starts behind this queue.
    pruned_to: Arc<Mutex<Option<String>>>,
    max_queues: usize,
}

impl SqliteStore {
    /// Opens or creates the file, and checks that its file system, its log and the linked SQLite
    /// are safe to use. [`Store::migrate`] creates the tables.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, SqliteOpenError> {
        let opened = open::open(path.as_ref(), options.readers.max(1))?;
        let notifier = Notifier::new();
        let file_identity = Arc::new(FileIdentity::at(&opened.path)?);
        let slots = Arc::default();
        let readers = ReaderPool::start(opened.readers, &file_identity, &slots)
            .map_err(SqliteOpenError::Threads)?;
        let lists = ReaderPool::start(opened.lists, &file_identity, &slots)
            .map_err(SqliteOpenError::Threads)?;
        let file = WriterFile::new(opened.writer, file_identity, slots);
        let writer = WriterHandle::start(file, options, notifier.clone());
        let writer = writer.map_err(SqliteOpenError::Threads)?;
        Ok(Self {
            path: opened.path,
            durability: options.durability,
            notifier,
            readers,
            lists,
            writer,
            pending_seizures: Arc::default(),
            pruned_to: Arc::default(),
            max_queues: QUEUES_MAX,
        })
    }

    /// Limits how many queues there may be. Configured queues are never refused.
    #[must_use]
    pub fn with_max_queues(self, max: usize) -> Self {
        Self {
            max_queues: max,
            ..self
        }
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SqliteStore");
        shown
            .field("path", &self.path)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

/// The clock of every SQLite store: that of this machine.
pub fn time() -> Time {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::default().after(since_1970.into())
}

const fn task(doing: &'static str, durability: WriteDurability, rows: usize) -> WriteTask {
    WriteTask {
        doing,
        durability,
        rows,
    }
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        check_enqueue(&jobs, now)?;
        let pages = jobs.iter().map(|job| job.payload.len()).sum::<usize>() / PAGE_BYTES;
        let task = task("enqueueing", WriteDurability::Durable, jobs.len() + pages);
        let max_queues = self.max_queues;
        self.writer
            .call(task, move |tx| enqueue::enqueue(tx, &jobs, max_queues, now))
            .await?
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        check_claim(&claim, now)?;
        let rows = claim.wants.iter().map(|want| want.max).sum();
        let task = task("claiming", WriteDurability::Claim, rows);
        self.writer
            .call(task, move |tx| claim::claim(tx, &claim, now))
            .await
            .map(ClaimResult::whole)
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> StoreResult<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        // `Claim`, so that the request is dropped if its caller is gone. Otherwise it would mark a
        // job as begun that no worker runs.
        let task = task(
            "noting that runs begin",
            WriteDurability::Claim,
            leases.len(),
        );
        self.writer
            .call(task, move |tx| begin::begin(tx, &leases))
            .await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        let durability = if can_skip_fsync(&settlements) {
            WriteDurability::Light
        } else {
            WriteDurability::Durable
        };
        let task = task("settling", durability, settlements.len());
        self.writer
            .call(task, move |tx| settle::settle(tx, &settlements, now))
            .await
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_lease_duration("beat", beat.until, now)?;
        let task = task("beating", WriteDurability::Light, beat.leases.len());
        self.writer
            .call(task, move |tx| beat::beat(tx, &beat, now))
            .await
            .map(BeatResult::whole)
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        let task = task("promoting", WriteDurability::Light, max.min(PROMOTE_MAX));
        self.writer
            .call(task, move |tx| promote::promote(tx, max, now))
            .await
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        check_lease_duration("seize", seize.until, now)?;
        // A store on one node is reachable as a whole or not at all, so no caller has a reason to
        // skip some of its queues.
        if !seize.spared.is_empty() {
            return Ok(SeizeResult::default());
        }
        let task = task(
            "seizing",
            WriteDurability::Durable,
            seize.max.min(SEIZE_MAX),
        );
        let pending_seizures = Arc::clone(&self.pending_seizures);
        let run = move |tx: &mut WriteTransaction<'_>| {
            // A poisoned lock is harmless: every pending job is checked again before it is seized.
            let mut pending_seizures = pending_seizures
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            seize::seize(tx, &seize, &mut pending_seizures, now)
        };
        self.writer.call(task, run).await
    }
}

#[async_trait]
impl OperatorStore for SqliteStore {
    async fn job(&self, id: JobId, _now: Time) -> StoreResult<Option<Job>> {
        self.readers
            .call("reading a job", move |db| list::job(db, id))
            .await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> StoreResult<Vec<Option<Job>>> {
        check_ids(&ids)?;
        let found =
            move |db: &rusqlite::Connection| ids.iter().map(|id| list::job(db, *id)).collect();
        let found: Vec<Option<Job>> = self.readers.call("finding jobs", found).await?;
        Ok(found
            .into_iter()
            .map(|job| job.filter(|job| job.queue == queue))
            .collect())
    }

    async fn jobs(&self, query: ListJobsRequest, _now: Time) -> StoreResult<ListJobsResult> {
        let after = JobCursor::of(&query)?;
        self.lists
            .call("listing jobs", move |db| {
                list::page(db, &query, after.as_ref())
            })
            .await
    }

    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult> {
        let (doing, max_queues) = ("amending jobs", self.max_queues);
        let wanted = match AmendTarget::of(&amendment)? {
            AmendTarget::Ids(ids) => {
                let task = task(doing, WriteDurability::Durable, ids.len());
                let amend = move |tx: &mut WriteTransaction<'_>| match amend::check_target(
                    tx,
                    &amendment.action,
                    max_queues,
                )? {
                    Ok(()) => amend::amend_ids(tx, &ids, &amendment, now).map(Ok),
                    Err(refused) => Ok(Err(refused)),
                };
                return self.writer.call(task, amend).await?;
            }
            AmendTarget::Matching(wanted) => wanted,
        };
        let sought = wanted.clone();
        let picked = self
            .lists
            .call(doing, move |db| amend::pick(db, &sought))
            .await?;
        let next = picked.cursor();
        if picked.nos.is_empty() {
            return Ok(AmendResult {
                next,
                ..AmendResult::default()
            });
        }
        let task = task(doing, WriteDurability::Durable, picked.nos.len());
        let amend = move |tx: &mut WriteTransaction<'_>| match amend::check_target(
            tx,
            &wanted.action,
            max_queues,
        )? {
            Ok(()) => amend::amend_fitting(tx, &picked.nos, &wanted, now).map(Ok),
            Err(refused) => Ok(Err(refused)),
        };
        let amended = self.writer.call(task, amend).await??;
        Ok(AmendResult { next, ..amended })
    }

    async fn queues(&self, _now: Time) -> StoreResult<Vec<QueueStatus>> {
        self.lists.call("listing queues", queues::queues).await
    }

    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        _now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        let pages = burials
            .iter()
            .map(|burial| burial.job.payload.len())
            .sum::<usize>()
            / PAGE_BYTES;
        let task = task("burying", WriteDurability::Durable, burials.len() + pages);
        self.writer
            .call(task, move |tx| bury::bury(tx, &burials))
            .await
    }

    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        check_keys(&keys)?;
        let read = move |db: &rusqlite::Connection| unique_holders::holders(db, &queue, &keys, now);
        self.readers.call("looking for holders", read).await
    }

    async fn groups(
        &self,
        query: ListGroupsRequest,
        _now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>> {
        self.lists
            .call("grouping dead letters", move |db| {
                groups::groups(db, &query)
            })
            .await
    }

    async fn set_bounds(
        &self,
        queue: QueueName,
        bounds: QueueBounds,
        _now: Time,
    ) -> StoreResult<()> {
        let task = task("bounding a queue", WriteDurability::Durable, 1);
        self.writer
            .call(task, move |tx| queues::set_bounds(tx, &queue, bounds))
            .await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        let task = task("declaring queues", WriteDurability::Durable, queues.len());
        self.writer
            .call(task, move |tx| queues::declare(tx, &queues))
            .await
    }

    async fn set_queue_state(
        &self,
        queue: QueueName,
        gate: QueueState,
        _now: Time,
    ) -> StoreResult<()> {
        let task = task("pausing or resuming a queue", WriteDurability::Durable, 1);
        self.writer
            .call(task, move |tx| queues::set_gate(tx, &queue, gate))
            .await
    }

    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>> {
        self.lists
            .call("listing workers", move |db| {
                workers::workers(db, within, now)
            })
            .await
    }

    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases> {
        self.readers
            .call("counting expired leases", move |db| {
                workers::expired_leases(db, before)
            })
            .await
    }

    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult> {
        let task = task(
            "pruning",
            WriteDurability::Durable,
            retention.max.min(PRUNE_MAX),
        );
        let pruned_to = Arc::clone(&self.pruned_to);
        let run = move |tx: &mut WriteTransaction<'_>| {
            // A poisoned lock is harmless: the cursor is only ever replaced as a whole.
            let mut after = pruned_to.lock().unwrap_or_else(PoisonError::into_inner);
            prune::prune(tx, &retention, &mut after, now)
        };
        self.writer.call(task, run).await
    }
}

#[async_trait]
impl CellStore for SqliteStore {
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>> {
        check_names(&names)?;
        self.readers
            .call("reading cells", move |db| cells::cells(db, &names))
            .await
    }

    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>> {
        // Not in the pool for lists: a server lists its tokens before it lets a worker in.
        self.readers
            .call("listing cells", move |db| cells::list(db, &query))
            .await
    }

    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>> {
        check_swaps(&swaps)?;
        let pages = swaps
            .iter()
            .filter_map(|swap| swap.value.as_ref())
            .map(Vec::len)
            .sum::<usize>()
            / PAGE_BYTES;
        let task = task(
            "swapping cells",
            WriteDurability::Durable,
            swaps.len() + pages,
        );
        self.writer
            .call(task, move |tx| cells::swap(tx, &swaps))
            .await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> StoreResult<MigrationResult> {
        self.writer
            .call_exclusive("migrating", migrate::migrate)
            .await
    }

    async fn is_new(&self) -> StoreResult<bool> {
        Ok(false)
    }

    async fn time(&self) -> StoreResult<Time> {
        Ok(time())
    }

    fn watch(&self) -> Box<dyn HintSubscription> {
        self.notifier.subscribe()
    }

    async fn examine(&self) -> StoreResult<ExaminationReport> {
        let (doing, durability, path) = ("examining", self.durability, self.path.clone());
        let settings = move |db: &mut rusqlite::Connection| {
            examine::settings(db, durability).map_err(|error| store_error(doing, &error))
        };
        let settings = self.writer.call_exclusive(doing, settings).await?;
        self.lists
            .call(doing, move |db| examine::examine(db, &path, &settings))
            .await
    }
}
