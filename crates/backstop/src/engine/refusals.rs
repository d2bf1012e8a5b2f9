//! A store that refuses for good what a worker lives on: it has no right to it, or the schema is another one. That is no outage, and
//! waiting does not end it. But rights are also changed half way, and a server that takes over may not know them yet, so a no is taken
//! for the last word only after a while.
//!
//! | a call of one kind (claims, settlements, beats) | then |
//! |---|---|
//! | is answered, or fails because of an outage | what was refused before counts no more |
//! | is refused | counted, from the first one on; of settlements those of one job count once: it may be the job's own fault |
//! | was refused [`REFUSALS_MIN`] times, for [`REFUSED_FOR`] or the longest lease | the worker stops |
//! | the same, and was never answered | the worker stops after [`REFUSED_AT_START_FOR`] |
//!
//! A run that cannot be settled, or kept, is run again by others: while settlements or beats are refused, nothing new is claimed for
//! [`HOLD`] after each.

use backstop_core::limits::{REFUSALS_MIN, REFUSED_AT_START_FOR, REFUSED_FOR};
use backstop_core::port::StoreError;
use backstop_core::{JobId, Span};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long nothing is claimed after a settlement or a beat was refused.
const HOLD: Duration = Duration::from_secs(10);

/// What a worker lives on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vital {
    Claim,
    Settlement(JobId),
    Beat,
}

impl Vital {
    const fn place(self) -> usize {
        match self {
            Self::Claim => 0,
            Self::Settlement(_) => 1,
            Self::Beat => 2,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Claim => "claims",
            Self::Settlement(_) => "settlements",
            Self::Beat => "beats",
        }
    }
}

/// What a worker was refused.
pub(crate) struct Refusals {
    vitals: Mutex<Vitals>,
    is_final: CancellationToken,
    /// How long the store may say no.
    patience: Duration,
}

#[derive(Default)]
struct Vitals {
    of: [Standing; 3],
    last_word: Option<StoreError>,
}

/// How one kind of call goes.
#[derive(Default)]
struct Standing {
    was_answered: bool,
    refused: Option<Refused>,
}

#[derive(Clone, Copy)]
struct Refused {
    times: u32,
    since: Instant,
    /// What was refused last, and when.
    vital: Vital,
    at: Instant,
}

impl Refusals {
    /// For a worker whose longest lease this is.
    pub(crate) fn new(longest_lease: Span) -> Self {
        let patience = REFUSED_FOR.max(longest_lease).into();
        Self { vitals: Mutex::default(), is_final: CancellationToken::new(), patience }
    }

    fn lock(&self) -> MutexGuard<'_, Vitals> {
        // Values that are written together.
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how a call ended.
    pub(crate) fn note<T>(&self, vital: Vital, answer: &Result<T, StoreError>, now: Instant) {
        let mut vitals = self.lock();
        let standing = &mut vitals.of[vital.place()];
        standing.was_answered |= answer.is_ok();
        let Err(error @ StoreError::Misuse { .. }) = answer else {
            standing.refused = None;
            return;
        };
        let refused = match standing.refused {
            Some(before) if matches!(vital, Vital::Settlement(_)) && before.vital == vital => {
                Refused { at: now, ..before }
            }
            Some(before) => Refused { times: before.times.saturating_add(1), vital, at: now, ..before },
            None => Refused { times: 1, since: now, vital, at: now },
        };
        standing.refused = Some(refused);
        let patience = if standing.was_answered { self.patience } else { REFUSED_AT_START_FOR.into() };
        let is_final = refused.times >= REFUSALS_MIN && now.duration_since(refused.since) >= patience;
        if is_final && !self.is_final.is_cancelled() {
            tracing::error!(%error, "the store refuses this worker's {} for good; the worker stops", vital.words());
            vitals.last_word = Some(error.clone());
            self.is_final.cancel();
        }
    }

    /// Whether nothing is to be claimed: what would be run could not be settled, or kept.
    pub(crate) fn holds_claims(&self, now: Instant) -> bool {
        let vitals = self.lock();
        let mut refused = vitals.of.iter().filter_map(|standing| standing.refused);
        refused.any(|refused| refused.vital != Vital::Claim && now.duration_since(refused.at) < HOLD)
    }

    /// Whether the store ever answered a claim, or what it refuses now: then this worker had the right to work once.
    pub(crate) fn was_served(&self) -> bool {
        let vitals = self.lock();
        let [claims, others @ ..] = &vitals.of;
        claims.was_answered || others.iter().any(|other| other.refused.is_some() && other.was_answered)
    }

    /// Waits until it is certain that it is refused.
    pub(crate) async fn finally(&self) {
        self.is_final.cancelled().await;
    }

    /// What was said, if it is certain.
    pub(crate) fn last_word(&self) -> Option<StoreError> {
        self.lock().last_word.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Span = Span::secs(15);

    struct Course {
        refusals: Refusals,
        began: Instant,
    }

    impl Course {
        fn new() -> Self {
            Self { refusals: Refusals::new(LEASE), began: Instant::now() }
        }

        fn at(&self, secs: u64) -> Instant {
            self.began + Duration::from_secs(secs)
        }

        fn answered(&self, vital: Vital, secs: u64) {
            self.refusals.note(vital, &Ok(()), self.at(secs));
        }

        fn off(&self, vital: Vital, secs: u64) {
            self.refusals.note::<()>(vital, &Err(StoreError::unavailable("claiming", "off")), self.at(secs));
        }

        /// Whether it is final after this.
        fn refused(&self, vital: Vital, secs: u64) -> bool {
            self.refusals.note::<()>(vital, &Err(StoreError::misuse("claiming", "no")), self.at(secs));
            self.refusals.last_word().is_some()
        }
    }

    fn job(name: &str) -> Vital {
        Vital::Settlement(JobId::named(name))
    }

    #[tokio::test]
    async fn what_was_answered_once_is_refused_for_good_after_half_a_minute_without_an_answer() {
        let course = Course::new();
        course.answered(Vital::Claim, 0);
        for secs in 1..31 {
            assert!(!course.refused(Vital::Claim, secs), "after {secs} s");
        }
        assert!(course.refused(Vital::Claim, 31));
        assert!(course.refusals.was_served());
    }

    #[tokio::test]
    async fn an_answer_or_an_outage_in_between_begins_anew() {
        let course = Course::new();
        course.answered(Vital::Claim, 0);
        for round in 0..10 {
            for secs in 1..20 {
                assert!(!course.refused(Vital::Claim, round * 40 + secs));
            }
            if round % 2 == 0 {
                course.answered(Vital::Claim, round * 40 + 20);
            } else {
                course.off(Vital::Claim, round * 40 + 20);
            }
        }
    }

    #[tokio::test]
    async fn what_was_never_answered_is_refused_for_good_within_seconds() {
        let course = Course::new();
        assert!(!course.refused(Vital::Claim, 0) && !course.refused(Vital::Claim, 1));
        assert!(!course.refused(Vital::Claim, 4), "not in a moment");
        assert!(course.refused(Vital::Claim, 5));
        assert!(!course.refusals.was_served());
    }

    #[tokio::test]
    async fn a_few_refusals_are_not_enough_however_long_ago_the_first_is() {
        let course = Course::new();
        course.answered(Vital::Claim, 0);
        assert!(!course.refused(Vital::Claim, 1) && !course.refused(Vital::Claim, 100));
        assert!(course.refused(Vital::Claim, 101));
    }

    #[tokio::test]
    async fn each_kind_of_call_is_looked_at_by_itself() {
        for vital in [Vital::Beat, job("a")] {
            let course = Course::new();
            let of = |secs: u64| if vital == Vital::Beat { vital } else { job(&secs.to_string()) };
            course.answered(vital, 0);
            for secs in 1..31 {
                course.answered(Vital::Claim, secs);
                assert!(!course.refused(of(secs), secs), "{vital:?} after {secs} s");
            }
            assert!(course.refused(of(31), 31), "{vital:?}");
        }
    }

    #[tokio::test]
    async fn one_job_that_cannot_be_settled_stops_no_worker() {
        let course = Course::new();
        for secs in 0..100 {
            assert!(!course.refused(job("poison"), secs));
        }
    }

    #[tokio::test]
    async fn nothing_is_claimed_for_a_while_after_what_runs_could_not_be_settled_or_kept() {
        for vital in [Vital::Beat, job("a")] {
            let course = Course::new();
            let holds = |secs: u64| course.refusals.holds_claims(course.at(secs));
            assert!(!holds(0));
            course.refused(vital, 1);
            assert!(holds(1) && holds(10) && !holds(11), "{vital:?}");
            course.refused(vital, 12);
            course.answered(vital, 13);
            assert!(!holds(13), "{vital:?}");
        }
        let course = Course::new();
        course.refused(Vital::Claim, 0);
        assert!(!course.refusals.holds_claims(course.at(0)), "claims are repeated by themselves");
    }
}
