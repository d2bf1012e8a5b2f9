//! The jobs in memory: enqueue, claim, heartbeat, settle, promote and seize.

use crate::MemoryStore;
use crate::state::{ArrivalNumber, MemoryState};
use async_trait::async_trait;
use backstop_core::job::Claimant;
use backstop_core::lease::{LeaseNumber, end_after_clock_set_back, extend_lease, is_expired};
use backstop_core::limits::{
    BEAT_LEASES_MAX, CLAIM_BYTES_MAX, CLAIM_JOBS_MAX, PROMOTE_MAX, SEIZE_MAX, SETTLE_MAX,
};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_lease_duration};
use backstop_core::port::{
    BeatRequest, BeatResult, Claim, ClaimResult, EnqueueOutcome, JobStore, PromoteResult,
    QueueState, SeizeRequest, SeizeResult, SeizedRun, SettleOutcome, StoreError, StoreResult,
};
use backstop_core::verdict::{LostLease, Requeue, Settlement};
use backstop_core::{JobId, JobState, Lease, NewJob, Priority, QueueName, Time};
use std::collections::BTreeSet;

#[async_trait]
impl JobStore for MemoryStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        check_enqueue(&jobs, now)?;
        let mut state = self.lock_state("enqueueing")?;
        state.check_queues(jobs.iter().map(|job| &job.queue), self.max_queues)?;
        let answers = jobs
            .into_iter()
            .map(|job| enqueue(&mut state, job, now))
            .collect();
        drop(state);
        self.notify_watchers();
        Ok(answers)
    }

    async fn claim(&self, claim: Claim, now: Time) -> StoreResult<ClaimResult> {
        check_claim(&claim, now)?;
        let mut state = self.lock_state("claiming")?;
        if !state.claims.contains_key(&claim.number) {
            hand_out(&mut state, &claim, now);
        }
        let held = state.held_under(claim.number);
        let runs = held
            .iter()
            .map(|arrival| state.jobs[arrival].leased_run(claim.number));
        Ok(ClaimResult::whole(runs.collect()))
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> StoreResult<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        let mut state = self.lock_state("noting that runs begin")?;
        let (current, lost): (Vec<Lease>, Vec<Lease>) = leases
            .into_iter()
            .partition(|lease| state.is_current(lease));
        for lease in current {
            if let Some((_, record)) = state.find_job_mut(lease.job) {
                record.begun = true;
            }
        }
        Ok(lost)
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Time,
    ) -> StoreResult<Vec<SettleOutcome>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        let mut state = self.lock_state("settling")?;
        let answers = settlements
            .iter()
            .map(|settlement| settle(&mut state, settlement, now))
            .collect();
        drop(state);
        self.notify_watchers();
        Ok(answers)
    }

    async fn beat(&self, beat: BeatRequest, now: Time) -> StoreResult<BeatResult> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_lease_duration("beat", beat.until, now)?;
        let mut state = self.lock_state("beating")?;
        state.workers.insert(beat.worker, (now, beat.queues));
        let (current, lost): (Vec<Lease>, Vec<Lease>) = beat
            .leases
            .into_iter()
            .partition(|lease| state.is_current(lease));
        for lease in current {
            if let Some(claimed) = state.claims.get_mut(&lease.number) {
                claimed.by.until = extend_lease(claimed.by.until, beat.until, now);
            }
        }
        let lost = lost
            .into_iter()
            .filter(|lease| !state.is_settled(lease))
            .collect();
        Ok(BeatResult::whole(lost))
    }

    async fn promote(&self, max: usize, now: Time) -> StoreResult<PromoteResult> {
        let mut state = self.lock_state("promoting")?;
        let due: Vec<_> = state
            .waiting_by_run_at
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(max.min(PROMOTE_MAX))
            .copied()
            .collect();
        for entry in &due {
            state.waiting_by_run_at.remove(entry);
            state.enter_state(entry.1, JobState::Ready, Requeue::End);
        }
        let next_due = state.waiting_by_run_at.first().map(|(at, _)| *at);
        drop(state);
        if !due.is_empty() {
            self.notify_watchers();
        }
        Ok(PromoteResult {
            moved: due.len(),
            next_due,
            unanswered: Vec::new(),
        })
    }

    async fn seize(&self, seize: SeizeRequest, now: Time) -> StoreResult<SeizeResult> {
        check_lease_duration("seize", seize.until, now)?;
        let mut state = self.lock_state("seizing")?;
        if !state.claims.contains_key(&seize.number) {
            take_over(&mut state, &seize, now);
        }
        let runs = state.held_under(seize.number).into_iter();
        let runs = runs
            .filter_map(|arrival| state.seized_run(arrival))
            .collect();
        let more = state.expired_jobs(&seize, now).next().is_some();
        Ok(SeizeResult { runs, more })
    }
}

fn enqueue(state: &mut MemoryState, job: NewJob, now: Time) -> EnqueueOutcome {
    if let Some(known) = state.find_known(job.id, &job.queue) {
        return known;
    }
    let holder = job
        .unique
        .as_ref()
        .and_then(|unique| state.key_holder(&job.queue, &unique.key, now));
    if let Some(holder) = holder {
        return EnqueueOutcome::Duplicate(holder.job);
    }
    if !state.make_room(&job.queue, now) {
        return EnqueueOutcome::Full;
    }
    state.insert(job, now);
    EnqueueOutcome::Inserted
}

/// Leases the first ready jobs of each queue. The wants are served one after the other, so a queue
/// that is named twice gives its next jobs the second time.
fn hand_out(state: &mut MemoryState, claim: &Claim, now: Time) {
    let mut bytes = 0;
    for want in &claim.wants {
        for arrival in state.first_ready(&want.queue, want.max) {
            if bytes >= CLAIM_BYTES_MAX {
                return;
            }
            bytes += state.jobs[&arrival].payload.len();
            let by = Claimant {
                worker: claim.worker.clone(),
                since: now,
                until: claim.until,
            };
            state.open_claim(claim.number, by);
            state.lease(arrival, claim.number);
        }
    }
}

fn settle(state: &mut MemoryState, settlement: &Settlement, now: Time) -> SettleOutcome {
    let (lease, outcome) = (&settlement.lease, &settlement.outcome);
    let Some((arrival, record)) = state.find_job_mut(lease.job) else {
        return SettleOutcome::Stale;
    };
    if record.queue != lease.queue {
        return SettleOutcome::Stale;
    }
    if !lease.wins(record.lease) {
        let repeated = record.settled == Some((lease.number, outcome.tag()));
        return if repeated {
            SettleOutcome::Applied
        } else {
            SettleOutcome::Stale
        };
    }
    let transition = outcome.transition(now);
    if transition.state == JobState::Dead
        && state.count(&lease.queue, JobState::Dead) >= state.bounds(&lease.queue).dead_max
    {
        return SettleOutcome::Full;
    }
    if let Some((_, record)) = state.find_job_mut(lease.job) {
        record.settled = Some((lease.number, outcome.tag()));
    }
    state.apply(arrival, &transition, now);
    SettleOutcome::Applied
}

/// Moves jobs of expired claims to the seizer, oldest claim first.
fn take_over(state: &mut MemoryState, seize: &SeizeRequest, now: Time) {
    for claimed in state.claims.values_mut() {
        let seen = state.workers.get(&claimed.by.worker).map(|(seen, _)| *seen);
        if let Some(until) =
            seen.and_then(|seen| end_after_clock_set_back(claimed.by.until, seen, now))
        {
            claimed.by.until = until;
        }
    }
    let taken: Vec<(ArrivalNumber, LeaseNumber)> = state
        .expired_jobs(seize, now)
        .take(seize.max.min(SEIZE_MAX))
        .collect();
    if taken.is_empty() {
        return;
    }
    let by = Claimant {
        worker: seize.worker.clone(),
        since: now,
        until: seize.until,
    };
    state.open_claim(seize.number, by);
    for (arrival, former) in taken {
        let worker = state.claims[&former].by.worker.clone();
        let Some(record) = state.jobs.get_mut(&arrival) else {
            continue;
        };
        let lease = Lease {
            queue: record.queue.clone(),
            job: record.id,
            number: former,
        };
        // A seizer that died before it judged the job did not run it, so the first worker that
        // vanished stays on record.
        record
            .vanished
            .get_or_insert((LostLease { worker, lease }, record.begun));
        state.lease(arrival, seize.number);
    }
}

impl MemoryState {
    /// Rejects jobs whose queues are new and would exceed the maximum.
    pub(crate) fn check_queues<'q>(
        &self,
        queues: impl Iterator<Item = &'q QueueName>,
        max: usize,
    ) -> StoreResult<()> {
        let mut new = BTreeSet::new();
        for queue in queues.filter(|queue| !self.queues.contains_key(queue)) {
            new.insert(queue);
            if self.queues.len() + new.len() > max {
                return Err(StoreError::too_many_queues(queue, max));
            }
        }
        Ok(())
    }

    /// The answer to an enqueue whose job id is already known.
    pub(crate) fn find_known(&self, id: JobId, queue: &QueueName) -> Option<EnqueueOutcome> {
        let record = &self.jobs[self.ids.get(&id)?];
        Some(if record.queue == *queue {
            EnqueueOutcome::Same
        } else {
            EnqueueOutcome::Conflict
        })
    }

    /// Jobs of expired claims that may be seized, oldest claim first.
    fn expired_jobs(
        &self,
        seize: &SeizeRequest,
        now: Time,
    ) -> impl Iterator<Item = (ArrivalNumber, LeaseNumber)> {
        let claims = self
            .claims
            .iter()
            .map(|(number, claimed)| (claimed.by.until, *number));
        let mut expired: Vec<_> = claims
            .filter(|(until, _)| is_expired(*until, now))
            .collect();
        expired.sort_unstable();
        expired
            .into_iter()
            .flat_map(|(_, number)| {
                self.held_under(number)
                    .into_iter()
                    .map(move |arrival| (arrival, number))
            })
            .filter(|(arrival, _)| !seize.spared.contains(&self.jobs[arrival].queue))
    }

    fn is_current(&mut self, lease: &Lease) -> bool {
        self.find_job_mut(lease.job)
            .is_some_and(|(_, record)| record.queue == lease.queue && lease.wins(record.lease))
    }

    /// Whether the last settlement of the job was made under this lease.
    fn is_settled(&mut self, lease: &Lease) -> bool {
        self.find_job_mut(lease.job).is_some_and(|(_, record)| {
            record.queue == lease.queue
                && record
                    .settled
                    .is_some_and(|(number, _)| number == lease.number)
        })
    }

    fn held_under(&self, number: LeaseNumber) -> Vec<ArrivalNumber> {
        let Some(claimed) = self.claims.get(&number) else {
            return Vec::new();
        };
        let mut held: Vec<ArrivalNumber> = claimed.held.iter().copied().collect();
        held.sort_by_key(|arrival| {
            let record = &self.jobs[arrival];
            (&record.queue, record.priority, record.seq)
        });
        held
    }

    fn first_ready(&self, queue: &QueueName, max: usize) -> Vec<ArrivalNumber> {
        if self
            .queues
            .get(queue)
            .is_none_or(|queue| queue.state == QueueState::Paused)
        {
            return Vec::new();
        }
        let range =
            (queue.clone(), Priority::Critical, 0)..=(queue.clone(), Priority::Low, u64::MAX);
        self.ready
            .range(range)
            .take(max)
            .map(|(_, arrival)| *arrival)
            .collect()
    }

    fn seized_run(&self, arrival: ArrivalNumber) -> Option<SeizedRun> {
        let record = self.jobs.get(&arrival)?;
        let (vanished, begun) = record.vanished.clone()?;
        Some(SeizedRun {
            run: record.leased_run(record.lease?),
            vanished,
            begun,
        })
    }
}
