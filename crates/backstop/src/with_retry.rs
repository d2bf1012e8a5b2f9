//! An operation of the caller's own, run here and now with a retry policy; what it gives up becomes
//! a dead letter.
//!
//! What follows a failure is decided by the same rules as for jobs ([`backstop_core::verdict`]).
//! The waits are in this process: work that must outlive it is pushed as a job.

pub(crate) mod burial;

use crate::client::Backstop;
use crate::draft::{BadDraft, Draft};
use crate::engine::execute::panicked;
use crate::handler::Fail;
use backstop_core::failure::{ErrorReport, History};
use backstop_core::port::Burial;
use backstop_core::terms::Terms;
use backstop_core::verdict::{Ending, Keep, Reason, Rules, judge};
use backstop_core::{JobId, Lease, Leased, NewJob, RetryPolicy, State, Time, WorkerName};
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
    draft: Draft,
    policy: Option<RetryPolicy>,
    named: Named,
}

/// Who made the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// This process, at random: nobody else has it.
    Here,
    /// The caller: it may stand for something the store knows.
    ByCaller,
}

/// What came of an operation.
#[derive(Debug, Clone)]
pub struct Retried<T> {
    /// The id its dead letter has, if it comes to that.
    pub id: JobId,
    /// How often it ran, without the runs that ended in a snooze.
    pub attempts: u32,
    /// Its value, or why there is none.
    pub outcome: Result<T, GivenUp>,
}

/// Why an operation is not tried again, and where its data went.
#[derive(Debug, Clone)]
pub struct GivenUp {
    /// Why it is not tried again.
    pub reason: Reason,
    /// The last error.
    pub error: ErrorReport,
    /// Its failures and the waits between them.
    pub history: History,
    /// Where its data went.
    pub went: Went,
}

/// Where the data of an operation went that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Went {
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
    /// Nowhere, as the operation wanted: it ended with [`Fail::discard`] or [`Fail::cancel`].
    Discarded,
}

impl Backstop {
    /// Runs an operation with a retry policy, here and now. If it is given up, `data` becomes a
    /// dead letter of `queue`, to be looked at, requeued and exported like any other; a worker that
    /// serves `queue` can then do the work.
    ///
    /// ```
    /// # use backstop::{Backstop, Fail, Went, core::port::GroupQuery};
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let detect = |_: u32| async { Err::<u32, _>(Fail::retry("the model does not answer")) };
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
    ///         assert_eq!(given_up.went, Went::Buried(retried.id));
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
            named: Named::Here,
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
    /// ([`Went::Known`]).
    pub fn id(mut self, id: &str) -> Self {
        self.draft = self.draft.id(id);
        self.named = Named::ByCaller;
        self
    }

    /// Runs it, as often as it takes and the policy allows; `operation` gets the number of the run,
    /// 1 for the first.
    ///
    /// It says what should follow a failure as handlers do: [`Fail::retry`], which any error
    /// becomes, [`Fail::retry_after`], [`Fail::dead`], [`Fail::discard`], [`Fail::cancel`];
    /// [`Fail::snooze`] waits without counting the run. A panic is a failure.
    ///
    /// That it is given up is part of the answer. An error means that nothing was run: the queue's
    /// name, the kind or the data could not be those of a dead letter.
    ///
    /// Whoever drops the future before it answers, in a run or while it waits for the next one,
    /// calls the work off: nothing is kept of it. Only once it is given up, its data finds its
    /// place even if nobody waits for the answer any more.
    pub async fn run<T, F, Fut>(self, mut operation: F) -> Result<Retried<T>, BadDraft>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, Fail>>,
    {
        let mut tries = self.start().await?;
        loop {
            let ending = match attempt(&mut operation, tries.run.attempt()).await {
                Ok(value) => return Ok(tries.succeeded(value)),
                Err(ending) => ending,
            };
            match tries.judge(ending).await {
                Step::Again { after } => tokio::time::sleep(after).await,
                Step::Dead(reason, at) => return Ok(tries.died(reason, at).await),
                Step::Dropped(reason) => return Ok(tries.given_up(reason, Went::Discarded)),
            }
        }
    }

    /// Checked before the first run: what cannot be a dead letter is not begun.
    async fn start(self) -> Result<Tries, BadDraft> {
        let own = self.policy.clone().filter(RetryPolicy::is_stored);
        let draft = own.into_iter().fold(self.draft, Draft::retry);
        let job = draft.build().await?;
        let now = self.backstop.current_time().await;
        let number = self.backstop.random().lease_number();
        let run = Leased {
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
            terms: Terms::encode(None, job.trace),
            history: History::default(),
        };
        let policy = self.policy.unwrap_or_default();
        Ok(Tries {
            backstop: self.backstop,
            job,
            run,
            policy,
            worker: burial::worker(),
            named: self.named,
        })
    }
}

/// One run; its panics are failures.
async fn attempt<T, Fut>(operation: &mut impl FnMut(u32) -> Fut, number: u32) -> Result<T, Ending>
where
    Fut: Future<Output = Result<T, Fail>>,
{
    // Around the call as well: an operation may panic before its first await.
    let run = AssertUnwindSafe(async { operation(number).await }).catch_unwind();
    match run.await {
        Ok(ended) => ended.map_err(Fail::into_ending),
        Err(panic) => Err(panicked("operation", panic.as_ref())),
    }
}

/// What follows a run that did not succeed.
enum Step {
    /// Another run, after this long.
    Again { after: std::time::Duration },
    /// None, since this time; its data is to be kept.
    Dead(Reason, Time),
    /// None, and nothing is to be kept.
    Dropped(Reason),
}

/// An operation that is being run. To the rules it is a job whose lease never ends.
struct Tries {
    backstop: Backstop,
    job: NewJob,
    run: Leased,
    policy: RetryPolicy,
    worker: WorkerName,
    named: Named,
}

impl Tries {
    /// Lets the rules decide, and remembers what a store would.
    async fn judge(&mut self, ending: Ending) -> Step {
        let now = self.backstop.current_time_soon().await;
        let roll = self.backstop.random().roll();
        let rules = Rules {
            retry: &self.policy,
            keep: Keep::Gone,
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
            (State::Dead, Some(reason)) => Step::Dead(reason, now),
            (_, Some(reason)) => Step::Dropped(reason),
            (_, None) => {
                self.run.run_at = transition.run_at.unwrap_or(now);
                Step::Again {
                    after: self.run.run_at.since(now).into(),
                }
            }
        }
    }

    fn succeeded<T>(self, value: T) -> Retried<T> {
        Retried {
            id: self.job.id,
            attempts: self.run.attempt(),
            outcome: Ok(value),
        }
    }

    async fn died<T>(self, reason: Reason, at: Time) -> Retried<T> {
        let went = burial::keep(&self.backstop, self.burial(reason, at), self.named).await;
        self.given_up(reason, went)
    }

    fn burial(&self, reason: Reason, at: Time) -> Burial {
        Burial {
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

    fn given_up<T>(self, reason: Reason, went: Went) -> Retried<T> {
        let history = self.run.history;
        let error = history
            .failures()
            .pop()
            .map(|failure| failure.error)
            .unwrap_or_default();
        let given_up = GivenUp {
            reason,
            error,
            history,
            went,
        };
        Retried {
            id: self.job.id,
            attempts: self.run.attempts_before,
            outcome: Err(given_up),
        }
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "given up ({}): {}; its data {}",
            self.reason, self.error.message, self.went
        )
    }
}

impl std::error::Error for GivenUp {}

impl fmt::Display for Went {
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
