//! The store on Redis 6.2 or newer, alone, behind sentinels, or as a cluster.
//!
//! One script a method and queue: it is all or nothing, and may be repeated. Knows Redis and the
//! port, and decides nothing that is not a matter of keys. What a queue's keys hold is written down
//! in `lua/keys.lua`. A job's id counts in its queue: no key is shared by all queues but the
//! registry of their names. A job that is moved to another queue goes in steps: see `moves.rs`. A
//! stream is spread over shards, each with keys of its own: see `lua/streams/shard.lua`.

mod amend;
mod arrivals;
mod base;
mod beat;
mod begin;
mod bury;
mod cells;
mod claim;
mod damage;
mod dial;
mod enqueue;
mod error;
mod examine;
mod group;
mod groups;
mod guard;
mod hints;
mod holders;
mod intake;
mod keys;
mod lines;
mod link;
mod list;
mod mender;
mod migrate;
mod moves;
mod open;
mod promote;
mod prune;
mod queues;
mod record;
mod registry;
mod repair;
mod reply;
mod script;
mod seize;
mod settle;
mod streams;
mod view;
mod workers;

pub use open::OpenError;

use async_trait::async_trait;
use backstop_core::amend::Action;
use backstop_core::limits::{BEAT_LEASES_MAX, BURY_MAX, CLAIM_JOBS_MAX, DECLARE_MAX, SETTLE_MAX};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_term};
use backstop_core::port::cells::{check_names, check_swaps};
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::{
    Amended, Amendment, Answer, Backlog, Beat, Beaten, Burial, Cell, CellQuery, Cells, Claim,
    Claimed, Enqueued, Examination, ExpiredLeases, Gate, Group, GroupQuery, Hints, KeyHolder,
    Migrated, Operator, Page, PageQuery, Promoted, Pruned, QueueStatus, Retention, Seize, Seizure,
    Settled, Store, Swap, Swapped, WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::Settlement;
use backstop_core::{Bounds, Job, JobId, Lease, NewJob, QueueName, Span, Time};
use base::{Base, readable};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// The store.
pub struct RedisStore {
    base: Arc<Base>,
    shown: String,
    /// The queue after which the next pruning goes on.
    pruned_to: Mutex<Option<QueueName>>,
    /// What goes on beside the calls: telling hints, and repairing.
    tasks: OnceLock<[AbortHandle; 5]>,
    /// Hearing the hints of others, for whoever watches.
    ear: OnceLock<AbortHandle>,
}

impl RedisStore {
    /// Reads an address such as `redis://host:6379?prefix=shop`. Connects when it is first used.
    pub fn open(address: &str) -> Result<Self, OpenError> {
        let opened = open::open(address)?;
        let base = Base {
            link: link::Link::new(opened.dial),
            keys: opened.keys,
            bell: hints::Bell::new(),
            arrivals: arrivals::Arrivals::default(),
            guard: guard::Guard::default(),
            group: group::Group::default(),
            registry: registry::Registry::default(),
            lists: Semaphore::new(base::LISTS_AT_ONCE),
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

    /// With at most so many queues, configured ones aside.
    #[must_use]
    pub fn with_max_queues(self, max: usize) -> Self {
        self.base.registry.set_max(max);
        self
    }

    /// What the methods work with. They are called within a runtime, which is what the tasks beside
    /// them need.
    fn base(&self) -> &Arc<Base> {
        self.tasks.get_or_init(|| {
            let base = || Arc::clone(&self.base);
            let (payer, renewer) = (base(), base());
            [
                tokio::spawn(hints::tell(base())).abort_handle(),
                tokio::spawn(mender::mend_when_replaced(base())).abort_handle(),
                tokio::spawn(mender::look_around(base())).abort_handle(),
                tokio::spawn(async move { payer.registry.pay(&payer.link, &payer.keys).await })
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
impl Backlog for RedisStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        check_enqueue(&jobs, now)?;
        group::enqueue(self.base(), jobs, now).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> Answer<Claimed> {
        check_claim(&claim, now)?;
        claim::claim(self.base(), &claim, now).await
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> Answer<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        begin::begin(self.base(), &leases).await
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        settle::settle(self.base(), &settlements, now).await
    }

    async fn beat(&self, beat: Beat, now: Time) -> Answer<Beaten> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_term("beat", beat.until, now)?;
        beat::beat(self.base(), &beat, now).await
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        promote::promote(self.base(), max, now).await
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Seizure> {
        check_term("seize", seize.until, now)?;
        seize::seize(self.base(), &seize, now).await
    }
}

#[async_trait]
impl Operator for RedisStore {
    async fn job(&self, id: JobId, _now: Time) -> Answer<Option<Job>> {
        view::job(self.base(), id).await
    }

    async fn namesakes(&self, id: JobId, _now: Time) -> Answer<Vec<Job>> {
        view::namesakes(self.base(), id).await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> Answer<Vec<Option<Job>>> {
        check_ids(&ids)?;
        view::find(self.base(), queue, &ids).await
    }

    async fn jobs(&self, query: PageQuery, _now: Time) -> Answer<Page> {
        let _turn = self.base().list_turn("listing jobs").await?;
        list::page(self.base(), &query).await
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        let base = self.base();
        if let Action::Move(to) = &amendment.action {
            let (doing, queues) = ("moving jobs", std::slice::from_ref(to));
            let (link, keys) = (&base.link, &base.keys);
            base.registry.admit(link, keys, doing, queues).await?;
        }
        amend::amend(base, &amendment, now).await
    }

    async fn queues(&self, _now: Time) -> Answer<Vec<QueueStatus>> {
        let _turn = self.base().list_turn("listing queues").await?;
        queues::queues(self.base()).await
    }

    async fn bury(&self, burials: Vec<Burial>, _now: Time) -> Answer<Vec<Enqueued>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        bury::bury(self.base(), &burials).await
    }

    async fn holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> Answer<Vec<Option<KeyHolder>>> {
        check_keys(&keys)?;
        holders::holders(self.base(), &queue, &keys, now).await
    }

    async fn groups(&self, query: GroupQuery, _now: Time) -> Answer<Vec<Group>> {
        let _turn = self.base().list_turn("grouping dead letters").await?;
        groups::groups(self.base(), &query).await
    }

    async fn set_bounds(&self, queue: QueueName, bounds: Bounds, _now: Time) -> Answer<()> {
        queues::set_bounds(self.base(), &queue, bounds).await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> Answer<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        queues::declare(self.base(), &queues).await
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, _now: Time) -> Answer<()> {
        queues::set_gate(self.base(), &queue, gate).await
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        let _turn = self.base().list_turn("listing workers").await?;
        workers::workers(self.base(), within, now).await
    }

    async fn expired_leases(&self, before: Time) -> Answer<ExpiredLeases> {
        workers::expired_leases(self.base(), before).await
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        // A name is whole, whoever panicked beside it.
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
impl Cells for RedisStore {
    async fn cells(&self, names: Vec<String>) -> Answer<Vec<Option<Cell>>> {
        check_names(&names)?;
        cells::cells(self.base(), &names).await
    }

    async fn list_cells(&self, query: CellQuery) -> Answer<Vec<Cell>> {
        cells::list_cells(self.base(), &query).await
    }

    async fn swap(&self, swaps: Vec<Swap>) -> Answer<Vec<Swapped>> {
        check_swaps(&swaps)?;
        cells::swap(self.base(), &swaps).await
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn migrate(&self) -> Answer<Migrated> {
        migrate::migrate(self.base()).await
    }

    async fn is_new(&self) -> Answer<bool> {
        migrate::is_new(self.base(), "looking for the store").await
    }

    async fn time(&self) -> Answer<Time> {
        let doing = "reading the time";
        let time = self.base().link.ask(doing, &redis::cmd("TIME")).await?;
        readable(doing, link::time_micros(time)).map(Time::from_micros)
    }

    fn watch(&self) -> Box<dyn Hints> {
        // Without a runtime nobody hears other processes; the hints of this one come all the same.
        if let Ok(runtime) = Handle::try_current() {
            self.ear.get_or_init(|| {
                runtime
                    .spawn(hints::hear(Arc::clone(&self.base)))
                    .abort_handle()
            });
        }
        self.base.bell.listen()
    }

    async fn examine(&self) -> Answer<Examination> {
        examine::examine(self.base(), &self.shown).await
    }
}
