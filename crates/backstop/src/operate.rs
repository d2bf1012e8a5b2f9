//! What an operator changes by hand, in somebody's name: every change leaves one entry in the
//! [`audit`](crate::audit).
//!
//! Dead letters have their own handle, [`crate::dead`], which keeps to the same.

mod all_queues;

use crate::audit::{Audit, Reason, each_in_short};
use crate::breakers::GuardName;
use crate::client::Backstop;
use crate::schedules::{TriggerError, Triggered};
use crate::search::{Search, change};
use crate::streams::{Forgotten, Resume, Stream};
use crate::sweeps::{Report, Sweep, SweepError};
use crate::workers::Given;
use backstop_core::amend::{Action, Filter, Refusal, Selection};
use backstop_core::limits::AMEND_MAX;
use backstop_core::order::{Order, Ordered};
use backstop_core::port::{Amendment, Answer, Gate};
use backstop_core::redact::Redaction;
use backstop_core::{
    Job, JobId, QueueName, Schedule, ScheduleName, State, StreamKey, Time, WorkerName,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What waits: nobody has it in hand, and it has not ended.
pub const WAITING: [State; 3] = [State::Scheduled, State::Ready, State::Retrying];
/// Ids that an entry of the audit names one by one.
const IDS_SHOWN: usize = 100;

/// What can be changed, and in whose name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Changes {
    backstop: Backstop,
    log: Audit,
}

/// What became of jobs that were to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangedJobs {
    /// How many were.
    pub count: u64,
    /// Which were not, and why.
    pub refused: Vec<(JobId, Refusal)>,
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
    pub fn changes(&self, who: &str) -> Changes {
        Changes {
            backstop: self.clone(),
            log: self.audit(who),
        }
    }
}

impl Changes {
    /// For this reason, if there is one: the audit says so of every change from here on.
    #[must_use]
    pub fn because(self, reason: impl Into<Option<Reason>>) -> Self {
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
    pub async fn amend(&self, selection: &Selection, action: &Action) -> Answer<ChangedJobs> {
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
        action: &Action,
        changed: &mut ChangedJobs,
    ) -> Answer<()> {
        let what = format!("job {}", word(action));
        let noted = self
            .log
            .note(&what, each_in_short(selections, in_short))
            .await?;
        let mut done = Ok(());
        for selection in selections {
            done = self.amend_all(selection, action, changed).await;
            if done.is_err() {
                break;
            }
        }
        self.log.note_done(noted, changed.count, &done).await;
        done
    }

    /// The same with jobs that the store does not find by itself: by what may be seen of their
    /// payloads, or by their worker. Each is changed at most once, and only while it is in the
    /// state that was looked for: see [`crate::search::change`].
    pub async fn amend_found(
        &self,
        search: &Search,
        redaction: &Redaction,
        action: &Action,
    ) -> Answer<ChangedJobs> {
        let noted = self
            .log
            .note(
                &format!("job {}", word(action)),
                found_in_short(search, redaction),
            )
            .await?;
        let mut changed = ChangedJobs::default();
        let done = self
            .amend_pages(search, redaction, action, &mut changed)
            .await;
        self.log.note_done(noted, changed.count, &done).await;
        done.map(|()| changed)
    }

    async fn amend_pages(
        &self,
        search: &Search,
        redaction: &Redaction,
        action: &Action,
        changed: &mut ChangedJobs,
    ) -> Answer<()> {
        let mut cursor = None;
        loop {
            let step = self
                .backstop
                .to_change(search, redaction, action, cursor)
                .await?;
            for amendment in step.amendments {
                let amended = self
                    .backstop
                    .store()
                    .amend(amendment, self.backstop.current_time().await)
                    .await?;
                changed.count += amended.applied as u64;
                changed.refused.extend(change::refused(&amended));
            }
            cursor = step.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes the waiting jobs of a queue; answers how many there were.
    pub async fn clear(&self, queue: &QueueName) -> Answer<u64> {
        let noted = self
            .log
            .note("queue clear", json!({ "queue": queue }))
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
                .amend_all(&selection, &Action::Delete, &mut changed)
                .await;
            if done.is_err() {
                break;
            }
        }
        self.log.note_done(noted, changed.count, &done).await;
        done.map(|()| changed.count)
    }

    async fn amend_all(
        &self,
        selection: &Selection,
        action: &Action,
        changed: &mut ChangedJobs,
    ) -> Answer<()> {
        let mut known = BTreeSet::new();
        for selection in parts(selection) {
            let action = action.clone();
            let mut amendment = Amendment {
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
    pub async fn pause(&self, queue: &QueueName) -> Answer<()> {
        self.set_gate("queue pause", queue, Gate::Paused).await
    }

    /// Gives a paused queue's jobs out again.
    pub async fn resume(&self, queue: &QueueName) -> Answer<()> {
        self.set_gate("queue resume", queue, Gate::Open).await
    }

    async fn set_gate(&self, what: &str, queue: &QueueName, gate: Gate) -> Answer<()> {
        let change = async {
            let now = self.backstop.current_time().await;
            let queues = self.backstop.store().queues(now).await?;
            let standing = queues
                .iter()
                .find(|one| one.name == *queue)
                .map(|one| one.gate);
            if !self.single_out(queue).await? && standing.unwrap_or(Gate::Open) == gate {
                return Ok((None, ()));
            }
            self.backstop
                .store()
                .set_gate(queue.clone(), gate, now)
                .await?;
            Ok((Some(1), ()))
        };
        self.log
            .around_change(what, json!({ "queue": queue }), change)
            .await
    }

    /// Closes a breaker, or opens a gate again; whether there is such a one.
    pub async fn reset(&self, guard: &GuardName) -> Answer<bool> {
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
            .around_change(
                "breaker reset",
                json!({ "name": guard.to_string() }),
                change,
            )
            .await
    }

    /// Opens a breaker, or shuts a gate, until it is reset.
    pub async fn open(&self, guard: &GuardName, why: &str) -> Answer<()> {
        let change = async {
            if self.backstop.breakers().is_forced(guard, why).await? {
                return Ok((None, ()));
            }
            self.backstop.breakers().open(guard, why).await?;
            Ok((Some(1), ()))
        };
        self.log
            .around_change(
                "breaker open",
                json!({ "name": guard.to_string(), "why": why }),
                change,
            )
            .await
    }

    /// Asks a worker to take no new jobs, to go on, or to stop; it heeds that within seconds.
    /// `None` if there is no such worker to be asked.
    pub async fn order(&self, worker: &WorkerName, order: Order) -> Answer<Option<Given>> {
        let change = async {
            let given = self.backstop.order(worker, order, self.log.who()).await?;
            let is_done = given.is_some_and(|given| given.ordered == Ordered::Given);
            Ok((is_done.then_some(1), given))
        };
        self.log
            .around_change(
                &format!("worker {order}"),
                json!({ "worker": worker.as_str() }),
                change,
            )
            .await
    }

    /// Runs a sweep, with rows looked for as if it were `at`.
    pub async fn sweep(&self, sweep: &Sweep, at: Time) -> Result<Report, SweepError> {
        let change = async {
            // Boxed: what a sweep keeps across its awaits is large.
            let report = Box::pin(self.backstop.sweeper(sweep).run_at(at)).await?;
            Ok((report.enqueued.len() as u64, report))
        };
        self.log
            .around("sweep run", json!({ "sweep": sweep.name() }), change)
            .await
    }

    /// Stops firing a schedule; whether it was fired before.
    pub async fn pause_schedule(&self, name: &ScheduleName) -> Answer<bool> {
        let change = async {
            let is_new = self.backstop.schedules().pause(name).await?;
            Ok((is_new.then_some(1), is_new))
        };
        self.log
            .around_change("schedule pause", json!({ "schedule": name }), change)
            .await
    }

    /// Fires a paused schedule again; whether it was paused.
    pub async fn resume_schedule(&self, name: &ScheduleName) -> Answer<bool> {
        let change = async {
            let was_paused = self.backstop.schedules().resume(name).await?;
            Ok((was_paused.then_some(1), was_paused))
        };
        self.log
            .around_change("schedule resume", json!({ "schedule": name }), change)
            .await
    }

    /// Runs a schedule now, beside its instants.
    pub async fn trigger(&self, schedule: &Schedule) -> Result<Triggered, TriggerError> {
        let change = async { Ok((1, self.backstop.schedules().trigger(schedule).await?)) };
        self.log
            .around(
                "schedule trigger",
                json!({ "schedule": schedule.name }),
                change,
            )
            .await
    }

    /// Forgets a key of a stream; `None` if nobody has heard of it.
    pub async fn forget(&self, stream: &Stream, key: &StreamKey) -> Answer<Option<Forgotten>> {
        let change = async {
            let gone = stream.forget(key).await?;
            Ok((gone.is_some().then_some(1), gone))
        };
        self.log
            .around_change("stream forget", of_key(stream, key), change)
            .await
    }

    /// Forgets a key of a stream, and ignores its records until it is enabled.
    pub async fn disable(&self, stream: &Stream, key: &StreamKey) -> Answer<Forgotten> {
        let change = async {
            // A key that cannot be read can still be disabled.
            let was_disabled = stream.is_disabled(key).await.unwrap_or_default();
            let gone = stream.disable(key).await?;
            let is_same = was_disabled && gone.records == 0;
            Ok(((!is_same).then_some(1), gone))
        };
        self.log
            .around_change("stream disable", of_key(stream, key), change)
            .await
    }

    /// Takes the records of a disabled key again; whether it was disabled.
    pub async fn enable(&self, stream: &Stream, key: &StreamKey) -> Answer<bool> {
        let change = async {
            let was_disabled = stream.enable(key).await?;
            Ok((was_disabled.then_some(1), was_disabled))
        };
        self.log
            .around_change("stream enable", of_key(stream, key), change)
            .await
    }

    /// Sets a halted key going again; whether it was halted.
    pub async fn resume_key(
        &self,
        stream: &Stream,
        key: &StreamKey,
        resume: Resume,
    ) -> Answer<bool> {
        let what = match resume {
            Resume::Again => "stream resume",
            Resume::Past => "stream resume past",
        };
        let change = async {
            let was_halted = stream.resume(key, resume).await?;
            Ok((was_halted.then_some(1), was_halted))
        };
        self.log
            .around_change(what, of_key(stream, key), change)
            .await
    }
}

fn of_key(stream: &Stream, key: &StreamKey) -> Value {
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
pub fn found_in_short(search: &Search, redaction: &Redaction) -> Value {
    let mut said = in_short(&Selection::Matching(search.filter.clone()));
    if let Some(text) = &search.text {
        said["matching"]["text"] = json!(redaction.text(text.as_str()));
    }
    if let Some(worker) = &search.worker {
        said["matching"]["worker"] = json!(worker.as_str());
    }
    said
}

/// For the audit: of many ids the first ones, and how many more there are.
fn in_short(selection: &Selection) -> Value {
    match selection {
        Selection::Ids(ids) => shown(ids),
        Selection::Within(queue, ids) => {
            let mut said = shown(ids);
            said["queue"] = json!(queue);
            said
        }
        Selection::Matching(filter) => {
            let Filter {
                queue,
                kind,
                state,
                fingerprint,
            } = filter;
            let said = [
                ("queue", queue.as_ref().map(|queue| json!(queue))),
                ("kind", kind.as_ref().map(|kind| json!(kind))),
                ("state", state.map(|state| json!(state))),
                (
                    "fingerprint",
                    fingerprint.map(|fingerprint| json!(fingerprint)),
                ),
            ];
            let said = said
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)));
            json!({ "matching": Value::Object(said.collect()) })
        }
        Selection::All => json!({ "all": true }),
    }
}

fn shown(ids: &[JobId]) -> Value {
    if ids.len() > IDS_SHOWN {
        return json!({ "ids": ids[..IDS_SHOWN], "more": ids.len() - IDS_SHOWN });
    }
    json!({ "ids": ids })
}

/// What an action is called.
const fn word(action: &Action) -> &'static str {
    match action {
        Action::Retry => "retry",
        Action::Cancel => "cancel",
        Action::Delete => "delete",
        Action::Move(_) => "move",
    }
}

#[cfg(test)]
mod tests;
