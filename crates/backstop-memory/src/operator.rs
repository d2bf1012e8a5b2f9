//! The operator's calls, in memory: reading and changing jobs and queues.

use crate::MemoryStore;
use crate::state::{ArrivalNumber, KeyHolding, MemoryState};
use async_trait::async_trait;
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, needs_room};
use backstop_core::limits::{
    AMEND_MAX, BURY_MAX, DECLARE_MAX, EXPIRED_COUNTED_MAX, GROUPS_MAX, PRUNE_MAX, PRUNE_QUEUES_MAX,
    QUEUE_KEPT_FOR, SCAN_MAX, WORKER_KEPT_FOR,
};
use backstop_core::port::backlog::check_count;
use backstop_core::port::operator::{check_ids, check_keys};
use backstop_core::port::{
    AmendJobsRequest, AmendResult, AmendSelection, DeadLetterGroup, EnqueueOutcome, ExpiredLeases,
    ListGroupsRequest, ListJobsRequest, ListJobsResult, NewDeadLetter, OperatorStore, PruneRequest,
    PruneResult, QueueState, QueueStatus, StateCounts, StoreError, StoreResult, UniqueKeyHolder,
    WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::{EndReason, Requeue};
use backstop_core::{
    Fingerprint, Job, JobId, JobState, NewJob, QueueBounds, QueueName, Span, Time,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

#[async_trait]
impl OperatorStore for MemoryStore {
    async fn job(&self, id: JobId, _now: Time) -> StoreResult<Option<Job>> {
        let state = self.lock_state("reading a job")?;
        Ok(state.ids.get(&id).map(|arrival| state.view(*arrival)))
    }

    async fn find(
        &self,
        queue: QueueName,
        ids: Vec<JobId>,
        _now: Time,
    ) -> StoreResult<Vec<Option<Job>>> {
        check_ids(&ids)?;
        let state = self.lock_state("finding jobs")?;
        let found = |id: &JobId| state.ids.get(id).map(|arrival| state.view(*arrival));
        Ok(ids
            .iter()
            .map(|id| found(id).filter(|job| job.queue == queue))
            .collect())
    }

    async fn jobs(&self, query: ListJobsRequest, _now: Time) -> StoreResult<ListJobsResult> {
        self.lock_state("listing jobs")?.page(&query)
    }

    async fn amend(&self, amendment: AmendJobsRequest, now: Time) -> StoreResult<AmendResult> {
        let mut state = self.lock_state("amending jobs")?;
        if let AmendAction::Move(to) = &amendment.action {
            state.check_queues([to].into_iter(), self.max_queues)?;
        }
        let amended = amend(&mut state, &amendment, now)?;
        drop(state);
        self.notify_watchers();
        Ok(amended)
    }

    async fn bury(
        &self,
        burials: Vec<NewDeadLetter>,
        now: Time,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        check_count("bury", burials.len(), BURY_MAX)?;
        let mut state = self.lock_state("burying")?;
        Ok(burials
            .into_iter()
            .map(|burial| state.bury(burial, now))
            .collect())
    }

    async fn unique_holders(
        &self,
        queue: QueueName,
        keys: Vec<UniqueKey>,
        now: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        check_keys(&keys)?;
        let state = self.lock_state("looking for holders")?;
        Ok(keys
            .iter()
            .map(|key| state.holder_or_live(&queue, key, now))
            .collect())
    }

    async fn groups(
        &self,
        query: ListGroupsRequest,
        _now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>> {
        let mut groups = self
            .lock_state("grouping dead letters")?
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

    async fn set_bounds(
        &self,
        queue: QueueName,
        bounds: QueueBounds,
        _now: Time,
    ) -> StoreResult<()> {
        let mut state = self.lock_state("bounding a queue")?;
        let queue = state.queues.entry(queue).or_default();
        (queue.bounds, queue.is_configured) = (bounds, true);
        Ok(())
    }

    async fn declare_queues(&self, queues: Vec<QueueName>) -> StoreResult<()> {
        check_count("declare queues", queues.len(), DECLARE_MAX)?;
        let mut state = self.lock_state("declaring queues")?;
        for queue in queues {
            state.queues.entry(queue).or_default().is_configured = true;
        }
        Ok(())
    }

    async fn queues(&self, _now: Time) -> StoreResult<Vec<QueueStatus>> {
        let state = self.lock_state("listing queues")?;
        Ok(state.queues.keys().map(|name| state.status(name)).collect())
    }

    async fn set_queue_state(
        &self,
        queue: QueueName,
        gate: QueueState,
        _now: Time,
    ) -> StoreResult<()> {
        self.lock_state("pausing or resuming a queue")?
            .queues
            .entry(queue)
            .or_default()
            .state = gate;
        self.notify_watchers();
        Ok(())
    }

    async fn workers(&self, within: Span, now: Time) -> StoreResult<Vec<WorkerStatus>> {
        let state = self.lock_state("listing workers")?;
        let alive = state
            .workers
            .iter()
            .filter(|(_, (seen_at, _))| now.since(*seen_at) <= within);
        Ok(alive
            .map(|(name, (seen_at, queues))| {
                let theirs = state
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

    async fn expired_leases(&self, before: Time) -> StoreResult<ExpiredLeases> {
        let state = self.lock_state("counting expired leases")?;
        let held = state
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

    async fn prune(&self, retention: PruneRequest, now: Time) -> StoreResult<PruneResult> {
        let mut state = self.lock_state("pruning")?;
        let (names, is_end) = state.next_to_prune();
        let expired = state.expired(&retention, &names, now);
        let max = retention.max.min(PRUNE_MAX);
        let mut pruned = PruneResult {
            more: expired.len() > max || !is_end,
            ..PruneResult::default()
        };
        // If not all expired jobs fit, the next pruning looks at these queues again.
        if expired.len() <= max {
            state.pruned_to = names.last().filter(|_| !is_end).cloned();
        }
        for arrival in expired.into_iter().take(max) {
            match state.jobs[&arrival].state {
                JobState::Done => pruned.done += 1,
                JobState::Cancelled => pruned.cancelled += 1,
                _ => pruned.dead += 1,
            }
            state.forget(arrival, now);
        }
        pruned.more |= state.forget_keys(max, now);
        let is_kept = |seen_at: Time| now.since(seen_at) <= WORKER_KEPT_FOR;
        state.workers.retain(|_, (seen_at, _)| is_kept(*seen_at));
        for name in names
            .iter()
            .filter(|name| retention.retention_for(name).is_some())
        {
            state.forget_if_unused(name, now);
        }
        Ok(pruned)
    }
}

fn amend(
    state: &mut MemoryState,
    amendment: &AmendJobsRequest,
    now: Time,
) -> StoreResult<AmendResult> {
    let (ids, next) = match amendment.check_selection()? {
        AmendSelection::Ids(ids) => (ids.to_vec(), None),
        AmendSelection::Matching(filter) => state.matching_jobs(&filter, amendment)?,
    };
    let mut amended = AmendResult {
        next,
        ..AmendResult::default()
    };
    for id in ids {
        match state.amend(id, amendment, now) {
            Ok(()) => amended.applied += 1,
            Err(refusal) => amended.refused.push((id, refusal)),
        }
    }
    Ok(amended)
}

/// Parses the cursor of an amendment, which is the last arrival that it examined.
fn parse_amend_cursor(cursor: &str) -> StoreResult<ArrivalNumber> {
    let arrival = cursor
        .strip_prefix("amended~")
        .and_then(|arrival| arrival.parse().ok());
    arrival.ok_or_else(|| StoreError::misuse("amend", "the cursor is not one this store made"))
}

impl MemoryState {
    pub(crate) fn view(&self, arrival: ArrivalNumber) -> Job {
        let record = &self.jobs[&arrival];
        record.view(
            record
                .lease
                .and_then(|number| self.claims.get(&number).map(|claimed| claimed.by.clone())),
        )
    }

    /// The next jobs that match the filter and permit the action, and the cursor to continue from.
    fn matching_jobs(
        &self,
        filter: &Filter,
        amendment: &AmendJobsRequest,
    ) -> StoreResult<(Vec<JobId>, Option<String>)> {
        let after = match &amendment.cursor {
            None => Bound::Unbounded,
            Some(cursor) => Bound::Excluded(parse_amend_cursor(cursor)?),
        };
        let max = amendment.max.clamp(1, AMEND_MAX);
        let (mut found, mut last) = (Vec::new(), None);
        for (looked, (arrival, record)) in self.jobs.range((after, Bound::Unbounded)).enumerate() {
            let fits = record.matches(filter) && amendment.permits(record.state).is_ok();
            if looked == SCAN_MAX || (fits && found.len() == max) {
                return Ok((found, last.map(|arrival| format!("amended~{arrival}"))));
            }
            found.extend(fits.then_some(record.id));
            last = Some(arrival);
        }
        Ok((found, None))
    }

    fn amend(
        &mut self,
        id: JobId,
        amendment: &AmendJobsRequest,
        now: Time,
    ) -> Result<(), AmendRefusal> {
        let (arrival, record) = self.find_job_mut(id).ok_or(AmendRefusal::NotFound)?;
        if amendment
            .within()
            .is_some_and(|queue| *queue != record.queue)
        {
            return Err(AmendRefusal::NotFound);
        }
        amendment.permits(record.state)?;
        let to = if let AmendAction::Move(to) = &amendment.action {
            to
        } else {
            &record.queue
        };
        let (to, needs_room) = (to.clone(), needs_room(&amendment.action, record.state));
        if needs_room && !self.has_room(&to) {
            return Err(AmendRefusal::Full);
        }
        match &amendment.action {
            AmendAction::Retry => self.retry(arrival, now)?,
            AmendAction::Move(to) => self.move_to(arrival, to, now)?,
            AmendAction::Cancel => {
                self.leave_state(arrival);
                if let Some(record) = self.jobs.get_mut(&arrival) {
                    record.finished_at = Some(now);
                    record.reason = Some(EndReason::Operator);
                    self.queues
                        .entry(record.queue.clone())
                        .or_default()
                        .totals
                        .cancelled += 1;
                }
                self.enter_state(arrival, JobState::Cancelled, Requeue::End);
            }
            AmendAction::Delete => {
                self.leave_state(arrival);
                self.remove_key_of(arrival);
                self.forget(arrival, now);
            }
        }
        Ok(())
    }

    fn retry(&mut self, arrival: ArrivalNumber, now: Time) -> Result<(), AmendRefusal> {
        if self.jobs[&arrival].state.is_final() {
            self.retake_key(arrival, now)?;
        }
        self.leave_state(arrival);
        if let Some(record) = self.jobs.get_mut(&arrival) {
            if record.state.is_final() {
                record.revive();
            }
            record.run_at = now;
        }
        self.enter_state(arrival, JobState::Ready, Requeue::End);
        Ok(())
    }

    fn move_to(
        &mut self,
        arrival: ArrivalNumber,
        to: &QueueName,
        now: Time,
    ) -> Result<(), AmendRefusal> {
        let record = &self.jobs[&arrival];
        let holder = record
            .unique
            .as_ref()
            .and_then(|(key, _)| self.key_holder(to, key, now));
        if let Some(twin) = holder.filter(|holder| holder.job != record.id) {
            return Err(AmendRefusal::UniqueKeyHeld(twin.job));
        }
        self.remove_key_of(arrival);
        if let Some(record) = self.jobs.get_mut(&arrival) {
            record.queue = to.clone();
        }
        self.retry(arrival, now)
    }

    fn bury(&mut self, burial: NewDeadLetter, now: Time) -> EnqueueOutcome {
        let queue = &burial.job.queue;
        if let Some(known) = self.find_known(burial.job.id, queue) {
            return known;
        }
        if self.count(queue, JobState::Dead) >= self.bounds(queue).dead_max {
            return EnqueueOutcome::Full;
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
        self.leave_state(arrival);
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
        self.enter_state(arrival, JobState::Dead, Requeue::End);
        EnqueueOutcome::Inserted
    }

    fn groups(&self, queue: Option<&QueueName>) -> Vec<DeadLetterGroup> {
        let mut groups: BTreeMap<(QueueName, Fingerprint), DeadLetterGroup> = BTreeMap::new();
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
                .or_insert_with(|| DeadLetterGroup {
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

    /// Takes the unique key again for a job that an operator revives.
    fn retake_key(&mut self, arrival: ArrivalNumber, now: Time) -> Result<(), AmendRefusal> {
        let record = &self.jobs[&arrival];
        let Some((key, hold)) = record.unique.clone() else {
            return Ok(());
        };
        let (queue, id) = (record.queue.clone(), record.id);
        match self.key_holder(&queue, &key, now) {
            Some(holder) if holder.job != id => Err(AmendRefusal::UniqueKeyHeld(holder.job)),
            _ => {
                self.keys.insert((queue, key), KeyHolding { job: id, hold });
                Ok(())
            }
        }
    }

    fn remove_key_of(&mut self, arrival: ArrivalNumber) {
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
        let mut counts = StateCounts::default();
        for record in self.jobs.values().filter(|record| record.queue == *name) {
            *counts.of_mut(record.state) += 1;
        }
        let next_ready = self.ready.iter().find(|((of, ..), _)| of == name);
        QueueStatus {
            name: name.clone(),
            state: queue.state,
            counts,
            totals: queue.totals,
            next_ready: next_ready.map(|(_, arrival)| self.jobs[arrival].run_at),
            bounds: queue.bounds,
        }
    }

    /// The queues that one pruning examines, after the last queue of the pruning before it, and
    /// whether these are the last ones.
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

    /// Removes a queue that has been empty long enough and that nobody configured.
    fn forget_if_unused(&mut self, name: &QueueName, now: Time) {
        let is_used = self.jobs.values().any(|record| record.queue == *name)
            || self.keys.keys().any(|(queue, _)| queue == name);
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if is_used || queue.state == QueueState::Paused || queue.is_configured {
            queue.empty_since = None;
            return;
        }
        let since = *queue.empty_since.get_or_insert(now);
        if now.since(since) >= QUEUE_KEPT_FOR {
            self.queues.remove(name);
        }
    }

    /// The jobs that retention removes: queue by queue, done, cancelled, dead, oldest first.
    fn expired(
        &self,
        retention: &PruneRequest,
        names: &[QueueName],
        now: Time,
    ) -> Vec<ArrivalNumber> {
        let mut expired = Vec::new();
        for queue in names {
            let Some(shelf) = retention.retention_for(queue) else {
                continue;
            };
            for (state, kept_for, kept_max) in [
                (JobState::Done, shelf.done_for, shelf.done_max),
                (JobState::Cancelled, shelf.cancelled_for, u64::MAX),
                (JobState::Dead, shelf.dead_for, u64::MAX),
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
                let over = |(rank, (at, _)): &(usize, (Option<Time>, ArrivalNumber))| {
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
