//! Looking and intervening, in memory.

use crate::MemoryStore;
use crate::shelf::{Arrival, Holding, Shelves};
use async_trait::async_trait;
use backstop_core::amend::{Action, Filter, Refusal, needs_room};
use backstop_core::limits::{
    AMEND_MAX, BURY_MAX, DECLARE_MAX, EXPIRED_COUNTED_MAX, GROUPS_MAX, PRUNE_MAX, PRUNE_QUEUES_MAX,
    QUEUE_KEPT_FOR, SCAN_MAX, WORKER_KEPT_FOR,
};
use backstop_core::port::backlog::check_count;
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::{
    Amended, Amendment, Answer, Burial, Counts, Enqueued, ExpiredLeases, Gate, Group, GroupQuery,
    KeyHolder, Operator, Page, PageQuery, Pruned, QueueStatus, Retention, Sought, StoreError,
    WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::{Place, Reason};
use backstop_core::{Bounds, Fingerprint, Job, JobId, NewJob, QueueName, Span, State, Time};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

#[async_trait]
impl Operator for MemoryStore {
    async fn job(&self, id: JobId, _now: Time) -> Answer<Option<Job>> {
        let shelves = self.shelves("reading a job")?;
        Ok(shelves.ids.get(&id).map(|arrival| shelves.view(*arrival)))
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> Answer<Vec<Option<Job>>> {
        check_ids(&ids)?;
        let shelves = self.shelves("finding jobs")?;
        let found = |id: &JobId| shelves.ids.get(id).map(|arrival| shelves.view(*arrival));
        Ok(ids
            .iter()
            .map(|id| found(id).filter(|job| job.queue == queue))
            .collect())
    }

    async fn jobs(&self, query: PageQuery, _now: Time) -> Answer<Page> {
        self.shelves("listing jobs")?.page(&query)
    }

    async fn amend(&self, amendment: Amendment, now: Time) -> Answer<Amended> {
        let mut shelves = self.shelves("amending jobs")?;
        if let Action::Move(to) = &amendment.action {
            shelves.check_queues([to].into_iter(), self.max_queues)?;
        }
        let amended = amend(&mut shelves, &amendment, now)?;
        drop(shelves);
        self.hint();
        Ok(amended)
    }

    async fn bury(&self, burials: Vec<Burial>, now: Time) -> Answer<Vec<Enqueued>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        let mut shelves = self.shelves("burying")?;
        Ok(burials
            .into_iter()
            .map(|burial| shelves.bury(burial, now))
            .collect())
    }

    async fn holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> Answer<Vec<Option<KeyHolder>>> {
        check_keys(&keys)?;
        let shelves = self.shelves("looking for holders")?;
        Ok(keys
            .iter()
            .map(|key| shelves.holder_or_live(&queue, key, now))
            .collect())
    }

    async fn groups(&self, query: GroupQuery, _now: Time) -> Answer<Vec<Group>> {
        let mut groups = self
            .shelves("grouping dead letters")?
            .groups(query.queue.as_ref());
        groups.sort_by_key(|group| {
            (
                Reverse((group.count, group.last_at)),
                group.queue.clone(),
                group.fingerprint.as_i64(),
            )
        });
        groups.truncate(query.limit.clamp(1, GROUPS_MAX));
        Ok(groups)
    }

    async fn set_bounds(&self, queue: QueueName, bounds: Bounds, _now: Time) -> Answer<()> {
        let mut shelves = self.shelves("bounding a queue")?;
        let queue = shelves.queues.entry(queue).or_default();
        (queue.bounds, queue.is_configured) = (bounds, true);
        Ok(())
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> Answer<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        let mut shelves = self.shelves("declaring queues")?;
        for queue in queues {
            shelves.queues.entry(queue).or_default().is_configured = true;
        }
        Ok(())
    }

    async fn queues(&self, _now: Time) -> Answer<Vec<QueueStatus>> {
        let shelves = self.shelves("listing queues")?;
        Ok(shelves
            .queues
            .keys()
            .map(|name| shelves.status(name))
            .collect())
    }

    async fn set_gate(&self, queue: QueueName, gate: Gate, _now: Time) -> Answer<()> {
        self.shelves("pausing or resuming a queue")?
            .queues
            .entry(queue)
            .or_default()
            .gate = gate;
        self.hint();
        Ok(())
    }

    async fn workers(&self, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
        let shelves = self.shelves("listing workers")?;
        let alive = shelves
            .workers
            .iter()
            .filter(|(_, (seen_at, _))| now.since(*seen_at) <= within);
        Ok(alive
            .map(|(name, (seen_at, queues))| {
                let theirs = shelves
                    .claims
                    .values()
                    .filter(|claimed| claimed.by.worker == *name);
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

    async fn expired_leases(&self, before: Time) -> Answer<ExpiredLeases> {
        let shelves = self.shelves("counting expired leases")?;
        let held = shelves
            .claims
            .values()
            .filter(|claimed| !claimed.held.is_empty());
        let ends: Vec<Time> = held
            .map(|claimed| claimed.by.until)
            .filter(|until| *until < before)
            .collect();
        let count = ends.len().min(EXPIRED_COUNTED_MAX);
        Ok(ExpiredLeases {
            count,
            first: ends.into_iter().min(),
        })
    }

    async fn prune(&self, retention: Retention, now: Time) -> Answer<Pruned> {
        let mut shelves = self.shelves("pruning")?;
        let (names, is_end) = shelves.next_to_prune();
        let expired = shelves.expired(&retention, &names, now);
        let max = retention.max.min(PRUNE_MAX);
        let mut pruned = Pruned {
            more: expired.len() > max || !is_end,
            ..Pruned::default()
        };
        // What did not fit is looked at again.
        if expired.len() <= max {
            shelves.pruned_to = names.last().filter(|_| !is_end).cloned();
        }
        for arrival in expired.into_iter().take(max) {
            match shelves.jobs[&arrival].state {
                State::Done => pruned.done += 1,
                State::Cancelled => pruned.cancelled += 1,
                _ => pruned.dead += 1,
            }
            shelves.forget(arrival, now);
        }
        pruned.more |= shelves.forget_keys(max, now);
        let is_kept = |seen_at: Time| now.since(seen_at) <= WORKER_KEPT_FOR;
        shelves.workers.retain(|_, (seen_at, _)| is_kept(*seen_at));
        for name in names.iter().filter(|name| retention.shelf(name).is_some()) {
            shelves.forget_if_unused(name, now);
        }
        Ok(pruned)
    }
}

fn amend(shelves: &mut Shelves, amendment: &Amendment, now: Time) -> Answer<Amended> {
    let (ids, next) = match amendment.sought()? {
        Sought::Ids(ids) => (ids.to_vec(), None),
        Sought::Fitting(filter) => shelves.fitting(&filter, amendment)?,
    };
    let mut amended = Amended {
        next,
        ..Amended::default()
    };
    for id in ids {
        match shelves.amend(id, amendment, now) {
            Ok(()) => amended.applied += 1,
            Err(refusal) => amended.refused.push((id, refusal)),
        }
    }
    Ok(amended)
}

/// The cursor of an amendment is the last arrival looked at.
fn reached(cursor: &str) -> Answer<Arrival> {
    let arrival = cursor
        .strip_prefix("amended~")
        .and_then(|arrival| arrival.parse().ok());
    arrival.ok_or_else(|| StoreError::misuse("amend", "the cursor is not one this store made"))
}

impl Shelves {
    pub(crate) fn view(&self, arrival: Arrival) -> Job {
        let record = &self.jobs[&arrival];
        record.view(
            record
                .lease
                .and_then(|number| self.claims.get(&number).map(|claimed| claimed.by.clone())),
        )
    }

    /// The next jobs that fit and that the action could apply to, and where to go on.
    fn fitting(
        &self,
        filter: &Filter,
        amendment: &Amendment,
    ) -> Answer<(Vec<JobId>, Option<String>)> {
        let after = match &amendment.cursor {
            None => Bound::Unbounded,
            Some(cursor) => Bound::Excluded(reached(cursor)?),
        };
        let max = amendment.max.clamp(1, AMEND_MAX);
        let (mut found, mut last) = (Vec::new(), None);
        for (looked, (arrival, record)) in self.jobs.range((after, Bound::Unbounded)).enumerate() {
            let fits = record.fits(filter) && amendment.permits(record.state).is_ok();
            if looked == SCAN_MAX || (fits && found.len() == max) {
                return Ok((found, last.map(|arrival| format!("amended~{arrival}"))));
            }
            found.extend(fits.then_some(record.id));
            last = Some(arrival);
        }
        Ok((found, None))
    }

    fn amend(&mut self, id: JobId, amendment: &Amendment, now: Time) -> Result<(), Refusal> {
        let (arrival, record) = self.record(id).ok_or(Refusal::NotFound)?;
        if amendment
            .within()
            .is_some_and(|queue| *queue != record.queue)
        {
            return Err(Refusal::NotFound);
        }
        amendment.permits(record.state)?;
        let to = if let Action::Move(to) = &amendment.action {
            to
        } else {
            &record.queue
        };
        let (to, needs_room) = (to.clone(), needs_room(&amendment.action, record.state));
        if needs_room && !self.has_room(&to) {
            return Err(Refusal::Full);
        }
        match &amendment.action {
            Action::Retry => self.retry(arrival, now)?,
            Action::Move(to) => self.move_to(arrival, to, now)?,
            Action::Cancel => {
                self.take(arrival);
                if let Some(record) = self.jobs.get_mut(&arrival) {
                    record.finished_at = Some(now);
                    record.reason = Some(Reason::Operator);
                    self.queues
                        .entry(record.queue.clone())
                        .or_default()
                        .totals
                        .cancelled += 1;
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
                record.revive();
            }
            record.run_at = now;
        }
        self.put(arrival, State::Ready, Place::Tail);
        Ok(())
    }

    fn move_to(&mut self, arrival: Arrival, to: &QueueName, now: Time) -> Result<(), Refusal> {
        let record = &self.jobs[&arrival];
        let holder = record
            .unique
            .as_ref()
            .and_then(|(key, _)| self.key_holder(to, key, now));
        if let Some(twin) = holder.filter(|holder| holder.job != record.id) {
            return Err(Refusal::Twin(twin.job));
        }
        self.remove_key_of(arrival);
        if let Some(record) = self.jobs.get_mut(&arrival) {
            record.queue = to.clone();
        }
        self.retry(arrival, now)
    }

    fn bury(&mut self, burial: Burial, now: Time) -> Enqueued {
        let queue = &burial.job.queue;
        if let Some(known) = self.known(burial.job.id, queue) {
            return known;
        }
        if self.count(queue, State::Dead) >= self.bounds(queue).dead_max {
            return Enqueued::Full;
        }
        let fingerprint = burial.fingerprint();
        let unique = burial.job.unique.as_ref();
        let unique = unique.map(|unique| (unique.key.clone(), unique.hold(burial.inserted_at)));
        let run_at = burial.job.run_at.unwrap_or(burial.inserted_at);
        let arrival = self.insert(
            NewJob {
                unique: None,
                run_at: None,
                ..burial.job
            },
            now,
        );
        self.take(arrival);
        if let Some(record) = self.jobs.get_mut(&arrival) {
            record.unique = unique;
            record.attempts = burial.attempts;
            record.lost_leases = burial.lost_leases;
            record.requeues = burial.requeues;
            record.run_at = run_at;
            record.inserted_at = burial.inserted_at;
            record.finished_at = Some(burial.finished_at);
            record.reason = Some(burial.reason);
            record.fingerprint = Some(fingerprint);
            record.history = burial.history;
            self.queues
                .entry(record.queue.clone())
                .or_default()
                .totals
                .dead += 1;
        }
        self.put(arrival, State::Dead, Place::Tail);
        Enqueued::Inserted
    }

    fn groups(&self, queue: Option<&QueueName>) -> Vec<Group> {
        let mut groups: BTreeMap<(QueueName, Fingerprint), Group> = BTreeMap::new();
        for record in self
            .jobs
            .values()
            .filter(|record| queue.is_none_or(|queue| *queue == record.queue))
        {
            let (Some(fingerprint), Some(at)) = (record.fingerprint, record.finished_at) else {
                continue;
            };
            let group = groups
                .entry((record.queue.clone(), fingerprint))
                .or_insert_with(|| Group {
                    queue: record.queue.clone(),
                    fingerprint,
                    count: 0,
                    first_at: at,
                    last_at: at,
                    sample: record.id,
                });
            group.count += 1;
            group.first_at = group.first_at.min(at);
            if at >= group.last_at {
                (group.last_at, group.sample) = (at, record.id);
            }
        }
        groups.into_values().collect()
    }

    /// A job that comes back to life needs its key again.
    fn retake_key(&mut self, arrival: Arrival, now: Time) -> Result<(), Refusal> {
        let record = &self.jobs[&arrival];
        let Some((key, hold)) = record.unique.clone() else {
            return Ok(());
        };
        let (queue, id) = (record.queue.clone(), record.id);
        match self.key_holder(&queue, &key, now) {
            Some(holder) if holder.job != id => Err(Refusal::Twin(holder.job)),
            _ => {
                self.keys.insert((queue, key), Holding { job: id, hold });
                Ok(())
            }
        }
    }

    fn remove_key_of(&mut self, arrival: Arrival) {
        let record = &self.jobs[&arrival];
        let Some((key, _)) = &record.unique else {
            return;
        };
        let at = (record.queue.clone(), key.clone());
        if self
            .keys
            .get(&at)
            .is_some_and(|holding| holding.job == record.id)
        {
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
            bounds: queue.bounds,
        }
    }

    /// The queues that one pruning looks at, behind the last one of the pruning before it, and
    /// whether they are the last ones.
    fn next_to_prune(&self) -> (Vec<QueueName>, bool) {
        let after = self
            .pruned_to
            .clone()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self
            .queues
            .range((after, Bound::Unbounded))
            .map(|(name, _)| name.clone());
        let names = rest.by_ref().take(PRUNE_QUEUES_MAX).collect();
        (names, rest.next().is_none())
    }

    /// Forgets a queue that is empty for long enough and that nobody configured.
    fn forget_if_unused(&mut self, name: &QueueName, now: Time) {
        let is_used = self.jobs.values().any(|record| record.queue == *name)
            || self.keys.keys().any(|(queue, _)| queue == name);
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if is_used || queue.gate == Gate::Paused || queue.is_configured {
            queue.empty_since = None;
            return;
        }
        let since = *queue.empty_since.get_or_insert(now);
        if now.since(since) >= QUEUE_KEPT_FOR {
            self.queues.remove(name);
        }
    }

    /// What retention removes: queue by queue, done, cancelled, dead, oldest first.
    fn expired(&self, retention: &Retention, names: &[QueueName], now: Time) -> Vec<Arrival> {
        let mut expired = Vec::new();
        for queue in names {
            let Some(shelf) = retention.shelf(queue) else {
                continue;
            };
            for (state, kept_for, kept_max) in [
                (State::Done, shelf.done_for, shelf.done_max),
                (State::Cancelled, shelf.cancelled_for, u64::MAX),
                (State::Dead, shelf.dead_for, u64::MAX),
            ] {
                let ended = self
                    .jobs
                    .iter()
                    .filter(|(_, record)| record.queue == *queue && record.state == state);
                let mut ended: Vec<_> = ended
                    .map(|(arrival, record)| (record.finished_at, *arrival))
                    .collect();
                ended.sort_unstable();
                let surplus = (ended.len() as u64).saturating_sub(kept_max);
                let over = |(rank, (at, _)): &(usize, (Option<Time>, Arrival))| {
                    (*rank as u64) < surplus || at.is_some_and(|at| at <= now.before(kept_for))
                };
                expired.extend(
                    ended
                        .into_iter()
                        .enumerate()
                        .filter(over)
                        .map(|(_, (_, arrival))| arrival),
                );
            }
        }
        expired
    }
}
