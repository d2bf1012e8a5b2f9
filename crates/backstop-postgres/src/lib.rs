//! The store on PostgreSQL 14 and later: any number of machines, and jobs that come into being with
//! the user's own transaction.
//!
//! Knows PostgreSQL and the port, and decides nothing that is not a matter of tables. Everything
//! lives in a schema of its own, as tables and functions; a method of the port is one call of one
//! function, which is one transaction. No session state is relied on, so that connections may go
//! through a pooler.

mod address;
mod amend;
mod beat;
mod cells;
mod claim;
mod dead;
mod enqueue;
mod error;
mod examine;
mod floor;
mod found;
mod group;
mod hints;
mod holders;
mod link;
mod list;
mod migrate;
mod operate;
mod row;
mod settle;
mod silence;
#[cfg(feature = "sqlx")]
mod sqlx;
mod statement;
mod streams;
mod tls;

pub use address::{OpenError, SCHEMA, schema_of};
pub use enqueue::enqueue_in;
#[cfg(feature = "sqlx")]
pub use sqlx::enqueue_in_sqlx;
pub use statement::{EnqueueStatement, enqueue_statement};

use async_trait::async_trait;
use backstop_core::limits::{
    BEAT_LEASES_MAX, BURY_MAX, CLAIM_JOBS_MAX, DECLARE_MAX, QUEUES_MAX, SETTLE_MAX,
};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_term};
use backstop_core::port::cells::{check_names, check_swaps};
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::place::{Place, Reach};
use backstop_core::port::{
    Amended, Amendment, Answer, Backlog, Beat, Beaten, Burial, Cell, CellQuery, Cells, Claim,
    Claimed, Enqueued, Examination, ExpiredLeases, Gate, GroupQuery, Hints, KeyHolder, Migrated,
    Operator, Page, PageQuery, Promoted, Pruned, QueueStatus, Retention, Seize, Seizure, Settled,
    Store, StoreError, Swap, Swapped, WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::{Settlement, may_be_undone};
use backstop_core::{Bounds, Job, JobId, Lease, NewJob, QueueName, Span, Time};
use floor::Floors;
use group::Group;
use hints::Bell;
use link::{Commit, Link};
use std::sync::{Arc, Mutex, PoisonError};

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Whatever the server's `synchronous_commit` says, by default a crash and a power cut.
    #[default]
    Full,
    /// A crash of this process; a crash of the server may lose the last moments.
    Relaxed,
}

/// The store.
pub struct PostgresStore {
    link: Arc<Link>,
    bell: Arc<Bell>,
    group: Mutex<Option<Arc<Group>>>,
    floors: Floors,
    commit: Commit,
    max_queues: usize,
    /// The queue after which the next pruning goes on.
    pruned_to: Mutex<Option<QueueName>>,
}

impl PostgresStore {
    /// Reads the address; connections are made when they are needed. Its tables are made by
    /// [`Store::migrate`].
    ///
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` and the driver's parameters, and ours:
    /// `schema` (`backstop` if not said), `connections` (8), `pooler=transaction` behind PgBouncer
    /// in transaction mode, `sslrootcert=FILE`.
    pub fn open(address: &str, durability: Durability) -> Result<Self, OpenError> {
        let commit = match durability {
            Durability::Full => Commit::Durable,
            Durability::Relaxed => Commit::Quick,
        };
        let link = Arc::new(Link::new(address.parse()?)?);
        let floors = Floors::default();
        let (bell, group) = (Arc::new(Bell::new()), Mutex::new(None));
        Ok(Self {
            link,
            bell,
            group,
            floors,
            commit,
            max_queues: QUEUES_MAX,
            pruned_to: Mutex::default(),
        })
    }

    /// With at most so many queues, configured ones aside.
    #[must_use]
    pub fn with_max_queues(self, max: usize) -> Self {
        Self {
            max_queues: max,
            ..self
        }
    }

    fn stir(&self) {
        self.bell.ring(&self.link);
    }

    /// Where callers that enqueue meet: made by the first of them, which has a runtime, and anew if
    /// that runtime is gone.
    fn group(&self) -> Arc<Group> {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = group.as_ref().filter(|group| !group.is_closed()) {
            return Arc::clone(open);
        }
        let (link, bell) = (Arc::clone(&self.link), Arc::clone(&self.bell));
        let ringing = Arc::clone(&link);
        let begun = Arc::new(Group::begin(
            link,
            self.commit,
            self.max_queues,
            move || bell.ring(&ringing),
        ));
        *group = Some(Arc::clone(&begun));
        begun
    }
}

/// A connection of one's own to the server of an address, under the same rules as the store's; it
/// moves by itself.
pub async fn connect(address: &str) -> Answer<tokio_postgres::Client> {
    use futures_util::StreamExt;
    let misuse = |error: OpenError| StoreError::misuse("connecting", error);
    let link = Link::new(address.parse().map_err(misuse)?).map_err(misuse)?;
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
impl Backlog for PostgresStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        check_enqueue(&jobs, now)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.group().enqueue(jobs, now).await
    }

    async fn claim(&self, claim: Claim, now: Time) -> Answer<Claimed> {
        check_claim(&claim, now)?;
        claim::claim(&self.link, &claim, now)
            .await
            .map(Claimed::whole)
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> Answer<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        beat::begin(&self.link, &leases).await
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        let commit = if may_be_undone(&settlements) {
            Commit::Quick
        } else {
            self.commit
        };
        let settled = settle::settle(&self.link, &settlements, commit, now).await?;
        if settle::stirs(&settlements, now) {
            self.stir();
        }
        Ok(settled)
    }

    async fn beat(&self, beat: Beat, now: Time) -> Answer<Beaten> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_term("beat", beat.until, now)?;
        beat::beat(&self.link, &beat, now).await.map(Beaten::whole)
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        let promoted = operate::promote(&self.link, &self.floors, max, now).await?;
        if promoted.moved > 0 {
            self.stir();
        }
        Ok(promoted)
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Seizure> {
        check_term("seize", seize.until, now)?;
        // All of this store answers, or none of it does: nobody has a reason to spare a part.
        if !seize.spared.is_empty() {
            return Ok(Seizure::default());
        }
        claim::seize(&self.link, &self.floors, &seize, self.commit, now).await
    }
}

#[async_trait]
impl Operator for PostgresStore {
    async fn job(&self, id: JobId, _now: Time) -> Answer<Option<Job>> {
        list::job(&self.link, id).await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> Answer<Vec<Option<Job>>> {
        check_ids(&ids)?;
        list::find(&self.link, &queue, &ids).await
    }

    async fn jobs(&self, query: PageQuery, _now: Time) -> Answer<Page> {
        let after = Place::of(&query)?;
        let _turn = self.link.list_turn("listing jobs").await?;
        list::page(&self.link, &query, after).await
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        let max = self.max_queues;
        let amended = match Reach::of(&amendment)? {
            Reach::Ids(ids) => amend::amend_ids(&self.link, &ids, &amendment, max, now).await?,
            Reach::Fitting(wanted) => amend::amend_fitting(&self.link, &wanted, max, now).await?,
        };
        if amended.applied > 0 {
            self.stir();
        }
        Ok(amended)
    }

    async fn queues(&self, _now: Time) -> Answer<Vec<QueueStatus>> {
        let _turn = self.link.list_turn("listing queues").await?;
        operate::queues(&self.link).await
    }

    async fn bury(&self, burials: Vec<Burial>, _now: Time) -> Answer<Vec<Enqueued>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        // They say themselves when they ended.
        self.floors.forget();
        dead::bury(&self.link, self.commit, &burials).await
    }

    async fn holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> Answer<Vec<Option<KeyHolder>>> {
        check_keys(&keys)?;
        holders::holders(&self.link, &queue, &keys, now).await
    }

    async fn groups(
        &self,
        query: GroupQuery,
        _now: Time,
    ) -> Answer<Vec<backstop_core::port::Group>> {
        let _turn = self.link.list_turn("grouping dead letters").await?;
        dead::groups(&self.link, &query).await
    }

    async fn set_bounds(&self, queue: QueueName, bounds: Bounds, _now: Time) -> Answer<()> {
        operate::set_bounds(&self.link, &queue, bounds).await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> Answer<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        operate::declare(&self.link, &queues).await
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, _now: Time) -> Answer<()> {
        operate::set_gate(&self.link, &queue, gate).await?;
        self.stir();
        Ok(())
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        let _turn = self.link.list_turn("listing workers").await?;
        operate::workers(&self.link, within, now).await
    }

    async fn expired_leases(&self, before: Time) -> Answer<ExpiredLeases> {
        operate::expired_leases(&self.link, before).await
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        // A name is whole, whoever panicked beside it.
        let pruned_to = || {
            self.pruned_to
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let after = pruned_to().clone();
        let (pruned, next) =
            operate::prune(&self.link, &self.floors, &retention, after, now).await?;
        *pruned_to() = next;
        Ok(pruned)
    }
}

#[async_trait]
impl Cells for PostgresStore {
    async fn cells(&self, names: Vec<String>) -> Answer<Vec<Option<Cell>>> {
        check_names(&names)?;
        cells::cells(&self.link, names).await
    }

    async fn list_cells(&self, query: CellQuery) -> Answer<Vec<Cell>> {
        cells::list(&self.link, &query).await
    }

    async fn swap(&self, swaps: Vec<Swap>) -> Answer<Vec<Swapped>> {
        check_swaps(&swaps)?;
        cells::swap(&self.link, self.commit, swaps).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn migrate(&self) -> Answer<Migrated> {
        migrate::migrate(&self.link).await
    }

    async fn is_new(&self) -> Answer<bool> {
        Ok(migrate::version(&self.link).await? == 0)
    }

    async fn time(&self) -> Answer<Time> {
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

    fn watch(&self) -> Box<dyn Hints> {
        self.bell.listen(&self.link)
    }

    async fn examine(&self) -> Answer<Examination> {
        examine::examine(&self.link, self.commit).await
    }
}
