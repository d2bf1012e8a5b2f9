//! Runs redrives: looks, lets [`decide`] say what follows, does it.

use super::letters::{JobSnapshot, LetterBatch, LetterCursor, LetterSelection, group_by_queue};
use super::record::{PART_MAX, RedriveRecord, RedriveRunner};
use super::waiting::WaitingLetters;
use super::watch::{RedriveWatch, RedrivenJob, RedrivenStatus};
use super::{
    RedriveError, RedriveObservation, RedrivePhase, RedrivePlan, RedriveReport, RedriveStep, decide,
};
use crate::dead::{DeadChangeResult, DeadFilter, DeadLetters, DeadSelection};
use backstop_core::amend::{AmendAction, AmendRefusal};
use backstop_core::limits::FIND_MAX;
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::{JobId, JobState, QueueName, Time};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// Jobs looked at in one step, and once more at the end.
const LOOKS_MAX: usize = 200;
const LAST_LOOKS_MAX: usize = 2_000;
/// How often in a row a store that does not answer is asked again, and after how long.
const STORE_TRIES_MAX: u32 = 60;
const STORE_WAIT: Duration = Duration::from_secs(1);
/// How often it is tried whether a full queue has room.
const ROOM_LOOKED_EVERY: Duration = Duration::from_secs(1);
const WAITS_FOR_ROOM: &str = "A queue is full; its letters are requeued once it has room.";

impl DeadLetters {
    /// Writes a redrive down, to be run by [`DeadLetters::run_redrive`]; answers its id. Where its
    /// runner is killed, it waits for whoever resumes it.
    pub async fn redrive(&self, plan: RedrivePlan) -> Result<String, RedriveError> {
        self.create_record(plan, false).await
    }

    /// The same, for one that nobody watches: where its runner is killed, the servers of the store
    /// go on with it.
    pub async fn redrive_unattended(&self, plan: RedrivePlan) -> Result<String, RedriveError> {
        self.create_record(plan, true).await
    }

    /// Leaves a redrive that nobody runs to the servers of the store from now on. One that has a
    /// runner stays that one's.
    pub async fn leave_redrive(&self, id: &str) -> Result<(), RedriveError> {
        self.change_audited(id, "redrive leave", RedriveRecord::leave)
            .await
            .map(drop)
    }

    /// Changes a redrive on somebody's behalf, between the two halves of an entry of the audit.
    async fn change_audited(
        &self,
        id: &str,
        what: &str,
        mut change: impl FnMut(&mut RedriveRecord, Time) -> Result<(), RedriveError>,
    ) -> Result<RedriveRecord, RedriveError> {
        let known = self.record(id).await?;
        let changed = async {
            let now = self.backstop.current_time().await;
            let change = |record: &mut RedriveRecord| change(record, now);
            self.update_record(&known, change)
                .await
                .map(|record| (1, record))
        };
        self.log
            .record(what, serde_json::json!({ "redrive": id }), changed)
            .await
    }

    async fn create_record(
        &self,
        plan: RedrivePlan,
        is_unattended: bool,
    ) -> Result<String, RedriveError> {
        plan.check()?;
        self.forget_old_redrives().await?;
        let (id, now) = (
            self.backstop.new_id().to_string(),
            self.backstop.current_time().await,
        );
        let picked = self.pick_letters(&plan.selection, now).await?;
        let expected = match (&picked, &plan.selection) {
            (Some(picked), _) => Some(picked.len() as u64),
            (None, DeadSelection::Matching(filter)) => self.estimate(filter).await?,
            (None, _) => self.estimate(&DeadFilter::default()).await?,
        };
        // Before the redrive itself: whoever runs it finds all of them.
        self.keep_picked(&id, picked.as_deref().unwrap_or_default())
            .await?;
        let report = RedriveReport {
            id,
            phase: RedrivePhase::Canary,
            by: self.log.who().to_owned(),
            reason: self.log.reason().map(str::to_owned),
            started_at: now,
            ended_at: None,
            plan: plan.shortened(),
            picked: picked.map(|picked| picked.len() as u64),
            expected,
            stalled: false,
            requeued: 0,
            done: 0,
            died_again: 0,
            open: 0,
            refused: 0,
            damaged: 0,
            why: None,
        };
        let record = self
            .update_record(&RedriveRecord::new(report, is_unattended), |_| Ok(()))
            .await?;
        Ok(record.report.id)
    }

    /// Runs a redrive to its end, or until `progress`, which is told after every step, breaks it
    /// off: then it can be resumed by calling this again. So it can if this future is dropped, once
    /// its lease is over.
    pub async fn run_redrive(
        &self,
        id: &str,
        mut progress: impl FnMut(&RedriveReport) -> ControlFlow<()> + Send,
    ) -> Result<RedriveReport, RedriveError> {
        let number = self.backstop.random().bits();
        let mut run = RedriveRun::take(self, id, number).await?;
        // Whoever goes on without a reason of their own does it for the one it was started for.
        let reason = self.log.reason().or(run.record.report.reason.as_deref());
        let log = self.log.clone().because_of(reason);
        let selection = audit_selection(&run.record.report, &self.redaction);
        let audit_entry = match log.open_entry(&format!("redrive {id}"), selection).await {
            Ok(audit_entry) => audit_entry,
            Err(error) => {
                // Nothing is done that is not written down; whoever tries again need not wait for
                // our lease to end.
                let _ = run.leave().await;
                return Err(error.into());
            }
        };
        let before = run.record.report.requeued;
        let mut tries = 0;
        let ended = loop {
            match run.run_to_end(&mut progress, &mut tries).await {
                Err(RedriveError::Store(error))
                    if error.is_transient() && tries < STORE_TRIES_MAX =>
                {
                    tries += 1;
                    tracing::warn!(%error, redrive = id, "not answered; trying again in {STORE_WAIT:?}");
                    tokio::time::sleep(STORE_WAIT).await;
                }
                ended => break ended,
            }
        };
        let requeued = run.record.report.requeued.saturating_sub(before);
        match &ended {
            // A process that went on with a redrive is in the audit, also where nothing was left.
            Ok(report) if report.requeued > 0 || !report.phase.is_ended() => {
                self.log.record_end(audit_entry, requeued, None).await;
            }
            ended => {
                let done = ended.as_ref().map(drop);
                self.log.close_entry(audit_entry, requeued, &done).await;
            }
        }
        ended.map(|report| report.redacted(&self.redaction))
    }

    /// Asks a redrive to stop; its runner does so at its next step.
    pub async fn stop_redrive(&self, id: &str) -> Result<RedriveReport, RedriveError> {
        let record = self
            .change_audited(id, "redrive stop", RedriveRecord::request_stop)
            .await?;
        if record.report.phase.is_ended() {
            self.forget_redriven(id).await?;
        }
        Ok(record.report.redacted(&self.redaction))
    }
}

/// For the audit: what was asked for, and of how many ids a report does not tell.
fn audit_selection(report: &RedriveReport, redaction: &Redaction) -> serde_json::Value {
    let selection = report.plan.selection.clone().redacted(redaction);
    let mut described = serde_json::to_value(&selection).unwrap_or_default();
    if let (DeadSelection::Ids(ids) | DeadSelection::Within { ids, .. }, Some(picked)) =
        (&selection, report.picked)
        && picked > ids.len() as u64
    {
        described["more"] = (picked - ids.len() as u64).into();
    }
    described
}

struct RedriveRun<'a> {
    dead: &'a DeadLetters,
    number: u64,
    record: RedriveRecord,
    watch: RedriveWatch,
    /// Which letters: only those that were dead when it started.
    letters: LetterSelection,
    reached: LetterCursor,
    waiting: WaitingLetters,
    free_at: Time,
    /// Whether what the store knows is known here.
    is_loaded: bool,
}

impl<'a> RedriveRun<'a> {
    async fn take(dead: &'a DeadLetters, id: &str, number: u64) -> Result<Self, RedriveError> {
        let (known, now) = (dead.record(id).await?, dead.backstop.current_time().await);
        let record = dead
            .update_record(&known, |record| record.take(number, now))
            .await?;
        Ok(Self {
            letters: LetterSelection::of(&record.report.plan.selection, record.report.started_at),
            dead,
            number,
            record,
            watch: RedriveWatch::default(),
            reached: LetterCursor::Nothing,
            waiting: WaitingLetters::default(),
            free_at: now,
            is_loaded: false,
        })
    }

    /// Goes on from what is known. `tries` is set back by every step that succeeds.
    async fn run_to_end(
        &mut self,
        progress: &mut (impl FnMut(&RedriveReport) -> ControlFlow<()> + Send),
        tries: &mut u32,
    ) -> Result<RedriveReport, RedriveError> {
        if self.record.report.phase.is_ended() {
            return self.finish().await;
        }
        self.load().await?;
        loop {
            self.resolve().await?;
            self.check_open_jobs(LOOKS_MAX).await;
            self.save().await?;
            *tries = 0;
            if progress(&self.record.report).is_break() {
                return self.leave().await;
            }
            let now = self.dead.backstop.current_time().await;
            match decide(&self.record.report, &self.observe(), now) {
                RedriveStep::Requeue(count) => self.requeue(count).await?,
                RedriveStep::Wait(span) => tokio::time::sleep(span.into()).await,
                RedriveStep::Enter(phase) => {
                    self.record.report.phase = phase;
                    self.free_at = now;
                }
                RedriveStep::End(phase, why) => {
                    self.check_open_jobs(LAST_LOOKS_MAX).await;
                    self.record
                        .end(phase, why, self.dead.backstop.current_time().await);
                    return self.finish().await;
                }
            }
        }
    }

    fn observe(&self) -> RedriveObservation {
        RedriveObservation {
            stop_requested: self.record.stop_requested,
            has_more: self.reached != LetterCursor::End || !self.waiting.is_empty(),
            free_at: self.free_at,
        }
    }

    /// Finds out what the runners before this one have redriven.
    async fn load(&mut self) -> Result<(), RedriveError> {
        if !self.is_loaded {
            for redriven in self.dead.load_redriven(&self.record.report.id).await? {
                self.watch.add(redriven);
            }
            if let LetterSelection::Picked(picked) = &mut self.letters {
                *picked = self.dead.load_picked(&self.record.report.id).await?;
                picked.retain(|id| !self.watch.knows(*id, None));
            }
            self.record.report.refused = 0;
            self.record.report.damaged = 0;
            self.is_loaded = true;
        }
        Ok(())
    }

    /// The queue that all its letters are of, where one was named: on Redis another may have a job
    /// of the same id.
    fn queue(&self) -> Option<&QueueName> {
        self.record.report.plan.queue()
    }

    /// Finds out which of those that were about to be requeued were, where nobody lived, or heard,
    /// to tell.
    async fn resolve(&mut self) -> Result<(), RedriveError> {
        let seen = self
            .dead
            .read_each(self.queue(), &self.record.pending)
            .await?;
        let was_requeued = |(redriven, seen): (&RedrivenJob, JobSnapshot)| match seen {
            JobSnapshot::Job(job) => redriven
                .was_requeued(job.as_deref())
                .then(|| redriven.clone()),
            // It counts as one that died once it is looked at.
            JobSnapshot::Damaged => Some(redriven.clone()),
        };
        let requeued: Vec<_> = self
            .record
            .pending
            .iter()
            .zip(seen)
            .filter_map(was_requeued)
            .collect();
        self.remember(&requeued).await?;
        self.record.pending.clear();
        Ok(())
    }

    /// Requeues the next letters, at most `count`. What is about to happen is written down first:
    /// that is also where a runner that was replaced finds out. Those whose queue is full wait.
    async fn requeue(&mut self, count: usize) -> Result<(), RedriveError> {
        let count = count.min(PART_MAX);
        let is_read = self.reads_on();
        let next = if is_read {
            self.read_letters(count).await?
        } else {
            self.waiting_letters(count).await?
        };
        let is_new = |redriven: &RedrivenJob| !self.watch.knows_it(redriven);
        let (mut full, pending): (Vec<_>, Vec<_>) = next
            .letters
            .into_iter()
            .filter(is_new)
            .partition(|letter| self.waiting.is_full_for(letter));
        self.record.pending = pending;
        let mut refused = 0;
        if !self.record.pending.is_empty() {
            self.save().await?;
            for (letter, why) in self.requeue_pending().await? {
                if why == AmendRefusal::Full {
                    full.push(letter);
                } else {
                    refused += 1;
                }
            }
        }
        if is_read {
            self.reached = next.reached;
        } else {
            self.waiting.remove(count);
        }
        self.waiting.put_off(full);
        let alive = next
            .alive
            .iter()
            .filter(|id| !self.watch.knows(**id, None))
            .count();
        self.record.report.refused += alive as u64 + refused;
        self.record.report.damaged += next.damaged;
        self.record.report.why = (!self.waiting.is_empty()).then(|| WAITS_FOR_ROOM.to_owned());
        Ok(())
    }

    /// Whether letters that nobody has looked at are next, and not those that wait for room. Where
    /// all are of one queue, and that one is full, the others would be read for nothing.
    fn reads_on(&self) -> bool {
        let may_pass = self.queue().is_none() && self.waiting.has_room();
        self.reached != LetterCursor::End && (self.waiting.is_empty() || may_pass)
    }

    async fn read_letters(&self, count: usize) -> StoreResult<LetterBatch> {
        let started_at = self.record.report.started_at;
        self.dead
            .next_letters(
                &self.letters,
                self.queue(),
                &self.reached,
                count,
                started_at,
            )
            .await
    }

    /// The next of those that wait for room, as they are by now. A new round begins after a pause.
    async fn waiting_letters(&mut self, count: usize) -> StoreResult<LetterBatch> {
        if self.waiting.is_round_over() {
            tokio::time::sleep(ROOM_LOOKED_EVERY).await;
            self.waiting.begin_round();
        }
        let mut letters = self.waiting.next(count);
        letters.retain(|letter| !self.watch.knows_it(letter));
        let seen = self.dead.read_each(self.queue(), &letters).await?;
        let mut next = LetterBatch {
            letters: Vec::new(),
            alive: Vec::new(),
            damaged: 0,
            reached: self.reached.clone(),
        };
        for (letter, seen) in letters.into_iter().zip(seen) {
            match seen {
                JobSnapshot::Job(Some(job))
                    if job.state == JobState::Dead && job.requeues == letter.requeues =>
                {
                    next.letters.push(letter);
                }
                JobSnapshot::Job(_) => next.alive.push(letter.id),
                JobSnapshot::Damaged => next.damaged += 1,
            }
        }
        Ok(next)
    }

    /// Requeues what is pending; answers which were not, and why.
    async fn requeue_pending(&mut self) -> Result<Vec<(RedrivenJob, AmendRefusal)>, RedriveError> {
        let now = self.dead.backstop.current_time().await;
        if self.record.runner.is_none_or(|runner| runner.until <= now) {
            return Err(RedriveError::TakenOver(self.record.report.id.clone()));
        }
        let (mut requeued, mut refused) = (Vec::new(), Vec::new());
        for (queue, places) in group_by_queue(&self.record.pending) {
            let letters: Vec<&RedrivenJob> = places
                .iter()
                .map(|place| &self.record.pending[*place])
                .collect();
            let ids: Vec<JobId> = letters.iter().map(|redriven| redriven.id).collect();
            let mut changed = DeadChangeResult::default();
            match queue.or(self.queue()) {
                Some(queue) => {
                    self.dead
                        .apply_within(queue, &ids, &AmendAction::Retry, &mut changed)
                        .await?;
                }
                None => {
                    self.dead
                        .apply_to(&ids, &AmendAction::Retry, &mut changed)
                        .await?;
                }
            }
            let mut not: BTreeMap<JobId, AmendRefusal> = changed.refused.into_iter().collect();
            for letter in letters {
                match not.remove(&letter.id) {
                    None => requeued.push(letter.clone()),
                    Some(why) => refused.push((letter.clone(), why)),
                }
            }
        }
        self.remember(&requeued).await?;
        self.record.pending.clear();
        if self.record.report.phase == RedrivePhase::Rate {
            self.free_at =
                self.record
                    .report
                    .plan
                    .then_rate
                    .next_at(self.free_at, requeued.len(), now);
        }
        Ok(refused)
    }

    async fn remember(&mut self, requeued: &[RedrivenJob]) -> Result<(), RedriveError> {
        let news: Vec<RedrivenJob> = requeued
            .iter()
            .filter(|redriven| !self.watch.knows_it(redriven))
            .cloned()
            .collect();
        let before = self.watch.total() as usize;
        self.dead
            .add_redriven(&self.record.report.id, before, &news)
            .await?;
        for redriven in news {
            self.watch.add(redriven);
        }
        Ok(())
    }

    /// Looks at those that have not ended, as many as `max`. What the store does not answer is
    /// looked at again later.
    async fn check_open_jobs(&mut self, max: usize) {
        let count = max.min(self.watch.open() as usize);
        let looked_at: Vec<RedrivenJob> = std::iter::from_fn(|| self.watch.next())
            .take(count)
            .collect();
        for part in looked_at.chunks(FIND_MAX) {
            let seen = self.dead.read_each(self.queue(), part).await.ok();
            let mut seen = seen.into_iter().flatten();
            for redriven in part {
                let fate = match seen.next() {
                    None => RedrivenStatus::Open,
                    Some(JobSnapshot::Job(None)) => self.status_in_other_queue(redriven).await,
                    Some(JobSnapshot::Job(job)) => redriven.status(job.as_deref()),
                    Some(JobSnapshot::Damaged) => RedrivenStatus::Died,
                };
                self.watch.record(redriven.clone(), fate);
            }
        }
        let report = &mut self.record.report;
        report.requeued = self.watch.total();
        (report.done, report.died_again, report.open) =
            (self.watch.done, self.watch.died, self.watch.open());
    }

    /// What became of one that its queue has no longer: who moved it away has requeued it once
    /// more.
    async fn status_in_other_queue(&self, redriven: &RedrivenJob) -> RedrivenStatus {
        if redriven.queue.as_ref().or(self.queue()).is_none() {
            return RedrivenStatus::Done;
        }
        let is_another = |queue: &QueueName| {
            redriven.queue.is_some() && self.watch.knows(redriven.id, Some(queue))
        };
        match self.dead.backstop.job(redriven.id).await {
            Ok(Some(job)) if redriven.was_requeued_again(&job) && !is_another(&job.queue) => {
                RedrivenStatus::Died
            }
            Ok(_) => RedrivenStatus::Done,
            Err(StoreError::Corrupt { .. }) => RedrivenStatus::Died,
            Err(_) => RedrivenStatus::Open,
        }
    }

    /// A sign of life, with all that is known. Learns of a wish to stop.
    async fn save(&mut self) -> Result<(), RedriveError> {
        self.record.runner = Some(RedriveRunner::new(
            self.number,
            self.dead.backstop.current_time().await,
        ));
        self.write().await
    }

    async fn write(&mut self) -> Result<(), RedriveError> {
        let (ours, number) = (self.record.clone(), self.number);
        self.record = self
            .dead
            .update_record(&ours, |stored| stored.replace(&ours, number))
            .await?;
        Ok(())
    }

    /// Leaves it to be resumed at once.
    async fn leave(&mut self) -> Result<RedriveReport, RedriveError> {
        self.record.runner = Some(RedriveRunner::expired(
            self.number,
            self.dead.backstop.current_time().await,
        ));
        self.write().await?;
        Ok(self.record.report.clone())
    }

    async fn finish(&mut self) -> Result<RedriveReport, RedriveError> {
        self.write().await?;
        if let Err(error) = self.dead.forget_redriven(&self.record.report.id).await {
            tracing::warn!(%error, "what a redrive remembered could not be removed");
        }
        Ok(self.record.report.clone())
    }
}
