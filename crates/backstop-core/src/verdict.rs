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

use crate::breaker::Sign;
use crate::failure::{Cause, ErrorReport, Failure, History};
use crate::fingerprint::Fingerprint;
use crate::job::State;
use crate::lease::{Lease, Leased, WorkerName};
use crate::limits::{DELAY_MAX, LOST_LEASES_MAX, LOST_WITHIN};
use crate::retry::{Next, RetryPolicy, Roll};
use crate::time::{Span, Time};
use std::fmt;
use std::str::FromStr;

/// How a run ended, as the handler or the engine around it saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The work is done.
    Done,
    /// It is not, because of an error.
    Failed {
        /// What kind of failure.
        cause: Cause,
        /// What is known about it.
        error: ErrorReport,
        /// What the handler thinks should follow.
        advice: Advice,
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

impl Ending {
    /// What it says about the service behind the handler. A job that was refused for its own sake,
    /// or put off, says nothing.
    pub const fn sign(&self) -> Sign {
        match self {
            Self::Done => Sign::Success,
            Self::Failed {
                advice: Advice::Retry | Advice::RetryAfter(_),
                ..
            } => Sign::Failure,
            Self::Failed {
                advice: Advice::Dead | Advice::Discard,
                ..
            }
            | Self::Snoozed(_)
            | Self::Released(_)
            | Self::Cancelled(_) => Sign::Neutral,
        }
    }

    /// An ordinary failure.
    pub fn failed(error: ErrorReport) -> Self {
        Self::Failed {
            cause: Cause::Failed,
            error,
            advice: Advice::Retry,
            progressed: false,
        }
    }
}

/// What should follow a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Another try, as the policy says.
    Retry,
    /// Another try after this long: the service behind the handler asked for it.
    RetryAfter(Span),
    /// No other try can help.
    Dead,
    /// Not worth keeping.
    Discard,
}

/// Why a job ended as dead or cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its attempts are used up.
    AttemptsExhausted,
    /// It grew too old.
    MaxAge,
    /// Its handler said that no other try can help.
    Rejected,
    /// Its workers keep vanishing.
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

impl Reason {
    /// All of them.
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

    /// Its word.
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a reason")]
pub struct NotAReason(String);

impl FromStr for Reason {
    type Err = NotAReason;

    fn from_str(text: &str) -> Result<Self, NotAReason> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| NotAReason(text.to_owned()))
    }
}

/// Whether a job that succeeded stays listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Until retention removes it.
    Listed,
    /// It is gone at once; only the counts remember it.
    Gone,
}

/// What is to become of a running job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It succeeded.
    Done(Keep),
    /// It failed and is tried again.
    Retry {
        /// Not before this.
        at: Time,
        /// All its failures.
        history: History,
        /// Whether its attempts are counted from this one on.
        anew: bool,
    },
    /// It failed for good.
    Dead {
        /// Why.
        reason: Reason,
        /// All its failures.
        history: History,
    },
    /// It was called off.
    Cancelled {
        /// Why.
        reason: Reason,
        /// All its failures.
        history: History,
    },
    /// As if it had not run.
    Released {
        /// Not before this.
        at: Time,
    },
    /// As if it had not run, except that the loss before it is made up for.
    Reran {
        /// Not before this.
        at: Time,
        /// All its failures, the loss with the wait for this run.
        history: History,
    },
    /// Its worker vanished; it runs again.
    Lost {
        /// Not before this.
        at: Time,
        /// All its failures.
        history: History,
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
    /// How.
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
pub enum Place {
    /// Behind all others of its level.
    Tail,
    /// Where it stood when it was claimed: it has waited its turn already.
    Former,
}

/// What a store changes when it accepts an outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition<'a> {
    /// The state it is in from now on.
    pub state: State,
    /// Its new time to run, if it waits or is ready.
    pub run_at: Option<Time>,
    /// Where it waits, if it is ready.
    pub place: Place,
    /// What to add to its attempts.
    pub attempts: u32,
    /// Whether its attempts so far no longer count.
    pub anew: bool,
    /// What to add to its lost leases.
    pub lost_leases: u32,
    /// Its new history; `None` leaves it as it is.
    pub history: Option<&'a History>,
    /// Why it ended, if it did not succeed.
    pub reason: Option<Reason>,
    /// What its death has in common with others, if it is dead.
    pub fingerprint: Option<Fingerprint>,
    /// Whether nothing of it stays but the count.
    pub gone: bool,
}

impl Outcome {
    /// What a store changes when it accepts this.
    pub fn transition(&self, now: Time) -> Transition<'_> {
        let ended = |state, history, reason| Transition {
            state,
            run_at: None,
            place: Place::Tail,
            attempts: 1,
            anew: false,
            lost_leases: 0,
            history,
            reason,
            fingerprint: None,
            gone: false,
        };
        let waits = |at: Time, later: State, place| Transition {
            state: if at > now { later } else { State::Ready },
            run_at: Some(at),
            place,
            ..ended(State::Ready, None, None)
        };
        match self {
            Self::Done(keep) => Transition {
                gone: *keep == Keep::Gone,
                ..ended(State::Done, None, None)
            },
            Self::Dead { reason, history } => {
                // A worker that vanished is not a run that ended by itself.
                let attempts = u32::from(*reason != Reason::CrashedWorker);
                Transition {
                    attempts,
                    lost_leases: 1 - attempts,
                    fingerprint: Some(Fingerprint::of_death(Some(*reason), history)),
                    ..ended(State::Dead, Some(history), Some(*reason))
                }
            }
            Self::Cancelled { reason, history } => {
                ended(State::Cancelled, Some(history), Some(*reason))
            }
            Self::Retry { at, history, anew } => Transition {
                history: Some(history),
                anew: *anew,
                ..waits(*at, State::Retrying, Place::Tail)
            },
            Self::Released { at } => Transition {
                attempts: 0,
                ..waits(*at, State::Scheduled, Place::Former)
            },
            Self::Reran { at, history } => Transition {
                attempts: 0,
                history: Some(history),
                ..waits(*at, State::Scheduled, Place::Former)
            },
            Self::Lost { at, history } => Transition {
                attempts: 0,
                lost_leases: 1,
                history: Some(history),
                ..waits(*at, State::Retrying, Place::Former)
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
pub struct Rules<'a> {
    /// When to try again, unless the job has a policy of its own.
    pub retry: &'a RetryPolicy,
    /// Whether what is done stays listed.
    pub keep: Keep,
}

/// What the end of a run means.
pub fn judge(
    run: &Leased,
    ending: Ending,
    worker: &WorkerName,
    rules: Rules<'_>,
    now: Time,
    roll: Roll,
) -> Outcome {
    match ending {
        Ending::Done => Outcome::Done(rules.keep),
        Ending::Snoozed(wait) | Ending::Released(wait) => {
            put_back(run, now.after(wait.min(DELAY_MAX)))
        }
        Ending::Cancelled(why) => {
            let error = ErrorReport {
                error_type: Some("Cancelled".to_owned()),
                ..ErrorReport::message(why)
            };
            let failure = Failure::new(now, run.attempt(), Cause::Failed, worker, error);
            Outcome::Cancelled {
                reason: Reason::Unwanted,
                history: run.history.with(failure),
            }
        }
        Ending::Failed {
            cause,
            error,
            advice,
            progressed,
        } => {
            let failure = Failure::new(now, run.attempt(), cause, worker, error);
            judge_failure(run, failure, advice, progressed, rules.retry, now, roll)
        }
    }
}

fn put_back(run: &Leased, at: Time) -> Outcome {
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
    run: &Leased,
    mut failure: Failure,
    advice: Advice,
    progressed: bool,
    queue_policy: &RetryPolicy,
    now: Time,
    roll: Roll,
) -> Outcome {
    let own_policy = run.terms.retry();
    let policy = own_policy.as_ref().unwrap_or(queue_policy);
    let dead = |reason, failure| Outcome::Dead {
        reason,
        history: run.history.with(failure),
    };
    let failures = if progressed { 1 } else { run.attempt() };
    let wait = match (
        advice,
        policy.next(failures, now.since(run.inserted_at), roll),
    ) {
        (Advice::Discard, _) => {
            return Outcome::Cancelled {
                reason: Reason::Discarded,
                history: run.history.with(failure),
            };
        }
        (Advice::Dead, _) => return dead(Reason::Rejected, failure),
        (_, Next::AttemptsExhausted) => return dead(Reason::AttemptsExhausted, failure),
        (_, Next::TooOld) => return dead(Reason::MaxAge, failure),
        (Advice::RetryAfter(wait), Next::In(_)) => wait.min(DELAY_MAX),
        (Advice::Retry, Next::In(wait)) => wait,
    };
    failure.retry_in = Some(wait);
    Outcome::Retry {
        at: now.after(wait),
        history: run.history.with(failure),
        anew: progressed,
    }
}

/// What a vanished worker means for a job that is charged with it; whether it is, [`crate::blame`]
/// says. A crash does not spend an attempt; a job that keeps taking its workers with it is not
/// given another one.
pub fn judge_lost(run: &Leased, vanished: &Vanished, now: Time) -> Outcome {
    let failure = Failure::lost(
        now,
        run.attempt(),
        &vanished.worker,
        vanished.lease.number,
        run.lease.job,
    );
    let history = run.history.with(failure);
    if history.lost_since(now, LOST_WITHIN) >= LOST_LEASES_MAX {
        return Outcome::Dead {
            reason: Reason::CrashedWorker,
            history,
        };
    }
    Outcome::Lost { at: now, history }
}

/// Who held a job before its lease expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vanished {
    /// The worker that stopped beating.
    pub worker: WorkerName,
    /// The lease it lost.
    pub lease: Lease,
}

#[cfg(test)]
mod tests;
