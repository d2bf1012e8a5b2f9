//! The state of the store, and the operations that keep its parts consistent.

use crate::streams::MemoryStream;
use backstop_core::amend::Filter;
use backstop_core::failure::FailureHistory;
use backstop_core::job::Claimant;
use backstop_core::job_options::JobOptions;
use backstop_core::lease::LeaseNumber;
use backstop_core::port::{Cell, QueueState, QueueTotals, UniqueKeyHolder};
use backstop_core::unique::{UniqueHold, UniqueKey};
use backstop_core::verdict::{EndReason, JobTransition, LostLease, Requeue};
use backstop_core::{
    Fingerprint, Job, JobId, JobState, Kind, Lease, LeasedRun, NewJob, Overflow, Payload, Priority,
    QueueBounds, QueueName, StreamName, Time, WorkerName,
};
use std::collections::{BTreeMap, BTreeSet};

/// The number of a job in the order of arrival. Unlike `seq`, it never changes.
pub(crate) type ArrivalNumber = u64;

#[derive(Debug, Default)]
pub(crate) struct MemoryState {
    arrivals: ArrivalNumber,
    pub(crate) jobs: BTreeMap<ArrivalNumber, MemoryJob>,
    pub(crate) ids: BTreeMap<JobId, ArrivalNumber>,
    pub(crate) queues: BTreeMap<QueueName, MemoryQueue>,
    /// The ready jobs of each queue in the order of claims, by priority and `seq`.
    pub(crate) ready: BTreeMap<(QueueName, Priority, u64), ArrivalNumber>,
    /// The scheduled and retrying jobs of all queues, in the order in which they become ready.
    pub(crate) waiting_by_run_at: BTreeSet<(Time, ArrivalNumber)>,
    pub(crate) claims: BTreeMap<LeaseNumber, OpenClaim>,
    /// The last holder of each unique key. An entry may be outdated: the job may have ended, or
    /// the period of the key may be over, so that it holds the key no more.
    pub(crate) keys: BTreeMap<(QueueName, UniqueKey), KeyHolding>,
    pub(crate) cells: BTreeMap<String, Cell>,
    pub(crate) streams: BTreeMap<StreamName, MemoryStream>,
    /// The time of each worker's last heartbeat, and the queues that it serves.
    pub(crate) workers: BTreeMap<WorkerName, (Time, Vec<QueueName>)>,
    /// The queue after which the next pruning continues; `None` to begin with the first.
    pub(crate) pruned_to: Option<QueueName>,
}

#[derive(Debug)]
pub(crate) struct MemoryJob {
    pub(crate) id: JobId,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) payload: Payload,
    pub(crate) priority: Priority,
    pub(crate) options: JobOptions,
    pub(crate) unique: Option<(UniqueKey, UniqueHold)>,
    pub(crate) inserted_at: Time,
    pub(crate) state: JobState,
    pub(crate) attempts: u32,
    pub(crate) lost_leases: u32,
    pub(crate) requeues: u32,
    pub(crate) run_at: Time,
    pub(crate) finished_at: Option<Time>,
    pub(crate) reason: Option<EndReason>,
    /// The group of deaths to which the job belongs; only while it is dead.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) history: FailureHistory,
    /// The position of the job in its priority level, while it is ready or running.
    pub(crate) seq: u64,
    pub(crate) lease: Option<LeaseNumber>,
    /// Whether the worker has recorded, since the last claim or seizure, that its run began.
    pub(crate) begun: bool,
    /// Only while a seizer holds the job: the lease that was taken over from a worker that
    /// vanished, and whether the run under that lease had begun. After several seizures it is the
    /// first one.
    pub(crate) vanished: Option<(LostLease, bool)>,
    /// The last accepted settlement, so that a repeated one is recognized: its lease number, and
    /// the [`tag`](backstop_core::verdict::Outcome::tag) of its outcome.
    pub(crate) settled: Option<(LeaseNumber, u8)>,
}

/// A claim that has not ended: who made it, and the jobs it still holds.
#[derive(Debug)]
pub(crate) struct OpenClaim {
    pub(crate) by: Claimant,
    pub(crate) held: BTreeSet<ArrivalNumber>,
}

#[derive(Debug)]
pub(crate) struct MemoryQueue {
    pub(crate) state: QueueState,
    pub(crate) next_seq: u64,
    pub(crate) totals: QueueTotals,
    pub(crate) bounds: QueueBounds,
    /// Whether the configuration declared the queue, or an operator set its bounds.
    pub(crate) is_configured: bool,
    /// When a pruning first found the queue empty; the next enqueue resets it.
    pub(crate) empty_since: Option<Time>,
}

impl Default for MemoryQueue {
    fn default() -> Self {
        Self {
            state: QueueState::Active,
            next_seq: 0,
            totals: QueueTotals::default(),
            bounds: QueueBounds::default(),
            is_configured: false,
            empty_since: None,
        }
    }
}

/// The last job that took a unique key, and in which states and until when it holds the key.
#[derive(Debug)]
pub(crate) struct KeyHolding {
    pub(crate) job: JobId,
    pub(crate) hold: UniqueHold,
}

impl MemoryState {
    pub(crate) fn find_job_mut(&mut self, id: JobId) -> Option<(ArrivalNumber, &mut MemoryJob)> {
        let arrival = *self.ids.get(&id)?;
        self.jobs.get_mut(&arrival).map(|record| (arrival, record))
    }

    /// The job that holds a unique key now, so that no other job may take it.
    pub(crate) fn key_holder(
        &self,
        queue: &QueueName,
        key: &UniqueKey,
        now: Time,
    ) -> Option<UniqueKeyHolder> {
        self.last_holder(queue, key, now)
            .filter(|(_, is_held)| *is_held)
            .map(|(holder, _)| holder)
    }

    /// The job that holds a unique key now. Otherwise the job that held it last, if that job is
    /// live: a live job loses its key when the period is over, or in a state that does not hold the
    /// key.
    pub(crate) fn holder_or_live(
        &self,
        queue: &QueueName,
        key: &UniqueKey,
        now: Time,
    ) -> Option<UniqueKeyHolder> {
        let last = self.last_holder(queue, key, now);
        last.filter(|(holder, is_held)| *is_held || holder.is_live())
            .map(|(holder, _)| holder)
    }

    /// The job that took a unique key last, and whether it still holds the key. The job may be
    /// removed.
    fn last_holder(
        &self,
        queue: &QueueName,
        key: &UniqueKey,
        now: Time,
    ) -> Option<(UniqueKeyHolder, bool)> {
        let holding = self.keys.get(&(queue.clone(), key.clone()))?;
        let record = self
            .ids
            .get(&holding.job)
            .and_then(|arrival| self.jobs.get(arrival));
        let state = record.map(|record| record.state);
        Some((
            UniqueKeyHolder {
                job: holding.job,
                state,
            },
            holding.hold.is_held_by(state, now),
        ))
    }

    pub(crate) fn count(&self, queue: &QueueName, state: JobState) -> u64 {
        self.jobs
            .values()
            .filter(|record| record.queue == *queue && record.state == state)
            .count() as u64
    }

    pub(crate) fn bounds(&self, queue: &QueueName) -> QueueBounds {
        self.queues
            .get(queue)
            .map(|queue| queue.bounds)
            .unwrap_or_default()
    }

    /// Whether one more live job fits without an overflow.
    pub(crate) fn has_room(&self, queue: &QueueName) -> bool {
        let live = || {
            self.jobs
                .values()
                .filter(|record| record.queue == *queue && !record.state.is_final())
        };
        self.bounds(queue)
            .max_size
            .is_none_or(|max| (live().count() as u64) < max)
    }

    /// Makes room for one more job, as [`backstop_core::bounds`] says. Returns whether there is
    /// room now.
    pub(crate) fn make_room(&mut self, queue: &QueueName, now: Time) -> bool {
        if self.has_room(queue) {
            return true;
        }
        let bounds = self.bounds(queue);
        let state = match bounds.overflow {
            Overflow::Reject => return false,
            Overflow::DeadLetterOldest if self.count(queue, JobState::Dead) >= bounds.dead_max => {
                return false;
            }
            Overflow::DeadLetterOldest => JobState::Dead,
            Overflow::DropOldest => JobState::Cancelled,
        };
        let in_line = |level: &Priority| {
            let line = (queue.clone(), *level, 0)..=(queue.clone(), *level, u64::MAX);
            self.ready.range(line).next().map(|(_, arrival)| *arrival)
        };
        let Some(victim) = Priority::ALL.iter().rev().find_map(in_line) else {
            return false;
        };
        self.leave_state(victim);
        if let Some(record) = self.jobs.get_mut(&victim) {
            record.finished_at = Some(now);
            record.reason = Some(EndReason::Overflow);
            record.fingerprint = (state == JobState::Dead).then(Fingerprint::of_overflow);
        }
        let totals = &mut self.queues.entry(queue.clone()).or_default().totals;
        *(if state == JobState::Dead {
            &mut totals.dead
        } else {
            &mut totals.cancelled
        }) += 1;
        self.enter_state(victim, state, Requeue::End);
        true
    }

    pub(crate) fn insert(&mut self, job: NewJob, now: Time) -> ArrivalNumber {
        let (state, run_at) = (job.first_state(now), job.run_at.unwrap_or(now));
        let options = JobOptions::of(&job);
        let unique = job
            .unique
            .map(|unique| (unique.key.clone(), unique.hold(now)));
        if let Some((key, hold)) = &unique {
            self.keys.insert(
                (job.queue.clone(), key.clone()),
                KeyHolding {
                    job: job.id,
                    hold: *hold,
                },
            );
        }
        let queue = self.queues.entry(job.queue.clone()).or_default();
        queue.totals.enqueued += 1;
        queue.empty_since = None;
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.ids.insert(job.id, arrival);
        let record = MemoryJob {
            id: job.id,
            queue: job.queue,
            kind: job.kind,
            payload: job.payload,
            priority: job.priority,
            options,
            unique,
            inserted_at: now,
            state,
            attempts: 0,
            lost_leases: 0,
            requeues: 0,
            run_at,
            finished_at: None,
            reason: None,
            fingerprint: None,
            history: FailureHistory::default(),
            seq: 0,
            lease: None,
            begun: false,
            vanished: None,
            settled: None,
        };
        self.jobs.insert(arrival, record);
        self.enter_state(arrival, state, Requeue::End);
        arrival
    }

    /// Gives a job its new state, and adds it to the index of that state: `ready` or
    /// `waiting_by_run_at`. The other states have no index. The job must be in no index: it is new,
    /// or its former entry was removed, as by [`Self::leave_state`]. `place` decides whether a
    /// ready job gets a new `seq`, behind all others of its priority, or keeps the one it has.
    pub(crate) fn enter_state(&mut self, arrival: ArrivalNumber, state: JobState, place: Requeue) {
        let Some(record) = self.jobs.get_mut(&arrival) else {
            return;
        };
        record.state = state;
        match state {
            JobState::Ready => {
                if place == Requeue::End {
                    let queue = self.queues.entry(record.queue.clone()).or_default();
                    record.seq = queue.next_seq;
                    queue.next_seq += 1;
                }
                self.ready
                    .insert((record.queue.clone(), record.priority, record.seq), arrival);
            }
            JobState::Scheduled | JobState::Retrying => {
                self.waiting_by_run_at.insert((record.run_at, arrival));
            }
            JobState::Running | JobState::Done | JobState::Dead | JobState::Cancelled => {}
        }
    }

    /// Removes a job from the index of its state, and from its claim. Its state stays as it was
    /// until [`Self::enter_state`] gives it a new one.
    pub(crate) fn leave_state(&mut self, arrival: ArrivalNumber) {
        let Some(record) = self.jobs.get_mut(&arrival) else {
            return;
        };
        // A job that was never ready has no sequence number of its own: the entry at that number
        // belongs to another job.
        if record.state == JobState::Ready {
            self.ready
                .remove(&(record.queue.clone(), record.priority, record.seq));
        }
        self.waiting_by_run_at.remove(&(record.run_at, arrival));
        record.vanished = None;
        if let Some(number) = record.lease.take() {
            self.leave_claim(arrival, number);
        }
    }

    fn leave_claim(&mut self, arrival: ArrivalNumber, number: LeaseNumber) {
        let Some(claimed) = self.claims.get_mut(&number) else {
            return;
        };
        claimed.held.remove(&arrival);
        if claimed.held.is_empty() {
            self.claims.remove(&number);
        }
    }

    /// Moves a job, ready or leased before, to the claim `number`, which must exist.
    pub(crate) fn lease(&mut self, arrival: ArrivalNumber, number: LeaseNumber) {
        let Some(record) = self.jobs.get_mut(&arrival) else {
            return;
        };
        if record.state == JobState::Ready {
            self.ready
                .remove(&(record.queue.clone(), record.priority, record.seq));
        }
        record.state = JobState::Running;
        record.begun = false;
        if let Some(claimed) = self.claims.get_mut(&number) {
            claimed.held.insert(arrival);
        }
        if let Some(former) = record.lease.replace(number) {
            self.leave_claim(arrival, former);
        }
    }

    /// Opens the claim `number`, unless it exists.
    pub(crate) fn open_claim(&mut self, number: LeaseNumber, by: Claimant) {
        self.claims.entry(number).or_insert(OpenClaim {
            by,
            held: BTreeSet::new(),
        });
    }

    /// Makes the change that a settlement asks for: counts, times, history, and the new state.
    /// Removes the job if the change says that it is gone.
    pub(crate) fn apply(
        &mut self,
        arrival: ArrivalNumber,
        transition: &JobTransition<'_>,
        now: Time,
    ) {
        self.leave_state(arrival);
        let Some(record) = self.jobs.get_mut(&arrival) else {
            return;
        };
        record.attempts = if transition.anew { 0 } else { record.attempts } + transition.attempts;
        record.lost_leases += transition.lost_leases;
        record.reason = transition.reason;
        record.fingerprint = transition.fingerprint;
        if let Some(at) = transition.run_at {
            record.run_at = at;
        }
        if let Some(history) = transition.history {
            record.history = history.clone();
        }
        record.finished_at = transition.state.is_final().then_some(now);
        let totals = &mut self.queues.entry(record.queue.clone()).or_default().totals;
        match transition.state {
            JobState::Done => totals.done += 1,
            JobState::Dead => totals.dead += 1,
            JobState::Cancelled => totals.cancelled += 1,
            JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Retrying => {}
        }
        self.enter_state(arrival, transition.state, transition.requeue);
        if transition.gone {
            self.forget(arrival, now);
        }
    }

    /// Removes at most `max` entries of unique keys whose job is removed and whose period is over.
    /// Returns whether there are more.
    pub(crate) fn forget_keys(&mut self, max: usize, now: Time) -> bool {
        let is_over = |holding: &KeyHolding| {
            holding.hold.is_over(now) && !self.ids.contains_key(&holding.job)
        };
        let over = self.keys.iter().filter(|(_, holding)| is_over(holding));
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        for key in over.iter().take(max) {
            self.keys.remove(key);
        }
        over.len() > max
    }

    /// Removes a job that is in no index and in no claim. The entry of its unique key stays if the
    /// job still holds the key in its last state; [`Self::forget_keys`] removes it later.
    pub(crate) fn forget(&mut self, arrival: ArrivalNumber, now: Time) {
        let Some(record) = self.jobs.remove(&arrival) else {
            return;
        };
        self.ids.remove(&record.id);
        let Some((key, hold)) = record.unique else {
            return;
        };
        let at = (record.queue, key);
        let is_holder = self
            .keys
            .get(&at)
            .is_some_and(|holding| holding.job == record.id);
        if is_holder && !hold.is_held(record.state, now) {
            self.keys.remove(&at);
        }
    }
}

impl MemoryJob {
    pub(crate) fn matches(&self, filter: &Filter) -> bool {
        filter.fits(&self.queue, &self.kind, self.state, self.fingerprint)
    }

    /// Resets an ended job before an operator makes it ready again. It gets all its attempts again;
    /// its lost leases and its failure history stay.
    pub(crate) fn revive(&mut self) {
        self.attempts = 0;
        self.requeues += 1;
        self.finished_at = None;
        self.reason = None;
        self.fingerprint = None;
    }

    pub(crate) fn leased_run(&self, number: LeaseNumber) -> LeasedRun {
        LeasedRun {
            lease: Lease {
                queue: self.queue.clone(),
                job: self.id,
                number,
            },
            kind: self.kind.clone(),
            payload: self.payload.clone(),
            priority: self.priority,
            attempts_before: self.attempts,
            lost_leases: self.lost_leases,
            inserted_at: self.inserted_at,
            run_at: self.run_at,
            options: self.options.clone(),
            history: self.history.clone(),
        }
    }

    pub(crate) fn view(&self, held_by: Option<Claimant>) -> Job {
        Job {
            id: self.id,
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            state: self.state,
            payload: self.payload.clone(),
            priority: self.priority,
            attempt: self.attempts + u32::from(self.state == JobState::Running),
            lost_leases: self.lost_leases,
            requeues: self.requeues,
            run_at: self.run_at,
            inserted_at: self.inserted_at,
            finished_at: self.finished_at,
            unique_key: self.unique.as_ref().map(|(key, _)| key.clone()),
            options: self.options.clone(),
            history: self.history.clone(),
            reason: self.reason,
            held_by,
        }
    }
}
