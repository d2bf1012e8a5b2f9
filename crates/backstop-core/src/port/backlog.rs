//! Jobs in, jobs out, and what keeps them from getting lost in between.

use super::error::{StoreError, StoreResult};
use crate::job::{JobId, NewJob};
use crate::lease::{Lease, LeaseNumber, LeasedRun, WorkerName};
use crate::limits;
use crate::name::QueueName;
use crate::plan::QueueQuota;
use crate::time::Time;
use crate::verdict::{LostLease, Settlement};
use async_trait::async_trait;

/// What became of a new job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnqueueOutcome {
    Inserted,
    /// It was in already: the same id, whatever state it is in by now.
    Same,
    /// Another job holds its unique key; this one was not taken.
    Duplicate(JobId),
    /// The queue is full, as [`crate::bounds`] says; this one was not taken.
    Full,
    /// A job of another queue has this id; this one was not taken. A store that knows ids by their
    /// queue never says so: there the two are different jobs.
    Conflict,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The number all its leases will carry; drawn anew for every claim, and the same only to
    /// repeat one.
    pub number: LeaseNumber,
    pub worker: WorkerName,
    /// Until when the jobs are its own, unless it beats.
    pub until: Time,
    /// From where, and how many.
    pub wants: Vec<QueueQuota>,
}

/// What came of a claim.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClaimResult {
    pub runs: Vec<LeasedRun>,
    /// Queues that did not answer while others did, as those in a part of a cluster that is gone.
    /// They may have handed out some all the same: whoever asks them again under the same number
    /// hears of it.
    pub unanswered: Vec<QueueName>,
}

impl ClaimResult {
    pub const fn whole(runs: Vec<LeasedRun>) -> Self {
        Self {
            runs,
            unanswered: Vec::new(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeatRequest {
    pub worker: WorkerName,
    pub queues: Vec<QueueName>,
    /// The leases it holds. A claim stays alive as a whole while any of its leases is named.
    pub leases: Vec<Lease>,
    /// The new end of those claims, as [`crate::lease::extended`] says: a beat that comes late
    /// makes no claim shorter.
    pub until: Time,
}

/// What came of a beat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BeatResult {
    /// Which of the named leases were lost: they are no longer the current ones, and their jobs
    /// were not settled under them. A job that is gone remembers no settlement, so its lease is
    /// lost.
    pub lost: Vec<Lease>,
    /// Queues that did not answer while others did: whether their leases are kept is not known.
    pub unanswered: Vec<QueueName>,
}

impl BeatResult {
    pub const fn whole(lost: Vec<Lease>) -> Self {
        Self {
            lost,
            unanswered: Vec::new(),
        }
    }
}

/// A request for what dead workers left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeizeRequest {
    /// The number the jobs will carry from now on; as in [`Claim`].
    pub number: LeaseNumber,
    pub worker: WorkerName,
    pub until: Time,
    /// At most this many jobs.
    pub max: usize,
    /// Queues of which nothing is taken: they were away, and their workers have not had time to
    /// beat since. Of the others less may be taken meanwhile than there is; nothing, where all
    /// queues are away or there together and nobody has a reason to spare some.
    pub spared: Vec<QueueName>,
}

/// A job taken over from a worker that stopped beating.
#[derive(Clone, PartialEq, Debug)]
pub struct SeizedRun {
    /// The job under its new lease.
    pub run: LeasedRun,
    pub vanished: LostLease,
    /// Whether that one had noted by [`Backlog::begin`] that it began, under the lease it lost.
    pub begun: bool,
}

/// What came of a [`Seize`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SeizeResult {
    pub runs: Vec<SeizedRun>,
    /// Whether expired leases are left that another call would take: known to the store, not
    /// guessed from how many runs there are. A lease that its worker settles at this moment does
    /// not count. Where a part of the store did not answer, or after a repeated call, it may be
    /// true for no reason.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PromoteResult {
    /// How many jobs became ready.
    pub moved: usize,
    /// When the next one is due, if one waits; not after `now` if more are due than one call moves.
    pub next_due: Option<Time>,
    /// Queues that did not answer while others did.
    pub unanswered: Vec<QueueName>,
}

/// What became of a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleOutcome {
    /// It counts; also said when the very same settlement is repeated while its job is kept.
    Applied,
    /// The lease was no longer the current one, or its job is gone, be it by this very settlement
    /// ([`Keep::Gone`]): nothing is left to recognise a repetition by. Nothing was changed.
    ///
    /// [`Keep::Gone`]: crate::verdict::Keep::Gone
    Stale,
    /// The job is to die and its queue's dead letters are at their bound. Nothing was changed: the
    /// lease is still current.
    Full,
    /// Its queue did not answer while others did, or refused: by itself it is then refused. It may
    /// count, or not: the same settlement is to be repeated.
    Unanswered,
}

/// The life of a job. Every method is atomic, and safe to repeat when its outcome is unknown.
///
/// A store may be in parts, as a cluster is: then a method is atomic in each of its queues. A part
/// that does not answer takes nothing of the others with it: what they say is the answer, with the
/// queues that are missing from it. A method fails if nobody answers.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Takes jobs in, as far as the bounds of their queues let them. When it answers, those
    /// inserted are durable. Answers in the order of `jobs`. If a job names a new queue and the
    /// store has as many queues as it may have, the call is refused as
    /// [`StoreError::TooManyQueues`] and nothing of it is taken in. Queues that
    /// [`super::Operator::declare_queues`], [`super::Operator::set_bounds`] and
    /// [`super::Operator::set_gate`] make are not refused.
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>>;

    /// Hands out ready jobs, by level and then in the order in which they became ready. Paused
    /// queues give nothing. A queue is asked in its turn as `wants` has it. Once the payloads have
    /// [`limits::CLAIM_BYTES_MAX`] bytes, no further job is handed out. A repeated claim answers
    /// with what is left of the first; once all of that is settled, the number is as good as new.
    /// `now` is when its jobs begin to be held, for whoever looks at them.
    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult>;

    /// Notes that these runs have begun, and tells which of the leases are no longer the current
    /// ones. As little durable by itself as a claim. At most [`limits::CLAIM_JOBS_MAX`] leases.
    async fn begin(&self, leases: Vec<Lease>, now: Time) -> StoreResult<Vec<Lease>>;

    /// Ends runs: the only way to. Answers in the order of `settlements`. A job remembers the last
    /// settlement it accepted, to recognise its repetition; one that is gone at once remembers
    /// nothing.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>>;

    /// Keeps claims alive, and tells which of the named leases were lost.
    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult>;

    /// Makes jobs ready whose time has come, at most `max`: by time, then in the order in which
    /// they came in.
    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult>;

    /// Takes over jobs whose claims have expired, as [`crate::lease::is_expired`] says: from then
    /// on the old worker's word is stale. Claims of workers that were not heard of since the clock
    /// was set back get a new end before that, as [`crate::lease::moved_back`] says. The claim with
    /// the earliest `until` is taken first. Whoever seizes judges, and settles under the new lease;
    /// if it dies before, who vanished and whether they had begun stay what they were. It has held
    /// them since `now`. A lease without jobs is none: it keeps no call from going on to those
    /// behind it.
    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult>;
}

/// Refuses an enqueue that is over the limits, and one of a job that is over its own.
pub fn check_enqueue(jobs: &[NewJob], now: Time) -> StoreResult<()> {
    let bytes: usize = jobs.iter().map(|job| job.payload.len()).sum();
    if jobs.len() > limits::ENQUEUE_JOBS_MAX || bytes > limits::ENQUEUE_BYTES_MAX {
        let cause = format!(
            "{} jobs of {bytes} bytes at once; at most {} jobs and {} bytes go into one call",
            jobs.len(),
            limits::ENQUEUE_JOBS_MAX,
            limits::ENQUEUE_BYTES_MAX,
        );
        return Err(StoreError::misuse("enqueue", cause));
    }
    // How large a policy may be, its type says: none that is larger can be made.
    for job in jobs {
        let refused = |error| StoreError::misuse("enqueue", format!("job {}: {error}", job.id));
        job.check_run_at(now).map_err(refused)?;
    }
    Ok(())
}

/// Refuses a claim that is over the limits.
pub fn check_claim(claim: &Claim, now: Time) -> StoreResult<()> {
    let jobs: usize = claim.wants.iter().map(|want| want.max).sum();
    if jobs > limits::CLAIM_JOBS_MAX || claim.wants.len() > limits::CLAIM_QUEUES_MAX {
        let cause = format!(
            "{jobs} jobs of {} queues at once; at most {} jobs of {} queues",
            claim.wants.len(),
            limits::CLAIM_JOBS_MAX,
            limits::CLAIM_QUEUES_MAX
        );
        return Err(StoreError::misuse("claim", cause));
    }
    check_term("claim", claim.until, now)
}

/// Refuses a lease that would be over before it began, or that could hold a job for days.
pub fn check_term(doing: &'static str, until: Time, now: Time) -> StoreResult<()> {
    let term = until.since(now);
    if term.is_zero() || term > limits::LEASE_REQUEST_MAX {
        let cause = format!(
            "a lease of {term}; a lease is longer than nothing and at most {}",
            limits::LEASE_MAX
        );
        return Err(StoreError::misuse(doing, cause));
    }
    Ok(())
}

/// Refuses a call of more than `max` items.
pub fn check_count(doing: &'static str, count: usize, max: usize) -> StoreResult<()> {
    if count > max {
        return Err(StoreError::misuse(
            doing,
            format!("{count} items at once; at most {max} go into one call"),
        ));
    }
    Ok(())
}
