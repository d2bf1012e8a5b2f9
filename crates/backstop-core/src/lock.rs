//! Locks that end by themselves: whoever takes one has it for a while, under a term that grows.
//!
//! | the lock is | somebody asks for it | its holder asks for more time |
//! |---|---|---|
//! | free, or its time is over | theirs, under a higher term | lost: the term is over, whoever has it now |
//! | held in the same name | theirs, under a higher term: the one before is gone, or is told that it lost it | theirs for longer |
//! | held | taken: until then, by that one | theirs for longer, under the same term |
//! | held by somebody else since | taken | lost |
//!
//! A term is higher than every one before it as long as the lock is remembered, and follows the clock where it is not: the
//! service behind a lock can refuse what comes under a lower term than it has seen.

use crate::lease::is_expired;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Who has a lock, and until when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Grows with every holder.
    pub term: u64,
    /// From then on it is free, unless it was extended.
    pub until: Time,
    /// In whose name. Who comes again in the same name takes it over.
    pub holder: String,
}

impl Held {
    /// What stands once `holder` has asked for the lock; the other one, if it is not free.
    pub fn acquire(standing: Option<&Self>, holder: &str, span: Span, now: Time) -> Result<Self, Self> {
        match standing {
            Some(held) if held.holder != holder && !is_expired(held.until, now) => Err(held.clone()),
            _ => {
                let by_clock = u64::try_from(now.as_micros()).unwrap_or_default();
                let term = standing.map_or(by_clock, |held| by_clock.max(held.term + 1));
                Ok(Self { term, until: now.after(span), holder: holder.to_owned() })
            }
        }
    }

    /// What stands once the holder of `term` has given the lock back: free, with its term remembered. `None` if it is no longer the
    /// holder.
    pub fn release(standing: Option<&Self>, term: u64, now: Time) -> Option<Self> {
        let held = standing.filter(|held| held.term == term)?;
        Some(Self { until: held.until.min(now.before(Span::micros(1))), ..held.clone() })
    }

    /// What stands once the holder of `term` has asked for more time; `None` if it is no longer the holder.
    pub fn extend(standing: Option<&Self>, term: u64, span: Span, now: Time) -> Option<Self> {
        let held = standing.filter(|held| held.term == term && !is_expired(held.until, now))?;
        Some(Self { until: held.until.max(now.after(span)), ..held.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_micros(1_000_000_000_000_000);

    fn at(seconds: i64) -> Time {
        Time::from_micros(START.as_micros() + seconds * 1_000_000)
    }

    fn taken(standing: Option<&Held>, seconds: i64) -> Result<Held, Held> {
        Held::acquire(standing, "me", Span::secs(10), at(seconds))
    }

    #[test]
    fn a_free_lock_is_taken_and_a_held_one_names_its_holder() {
        let first = taken(None, 0).unwrap();
        assert_eq!((first.until, first.holder.as_str()), (at(10), "me"));
        assert_eq!(Held::acquire(Some(&first), "you", Span::secs(10), at(9)), Err(first.clone()));
        assert_eq!(
            Held::acquire(Some(&first), "you", Span::secs(10), at(10)),
            Err(first.clone()),
            "its last moment is its own"
        );
        assert!(taken(Some(&first), 11).unwrap().term > first.term);
    }

    #[test]
    fn who_comes_again_in_the_same_name_takes_it_over() {
        let first = taken(None, 0).unwrap();
        let again = taken(Some(&first), 1).unwrap();
        assert!(again.term > first.term);
        assert_eq!(
            Held::extend(Some(&again), first.term, Span::secs(10), at(2)),
            None,
            "the one before is told"
        );
    }

    #[test]
    fn a_term_grows_although_the_clock_was_set_back() {
        let first = taken(None, 0).unwrap();
        let long_before = at(-400 * 86_400);
        let second = Held::acquire(Some(&first), "me", Span::secs(10), long_before).unwrap();
        assert_eq!(
            second.term,
            first.term + 1,
            "an end so far ahead was given before the clock was set back"
        );
    }

    #[test]
    fn a_term_grows_although_the_lock_was_forgotten_meanwhile() {
        assert!(taken(None, 1).unwrap().term > taken(None, 0).unwrap().term);
    }

    #[test]
    fn a_lock_that_was_given_back_is_free_and_its_term_remembered() {
        let first = taken(None, 0).unwrap();
        let free = Held::release(Some(&first), first.term, at(0)).unwrap();
        assert_eq!(taken(Some(&free), 0).unwrap().term, first.term + 1);
        assert_eq!(Held::release(Some(&taken(Some(&free), 0).unwrap()), first.term, at(0)), None);
    }

    #[test]
    fn only_the_holder_of_the_current_term_gets_more_time() {
        let first = taken(None, 0).unwrap();
        let extended = |standing: Option<&Held>, seconds| {
            Held::extend(standing, first.term, Span::secs(10), at(seconds)).map(|held| held.until)
        };
        assert_eq!(extended(Some(&first), 5), Some(at(15)));
        assert_eq!(extended(Some(&first), 11), None, "too late: somebody else may have had it");
        assert_eq!(extended(Some(&taken(Some(&first), 11).unwrap()), 12), None);
        assert_eq!(extended(None, 5), None);
    }
}
