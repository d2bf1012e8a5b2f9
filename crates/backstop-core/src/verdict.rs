//! Decides what the end of a run means for its job.
//!
//! A handler reports how its run ended; [`judge`] turns that into an [`Outcome`];
//! [`Outcome::transition`] says what a store has to change. Nothing else decides a retry.
//!
//! | ending | outcome | attempt spent |
//! |---|---|---|
//! | done | done | yes |
//! | failed, attempts and age left | retry after the policy's wait, or the service's own | yes |
//! | failed after progress | the same, counted from this failure on | starts again at 1 |
//! | failed, nothing left | dead: `attempts_exhausted` or `max_age` | yes |
//! | failed for good | dead: `rejected` | yes |
//! | discarded, cancelled | cancelled | yes |
//! | snoozed, released | waits again, as if it had not run | no |
//! | the same, and the run followed a lost lease | the same; the history records the wait | no |
//! | handler program cannot start | released for [`crate::limits::UNSTARTED_WAIT`] | no |
//! | worker vanished | back to its old place; the third time in 72 h dead: `crashed_worker` | no |
//! | worker vanished, job not charged ([`crate::blame`]) | released at once | no |

use crate::breaker::CallOutcome;
use crate::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use crate::fingerprint::Fingerprint;
use crate::job::JobState;
use crate::lease::{Lease, LeasedRun, WorkerName};
use crate::limits::{DELAY_MAX, LOST_LEASES_UNTIL_DEAD, LOST_WITHIN};
use crate::retry::{RandomDraw, RetryDecision, RetryPolicy};
use crate::time::{Span, Time};
use std::fmt;
use std::str::FromStr;

/// How a run ended, as the handler or the engine reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEnding {
    Done,
    /// The run ended with an error.
    Failed {
        cause: FailureCause,
        /// The error, as far as it is known.
        error: ErrorReport,
        /// What the handler asks for after the failure.
        advice: FailureAdvice,
        /// Whether the run got further than earlier ones. Earlier failures then no longer count.
        progressed: bool,
    },
    /// The handler asks to be called again later; nothing went wrong.
    Snoozed(Span),
    /// The run was stopped before it ended; it does not count.
    Released(Span),
    /// The handler found that the work is no longer wanted.
    Cancelled(String),
}

impl RunEnding {
    /// What the breaker learns about the service behind the handler: a success from `Done`, a
    /// failure from a failure that is to be retried, and nothing from any other ending, because its
    /// cause is the job itself or nothing went wrong.
    pub const fn judge_service(&self) -> CallOutcome {
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

/// What the handler asks for after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureAdvice {
    /// Retry as the retry policy says.
    Retry,
    /// Retry after this wait, which the service behind the handler asked for.
    RetryAfter(Span),
    /// Make the job dead: a retry cannot help.
    Dead,
    Discard,
}

/// Why a job ended as dead or cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// Its attempts are used up.
    AttemptsExhausted,
    MaxAge,
    /// The handler said that a retry cannot help.
    Rejected,
    CrashedWorker,
    /// The handler discarded the job after a failure.
    Discarded,
    /// The handler found that the work is no longer wanted.
    Unwanted,
    /// An operator cancelled the job.
    Operator,
    /// A newer job pushed it out of a full queue.
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

/// Text that is not a reason.
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

/// Whether the store keeps a job that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoneRetention {
    Listed,
    /// The store removes the job at once; only the counts include it.
    Gone,
}

/// What a run's end makes of its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(DoneRetention),
    /// The run failed and the job is retried.
    Retry {
        at: Time,
        history: FailureHistory,
        /// Whether its attempts are counted from this failure on.
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
    /// The job waits again, as if it had not run.
    Released {
        at: Time,
    },
    /// Like `Released`, for a run that followed a lost lease. The history is stored too: it records
    /// how long the job waited after the loss, so that no later run counts this wait again.
    Reran {
        at: Time,
        /// All failures. The last one is the lost lease, with the wait until the next run.
        history: FailureHistory,
    },
    /// The worker vanished and the job is charged with a lost lease; it is due again at `at`.
    Lost {
        at: Time,
        history: FailureHistory,
    },
}

impl Outcome {
    /// Whether the run counts as failed: true if the job is retried or dead, false if it is done or
    /// cancelled (even after an error), and `None` if the job waits as if it had not run.
    pub const fn has_failed(&self) -> Option<bool> {
        match self {
            Self::Done(_) | Self::Cancelled { .. } => Some(false),
            Self::Retry { .. } | Self::Dead { .. } => Some(true),
            Self::Released { .. } | Self::Reran { .. } | Self::Lost { .. } => None,
        }
    }
}

/// The end of one run, to be written to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settlement {
    pub lease: Lease,
    pub outcome: Outcome,
}

/// Whether losing this commit in a power cut does no harm: the leases expire again and the jobs are
/// taken over once more. The store then need not wait for the disk.
pub fn can_skip_fsync(settlements: &[Settlement]) -> bool {
    settlements
        .iter()
        .all(|settlement| matches!(settlement.outcome, Outcome::Lost { .. }))
}

/// The place in the queue of a job that is ready again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requeue {
    /// Behind all other jobs of its priority level.
    End,
    /// Its place before the claim, as it has waited its turn already.
    OldPlace,
}

/// The change that a store writes for an outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTransition<'a> {
    /// The new state of the job.
    pub state: JobState,
    /// When the job is due, if it waits or is ready.
    pub run_at: Option<Time>,
    /// Its place in the queue, if it is ready.
    pub requeue: Requeue,
    /// The number to add to its attempts.
    pub attempts: u32,
    /// Whether its earlier attempts no longer count.
    pub anew: bool,
    /// The number to add to its lost leases.
    pub lost_leases: u32,
    /// The new history; `None` leaves it as it is.
    pub history: Option<&'a FailureHistory>,
    /// Why the job ended, if it did not succeed.
    pub reason: Option<EndReason>,
    /// The fingerprint of its death, if the job is dead.
    pub fingerprint: Option<Fingerprint>,
    /// Whether the store removes the job at once and keeps only the count.
    pub gone: bool,
}

impl Outcome {
    /// The change that a store writes for this outcome.
    pub fn transition(&self, now: Time) -> JobTransition<'_> {
        let ended = |state, history, reason| JobTransition {
            state,
            run_at: None,
            requeue: Requeue::End,
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
                // A run whose worker vanished did not end by itself, so it is no attempt.
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
                ..waits(*at, JobState::Retrying, Requeue::End)
            },
            Self::Released { at } => JobTransition {
                attempts: 0,
                ..waits(*at, JobState::Scheduled, Requeue::OldPlace)
            },
            Self::Reran { at, history } => JobTransition {
                attempts: 0,
                history: Some(history),
                ..waits(*at, JobState::Scheduled, Requeue::OldPlace)
            },
            Self::Lost { at, history } => JobTransition {
                attempts: 0,
                lost_leases: 1,
                history: Some(history),
                ..waits(*at, JobState::Retrying, Requeue::OldPlace)
            },
        }
    }

    /// A number per kind of outcome. A store recognises a repeated settlement by it.
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

/// The settings of the queue that a job ran in.
#[derive(Clone, Copy, Debug)]
pub struct QueueRules<'a> {
    /// The retry policy for jobs without one of their own.
    pub retry: &'a RetryPolicy,
    /// Whether the store keeps jobs that are done.
    pub keep: DoneRetention,
}

/// Decides the outcome of a run from its ending.
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

/// Decides the outcome of a job that is charged with a vanished worker; [`crate::blame`] decides
/// whether it is charged. A lost lease does not spend an attempt, but a job that keeps killing its
/// workers becomes dead.
pub fn judge_lost(run: &LeasedRun, vanished: &LostLease, now: Time) -> Outcome {
    let failure = FailureRecord::of_lost_lease(
        now,
        run.attempt(),
        &vanished.worker,
        vanished.lease.number,
        run.lease.job,
    );
    let history = run.history.with_failure(failure);
    if history.lost_since(now, LOST_WITHIN) >= LOST_LEASES_UNTIL_DEAD {
        return Outcome::Dead {
            reason: EndReason::CrashedWorker,
            history,
        };
    }
    Outcome::Lost { at: now, history }
}

/// The worker and lease of a job before the lease expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostLease {
    /// The worker whose heartbeats stopped.
    pub worker: WorkerName,
    pub lease: Lease,
}

#[cfg(test)]
mod tests;
