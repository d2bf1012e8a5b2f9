//! What an operator may do to a job, and in which state.
//!
//! | action | scheduled, retrying | ready | running | done | dead, cancelled |
//! |---|---|---|---|---|---|
//! | retry | ready now | is ready | refused | refused | ready, attempts reset |
//! | cancel | cancelled | cancelled | cancelled, worker is told | refused | refused |
//! | delete | removed | removed | refused | removed | removed |
//! | move | refused | refused | refused | refused | ready in the other queue, attempts reset |
//!
//! Retry and move make a dead or cancelled job live again, and that takes a place in its queue. A
//! queue with `max_size` live jobs refuses it, whatever its overflow does with a push (see
//! [`crate::bounds`]). Jobs are done in the order of the ids or of arrival while there is room; the
//! others stay as they were.
//!
//! A caller that means only jobs in one state names it: a job that has left this state is refused.
//!
//! Ids are done in one call, and the result names each id that was refused. A selection by filter,
//! or of all jobs, is done page by page. One call scans the next matching jobs, in order of
//! arrival, applies the action or refuses it, and returns a cursor; a refused job is passed like
//! any other, so that it hides none behind it.
//! - A call may do less than its limit, even nothing, and still return a cursor. The end is where
//!   there is none.
//! - If the answer of a call is lost, the caller repeats it with the same cursor: jobs that are
//!   already done no longer match, or are removed.
//! - A job that arrives meanwhile comes last, and may be reached too. A job that begins to match
//!   behind the cursor is left to the next amendment.
//! - A cursor that the store did not make is misuse.
//!
//! An id means one job. In a store that identifies a job by queue and id, several queues may have a
//! job of one id. Nothing is then done to any of them until the caller names the queue.

use crate::fingerprint::Fingerprint;
use crate::job::{JobId, JobState};
use crate::name::{Kind, QueueName};
use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AmendAction {
    Retry,
    Cancel,
    /// Removes the job with its history.
    Delete,
    /// Moves the job, with its history, to another queue. The job keeps its id and is always in one
    /// of the two queues.
    Move(QueueName),
}

/// Why an action was refused for a job. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AmendRefusal {
    NotFound,
    /// The job runs; cancel it first.
    Running,
    /// The job succeeded; push a new job to do the work again.
    Done,
    Ready,
    Ended,
    /// Another live job holds the unique key.
    UniqueKeyHeld(JobId),
    /// The target queue already has `max_size` live jobs.
    Full,
    /// The job has not ended; only dead and cancelled jobs are moved.
    Alive,
    /// The job is not in the state that the caller named.
    OtherState(JobState),
    /// Several queues have a job of this id, and the caller named none.
    Ambiguous,
}

impl fmt::Display for AmendRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such job; it may have been pruned"),
            Self::Running => f.write_str("it is running; cancel it first"),
            Self::Done => f.write_str("it succeeded; push a new job to do the work again"),
            Self::Ready => f.write_str("it is ready already"),
            Self::Ended => f.write_str("it has ended already"),
            Self::Alive => f.write_str("it has not ended; only dead and cancelled jobs are moved"),
            Self::OtherState(state) => write!(f, "it is {state} by now"),
            Self::Ambiguous => f.write_str("several queues have a job of this id; name the queue"),
            Self::Full => {
                f.write_str("its queue is full; raise max_size, or try again when jobs have ended")
            }
            Self::UniqueKeyHeld(holder) => {
                write!(f, "job {holder} holds its unique key and is alive")
            }
        }
    }
}

impl AmendRefusal {
    /// Whether the refusal depends on other jobs, and not on the job's own state. Only such
    /// refusals are reported for jobs that a filter selected.
    pub const fn depends_on_other_jobs(self) -> bool {
        matches!(self, Self::UniqueKeyHeld(_) | Self::Full)
    }
}

/// Whether `action` on a job in `state` adds a live job to a queue, and so needs room there.
pub const fn needs_room(action: &AmendAction, state: JobState) -> bool {
    matches!(action, AmendAction::Retry | AmendAction::Move(_)) && state.is_final()
}

/// Whether `action` applies to a job in `state`.
pub const fn check_permitted(action: &AmendAction, state: JobState) -> Result<(), AmendRefusal> {
    match (action, state) {
        (AmendAction::Retry, JobState::Ready) => Err(AmendRefusal::Ready),
        (AmendAction::Retry | AmendAction::Delete, JobState::Running) => Err(AmendRefusal::Running),
        (AmendAction::Retry | AmendAction::Move(_), JobState::Done) => Err(AmendRefusal::Done),
        (AmendAction::Cancel, JobState::Done | JobState::Dead | JobState::Cancelled) => {
            Err(AmendRefusal::Ended)
        }
        (
            AmendAction::Move(_),
            JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Retrying,
        ) => Err(AmendRefusal::Alive),
        _ => Ok(()),
    }
}

/// Which jobs an amendment is for. A caller that means every job must say [`Self::All`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    Ids(Vec<JobId>),
    /// These jobs, looked up in this queue only.
    Within(QueueName, Vec<JobId>),
    Matching(Filter),
    All,
}

/// Selects jobs by their fields; a field that is `None` matches every job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    pub queue: Option<QueueName>,
    pub kind: Option<Kind>,
    pub state: Option<JobState>,
    /// Dead letters with this fingerprint; jobs in other states have none.
    pub fingerprint: Option<Fingerprint>,
}

impl Filter {
    pub fn fits(
        &self,
        queue: &QueueName,
        kind: &Kind,
        state: JobState,
        fingerprint: Option<Fingerprint>,
    ) -> bool {
        (self.fingerprint.is_none() || self.fingerprint == fingerprint)
            && self.queue.as_ref().is_none_or(|wanted| wanted == queue)
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
            && self.state.is_none_or(|wanted| wanted == state)
    }

    /// Whether no field is set. An amendment refuses such a filter.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_in_every_state_has_its_answer() {
        let answers = |action| JobState::ALL.map(|state| check_permitted(&action, state).err());
        let (running, done, ready, ended) = (
            Some(AmendRefusal::Running),
            Some(AmendRefusal::Done),
            Some(AmendRefusal::Ready),
            Some(AmendRefusal::Ended),
        );
        //                    scheduled ready  running  retrying done  dead   cancelled
        assert_eq!(
            answers(AmendAction::Retry),
            [None, ready, running, None, done, None, None]
        );
        assert_eq!(
            answers(AmendAction::Cancel),
            [None, None, None, None, ended, ended, ended]
        );
        assert_eq!(
            answers(AmendAction::Delete),
            [None, None, running, None, None, None, None]
        );
        let other = AmendAction::Move(QueueName::new("other").expect("a name"));
        let alive = Some(AmendRefusal::Alive);
        assert_eq!(
            answers(other),
            [alive, alive, alive, alive, done, None, None]
        );
    }

    #[test]
    fn only_what_brings_an_ended_job_to_life_needs_room() {
        let other = AmendAction::Move(QueueName::new("other").expect("a name"));
        for state in JobState::ALL {
            assert_eq!(
                needs_room(&AmendAction::Retry, state),
                state.is_final(),
                "{state}"
            );
            assert_eq!(needs_room(&other, state), state.is_final(), "{state}");
            assert!(
                !needs_room(&AmendAction::Cancel, state)
                    && !needs_room(&AmendAction::Delete, state)
            );
        }
    }

    #[test]
    fn a_final_state_is_left_only_by_an_operators_retry_and_done_never() {
        for state in JobState::ALL.into_iter().filter(|state| state.is_final()) {
            assert_eq!(
                check_permitted(&AmendAction::Retry, state).is_ok(),
                state != JobState::Done
            );
            assert!(check_permitted(&AmendAction::Cancel, state).is_err());
        }
    }
}
