//! The way in: open a store, push jobs, build workers.

use crate::address::{StoreAddress, StoreKind};
use crate::clock::{Clock, ClockComparison, StoreClock};
use crate::deadline::WithDeadline;
use crate::draft::{DraftError, JobDraft};
use crate::engine::metrics;
use crate::handler::Task;
use crate::open::{Durability, OpenError, StoreOptions, open_store};
use crate::random::RandomSource;
use crate::run_times::RunTimeCounter;
use crate::spill::{Spill, SpillSettings};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::store_location::StoreLocation;
use crate::store_runtime::{LockRuntime, StoreRuntime};
use crate::streams::{Stream, StreamSetupError};
use crate::trace;
use crate::worker::{ServicePlacement, WorkerBuilder};
use backstop_core::amend::Filter;
use backstop_core::limits::{DECLARE_MAX, ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX, PAGE_MAX};
use backstop_core::port::{EnqueueOutcome, ListJobsRequest, ListJobsResult, Store, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::{Job, JobId, NewJob, QueueName, Span, Time};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tracing::Instrument;

/// How long a call of the store may take.
const STORE_DEADLINE: Span = Span::secs(10);
/// How long work that goes on without the store waits for its time: a reading that took longer is
/// off by more than what is followed.
const CLOCK_READ_MAX: Duration = Duration::from_secs(1);
/// Waits between tries of a push that the store did not answer. Pushing again is harmless: the id
/// is the same.
const PUSH_RETRY_WAITS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// An open store, to push to and to work from. Cheap to clone.
#[derive(Clone)]
pub struct Backstop {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    comparison: Arc<ClockComparison>,
    random: RandomSource,
    spill: Spill,
    redaction: Arc<RwLock<Arc<Redaction>>>,
    locks: LockRuntime,
    /// How long runs took that ended in this process.
    run_counter: RunTimeCounter,
    /// To recognise transactions that are elsewhere.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    location: StoreLocation,
}

/// What became of a pushed job, and its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushResult {
    /// Its id. For a duplicate this is the id it would have had; `result` names the one that is
    /// there.
    pub id: JobId,
    pub result: EnqueueOutcome,
}

impl Backstop {
    /// Opens the store at `url` and brings it up to date.
    ///
    /// | address | store | feature |
    /// |---|---|---|
    /// | `sqlite:FILE` | a file of this machine | `sqlite` (on by default) |
    /// | `postgres://USER:PASSWORD@HOST/DATABASE?schema=NAME` | PostgreSQL 14 or later; the schema is `backstop` if none is named | `postgres` |
    /// | `redis://HOST:PORT`, `rediss://…` with TLS | Redis 6.2 or later | `redis` |
    /// | `redis+cluster://HOST:PORT,HOST:PORT`, `rediss+cluster://…` | a Redis Cluster | `redis` |
    /// | `redis+sentinel://HOST:PORT,HOST:PORT/NAME` | the master that the sentinels call NAME | `redis` |
    /// | `memory:` | nothing that outlives the process | |
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let address = std::env::var("BACKSTOP_STORE").unwrap_or("memory:".to_owned());
    /// let backstop = backstop::Backstop::open(&address).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(url, Durability::Full).await
    }

    /// As [`Backstop::open`], with a durability other than full, or other options.
    pub async fn open_with(url: &str, options: impl Into<StoreOptions>) -> Result<Self, OpenError> {
        Self::connect(url, options).await?.migrated().await
    }

    /// As [`Backstop::open_with`], if there is a store at `url`; `None`, and nothing written, if
    /// there is none yet. A file of SQLite comes into being all the same.
    pub async fn open_if_there(
        url: &str,
        options: impl Into<StoreOptions>,
    ) -> Result<Option<Self>, OpenError> {
        let backstop = Self::connect(url, options).await?;
        if backstop.store.is_new().await? {
            return Ok(None);
        }
        backstop.migrated().await.map(Some)
    }

    /// Marks queues as configured: their pushes are taken however many queues the store has, and it
    /// never forgets them. Workers do this for the queues they know.
    pub async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()> {
        for some in queues.chunks(DECLARE_MAX) {
            self.store.declare_queues(some.to_vec()).await?;
        }
        Ok(())
    }

    async fn migrated(self) -> Result<Self, OpenError> {
        self.store.migrate().await?;
        self.spill.resume();
        Ok(self)
    }

    /// Opens the store at `url` as it is, without bringing it up to date.
    pub async fn connect(url: &str, options: impl Into<StoreOptions>) -> Result<Self, OpenError> {
        let address = StoreAddress::new(url);
        let (store, runtime) = open_store(&address, options.into())?;
        let store = WithDeadline::new(store, STORE_DEADLINE, runtime);
        let clock: Arc<dyn Clock> = Arc::new(StoreClock::set_to(store.time().await?));
        let (store, random): (Arc<dyn Store>, _) = (Arc::new(store), RandomSource::from_system());
        let spill = Spill::on(
            SpillSettings::of(&address),
            store.clone(),
            clock.clone(),
            random.clone(),
        );
        Ok(Self {
            store,
            clock,
            comparison: Arc::new(ClockComparison::made()),
            random,
            spill,
            redaction: Arc::default(),
            locks: LockRuntime::on_own_thread(),
            run_counter: RunTimeCounter::default(),
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            location: StoreLocation::of(&address),
        })
    }

    /// Refuses an address that no store can be opened with. Opens nothing, and asks nobody.
    pub fn check_address(url: &str, durability: Durability) -> Result<(), OpenError> {
        let address = StoreAddress::new(url);
        match address.kind() {
            Some(StoreKind::Postgres | StoreKind::Redis) | None => {
                open_store(&address, durability.into()).map(drop)
            }
            Some(StoreKind::Memory | StoreKind::Sqlite) => Ok(()),
        }
    }

    /// On a store, a clock and a source of randomness of your own.
    pub fn on(store: Arc<dyn Store>, clock: Arc<dyn Clock>, random: RandomSource) -> Self {
        let store: Arc<dyn Store> = Arc::new(WithDeadline::new(
            store,
            STORE_DEADLINE,
            StoreRuntime::Callers,
        ));
        let spill = Spill::on(
            SpillSettings::default_directory(),
            store.clone(),
            clock.clone(),
            random.clone(),
        );
        Self {
            store,
            clock,
            comparison: Arc::new(ClockComparison::made()),
            random,
            spill,
            redaction: Arc::default(),
            locks: LockRuntime::CallersRuntime,
            run_counter: RunTimeCounter::default(),
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            location: StoreLocation::Unknown,
        }
    }

    /// Pushes a task to its queue.
    pub async fn push<T: Task>(&self, task: &T) -> Result<PushResult, DraftError> {
        self.draft(T::QUEUE).task(task).push().await
    }

    /// Starts a job for `queue`, to be filled in and pushed.
    pub fn draft(&self, queue: &str) -> JobDraft {
        JobDraft::new(self.clone(), queue)
    }

    /// Pushes jobs, in as many calls as their number and size ask for. When it answers, all of them
    /// are durable; when it fails, some may be: pushing the same jobs again is harmless.
    pub async fn push_jobs(&self, mut jobs: Vec<NewJob>) -> StoreResult<Vec<EnqueueOutcome>> {
        let span = trace::push_span(&mut jobs);
        let push = async {
            let mut answers = Vec::with_capacity(jobs.len());
            for batch in batches(jobs) {
                answers.extend(self.enqueue(batch).await?);
            }
            Ok(answers)
        };
        push.instrument(span).await
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<EnqueueOutcome>> {
        let queues: Vec<QueueName> = jobs.iter().map(|job| job.queue.clone()).collect();
        let answers = self.enqueue_with_retry(jobs).await?;
        metrics::count_pushed(&queues, &answers);
        Ok(answers)
    }

    async fn enqueue_with_retry(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<EnqueueOutcome>> {
        for wait in PUSH_RETRY_WAITS {
            match self
                .store
                .enqueue(jobs.clone(), self.current_time().await)
                .await
            {
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, "push not answered; trying again in {wait:?}");
                    tokio::time::sleep(wait).await;
                }
                answer => return answer,
            }
        }
        self.store.enqueue(jobs, self.current_time().await).await
    }

    /// Enqueues inside a transaction of your own, on your own connection to the file this store is
    /// in: the jobs come into being with your commit, or not at all.
    #[cfg(feature = "sqlite")]
    pub fn enqueue_in(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        jobs: &[NewJob],
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        let now = self.current_time_in(transaction)?;
        backstop_sqlite::enqueue_in(transaction, jobs, now)
    }

    /// As [`Backstop::current_time`], without waiting: the clock of a file is this machine's.
    #[cfg(feature = "sqlite")]
    pub(crate) fn current_time_in(
        &self,
        transaction: &rusqlite::Transaction<'_>,
    ) -> StoreResult<Time> {
        self.location.check_file(transaction)?;
        if self.comparison.is_due() {
            self.follow(backstop_sqlite::time());
        }
        Ok(self.now())
    }

    /// A job as an operator sees it.
    pub async fn job(&self, id: JobId) -> StoreResult<Option<Job>> {
        self.store.job(id, self.current_time().await).await
    }

    /// All jobs of an id, by their queues: on Redis several queues may have one each.
    pub async fn namesakes(&self, id: JobId) -> StoreResult<Vec<Job>> {
        self.store.locate(id, self.current_time().await).await
    }

    /// A job of a queue: on Redis others may have one of the same id.
    pub async fn job_in(&self, queue: &QueueName, id: JobId) -> StoreResult<Option<Job>> {
        Ok(self
            .store
            .find(queue.clone(), vec![id], self.current_time().await)
            .await?
            .pop()
            .flatten())
    }

    /// A page of jobs. A store may answer short, even with nothing, and say where to go on: that is
    /// done up to `looks_max` times in a row, until `limit` jobs are there or the list ends.
    /// `limit` is clamped as the store's is.
    pub async fn jobs(
        &self,
        filter: &Filter,
        mut cursor: Option<String>,
        limit: usize,
        looks_max: usize,
    ) -> StoreResult<ListJobsResult> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut jobs, mut damaged) = (Vec::new(), Vec::new());
        for look in 1.. {
            let query = ListJobsRequest {
                filter: filter.clone(),
                cursor,
                limit: limit - jobs.len(),
                ..ListJobsRequest::default()
            };
            let page = self.store.jobs(query, self.current_time().await).await?;
            jobs.extend(page.jobs);
            damaged.extend(page.damaged);
            cursor = page.next;
            if jobs.len() >= limit || cursor.is_none() || look >= looks_max {
                break;
            }
        }
        Ok(ListJobsResult {
            jobs,
            damaged,
            next: cursor,
        })
    }

    /// A worker to be set up.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }

    /// A stream of records that are handled in order.
    pub fn stream(&self, name: &str) -> Result<Stream, StreamSetupError> {
        Stream::new(self.clone(), name)
    }

    /// The store: everything an operator can look at and do. Every call has a deadline.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The time on the store's time line, as this process knows it: for what runs beside a worker,
    /// which compares the clocks all the time. Anybody else asks for the
    /// [`Backstop::current_time`].
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The time on the store's time line, compared with the store's clock within the last ten
    /// seconds. A store that does not tell its time within a second keeps nobody from a push that
    /// it takes: then it is the time as this process knows it.
    pub async fn current_time(&self) -> Time {
        if self.comparison.is_due() {
            let _turn = self.comparison.turn.lock().await;
            // Another caller may have compared the clocks meanwhile.
            if self.comparison.is_due() {
                self.compare_clocks().await;
            }
        }
        self.now()
    }

    async fn compare_clocks(&self) {
        let error = match tokio::time::timeout(CLOCK_READ_MAX, self.follow_clock()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {}s", CLOCK_READ_MAX.as_secs()),
        };
        tracing::warn!(
            error,
            "the store's clock could not be read; this process goes on by its own"
        );
        // Otherwise every push would wait for it.
        self.comparison.note();
    }

    pub fn new_id(&self) -> JobId {
        self.random.job_id(self.now())
    }

    /// What the store did not take, kept on this machine's disk until it does.
    pub fn spill(&self) -> &Spill {
        &self.spill
    }

    /// With other names of secret fields than the usual ones: their values are hidden in logs and
    /// views.
    #[must_use]
    pub fn redacting(self, redaction: Redaction) -> Self {
        Self {
            redaction: Arc::new(RwLock::new(Arc::new(redaction))),
            ..self
        }
    }

    /// From now on with these names of secret fields, here and in every clone of this one.
    pub fn redact_by(&self, redaction: Redaction) {
        *self
            .redaction
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(redaction);
    }

    pub(crate) fn redaction(&self) -> Arc<Redaction> {
        // One value, always whole.
        Arc::clone(
            &self
                .redaction
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    pub(crate) fn with_spill(self, spill: Spill) -> Self {
        Self { spill, ..self }
    }

    pub(crate) const fn run_times_counter(&self) -> &RunTimeCounter {
        &self.run_counter
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Follows the store's clock, if it has moved.
    pub(crate) async fn follow_clock(&self) -> StoreResult<()> {
        self.follow(self.store.time().await?);
        Ok(())
    }

    fn follow(&self, store_time: Time) {
        if let Some(off) = self.clock.follow(store_time) {
            tracing::warn!(
                off_us = off,
                "the store's clock has moved; this process follows it"
            );
        }
        self.comparison.note();
    }

    /// Has locks extended there; see [`ServicePlacement`]. A store that was opened by its address
    /// has them extended by a thread of their own, one that was given by the caller's runtime.
    #[must_use]
    pub fn lock_runtime(self, services: ServicePlacement) -> Self {
        let locks = match services {
            ServicePlacement::OwnThread => LockRuntime::on_own_thread(),
            ServicePlacement::CallersRuntime => LockRuntime::CallersRuntime,
        };
        Self { locks, ..self }
    }

    pub(crate) const fn locks(&self) -> &LockRuntime {
        &self.locks
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn location(&self) -> &StoreLocation {
        &self.location
    }

    pub(crate) fn random(&self) -> &RandomSource {
        &self.random
    }
}

impl fmt::Debug for Backstop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backstop")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// Jobs in the order given, cut where a call would be over its limits.
fn batches(jobs: Vec<NewJob>) -> Vec<Vec<NewJob>> {
    let mut batches: Vec<Vec<NewJob>> = Vec::new();
    let mut bytes = 0;
    for job in jobs {
        bytes += job.payload.len();
        match batches.last_mut() {
            Some(batch) if batch.len() < ENQUEUE_JOBS_MAX && bytes <= ENQUEUE_BYTES_MAX => {
                batch.push(job);
            }
            _ => {
                bytes = job.payload.len();
                batches.push(vec![job]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::{Kind, Payload, QueueName};

    fn jobs(count: usize, bytes: usize) -> Vec<NewJob> {
        let queue = QueueName::new("q").unwrap();
        let payload = Payload::from_stored(vec![b'1'; bytes]);
        (0..count)
            .map(|n| {
                NewJob::new(
                    JobId::named(&n.to_string()),
                    queue.clone(),
                    Kind::default(),
                    payload.clone(),
                )
            })
            .collect()
    }

    fn check(count: usize, bytes: usize, sizes: &[usize]) {
        let batches = batches(jobs(count, bytes));
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
        assert_eq!(batches.concat(), jobs(count, bytes), "in order, none lost");
    }

    #[test]
    fn a_large_push_is_cut_by_number_and_by_size() {
        check(0, 1, &[]);
        check(5_000, 1, &[5_000]);
        check(5_001, 1, &[5_000, 1]);
        check(9, 1 << 20, &[8, 1]);
    }
}
