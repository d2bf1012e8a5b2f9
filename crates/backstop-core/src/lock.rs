//! Locks with a lease: a holder has the lock for a limited time, under a term that grows (a fencing
//! token).
//!
//! | the lock is | another process acquires it | its holder extends it |
//! |---|---|---|
//! | released | granted, under a higher term | refused: lost |
//! | held, and its lease is over | granted, under a higher term | granted: if another process had taken the lock, the term would be higher |
//! | held under the same name | granted, under a higher term: the former holder is gone, or learns that it lost the lock | granted |
//! | held | refused, with the end of the lease and its holder | granted, under the same term |
//! | held for more than twice as long as a lease can be: the clock was set back | refused, for the length of a new lease | granted, for the length of a new lease |
//! | held, and its lease is over only because the clock leapt forward | refused: the holder has had no chance to extend it | granted |
//! | held by another process since | refused | refused: lost |
//!
//! A term is higher than every earlier term as long as the lock is remembered, and follows the
//! clock where it is not. So the service behind a lock can reject requests whose term is lower than
//! the highest one it has seen. All processes that acquire one lock ask for the same span.

use crate::lease::{extend_lease, longest_lease_end};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// The holder of a lock, and the end of its lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockLease {
    pub term: u64,
    /// The lock is free after this, unless the holder extends it.
    pub until: Time,
    /// The name of the holder; empty once the lock is released. A process that acquires the lock
    /// under the same name takes it over.
    pub holder: String,
}

impl LockLease {
    /// Acquires the lock for `holder`. Returns the new lease, or the current one of another holder
    /// as the error. `leapt` is how far the clock was set forward lately.
    pub fn acquire(
        current: Option<&Self>,
        holder: &str,
        span: Span,
        leapt: Span,
        now: Time,
    ) -> Result<Self, Self> {
        match current {
            Some(held) if held.is_held_by_another(holder) && !held.is_over(now.before(leapt)) => {
                // The lease is from before the clock was set back. Its holder, if alive, extends it
                // within one span.
                let until = if held.until > longest_lease_end(now.after(span), now) {
                    now.after(span)
                } else {
                    held.until
                };
                Err(Self {
                    until,
                    ..held.clone()
                })
            }
            _ => {
                let by_clock = u64::try_from(now.as_micros()).unwrap_or_default();
                let term = current.map_or(by_clock, |held| by_clock.max(held.term + 1));
                Ok(Self {
                    term,
                    until: now.after(span),
                    holder: holder.to_owned(),
                })
            }
        }
    }

    /// Whether another process held the lock and neither extended nor released it: it is dead, or
    /// goes by another clock.
    pub fn has_expired(&self, holder: &str, now: Time) -> bool {
        self.is_held_by_another(holder) && self.is_over(now)
    }

    fn is_held_by_another(&self, holder: &str) -> bool {
        !self.holder.is_empty() && self.holder != holder
    }

    fn is_over(&self, now: Time) -> bool {
        self.until < now
    }

    /// Releases the lock of the holder with this `term`, and remembers the term. `None` if it is no
    /// longer the holder.
    pub fn release(current: Option<&Self>, term: u64, now: Time) -> Option<Self> {
        let held = current.filter(|held| held.term == term)?;
        Some(Self {
            until: held.until.min(now),
            holder: String::new(),
            ..held.clone()
        })
    }

    /// Extends the lease of the holder with this `term`; `None` if it is no longer the holder.
    pub fn extend(current: Option<&Self>, term: u64, span: Span, now: Time) -> Option<Self> {
        let held = current.filter(|held| held.term == term && !held.holder.is_empty())?;
        Some(Self {
            until: extend_lease(held.until, now.after(span), now),
            ..held.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_micros(1_000_000_000_000_000);

    fn at(seconds: i64) -> Time {
        Time::from_micros(START.as_micros() + seconds * 1_000_000)
    }

    const SPAN: Span = Span::secs(10);

    fn request_by_another(
        current: &LockLease,
        leapt: Span,
        seconds: i64,
    ) -> Result<LockLease, LockLease> {
        LockLease::acquire(Some(current), "you", SPAN, leapt, at(seconds))
    }

    fn taken(current: Option<&LockLease>, seconds: i64) -> Result<LockLease, LockLease> {
        LockLease::acquire(current, "me", SPAN, Span::ZERO, at(seconds))
    }

    #[test]
    fn a_free_lock_is_taken_and_a_held_one_names_its_holder() {
        let first = taken(None, 0).unwrap();
        assert_eq!((first.until, first.holder.as_str()), (at(10), "me"));
        assert_eq!(
            request_by_another(&first, Span::ZERO, 9),
            Err(first.clone())
        );
        assert_eq!(
            request_by_another(&first, Span::ZERO, 10),
            Err(first.clone()),
            "its last moment is its own"
        );
        assert!(!first.has_expired("you", at(10)));
        assert!(first.has_expired("you", at(11)) && !first.has_expired("me", at(11)));
        assert!(request_by_another(&first, Span::ZERO, 11).is_ok());
        assert!(taken(Some(&first), 11).unwrap().term > first.term);
    }

    #[test]
    fn who_comes_again_in_the_same_name_takes_it_over() {
        let first = taken(None, 0).unwrap();
        let again = taken(Some(&first), 1).unwrap();
        assert!(again.term > first.term);
        assert_eq!(
            LockLease::extend(Some(&again), first.term, SPAN, at(2)),
            None,
            "the one before is told"
        );
    }

    #[test]
    fn a_term_grows_although_the_clock_was_set_back() {
        let first = taken(None, 0).unwrap();
        let long_before = at(-400 * 86_400);
        let second = LockLease::acquire(Some(&first), "me", SPAN, Span::ZERO, long_before).unwrap();
        assert_eq!(second.term, first.term + 1);
    }

    #[test]
    fn after_the_clock_was_set_back_a_dead_holder_has_it_for_one_span_from_when_somebody_asks() {
        let first = taken(None, 7_200).unwrap();
        let current = request_by_another(&first, Span::ZERO, 0).unwrap_err();
        assert_eq!((current.until, current.term), (at(10), first.term));
        assert_eq!(
            request_by_another(&current, Span::ZERO, 10),
            Err(current.clone()),
            "once"
        );
        assert!(request_by_another(&current, Span::ZERO, 11).unwrap().term > first.term);
        let year = request_by_another(&first, Span::ZERO, -400 * 86_400).unwrap_err();
        assert_eq!(year.until, at(-400 * 86_400 + 10));
        let extended = LockLease::extend(Some(&first), first.term, SPAN, at(0)).unwrap();
        assert_eq!(
            extended.until,
            at(10),
            "a living one goes on by the new time"
        );
        assert_eq!(
            request_by_another(&taken(None, 10).unwrap(), Span::ZERO, 0)
                .unwrap_err()
                .until,
            at(20),
            "a little is no matter"
        );
    }

    #[test]
    fn after_the_clock_leapt_a_holder_has_it_for_as_long_as_it_would_have_had() {
        let (first, hour) = (taken(None, 0).unwrap(), Span::hours(1));
        assert_eq!(request_by_another(&first, hour, 3_600), Err(first.clone()));
        assert_eq!(request_by_another(&first, hour, 3_610), Err(first.clone()));
        assert!(
            request_by_another(&first, hour, 3_611).is_ok(),
            "it did not extend it"
        );
        let extended = LockLease::extend(Some(&first), first.term, SPAN, at(3_605)).unwrap();
        assert_eq!(extended.until, at(3_615));
    }

    #[test]
    fn a_term_grows_although_the_lock_was_forgotten_meanwhile() {
        assert!(taken(None, 1).unwrap().term > taken(None, 0).unwrap().term);
    }

    #[test]
    fn a_lock_that_was_given_back_is_free_and_its_term_remembered() {
        let first = taken(None, 0).unwrap();
        let free = LockLease::release(Some(&first), first.term, at(0)).unwrap();
        assert_eq!(taken(Some(&free), 0).unwrap().term, first.term + 1);
        assert!(
            request_by_another(&free, Span::hours(1), -7_200).is_ok(),
            "whatever became of the clock"
        );
        assert!(!free.has_expired("you", at(60)));
        assert_eq!(
            LockLease::extend(Some(&free), first.term, SPAN, at(0)),
            None
        );
        assert_eq!(
            LockLease::release(Some(&taken(Some(&free), 0).unwrap()), first.term, at(0)),
            None
        );
    }

    #[test]
    fn only_the_holder_of_the_current_term_gets_more_time() {
        let first = taken(None, 0).unwrap();
        let extended = |current: Option<&LockLease>, seconds| {
            LockLease::extend(current, first.term, SPAN, at(seconds)).map(|held| held.until)
        };
        assert_eq!(extended(Some(&first), 5), Some(at(15)));
        assert_eq!(
            extended(Some(&first), 11),
            Some(at(21)),
            "nobody has had it since"
        );
        assert_eq!(extended(Some(&taken(Some(&first), 11).unwrap()), 12), None);
        assert_eq!(extended(None, 5), None);
    }
}
