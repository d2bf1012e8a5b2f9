//! What an operator changes by hand, in somebody's name: every change leaves one entry in the
//! [`audit`](crate::audit).
//!
//! Dead letters have their own handle, [`crate::dead`], which keeps to the same.

mod all_queues;

use crate::audit::{AuditLog, AuditReason, each_in_short};
use crate::breakers::BreakerName;
use crate::client::Backstop;
use crate::schedules::{TriggerError, TriggerResult};
use crate::search::{JobSearch, change};
use crate::streams::{ForgottenKey, ResumeFrom, Stream};
use crate::sweeps::{Sweep, SweepError, SweepReport};
use crate::workers::WorkerCommandResult;
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, Selection};
use backstop_core::limits::AMEND_MAX;
use backstop_core::port::{AmendJobsRequest, QueueState, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::worker_command::{CommandOutcome, WorkerCommand};
use backstop_core::{
    Job, JobId, JobState, QueueName, Schedule, ScheduleName, StreamKey, Time, WorkerName,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What waits: nobody has it in hand, and it has not ended.
pub const WAITING: [JobState; 3] = [JobState::Scheduled, JobState::Ready, JobState::Retrying];
/// Ids that an entry of the audit names one by one.
const IDS_SHOWN: usize = 100;

/// What can be changed, and in whose name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditedChanges {
    backstop: Backstop,
    log: AuditLog,
}

/// What became of jobs that were to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangedJobs {
    pub count: u64,
    /// Which were not, and why.
    pub refused: Vec<(JobId, AmendRefusal)>,
}

impl Backstop {
    /// What an operator can change, in the name of `who`.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// backstop.changes("ada@example.org").pause(&"emails".parse()?).await?;
    /// let entries = backstop.audit("").entries(1).await?;
    /// assert_eq!((entries[0].who.as_str(), entries[0].what.as_str()), ("ada@example.org", "queue pause"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self, who: &str) -> AuditedChanges {
        AuditedChanges {
            backstop: self.clone(),
            log: self.audit(who),
        }
    }
}

impl AuditedChanges {
    /// For this reason, if there is one: the audit says so of every change from here on.
    #[must_use]
    pub fn because(self, reason: impl Into<Option<AuditReason>>) -> Self {
        Self {
            log: self.log.because(reason),
            ..self
        }
    }

    /// The reason for which something is changed, with secrets hidden.
    pub fn reason(&self) -> Option<&str> {
        self.log.reason()
    }

    /// Retries, cancels, deletes or moves jobs, in as many calls as it takes.
    pub async fn amend(
        &self,
        selection: &Selection,
        action: &AmendAction,
    ) -> StoreResult<ChangedJobs> {
        let mut changed = ChangedJobs::default();
        self.amend_each(std::slice::from_ref(selection), action, &mut changed)
            .await?;
        Ok(changed)
    }

    /// The same with several selections, as one change with one entry in the audit. `changed` tells
    /// what was done, also where the store fails in the middle.
    pub async fn amend_each(
        &self,
        selections: &[Selection],
        action: &AmendAction,
        changed: &mut ChangedJobs,
    ) -> StoreResult<()> {
        let what = format!("job {}", action_word(action));
        let noted = self
            .log
            .open_entry(&what, each_in_short(selections, selection_json))
            .await?;
        let mut done = Ok(());
        for selection in selections {
            done = self.amend_all(selection, action, changed).await;
            if done.is_err() {
                break;
            }
        }
        self.log.close_entry(noted, changed.count, &done).await;
        done
    }

    /// The same with jobs that the store does not find by itself: by what may be seen of their
    /// payloads, or by their worker. Each is changed at most once, and only while it is in the
    /// state that was looked for: see [`crate::search::change`].
    pub async fn amend_found(
        &self,
        search: &JobSearch,
        redaction: &Redaction,
        action: &AmendAction,
    ) -> StoreResult<ChangedJobs> {
        let noted = self
            .log
            .open_entry(
                &format!("job {}", action_word(action)),
                search_json(search, redaction),
            )
            .await?;
        let mut changed = ChangedJobs::default();
        let done = self
            .amend_pages(search, redaction, action, &mut changed)
            .await;
        self.log.close_entry(noted, changed.count, &done).await;
        done.map(|()| changed)
    }

    async fn amend_pages(
        &self,
        search: &JobSearch,
        redaction: &Redaction,
        action: &AmendAction,
        changed: &mut ChangedJobs,
    ) -> StoreResult<()> {
        let mut cursor = None;
        loop {
            let step = self
                .backstop
                .next_job_changes(search, redaction, action, cursor)
                .await?;
            for amendment in step.amendments {
                let amended = self
                    .backstop
                    .store()
                    .amend(amendment, self.backstop.current_time().await)
                    .await?;
                changed.count += amended.applied as u64;
                changed.refused.extend(change::refusals(&amended));
            }
            cursor = step.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes the waiting jobs of a queue; answers how many there were.
    pub async fn clear(&self, queue: &QueueName) -> StoreResult<u64> {
        let noted = self
            .log
            .open_entry("queue clear", json!({ "queue": queue }))
            .await?;
        let mut changed = ChangedJobs::default();
        let mut done = Ok(());
        for state in WAITING {
            let filter = Filter {
                queue: Some(queue.clone()),
                state: Some(state),
                ..Filter::default()
            };
            let selection = Selection::Matching(filter);
            done = self
                .amend_all(&selection, &AmendAction::Delete, &mut changed)
                .await;
            if done.is_err() {
                break;
            }
        }
        self.log.close_entry(noted, changed.count, &done).await;
        done.map(|()| changed.count)
    }

    async fn amend_all(
        &self,
        selection: &Selection,
        action: &AmendAction,
        changed: &mut ChangedJobs,
    ) -> StoreResult<()> {
        let mut known = BTreeSet::new();
        for selection in parts(selection) {
            let action = action.clone();
            let mut amendment = AmendJobsRequest {
                selection,
                action,
                only: None,
                cursor: None,
                max: AMEND_MAX,
            };
            loop {
                let amended = self
                    .backstop
                    .store()
                    .amend(amendment.clone(), self.backstop.current_time().await)
                    .await?;
                changed.count += amended.applied as u64;
                // An id that was named twice is told once.
                changed.refused.extend(
                    amended
                        .refused
                        .into_iter()
                        .filter(|(id, _)| known.insert(*id)),
                );
                amendment.cursor = amended.next;
                if amendment.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Keeps a queue's jobs from being given out, on all workers.
    pub async fn pause(&self, queue: &QueueName) -> StoreResult<()> {
        self.set_gate("queue pause", queue, QueueState::Paused)
            .await
    }

    /// Gives a paused queue's jobs out again.
    pub async fn resume(&self, queue: &QueueName) -> StoreResult<()> {
        self.set_gate("queue resume", queue, QueueState::Active)
            .await
    }

    async fn set_gate(&self, what: &str, queue: &QueueName, gate: QueueState) -> StoreResult<()> {
        let change = async {
            let now = self.backstop.current_time().await;
            let queues = self.backstop.store().queues(now).await?;
            let current = queues
                .iter()
                .find(|one| one.name == *queue)
                .map(|one| one.state);
            if !self.single_out(queue).await? && current.unwrap_or(QueueState::Active) == gate {
                return Ok((None, ()));
            }
            self.backstop
                .store()
                .set_queue_state(queue.clone(), gate, now)
                .await?;
            Ok((Some(1), ()))
        };
        self.log
            .record_change(what, json!({ "queue": queue }), change)
            .await
    }

    /// Closes a breaker, or opens a gate again; whether there is such a one.
    pub async fn reset(&self, guard: &BreakerName) -> StoreResult<bool> {
        let change = async {
            let was_shut = self.backstop.breakers().is_shut(guard).await?;
            let is_there = self
                .backstop
                .breakers()
                .reset(guard, "reset by hand")
                .await?;
            Ok(((was_shut && is_there).then_some(1), is_there))
        };
        self.log
            .record_change(
                "breaker reset",
                json!({ "name": guard.to_string() }),
                change,
            )
            .await
    }

    /// Opens a breaker, or shuts a gate, until it is reset.
    pub async fn open(&self, guard: &BreakerName, why: &str) -> StoreResult<()> {
        let change = async {
            if self.backstop.breakers().is_forced(guard, why).await? {
                return Ok((None, ()));
            }
            self.backstop.breakers().open(guard, why).await?;
            Ok((Some(1), ()))
        };
        self.log
            .record_change(
                "breaker open",
                json!({ "name": guard.to_string(), "why": why }),
                change,
            )
            .await
    }

    /// Asks a worker to take no new jobs, to go on, or to stop; it heeds that within seconds.
    /// `None` if there is no such worker to be asked.
    pub async fn command_worker(
        &self,
        worker: &WorkerName,
        command_worker: WorkerCommand,
    ) -> StoreResult<Option<WorkerCommandResult>> {
        let change = async {
            let result = self
                .backstop
                .command_worker(worker, command_worker, self.log.who())
                .await?;
            let is_done = result.is_some_and(|result| result.outcome == CommandOutcome::Given);
            Ok((is_done.then_some(1), result))
        };
        self.log
            .record_change(
                &format!("worker {command_worker}"),
                json!({ "worker": worker.as_str() }),
                change,
            )
            .await
    }

    /// Runs a sweep, with rows looked for as if it were `at`.
    pub async fn sweep(&self, sweep: &Sweep, at: Time) -> Result<SweepReport, SweepError> {
        let change = async {
            // Boxed: what a sweep keeps across its awaits is large.
            let report = Box::pin(self.backstop.sweeper(sweep).run_at(at)).await?;
            Ok((report.enqueued.len() as u64, report))
        };
        self.log
            .record("sweep run", json!({ "sweep": sweep.name() }), change)
            .await
    }

    /// Stops firing a schedule; whether it was fired before.
    pub async fn pause_schedule(&self, name: &ScheduleName) -> StoreResult<bool> {
        let change = async {
            let is_new = self.backstop.schedules().pause(name).await?;
            Ok((is_new.then_some(1), is_new))
        };
        self.log
            .record_change("schedule pause", json!({ "schedule": name }), change)
            .await
    }

    /// Fires a paused schedule again; whether it was paused.
    pub async fn resume_schedule(&self, name: &ScheduleName) -> StoreResult<bool> {
        let change = async {
            let was_paused = self.backstop.schedules().resume(name).await?;
            Ok((was_paused.then_some(1), was_paused))
        };
        self.log
            .record_change("schedule resume", json!({ "schedule": name }), change)
            .await
    }

    /// Runs a schedule now, beside its instants.
    pub async fn trigger(&self, schedule: &Schedule) -> Result<TriggerResult, TriggerError> {
        let change = async { Ok((1, self.backstop.schedules().trigger(schedule).await?)) };
        self.log
            .record(
                "schedule trigger",
                json!({ "schedule": schedule.name }),
                change,
            )
            .await
    }

    /// Forgets a key of a stream; `None` if nobody has heard of it.
    pub async fn forget(
        &self,
        stream: &Stream,
        key: &StreamKey,
    ) -> StoreResult<Option<ForgottenKey>> {
        let change = async {
            let gone = stream.forget(key).await?;
            Ok((gone.is_some().then_some(1), gone))
        };
        self.log
            .record_change("stream forget", key_json(stream, key), change)
            .await
    }

    /// Forgets a key of a stream, and ignores its records until it is enabled.
    pub async fn disable(&self, stream: &Stream, key: &StreamKey) -> StoreResult<ForgottenKey> {
        let change = async {
            // A key that cannot be read can still be disabled.
            let was_disabled = stream.is_disabled(key).await.unwrap_or_default();
            let gone = stream.disable(key).await?;
            let is_same = was_disabled && gone.records == 0;
            Ok(((!is_same).then_some(1), gone))
        };
        self.log
            .record_change("stream disable", key_json(stream, key), change)
            .await
    }

    /// Takes the records of a disabled key again; whether it was disabled.
    pub async fn enable(&self, stream: &Stream, key: &StreamKey) -> StoreResult<bool> {
        let change = async {
            let was_disabled = stream.enable(key).await?;
            Ok((was_disabled.then_some(1), was_disabled))
        };
        self.log
            .record_change("stream enable", key_json(stream, key), change)
            .await
    }

    /// Sets a halted key going again; whether it was halted.
    pub async fn resume_key(
        &self,
        stream: &Stream,
        key: &StreamKey,
        resume: ResumeFrom,
    ) -> StoreResult<bool> {
        let what = match resume {
            ResumeFrom::SameRecord => "stream resume",
            ResumeFrom::NextRecord => "stream resume past",
        };
        let change = async {
            let was_halted = stream.resume(key, resume).await?;
            Ok((was_halted.then_some(1), was_halted))
        };
        self.log
            .record_change(what, key_json(stream, key), change)
            .await
    }
}

fn key_json(stream: &Stream, key: &StreamKey) -> Value {
    json!({ "stream": stream.name(), "key": key })
}

/// One call takes a limited number of ids.
fn parts(selection: &Selection) -> Vec<Selection> {
    match selection {
        Selection::Ids(ids) => ids
            .chunks(AMEND_MAX)
            .map(|part| Selection::Ids(part.to_vec()))
            .collect(),
        Selection::Within(queue, ids) => ids
            .chunks(AMEND_MAX)
            .map(|part| Selection::Within(queue.clone(), part.to_vec()))
            .collect(),
        other => vec![other.clone()],
    }
}

/// These jobs, each selection of one queue: on Redis another may have a job of the same id.
pub fn by_queue(mut jobs: Vec<Job>) -> Vec<Selection> {
    jobs.sort_by(|one, other| one.queue.cmp(&other.queue));
    let within = |part: &[Job]| {
        Selection::Within(
            part[0].queue.clone(),
            part.iter().map(|job| job.id).collect(),
        )
    };
    jobs.chunk_by(|one, next| one.queue == next.queue)
        .map(within)
        .collect()
}

/// For the audit: what was looked for, with secrets in the text hidden.
pub fn search_json(search: &JobSearch, redaction: &Redaction) -> Value {
    let mut summary = selection_json(&Selection::Matching(search.filter.clone()));
    if let Some(text) = &search.text {
        summary["matching"]["text"] = json!(redaction.text(text.as_str()));
    }
    if let Some(worker) = &search.worker {
        summary["matching"]["worker"] = json!(worker.as_str());
    }
    summary
}

/// For the audit: of many ids the first ones, and how many more there are.
fn selection_json(selection: &Selection) -> Value {
    match selection {
        Selection::Ids(ids) => ids_json(ids),
        Selection::Within(queue, ids) => {
            let mut summary = ids_json(ids);
            summary["queue"] = json!(queue);
            summary
        }
        Selection::Matching(filter) => {
            let Filter {
                queue,
                kind,
                state,
                fingerprint,
            } = filter;
            let summary = [
                ("queue", queue.as_ref().map(|queue| json!(queue))),
                ("kind", kind.as_ref().map(|kind| json!(kind))),
                ("state", state.map(|state| json!(state))),
                (
                    "fingerprint",
                    fingerprint.map(|fingerprint| json!(fingerprint)),
                ),
            ];
            let summary = summary
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)));
            json!({ "matching": Value::Object(summary.collect()) })
        }
        Selection::All => json!({ "all": true }),
    }
}

fn ids_json(ids: &[JobId]) -> Value {
    if ids.len() > IDS_SHOWN {
        return json!({ "ids": ids[..IDS_SHOWN], "more": ids.len() - IDS_SHOWN });
    }
    json!({ "ids": ids })
}

/// What an action is called.
const fn action_word(action: &AmendAction) -> &'static str {
    match action {
        AmendAction::Retry => "retry",
        AmendAction::Cancel => "cancel",
        AmendAction::Delete => "delete",
        AmendAction::Move(_) => "move",
    }
}

#[cfg(test)]
mod tests;
