//! An operation of the caller's own, run here and now with a retry policy; what it gives up becomes
//! a dead letter.
//!
//! What follows a failure is decided by the same rules as for jobs ([`backstop_core::verdict`]).
//! The waits are in this process: work that must outlive it is pushed as a job.

pub(crate) mod dead_letter;

use crate::client::Backstop;
use crate::draft::{DraftError, JobDraft};
use crate::engine::execute::panic_ending;
use crate::handler::RunError;
use backstop_core::failure::{ErrorReport, FailureHistory};
use backstop_core::job_options::JobOptions;
use backstop_core::port::NewDeadLetter;
use backstop_core::verdict::{DoneRetention, EndReason, QueueRules, RunEnding, judge};
use backstop_core::{JobId, JobState, Lease, LeasedRun, NewJob, RetryPolicy, Time, WorkerName};
use futures_util::FutureExt;
use serde::Serialize;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;

/// An operation being set up; made by [`Backstop::with_retry`].
#[must_use = "nothing runs until `.run(…)`"]
#[derive(Debug, Clone)]
pub struct WithRetry {
    backstop: Backstop,
    draft: JobDraft,
    policy: Option<RetryPolicy>,
    id_source: IdSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdSource {
    /// This process, at random: nobody else has it.
    Generated,
    /// The caller: it may stand for something the store knows.
    ByCaller,
}

/// What came of an operation.
#[derive(Debug, Clone)]
pub struct RetryResult<T> {
    /// The id its dead letter has, if it comes to that.
    pub id: JobId,
    /// How often it ran, without the runs that ended in a snooze.
    pub attempts: u32,
    /// Its value, or why there is none.
    pub outcome: Result<T, GivenUpOperation>,
}

/// Why an operation is not tried again, and where its data went.
#[derive(Debug, Clone)]
pub struct GivenUpOperation {
    /// Why it is not tried again.
    pub reason: EndReason,
    pub error: ErrorReport,
    /// Its failures and the waits between them.
    pub history: FailureHistory,
    pub data: GivenUpData,
}

/// Where the data of an operation went that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUpData {
    /// To the dead letters of its queue, in the store.
    Buried(JobId),
    /// Nowhere new: the store has a job of the id that the caller gave, in whatever state, which
    /// stays as it is.
    Known(JobId),
    /// To this file on the local disk, fsynced: the store did not answer, or its dead letters are
    /// full. From there it is taken in by itself, and is then in another file or in none.
    Spilled(PathBuf),
    /// Nowhere: the disk failed as well, or the spill directory is full. The whole record is in the
    /// log, at level error, in a line that begins with `CRITICAL DATA LOSS`.
    Lost,
    /// Nowhere, as the operation wanted: it ended with [`RunError::discard`] or
    /// [`RunError::cancel`].
    Discarded,
}

impl Backstop {
    /// Runs an operation with a retry policy, here and now. If it is given up, `data` becomes a
    /// dead letter of `queue`, to be looked at, requeued and exported like any other; a worker that
    /// serves `queue` can then do the work.
    ///
    /// ```
    /// # use backstop::{Backstop, RunError, GivenUpData, core::port::ListGroupsRequest};
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let detect = |_: u32| async { Err::<u32, _>(RunError::retry("the model does not answer")) };
    /// let backstop = Backstop::open("memory:").await?;
    /// let image = json!({ "camera": "front door", "file": "2026-01-01.jpg" });
    /// let retried = backstop
    ///     .with_retry("detection_queue", &image)
    ///     .kind("Detect")
    ///     .run(|attempt| detect(attempt))
    ///     .await?;
    /// match retried.outcome {
    ///     Ok(found) => println!("{found} persons after {} attempts", retried.attempts),
    ///     Err(given_up) => {
    ///         assert_eq!(given_up.error.message, "the model does not answer");
    ///         assert_eq!(given_up.data, GivenUpData::Buried(retried.id));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_retry<D: Serialize + ?Sized>(&self, queue: &str, data: &D) -> WithRetry {
        let draft = self.draft(queue).json(&data);
        WithRetry {
            backstop: self.clone(),
            draft,
            policy: None,
            id_source: IdSource::Generated,
        }
    }
}

impl WithRetry {
    /// Its dead letter is of this kind: names the handler that can do the work once it is requeued.
    pub fn kind(mut self, kind: &str) -> Self {
        self.draft = self.draft.kind(kind);
        self
    }

    /// Tried again as this policy says; the usual one gives three runs, after 1 s and 2 s. A
    /// requeued dead letter has it, too, unless it is code.
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Its dead letter has this id: a UUID, or any name that stands for the same work every time.
    /// There is one job of an id: if the store knows it already, nothing is added
    /// ([`GivenUpData::Known`]).
    pub fn id(mut self, id: &str) -> Self {
        self.draft = self.draft.id(id);
        self.id_source = IdSource::ByCaller;
        self
    }

    /// Runs it, as often as it takes and the policy allows; `operation` gets the number of the run,
    /// 1 for the first.
    ///
    /// It says what should follow a failure as handlers do: [`RunError::retry`], which any error
    /// becomes, [`RunError::retry_after`], [`RunError::dead`], [`RunError::discard`],
    /// [`RunError::cancel`]; [`RunError::snooze`] waits without counting the run. A panic is a
    /// failure.
    ///
    /// That it is given up is part of the answer. An error means that nothing was run: the queue's
    /// name, the kind or the data could not be those of a dead letter.
    ///
    /// Whoever drops the future before it answers, in a run or while it waits for the next one,
    /// calls the work off: nothing is kept of it. Only once it is given up, its data finds its
    /// place even if nobody waits for the answer any more.
    pub async fn run<T, F, Fut>(self, mut operation: F) -> Result<RetryResult<T>, DraftError>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, RunError>>,
    {
        let mut tries = self.start().await?;
        loop {
            let ending = match attempt(&mut operation, tries.run.attempt()).await {
                Ok(value) => return Ok(tries.into_success(value)),
                Err(ending) => ending,
            };
            match tries.decide(ending).await {
                RetryStep::Retry { after } => tokio::time::sleep(after).await,
                RetryStep::Dead(reason, at) => return Ok(tries.give_up(reason, at).await),
                RetryStep::Dropped(reason) => {
                    return Ok(tries.into_given_up(reason, GivenUpData::Discarded));
                }
            }
        }
    }

    /// Checked before the first run: what cannot be a dead letter is not begun.
    async fn start(self) -> Result<RetriedOperation, DraftError> {
        let own = self.policy.clone().filter(RetryPolicy::is_stored);
        let draft = own.into_iter().fold(self.draft, JobDraft::retry);
        let job = draft.build().await?;
        let now = self.backstop.current_time().await;
        let number = self.backstop.random().lease_number();
        let run = LeasedRun {
            lease: Lease {
                queue: job.queue.clone(),
                job: job.id,
                number,
            },
            kind: job.kind.clone(),
            payload: job.payload.clone(),
            priority: job.priority,
            attempts_before: 0,
            lost_leases: 0,
            inserted_at: now,
            run_at: now,
            // The policy at hand decides; the stored one may be none.
            options: JobOptions::encode(None, job.trace),
            history: FailureHistory::default(),
        };
        let policy = self.policy.unwrap_or_default();
        Ok(RetriedOperation {
            backstop: self.backstop,
            job,
            run,
            policy,
            worker: dead_letter::worker(),
            id_source: self.id_source,
        })
    }
}

/// One run; its panics are failures.
async fn attempt<T, Fut>(
    operation: &mut impl FnMut(u32) -> Fut,
    number: u32,
) -> Result<T, RunEnding>
where
    Fut: Future<Output = Result<T, RunError>>,
{
    // Around the call as well: an operation may panic before its first await.
    let run = AssertUnwindSafe(async { operation(number).await }).catch_unwind();
    match run.await {
        Ok(ended) => ended.map_err(RunError::into_ending),
        Err(panic) => Err(panic_ending("operation", panic.as_ref())),
    }
}

/// What follows a run that did not succeed.
enum RetryStep {
    /// Another run, after this long.
    Retry { after: std::time::Duration },
    /// None, since this time; its data is to be kept.
    Dead(EndReason, Time),
    /// None, and nothing is to be kept.
    Dropped(EndReason),
}

/// An operation that is being run. To the rules it is a job whose lease never ends.
struct RetriedOperation {
    backstop: Backstop,
    job: NewJob,
    run: LeasedRun,
    policy: RetryPolicy,
    worker: WorkerName,
    id_source: IdSource,
}

impl RetriedOperation {
    /// Lets the rules decide, and remembers what a store would.
    async fn decide(&mut self, ending: RunEnding) -> RetryStep {
        let now = self.backstop.current_time().await;
        let roll = self.backstop.random().roll();
        let rules = QueueRules {
            retry: &self.policy,
            keep: DoneRetention::Gone,
        };
        let outcome = judge(&self.run, ending, &self.worker, rules, now, roll);
        let transition = outcome.transition(now);
        let before = if transition.anew {
            0
        } else {
            self.run.attempts_before
        };
        self.run.attempts_before = before.saturating_add(transition.attempts);
        if let Some(history) = transition.history {
            self.run.history = history.clone();
        }
        match (transition.state, transition.reason) {
            (JobState::Dead, Some(reason)) => RetryStep::Dead(reason, now),
            (_, Some(reason)) => RetryStep::Dropped(reason),
            (_, None) => {
                self.run.run_at = transition.run_at.unwrap_or(now);
                RetryStep::Retry {
                    after: self.run.run_at.since(now).into(),
                }
            }
        }
    }

    fn into_success<T>(self, value: T) -> RetryResult<T> {
        RetryResult {
            id: self.job.id,
            attempts: self.run.attempt(),
            outcome: Ok(value),
        }
    }

    async fn give_up<T>(self, reason: EndReason, at: Time) -> RetryResult<T> {
        let went = dead_letter::keep(
            &self.backstop,
            self.new_dead_letter(reason, at),
            self.id_source,
        )
        .await;
        self.into_given_up(reason, went)
    }

    fn new_dead_letter(&self, reason: EndReason, at: Time) -> NewDeadLetter {
        NewDeadLetter {
            job: NewJob {
                run_at: Some(self.run.run_at),
                ..self.job.clone()
            },
            attempts: self.run.attempts_before,
            lost_leases: 0,
            requeues: 0,
            inserted_at: self.run.inserted_at,
            finished_at: at,
            reason,
            history: self.run.history.clone(),
        }
    }

    fn into_given_up<T>(self, reason: EndReason, went: GivenUpData) -> RetryResult<T> {
        let history = self.run.history;
        let error = history
            .failures()
            .pop()
            .map(|failure| failure.error)
            .unwrap_or_default();
        let given_up = GivenUpOperation {
            reason,
            error,
            history,
            data: went,
        };
        RetryResult {
            id: self.job.id,
            attempts: self.run.attempts_before,
            outcome: Err(given_up),
        }
    }
}

impl fmt::Display for GivenUpOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "given up ({}): {}; its data {}",
            self.reason, self.error.message, self.data
        )
    }
}

impl std::error::Error for GivenUpOperation {}

impl fmt::Display for GivenUpData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buried(id) => write!(f, "is dead letter {id}"),
            Self::Known(id) => write!(f, "belongs to job {id}, which the store knows already"),
            Self::Spilled(path) => write!(f, "waits in {} for the store", path.display()),
            Self::Lost => f.write_str("is in the log only"),
            Self::Discarded => f.write_str("was not to be kept"),
        }
    }
}
