//! Leases: the right to end a running job.

use crate::failure::FailureHistory;
use crate::job::{JobId, Priority};
use crate::job_options::JobOptions;
use crate::limits::{LEASE_REQUEST_MAX, SET_BACK_MIN, WORKER_NAME_BYTES_MAX};
use crate::name::{Kind, QueueName};
use crate::payload::Payload;
use crate::time::Time;
use std::fmt;
use std::sync::Arc;

/// The fence. Every claim brings a number of its own, drawn at random, and all its jobs share it;
/// a job taken over gets the number of whoever took it, and the old one is stale for ever.
///
/// Random and not counted up: a counter could be set back by a crash that loses its last values,
/// and would then hand a dead worker's number to a living one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(i64);

impl LeaseNumber {
    const LOWEST: i64 = 1 << 62;

    /// The number of a random draw: always positive and always eight bytes wide.
    pub const fn draw(random: u64) -> Self {
        Self(Self::LOWEST | (random & (Self::LOWEST as u64 - 1)).cast_signed())
    }

    /// From a store or a wire.
    pub const fn from_i64(number: i64) -> Self {
        Self(number)
    }

    /// For a store or a wire.
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

/// The right to end one running job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lease {
    /// The job's queue: a store spread over machines finds the job by it.
    pub queue: QueueName,
    pub job: JobId,
    /// The claim that gave it out.
    pub number: LeaseNumber,
}

impl Lease {
    /// Whether this lease may end a job that is held under `current`. Only the current one ever
    /// wins.
    pub fn wins(&self, current: Option<LeaseNumber>) -> bool {
        current == Some(self.number)
    }
}

/// Whether a claim that lasts until `until` has expired: its time is past, or so far ahead that it
/// was given before the clock was set back. Such a claim would otherwise outlive its worker by as
/// much as the clock was wrong.
pub fn is_expired(until: Time, now: Time) -> bool {
    until < now || until > now.after(LEASE_REQUEST_MAX)
}

/// The new end of a claim whose worker asks for `asked`. A beat that comes late makes no claim
/// shorter, but an end more than twice the asked term ahead was given before the clock was set
/// back, and gives way.
#[must_use]
pub fn extend_lease(current: Time, requested: Time, now: Time) -> Time {
    if current > longest_lease_end(requested, now) {
        requested
    } else {
        current.max(requested)
    }
}

/// The last end of a claim that [`extended`] does not cut short.
pub fn longest_lease_end(requested: Time, now: Time) -> Time {
    now.after(requested.since(now).times(2))
}

/// The new end of a claim whose worker was heard of last at `seen`; `None` if it stays as it is.
/// Who was heard of in the future has not been since the clock was set back, and may be dead: its
/// claim lasts as long from now on as it did from that sign of life on. Without this a dead worker
/// would keep its jobs for as long as the clock was set back by.
pub fn end_after_clock_set_back(until: Time, seen: Time, now: Time) -> Option<Time> {
    // An end before the sign of life has been moved already.
    (seen > now.after(SET_BACK_MIN) && until >= seen).then(|| now.after(until.since(seen)))
}

/// Who claims: unique per process, readable by people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName(Arc<str>);

impl WorkerName {
    /// The name, cut to its limit; a NUL, which not every store has in its text, becomes a space.
    pub fn new(text: &str) -> Self {
        let text = text.replace('\0', " ");
        let mut end = text.len().min(WORKER_NAME_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self(text[..end].into())
    }

    /// The text of the name.
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

/// A job handed to a worker.
#[derive(Clone, PartialEq, Debug)]
pub struct LeasedRun {
    /// The right to end it.
    pub lease: Lease,
    /// Which handler it is for.
    pub kind: Kind,
    pub payload: Payload,
    /// Its level in the queue.
    pub priority: Priority,
    /// Runs that ended by themselves before this one.
    pub attempts_before: u32,
    pub lost_leases: u32,
    pub inserted_at: Time,
    /// When it was to run.
    pub run_at: Time,
    /// What it carries beside its payload: its own retry policy, where it was pushed from.
    pub options: JobOptions,
    pub history: FailureHistory,
}

impl LeasedRun {
    /// The number of this run: 1 for the first.
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
