//! Calls and answers as values, so that the same call can be made to several stores and the answers
//! compared.

use crate::given::try_list;
use backstop_core::amend::{AmendRefusal, Filter};
use backstop_core::limits::HOLDERS_MAX;
use backstop_core::port::{
    AdvanceOutcome, AmendJobsRequest, BeatRequest, Cell, CellSwap, Claim, DeadLetterGroup,
    EnqueueOutcome, KeyAdvance, KeyFilter, KeyLease, KeyStatus, ListCellsRequest,
    ListGroupsRequest, ListKeysRequest, NewDeadLetter, OfferOutcome, PruneRequest, QueueState,
    QueueStatus, SeizeRequest, SeizedRun, SettleOutcome, Store, StoreError, StoreResult,
    StreamStatus, SwapOutcome, TakeRequest, TakeResult, UniqueKeyHolder, WorkerStatus,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::Settlement;
use backstop_core::{
    Job, JobId, JobState, Lease, LeasedRun, NewJob, QueueBounds, QueueName, Span, StreamName, Time,
};
use std::collections::BTreeSet;

/// A call that may change a store.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Jobs in.
    Enqueue(Vec<NewJob>),
    /// Jobs out.
    Claim(Claim),
    /// A note that runs have begun.
    Begin(Vec<Lease>),
    /// The end of runs.
    Settle(Vec<Settlement>),
    /// A sign of life.
    Beat(BeatRequest),
    /// From waiting to ready, at most so many.
    Promote(usize),
    /// What dead workers left behind.
    Seize(SeizeRequest),
    /// An operator's intervention; on and on from where the store says to go on.
    Amend(AmendJobsRequest),
    /// Pausing and resuming.
    SetGate(QueueName, QueueState),
    /// How much a queue holds.
    SetBounds(QueueName, QueueBounds),
    /// Dead letters in.
    Bury(Vec<NewDeadLetter>),
    /// Changes of shared values.
    Swap(Vec<CellSwap>),
    /// The removal of what has ended; on and on while the store says that there is more.
    Prune(PruneRequest),
    /// Records of a stream in.
    Offer(StreamName, Vec<Record>),
    /// Keys of a stream out.
    Take(TakeRequest),
    /// Keys of streams kept until then.
    Keep(Vec<KeyLease>, Time),
    /// What was decided about keys.
    Advance(Vec<KeyAdvance>),
}

/// An answer, without what a store is free to choose: where the port names no order, there is none.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// One answer per job.
    Enqueued(Vec<EnqueueOutcome>),
    /// Queue by queue, each in claim order.
    Claimed(Vec<LeasedRun>),
    /// One answer per settlement.
    Settled(Vec<SettleOutcome>),
    /// The lost leases of a beat, sorted.
    Lost(Vec<Lease>),
    /// The lost leases of runs that were to begin, sorted.
    NotBegun(Vec<Lease>),
    /// How many became ready, and when the next is due; `now` if more are due than were moved.
    Promoted(usize, Option<Time>),
    /// What was taken over, by job.
    Seized(Vec<SeizedRun>),
    /// To how many it was done, and to which not.
    Amended(usize, Vec<(JobId, AmendRefusal)>),
    /// It is so.
    GateSet,
    /// It is so.
    BoundsSet,
    /// One answer per dead letter.
    Buried(Vec<EnqueueOutcome>),
    /// One answer per change.
    Swapped(Vec<SwapOutcome>),
    /// How many done, cancelled and dead jobs went.
    Pruned([usize; 3]),
    /// One answer per record.
    Offered(Vec<OfferOutcome>),
    /// By key; the next is due `now` if more are due than were handed out.
    Taken(TakeResult),
    /// The lost leases of keys, sorted.
    KeysLost(Vec<KeyLease>),
    /// One answer per decision.
    Advanced(Vec<AdvanceOutcome>),
    /// The call was wrong.
    Misuse,
}

/// More steps than this for what a test puts in is an operation that runs in circles.
const STEPS_MAX: usize = 10_000;

impl Operation {
    /// Makes the call; an error other than misuse is the caller's to judge.
    pub async fn run(&self, store: &dyn Store, now: Time) -> StoreResult<Reply> {
        match self.reply(store, now).await {
            Err(StoreError::Misuse { .. }) => Ok(Reply::Misuse),
            answer => answer,
        }
    }

    async fn reply(&self, store: &dyn Store, now: Time) -> StoreResult<Reply> {
        Ok(match self.clone() {
            Self::Enqueue(jobs) => Reply::Enqueued(known(store.enqueue(jobs, now).await?)),
            Self::Claim(claim) => {
                let mut runs = store.claim(claim, now).await?.runs;
                // A stable sort: the order within a queue is part of the answer.
                runs.sort_by(|a, b| a.lease.queue.cmp(&b.lease.queue));
                Reply::Claimed(runs)
            }
            Self::Begin(leases) => {
                let mut lost = store.begin(leases, now).await?;
                lost.sort();
                Reply::NotBegun(lost)
            }
            Self::Settle(settlements) => Reply::Settled(store.settle(settlements, now).await?),
            Self::Beat(beat) => {
                let mut lost = store.beat(beat, now).await?.lost;
                lost.sort();
                Reply::Lost(lost)
            }
            Self::Promote(max) => {
                let promoted = store.promote(max, now).await?;
                Reply::Promoted(promoted.moved, promoted.next_due.map(|due| due.max(now)))
            }
            Self::Seize(seize) => {
                let mut seized = store.seize(seize, now).await?.runs;
                seized.sort_by_key(|seized| seized.run.lease.job);
                Reply::Seized(seized)
            }
            Self::Amend(amendment) => amend(store, &amendment, now).await?,
            Self::SetGate(queue, gate) => {
                store.set_queue_state(queue, gate, now).await?;
                Reply::GateSet
            }
            Self::SetBounds(queue, bounds) => {
                store.set_bounds(queue, bounds, now).await?;
                Reply::BoundsSet
            }
            Self::Bury(burials) => Reply::Buried(known(store.bury(burials, now).await?)),
            Self::Swap(swaps) => Reply::Swapped(store.swap(swaps).await?),
            Self::Prune(retention) => prune(store, &retention, now).await?,
            Self::Offer(stream, records) => {
                Reply::Offered(store.offer(stream, records, now).await?)
            }
            Self::Take(take) => {
                let mut taken = store.take(take, now).await?;
                taken.keys.sort_by(|one, other| one.key.cmp(&other.key));
                taken.next_due = taken.next_due.map(|due| due.max(now));
                Reply::Taken(taken)
            }
            Self::Keep(leases, until) => {
                let mut lost = store.keep(leases, until, now).await?;
                lost.sort();
                Reply::KeysLost(lost)
            }
            Self::Advance(advances) => Reply::Advanced(store.advance(advances, now).await?),
        })
    }
}

async fn amend(store: &dyn Store, amendment: &AmendJobsRequest, now: Time) -> StoreResult<Reply> {
    let (mut applied, mut refused) = (0, Vec::new());
    let mut amendment = amendment.clone();
    for _ in 0..STEPS_MAX {
        let amended = store.amend(amendment.clone(), now).await?;
        applied += amended.applied;
        refused.extend(amended.refused);
        amendment.cursor = amended.next;
        if amendment.cursor.is_none() {
            break;
        }
    }
    refused.sort_by_key(|(id, _)| *id);
    Ok(Reply::Amended(applied, refused))
}

async fn prune(store: &dyn Store, retention: &PruneRequest, now: Time) -> StoreResult<Reply> {
    let mut gone = [0; 3];
    for _ in 0..STEPS_MAX {
        let pruned = store.prune(retention.clone(), now).await?;
        for (sum, part) in gone
            .iter_mut()
            .zip([pruned.done, pruned.cancelled, pruned.dead])
        {
            *sum += part;
        }
        if !pruned.more {
            break;
        }
    }
    Ok(Reply::Pruned(gone))
}

/// Everything a store shows of itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Visible {
    /// Its lists, each with what it was asked for.
    pub lists: Vec<(Filter, Vec<Job>)>,
    /// Its queues.
    pub queues: Vec<QueueStatus>,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
    /// What its jobs died of.
    pub groups: Vec<DeadLetterGroup>,
    /// Its shared values.
    pub cells: Vec<Cell>,
    /// Who holds the unique keys of its jobs, in every queue.
    pub holders: Vec<(QueueName, UniqueKey, Option<UniqueKeyHolder>)>,
    /// Its streams.
    pub streams: Vec<StreamStatus>,
    /// Their keys, as they are listed and as they are looked at.
    pub keys: Vec<(KeyStatus, Option<StoredKey>)>,
}

impl Visible {
    /// Everything `store` shows, read in pages of `limit`.
    pub async fn read(store: &dyn Store, limit: usize, now: Time) -> StoreResult<Self> {
        let queues = store.queues(now).await?;
        let mut filters = vec![Filter::default()];
        for state in JobState::ALL
            .into_iter()
            .filter(|state| *state != JobState::Ready)
        {
            filters.push(Filter {
                state: Some(state),
                ..Filter::default()
            });
        }
        // Claim order is an order within one queue.
        filters.extend(queues.iter().map(|status| Filter {
            queue: Some(status.name.clone()),
            state: Some(JobState::Ready),
            ..Filter::default()
        }));
        let mut lists = Vec::new();
        for filter in filters {
            let jobs = try_list(store, &filter, limit, now).await?;
            lists.push((filter.clone(), ranked(&filter, jobs)));
        }
        // Long enough for all that any run of a test lasts, short enough to be a time a person
        // would ask for.
        let workers = store.workers(Span::days(30), now).await?;
        let mut groups = store
            .groups(
                ListGroupsRequest {
                    queue: None,
                    limit: 1_000,
                },
                now,
            )
            .await?;
        for group in &mut groups {
            // Of jobs that died at one time a store may show any.
            group.sample = JobId::named("one of them");
        }
        let cells = store
            .list_cells(ListCellsRequest {
                prefix: String::new(),
                after: None,
                limit: 1_000,
            })
            .await?;
        let holders = read_holders(store, &queues, &lists, now).await?;
        let streams = store.streams().await?;
        let keys = read_keys(store, &streams, limit, now).await?;
        Ok(Self {
            lists,
            queues,
            workers,
            groups,
            cells,
            holders,
            streams,
            keys,
        })
    }

    /// Where two stores differ, in words; `None` if they do not.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.queues != other.queues {
            return Some(format!(
                "queues\n    {:?}\n    {:?}",
                self.queues, other.queues
            ));
        }
        if self.workers != other.workers {
            return Some(format!(
                "workers\n    {:?}\n    {:?}",
                self.workers, other.workers
            ));
        }
        if self.groups != other.groups {
            return Some(format!(
                "groups\n    {:?}\n    {:?}",
                self.groups, other.groups
            ));
        }
        if self.cells != other.cells {
            return Some(format!(
                "cells\n    {:?}\n    {:?}",
                self.cells, other.cells
            ));
        }
        if self.holders != other.holders {
            return Some(format!(
                "holders\n    {:?}\n    {:?}",
                self.holders, other.holders
            ));
        }
        if self.streams != other.streams {
            return Some(format!(
                "streams\n    {:?}\n    {:?}",
                self.streams, other.streams
            ));
        }
        if self.keys != other.keys {
            return Some(format!("keys\n    {:?}\n    {:?}", self.keys, other.keys));
        }
        let mut pairs = self.lists.iter().zip(&other.lists);
        pairs
            .find(|(one, another)| one != another)
            .map(|((filter, one), (_, another))| {
                let at = one
                    .iter()
                    .zip(another)
                    .position(|(one, another)| one != another);
                let at = at.unwrap_or(one.len().min(another.len()));
                format!(
                    "the list of {filter:?}, of {} and {} jobs, at {at}\n    {:?}\n    {:?}",
                    one.len(),
                    another.len(),
                    one.get(at),
                    another.get(at)
                )
            })
    }
}

async fn read_holders(
    store: &dyn Store,
    queues: &[QueueStatus],
    lists: &[(Filter, Vec<Job>)],
    now: Time,
) -> StoreResult<Vec<(QueueName, UniqueKey, Option<UniqueKeyHolder>)>> {
    let jobs = lists.iter().flat_map(|(_, jobs)| jobs);
    let keys: BTreeSet<UniqueKey> = jobs.filter_map(|job| job.unique_key.clone()).collect();
    let keys: Vec<UniqueKey> = keys.into_iter().take(HOLDERS_MAX).collect();
    let mut all = Vec::new();
    for queue in queues.iter().map(|status| &status.name) {
        let holders = store
            .unique_holders(queue.clone(), keys.clone(), now)
            .await?;
        all.extend(
            keys.iter()
                .zip(holders)
                .map(|(key, holder)| (queue.clone(), key.clone(), holder)),
        );
    }
    Ok(all)
}

async fn read_keys(
    store: &dyn Store,
    streams: &[StreamStatus],
    limit: usize,
    now: Time,
) -> StoreResult<Vec<(KeyStatus, Option<StoredKey>)>> {
    let mut all = Vec::new();
    for stream in streams.iter().map(|status| &status.name) {
        for which in [KeyFilter::All, KeyFilter::Holding] {
            let mut after = None;
            loop {
                let query = ListKeysRequest {
                    stream: stream.clone(),
                    after,
                    filter: which,
                    limit,
                };
                let keys = store.stream_keys(query, now).await?;
                after = keys
                    .last()
                    .map(|status| status.key.clone())
                    .filter(|_| keys.len() == limit);
                for status in keys {
                    let stored = store.stream_key(stream.clone(), status.key.clone()).await?;
                    all.push((status, stored));
                }
                if after.is_none() {
                    break;
                }
            }
        }
    }
    Ok(all)
}

/// Jobs in the order of their list; those the port leaves in no order among themselves by id.
fn ranked(filter: &Filter, mut jobs: Vec<Job>) -> Vec<Job> {
    let rank = |job: &Job| match filter.state {
        Some(JobState::Scheduled | JobState::Retrying) => job.run_at.as_micros(),
        Some(JobState::Done | JobState::Dead | JobState::Cancelled) => {
            job.finished_at.map_or(i64::MAX, |at| -at.as_micros())
        }
        _ => 0,
    };
    assert!(
        jobs.is_sorted_by_key(rank),
        "a list out of order: {filter:?} {jobs:?}"
    );
    let is_ranked = !matches!(filter.state, None | Some(JobState::Ready));
    if is_ranked {
        jobs.sort_by_key(|job| (rank(job), job.id));
    }
    jobs
}

/// A store that knows ids by their queue answers `Same` for a job that was moved away, the others
/// `Conflict`: either way it is known.
fn known(mut answers: Vec<EnqueueOutcome>) -> Vec<EnqueueOutcome> {
    for answer in &mut answers {
        if *answer == EnqueueOutcome::Conflict {
            *answer = EnqueueOutcome::Same;
        }
    }
    answers
}
