//! The store on PostgreSQL 14 and later: for any number of machines, and for jobs that are enqueued
//! inside the user's own transaction.
//!
//! This crate knows PostgreSQL and the port; every decision that is not about tables is made in
//! `backstop-core`. Its tables and functions live in a schema of their own. As a rule, a method of
//! the port is one call of one function, which is one transaction. The store relies on no session
//! state, so that connections may go through a pooler.

mod address;
mod amend;
mod beat;
mod cells;
mod claim;
mod dead;
mod dead_peer;
mod enqueue;
mod enqueue_batcher;
mod error;
mod examine;
mod hints;
mod job_view;
mod link;
mod list;
mod migrate;
mod operate;
mod row;
mod scan_hint;
mod settle;
#[cfg(feature = "sqlx")]
mod sqlx;
mod statement;
mod streams;
mod tls;
mod unique_holders;

pub use address::{PostgresOpenError, SCHEMA, schema_of};
pub use enqueue::enqueue_in;
#[cfg(feature = "sqlx")]
pub use sqlx::enqueue_in_sqlx;
pub use statement::{EnqueueStatement, enqueue_statement};

use async_trait::async_trait;
use backstop_core::limits::{
    BEAT_LEASES_MAX, BURY_MAX, CLAIM_JOBS_MAX, DECLARE_MAX, QUEUES_MAX, SETTLE_MAX,
};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_lease_duration};
use backstop_core::port::cells::{check_names, check_swaps};
use backstop_core::port::cursor::{AmendTarget, JobCursor};
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::{
    AmendJobsRequest, AmendResult, BeatRequest, BeatResult, Cell, CellStore, CellSwap, Claim,
    ClaimResult, EnqueueOutcome, ExaminationReport, ExpiredLeases, HintSubscription, JobStore,
    ListCellsRequest, ListGroupsRequest, ListJobsRequest, ListJobsResult, MigrationResult,
    NewDeadLetter, OperatorStore, PromoteResult, PruneRequest, PruneResult, QueueState,
    QueueStatus, SeizeRequest, SeizeResult, SettleOutcome, Store, StoreError, StoreResult,
    SwapOutcome, UniqueKeyHolder, WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::{Settlement, can_skip_fsync};
use backstop_core::{Job, JobId, Lease, NewJob, QueueBounds, QueueName, Span, Time};
use enqueue_batcher::EnqueueBatcher;
use hints::Notifier;
use link::{CommitMode, PostgresLink};
use scan_hint::ScanHints;
use std::sync::{Arc, Mutex, PoisonError};

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PostgresDurability {
    /// What the server's `synchronous_commit` promises: by default, a crash and a power cut.
    #[default]
    Full,
    /// A crash of this process; a crash of the server may lose the last moments.
    Relaxed,
}

pub struct PostgresStore {
    link: Arc<PostgresLink>,
    notifier: Arc<Notifier>,
    enqueue_batcher: Mutex<Option<Arc<EnqueueBatcher>>>,
    scan_hints: ScanHints,
    commit: CommitMode,
    max_queues: usize,
    /// The cursor of pruning: the next call starts behind this queue.
    pruned_to: Mutex<Option<QueueName>>,
}

impl PostgresStore {
    /// Reads the address; connections are opened when they are needed. [`Store::migrate`] creates
    /// the tables.
    ///
    /// The address is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with the driver's parameters
    /// and ours: `schema` (default `backstop`), `connections` (default 8), `pooler=transaction`
    /// behind PgBouncer in transaction mode, `sslrootcert=FILE`.
    pub fn open(address: &str, durability: PostgresDurability) -> Result<Self, PostgresOpenError> {
        let commit = match durability {
            PostgresDurability::Full => CommitMode::Durable,
            PostgresDurability::Relaxed => CommitMode::Quick,
        };
        let link = Arc::new(PostgresLink::new(address.parse()?)?);
        let scan_hints = ScanHints::default();
        let (notifier, enqueue_batcher) = (Arc::new(Notifier::new()), Mutex::new(None));
        Ok(Self {
            link,
            notifier,
            enqueue_batcher,
            scan_hints,
            commit,
            max_queues: QUEUES_MAX,
            pruned_to: Mutex::default(),
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

    fn notify_workers(&self) {
        self.notifier.notify(&self.link);
    }

    /// Returns the batcher that all enqueuing callers share. The first of them starts it, because
    /// it needs a runtime; if that runtime is gone, a new one is started.
    fn enqueue_batcher(&self) -> Arc<EnqueueBatcher> {
        let mut enqueue_batcher = self
            .enqueue_batcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = enqueue_batcher
            .as_ref()
            .filter(|enqueue_batcher| !enqueue_batcher.is_closed())
        {
            return Arc::clone(open);
        }
        let (link, notifier) = (Arc::clone(&self.link), Arc::clone(&self.notifier));
        let ringing = Arc::clone(&link);
        let begun = Arc::new(EnqueueBatcher::start(
            link,
            self.commit,
            self.max_queues,
            move || notifier.notify(&ringing),
        ));
        *enqueue_batcher = Some(Arc::clone(&begun));
        begun
    }
}

/// Opens a connection of the caller's own to the server of an address, under the same rules as the
/// store's. A spawned task drives it.
pub async fn connect(address: &str) -> StoreResult<tokio_postgres::Client> {
    use futures_util::StreamExt;
    let misuse = |error: PostgresOpenError| StoreError::misuse("connecting", error);
    let link = PostgresLink::new(address.parse().map_err(misuse)?).map_err(misuse)?;
    let (client, mut messages) = link.connect("connecting").await?;
    tokio::spawn(async move { while let Some(Ok(_)) = messages.next().await {} });
    Ok(client)
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("PostgresStore");
        shown
            .field("schema", &self.link.schema())
            .field("commit", &self.commit)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl JobStore for PostgresStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        check_enqueue(&jobs, now)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.enqueue_batcher().enqueue(jobs, now).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        check_claim(&claim, now)?;
        claim::claim(&self.link, &claim, now)
            .await
            .map(ClaimResult::whole)
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> StoreResult<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        beat::begin(&self.link, &leases).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        let commit = if can_skip_fsync(&settlements) {
            CommitMode::Quick
        } else {
            self.commit
        };
        let settled = settle::settle(&self.link, &settlements, commit, now).await?;
        if settle::creates_work(&settlements, now) {
            self.notify_workers();
        }
        Ok(settled)
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_lease_duration("beat", beat.until, now)?;
        beat::beat(&self.link, &beat, now)
            .await
            .map(BeatResult::whole)
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        let promoted = operate::promote(&self.link, &self.scan_hints, max, now).await?;
        if promoted.moved > 0 {
            self.notify_workers();
        }
        Ok(promoted)
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        check_lease_duration("seize", seize.until, now)?;
        // A store on one server is reachable as a whole or not at all, so no caller has a reason to
        // skip some of its queues.
        if !seize.spared.is_empty() {
            return Ok(SeizeResult::default());
        }
        claim::seize(&self.link, &self.scan_hints, &seize, self.commit, now).await
    }
}

#[async_trait]
impl OperatorStore for PostgresStore {
    async fn job(&self, id: JobId, _now: Time) -> StoreResult<Option<Job>> {
        list::job(&self.link, id).await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> StoreResult<Vec<Option<Job>>> {
        check_ids(&ids)?;
        list::find(&self.link, &queue, &ids).await
    }

    async fn jobs(&self, query: ListJobsRequest, _now: Time) -> StoreResult<ListJobsResult> {
        let after = JobCursor::of(&query)?;
        let _turn = self.link.list_turn("listing jobs").await?;
        list::page(&self.link, &query, after).await
    }

    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult> {
        let max = self.max_queues;
        let amended = match AmendTarget::of(&amendment)? {
            AmendTarget::Ids(ids) => {
                amend::amend_ids(&self.link, &ids, &amendment, max, now).await?
            }
            AmendTarget::Matching(wanted) => {
                amend::amend_fitting(&self.link, &wanted, max, now).await?
            }
        };
        if amended.applied > 0 {
            self.notify_workers();
        }
        Ok(amended)
    }

    async fn queues(&self, _now: Time) -> StoreResult<Vec<QueueStatus>> {
        let _turn = self.link.list_turn("listing queues").await?;
        operate::queues(&self.link).await
    }

    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        _now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        // A dead letter brings its own end time, which may be before the start of the next scan.
        self.scan_hints.forget();
        dead::bury(&self.link, self.commit, &burials).await
    }

    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        check_keys(&keys)?;
        unique_holders::holders(&self.link, &queue, &keys, now).await
    }

    async fn groups(
        &self,
        query: ListGroupsRequest,
        _now: Time,
    ) -> StoreResult<Vec<backstop_core::port::DeadLetterGroup>> {
        let _turn = self.link.list_turn("grouping dead letters").await?;
        dead::groups(&self.link, &query).await
    }

    async fn set_bounds(
        &self,
        queue: QueueName,
        bounds: QueueBounds,
        _now: Time,
    ) -> StoreResult<()> {
        operate::set_bounds(&self.link, &queue, bounds).await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        operate::declare(&self.link, &queues).await
    }

    async fn set_queue_state(
        &self,
        queue: QueueName,
        gate: QueueState,
        _now: Time,
    ) -> StoreResult<()> {
        operate::set_gate(&self.link, &queue, gate).await?;
        self.notify_workers();
        Ok(())
    }

    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>> {
        let _turn = self.link.list_turn("listing workers").await?;
        operate::workers(&self.link, within, now).await
    }

    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases> {
        operate::expired_leases(&self.link, before).await
    }

    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult> {
        // A poisoned lock is harmless: the cursor is only ever replaced as a whole.
        let pruned_to = || {
            self.pruned_to
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let after = pruned_to().clone();
        let (pruned, next) =
            operate::prune(&self.link, &self.scan_hints, &retention, after, now).await?;
        *pruned_to() = next;
        Ok(pruned)
    }
}

#[async_trait]
impl CellStore for PostgresStore {
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>> {
        check_names(&names)?;
        cells::cells(&self.link, names).await
    }

    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>> {
        cells::list(&self.link, &query).await
    }

    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>> {
        check_swaps(&swaps)?;
        cells::swap(&self.link, self.commit, swaps).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn migrate(&self) -> StoreResult<MigrationResult> {
        migrate::migrate(&self.link).await
    }

    async fn is_new(&self) -> StoreResult<bool> {
        Ok(migrate::version(&self.link).await? == 0)
    }

    async fn time(&self) -> StoreResult<Time> {
        const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let rows = self
            .link
            .rows("reading the store's clock", NOW, &[])
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::corrupt("reading the store's clock", "no answer"))?;
        row::get(row, 0).map(Time::from_micros)
    }

    fn watch(&self) -> Box<dyn HintSubscription> {
        self.notifier.subscribe(&self.link)
    }

    async fn examine(&self) -> StoreResult<ExaminationReport> {
        examine::examine(&self.link, self.commit).await
    }
}
