//! Looking and intervening, in memory.

use crate::MemoryStore;
use crate::shelf::{Arrival, Holding, Shelves};
use async_trait::async_trait;
use backstop_core::amend::{Action, Filter, Refusal, permitted};
use backstop_core::limits::{AMEND_MAX, PRUNE_MAX, SCAN_MAX};
use backstop_core::port::{
    Amended, Amendment, Answer, Counts, Gate, Operator, Page, PageQuery, Pruned, QueueStatus, Retention,
    Sought, StoreError, WorkerStatus,
};
use backstop_core::verdict::{Place, Reason};
use backstop_core::{Job, JobId, QueueName, Span, State, Time};
use std::ops::Bound;

#[async_trait]
impl Operator for MemoryStore {
    async fn job(&self, id: JobId, _now: Time) -> Answer<Option<Job>> {
        let shelves = self.shelves("reading a job")?;
        Ok(shelves.ids.get(&id).map(|arrival| shelves.view(*arrival)))
    }

    async fn jobs(&self, query: PageQuery, _now: Time) -> Answer<Page> {
        self.shelves("listing jobs")?.page(&query)
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        let mut shelves = self.shelves("amending jobs")?;
        let amended = amend(&mut shelves, &amendment, now)?;
        drop(shelves);
        self.hint();
        Ok(amended)
    }

    async fn queues(&self, _now: Time) -> Answer<Vec<QueueStatus>> {
        let shelves = self.shelves("listing queues")?;
        Ok(shelves.queues.keys().map(|name| shelves.status(name)).collect())
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, _now: Time) -> Answer<()> {
        self.shelves("pausing or resuming a queue")?.queues.entry(queue).or_default().gate = gate;
        self.hint();
        Ok(())
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        let shelves = self.shelves("listing workers")?;
        let alive = shelves.workers.iter().filter(|(_, (seen_at, _))| now.since(*seen_at) <= within);
        Ok(alive
            .map(|(name, (seen_at, queues))| {
                let theirs = shelves.claims.values().filter(|claimed| claimed.holder.worker == *name);
                let running: usize = theirs.map(|claimed| claimed.held.len()).sum();
                WorkerStatus {
                    name: name.clone(),
                    queues: queues.clone(),
                    seen_at: *seen_at,
                    running: running as u64,
                }
            })
            .collect())
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        let mut shelves = self.shelves("pruning")?;
        let expired = shelves.expired(&retention, now);
        let max = retention.max.min(PRUNE_MAX);
        let mut pruned = Pruned { more: expired.len() > max, ..Pruned::default() };
        for arrival in expired.into_iter().take(max) {
            match shelves.jobs[&arrival].state {
                State::Done => pruned.done += 1,
                State::Cancelled => pruned.cancelled += 1,
                _ => pruned.dead += 1,
            }
            shelves.forget(arrival, now);
        }
        pruned.more |= shelves.forget_keys(max, now);
        Ok(pruned)
    }
}

fn amend(shelves: &mut Shelves, amendment: &Amendment, now: Time) -> Answer<Amended> {
    let (ids, next) = match amendment.sought()? {
        Sought::Ids(ids) => (ids.to_vec(), None),
        Sought::Fitting(filter) => shelves.fitting(&filter, amendment)?,
    };
    let mut amended = Amended { next, ..Amended::default() };
    for id in ids {
        match shelves.amend(id, amendment.action, now) {
            Ok(()) => amended.applied += 1,
            Err(refusal) => amended.refused.push((id, refusal)),
        }
    }
    Ok(amended)
}

/// The cursor of an amendment is the last arrival looked at.
fn reached(cursor: &str) -> Answer<Arrival> {
    let arrival = cursor.strip_prefix("amended~").and_then(|arrival| arrival.parse().ok());
    arrival.ok_or_else(|| StoreError::misuse("amend", "the cursor is not one this store made"))
}

impl Shelves {
    fn view(&self, arrival: Arrival) -> Job {
        let record = &self.jobs[&arrival];
        record.view(
            record.lease.and_then(|number| self.claims.get(&number).map(|claimed| claimed.holder.clone())),
        )
    }

    pub(crate) fn views(&self, arrivals: impl Iterator<Item = Arrival>) -> Vec<Job> {
        arrivals.map(|arrival| self.view(arrival)).collect()
    }

    /// The next jobs that fit and that the action could apply to, and where to go on.
    fn fitting(&self, filter: &Filter, amendment: &Amendment) -> Answer<(Vec<JobId>, Option<String>)> {
        let after = match &amendment.cursor {
            None => Bound::Unbounded,
            Some(cursor) => Bound::Excluded(reached(cursor)?),
        };
        let max = amendment.max.clamp(1, AMEND_MAX);
        let (mut found, mut last) = (Vec::new(), None);
        for (looked, (arrival, record)) in self.jobs.range((after, Bound::Unbounded)).enumerate() {
            let fits = filter.fits(&record.queue, &record.kind, record.state)
                && permitted(amendment.action, record.state).is_ok();
            if looked == SCAN_MAX || (fits && found.len() == max) {
                return Ok((found, last.map(|arrival| format!("amended~{arrival}"))));
            }
            found.extend(fits.then_some(record.id));
            last = Some(arrival);
        }
        Ok((found, None))
    }

    fn amend(&mut self, id: JobId, action: Action, now: Time) -> Result<(), Refusal> {
        let (arrival, record) = self.record(id).ok_or(Refusal::NotFound)?;
        permitted(action, record.state)?;
        match action {
            Action::Retry => self.retry(arrival, now)?,
            Action::Cancel => {
                self.take(arrival);
                if let Some(record) = self.jobs.get_mut(&arrival) {
                    record.finished_at = Some(now);
                    record.reason = Some(Reason::Operator);
                    self.queues.entry(record.queue.clone()).or_default().totals.cancelled += 1;
                }
                self.put(arrival, State::Cancelled, Place::Tail);
            }
            Action::Delete => {
                self.take(arrival);
                self.remove_key_of(arrival);
                self.forget(arrival, now);
            }
        }
        Ok(())
    }

    fn retry(&mut self, arrival: Arrival, now: Time) -> Result<(), Refusal> {
        if self.jobs[&arrival].state.is_final() {
            self.retake_key(arrival, now)?;
        }
        self.take(arrival);
        if let Some(record) = self.jobs.get_mut(&arrival) {
            if record.state.is_final() {
                record.attempts = 0;
                record.requeues += 1;
                record.finished_at = None;
                record.reason = None;
            }
            record.run_at = now;
        }
        self.put(arrival, State::Ready, Place::Tail);
        Ok(())
    }

    /// A job that comes back to life needs its key again.
    fn retake_key(&mut self, arrival: Arrival, now: Time) -> Result<(), Refusal> {
        let record = &self.jobs[&arrival];
        let Some((key, hold)) = record.unique.clone() else { return Ok(()) };
        let (queue, id) = (record.queue.clone(), record.id);
        match self.key_holder(&queue, &key, now) {
            Some(holder) if holder != id => Err(Refusal::Twin(holder)),
            _ => {
                self.keys.insert((queue, key), Holding { job: id, hold });
                Ok(())
            }
        }
    }

    fn remove_key_of(&mut self, arrival: Arrival) {
        let record = &self.jobs[&arrival];
        let Some((key, _)) = &record.unique else { return };
        let at = (record.queue.clone(), key.clone());
        if self.keys.get(&at).is_some_and(|holding| holding.job == record.id) {
            self.keys.remove(&at);
        }
    }

    fn status(&self, name: &QueueName) -> QueueStatus {
        let queue = &self.queues[name];
        let mut counts = Counts::default();
        for record in self.jobs.values().filter(|record| record.queue == *name) {
            *counts.of_mut(record.state) += 1;
        }
        let next_ready = self.ready.iter().find(|((of, ..), _)| of == name);
        QueueStatus {
            name: name.clone(),
            gate: queue.gate,
            counts,
            totals: queue.totals,
            next_ready: next_ready.map(|(_, arrival)| self.jobs[arrival].run_at),
        }
    }

    /// What retention removes: queue by queue, done, cancelled, dead, oldest first.
    fn expired(&self, retention: &Retention, now: Time) -> Vec<Arrival> {
        let mut expired = Vec::new();
        for queue in self.queues.keys() {
            let Some(shelf) = retention.shelf(queue) else { continue };
            for (state, kept_for, kept_max) in [
                (State::Done, shelf.done_for, shelf.done_max),
                (State::Cancelled, shelf.cancelled_for, u64::MAX),
                (State::Dead, shelf.dead_for, u64::MAX),
            ] {
                let ended =
                    self.jobs.iter().filter(|(_, record)| record.queue == *queue && record.state == state);
                let mut ended: Vec<_> =
                    ended.map(|(arrival, record)| (record.finished_at, *arrival)).collect();
                ended.sort_unstable();
                let surplus = (ended.len() as u64).saturating_sub(kept_max);
                let over = |(rank, (at, _)): &(usize, (Option<Time>, Arrival))| {
                    (*rank as u64) < surplus || at.is_some_and(|at| at <= now.before(kept_for))
                };
                expired.extend(ended.into_iter().enumerate().filter(over).map(|(_, (_, arrival))| arrival));
            }
        }
        expired
    }
}
