//! Looking and intervening.

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

/// A page of a list to be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListJobsRequest {
    pub filter: Filter,
    /// Where the page before this one ended; made by the store, and opaque to everybody else.
    pub cursor: Option<String>,
    /// At most this many; clamped to 1 … [`crate::limits::PAGE_MAX`].
    pub limit: usize,
    pub order: ListOrder,
}

/// In which order a list of ended jobs comes; other lists have one order only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListOrder {
    #[default]
    Newest,
    Oldest,
}

/// A page of a list. Waiting jobs come by their time, ready ones in claim order, ended ones newest
/// first, and jobs of mixed states newest first by arrival. A page may be short, even empty: the
/// list ends when `next` is `None`. A page ends once its jobs have
/// [`crate::limits::PAGE_BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ListJobsResult {
    pub jobs: Vec<Job>,
    /// Those among them that cannot be read. They hide nothing: the list goes on behind them.
    pub damaged: Vec<DamagedJob>,
    /// Where the next page starts.
    pub next: Option<String>,
}

/// A job that is there and cannot be read. It can be deleted by its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedJob {
    /// Its id, if that much is known.
    pub id: Option<JobId>,
    /// Its queue, if that much is known.
    pub queue: Option<QueueName>,
    /// What cannot be read, and why.
    pub why: String,
}

/// Something to be done to jobs. A selection by filter, or of all, is paged through: see
/// [`crate::amend`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmendJobsRequest {
    /// To which. Ids are at most [`crate::limits::AMEND_MAX`], and are done in one call.
    pub selection: Selection,
    pub action: AmendAction,
    /// Only to jobs that are in this state when it is done; `None` leaves that to the action.
    pub only: Option<JobState>,
    /// Where the call before this one ended; made by the store, and opaque to everybody else. Ids
    /// do not heed it.
    pub cursor: Option<String>,
    /// At most so many fitting jobs in one call; clamped to 1 … [`crate::limits::AMEND_MAX`]. Ids
    /// do not heed it.
    pub max: usize,
}

/// What an amendment selects, once it is clear that it says what it means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AmendSelection<'a> {
    /// These, and an answer for each.
    Ids(&'a [JobId]),
    /// Those that fit; an empty filter, which only `All` comes to, fits every job.
    Matching(Filter),
}

impl AmendJobsRequest {
    /// What it selects. One that is over the limits, or whose filter says nothing, is refused.
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
    /// To how many jobs it was applied.
    pub applied: usize,
    /// To which it was not, and why. By filter a job fits only if the action could apply to it, so
    /// that what is refused are the jobs whose unique key has a new holder, and those whose queue
    /// is full.
    pub refused: Vec<(JobId, AmendRefusal)>,
    /// Where to go on; `None` at the end, and for ids.
    pub next: Option<String>,
}

/// How many jobs of a queue are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateCounts([u64; JobState::ALL.len()]);

impl StateCounts {
    /// How many are in `state`.
    pub const fn of(&self, state: JobState) -> u64 {
        self.0[state as usize]
    }

    /// The count of `state`, to be set.
    pub const fn of_mut(&mut self, state: JobState) -> &mut u64 {
        &mut self.0[state as usize]
    }

    /// How many have not ended.
    pub fn live(&self) -> u64 {
        JobState::ALL
            .into_iter()
            .filter(|state| !state.is_final())
            .map(|state| self.of(state))
            .sum()
    }
}

/// What has ever happened in a queue; kept when the jobs are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTotals {
    pub enqueued: u64,
    /// Runs that ended a job as done.
    pub done: u64,
    /// Runs that ended a job as dead.
    pub dead: u64,
    pub cancelled: u64,
}

/// A queue as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    pub name: QueueName,
    /// Whether its jobs are given out.
    pub state: QueueState,
    /// How many jobs are where.
    pub counts: StateCounts,
    /// What has ever happened in it.
    pub totals: QueueTotals,
    /// When the job that is claimed next was to run.
    pub next_ready: Option<Time>,
    pub bounds: QueueBounds,
}

/// A job that comes in dead: taken back from an export, or given up by a process that never queued
/// it.
#[derive(Clone, PartialEq, Debug)]
pub struct NewDeadLetter {
    /// What a producer would have handed in. Its time to run is when it was last to run.
    pub job: NewJob,
    /// Runs that ended by themselves.
    pub attempts: u32,
    pub lost_leases: u32,
    /// How often an operator requeued it.
    pub requeues: u32,
    /// When it came in first.
    pub inserted_at: Time,
    pub finished_at: Time,
    pub reason: EndReason,
    pub history: FailureHistory,
}

impl NewDeadLetter {
    /// What its death has in common with others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_death(Some(self.reason), &self.history)
    }
}

/// The job that holds a unique key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UniqueKeyHolder {
    pub job: JobId,
    /// Where it stands; `None` if it is gone, and left its key behind.
    pub state: Option<JobState>,
}

impl UniqueKeyHolder {
    /// Whether it has not ended: it waits, is ready, or runs.
    pub fn is_live(&self) -> bool {
        self.state.is_some_and(|state| !state.is_final())
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListGroupsRequest {
    /// Of this queue; of all if `None`.
    pub queue: Option<QueueName>,
    /// At most so many, the largest first; clamped to 1 … [`crate::limits::GROUPS_MAX`].
    pub limit: usize,
}

/// Dead letters of one queue that died of the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterGroup {
    pub queue: QueueName,
    /// What they have in common.
    pub fingerprint: Fingerprint,
    pub count: u64,
    /// When the first of those present died.
    pub first_at: Time,
    /// When the last one did.
    pub last_at: Time,
    /// The last one; of several at one time the one that came in last.
    pub sample: JobId,
}

/// Whether a queue gives out its jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    Active,
    /// It takes jobs in and keeps them.
    Paused,
}

/// A worker as its beats show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerStatus {
    pub name: WorkerName,
    pub queues: Vec<QueueName>,
    /// Its last sign of life.
    pub seen_at: Time,
    /// How many jobs it holds.
    pub running: u64,
}

/// Leases that have ended and that nobody has taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiredLeases {
    /// How many claims there are, or of them parts in a queue or level; at most about
    /// [`crate::limits::EXPIRED_COUNTED_MAX`].
    pub count: usize,
    /// When the first of them ended.
    pub first: Option<Time>,
}

/// How long the ended jobs of a queue stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    pub done_for: Span,
    /// And no more than so many of them.
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

/// What ended jobs to keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PruneRequest {
    /// For queues without an entry; `None` leaves them alone: whoever knows nothing of a queue
    /// removes nothing of it.
    pub default: Option<Retention>,
    pub queues: Vec<(QueueName, Retention)>,
    /// At most so many removals in one call; clamped to [`crate::limits::PRUNE_MAX`].
    pub max: usize,
}

impl PruneRequest {
    /// The shelf of a queue; `None` if it is left alone.
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
    /// Dead jobs. Never silent: whoever prunes says so.
    pub dead: usize,
    /// Whether the next call would find more, or has queues left to look at.
    pub more: bool,
}

#[async_trait]
pub trait OperatorStore: Send + Sync {
    async fn job(&self, id: JobId, now: Time) -> StoreResult<Option<Job>>;

    /// All jobs of an id, by their queues. Where a store knows ids by their queue, several queues
    /// may have one each; elsewhere there is one or none.
    async fn locate(&self, id: JobId, now: Time) -> StoreResult<Vec<Job>> {
        Ok(self.job(id, now).await?.into_iter().collect())
    }

    /// Jobs of a queue by their ids, in the order of `ids`; `None` where the queue has no such job.
    /// At most [`crate::limits::FIND_MAX`].
    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        now: Time,
    ) -> StoreResult<Vec<Option<Job>>>;

    async fn jobs(&self, query: ListJobsRequest, now: Time) -> StoreResult<ListJobsResult>;

    /// Does something to jobs, as [`crate::amend`] permits; the caller goes on at `next` until
    /// there is none. A move to a new queue is refused as [`super::StoreError::TooManyQueues`]
    /// where a push to it would be, and then nothing is moved.
    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult>;

    /// All queues, by name. The counts equal what a count of the jobs would give.
    async fn queues(&self, now: Time) -> StoreResult<Vec<QueueStatus>>;

    /// Takes dead letters in, as far as the bounds of their queues let them: `Inserted`, `Same` if
    /// the id is known in whatever state, or `Full`. A letter of a new queue is taken in however
    /// many queues there are. They count as taken in and as dead. No unique
    /// key is taken: a dead job holds none.
    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>>;

    /// Who holds these unique keys of a queue, in the order of the keys. Where [`crate::unique`]
    /// says that a key is free, it is still answered who took it last, as long as that job has not
    /// ended: its work is on its way, whoever may push more of it.
    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>>;

    /// Groups of deaths: the largest first, of equal ones the one that died last, then by queue and
    /// fingerprint.
    async fn groups(
        &self,
        query: ListGroupsRequest,
        now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>>;

    /// Sets how much a queue holds, for everybody; a queue that does not exist yet comes into
    /// being. What is over a new bound already stays.
    async fn set_bounds(&self, queue: QueueName, bounds: QueueBounds, now: Time)
    -> StoreResult<()>;

    /// Marks queues as configured, whatever bounds they have: a store that has as many queues as it
    /// may have takes them all the same, and no pruning forgets them. A queue that does not exist
    /// yet comes into being.
    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()>;

    /// Opens or pauses a queue, for all workers; a queue that does not exist yet comes into being.
    async fn set_queue_state(
        &self,
        queue: QueueName,
        state: QueueState,
        now: Time,
    ) -> StoreResult<()>;

    /// All workers that beat within `within`, by name.
    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>>;

    /// The leases that ended before this time and that nobody has taken over.
    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases>;

    /// Removes ended jobs whose time is over, oldest first: those that ended at or before `now`
    /// minus the shelf's span, and done ones over the shelf's number. Forgets the unique keys of
    /// jobs that are gone once their period is over.
    ///
    /// One call looks at no more than [`crate::limits::PRUNE_QUEUES_MAX`] queues; the next call of
    /// the same store object goes on where it stopped. A queue that was found empty for
    /// [`crate::limits::QUEUE_KEPT_FOR`] is forgotten with its totals, unless it has bounds, is
    /// declared or is paused; a job that is pushed to it at the same moment is not lost.
    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult>;
}

/// How much a job counts against [`crate::limits::PAGE_BYTES_MAX`].
pub fn page_bytes(job: &Job) -> usize {
    job.payload.len() + job.history.as_bytes().map_or(0, <[u8]>::len)
}

/// Refuses to find more than the limits allow.
pub fn check_ids(ids: &[JobId]) -> StoreResult<()> {
    check_count("find jobs", ids.len(), FIND_MAX)
}

/// Refuses a question that is over the limits.
pub fn check_keys(keys: &[UniqueKey]) -> StoreResult<()> {
    check_count("look for holders", keys.len(), HOLDERS_MAX)
}

impl AmendJobsRequest {
    /// The queue that its ids are looked for in; `None` leaves it to the store to find them.
    pub const fn within(&self) -> Option<&QueueName> {
        match &self.selection {
            Selection::Within(queue, _) => Some(queue),
            Selection::Ids(_) | Selection::Matching(_) | Selection::All => None,
        }
    }

    /// Whether it may be done to a job in `state`.
    pub fn permits(&self, state: JobState) -> Result<(), AmendRefusal> {
        if self.only.is_some_and(|meant| meant != state) {
            return Err(AmendRefusal::OtherState(state));
        }
        check_permitted(&self.action, state)
    }
}
