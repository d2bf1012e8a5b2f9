use super::*;
use proptest::prelude::*;

const START: Time = Time::from_millis(1_700_000_000_000);
/// The lifetime of the permits in these tests.
const PERMIT: Span = Span::minutes(1);

/// A breaker, a clock, and the epochs that a caller keeps.
struct Rig {
    breaker: Breaker,
    settings: BreakerSettings,
    now: Time,
    /// The epoch of the latest admission; `first_epoch` is that of the first call of `admits`.
    epoch: u64,
    first_epoch: u64,
}

impl Rig {
    fn new(settings: BreakerSettings) -> Self {
        Self {
            breaker: Breaker::default(),
            settings,
            now: START,
            epoch: 0,
            first_epoch: 0,
        }
    }

    fn admit(&mut self, want: u32) -> AdmittedCalls {
        let admitted = self
            .breaker
            .admit(&self.settings, want, self.now.after(PERMIT), self.now);
        if admitted.calls > 0 {
            self.epoch = admitted.epoch;
        }
        admitted
    }

    fn record(&mut self, epoch: u64, sign: CallOutcome) {
        self.breaker.record(
            &self.settings,
            &[CallReport {
                epoch,
                outcome: sign,
            }],
            self.now,
        );
    }

    /// Does one step and returns its result: the number of admitted calls, or the phase.
    fn step(&mut self, step: &str) -> String {
        let current = match self.breaker.admits(&self.settings, self.now) {
            BreakerAdmission::Unlimited { epoch } => epoch,
            _ => self.epoch,
        };
        match step.split_at(1) {
            ("F", "") => self.record(current, CallOutcome::Failure),
            ("S", "") => self.record(current, CallOutcome::Success),
            ("N", "") => self.record(current, CallOutcome::Neutral),
            ("l", "ateF") => self.record(self.first_epoch, CallOutcome::Failure),
            ("l", "ateS") => self.record(self.first_epoch, CallOutcome::Success),
            ("a", want) => {
                return self
                    .admit(want.parse().expect("a number"))
                    .calls
                    .to_string();
            }
            ("g", calls) => {
                let calls = calls.parse().expect("a number");
                self.breaker
                    .give_back(&self.settings, self.epoch, calls, self.now);
            }
            ("+", span) => self.now = self.now.after(span.parse().expect("a span")),
            ("-", span) => self.now = self.now.before(span.parse().expect("a span")),
            ("f", "orce") => self.breaker.force_open("by hand", self.now),
            ("r", "eset") => self.breaker.reset("by hand", self.now),
            _ => panic!("{step} is no step"),
        }
        self.breaker.phase(&self.settings, self.now).to_string()
    }
}

/// Checks the result of every step. Three failures open the breaker for 30 s; two successes of
/// three probes close it.
fn check(steps: &str, expected: &str) {
    check_with(
        BreakerSettings {
            failure_threshold: 3,
            ..BreakerSettings::default()
        },
        steps,
        expected,
    );
}

fn check_with(settings: BreakerSettings, steps: &str, expected: &str) {
    let mut rig = Rig::new(settings);
    let answers: Vec<String> = steps
        .split_whitespace()
        .map(|step| rig.step(step))
        .collect();
    assert_eq!(answers.join(" "), expected, "{steps}");
}

#[test]
fn it_is_closed_to_begin_with_and_lets_everything_through() {
    check("a0 a1 a1000000 S F N", "0 1 1000000 closed closed closed");
}

#[test]
fn failures_in_a_row_open_it() {
    check("F F F", "closed closed open");
    check("F F S F F F", "closed closed closed closed closed open");
    check("F F S F F S", "closed closed closed closed closed closed");
    check("F F N F", "closed closed closed open");
}

#[test]
fn open_lets_nothing_through_before_its_time() {
    check(
        "F F F a1 +29s a5 +1s a5",
        "closed closed open 0 open 0 half_open 3",
    );
}

#[test]
fn half_open_lets_so_many_through_and_no_more() {
    check("F F F +30s a2 a5 a1", "closed closed open half_open 2 1 0");
    check(
        "F F F +30s a3 S a3",
        "closed closed open half_open 3 half_open 0",
    );
}

#[test]
fn enough_successes_close_it() {
    check(
        "F F F +30s a3 S S a99",
        "closed closed open half_open 3 half_open closed 99",
    );
    check(
        "F F F +30s a1 S a1 S",
        "closed closed open half_open 1 half_open 1 closed",
    );
}

#[test]
fn closed_again_it_counts_from_nothing() {
    check(
        "F F F +30s a2 S S F F F",
        "closed closed open half_open 2 half_open closed closed closed open",
    );
}

#[test]
fn one_failed_probe_opens_it_for_the_whole_time_again() {
    check(
        "F F F +30s a3 S F +29s +1s a3",
        "closed closed open half_open 3 half_open open open half_open 3",
    );
}

#[test]
fn a_probe_that_said_nothing_gives_its_slot_back() {
    check(
        "F F F +30s a3 a1 N a2",
        "closed closed open half_open 3 0 half_open 1",
    );
}

#[test]
fn permits_not_used_are_given_out_again() {
    check(
        "F F F +30s a3 g2 a5",
        "closed closed open half_open 3 half_open 2",
    );
    check(
        "F F F +30s a3 g99 a5",
        "closed closed open half_open 3 half_open 3",
    );
    check(
        "g5 F g1 F F g7 +30s a5",
        "closed closed closed closed open open half_open 3",
    );
}

#[test]
fn the_permit_of_a_worker_that_died_is_given_out_again() {
    check(
        "F F F +30s a3 +59s a3 +1s a3",
        "closed closed open half_open 3 half_open 0 half_open 3",
    );
    check(
        "F F F +30s a2 +30s a1 +30s a3",
        "closed closed open half_open 2 half_open 1 half_open 2",
    );
}

#[test]
fn a_probe_that_outlived_its_permit_still_tells_but_frees_no_slot_of_others() {
    let mut rig = opened();
    rig.now = rig.now.after(Span::secs(30));
    let slow = rig.admit(3);
    rig.now = rig.now.after(PERMIT);
    assert_eq!(rig.admit(3).calls, 3);
    rig.record(slow.epoch, CallOutcome::Neutral);
    assert_eq!(rig.admit(3).calls, 0, "the others are still under way");
    rig.record(slow.epoch, CallOutcome::Success);
    rig.record(slow.epoch, CallOutcome::Success);
    assert_eq!(
        rig.breaker.phase(&rig.settings, rig.now),
        BreakerPhase::Closed
    );
}

#[test]
fn late_signals_open_and_close_nothing() {
    check(
        "F F F lateF lateS +30s a3 lateF",
        "closed closed open open open half_open 3 half_open",
    );
    check(
        "F F F +30s a3 lateS lateS",
        "closed closed open half_open 3 half_open half_open",
    );
    check(
        "F F F +30s a2 S S lateF lateF lateF",
        "closed closed open half_open 2 half_open closed closed closed closed",
    );
    // A success of a call from before the reset does not end a new series of failures, either.
    check("reset F F lateS F", "closed closed closed closed open");
}

#[test]
fn a_signal_of_an_epoch_that_never_was_changes_nothing() {
    let mut rig = opened();
    rig.now = rig.now.after(Span::secs(30));
    let probe = rig.admit(1);
    let before = rig.breaker.clone();
    rig.record(probe.epoch + 1, CallOutcome::Failure);
    rig.record(u64::MAX, CallOutcome::Failure);
    assert_eq!(rig.breaker, before);
}

#[test]
fn the_rest_of_a_batch_after_a_transition_is_late() {
    let mut rig = Rig::new(BreakerSettings {
        failure_threshold: 2,
        ..BreakerSettings::default()
    });
    let failures = [CallReport {
        epoch: 0,
        outcome: CallOutcome::Failure,
    }; 9];
    rig.breaker.record(&rig.settings, &failures, START);
    let status = rig.breaker.status(&rig.settings, START);
    assert_eq!(
        (status.state, status.failure_count, status.total_calls),
        (BreakerPhase::Open, 2, 2)
    );
    assert_eq!(status.events.len(), 1);
}

#[test]
fn forced_open_it_stays_until_reset() {
    check(
        "force a1 +24h a1 S F reset a9",
        "open 0 open 0 open open closed 9",
    );
    check(
        "F F F force +30s reset",
        "closed closed open open open closed",
    );
    check(
        "F F F +30s a3 force S S",
        "closed closed open half_open 3 open open open",
    );
    let mut breaker = Breaker::default();
    breaker.force_open("by hand", START);
    assert_eq!(
        breaker.admits(&BreakerSettings::default(), START),
        BreakerAdmission::Blocked { until: None }
    );
}

#[test]
fn a_reset_forgets_the_failures_so_far() {
    check("F F reset F F F", "closed closed closed closed closed open");
    check("F F F reset", "closed closed open closed");
    check(
        "F F F +30s a3 reset a9",
        "closed closed open half_open 3 closed 9",
    );
}

#[test]
fn a_clock_set_back_neither_fires_at_once_nor_waits_longer() {
    check(
        "F F F -24h a1 +29s a1 +1s a1",
        "closed closed open open 0 open 0 half_open 1",
    );
    // The permits of probes keep their lifetime.
    check(
        "F F F +30s a3 -24h a3 +59s a3 +1s a3",
        "closed closed open half_open 3 half_open 0 half_open 0 half_open 3",
    );
}

#[test]
fn a_look_at_a_clock_set_back_names_the_whole_wait() {
    let mut rig = opened();
    let back = START.before(Span::hours(24));
    let until = |breaker: &Breaker| breaker.admits(&BreakerSettings::default(), back);
    assert_eq!(
        until(&rig.breaker),
        BreakerAdmission::Blocked {
            until: Some(back.after(Span::secs(30)))
        }
    );
    assert!(
        !rig.breaker.clone().follow_clock(START),
        "nothing to follow"
    );
    assert!(rig.breaker.follow_clock(back));
    assert!(!rig.breaker.follow_clock(back));
    let due = back.after(Span::secs(30));
    assert_eq!(
        rig.breaker.phase(&rig.settings, due),
        BreakerPhase::HalfOpen
    );
}

#[test]
fn whatever_changes_it_follows_the_clock() {
    let back = START.before(Span::hours(24));
    let due = back.after(Span::secs(30));
    let opened = opened();
    let check = |does: &dyn Fn(&mut Breaker)| {
        let mut breaker = opened.breaker.clone();
        assert_eq!(breaker.phase(&opened.settings, due), BreakerPhase::Open);
        does(&mut breaker);
        assert_eq!(breaker.phase(&opened.settings, due), BreakerPhase::HalfOpen);
    };
    check(&|breaker| breaker.record(&opened.settings, &[], back));
    check(&|breaker| breaker.give_back(&opened.settings, 0, 1, back));
    check(&|breaker| assert_eq!(breaker.admit(&opened.settings, 1, back, back).calls, 0));
}

#[test]
fn a_look_at_probes_under_a_clock_set_back_names_the_end_of_their_time() {
    let mut rig = opened();
    rig.step("+30s");
    assert_eq!(rig.step("a3"), "3");
    let back = START.before(Span::hours(24));
    let until = Some(back.after(PERMIT));
    assert_eq!(
        rig.breaker.admits(&rig.settings, back),
        BreakerAdmission::Blocked { until }
    );
}

#[test]
fn permits_of_the_dead_are_not_kept() {
    let mut rig = opened();
    rig.step("+30s");
    for _ in 0..100 {
        assert_eq!(rig.step("a3"), "3");
        rig.step("+1m");
    }
    let BreakerState::HalfOpen { grants, .. } = &rig.breaker.state else {
        panic!("{:?}", rig.breaker)
    };
    assert_eq!(grants.len(), 1);
}

#[test]
fn a_look_says_what_an_admission_would_give() {
    let mut rig = opened();
    let look = |rig: &Rig| rig.breaker.admits(&rig.settings, rig.now);
    assert_eq!(
        look(&rig),
        BreakerAdmission::Blocked {
            until: Some(START.after(Span::secs(30)))
        }
    );
    rig.now = START.after(Span::secs(30));
    for expected in [3, 2, 1] {
        let BreakerAdmission::Probes { epoch, left } = look(&rig) else {
            panic!("{:?}", look(&rig))
        };
        assert_eq!(
            (left, rig.admit(1)),
            (expected, AdmittedCalls { epoch, calls: 1 })
        );
    }
    assert_eq!(
        look(&rig),
        BreakerAdmission::Blocked {
            until: Some(rig.now.after(PERMIT))
        }
    );
    rig.step("S");
    rig.step("S");
    let BreakerAdmission::Unlimited { epoch } = look(&rig) else {
        panic!("{:?}", look(&rig))
    };
    assert_eq!(rig.admit(7), AdmittedCalls { epoch, calls: 7 });
}

#[test]
fn a_permit_lasts_no_longer_than_a_lease_can() {
    let mut rig = opened();
    rig.now = rig.now.after(Span::secs(30));
    rig.breaker
        .admit(&rig.settings, 3, Time::from_micros(i64::MAX), rig.now);
    rig.now = rig.now.after(LEASE_REQUEST_MAX);
    assert_eq!(rig.admit(3).calls, 3);
}

#[test]
fn its_status_tells_it_all() {
    let mut rig = opened();
    rig.admit(4);
    let status = rig.breaker.status(&rig.settings, START);
    assert_eq!(
        (
            status.state,
            status.failure_count,
            status.total_calls,
            status.rejected_calls
        ),
        (BreakerPhase::Open, 5, 5, 4)
    );
    assert_eq!(
        (status.last_failure_time, status.opened_at),
        (Some(START), Some(START))
    );
    assert_eq!(status.next_probe_at, Some(START.after(Span::secs(30))));
    rig.now = START.after(Span::secs(31));
    rig.admit(2);
    rig.step("S");
    let status = rig.breaker.status(&rig.settings, rig.now);
    assert_eq!(
        (status.state, status.success_count, status.total_calls),
        (BreakerPhase::HalfOpen, 1, 6)
    );
    assert_eq!(
        (status.opened_at, status.next_probe_at),
        (Some(START), Some(rig.now))
    );
    rig.step("S");
    let status = rig.breaker.status(&rig.settings, rig.now);
    assert_eq!(
        (status.state, status.failure_count, status.success_count),
        (BreakerPhase::Closed, 0, 0)
    );
    assert_eq!((status.opened_at, status.next_probe_at), (None, None));
    let told: Vec<String> = status
        .events
        .iter()
        .map(|event| format!("{} {}: {}", event.from, event.to, event.why))
        .collect();
    assert_eq!(
        told,
        [
            "closed open: 5 failures in a row",
            "open half_open: 30s have passed",
            "half_open closed: 2 probes succeeded"
        ]
    );
}

#[test]
fn events_and_their_words_are_bounded() {
    let mut breaker = Breaker::default();
    for turn in 0..100 {
        breaker.force_open(&format!("{turn} {}", "x".repeat(10_000)), START);
    }
    let events = breaker.status(&BreakerSettings::default(), START).events;
    assert_eq!(events.len(), BREAKER_EVENTS_MAX);
    assert!(events[0].why.starts_with("80 ") && events[19].why.starts_with("99 "));
    assert!(
        events
            .iter()
            .all(|event| event.why.chars().count() == EVENT_REASON_CHARS_MAX)
    );
}

#[test]
fn settings_that_were_refused_or_changed_halfway_do_not_make_it_stick() {
    let strict = BreakerSettings {
        failure_threshold: 1,
        success_threshold: 9,
        ..BreakerSettings::default()
    };
    check_with(
        strict,
        "F +30s a9 S S S a9 S a1 S a1 S a1 S a1 S a1 S",
        "open half_open 3 half_open half_open half_open 1 half_open 1 half_open 1 half_open 1 half_open 1 half_open 1 closed",
    );
    let nothing = BreakerSettings {
        failure_threshold: 0,
        recovery_timeout: Span::ZERO,
        half_open_max_calls: 0,
        success_threshold: 0,
    };
    check_with(nothing, "S F a2 S", "closed half_open 1 closed");
    let mut rig = Rig::new(BreakerSettings {
        success_threshold: 3,
        ..BreakerSettings::default()
    });
    (0..5).for_each(|_| drop(rig.step("F")));
    rig.step("+30s");
    assert_eq!(
        ["a2", "S", "S"].map(|step| rig.step(step)),
        ["2", "half_open", "half_open"]
    );
    rig.settings = BreakerSettings {
        half_open_max_calls: 2,
        success_threshold: 2,
        ..rig.settings
    };
    assert_eq!(["a9", "S"].map(|step| rig.step(step)), ["1", "closed"]);
}

#[test]
fn settings_are_read_as_written_and_the_rest_is_as_usual() {
    let read = |json| serde_json::from_str::<BreakerSettings>(json).expect("settings");
    assert_eq!(read("{}"), BreakerSettings::default());
    let written = serde_json::to_string(&BreakerSettings::default()).expect("JSON");
    assert_eq!(
        written,
        r#"{"failure_threshold":5,"recovery_timeout":"30s","half_open_max_calls":3,"success_threshold":2}"#
    );
    let own = r#"{"failure_threshold":9,"recovery_timeout":"1500ms","half_open_max_calls":4,"success_threshold":4}"#;
    assert_eq!(serde_json::to_string(&read(own)).expect("JSON"), own);
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_to_write() {
    let check = |json: &str, words: &str| {
        let error = serde_json::from_str::<BreakerSettings>(json)
            .expect_err(json)
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    check(
        r#"{"failure_threshold":0}"#,
        "`failure_threshold` is 0: it would open before anything failed; write",
    );
    check(r#"{"half_open_max_calls":0}"#, "`half_open_max_calls` is 0");
    check(r#"{"success_threshold":0}"#, "`success_threshold` is 0");
    check(r#"{"recovery_timeout":"0s"}"#, "`recovery_timeout` is 0s");
    check(r#"{"recovery_timeout":"25h"}"#, "at most 1d");
    check(r#"{"half_open_max_calls":1001}"#, "write at most 1000");
    check(
        r#"{"success_threshold":4}"#,
        "write a `success_threshold` of at most 3, or `half_open_max_calls` of at least 4",
    );
    check(r#"{"failure_threshold":-1}"#, "invalid value");
    check(r#"{"colour":1}"#, "unknown field `colour`");
}

#[test]
fn bytes_of_another_kind_are_no_breaker_and_fields_of_later_ones_are_borne() {
    assert_eq!(Breaker::from_bytes(b"nonsense"), None);
    assert_eq!(Breaker::from_bytes(b"{}"), Some(Breaker::default()));
    let later =
        br#"{"epoch":3,"colour":"red","state":{"phase":"open","since":"2026-01-01T00:00:00Z","new":1}}"#;
    let breaker = Breaker::from_bytes(later).expect("a breaker");
    assert_eq!(
        (breaker.epoch, breaker.state.phase()),
        (3, BreakerPhase::Open)
    );
}

/// A breaker that five failures opened at the start.
fn opened() -> Rig {
    let mut rig = Rig::new(BreakerSettings::default());
    (0..5).for_each(|_| drop(rig.step("F")));
    assert_eq!(rig.breaker.phase(&rig.settings, START), BreakerPhase::Open);
    rig
}

/// One action of a caller, an operator or the clock.
#[derive(Clone, Debug)]
enum Act {
    Admit { want: u32, lasts: i64 },
    Report { pick: usize, sign: CallOutcome },
    GiveBack { pick: usize },
    Pass(i64),
    SetBack(i64),
    Force,
    Reset,
}

fn sign() -> impl Strategy<Value = CallOutcome> {
    prop_oneof![2 => Just(CallOutcome::Success), 2 => Just(CallOutcome::Failure), 1 => Just(CallOutcome::Neutral)]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1..8_u32, 1..90_000_i64).prop_map(|(want, lasts)| Act::Admit { want, lasts }),
        8 => (any::<usize>(), sign()).prop_map(|(pick, sign)| Act::Report { pick, sign }),
        1 => any::<usize>().prop_map(|pick| Act::GiveBack { pick }),
        4 => (0..40_000_i64).prop_map(Act::Pass),
        1 => (0..100_000_i64).prop_map(Act::SetBack),
        1 => Just(Act::Force),
        1 => Just(Act::Reset),
    ]
}

fn some_settings() -> impl Strategy<Value = BreakerSettings> {
    (1..6_u32, 1..60_000_i64, 1..6_u32, 1..6_u32).prop_map(
        |(failures, recovery, calls, successes)| BreakerSettings {
            failure_threshold: failures,
            recovery_timeout: Span::millis(recovery),
            half_open_max_calls: calls,
            success_threshold: successes.min(calls),
        },
    )
}

/// A call under way: admitted under an epoch, as a probe or without a limit. It counts as dead
/// after its time.
#[derive(Clone, Copy, Debug)]
struct Call {
    epoch: u64,
    is_probe: bool,
    left: Span,
}

/// Realistic callers: they have calls under way, and report each of them once or never.
struct World {
    breaker: Breaker,
    settings: BreakerSettings,
    now: Time,
    calls: Vec<Call>,
}

impl World {
    fn after(settings: BreakerSettings, acts: &[Act]) -> Self {
        let mut world = Self {
            breaker: Breaker::default(),
            settings,
            now: START,
            calls: Vec::new(),
        };
        for act in acts {
            world.does(act);
        }
        world
    }

    fn does(&mut self, act: &Act) {
        match *act {
            Act::Admit { want, lasts } => {
                let lasts = Span::millis(lasts);
                let admitted =
                    self.breaker
                        .admit(&self.settings, want, self.now.after(lasts), self.now);
                let is_probe = self.breaker.state.phase() == BreakerPhase::HalfOpen;
                let call = Call {
                    epoch: admitted.epoch,
                    is_probe,
                    left: lasts,
                };
                self.calls
                    .extend(std::iter::repeat_n(call, admitted.calls as usize));
            }
            Act::Report { pick, sign } if !self.calls.is_empty() => {
                let call = self.calls.remove(pick % self.calls.len());
                self.breaker.record(
                    &self.settings,
                    &[CallReport {
                        epoch: call.epoch,
                        outcome: sign,
                    }],
                    self.now,
                );
            }
            Act::GiveBack { pick } if !self.calls.is_empty() => {
                let call = self.calls.remove(pick % self.calls.len());
                self.breaker
                    .give_back(&self.settings, call.epoch, 1, self.now);
            }
            Act::Report { .. } | Act::GiveBack { .. } => {}
            Act::Pass(millis) => {
                self.now = self.now.after(Span::millis(millis));
                self.calls
                    .iter_mut()
                    .for_each(|call| call.left = call.left.minus(Span::millis(millis)));
            }
            Act::SetBack(millis) => {
                self.now = self.now.before(Span::millis(millis));
                self.breaker.follow_clock(self.now);
            }
            Act::Force => self.breaker.force_open("by hand", self.now),
            Act::Reset => self.breaker.reset("by hand", self.now),
        }
    }

    /// Probes of the current phase that have reported nothing and do not count as dead.
    fn probes_under_way(&self) -> usize {
        let BreakerState::HalfOpen { first_epoch, .. } = self.breaker.state else {
            return 0;
        };
        let of_now =
            |call: &&Call| call.is_probe && call.epoch >= first_epoch && !call.left.is_zero();
        self.calls.iter().filter(of_now).count()
    }
}

proptest! {
    #[test]
    fn it_never_sticks(settings in some_settings(), acts in prop::collection::vec(act(), 0..60)) {
        let mut world = World::after(settings, &acts);
        if matches!(world.breaker.state, BreakerState::Forced { .. }) {
            world.breaker.reset("somebody did", world.now);
        }
        // The service works, all earlier callers are dead, and one worker calls once in a while.
        let long = settings.recovery_timeout.max(Span::secs(90));
        for _ in 0..=settings.success_threshold {
            world.now = world.now.after(long);
            let admitted = world.breaker.admit(&settings, 1, world.now.after(Span::secs(1)), world.now);
            prop_assert_eq!(admitted.calls, 1, "{:?}", world.breaker);
            let success = CallReport { epoch: admitted.epoch, outcome: CallOutcome::Success };
            world.breaker.record(&settings, &[success], world.now);
        }
        prop_assert_eq!(world.breaker.phase(&settings, world.now), BreakerPhase::Closed);
    }

    #[test]
    fn never_more_probes_are_under_way_than_allowed(
        settings in some_settings(), acts in prop::collection::vec(act(), 0..120),
    ) {
        let mut world = World::after(settings, &[]);
        // If a clock is set back by less than the age of a permit, the permit keeps its end, which
        // then comes in less time than its lifetime.
        for act in acts.iter().filter(|act| !matches!(act, Act::SetBack(_))) {
            world.does(act);
            let most = settings.half_open_max_calls as usize;
            prop_assert!(world.probes_under_way() <= most, "{act:?}: {:?}", world.breaker);
        }
    }

    #[test]
    fn late_signals_change_nothing(
        settings in some_settings(), acts in prop::collection::vec(act(), 0..60), sign in sign(),
    ) {
        let mut world = World::after(settings, &acts);
        let first = match world.breaker.state {
            BreakerState::HalfOpen { first_epoch, .. } => first_epoch,
            _ => world.breaker.epoch,
        };
        let before = world.breaker.clone();
        let late: Vec<CallReport> = (0..first).map(|epoch| CallReport { epoch, outcome: sign }).collect();
        world.breaker.record(&settings, &late, world.now);
        prop_assert_eq!(world.breaker, before);
    }

    #[test]
    fn it_opens_at_exactly_so_many_failures_in_a_row(
        threshold in 1..6_u32, signs in prop::collection::vec(sign(), 0..60),
    ) {
        let settings = BreakerSettings { failure_threshold: threshold, ..BreakerSettings::default() };
        let mut breaker = Breaker::default();
        let mut in_a_row = 0;
        for sign in signs {
            breaker.record(&settings, &[CallReport { epoch: 0, outcome: sign }], START);
            in_a_row = match sign {
                CallOutcome::Success => 0,
                CallOutcome::Failure => in_a_row + 1,
                CallOutcome::Neutral => in_a_row,
            };
            prop_assert_eq!(breaker.status(&settings, START).failure_count, in_a_row);
            let expected = if in_a_row == threshold { BreakerPhase::Open } else { BreakerPhase::Closed };
            prop_assert_eq!(breaker.phase(&settings, START), expected);
            if in_a_row == threshold {
                break;
            }
        }
    }

    #[test]
    fn one_record_of_many_is_many_of_one(
        settings in some_settings(), acts in prop::collection::vec(act(), 0..60),
        signals in prop::collection::vec((0..30_u64, sign()), 0..20),
    ) {
        let world = World::after(settings, &acts);
        let signals: Vec<CallReport> = signals
            .into_iter()
            .map(|(behind, sign)| CallReport { epoch: world.breaker.epoch.saturating_sub(behind / 8), outcome: sign })
            .collect();
        let (mut at_once, mut singly) = (world.breaker.clone(), world.breaker.clone());
        at_once.record(&settings, &signals, world.now);
        for signal in signals {
            singly.record(&settings, &[signal], world.now);
        }
        prop_assert_eq!(at_once, singly);
    }

    #[test]
    fn a_change_of_phase_raises_the_epoch(
        settings in some_settings(), acts in prop::collection::vec(act(), 0..60),
    ) {
        let mut world = World::after(settings, &[]);
        for act in &acts {
            let (epoch, phase) = (world.breaker.epoch, world.breaker.state.phase());
            world.does(act);
            prop_assert!(world.breaker.epoch >= epoch);
            if world.breaker.state.phase() != phase {
                prop_assert!(world.breaker.epoch > epoch);
            }
        }
    }

    #[test]
    fn a_breaker_reads_back_as_written(
        settings in some_settings(), acts in prop::collection::vec(act(), 0..60),
    ) {
        let breaker = World::after(settings, &acts).breaker;
        prop_assert_eq!(Breaker::from_bytes(&breaker.to_bytes()), Some(breaker));
    }
}
