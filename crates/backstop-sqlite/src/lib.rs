//! The embedded store: one SQLite file, one machine, any number of processes.
//!
//! One thread writes, and puts whatever waits into one transaction; a few threads read. Knows
//! SQLite and the port, and decides nothing that is not a matter of tables. Its tables are named
//! `backstop_…`, so that they can live in a database of the user's, where [`enqueue_in`] takes jobs
//! in with the user's own transaction.

mod amend;
mod beat;
mod begin;
mod bury;
mod cells;
mod claim;
mod enqueue;
mod error;
mod examine;
mod found;
mod groups;
mod hints;
mod holders;
mod lines;
mod list;
mod migrate;
mod moored;
mod open;
mod promote;
mod prune;
mod queues;
mod readers;
mod recovery;
mod room;
mod row;
mod seize;
mod settle;
mod streams;
mod work;
mod workers;
mod writer;

#[cfg(test)]
mod plans;

pub use enqueue::enqueue_in;
pub use open::{Durability, OpenError, SqliteOptions};

use async_trait::async_trait;
use backstop_core::limits::{
    BEAT_LEASES_MAX, BURY_MAX, CLAIM_JOBS_MAX, DECLARE_MAX, PROMOTE_MAX, PRUNE_MAX, QUEUES_MAX,
    SEIZE_MAX, SETTLE_MAX,
};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_term};
use backstop_core::port::cells::{check_names, check_swaps};
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::place::{Place, Reach};
use backstop_core::port::{
    Amended, Amendment, Answer, Backlog, Beat, Beaten, Burial, Cell, CellQuery, Cells, Claim,
    Claimed, Enqueued, Examination, ExpiredLeases, Gate, Group, GroupQuery, Hints, KeyHolder,
    Migrated, Operator, Page, PageQuery, Promoted, Pruned, QueueStatus, Retention, Seize, Seizure,
    Settled, Store, Swap, Swapped, WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::{Settlement, may_be_undone};
use backstop_core::{Bounds, Job, JobId, Lease, NewJob, QueueName, Span, Time};
use error::store_error;
use hints::Bell;
use moored::Moored;
use readers::Readers;
use seize::Leftovers;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use work::Work;
use writer::{Effort, Task, Writer, WriterFile};

/// Bytes of a page of the file.
const PAGE_BYTES: usize = 4_096;

/// The store.
pub struct SqliteStore {
    path: PathBuf,
    durability: Durability,
    bell: Bell,
    // Readers first: the writer folds the log into the file when nobody reads any more. Workers,
    // health checks and looks at single jobs never wait behind lists, which have readers of their
    // own.
    readers: Readers,
    lists: Readers,
    writer: Writer,
    leftovers: Arc<Mutex<Leftovers>>,
    /// The queue after which the next pruning goes on.
    pruned_to: Arc<Mutex<Option<String>>>,
    max_queues: usize,
}

impl SqliteStore {
    /// Opens the file, or makes it, and checks that it can be relied on. Its tables are made by
    /// [`Store::migrate`].
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let opened = open::open(path.as_ref(), options.readers.max(1))?;
        let bell = Bell::new();
        let moored = Arc::new(Moored::at(&opened.path)?);
        let slots = Arc::default();
        let readers =
            Readers::start(opened.readers, &moored, &slots).map_err(OpenError::Threads)?;
        let lists = Readers::start(opened.lists, &moored, &slots).map_err(OpenError::Threads)?;
        let file = WriterFile::new(opened.writer, moored, slots);
        let writer = Writer::start(file, options, bell.clone());
        let writer = writer.map_err(OpenError::Threads)?;
        Ok(Self {
            path: opened.path,
            durability: options.durability,
            bell,
            readers,
            lists,
            writer,
            leftovers: Arc::default(),
            pruned_to: Arc::default(),
            max_queues: QUEUES_MAX,
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

/// The time of every store in a file: this machine's.
pub fn time() -> Time {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::default().after(since_1970.into())
}

const fn task(doing: &'static str, effort: Effort, rows: usize) -> Task {
    Task {
        doing,
        effort,
        rows,
    }
}

#[async_trait]
impl Backlog for SqliteStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        check_enqueue(&jobs, now)?;
        let pages = jobs.iter().map(|job| job.payload.len()).sum::<usize>() / PAGE_BYTES;
        let task = task("enqueueing", Effort::Durable, jobs.len() + pages);
        let max_queues = self.max_queues;
        self.writer
            .call(task, move |work| {
                enqueue::enqueue(work, &jobs, max_queues, now)
            })
            .await?
    }

    async fn claim(&self, claim: Claim, now: Time) -> Answer<Claimed> {
        check_claim(&claim, now)?;
        let rows = claim.wants.iter().map(|want| want.max).sum();
        let task = task("claiming", Effort::Claim, rows);
        self.writer
            .call(task, move |work| claim::claim(work, &claim, now))
            .await
            .map(Claimed::whole)
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> Answer<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        // A note whose caller went away would say of a job that nobody runs that it began.
        let task = task("noting that runs begin", Effort::Claim, leases.len());
        self.writer
            .call(task, move |work| begin::begin(work, &leases))
            .await
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        let effort = if may_be_undone(&settlements) {
            Effort::Light
        } else {
            Effort::Durable
        };
        let task = task("settling", effort, settlements.len());
        self.writer
            .call(task, move |work| settle::settle(work, &settlements, now))
            .await
    }

    async fn beat(&self, beat: Beat, now: Time) -> Answer<Beaten> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_term("beat", beat.until, now)?;
        let task = task("beating", Effort::Light, beat.leases.len());
        self.writer
            .call(task, move |work| beat::beat(work, &beat, now))
            .await
            .map(Beaten::whole)
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        let task = task("promoting", Effort::Light, max.min(PROMOTE_MAX));
        self.writer
            .call(task, move |work| promote::promote(work, max, now))
            .await
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Seizure> {
        check_term("seize", seize.until, now)?;
        // All of this store answers, or none of it does: nobody has a reason to spare a part.
        if !seize.spared.is_empty() {
            return Ok(Seizure::default());
        }
        let task = task("seizing", Effort::Durable, seize.max.min(SEIZE_MAX));
        let leftovers = Arc::clone(&self.leftovers);
        let run = move |work: &mut Work<'_>| {
            // Whatever is in there is checked before it is taken: a panic cannot have spoilt it.
            let mut leftovers = leftovers.lock().unwrap_or_else(PoisonError::into_inner);
            seize::seize(work, &seize, &mut leftovers, now)
        };
        self.writer.call(task, run).await
    }
}

#[async_trait]
impl Operator for SqliteStore {
    async fn job(&self, id: JobId, _now: Time) -> Answer<Option<Job>> {
        self.readers
            .call("reading a job", move |db| list::job(db, id))
            .await
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> Answer<Vec<Option<Job>>> {
        check_ids(&ids)?;
        let found =
            move |db: &rusqlite::Connection| ids.iter().map(|id| list::job(db, *id)).collect();
        let found: Vec<Option<Job>> = self.readers.call("finding jobs", found).await?;
        Ok(found
            .into_iter()
            .map(|job| job.filter(|job| job.queue == queue))
            .collect())
    }

    async fn jobs(&self, query: PageQuery, _now: Time) -> Answer<Page> {
        let after = Place::of(&query)?;
        self.lists
            .call("listing jobs", move |db| {
                list::page(db, &query, after.as_ref())
            })
            .await
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        let (doing, max_queues) = ("amending jobs", self.max_queues);
        let wanted = match Reach::of(&amendment)? {
            Reach::Ids(ids) => {
                let task = task(doing, Effort::Durable, ids.len());
                let amend = move |work: &mut Work<'_>| match amend::check_target(
                    work,
                    &amendment.action,
                    max_queues,
                )? {
                    Ok(()) => amend::amend_ids(work, &ids, &amendment, now).map(Ok),
                    Err(refused) => Ok(Err(refused)),
                };
                return self.writer.call(task, amend).await?;
            }
            Reach::Fitting(wanted) => wanted,
        };
        let sought = wanted.clone();
        let picked = self
            .lists
            .call(doing, move |db| amend::pick(db, &sought))
            .await?;
        let next = picked.cursor();
        if picked.nos.is_empty() {
            return Ok(Amended {
                next,
                ..Amended::default()
            });
        }
        let task = task(doing, Effort::Durable, picked.nos.len());
        let amend =
            move |work: &mut Work<'_>| match amend::check_target(work, &wanted.action, max_queues)?
            {
                Ok(()) => amend::amend_fitting(work, &picked.nos, &wanted, now).map(Ok),
                Err(refused) => Ok(Err(refused)),
            };
        let amended = self.writer.call(task, amend).await??;
        Ok(Amended { next, ..amended })
    }

    async fn queues(&self, _now: Time) -> Answer<Vec<QueueStatus>> {
        self.lists.call("listing queues", queues::queues).await
    }

    async fn bury(&self, burials: Vec<Burial>, _now: Time) -> Answer<Vec<Enqueued>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        let pages = burials
            .iter()
            .map(|burial| burial.job.payload.len())
            .sum::<usize>()
            / PAGE_BYTES;
        let task = task("burying", Effort::Durable, burials.len() + pages);
        self.writer
            .call(task, move |work| bury::bury(work, &burials))
            .await
    }

    async fn holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> Answer<Vec<Option<KeyHolder>>> {
        check_keys(&keys)?;
        let read = move |db: &rusqlite::Connection| holders::holders(db, &queue, &keys, now);
        self.readers.call("looking for holders", read).await
    }

    async fn groups(&self, query: GroupQuery, _now: Time) -> Answer<Vec<Group>> {
        self.lists
            .call("grouping dead letters", move |db| {
                groups::groups(db, &query)
            })
            .await
    }

    async fn set_bounds(&self, queue: QueueName, bounds: Bounds, _now: Time) -> Answer<()> {
        let task = task("bounding a queue", Effort::Durable, 1);
        self.writer
            .call(task, move |work| queues::set_bounds(work, &queue, bounds))
            .await
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> Answer<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        let task = task("declaring queues", Effort::Durable, queues.len());
        self.writer
            .call(task, move |work| queues::declare(work, &queues))
            .await
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, _now: Time) -> Answer<()> {
        let task = task("pausing or resuming a queue", Effort::Durable, 1);
        self.writer
            .call(task, move |work| queues::set_gate(work, &queue, gate))
            .await
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        self.lists
            .call("listing workers", move |db| {
                workers::workers(db, within, now)
            })
            .await
    }

    async fn expired_leases(&self, before: Time) -> Answer<ExpiredLeases> {
        self.readers
            .call("counting expired leases", move |db| {
                workers::expired_leases(db, before)
            })
            .await
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        let task = task("pruning", Effort::Durable, retention.max.min(PRUNE_MAX));
        let pruned_to = Arc::clone(&self.pruned_to);
        let run = move |work: &mut Work<'_>| {
            // A name is whole, whoever panicked beside it.
            let mut after = pruned_to.lock().unwrap_or_else(PoisonError::into_inner);
            prune::prune(work, &retention, &mut after, now)
        };
        self.writer.call(task, run).await
    }
}

#[async_trait]
impl Cells for SqliteStore {
    async fn cells(&self, names: Vec<String>) -> Answer<Vec<Option<Cell>>> {
        check_names(&names)?;
        self.readers
            .call("reading cells", move |db| cells::cells(db, &names))
            .await
    }

    async fn list_cells(&self, query: CellQuery) -> Answer<Vec<Cell>> {
        // Not a reader of lists: a server lists its tokens before it lets a worker in.
        self.readers
            .call("listing cells", move |db| cells::list(db, &query))
            .await
    }

    async fn swap(&self, swaps: Vec<Swap>) -> Answer<Vec<Swapped>> {
        check_swaps(&swaps)?;
        let pages = swaps
            .iter()
            .filter_map(|swap| swap.value.as_ref())
            .map(Vec::len)
            .sum::<usize>()
            / PAGE_BYTES;
        let task = task("swapping cells", Effort::Durable, swaps.len() + pages);
        self.writer
            .call(task, move |work| cells::swap(work, &swaps))
            .await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> Answer<Migrated> {
        self.writer.alone("migrating", migrate::migrate).await
    }

    async fn is_new(&self) -> Answer<bool> {
        Ok(false)
    }

    async fn time(&self) -> Answer<Time> {
        Ok(time())
    }

    fn watch(&self) -> Box<dyn Hints> {
        self.bell.listen()
    }

    async fn examine(&self) -> Answer<Examination> {
        let (doing, durability, path) = ("examining", self.durability, self.path.clone());
        let settings = move |db: &mut rusqlite::Connection| {
            examine::settings(db, durability).map_err(|error| store_error(doing, &error))
        };
        let settings = self.writer.alone(doing, settings).await?;
        self.lists
            .call(doing, move |db| examine::examine(db, &path, &settings))
            .await
    }
}
