//! From when on to look for what is due.
//!
//! What is due stands in the order of its time, and what was before it is gone. But as long as
//! anybody has a long transaction open, the server keeps what is gone in its indexes, and whoever
//! looks from the beginning walks over all of it, once a second. So a process remembers up to when
//! it left nothing, and looks from a little before that on. What comes in later than that, by a
//! transaction that took long or a clock that is behind, is found by a look from the beginning now
//! and then. What is remembered saves time, and nothing else depends on it.

use backstop_core::{QueueName, Span, State, StreamName, Time};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How much earlier than what is remembered a look begins: more than a call of a store lasts.
const BEHIND: Span = Span::secs(10);
/// How many things are remembered; with more there are only looks from the beginning until they are
/// fewer again.
const REMEMBERED_MAX: usize = 10_000;

/// What is looked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Of {
    /// Jobs whose time comes.
    Waiting,
    /// Leases that expire.
    Leases,
    /// Keys of a stream that are due.
    Due(StreamName),
    /// Ended jobs of a queue whose retention is over.
    Ended(QueueName, State),
    /// Unique keys that are to be forgotten.
    Keys,
}

impl Of {
    /// How often it is looked for from the beginning.
    const fn full_every(&self) -> Span {
        match self {
            Self::Waiting | Self::Leases | Self::Due(_) => Span::minutes(1),
            Self::Ended(..) | Self::Keys => Span::minutes(10),
        }
    }
}

/// One look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    /// `None`: from the beginning.
    from: Option<Time>,
    at: Time,
}

impl Look {
    /// From when on, as the server's functions have it.
    pub(crate) fn begins_at(self) -> i64 {
        self.from.map_or(i64::MIN, Time::as_micros)
    }
}

/// Up to when nothing was left.
#[derive(Clone, Copy, Debug)]
struct Seen {
    to: Time,
    last_at: Time,
    full_at: Time,
}

/// What a process remembers.
#[derive(Default, Debug)]
pub(crate) struct Floors(Mutex<HashMap<Of, Seen>>);

impl Floors {
    /// How to look for something now.
    pub(crate) fn look(&self, of: &Of, now: Time) -> Look {
        let seen = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(of)
            .copied();
        // A clock that was set back is no reason to look at less.
        let seen =
            seen.filter(|seen| now >= seen.last_at && now.since(seen.full_at) < of.full_every());
        Look {
            from: seen.map(|seen| seen.to.before(BEHIND)),
            at: now,
        }
    }

    /// A look left nothing up to then.
    pub(crate) fn left_nothing(&self, of: Of, look: Look, to: Time) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        let full_at = if look.from.is_none() {
            Some(look.at)
        } else {
            all.get(&of).map(|seen| seen.full_at)
        };
        if let Some(full_at) = full_at {
            all.insert(
                of,
                Seen {
                    to,
                    last_at: look.at,
                    full_at,
                },
            );
        }
    }

    /// Something came in that may be older than what is remembered.
    pub(crate) fn forget(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests;
