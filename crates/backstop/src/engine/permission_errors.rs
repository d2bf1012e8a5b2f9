//! A store that refuses for good what a worker lives on: it has no right to it, or the schema is
//! another one. That is no outage, and waiting does not end it. But rights are also changed half
//! way, and a server that takes over may not know them yet, so a no is taken for the last word only
//! after a while.
//!
//! | a call of one kind (claims, settlements, beats) | then |
//! |---|---|
//! | is answered, or fails because of an outage | what was refused before counts no more |
//! | is refused | counted, from the first one on; of settlements each job counts once: it may be the job's own fault |
//! | was refused [`REFUSALS_MIN`] times, for [`REFUSED_FOR`] or the longest lease | the worker stops |
//! | the same, and was never answered | the worker stops after [`REFUSED_AT_START_FOR`] |
//!
//! A run that cannot be settled, or kept, is run again by others: while settlements or beats are
//! refused, nothing new is claimed for [`HOLD`] after each.
//!
//! | the settlement of one job | then |
//! |---|---|
//! | is refused | it is kept, and told again: the no may not be the last word |
//! | is refused again, after others of its queue were answered | it is the job's own fault: given up |
//! | is one of several while settlements are refused | up to [`PROBES_MAX`] of them are told, one by one, and all others once one is answered |
//! | is refused again after as long as a worker is patient, or when the worker stops | given up |
//!
//! Which of several are told: some of those that were not refused yet, spread over the line, and
//! with each no at other places. Jobs whose own fault it is hide no others, wherever in the line
//! they are.

use backstop_core::limits::{REFUSALS_MIN, REFUSED_AT_START_FOR, REFUSED_FOR};
use backstop_core::port::{SettleOutcome, StoreError, StoreResult};
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, Lease, QueueName, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long nothing is claimed after a settlement or a beat was refused.
const HOLD: Duration = Duration::from_secs(10);
/// Settlements of one batch that are told one by one to see whether they still are refused.
const PROBES_MAX: u32 = 4;
/// Jobs whose refused settlements are kept; of more they are given up.
const JOBS_MAX: usize = 2 * super::settle::WAITING_MAX;
/// For how long a job is remembered at least: one that runs again, and is refused again, is the
/// same one.
const REMEMBERED: Duration = Duration::from_hours(1);

/// What a worker lives on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VitalCall {
    Claim,
    Settlement,
    Beat,
}

impl VitalCall {
    const fn plural(self) -> &'static str {
        match self {
            Self::Claim => "claims",
            Self::Settlement => "settlements",
            Self::Beat => "beats",
        }
    }
}

/// What a worker was refused.
pub(crate) struct PermissionErrors {
    records: Mutex<CallRecords>,
    is_final: CancellationToken,
    /// How long the store may say no.
    patience: Duration,
    /// Whether any job is remembered: mostly none is, and nobody has to look.
    has_jobs: AtomicBool,
}

#[derive(Default)]
struct CallRecords {
    by_call: [CallRecord; 3],
    /// Jobs whose settlements were refused not long ago.
    jobs: BTreeMap<JobId, RefusedJob>,
    final_error: Option<StoreError>,
}

/// How one kind of call goes.
#[derive(Default)]
struct CallRecord {
    was_answered: bool,
    streak: Option<RefusalStreak>,
}

#[derive(Clone, Copy)]
struct RefusalStreak {
    /// Of settlements, how many jobs they are of.
    times: u32,
    calls: u32,
    since: Instant,
    /// When something was refused last that was not before.
    at: Instant,
}

/// A job whose settlement was refused.
struct RefusedJob {
    queue: QueueName,
    since: Instant,
    fault: JobFault,
}

/// Whether a refused settlement is the job's own fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JobFault {
    /// Nothing of its queue was answered since.
    Unknown,
    /// Others of its queue were answered since.
    Likely,
    /// It was refused again after that.
    Certain,
}

impl PermissionErrors {
    /// For a worker whose longest lease this is.
    pub(crate) fn new(longest_lease: Span) -> Self {
        let patience = REFUSED_FOR.max(longest_lease).into();
        let (records, has_jobs) = (Mutex::default(), AtomicBool::new(false));
        Self {
            records,
            is_final: CancellationToken::new(),
            patience,
            has_jobs,
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallRecords> {
        // Values that are written together.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how a claim or a beat went.
    pub(crate) fn note<T>(&self, call: VitalCall, answer: &StoreResult<T>, now: Instant) {
        let mut records = self.lock();
        match answer {
            Err(error @ StoreError::Misuse { .. }) => {
                self.count_refusal(&mut records, call, true, error, now);
            }
            answer => records.by_call[call as usize].clear(answer.is_ok()),
        }
    }

    /// Takes in how a call for the ends of runs went. One that is refused to several says nothing
    /// yet: each is asked for by itself.
    pub(crate) fn note_settle_answer(
        &self,
        ends: &[Settlement],
        answer: &StoreResult<Vec<SettleOutcome>>,
        now: Instant,
    ) {
        let mut records = self.lock();
        match (ends, answer) {
            ([], _) => {}
            ([end], Err(error @ StoreError::Misuse { .. })) => {
                let is_new =
                    records.note_refused_job(&end.lease, REMEMBERED.max(self.patience * 2), now);
                self.has_jobs
                    .store(!records.jobs.is_empty(), Ordering::Relaxed);
                self.count_refusal(&mut records, VitalCall::Settlement, is_new, error, now);
            }
            ([_, _, ..], Err(error)) if !error.is_transient() => {}
            (ends, answer) => {
                records.by_call[VitalCall::Settlement as usize].clear(answer.is_ok());
                records.suspect_answered_queues(ends, answer.as_deref().unwrap_or_default());
            }
        }
    }

    /// Counts a no; `is_new`: not one that was counted already.
    fn count_refusal(
        &self,
        records: &mut CallRecords,
        call: VitalCall,
        is_new: bool,
        error: &StoreError,
        now: Instant,
    ) {
        let record = &mut records.by_call[call as usize];
        let streak = match record.streak {
            None => RefusalStreak {
                times: 1,
                calls: 1,
                since: now,
                at: now,
            },
            Some(before) => {
                let calls = before.calls.saturating_add(1);
                // What was counted holds up no claims: what runs next shows whether it is the job's
                // own fault.
                let (times, at) = if is_new {
                    (before.times.saturating_add(1), now)
                } else {
                    (before.times, before.at)
                };
                RefusalStreak {
                    times,
                    calls,
                    at,
                    ..before
                }
            }
        };
        record.streak = Some(streak);
        let patience = if record.was_answered {
            self.patience
        } else {
            REFUSED_AT_START_FOR.into()
        };
        let is_final = streak.times >= REFUSALS_MIN && now.duration_since(streak.since) >= patience;
        if is_final && !self.is_final.is_cancelled() {
            tracing::error!(%error, "the store refuses this worker's {} for good; the worker stops", call.plural());
            records.final_error = Some(error.clone());
            self.is_final.cancel();
        }
    }

    /// Whether the settlement of a job that was just refused is kept, and told again.
    pub(crate) fn should_retry(&self, job: JobId, now: Instant) -> bool {
        let records = self.lock();
        let is_open = |job: &RefusedJob| {
            job.fault != JobFault::Certain && now.duration_since(job.since) < self.patience
        };
        records.final_error.is_none() && records.jobs.get(&job).is_some_and(is_open)
    }

    /// Which of these ends show whether settlements still are refused; none if they are not, as far
    /// as is known, or if that is the last word.
    pub(crate) fn probe_indexes(&self, ends: &[Settlement]) -> Vec<usize> {
        let records = self.lock();
        let streak = records.by_call[VitalCall::Settlement as usize].streak;
        let Some(streak) = streak.filter(|_| records.final_error.is_none()) else {
            return Vec::new();
        };
        let all = 0..ends.len();
        let new: Vec<usize> = all
            .clone()
            .filter(|at| !records.jobs.contains_key(&ends[*at].lease.job))
            .collect();
        let among = if new.is_empty() { all.collect() } else { new };
        let mut probes = Vec::new();
        for turn in 0..PROBES_MAX {
            let probe = among[spread_index(streak.calls.wrapping_add(turn), among.len())];
            if !probes.contains(&probe) {
                probes.push(probe);
            }
        }
        probes
    }

    /// The end of a job's run was taken: what was refused of it before counts no more.
    pub(crate) fn forget(&self, job: JobId) {
        if self.has_jobs.load(Ordering::Relaxed) {
            let mut records = self.lock();
            records.jobs.remove(&job);
            self.has_jobs
                .store(!records.jobs.is_empty(), Ordering::Relaxed);
        }
    }

    /// Whether nothing is to be claimed: what would be run could not be settled, or kept.
    pub(crate) fn should_hold_claims(&self, now: Instant) -> bool {
        let records = self.lock();
        // Claims that are refused are repeated by themselves.
        let [_, others @ ..] = &records.by_call;
        let mut refused = others.iter().filter_map(|other| other.streak);
        refused.any(|streak| now.duration_since(streak.at) < HOLD)
    }

    /// Whether the store ever answered a claim, or what it refuses now: then this worker had the
    /// right to work once.
    pub(crate) fn was_served(&self) -> bool {
        let records = self.lock();
        let [claims, others @ ..] = &records.by_call;
        claims.was_answered
            || others
                .iter()
                .any(|other| other.streak.is_some() && other.was_answered)
    }

    /// Waits until it is certain that it is refused.
    pub(crate) async fn wait_until_final(&self) {
        self.is_final.cancelled().await;
    }

    /// What was said, if it is certain.
    pub(crate) fn final_error(&self) -> Option<StoreError> {
        self.lock().final_error.clone()
    }
}

impl CallRecord {
    /// A call was not refused.
    fn clear(&mut self, is_answered: bool) {
        self.was_answered |= is_answered;
        self.streak = None;
    }
}

impl CallRecords {
    /// The end of this run was refused. Whether its job is new here: it was not refused not long
    /// ago.
    fn note_refused_job(&mut self, lease: &Lease, remembered: Duration, now: Instant) -> bool {
        let is_recent = |job: &RefusedJob| now.duration_since(job.since) < remembered;
        if let Some(job) = self.jobs.get_mut(&lease.job).filter(|job| is_recent(job)) {
            if job.fault == JobFault::Likely {
                job.fault = JobFault::Certain;
            }
            return false;
        }
        if self.jobs.len() >= JOBS_MAX {
            self.jobs.retain(|_, job| is_recent(job));
        }
        if self.jobs.len() < JOBS_MAX {
            let job = RefusedJob {
                queue: lease.queue.clone(),
                since: now,
                fault: JobFault::Unknown,
            };
            self.jobs.insert(lease.job, job);
        }
        true
    }

    /// Some ends were answered: what is refused in their queues may be the jobs' own fault. Rights
    /// may be changed server by server, so they say nothing of other queues.
    fn suspect_answered_queues(&mut self, ends: &[Settlement], answers: &[SettleOutcome]) {
        if self.jobs.is_empty() {
            return;
        }
        let answered = ends
            .iter()
            .zip(answers)
            .filter(|(_, answer)| **answer != SettleOutcome::Unanswered);
        let queues: BTreeSet<&QueueName> = answered.map(|(end, _)| &end.lease.queue).collect();
        let beside = self
            .jobs
            .values_mut()
            .filter(|job| queues.contains(&job.queue));
        for job in beside.filter(|job| job.fault == JobFault::Unknown) {
            job.fault = JobFault::Likely;
        }
    }
}

/// A place among `len`: from turn to turn in the middle of what was not looked at.
fn spread_index(turn: u32, len: usize) -> usize {
    // A fraction whose binary digits are the turn's, mirrored at the point: 1/2, 1/4, 3/4, 1/8, …
    ((u64::from(turn.reverse_bits()) * len as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::verdict::DoneRetention;
    use backstop_core::{LeaseNumber, Outcome};

    const LEASE: Span = Span::secs(15);

    struct Course {
        refusals: PermissionErrors,
        began: Instant,
    }

    impl Course {
        fn new() -> Self {
            Self {
                refusals: PermissionErrors::new(LEASE),
                began: Instant::now(),
            }
        }

        fn at(&self, secs: u64) -> Instant {
            self.began + Duration::from_secs(secs)
        }

        fn note(&self, call: Call, answer: StoreResult<()>, secs: u64) {
            match call {
                Call::Of(call) => self.refusals.note(call, &answer, self.at(secs)),
                Call::End(queue, job) => {
                    let answer = answer.map(|()| vec![SettleOutcome::Applied]);
                    self.refusals
                        .note_settle_answer(&[end(queue, &job)], &answer, self.at(secs));
                }
            }
        }

        fn answered(&self, call: impl Into<Call>, secs: u64) {
            self.note(call.into(), Ok(()), secs);
        }

        fn off(&self, call: impl Into<Call>, secs: u64) {
            self.note(
                call.into(),
                Err(StoreError::unavailable("claiming", "off")),
                secs,
            );
        }

        fn should_retry(&self, name: &str, secs: u64) -> bool {
            self.refusals
                .should_retry(JobId::named(name), self.at(secs))
        }

        /// Whether it is final after this.
        fn refused(&self, call: impl Into<Call>, secs: u64) -> bool {
            self.note(call.into(), Err(StoreError::misuse("claiming", "no")), secs);
            self.refusals.final_error().is_some()
        }
    }

    /// A call that a test makes.
    #[derive(Clone, PartialEq, Debug)]
    enum Call {
        Of(VitalCall),
        /// For the end of a run: its queue, and its job.
        End(&'static str, String),
    }

    impl From<VitalCall> for Call {
        fn from(call: VitalCall) -> Self {
            Self::Of(call)
        }
    }

    fn job(name: &str) -> Call {
        Call::End("q", name.to_owned())
    }

    fn end(queue: &str, job: &str) -> Settlement {
        let queue = QueueName::new(queue).expect("a name");
        let lease = Lease {
            queue,
            job: JobId::named(job),
            number: LeaseNumber::draw(1),
        };
        Settlement {
            lease,
            outcome: Outcome::Done(DoneRetention::Listed),
        }
    }

    #[tokio::test]
    async fn what_was_answered_once_is_refused_for_good_after_half_a_minute_without_an_answer() {
        let course = Course::new();
        course.answered(VitalCall::Claim, 0);
        for secs in 1..31 {
            assert!(!course.refused(VitalCall::Claim, secs), "after {secs} s");
        }
        assert!(course.refused(VitalCall::Claim, 31));
        assert!(course.refusals.was_served());
    }

    #[tokio::test]
    async fn an_answer_or_an_outage_in_between_begins_anew() {
        let course = Course::new();
        course.answered(VitalCall::Claim, 0);
        for round in 0..10 {
            for secs in 1..20 {
                assert!(!course.refused(VitalCall::Claim, round * 40 + secs));
            }
            if round % 2 == 0 {
                course.answered(VitalCall::Claim, round * 40 + 20);
            } else {
                course.off(VitalCall::Claim, round * 40 + 20);
            }
        }
    }

    #[tokio::test]
    async fn what_was_never_answered_is_refused_for_good_within_seconds() {
        let course = Course::new();
        assert!(!course.refused(VitalCall::Claim, 0) && !course.refused(VitalCall::Claim, 1));
        assert!(!course.refused(VitalCall::Claim, 4), "not in a moment");
        assert!(course.refused(VitalCall::Claim, 5));
        assert!(!course.refusals.was_served());
    }

    #[tokio::test]
    async fn a_few_refusals_are_not_enough_however_long_ago_the_first_is() {
        let course = Course::new();
        course.answered(VitalCall::Claim, 0);
        assert!(!course.refused(VitalCall::Claim, 1) && !course.refused(VitalCall::Claim, 100));
        assert!(course.refused(VitalCall::Claim, 101));
    }

    #[tokio::test]
    async fn each_kind_of_call_is_looked_at_by_itself() {
        let beat: fn(u64) -> Call = |_| VitalCall::Beat.into();
        for of in [beat, |secs| job(&secs.to_string())] {
            let course = Course::new();
            course.answered(of(0), 0);
            for secs in 1..31 {
                course.answered(VitalCall::Claim, secs);
                assert!(!course.refused(of(secs), secs), "{:?}", of(secs));
            }
            assert!(course.refused(of(31), 31), "{:?}", of(31));
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
            assert!(!course.refused(job(name), secs) && course.should_retry(name, secs));
        }
        assert!(!course.refused(job("poison"), 40) && !course.refused(job("venom"), 40));
    }

    #[tokio::test]
    async fn while_settlements_are_refused_some_of_several_show_whether_they_still_are() {
        let course = Course::new();
        let probes = || {
            course
                .refusals
                .probe_indexes(&["a", "b"].map(|name| end("q", name)))
        };
        assert!(probes().is_empty(), "nothing was refused");
        course.answered(job("fine"), 0);
        for (secs, name, next) in [
            (1, "a", vec![1]),
            (2, "b", vec![0, 1]),
            (3, "c", vec![1, 0]),
        ] {
            assert!(!course.refused(job(name), secs));
            assert_eq!(probes(), next, "after {name}");
        }
        course.answered(job("fine"), 4);
        assert!(probes().is_empty(), "they are answered");
        for secs in 5..36 {
            course.refused(job(&secs.to_string()), secs);
        }
        assert!(
            probes().is_empty(),
            "that was the last word: each is given up by itself"
        );
    }

    #[tokio::test]
    async fn probes_come_from_all_over_the_line_and_from_elsewhere_after_each_no() {
        let course = Course::new();
        let line: Vec<Settlement> = (0..1_000).map(|n| end("q", &n.to_string())).collect();
        course.answered(job("fine"), 0);
        course.refused(job("poison"), 1);
        let mut told = BTreeSet::from([0, line.len()]);
        for _ in 0..8 {
            for probe in course.refusals.probe_indexes(&line) {
                assert!(told.insert(probe), "{probe} was told");
                course.refused(job(&probe.to_string()), 2);
            }
        }
        let gaps = told
            .iter()
            .zip(told.iter().skip(1))
            .map(|(from, to)| to - from);
        assert!(gaps.max() < Some(100), "{told:?}");
    }

    #[tokio::test]
    async fn a_refused_settlement_is_kept_until_others_are_answered_or_patience_ends() {
        let course = Course::new();
        course.answered(job("fine"), 0);
        course.refused(job("a"), 1);
        assert!(
            course.should_retry("a", 1),
            "the first no is not the last word, whatever was answered before"
        );
        course.refused(job("a"), 30);
        assert!(course.should_retry("a", 30));
        course.refused(job("a"), 31);
        assert!(
            !course.should_retry("a", 31),
            "that was as long as a worker is patient"
        );
        course.refused(job("b"), 40);
        assert!(course.should_retry("b", 40));
        course.answered(job("fine"), 41);
        assert!(course.should_retry("b", 41), "it is told once more");
        course.refused(job("b"), 42);
        assert!(
            !course.should_retry("b", 42),
            "others are answered: it is the job's own fault"
        );
    }

    #[tokio::test]
    async fn what_another_queue_is_answered_says_nothing_of_a_job() {
        let course = Course::new();
        course.refused(job("a"), 1);
        course.answered(Call::End("elsewhere", "fine".to_owned()), 2);
        let both = [end("elsewhere", "finer"), end("q", "b")];
        course.refusals.note_settle_answer(
            &both,
            &Ok(vec![SettleOutcome::Applied, SettleOutcome::Unanswered]),
            course.at(3),
        );
        course.refused(job("a"), 4);
        assert!(
            course.should_retry("a", 4),
            "its own may be on a server that does not know the rights yet"
        );
        course.answered(job("fine"), 5);
        course.refused(job("a"), 6);
        assert!(!course.should_retry("a", 6));
    }

    #[tokio::test]
    async fn a_job_that_is_refused_again_holds_up_no_claims_and_is_forgotten_when_it_is_taken() {
        let course = Course::new();
        course.answered(job("fine"), 0);
        course.refused(job("a"), 1);
        course.refused(job("a"), 9);
        assert!(
            course.refusals.should_hold_claims(course.at(10))
                && !course.refusals.should_hold_claims(course.at(11))
        );
        course.answered(job("fine"), 12);
        course.refusals.forget(JobId::named("a"));
        course.refused(job("a"), 20);
        assert!(
            course.should_retry("a", 20),
            "what was refused before counts no more"
        );
    }

    #[tokio::test]
    async fn nothing_is_kept_by_a_worker_that_stops() {
        let course = Course::new();
        for (name, secs) in [("a", 0), ("b", 1), ("c", 6)] {
            course.refused(job(name), secs);
        }
        assert!(!course.should_retry("c", 6));
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let course = Course::new();
        let is_kept = |name: &str, secs: u64| {
            course.refused(job(name), secs);
            course.should_retry(name, secs)
        };
        course.answered(job("fine"), 0);
        for number in 0..JOBS_MAX {
            assert!(is_kept(&number.to_string(), 1));
        }
        assert!(!is_kept("one more", 2));
        course.off(job("fine"), 3_000);
        assert!(
            is_kept("one more", 3_601),
            "what was refused long ago makes room"
        );
    }

    #[tokio::test]
    async fn nothing_is_claimed_for_a_while_after_what_runs_could_not_be_settled_or_kept() {
        for call in [Call::Of(VitalCall::Beat), job("a")] {
            let course = Course::new();
            let holds = |secs: u64| course.refusals.should_hold_claims(course.at(secs));
            assert!(!holds(0));
            course.refused(call.clone(), 1);
            assert!(holds(1) && holds(10) && !holds(11), "{call:?}");
            course.answered(call.clone(), 12);
            assert!(!holds(12), "{call:?}");
        }
        let course = Course::new();
        course.refused(VitalCall::Claim, 0);
        assert!(
            !course.refusals.should_hold_claims(course.at(0)),
            "claims are repeated by themselves"
        );
    }
}
