//! What the end of a run means for its job.
//!
//! A handler says how its run ended; [`judge`] turns that into an [`Outcome`];
//! [`Outcome::transition`] says what a store has to change. Nothing else decides a retry.
//!
//! | ending | outcome | attempt spent |
//! |---|---|---|
//! | done | done | yes |
//! | failed, attempts and age left | retry after the policy's wait, or the service's own | yes |
//! | failed after it got further | the same, counted from this failure on | starts again at 1 |
//! | failed, nothing left | dead: `attempts_exhausted` or `max_age` | yes |
//! | failed for good | dead: `rejected` | yes |
//! | discarded, cancelled | cancelled | yes |
//! | snoozed, released | back to wait, as if it had not run; if it made up for a lost run, that is written down | no |
//! | its handler's program could not be started | released, after [`crate::limits::UNSTARTED_WAIT`] | no |
//! | worker vanished | back to its old place; the third time in 72 h dead: `crashed_worker` | no |
//! | worker vanished, and it was not this job's doing, as [`crate::blame`] says | back to its old place, as if it had not run | no |

use crate::breaker::CallOutcome;
use crate::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use crate::fingerprint::Fingerprint;
use crate::job::JobState;
use crate::lease::{Lease, LeasedRun, WorkerName};
use crate::limits::{DELAY_MAX, LOST_LEASES_MAX, LOST_WITHIN};
use crate::retry::{RandomDraw, RetryDecision, RetryPolicy};
use crate::time::{Span, Time};
use std::fmt;
use std::str::FromStr;

/// How a run ended, as the handler or the engine around it saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEnding {
    Done,
    /// It is not, because of an error.
    Failed {
        cause: FailureCause,
        /// What is known about it.
        error: ErrorReport,
        /// What the handler thinks should follow.
        advice: FailureAdvice,
        /// Whether the run got further than those before it: failures before it then no longer
        /// count.
        progressed: bool,
    },
    /// The handler wants to be called again later; nothing went wrong.
    Snoozed(Span),
    /// The run was called off before it ended; it does not count.
    Released(Span),
    /// The handler found that the work is no longer wanted.
    Cancelled(String),
}

impl RunEnding {
    /// What it says about the service behind the handler. A job that was refused for its own sake,
    /// or put off, says nothing.
    pub const fn sign(&self) -> CallOutcome {
        match self {
            Self::Done => CallOutcome::Success,
            Self::Failed {
                advice: FailureAdvice::Retry | FailureAdvice::RetryAfter(_),
                ..
            } => CallOutcome::Failure,
            Self::Failed {
                advice: FailureAdvice::Dead | FailureAdvice::Discard,
                ..
            }
            | Self::Snoozed(_)
            | Self::Released(_)
            | Self::Cancelled(_) => CallOutcome::Neutral,
        }
    }

    pub fn failed(error: ErrorReport) -> Self {
        Self::Failed {
            cause: FailureCause::Failed,
            error,
            advice: FailureAdvice::Retry,
            progressed: false,
        }
    }
}

/// What should follow a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureAdvice {
    /// Another try, as the policy says.
    Retry,
    /// Another try after this long: the service behind the handler asked for it.
    RetryAfter(Span),
    /// No other try can help.
    Dead,
    Discard,
}

/// Why a job ended as dead or cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// Its attempts are used up.
    AttemptsExhausted,
    MaxAge,
    /// Its handler said that no other try can help.
    Rejected,
    CrashedWorker,
    /// Its handler did not want to keep it.
    Discarded,
    /// Its handler found it no longer wanted.
    Unwanted,
    /// An operator called it off.
    Operator,
    /// It gave way to a newer job in a full queue.
    Overflow,
}

impl EndReason {
    pub const ALL: [Self; 8] = [
        Self::AttemptsExhausted,
        Self::MaxAge,
        Self::Rejected,
        Self::CrashedWorker,
        Self::Discarded,
        Self::Unwanted,
        Self::Operator,
        Self::Overflow,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::MaxAge => "max_age",
            Self::Rejected => "rejected",
            Self::CrashedWorker => "crashed_worker",
            Self::Discarded => "discarded",
            Self::Unwanted => "unwanted",
            Self::Operator => "operator",
            Self::Overflow => "overflow",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a reason")]
pub struct InvalidEndReason(String);

impl FromStr for EndReason {
    type Err = InvalidEndReason;

    fn from_str(text: &str) -> Result<Self, InvalidEndReason> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| InvalidEndReason(text.to_owned()))
    }
}

/// Whether a job that succeeded stays listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoneRetention {
    Listed,
    /// It is gone at once; only the counts remember it.
    Gone,
}

/// What is to become of a running job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(DoneRetention),
    /// It failed and is tried again.
    Retry {
        at: Time,
        history: FailureHistory,
        /// Whether its attempts are counted from this one on.
        anew: bool,
    },
    Dead {
        reason: EndReason,
        history: FailureHistory,
    },
    Cancelled {
        reason: EndReason,
        history: FailureHistory,
    },
    /// As if it had not run.
    Released {
        at: Time,
    },
    /// As if it had not run, except that the loss before it is made up for.
    Reran {
        at: Time,
        /// All its failures, the loss with the wait for this run.
        history: FailureHistory,
    },
    /// Its worker vanished; it runs again.
    Lost {
        at: Time,
        history: FailureHistory,
    },
}

impl Outcome {
    /// Whether a run that ended so failed; `None` if it is as if it had not run.
    pub const fn has_failed(&self) -> Option<bool> {
        match self {
            Self::Done(_) | Self::Cancelled { .. } => Some(false),
            Self::Retry { .. } | Self::Dead { .. } => Some(true),
            Self::Released { .. } | Self::Reran { .. } | Self::Lost { .. } => None,
        }
    }
}

/// One run to be ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// The right to end it.
    pub lease: Lease,
    pub outcome: Outcome,
}

/// Whether a power cut may take all of these back: their jobs are then held by workers that
/// vanished, as before, and are taken over once more. Such a settlement need not wait for the disk.
pub fn may_be_undone(settlements: &[Settlement]) -> bool {
    settlements
        .iter()
        .all(|settlement| matches!(settlement.outcome, Outcome::Lost { .. }))
}

/// Where a job that is ready again waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requeue {
    /// Behind all others of its level.
    Back,
    /// Where it stood when it was claimed: it has waited its turn already.
    Front,
}

/// What a store changes when it accepts an outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTransition<'a> {
    /// The state it is in from now on.
    pub state: JobState,
    /// Its new time to run, if it waits or is ready.
    pub run_at: Option<Time>,
    /// Where it waits, if it is ready.
    pub requeue: Requeue,
    /// What to add to its attempts.
    pub attempts: u32,
    /// Whether its attempts so far no longer count.
    pub anew: bool,
    /// What to add to its lost leases.
    pub lost_leases: u32,
    /// Its new history; `None` leaves it as it is.
    pub history: Option<&'a FailureHistory>,
    /// Why it ended, if it did not succeed.
    pub reason: Option<EndReason>,
    /// What its death has in common with others, if it is dead.
    pub fingerprint: Option<Fingerprint>,
    /// Whether nothing of it stays but the count.
    pub gone: bool,
}

impl Outcome {
    /// What a store changes when it accepts this.
    pub fn transition(&self, now: Time) -> JobTransition<'_> {
        let ended = |state, history, reason| JobTransition {
            state,
            run_at: None,
            requeue: Requeue::Back,
            attempts: 1,
            anew: false,
            lost_leases: 0,
            history,
            reason,
            fingerprint: None,
            gone: false,
        };
        let waits = |at: Time, later: JobState, place| JobTransition {
            state: if at > now { later } else { JobState::Ready },
            run_at: Some(at),
            requeue: place,
            ..ended(JobState::Ready, None, None)
        };
        match self {
            Self::Done(keep) => JobTransition {
                gone: *keep == DoneRetention::Gone,
                ..ended(JobState::Done, None, None)
            },
            Self::Dead { reason, history } => {
                // A worker that vanished is not a run that ended by itself.
                let attempts = u32::from(*reason != EndReason::CrashedWorker);
                JobTransition {
                    attempts,
                    lost_leases: 1 - attempts,
                    fingerprint: Some(Fingerprint::of_death(Some(*reason), history)),
                    ..ended(JobState::Dead, Some(history), Some(*reason))
                }
            }
            Self::Cancelled { reason, history } => {
                ended(JobState::Cancelled, Some(history), Some(*reason))
            }
            Self::Retry { at, history, anew } => JobTransition {
                history: Some(history),
                anew: *anew,
                ..waits(*at, JobState::Retrying, Requeue::Back)
            },
            Self::Released { at } => JobTransition {
                attempts: 0,
                ..waits(*at, JobState::Scheduled, Requeue::Front)
            },
            Self::Reran { at, history } => JobTransition {
                attempts: 0,
                history: Some(history),
                ..waits(*at, JobState::Scheduled, Requeue::Front)
            },
            Self::Lost { at, history } => JobTransition {
                attempts: 0,
                lost_leases: 1,
                history: Some(history),
                ..waits(*at, JobState::Retrying, Requeue::Front)
            },
        }
    }

    /// Tells outcomes apart when a settlement is repeated: the same tag is the same answer.
    pub const fn tag(&self) -> u8 {
        match self {
            Self::Done(_) => 2,
            Self::Retry { .. } => 3,
            Self::Dead { .. } => 4,
            Self::Cancelled { .. } => 5,
            Self::Released { .. } => 6,
            Self::Lost { .. } => 7,
            Self::Reran { .. } => 8,
        }
    }
}

/// The rules of the queue a job ran in.
#[derive(Clone, Copy, Debug)]
pub struct QueueRules<'a> {
    /// When to try again, unless the job has a policy of its own.
    pub retry: &'a RetryPolicy,
    /// Whether what is done stays listed.
    pub keep: DoneRetention,
}

/// What the end of a run means.
pub fn judge(
    run: &LeasedRun,
    ending: RunEnding,
    worker: &WorkerName,
    rules: QueueRules<'_>,
    now: Time,
    roll: RandomDraw,
) -> Outcome {
    match ending {
        RunEnding::Done => Outcome::Done(rules.keep),
        RunEnding::Snoozed(wait) | RunEnding::Released(wait) => {
            release_run(run, now.after(wait.min(DELAY_MAX)))
        }
        RunEnding::Cancelled(why) => {
            let error = ErrorReport {
                error_type: Some("Cancelled".to_owned()),
                ..ErrorReport::message(why)
            };
            let failure =
                FailureRecord::new(now, run.attempt(), FailureCause::Failed, worker, error);
            Outcome::Cancelled {
                reason: EndReason::Unwanted,
                history: run.history.with_failure(failure),
            }
        }
        RunEnding::Failed {
            cause,
            error,
            advice,
            progressed,
        } => {
            let failure = FailureRecord::new(now, run.attempt(), cause, worker, error);
            judge_failure(run, failure, advice, progressed, rules.retry, now, roll)
        }
    }
}

fn release_run(run: &LeasedRun, at: Time) -> Outcome {
    if run.lost_leases > 0 && run.history.is_rerun() {
        Outcome::Reran {
            at,
            history: run.history.clone(),
        }
    } else {
        Outcome::Released { at }
    }
}

fn judge_failure(
    run: &LeasedRun,
    mut failure: FailureRecord,
    advice: FailureAdvice,
    progressed: bool,
    queue_policy: &RetryPolicy,
    now: Time,
    roll: RandomDraw,
) -> Outcome {
    let own_policy = run.options.retry();
    let policy = own_policy.as_ref().unwrap_or(queue_policy);
    let dead = |reason, failure| Outcome::Dead {
        reason,
        history: run.history.with_failure(failure),
    };
    let failures = if progressed { 1 } else { run.attempt() };
    let wait = match (
        advice,
        policy.next(failures, now.since(run.inserted_at), roll),
    ) {
        (FailureAdvice::Discard, _) => {
            return Outcome::Cancelled {
                reason: EndReason::Discarded,
                history: run.history.with_failure(failure),
            };
        }
        (FailureAdvice::Dead, _) => return dead(EndReason::Rejected, failure),
        (_, RetryDecision::AttemptsExhausted) => {
            return dead(EndReason::AttemptsExhausted, failure);
        }
        (_, RetryDecision::TooOld) => return dead(EndReason::MaxAge, failure),
        (FailureAdvice::RetryAfter(wait), RetryDecision::RetryAfter(_)) => wait.min(DELAY_MAX),
        (FailureAdvice::Retry, RetryDecision::RetryAfter(wait)) => wait,
    };
    failure.retry_in = Some(wait);
    Outcome::Retry {
        at: now.after(wait),
        history: run.history.with_failure(failure),
        anew: progressed,
    }
}

/// What a vanished worker means for a job that is charged with it; whether it is, [`crate::blame`]
/// says. A crash does not spend an attempt; a job that keeps taking its workers with it is not
/// given another one.
pub fn judge_lost(run: &LeasedRun, vanished: &LostLease, now: Time) -> Outcome {
    let failure = FailureRecord::of_lost_lease(
        now,
        run.attempt(),
        &vanished.worker,
        vanished.lease.number,
        run.lease.job,
    );
    let history = run.history.with_failure(failure);
    if history.lost_since(now, LOST_WITHIN) >= LOST_LEASES_MAX {
        return Outcome::Dead {
            reason: EndReason::CrashedWorker,
            history,
        };
    }
    Outcome::Lost { at: now, history }
}

/// Who held a job before its lease expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostLease {
    /// The worker that stopped beating.
    pub worker: WorkerName,
    pub lease: Lease,
}

#[cfg(test)]
mod tests;
