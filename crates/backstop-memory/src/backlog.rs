//! The life of a job in memory.

use crate::MemoryStore;
use crate::shelf::{Arrival, Shelves};
use async_trait::async_trait;
use backstop_core::job::Claimant;
use backstop_core::lease::{LeaseNumber, extended, is_expired, moved_back};
use backstop_core::limits::{
    BEAT_LEASES_MAX, CLAIM_BYTES_MAX, CLAIM_JOBS_MAX, PROMOTE_MAX, SEIZE_MAX, SETTLE_MAX,
};
use backstop_core::port::backlog::{check_claim, check_count, check_enqueue, check_term};
use backstop_core::port::{
    Answer, Backlog, Beat, Beaten, Claim, Claimed, Enqueued, Gate, Promoted, Seize, Seized,
    Seizure, Settled, StoreError,
};
use backstop_core::verdict::{Place, Settlement, Vanished};
use backstop_core::{JobId, Lease, NewJob, Priority, QueueName, State, Time};
use std::collections::BTreeSet;

#[async_trait]
impl Backlog for MemoryStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Time) -> Answer<Vec<Enqueued>> {
        check_enqueue(&jobs, now)?;
        let mut shelves = self.shelves("enqueueing")?;
        shelves.check_queues(jobs.iter().map(|job| &job.queue), self.max_queues)?;
        let answers = jobs
            .into_iter()
            .map(|job| enqueue(&mut shelves, job, now))
            .collect();
        drop(shelves);
        self.hint();
        Ok(answers)
    }

    async fn claim(&self, claim: Claim, now: Time) -> Answer<Claimed> {
        check_claim(&claim, now)?;
        let mut shelves = self.shelves("claiming")?;
        if !shelves.claims.contains_key(&claim.number) {
            hand_out(&mut shelves, &claim, now);
        }
        let held = shelves.held_under(claim.number);
        let runs = held
            .iter()
            .map(|arrival| shelves.jobs[arrival].leased(claim.number));
        Ok(Claimed::whole(runs.collect()))
    }

    async fn begin(&self, leases: Vec<Lease>, _now: Time) -> Answer<Vec<Lease>> {
        check_count("begin", leases.len(), CLAIM_JOBS_MAX)?;
        let mut shelves = self.shelves("noting that runs begin")?;
        let (current, lost): (Vec<Lease>, Vec<Lease>) = leases
            .into_iter()
            .partition(|lease| shelves.is_current(lease));
        for lease in current {
            if let Some((_, record)) = shelves.record(lease.job) {
                record.begun = true;
            }
        }
        Ok(lost)
    }

    async fn settle(&self, settlements: Vec<Settlement>, now: Time) -> Answer<Vec<Settled>> {
        check_count("settle", settlements.len(), SETTLE_MAX)?;
        let mut shelves = self.shelves("settling")?;
        let answers = settlements
            .iter()
            .map(|settlement| settle(&mut shelves, settlement, now))
            .collect();
        drop(shelves);
        self.hint();
        Ok(answers)
    }

    async fn beat(&self, beat: Beat, now: Time) -> Answer<Beaten> {
        check_count("beat", beat.leases.len(), BEAT_LEASES_MAX)?;
        check_term("beat", beat.until, now)?;
        let mut shelves = self.shelves("beating")?;
        shelves.workers.insert(beat.worker, (now, beat.queues));
        let (current, lost): (Vec<Lease>, Vec<Lease>) = beat
            .leases
            .into_iter()
            .partition(|lease| shelves.is_current(lease));
        for lease in current {
            if let Some(claimed) = shelves.claims.get_mut(&lease.number) {
                claimed.by.until = extended(claimed.by.until, beat.until, now);
            }
        }
        let lost = lost
            .into_iter()
            .filter(|lease| !shelves.is_settled(lease))
            .collect();
        Ok(Beaten::whole(lost))
    }

    async fn promote(&self, max: usize, now: Time) -> Answer<Promoted> {
        let mut shelves = self.shelves("promoting")?;
        let due: Vec<_> = shelves
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(max.min(PROMOTE_MAX))
            .copied()
            .collect();
        for entry in &due {
            shelves.due.remove(entry);
            shelves.put(entry.1, State::Ready, Place::Tail);
        }
        let next_due = shelves.due.first().map(|(at, _)| *at);
        drop(shelves);
        if !due.is_empty() {
            self.hint();
        }
        Ok(Promoted {
            moved: due.len(),
            next_due,
            unanswered: Vec::new(),
        })
    }

    async fn seize(&self, seize: Seize, now: Time) -> Answer<Seizure> {
        check_term("seize", seize.until, now)?;
        let mut shelves = self.shelves("seizing")?;
        if !shelves.claims.contains_key(&seize.number) {
            take_over(&mut shelves, &seize, now);
        }
        let runs = shelves.held_under(seize.number).into_iter();
        let runs = runs.filter_map(|arrival| shelves.seized(arrival)).collect();
        let more = shelves.left_behind(&seize, now).next().is_some();
        Ok(Seizure { runs, more })
    }
}

fn enqueue(shelves: &mut Shelves, job: NewJob, now: Time) -> Enqueued {
    if let Some(known) = shelves.known(job.id, &job.queue) {
        return known;
    }
    let holder = job
        .unique
        .as_ref()
        .and_then(|unique| shelves.key_holder(&job.queue, &unique.key, now));
    if let Some(holder) = holder {
        return Enqueued::Duplicate(holder.job);
    }
    if !shelves.make_room(&job.queue, now) {
        return Enqueued::Full;
    }
    shelves.insert(job, now);
    Enqueued::Inserted
}

/// Leases the first ready jobs of each queue. One want after the other: a queue named twice gives
/// its next ones.
fn hand_out(shelves: &mut Shelves, claim: &Claim, now: Time) {
    let mut bytes = 0;
    for want in &claim.wants {
        for arrival in shelves.first_ready(&want.queue, want.max) {
            if bytes >= CLAIM_BYTES_MAX {
                return;
            }
            bytes += shelves.jobs[&arrival].payload.len();
            let by = Claimant {
                worker: claim.worker.clone(),
                since: now,
                until: claim.until,
            };
            shelves.open_claim(claim.number, by);
            shelves.lease(arrival, claim.number);
        }
    }
}

fn settle(shelves: &mut Shelves, settlement: &Settlement, now: Time) -> Settled {
    let (lease, outcome) = (&settlement.lease, &settlement.outcome);
    let Some((arrival, record)) = shelves.record(lease.job) else {
        return Settled::Stale;
    };
    if record.queue != lease.queue {
        return Settled::Stale;
    }
    if !lease.wins(record.lease) {
        let repeated = record.settled == Some((lease.number, outcome.tag()));
        return if repeated {
            Settled::Applied
        } else {
            Settled::Stale
        };
    }
    let transition = outcome.transition(now);
    if transition.state == State::Dead
        && shelves.count(&lease.queue, State::Dead) >= shelves.bounds(&lease.queue).dead_max
    {
        return Settled::Full;
    }
    if let Some((_, record)) = shelves.record(lease.job) {
        record.settled = Some((lease.number, outcome.tag()));
    }
    shelves.apply(arrival, &transition, now);
    Settled::Applied
}

/// Moves jobs of expired claims to the seizer, oldest claim first.
fn take_over(shelves: &mut Shelves, seize: &Seize, now: Time) {
    for claimed in shelves.claims.values_mut() {
        let seen = shelves
            .workers
            .get(&claimed.by.worker)
            .map(|(seen, _)| *seen);
        if let Some(until) = seen.and_then(|seen| moved_back(claimed.by.until, seen, now)) {
            claimed.by.until = until;
        }
    }
    let taken: Vec<(Arrival, LeaseNumber)> = shelves
        .left_behind(seize, now)
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
    shelves.open_claim(seize.number, by);
    for (arrival, former) in taken {
        let worker = shelves.claims[&former].by.worker.clone();
        let Some(record) = shelves.jobs.get_mut(&arrival) else {
            continue;
        };
        let lease = Lease {
            queue: record.queue.clone(),
            job: record.id,
            number: former,
        };
        // A seizer that dies before it judged did not run the job: the first to vanish stays the
        // one to name.
        record
            .vanished
            .get_or_insert((Vanished { worker, lease }, record.begun));
        shelves.lease(arrival, seize.number);
    }
}

impl Shelves {
    /// Refuses jobs whose queues are new and too many.
    pub(crate) fn check_queues<'q>(
        &self,
        queues: impl Iterator<Item = &'q QueueName>,
        max: usize,
    ) -> Answer<()> {
        let mut new = BTreeSet::new();
        for queue in queues.filter(|queue| !self.queues.contains_key(queue)) {
            new.insert(queue);
            if self.queues.len() + new.len() > max {
                return Err(StoreError::too_many_queues(queue, max));
            }
        }
        Ok(())
    }

    /// What a job that comes into a queue is told, if its id is known.
    pub(crate) fn known(&self, id: JobId, queue: &QueueName) -> Option<Enqueued> {
        let record = &self.jobs[self.ids.get(&id)?];
        Some(if record.queue == *queue {
            Enqueued::Same
        } else {
            Enqueued::Conflict
        })
    }

    /// Jobs of expired claims that may be taken over, oldest claim first.
    fn left_behind(
        &self,
        seize: &Seize,
        now: Time,
    ) -> impl Iterator<Item = (Arrival, LeaseNumber)> {
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
        self.record(lease.job)
            .is_some_and(|(_, record)| record.queue == lease.queue && lease.wins(record.lease))
    }

    /// Whether the job's last settlement was made under this lease.
    fn is_settled(&mut self, lease: &Lease) -> bool {
        self.record(lease.job).is_some_and(|(_, record)| {
            record.queue == lease.queue
                && record
                    .settled
                    .is_some_and(|(number, _)| number == lease.number)
        })
    }

    fn held_under(&self, number: LeaseNumber) -> Vec<Arrival> {
        let Some(claimed) = self.claims.get(&number) else {
            return Vec::new();
        };
        let mut held: Vec<Arrival> = claimed.held.iter().copied().collect();
        held.sort_by_key(|arrival| {
            let record = &self.jobs[arrival];
            (&record.queue, record.priority, record.seq)
        });
        held
    }

    fn first_ready(&self, queue: &QueueName, max: usize) -> Vec<Arrival> {
        if self
            .queues
            .get(queue)
            .is_none_or(|queue| queue.gate == Gate::Paused)
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

    fn seized(&self, arrival: Arrival) -> Option<Seized> {
        let record = self.jobs.get(&arrival)?;
        let (vanished, begun) = record.vanished.clone()?;
        Some(Seized {
            run: record.leased(record.lease?),
            vanished,
            begun,
        })
    }
}
