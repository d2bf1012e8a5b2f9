//! What an operator may do to a job, and in which state.
//!
//! | action | scheduled, retrying | ready | running | done | dead, cancelled |
//! |---|---|---|---|---|---|
//! | retry | ready now | is ready | refused | refused | ready, with all attempts again |
//! | cancel | cancelled | cancelled | cancelled, the worker is told | refused | refused |
//! | delete | gone | gone | refused | gone | gone |
//! | move | refused | refused | refused | refused | ready in the other queue, with all attempts again |
//!
//! Retry and move bring a dead or cancelled job to life, and that takes a place in its queue. A
//! queue with `max_size` live jobs refuses it, whatever it does with a push (see
//! [`crate::bounds`]): what has room goes, in the order of the ids or of arrival, the others stay
//! what they were.
//!
//! Who means only jobs in one state says so: a job that has left it is refused as elsewhere.
//!
//! Ids are done in one call, and each is answered for. A selection by filter, or of all jobs, is
//! paged through like a list. One call looks at the next jobs that fit, in order of arrival,
//! applies the action or refuses it, and answers where to go on; a job that is refused is passed
//! like any other, so that it hides none behind it.
//! - A call may do less than it was asked to, even nothing, and still have a `next`: the end is
//!   where there is none.
//! - A call whose answer was lost is repeated with the same cursor: jobs already done no longer
//!   fit, or are gone.
//! - A job that arrives meanwhile comes last, and may be reached too. One that begins to fit at a
//!   place already passed is left to the next round.
//! - A cursor the store did not make is misuse.
//!
//! An id means one job. Where a store knows ids by their queue and several queues have a job of one
//! id, nothing is done to any of them until the queue is named.

use crate::fingerprint::Fingerprint;
use crate::job::{JobId, JobState};
use crate::name::{Kind, QueueName};
use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AmendAction {
    Retry,
    Cancel,
    /// Remove it with its history.
    Delete,
    /// Give it, with its history, to another queue. It is never in neither, and keeps its id.
    Move(QueueName),
}

/// Why an action does not apply to a job. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AmendRefusal {
    /// There is no such job.
    NotFound,
    /// It runs; cancel it first.
    Running,
    /// It succeeded; push a new job to do the work again.
    Done,
    Ready,
    Ended,
    /// Another live job holds its unique key.
    UniqueKeyHeld(JobId),
    /// The queue it is to run in has as many live jobs as it may.
    Full,
    /// It has not ended; only dead and cancelled jobs are moved.
    Alive,
    /// It is not in the state that was meant.
    OtherState(JobState),
    /// Several queues have a job of this id, and none was named.
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
    /// Whether it depends on other jobs, and not on the state of its own: then it is told also of
    /// jobs that were selected by a filter.
    pub const fn depends_on_other_jobs(self) -> bool {
        matches!(self, Self::UniqueKeyHeld(_) | Self::Full)
    }
}

/// Whether `action`, applied to a job in `state`, adds a live job to a queue, and so needs room
/// there.
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

/// Which jobs. All of them must be said in so many words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    Ids(Vec<JobId>),
    /// These, as far as they are in this queue.
    Within(QueueName, Vec<JobId>),
    Matching(Filter),
    All,
}

/// What jobs to look at; what is `None` does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    pub queue: Option<QueueName>,
    pub kind: Option<Kind>,
    pub state: Option<JobState>,
    /// Dead of this; no other job has a fingerprint.
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

    /// Whether it says nothing at all: then it selects nothing for an amendment.
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
