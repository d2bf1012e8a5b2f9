//! Unique keys: one live job for a key, held by the job itself and by nothing beside it.
//!
//! A key is looked up in its queue. The job that took it holds it while it is in one of the key's
//! states and, if the key has a period, no longer than that after the job came in.
//!
//! A key that is held in a final state outlasts its job: when the job is removed the key stays
//! behind, until its period is over and a pruning forgets it. Without a period it stays for ever,
//! which is what it asks for: work that is never to be done twice. Every such key takes its place
//! in the store for good.

mod unique_by;

pub use unique_by::{UniqueBy, UniqueByError};

use crate::job::JobState;
use crate::limits::UNIQUE_KEY_BYTES_MAX;
use crate::time::{Span, Time};
use std::fmt;
use std::sync::Arc;

/// The key: free text without a NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueKey(Arc<str>);

/// Text that cannot be a unique key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a unique key has 1 to {UNIQUE_KEY_BYTES_MAX} bytes and no NUL among them; this one has {0}. Hash what is longer"
)]
pub struct InvalidUniqueKey(usize);

impl UniqueKey {
    /// The key, if its length is in bounds.
    pub fn new(text: &str) -> Result<Self, InvalidUniqueKey> {
        // As for a kind: not every store has text with a NUL in it.
        if text.is_empty() || text.len() > UNIQUE_KEY_BYTES_MAX || text.contains('\0') {
            return Err(InvalidUniqueKey(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UniqueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UniqueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StateSet(u8);

impl StateSet {
    /// Every state of a job that has not ended: the usual reach of a key.
    pub const LIVE: Self = Self::of(&[
        JobState::Scheduled,
        JobState::Ready,
        JobState::Running,
        JobState::Retrying,
    ]);

    pub const fn of(states: &[JobState]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < states.len() {
            bits |= 1 << states[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether `state` is one of them.
    pub const fn contains(self, state: JobState) -> bool {
        self.0 & (1 << state as u8) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// As a number, for a store.
    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// What a new job asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniqueConstraint {
    /// The key, within the job's queue.
    pub key: UniqueKey,
    /// No longer than this after the job came in; `None` means as long as its state says.
    pub period: Option<Span>,
    /// In these states the job holds the key.
    pub states: StateSet,
}

impl UniqueConstraint {
    /// One live job for this key.
    pub fn live(key: UniqueKey) -> Self {
        Self {
            key,
            period: None,
            states: StateSet::LIVE,
        }
    }

    /// What is remembered of the key once `now` a job takes it.
    pub fn hold(&self, now: Time) -> UniqueHold {
        UniqueHold {
            states: self.states,
            until: self.period.map(|period| now.after(period)),
        }
    }
}

/// How long the holder of a key keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UniqueHold {
    pub states: StateSet,
    /// And no longer than this.
    pub until: Option<Time>,
}

impl UniqueHold {
    /// Whether a holder in `state` still has the key.
    pub fn is_held(&self, state: JobState, now: Time) -> bool {
        self.states.contains(state) && !self.is_over(now)
    }

    /// Whether a holder still has the key, also one that is gone, which has no state: a job is only
    /// removed with its key left behind if its last state still held it.
    pub fn is_held_by(&self, state: Option<JobState>, now: Time) -> bool {
        state.map_or_else(|| !self.is_over(now), |state| self.is_held(state, now))
    }

    /// Whether its period is over, whoever holds the key and however they stand.
    pub fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        states: &[JobState],
        period_secs: Option<i64>,
        state: JobState,
        at_secs: i64,
        expected: bool,
    ) {
        let unique = UniqueConstraint {
            key: UniqueKey::new("k").expect("a key"),
            period: period_secs.map(Span::secs),
            states: StateSet::of(states),
        };
        let hold = unique.hold(Time::default());
        assert_eq!(
            hold.is_held(state, Time::default().after(Span::secs(at_secs))),
            expected,
            "{state} at {at_secs} s"
        );
    }

    const LIVE: [JobState; 4] = [
        JobState::Scheduled,
        JobState::Ready,
        JobState::Running,
        JobState::Retrying,
    ];

    #[test]
    fn a_live_holder_keeps_its_key_and_a_final_one_frees_it() {
        for state in JobState::ALL {
            check(&LIVE, None, state, 1_000_000, !state.is_final());
        }
    }

    #[test]
    fn a_key_has_bounds() {
        assert!(UniqueKey::new("order 🙂").is_ok());
        for bad in ["", "a\0", &"k".repeat(513)] {
            assert!(UniqueKey::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_period_frees_the_key_at_its_end() {
        check(&LIVE, Some(60), JobState::Ready, 59, true);
        check(&LIVE, Some(60), JobState::Ready, 60, false);
        check(&JobState::ALL, Some(60), JobState::Done, 59, true);
        check(&JobState::ALL, Some(60), JobState::Done, 60, false);
    }

    #[test]
    fn chosen_states_are_the_only_ones_that_count() {
        check(&[JobState::Ready], None, JobState::Running, 0, false);
        check(&[JobState::Ready], None, JobState::Ready, 0, true);
    }
}
