//! The store on Redis 6.2 or newer: one server, sentinels, or a cluster.
//!
//! Each method runs one script per queue. A script is all or nothing and may be repeated. This
//! crate knows Redis and the port; it decides nothing but which keys to use. `lua/keys.lua`
//! describes what the keys of a queue hold. Job ids are unique per queue only: the registry of
//! queue names is the one key that all queues share. Moving a job to another queue takes several
//! steps: see `moves.rs`. A stream is spread over shards, each with its own keys: see
//! `lua/streams/shard.lua`.

mod amend;
mod arrival_clock;
mod beat;
mod begin;
mod bury;
mod cells;
mod claim;
mod context;
mod damaged_jobs;
mod dialer;
mod enqueue;
mod enqueue_batcher;
mod enqueue_reply;
mod error;
mod eviction_check;
mod examine;
mod groups;
mod hints;
mod job_view;
mod keys;
mod link;
mod list;
mod migrate;
mod moves;
mod open;
mod promote;
mod prune;
mod queue_registry;
mod queues;
mod record;
mod repair;
mod repair_loop;
mod reply;
mod script;
mod seize;
mod settle;
mod state_index;
mod streams;
mod unique_holders;
mod workers;

pub use open::RedisOpenError;

use async_trait::async_trait;
use backstop_core::amend::AmendAction;
use backstop_core::limits::{BEAT_LEASES_MAX, BURY_MAX, CLAIM_JOBS_MAX, DECLARE_MAX, SETTLE_MAX};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_lease_duration};
use backstop_core::port::cells::{check_names, check_swaps};
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
use backstop_core::verdict::Settlement;
use backstop_core::{Job, JobId, Lease, NewJob, QueueBounds, QueueName, Span, Time};
use context::{StoreContext, readable};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

pub struct RedisStore {
    base: Arc<StoreContext>,
    shown: String,
    /// The last queue that the previous pruning looked at; the next pruning starts after it.
    pruned_to: Mutex<Option<QueueName>>,
    /// Background tasks: publishing hints, repairing, watching servers, the registry,
    /// reconnecting.
    tasks: OnceLock<[AbortHandle; 5]>,
    /// Receives the hints of other processes; started by the first `watch`.
    ear: OnceLock<AbortHandle>,
}

impl RedisStore {
    /// Reads an address such as `redis://host:6379?prefix=shop`. Connects when it is first used.
    pub fn open(address: &str) -> Result<Self, RedisOpenError> {
        let opened = open::open(address)?;
        let base = StoreContext {
            link: link::RedisLink::new(opened.dial),
            keys: opened.keys,
            notifier: hints::Notifier::new(),
            arrivals: arrival_clock::ArrivalClock::default(),
            eviction_check: eviction_check::EvictionCheck::default(),
            batcher: enqueue_batcher::EnqueueBatcher::default(),
            registry: queue_registry::QueueRegistry::default(),
            lists: Semaphore::new(context::LISTS_AT_ONCE),
        };
        let shown = opened.shown;
        let (base, pruned_to) = (Arc::new(base), Mutex::default());
        Ok(Self {
            base,
            shown,
            pruned_to,
            tasks: OnceLock::new(),
            ear: OnceLock::new(),
        })
    }

    /// Limits the number of queues to `max`; configured queues do not count.
    #[must_use]
    pub fn with_max_queues(self, max: usize) -> Self {
        self.base.registry.set_max(max);
        self
    }

    /// The context of every method. The first call starts the background tasks, so it must come
    /// from within a tokio runtime.
    fn base(&self) -> &Arc<StoreContext> {
        self.tasks.get_or_init(|| {
            let base = || Arc::clone(&self.base);
            let (payer, renewer) = (base(), base());
            [
                tokio::spawn(hints::publish_hints(base())).abort_handle(),
                tokio::spawn(repair_loop::repair_when_replaced(base())).abort_handle(),
                tokio::spawn(repair_loop::watch_servers(base())).abort_handle(),
                tokio::spawn(async move {
                    payer.registry.enter_pending(&payer.link, &payer.keys).await;
                })
                .abort_handle(),
                tokio::spawn(async move { renewer.link.renew_when_failed().await }).abort_handle(),
            ]
        });
        &self.base
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        let tasks = self.tasks.get().into_iter().flatten();
        tasks.chain(self.ear.get()).for_each(AbortHandle::abort);
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("at", &self.shown)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl JobStore for RedisStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        check_enqueue(&jobs, now)?;
        enqueue_batcher::enqueue(self.base(), jobs, now).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        check_claim(&claim, now)?;
        claim::claim(self.base(), &claim, now).await
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> StoreResult<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        begin::begin(self.base(), &leases).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        settle::settle(self.base(), &settlements, now).await
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_lease_duration("beat", beat.until, now)?;
        beat::beat(self.base(), &beat, now).await
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        promote::promote(self.base(), max, now).await
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        check_lease_duration("seize", seize.until, now)?;
        seize::seize(self.base(), &seize, now).await
    }
}

#[async_trait]
impl OperatorStore for RedisStore {
    async fn job(&self, id: JobId, _now: Time) -> StoreResult<Option<Job>> {
        job_view::job(self.base(), id).await
    }

    async fn locate(&self, id: JobId, _now: Time) -> StoreResult<Vec<Job>> {
        job_view::jobs_with_id(self.base(), id).await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> StoreResult<Vec<Option<Job>>> {
        check_ids(&ids)?;
        job_view::find(self.base(), queue, &ids).await
    }

    async fn jobs(&self, query: ListJobsRequest, _now: Time) -> StoreResult<ListJobsResult> {
        let _turn = self.base().list_turn("listing jobs").await?;
        list::page(self.base(), &query).await
    }

    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult> {
        let base = self.base();
        if let AmendAction::Move(to) = &amendment.action {
            let (doing, queues) = ("moving jobs", std::slice::from_ref(to));
            let (link, keys) = (&base.link, &base.keys);
            base.registry.admit(link, keys, doing, queues).await?;
        }
        amend::amend(base, &amendment, now).await
    }

    async fn queues(&self, _now: Time) -> StoreResult<Vec<QueueStatus>> {
        let _turn = self.base().list_turn("listing queues").await?;
        queues::queues(self.base()).await
    }

    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        _now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        bury::bury(self.base(), &burials).await
    }

    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        check_keys(&keys)?;
        unique_holders::holders(self.base(), &queue, &keys, now).await
    }

    async fn groups(
        &self,
        query: ListGroupsRequest,
        _now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>> {
        let _turn = self.base().list_turn("grouping dead letters").await?;
        groups::groups(self.base(), &query).await
    }

    async fn set_bounds(
        &self,
        queue: QueueName,
        bounds: QueueBounds,
        _now: Time,
    ) -> StoreResult<()> {
        queues::set_bounds(self.base(), &queue, bounds).await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        queues::declare(self.base(), &queues).await
    }

    async fn set_queue_state(
        &self,
        queue: QueueName,
        gate: QueueState,
        _now: Time,
    ) -> StoreResult<()> {
        queues::set_gate(self.base(), &queue, gate).await
    }

    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>> {
        let _turn = self.base().list_turn("listing workers").await?;
        workers::workers(self.base(), within, now).await
    }

    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases> {
        workers::expired_leases(self.base(), before).await
    }

    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult> {
        // A panic elsewhere cannot leave a queue name half-written, so a poisoned lock is safe to
        // use.
        let pruned_to = || {
            self.pruned_to
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let after = pruned_to().clone();
        let (pruned, next) = prune::prune(self.base(), &retention, after, now).await?;
        *pruned_to() = next;
        Ok(pruned)
    }
}

#[async_trait]
impl CellStore for RedisStore {
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>> {
        check_names(&names)?;
        cells::cells(self.base(), &names).await
    }

    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>> {
        cells::list_cells(self.base(), &query).await
    }

    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>> {
        check_swaps(&swaps)?;
        cells::swap(self.base(), &swaps).await
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn migrate(&self) -> StoreResult<MigrationResult> {
        migrate::migrate(self.base()).await
    }

    async fn is_new(&self) -> StoreResult<bool> {
        migrate::is_new(self.base(), "looking for the store").await
    }

    async fn time(&self) -> StoreResult<Time> {
        let doing = "reading the time";
        let time = self.base().link.ask(doing, &redis::cmd("TIME")).await?;
        readable(doing, link::time_micros(time)).map(Time::from_micros)
    }

    fn watch(&self) -> Box<dyn HintSubscription> {
        // Without a runtime, hints of other processes do not arrive; hints of this process still
        // do.
        if let Ok(runtime) = Handle::try_current() {
            self.ear.get_or_init(|| {
                runtime
                    .spawn(hints::receive_hints(Arc::clone(&self.base)))
                    .abort_handle()
            });
        }
        self.base.notifier.subscribe()
    }

    async fn examine(&self) -> StoreResult<ExaminationReport> {
        examine::examine(self.base(), &self.shown).await
    }
}
