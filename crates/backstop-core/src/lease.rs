//! Leases: the right to finish a running job.

use crate::failure::FailureHistory;
use crate::job::{JobId, Priority};
use crate::job_options::JobOptions;
use crate::limits::{LEASE_REQUEST_MAX, SET_BACK_MIN, WORKER_NAME_BYTES_MAX};
use crate::name::{Kind, QueueName};
use crate::payload::Payload;
use crate::time::Time;
use std::fmt;
use std::sync::Arc;

/// The fencing token of a lease. Every claim draws its own number at random, and all its jobs share
/// it. A job that is taken over gets the number of its new worker, and the old number is stale for
/// ever.
///
/// Random and not counted up: a counter could be set back by a crash that loses its last values,
/// and would then hand a dead worker's number to a living one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(i64);

impl LeaseNumber {
    const LOWEST: i64 = 1 << 62;

    /// Makes a number of a random draw: always positive and always eight bytes wide.
    pub const fn draw(random: u64) -> Self {
        Self(Self::LOWEST | (random & (Self::LOWEST as u64 - 1)).cast_signed())
    }

    /// A number that was read from a store or a message.
    pub const fn from_i64(number: i64) -> Self {
        Self(number)
    }

    /// The number to write to a store or a message.
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Display for LeaseNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for LeaseNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The right to finish one running job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lease {
    /// The job's queue; a store with shards finds the job by it.
    pub queue: QueueName,
    pub job: JobId,
    /// The number of the claim that granted the lease.
    pub number: LeaseNumber,
}

impl Lease {
    /// Whether this lease may finish a job that is held under `current`. Only the current lease
    /// may.
    pub fn wins(&self, current: Option<LeaseNumber>) -> bool {
        current == Some(self.number)
    }
}

/// Whether a claim that ends at `until` has expired. An end too far ahead counts as expired too:
/// the claim was made before the clock was set back, and would otherwise outlive its worker by as
/// much as the clock was wrong.
pub fn is_expired(until: Time, now: Time) -> bool {
    until < now || until > now.after(LEASE_REQUEST_MAX)
}

/// The new end of a claim whose worker asks for `requested`. A late heartbeat never shortens a
/// claim. But an end more than twice the requested term ahead was granted before the clock was set
/// back, and is replaced.
#[must_use]
pub fn extend_lease(current: Time, requested: Time, now: Time) -> Time {
    if current > longest_lease_end(requested, now) {
        requested
    } else {
        current.max(requested)
    }
}

/// The latest end of a claim that [`extend_lease`] keeps.
pub fn longest_lease_end(requested: Time, now: Time) -> Time {
    now.after(requested.since(now).times(2))
}

/// The new end of a claim whose worker sent its last heartbeat at `seen`; `None` if it stays.
///
/// A heartbeat in the future means that the worker has sent none since the clock was set back, and
/// may be dead. Its claim then lasts as long from `now` as it had left at that heartbeat. Otherwise
/// a dead worker would keep its jobs for as long as the clock was set back by.
pub fn end_after_clock_set_back(until: Time, seen: Time, now: Time) -> Option<Time> {
    // An end before the heartbeat was moved by an earlier call.
    (seen > now.after(SET_BACK_MIN) && until >= seen).then(|| now.after(until.since(seen)))
}

/// The name of a worker: unique per process, readable by people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName(Arc<str>);

impl WorkerName {
    /// Cuts the name to its limit. Replaces a NUL, which not every store allows in text, by a
    /// space.
    pub fn new(text: &str) -> Self {
        let text = text.replace('\0', " ");
        let mut end = text.len().min(WORKER_NAME_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self(text[..end].into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A job that a worker holds under a lease.
#[derive(Clone, PartialEq, Debug)]
pub struct LeasedRun {
    pub lease: Lease,
    /// Selects the handler that runs it.
    pub kind: Kind,
    pub payload: Payload,
    pub priority: Priority,
    /// Earlier runs that ended by themselves.
    pub attempts_before: u32,
    pub lost_leases: u32,
    pub inserted_at: Time,
    /// When the job was due.
    pub run_at: Time,
    /// Its own retry policy and its trace context, if it has them.
    pub options: JobOptions,
    pub history: FailureHistory,
}

impl LeasedRun {
    /// The number of this run; the first is 1.
    pub const fn attempt(&self) -> u32 {
        self.attempts_before.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LEASE_MAX;
    use crate::time::Span;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lease_other_than_the_current_one_never_wins(mine: u64, current: Option<u64>) {
            let number = LeaseNumber::draw(mine);
            let lease = Lease { queue: QueueName::new("q").unwrap(), job: JobId::named("j"), number };
            let current = current.map(LeaseNumber::draw);
            prop_assert_eq!(lease.wins(current), current == Some(number));
            prop_assert!(!lease.wins(None));
        }

        #[test]
        fn a_number_is_positive_and_eight_bytes_wide(random: u64) {
            prop_assert!(LeaseNumber::draw(random).as_i64() >= 1 << 62);
        }
    }

    #[test]
    fn a_claim_expires_when_its_time_is_past_or_absurdly_far_ahead() {
        let now = Time::from_millis(1_000_000);
        let check = |until: Time, expected| assert_eq!(is_expired(until, now), expected, "{until}");
        check(now.before(Span::micros(1)), true);
        check(now, false);
        check(now.after(LEASE_MAX).after(Span::hours(1)), false);
        check(
            now.after(LEASE_MAX)
                .after(Span::hours(1))
                .after(Span::micros(1)),
            true,
        );
        assert!(!is_expired(
            Time::from_micros(i64::MAX),
            Time::from_micros(i64::MAX)
        ));
    }

    #[test]
    fn a_beat_makes_a_claim_longer_and_one_of_a_clock_set_back_shorter() {
        let now = Time::from_millis(1_000_000);
        let ahead = |secs| now.after(Span::secs(secs));
        let check = |current, requested, expected| {
            assert_eq!(extend_lease(current, requested, now), expected);
        };
        check(now.before(Span::hours(1)), ahead(30), ahead(30));
        check(ahead(10), ahead(30), ahead(30));
        check(ahead(60), ahead(30), ahead(60));
        check(ahead(60).after(Span::micros(1)), ahead(30), ahead(30));
        check(ahead(3_600), ahead(30), ahead(30));
    }

    #[test]
    fn a_claim_of_a_worker_not_heard_of_since_the_clock_was_set_back_lasts_as_long_from_now_on() {
        let now = Time::from_millis(100_000_000);
        let ahead = |secs| now.after(Span::secs(secs));
        let check = |until, seen, expected| {
            assert_eq!(
                end_after_clock_set_back(until, seen, now),
                expected,
                "{until} {seen}"
            );
        };
        check(ahead(7_215), ahead(7_200), Some(ahead(15)));
        check(ahead(7_200), ahead(7_200), Some(now));
        check(ahead(7_199), ahead(7_200), None);
        check(ahead(10_800), ahead(7_200), Some(ahead(3_600)));
        check(ahead(75), ahead(61), Some(ahead(14)));
        check(ahead(75), ahead(60), None);
        check(ahead(15), now, None);
        check(now.before(Span::secs(5)), now.before(Span::secs(20)), None);
    }

    #[test]
    fn a_worker_name_is_cut_on_a_character_border() {
        assert_eq!(WorkerName::new(&"é".repeat(200)).as_str().len(), 256);
        assert_eq!(
            WorkerName::new(&format!("a{}", "é".repeat(200)))
                .as_str()
                .len(),
            255
        );
    }
}
