//! Unique keys: at most one live job per key. The job itself holds the key; there is no lock beside
//! it.
//!
//! A key is looked up in its queue. The job that took it holds it while the job is in one of the
//! key's states and, if the key has a period, no longer than that after the job was inserted.
//!
//! A key that is held in a final state outlasts its job: when the job is removed, the key stays in
//! the store until its period is over and a pruning removes it. Without a period it stays for ever,
//! which is what the user asked for: work that is never to be done twice. Every such key takes up
//! space in the store for good.

mod unique_by;

pub use unique_by::{UniqueBy, UniqueByError};

use crate::job::JobState;
use crate::limits::UNIQUE_KEY_BYTES_MAX;
use crate::time::{Span, Time};
use std::fmt;
use std::sync::Arc;

/// A unique key: free text without a NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueKey(Arc<str>);

/// Text that cannot be a unique key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a unique key has 1 to {UNIQUE_KEY_BYTES_MAX} bytes and no NUL among them; this one has {0}. Hash what is longer"
)]
pub struct InvalidUniqueKey(usize);

impl UniqueKey {
    /// Checks the text of a key.
    pub fn new(text: &str) -> Result<Self, InvalidUniqueKey> {
        // As with a kind, not every store allows a NUL in text.
        if text.is_empty() || text.len() > UNIQUE_KEY_BYTES_MAX || text.contains('\0') {
            return Err(InvalidUniqueKey(text.len()));
        }
        Ok(Self(text.into()))
    }

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
    /// Every state of a job that has not ended: the default states of a key.
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

    pub const fn contains(self, state: JobState) -> bool {
        self.0 & (1 << state as u8) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as a number, for a store.
    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// The unique key that a new job asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniqueConstraint {
    /// The key, looked up within the job's queue.
    pub key: UniqueKey,
    /// The job holds the key no longer than this after it was inserted; `None` sets no time limit.
    pub period: Option<Span>,
    /// The states in which the job holds the key.
    pub states: StateSet,
}

impl UniqueConstraint {
    /// Allows one live job for this key.
    pub fn live(key: UniqueKey) -> Self {
        Self {
            key,
            period: None,
            states: StateSet::LIVE,
        }
    }

    /// The hold that a job gets which takes the key at `now`.
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
    /// When the period of the key ends; `None` without a period.
    pub until: Option<Time>,
}

impl UniqueHold {
    /// Whether a holder in `state` still has the key.
    pub fn is_held(&self, state: JobState, now: Time) -> bool {
        self.states.contains(state) && !self.is_over(now)
    }

    /// Whether a holder still has the key; `None` as its state means that the job was removed. A
    /// removed job only leaves its key behind if its last state still held the key.
    pub fn is_held_by(&self, state: Option<JobState>, now: Time) -> bool {
        state.map_or_else(|| !self.is_over(now), |state| self.is_held(state, now))
    }

    /// Whether the period of the key is over, whatever the state of its holder.
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
