//! A store that refuses for good what a worker lives on: it has no right to it, or the schema is another one. That is no outage, and
//! waiting does not end it. But rights are also changed half way, and a server that takes over may not know them yet, so a no is taken
//! for the last word only after a while.
//!
//! | a call of one kind (claims, settlements, beats) | then |
//! |---|---|
//! | is answered, or fails because of an outage | what was refused before counts no more |
//! | is refused | counted, from the first one on; of settlements each job counts once: it may be the job's own fault |
//! | was refused [`REFUSALS_MIN`] times, for [`REFUSED_FOR`] or the longest lease | the worker stops |
//! | the same, and was never answered | the worker stops after [`REFUSED_AT_START_FOR`] |
//!
//! A run that cannot be settled, or kept, is run again by others: while settlements or beats are refused, nothing new is claimed for
//! [`HOLD`] after each.
//!
//! | the settlement of one job | then |
//! |---|---|
//! | is refused | it is kept, and told again: the no may not be the last word |
//! | is refused again, after others were answered | it is the job's own fault: given up |
//! | is one of several while settlements are refused | one of them is told, and the others with it once that is answered |
//! | is refused again after as long as a worker is patient, or when the worker stops | given up |

use backstop_core::limits::{REFUSALS_MIN, REFUSED_AT_START_FOR, REFUSED_FOR};
use backstop_core::port::StoreError;
use backstop_core::{JobId, Span};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long nothing is claimed after a settlement or a beat was refused.
const HOLD: Duration = Duration::from_secs(10);
/// Jobs whose refused settlements are kept; of more they are given up.
const KEPT_MAX: usize = 2 * super::settle::WAITING_MAX;
/// For how long a job is remembered at least: one that runs again, and is refused again, is the same one.
const REMEMBERED: Duration = Duration::from_hours(1);

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
    /// Whether any job is remembered: mostly none is, and nobody has to look.
    has_jobs: AtomicBool,
}

#[derive(Default)]
struct Vitals {
    of: [Standing; 3],
    /// Jobs whose settlements were refused not long ago, since when, and whether others were answered after that.
    jobs: BTreeMap<JobId, (Instant, bool)>,
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
        let (vitals, has_jobs) = (Mutex::default(), AtomicBool::new(false));
        Self { vitals, is_final: CancellationToken::new(), patience, has_jobs }
    }

    fn lock(&self) -> MutexGuard<'_, Vitals> {
        // Values that are written together.
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how a call ended.
    pub(crate) fn note<T>(&self, vital: Vital, answer: &Result<T, StoreError>, now: Instant) {
        let mut vitals = self.lock();
        let Vitals { of, jobs, .. } = &mut *vitals;
        let standing = &mut of[vital.place()];
        standing.was_answered |= answer.is_ok();
        let Err(error @ StoreError::Misuse { .. }) = answer else {
            standing.refused = None;
            if matches!(vital, Vital::Settlement(_)) && answer.is_ok() {
                for (_, others_answered) in jobs.values_mut() {
                    *others_answered = true;
                }
            }
            return;
        };
        let remembered = REMEMBERED.max(self.patience * 2);
        let is_known = matches!(vital, Vital::Settlement(job) if is_known(jobs, job, remembered, now));
        self.has_jobs.store(!jobs.is_empty(), Ordering::Relaxed);
        let refused = match standing.refused {
            // Nor does it hold up claims: what runs next shows whether it is the job's own fault.
            Some(before) if is_known => before,
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

    /// Whether the settlement of a job that was just refused is kept, and told again.
    pub(crate) fn keeps(&self, job: JobId, now: Instant) -> bool {
        let vitals = self.lock();
        let known = vitals.jobs.get(&job);
        vitals.last_word.is_none()
            && known.is_some_and(|(since, others_answered)| {
                !others_answered && now.duration_since(*since) < self.patience
            })
    }

    /// Whether settlements are refused, as far as is known, and that is not the last word: one of several then shows whether they still
    /// are. Which one: the first that was not refused yet, since each job counts once.
    pub(crate) fn probe(&self, jobs: impl IntoIterator<Item = JobId>) -> Option<usize> {
        let vitals = self.lock();
        let [_, settlements, _] = &vitals.of;
        if settlements.refused.is_none() || vitals.last_word.is_some() {
            return None;
        }
        Some(jobs.into_iter().position(|job| !vitals.jobs.contains_key(&job)).unwrap_or(0))
    }

    /// The end of a job's run was taken: what was refused of it before counts no more.
    pub(crate) fn forget(&self, job: JobId) {
        if self.has_jobs.load(Ordering::Relaxed) {
            let mut vitals = self.lock();
            vitals.jobs.remove(&job);
            self.has_jobs.store(!vitals.jobs.is_empty(), Ordering::Relaxed);
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

/// Whether this job was refused not long ago; from now on it was.
fn is_known(
    jobs: &mut BTreeMap<JobId, (Instant, bool)>,
    job: JobId,
    remembered: Duration,
    now: Instant,
) -> bool {
    let is_recent = |since: Instant| now.duration_since(since) < remembered;
    if jobs.get(&job).is_some_and(|(since, _)| is_recent(*since)) {
        return true;
    }
    if jobs.len() >= KEPT_MAX {
        jobs.retain(|_, (since, _)| is_recent(*since));
    }
    if jobs.len() < KEPT_MAX {
        jobs.insert(job, (now, false));
    }
    false
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

        fn keeps(&self, name: &str, secs: u64) -> bool {
            self.refusals.keeps(JobId::named(name), self.at(secs))
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
    async fn jobs_that_cannot_be_settled_count_once_however_they_take_turns() {
        let course = Course::new();
        course.answered(job("fine"), 0);
        for secs in 1..29 {
            let name = if secs % 2 == 0 { "poison" } else { "venom" };
            assert!(!course.refused(job(name), secs) && course.keeps(name, secs));
        }
        assert!(!course.refused(job("poison"), 40) && !course.refused(job("venom"), 40));
    }

    #[tokio::test]
    async fn while_settlements_are_refused_one_of_several_shows_whether_they_still_are() {
        let course = Course::new();
        let probe = || course.refusals.probe(["a", "b"].map(JobId::named));
        assert_eq!(probe(), None, "nothing was refused");
        course.answered(job("fine"), 0);
        for (secs, name, next) in [(1, "a", 1), (2, "b", 0), (3, "c", 0)] {
            assert!(!course.refused(job(name), secs));
            assert_eq!(probe(), Some(next), "after {name}");
        }
        course.answered(job("fine"), 4);
        assert_eq!(probe(), None, "they are answered");
        for secs in 5..36 {
            course.refused(job(&secs.to_string()), secs);
        }
        assert_eq!(probe(), None, "that was the last word: each is given up by itself");
    }

    #[tokio::test]
    async fn a_refused_settlement_is_kept_until_others_are_answered_or_patience_ends() {
        let course = Course::new();
        course.answered(job("fine"), 0);
        course.refused(job("a"), 1);
        assert!(course.keeps("a", 1), "the first no is not the last word, whatever was answered before");
        course.refused(job("a"), 30);
        assert!(course.keeps("a", 30));
        course.refused(job("a"), 31);
        assert!(!course.keeps("a", 31), "that was as long as a worker is patient");
        course.refused(job("b"), 40);
        assert!(course.keeps("b", 40));
        course.answered(job("fine"), 41);
        course.refused(job("b"), 42);
        assert!(!course.keeps("b", 42), "others are answered: it is the job's own fault");
    }

    #[tokio::test]
    async fn a_job_that_is_refused_again_holds_up_no_claims_and_is_forgotten_when_it_is_taken() {
        let course = Course::new();
        course.answered(job("fine"), 0);
        course.refused(job("a"), 1);
        course.refused(job("a"), 9);
        assert!(course.refusals.holds_claims(course.at(10)) && !course.refusals.holds_claims(course.at(11)));
        course.answered(job("fine"), 12);
        course.refusals.forget(JobId::named("a"));
        course.refused(job("a"), 20);
        assert!(course.keeps("a", 20), "what was refused before counts no more");
    }

    #[tokio::test]
    async fn nothing_is_kept_by_a_worker_that_stops() {
        let course = Course::new();
        for (name, secs) in [("a", 0), ("b", 1), ("c", 6)] {
            course.refused(job(name), secs);
        }
        assert!(!course.keeps("c", 6));
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let course = Course::new();
        let is_kept = |name: &str, secs: u64| {
            course.refused(job(name), secs);
            course.keeps(name, secs)
        };
        course.answered(job("fine"), 0);
        for number in 0..KEPT_MAX {
            assert!(is_kept(&number.to_string(), 1));
        }
        assert!(!is_kept("one more", 2));
        course.off(job("fine"), 3_000);
        assert!(is_kept("one more", 3_601), "what was refused long ago makes room");
    }

    #[tokio::test]
    async fn nothing_is_claimed_for_a_while_after_what_runs_could_not_be_settled_or_kept() {
        for vital in [Vital::Beat, job("a")] {
            let course = Course::new();
            let holds = |secs: u64| course.refusals.holds_claims(course.at(secs));
            assert!(!holds(0));
            course.refused(vital, 1);
            assert!(holds(1) && holds(10) && !holds(11), "{vital:?}");
            course.answered(vital, 12);
            assert!(!holds(12), "{vital:?}");
        }
        let course = Course::new();
        course.refused(Vital::Claim, 0);
        assert!(!course.refusals.holds_claims(course.at(0)), "claims are repeated by themselves");
    }
}
