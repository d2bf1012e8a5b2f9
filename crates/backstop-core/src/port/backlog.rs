//! The life of a job in a store: enqueue, claim, heartbeat, settle, and recovery of expired leases.
//!
//! All jobs that one call leases share a lease number and an end time: together they are one
//! *claim*. A heartbeat renews a claim as a whole, and a claim expires as a whole. But if a shard
//! does not answer the heartbeat, the part of the claim on that shard may expire earlier.

use super::error::{StoreError, StoreResult};
use crate::job::{JobId, NewJob};
use crate::lease::{Lease, LeaseNumber, LeasedRun, WorkerName};
use crate::limits;
use crate::name::QueueName;
use crate::plan::QueueQuota;
use crate::time::Time;
use crate::verdict::{LostLease, Settlement};
use async_trait::async_trait;

/// What the store did with a new job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnqueueOutcome {
    Inserted,
    /// The queue already has a job of this id, in whatever state. Only the id is compared, not the
    /// payload. This job was not inserted.
    Same,
    /// Another job holds the unique key. This one was not inserted.
    Duplicate(JobId),
    /// The queue is full (see [`crate::bounds`]). This job was not inserted.
    Full,
    /// A job of another queue has this id. This one was not inserted. A store that identifies a job
    /// by queue and id never answers this: there the two are different jobs.
    Conflict,
}

/// A worker's request to lease ready jobs of several queues under one lease number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The lease number that all jobs of this claim get. Every claim draws a new one; only a
    /// repeated call reuses it.
    pub number: LeaseNumber,
    pub worker: WorkerName,
    /// When the leases end, unless a heartbeat renews them.
    pub until: Time,
    /// The queues to claim from, and how many jobs of each.
    pub wants: Vec<QueueQuota>,
}

/// The jobs that a claim leased.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClaimResult {
    pub runs: Vec<LeasedRun>,
    /// Queues whose shard did not answer while others did. The store may have leased jobs of these
    /// queues anyway; a repeated claim with the same lease number returns them.
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
    /// The leases that the worker still holds. One lease is enough to renew all leases of its
    /// claim.
    pub leases: Vec<Lease>,
    /// The new end of those claims, by the rule of [`crate::lease::extend_lease`]: a late
    /// heartbeat never shortens a claim.
    pub until: Time,
}

/// What a heartbeat could not renew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BeatResult {
    /// The named leases that the worker lost: they are no longer current, and the worker did not
    /// settle their jobs. A job that was removed when it was settled remembers no settlement, so
    /// its lease counts as lost too.
    pub lost: Vec<Lease>,
    /// Queues whose shard did not answer while others did. Whether their leases were renewed is
    /// unknown.
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

/// A request to take over jobs whose leases have expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeizeRequest {
    /// The new lease number of the jobs; drawn anew for each call, as in [`Claim`].
    pub number: LeaseNumber,
    pub worker: WorkerName,
    pub until: Time,
    /// At most this many jobs.
    pub max: usize,
    /// Skip these queues: their shard was unreachable, so their workers could not renew leases
    /// yet. The store may return fewer jobs of the other queues than have expired. PostgreSQL
    /// and SQLite return nothing if this is not empty: a store on a single server is reachable
    /// as a whole or not at all, so no worker should have a reason to skip only some of its
    /// queues.
    pub spared: Vec<QueueName>,
}

/// A job taken over from a worker that sends no heartbeats any more.
#[derive(Clone, PartialEq, Debug)]
pub struct SeizedRun {
    /// The job under its new lease.
    pub run: LeasedRun,
    pub vanished: LostLease,
    /// Whether the vanished worker had called [`JobStore::begin`] for the lease that it lost.
    pub begun: bool,
}

/// The jobs that a [`SeizeRequest`] took over.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SeizeResult {
    pub runs: Vec<SeizedRun>,
    /// Whether another call would find more expired leases. The store knows this; it is not
    /// guessed from the number of `runs`. A lease that its worker settles at the same moment
    /// need not count. It may also be true when nothing is left: after a repeated call, when a
    /// shard did not answer, or when jobs ended meanwhile.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PromoteResult {
    /// How many jobs became ready.
    pub moved: usize,
    /// When the next waiting job is due, if there is one. Not later than `now` if more jobs are
    /// due than one call promotes.
    pub next_due: Option<Time>,
    /// Queues whose shard did not answer while others did.
    pub unanswered: Vec<QueueName>,
}

/// What the store did with a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleOutcome {
    /// The store applied it. A repetition of the same settlement gets this answer too, while the
    /// job is kept.
    Applied,
    /// The lease was no longer current, or the job is gone. Nothing was changed. This very
    /// settlement may have removed the job ([`DoneRetention::Gone`]); the store then cannot
    /// recognise a repetition.
    ///
    /// [`DoneRetention::Gone`]: crate::verdict::DoneRetention::Gone
    Stale,
    /// The job is to become dead, and its queue already has `dead_max` dead letters. Nothing was
    /// changed: the lease is still current.
    Full,
    /// The queue's shard did not answer, or refused the settlement, while other queues answered.
    /// The settlement may have been applied or not; the caller repeats it. Sent alone, a refused
    /// settlement is an error.
    Unanswered,
}

/// The life of a job. Every method is atomic, and safe to repeat when its outcome is unknown.
///
/// A store may have shards, as a Redis cluster does. Then a method is atomic per queue, and a shard
/// that does not answer does not spoil the answers of the others: the answer names the queues that
/// are missing. A method fails only if no shard answers.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Inserts jobs, within the bounds of their queues; answers in the order of `jobs`. Inserted
    /// jobs are durable once this returns. If a job names a new queue and the store already has its
    /// maximum number of queues, the whole call fails with [`StoreError::TooManyQueues`] and
    /// inserts nothing. That limit does not apply to queues made by
    /// [`super::OperatorStore::declare_queues`], [`super::OperatorStore::set_bounds`] and
    /// [`super::OperatorStore::set_queue_state`].
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>>;

    /// Leases ready jobs to a worker: by priority level, then in the order in which they became
    /// ready. It visits queues in the order of `wants` and skips paused ones. It stops once the
    /// payloads reach [`limits::CLAIM_BYTES_MAX`] bytes. A repeated claim returns the jobs of the
    /// first call that are still unsettled; once all of them are settled, the lease number counts
    /// as new. `now` is recorded as the time at which the worker got the jobs.
    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult>;

    /// Records that these runs have begun, and returns the leases that are no longer current. Like
    /// a claim, the record need not be durable when this returns. At most
    /// [`limits::CLAIM_JOBS_MAX`] leases.
    async fn begin(&self, leases: Vec<Lease>, now: Time) -> StoreResult<Vec<Lease>>;

    /// Ends runs; there is no other way to end one. Answers in the order of `settlements`. A job
    /// remembers the last settlement that the store applied to it, so that a repetition is
    /// recognised. A job that the settlement removes remembers nothing.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>>;

    /// Renews claims, and returns the named leases that were lost.
    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult>;

    /// Makes at most `max` due jobs ready: by due time, then in the order in which they were
    /// inserted.
    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult>;

    /// Takes over jobs whose claims have expired (see [`crate::lease::is_expired`]), earliest
    /// `until` first. From then on the old worker's leases are stale; the caller judges the jobs
    /// and settles them under the new lease.
    ///
    /// Before it takes any over, the store gives a new end to the claims of each worker that has
    /// sent no heartbeat since the clock was set back (see
    /// [`crate::lease::end_after_clock_set_back`]). If the caller dies before it settles, the next
    /// seizure still reports the worker that vanished first and whether it had begun. `now` is
    /// recorded as the time at which the caller got the jobs. A claim without unsettled jobs must
    /// not hide the expired claims behind it.
    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult>;
}

/// Refuses an enqueue that exceeds the limits, and one with a job that exceeds its own limits.
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
    // The type of a retry policy bounds its size, so there is nothing to check here.
    for job in jobs {
        let refused = |error| StoreError::misuse("enqueue", format!("job {}: {error}", job.id));
        job.check_run_at(now).map_err(refused)?;
    }
    Ok(())
}

/// Refuses a claim that exceeds the limits.
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
    check_lease_duration("claim", claim.until, now)
}

/// Refuses a lease that ends before it begins, or that could hold a job for days.
pub fn check_lease_duration(doing: &'static str, until: Time, now: Time) -> StoreResult<()> {
    let term = until.since(now);
    // The limit for users is `LEASE_MAX`. The check allows an hour more, because the clock of the
    // caller that chose `until` may be ahead of this one.
    if term.is_zero() || term > limits::LEASE_REQUEST_MAX {
        let cause = format!(
            "a lease of {term} was requested; it must be longer than zero and at most {}",
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
