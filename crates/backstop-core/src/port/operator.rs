//! What operators do: list and change jobs, bound and pause queues, prune.

use super::backlog::{EnqueueOutcome, check_count};
use super::error::{StoreError, StoreResult};
use crate::amend::{AmendAction, AmendRefusal, Filter, Selection, check_permitted};
use crate::bounds::QueueBounds;
use crate::failure::FailureHistory;
use crate::fingerprint::Fingerprint;
use crate::job::{Job, JobId, JobState, NewJob};
use crate::lease::WorkerName;
use crate::limits::{AMEND_MAX, FIND_MAX, HOLDERS_MAX};
use crate::name::QueueName;
use crate::time::{Span, Time};
use crate::unique::UniqueKey;
use crate::verdict::EndReason;
use async_trait::async_trait;

/// A request for one page of a list of jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListJobsRequest {
    pub filter: Filter,
    /// The cursor where the previous page ended. Only the store can read it.
    pub cursor: Option<String>,
    /// At most this many jobs; clamped to 1 … [`crate::limits::PAGE_MAX`].
    pub limit: usize,
    pub order: ListOrder,
}

/// The order of a list of ended jobs; other lists have one order only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListOrder {
    #[default]
    Newest,
    Oldest,
}

/// One page of a list of jobs. Waiting jobs are ordered by due time, ready jobs by claim order,
/// ended jobs newest first, and jobs of mixed states by arrival, newest first. A page may be short
/// or even empty: the list ends only when `next` is `None`. A page ends early once its jobs have
/// [`crate::limits::PAGE_BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ListJobsResult {
    pub jobs: Vec<Job>,
    /// Jobs of the page that cannot be read. The list goes on behind them.
    pub damaged: Vec<DamagedJob>,
    /// The cursor of the next page; `None` at the end of the list.
    pub next: Option<String>,
}

/// A job that the store has and cannot read. An operator can delete it by its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedJob {
    /// The job's id, if the store can read it.
    pub id: Option<JobId>,
    /// The job's queue, if the store can read it.
    pub queue: Option<QueueName>,
    /// Which part cannot be read, and why.
    pub why: String,
}

/// A request to retry, cancel, delete or move jobs. A selection by filter, or of all jobs, is done
/// page by page: see [`crate::amend`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmendJobsRequest {
    /// Which jobs. At most [`crate::limits::AMEND_MAX`] ids, which are all done in one call.
    pub selection: Selection,
    pub action: AmendAction,
    /// Only jobs that are in this state at the moment of the change; `None` allows every state
    /// that the action allows.
    pub only: Option<JobState>,
    /// The cursor where the previous call ended. Only the store can read it. Ignored for ids.
    pub cursor: Option<String>,
    /// At most this many matching jobs in one call; clamped to 1 … [`crate::limits::AMEND_MAX`].
    /// Ignored for ids.
    pub max: usize,
}

/// A checked selection of jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AmendSelection<'a> {
    /// These jobs; the result says which of them were refused.
    Ids(&'a [JobId]),
    /// All jobs that match. Only [`Selection::All`] leads to an empty filter, which matches every
    /// job.
    Matching(Filter),
}

impl AmendJobsRequest {
    /// Checks the selection. Refuses one that exceeds the limits, and one by an empty filter.
    pub fn check_selection(&self) -> StoreResult<AmendSelection<'_>> {
        match &self.selection {
            Selection::Ids(ids) | Selection::Within(_, ids) => {
                check_count("amend", ids.len(), AMEND_MAX)?;
                Ok(AmendSelection::Ids(ids))
            }
            Selection::Matching(filter) if filter.is_empty() => Err(StoreError::misuse(
                "amend",
                "an empty filter; say `All` to mean every job",
            )),
            Selection::Matching(filter) => Ok(AmendSelection::Matching(filter.clone())),
            Selection::All => Ok(AmendSelection::Matching(Filter::default())),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AmendResult {
    /// The number of jobs that were changed.
    pub applied: usize,
    /// The jobs that were refused, and why. A filter matches only jobs that the action could apply
    /// to. So it only reports jobs whose unique key has a new holder and jobs whose queue is full.
    pub refused: Vec<(JobId, AmendRefusal)>,
    /// The cursor for the next call; `None` at the end, and for ids.
    pub next: Option<String>,
}

/// The number of jobs of a queue, per state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateCounts([u64; JobState::ALL.len()]);

impl StateCounts {
    /// The number of jobs in `state`.
    pub const fn of(&self, state: JobState) -> u64 {
        self.0[state as usize]
    }

    /// The count of `state`, for writing.
    pub const fn of_mut(&mut self, state: JobState) -> &mut u64 {
        &mut self.0[state as usize]
    }

    /// The number of jobs that have not ended.
    pub fn live(&self) -> u64 {
        JobState::ALL
            .into_iter()
            .filter(|state| !state.is_final())
            .map(|state| self.of(state))
            .sum()
    }
}

/// Counters of a queue since it was created. They only grow, and stay when jobs are removed. A job
/// that is retried and ends again is counted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTotals {
    /// Jobs that the store inserted, buried dead letters included. A job that was moved here from
    /// another queue does not count.
    pub enqueued: u64,
    /// Jobs that a run ended as done.
    pub done: u64,
    /// Jobs that became dead by a run, by a vanished worker or by the overflow of the queue, and
    /// buried dead letters.
    pub dead: u64,
    /// Jobs that were cancelled by a run, by an operator or by the overflow of the queue.
    pub cancelled: u64,
}

/// A queue as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    pub name: QueueName,
    /// Whether workers may claim its jobs.
    pub state: QueueState,
    /// The number of jobs per state.
    pub counts: StateCounts,
    /// What happened since the queue was created.
    pub totals: QueueTotals,
    /// The `run_at` of the ready job that is claimed next.
    pub next_ready: Option<Time>,
    pub bounds: QueueBounds,
}

/// A dead letter from outside: from an export, or from a stream or table whose jobs never were in
/// this store.
#[derive(Clone, PartialEq, Debug)]
pub struct NewDeadLetter {
    /// The job as a producer would have pushed it. Its `run_at` is when it was last to run.
    pub job: NewJob,
    /// Runs that ended by themselves; runs whose worker vanished do not count.
    pub attempts: u32,
    pub lost_leases: u32,
    /// How often an operator requeued it.
    pub requeues: u32,
    /// When the job was first enqueued.
    pub inserted_at: Time,
    pub finished_at: Time,
    pub reason: EndReason,
    pub history: FailureHistory,
}

impl NewDeadLetter {
    /// The fingerprint of its death, which groups it with deaths of the same cause.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_death(Some(self.reason), &self.history)
    }
}

/// The job that last took a unique key. It may have ended and hold the key all the same. Or it is
/// live and the key is free again, because its uniqueness period is over or because the job has
/// left the states in which it holds the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UniqueKeyHolder {
    pub job: JobId,
    /// The job's state; `None` if the job was removed and still holds the key.
    pub state: Option<JobState>,
}

impl UniqueKeyHolder {
    /// Whether the job has not ended: it waits, is ready, or runs.
    pub fn is_live(&self) -> bool {
        self.state.is_some_and(|state| !state.is_final())
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListGroupsRequest {
    /// The groups of this queue; of all queues if `None`.
    pub queue: Option<QueueName>,
    /// At most this many groups, largest first; clamped to 1 … [`crate::limits::GROUPS_MAX`].
    pub limit: usize,
}

/// Dead letters of one queue that share a cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterGroup {
    pub queue: QueueName,
    /// The fingerprint that all of them share.
    pub fingerprint: Fingerprint,
    pub count: u64,
    /// The earliest death among the dead letters that are still there.
    pub first_at: Time,
    /// The latest death among them.
    pub last_at: Time,
    /// The dead letter that died last; among equal times, the one that was inserted last.
    pub sample: JobId,
}

/// Whether workers may claim jobs of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    Active,
    /// The queue accepts pushes, but no job is claimed.
    Paused,
}

/// A worker as its heartbeats show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerStatus {
    pub name: WorkerName,
    pub queues: Vec<QueueName>,
    /// The time of its last heartbeat.
    pub seen_at: Time,
    /// The number of jobs that it has leased.
    pub running: u64,
}

/// Leases that have expired and whose jobs nobody has taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiredLeases {
    /// A rough measure, not a number of jobs: the number of expired claims. A store may count each
    /// queue or priority level of a claim by itself, and a claim whose jobs have all ended. It
    /// counts no further than [`crate::limits::EXPIRED_COUNTED_MAX`].
    pub count: usize,
    /// When the first of these leases expired.
    pub first: Option<Time>,
}

/// How long a queue keeps its ended jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    pub done_for: Span,
    /// At most this many done jobs, even if they are younger.
    pub done_max: u64,
    pub cancelled_for: Span,
    pub dead_for: Span,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            done_for: Span::hours(1),
            done_max: 100_000,
            cancelled_for: Span::days(7),
            dead_for: Span::days(180),
        }
    }
}

/// Which ended jobs to keep; pruning removes the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PruneRequest {
    /// The retention of queues without an entry; `None` leaves them alone, because a process that
    /// does not know a queue's settings must not remove its jobs.
    pub default: Option<Retention>,
    pub queues: Vec<(QueueName, Retention)>,
    /// At most this many removals in one call; clamped to [`crate::limits::PRUNE_MAX`].
    pub max: usize,
}

impl PruneRequest {
    /// The retention of a queue; `None` if it is left alone.
    pub fn retention_for(&self, queue: &QueueName) -> Option<Retention> {
        self.queues
            .iter()
            .find(|(name, _)| name == queue)
            .map_or(self.default, |(_, shelf)| Some(*shelf))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PruneResult {
    pub done: usize,
    pub cancelled: usize,
    /// Dead jobs that were removed. The caller must report them.
    pub dead: usize,
    /// Whether the next call would remove more, or has queues left to check.
    pub more: bool,
}

#[async_trait]
pub trait OperatorStore: Send + Sync {
    async fn job(&self, id: JobId, now: Time) -> StoreResult<Option<Job>>;

    /// All jobs with this id, ordered by queue. In a store that identifies a job by queue and id,
    /// several queues may have a job of the same id; in other stores there is at most one.
    async fn locate(&self, id: JobId, now: Time) -> StoreResult<Vec<Job>> {
        Ok(self.job(id, now).await?.into_iter().collect())
    }

    /// Reads jobs of a queue by id, in the order of `ids`; `None` where the queue has no such job.
    /// At most [`crate::limits::FIND_MAX`].
    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        now: Time,
    ) -> StoreResult<Vec<Option<Job>>>;

    async fn jobs(&self, query: ListJobsRequest, now: Time) -> StoreResult<ListJobsResult>;

    /// Applies an action to jobs, as [`crate::amend`] permits; the caller repeats it with `next`
    /// until there is none. Fails with [`super::StoreError::TooManyQueues`] and moves nothing if a
    /// move needs a new queue and the store already has its maximum number of queues.
    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult>;

    /// All queues, by name. The counts equal what counting the jobs would give.
    async fn queues(&self, now: Time) -> StoreResult<Vec<QueueStatus>>;

    /// Inserts dead letters from outside: from an export, or from a stream or table whose jobs
    /// never were in this store. The bounds of the queues apply, but not the limit on the number of
    /// queues. Answers `Inserted`, `Same` if the queue has a job of this id in whatever state (only
    /// the id is compared), `Conflict` or `Full`. The letters count as enqueued and as dead. They
    /// take no unique key before they are retried.
    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>>;

    /// For each of these unique keys of a queue, the job that last took it, in the order of `keys`.
    /// That job may have ended, if it still holds the key by the rules of [`crate::unique`]. If the
    /// key is free, the job is answered until it ends: its work is still under way, although
    /// somebody may push more of it. Otherwise the answer is `None`.
    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>>;

    /// Groups of dead letters: largest first, then latest death first, then by queue and
    /// fingerprint.
    async fn groups(
        &self,
        query: ListGroupsRequest,
        now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>>;

    /// Sets the bounds of a queue, for all processes; creates the queue if it does not exist. Jobs
    /// that already exceed a new bound stay.
    async fn set_bounds(&self, queue: QueueName, bounds: QueueBounds, now: Time)
    -> StoreResult<()>;

    /// Marks queues as configured; creates those that do not exist. The limit on the number of
    /// queues does not apply to them, and pruning never forgets them, whatever bounds they have.
    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()>;

    /// Resumes or pauses a queue, for all workers; creates the queue if it does not exist.
    async fn set_queue_state(
        &self,
        queue: QueueName,
        state: QueueState,
        now: Time,
    ) -> StoreResult<()>;

    /// All workers with a heartbeat within `within`, by name.
    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>>;

    /// The leases that expired before this time and whose jobs nobody has taken over.
    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases>;

    /// Removes ended jobs beyond their retention, oldest first: jobs that ended at or before `now`
    /// minus the span of their state, and done jobs beyond `done_max`. Forgets the unique keys of
    /// removed jobs once their period is over.
    ///
    /// One call checks at most [`crate::limits::PRUNE_QUEUES_MAX`] queues; the next call of the
    /// same store object continues behind them. A queue that was empty for
    /// [`crate::limits::QUEUE_KEPT_FOR`] is forgotten with its totals, unless it has bounds, is
    /// declared or is paused. A job that is pushed to it at the same moment is not lost.
    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult>;
}

/// The bytes that a job counts against [`crate::limits::PAGE_BYTES_MAX`].
pub fn page_bytes(job: &Job) -> usize {
    job.payload.len() + job.history.as_bytes().map_or(0, <[u8]>::len)
}

/// Refuses a lookup of more ids than the limit.
pub fn check_ids(ids: &[JobId]) -> StoreResult<()> {
    check_count("find jobs", ids.len(), FIND_MAX)
}

/// Refuses a lookup of more unique keys than the limit.
pub fn check_keys(keys: &[UniqueKey]) -> StoreResult<()> {
    check_count("look for holders", keys.len(), HOLDERS_MAX)
}

impl AmendJobsRequest {
    /// The queue in which to look up the ids; `None` lets the store find their queues.
    pub const fn within(&self) -> Option<&QueueName> {
        match &self.selection {
            Selection::Within(queue, _) => Some(queue),
            Selection::Ids(_) | Selection::Matching(_) | Selection::All => None,
        }
    }

    /// Whether the request applies to a job in `state`.
    pub fn permits(&self, state: JobState) -> Result<(), AmendRefusal> {
        if self.only.is_some_and(|meant| meant != state) {
            return Err(AmendRefusal::OtherState(state));
        }
        check_permitted(&self.action, state)
    }
}
