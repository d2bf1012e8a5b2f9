use super::*;
use crate::breaker::{BreakerSettings, CallOutcome};
use crate::limits::DEATHS_PARTS;
use crate::time::Span;
use proptest::prelude::*;

/// A whole minute, so that buckets begin with it.
const START: Time = Time::from_millis(1_700_000_040_000);

/// A gate, a clock, and the epoch of the latest probes.
struct Rig {
    gate: Gate,
    settings: GateSettings,
    now: Time,
    epoch: u64,
}

impl Rig {
    /// A gate that ten deaths within a minute shut.
    fn new() -> Self {
        let settings = GateSettings {
            deaths: 10,
            ..GateSettings::default()
        };
        Self {
            gate: Gate::default(),
            settings,
            now: START,
            epoch: 0,
        }
    }

    /// Does one step and returns its result: the number of admitted runs, or why the gate is shut.
    fn step(&mut self, step: &str) -> String {
        let (gate, settings, now) = (&mut self.gate, &self.settings, self.now);
        let record = |gate: &mut Gate, sign| {
            gate.record(
                settings,
                &[CallReport {
                    epoch: self.epoch,
                    outcome: sign,
                }],
                now,
            );
        };
        match step.split_at(1) {
            ("d", count) => gate.record_deaths(settings, count.parse().expect("a number"), now),
            ("f", "ull") => gate.record_no_room(now),
            ("r", "oom") => gate.record_room(now),
            ("S", "") => record(gate, CallOutcome::Success),
            ("F", "") => record(gate, CallOutcome::Failure),
            ("N", "") => record(gate, CallOutcome::Neutral),
            ("a", want) => {
                let want = want.parse().expect("a number");
                let admitted = gate.admit(settings, want, now.after(Span::minutes(1)), now);
                self.epoch = admitted.epoch;
                return admitted.calls.to_string();
            }
            ("g", calls) => {
                gate.give_back(settings, self.epoch, calls.parse().expect("a number"), now);
            }
            ("+", span) => self.now = now.after(span.parse().expect("a span")),
            ("-", span) => self.now = now.before(span.parse().expect("a span")),
            ("h", "and") => gate.force_shut("by hand", now),
            ("z", "ero") => gate.reset("by hand", now),
            _ => panic!("{step} is no step"),
        }
        self.gate.shut().map_or("-", ShutReason::as_str).to_owned()
    }
}

/// Checks the result of every step; `-` means that the gate is not shut.
fn check(steps: &str, expected: &str) {
    let mut rig = Rig::new();
    let answers: Vec<String> = steps
        .split_whitespace()
        .map(|step| rig.step(step))
        .collect();
    assert_eq!(answers.join(" "), expected, "{steps}");
}

#[test]
fn it_is_open_to_begin_with() {
    check("a5 d0 room", "5 - -");
}

#[test]
fn too_many_deaths_shut_it() {
    check("d9 a1 d1 a1", "- 1 deaths 0");
    check("d999", "deaths");
    check("d5 +30s d4 +30s d1", "- - - - deaths");
    check("d5 +30s d4 +31s d5", "- - - - -");
}

#[test]
fn deaths_of_a_single_run_of_bad_luck_are_forgotten_in_time() {
    check("d9 +2m d9 +2m d9", "- - - - -");
}

#[test]
fn shut_by_deaths_it_stays_shut_for_its_time_and_room_does_not_help() {
    check(
        "d10 room a1 +59s a1 +1s a5",
        "deaths deaths 0 deaths 0 deaths 3",
    );
}

#[test]
fn probes_that_did_not_die_reopen_it() {
    check("d10 +60s a3 S S a9", "deaths deaths 3 deaths - 9");
    check(
        "d10 +60s a1 N a1 g1 a3 S S",
        "deaths deaths 1 deaths 1 deaths 3 deaths -",
    );
}

#[test]
fn a_probe_that_died_shuts_it_for_the_whole_time_again() {
    check(
        "d10 +60s a3 S F +59s a1 +1s a1",
        "deaths deaths 3 deaths deaths deaths 0 deaths 1",
    );
}

#[test]
fn reopened_it_has_forgotten_the_deaths_that_shut_it() {
    check(
        "d10 +60s a2 d9 S S d9 d1",
        "deaths deaths 2 deaths deaths - - deaths",
    );
}

#[test]
fn a_full_store_shuts_it_at_once_and_room_reopens_it_at_once() {
    check("full a1 room a9", "full 0 - 9");
    check("full full +60s a3 S S", "full full full 3 full -");
    check("full +60s a3 full +59s a1", "full full 3 full full 0");
    check("full +59s full +1s a1", "full full full full 1");
}

#[test]
fn room_does_not_excuse_deaths() {
    check("d9 full room d1", "- full - deaths");
    check("full d10 room", "full deaths deaths");
    check("d10 full room", "deaths deaths deaths");
    check(
        "d10 +60s a3 full room a1",
        "deaths deaths 3 deaths deaths 0",
    );
    check(
        "d9 full +30s a9 +30s a2 S S d1",
        "- full full 0 full 2 full - deaths",
    );
}

#[test]
fn shut_by_hand_it_stays_until_reset() {
    check(
        "hand full d99 room +24h a1 zero a1 d9",
        "forced forced forced forced forced 0 - 1 -",
    );
    check(
        "d10 hand +60s a1 zero d9 d1",
        "deaths forced forced 0 - - deaths",
    );
}

#[test]
fn runs_through_an_open_gate_are_not_probes() {
    check("a9 F F F F F F F a9", "9 - - - - - - - 9");
}

#[test]
fn a_clock_set_back_keeps_deaths_for_their_time_and_no_longer() {
    check("d9 -24h d1", "- - deaths");
    check("d8 -24h d1 +62s d9", "- - - - -");
    check("d10 -24h a1 +60s a1", "deaths deaths 0 deaths 1");
}

#[test]
fn its_status_tells_it_all() {
    let mut rig = Rig::new();
    rig.step("d10");
    let status = rig.gate.status(&rig.settings, rig.now);
    assert_eq!(
        (status.shut, status.deaths, status.breaker.state),
        (Some(ShutReason::Deaths), 10, BreakerPhase::Open)
    );
    assert_eq!(
        status.breaker.next_probe_at,
        Some(START.after(Span::secs(60)))
    );
    assert_eq!(status.breaker.events[0].why, "10 deaths within 1m");
    let shape = serde_json::to_value(&status).expect("JSON");
    assert_eq!(
        (&shape["shut"], &shape["state"]),
        (&"deaths".into(), &"open".into())
    );
    assert_eq!(
        rig.gate
            .status(&rig.settings, START.after(Span::secs(62)))
            .deaths,
        0
    );
}

#[test]
fn settings_are_read_as_written_and_the_rest_is_as_usual() {
    let read = |json| serde_json::from_str::<GateSettings>(json).expect("settings");
    assert_eq!(read("{}"), GateSettings::default());
    let own = read(r#"{"deaths":7,"breaker":{"success_threshold":3}}"#);
    let breaker = BreakerSettings {
        failure_threshold: 5,
        recovery_timeout: Span::secs(60),
        half_open_max_calls: 3,
        success_threshold: 3,
    };
    assert_eq!(
        own,
        GateSettings {
            deaths: 7,
            within: Span::minutes(1),
            breaker
        }
    );
    assert_eq!(read(&serde_json::to_string(&own).expect("JSON")), own);
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_to_write() {
    let check = |json: &str, words: &str| {
        let error = serde_json::from_str::<GateSettings>(json)
            .expect_err(json)
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    check(r#"{"deaths":0}"#, "`deaths` is 0");
    check(r#"{"within":"999ms"}"#, "counted over 1s to 1d");
    check(r#"{"within":"25h"}"#, "`within` is 25h");
    check(
        r#"{"breaker":{"success_threshold":4}}"#,
        "the gate's breaker: `success_threshold` is 4",
    );
    check(r#"{"colour":1}"#, "unknown field");
    check(r#"{"breaker":{"colour":1}}"#, "unknown field");
}

#[test]
fn nodes_that_disagree_about_the_time_do_not_make_it_grow() {
    for others in [
        Span::secs(1),
        Span::secs(50),
        Span::secs(60),
        Span::hours(24),
    ] {
        let (mut gate, mut now) = (Gate::default(), START);
        for turn in 0..5_000_u32 {
            now = now.after(Span::millis(110));
            gate.deaths.add(
                1,
                if turn % 3 == 0 {
                    others
                } else {
                    Span::minutes(1)
                },
                now,
            );
            if turn % 50 > 2 {
                continue;
            }
            let parts = serde_json::to_value(&gate.deaths)
                .expect("JSON")
                .as_array()
                .map_or(0, Vec::len);
            assert!(
                parts <= 2 * (DEATHS_PARTS as usize + 1),
                "{others}: {parts}"
            );
        }
    }
}

#[test]
fn no_death_is_no_news() {
    let mut rig = Rig::new();
    rig.step("d9");
    let before = rig.gate.clone();
    rig.step("+1s");
    rig.step("d0");
    assert_eq!(rig.gate, before);
}

/// Checks a gate after its two probes died.
fn check_probes_died(shut: &str, had_room: bool, expected: Option<ShutReason>) {
    let mut rig = Rig::new();
    for step in [shut, "+60s", "a2"] {
        rig.step(step);
    }
    let mut news = GateUpdate::default();
    for _ in 0..2 {
        news.record_death(Some(rig.epoch), had_room);
    }
    rig.gate.apply_update(&rig.settings, &news, rig.now);
    assert_eq!(rig.gate.shut(), expected, "{shut}, room: {had_room}");
}

#[test]
fn a_probe_whose_death_finds_room_is_a_success_where_room_lacked() {
    check_probes_died("full", true, None);
    check_probes_died("full", false, Some(ShutReason::Full));
    check_probes_died("d10", true, Some(ShutReason::Deaths));
}

#[test]
fn a_gate_hears_of_deaths_refusals_and_probes_that_lived() {
    let mut rig = Rig::new();
    rig.gate.apply_update(
        &rig.settings,
        &GateUpdate {
            deaths: 10,
            ..GateUpdate::default()
        },
        rig.now,
    );
    assert_eq!(rig.gate.shut(), Some(ShutReason::Deaths));
    rig.step("+60s");
    rig.step("a2");
    let mut news = GateUpdate::default();
    for _ in 0..2 {
        news.record_survival(CallReport {
            epoch: rig.epoch,
            outcome: CallOutcome::Success,
        });
    }
    rig.gate.apply_update(&rig.settings, &news, rig.now);
    assert_eq!(rig.gate.shut(), None);
    rig.gate.apply_update(
        &rig.settings,
        &GateUpdate {
            is_refused: true,
            ..GateUpdate::default()
        },
        rig.now,
    );
    assert_eq!(rig.gate.shut(), Some(ShutReason::Full));
}

proptest! {
    #[test]
    fn deaths_count_for_their_time_to_one_part(
        within in 1_000..100_000_i64,
        deaths in prop::collection::vec((0..20_000_i64, 1..5_u32), 1..100),
    ) {
        let settings = GateSettings { deaths: u32::MAX, within: Span::millis(within), ..GateSettings::default() };
        let part = Span::micros(settings.within.as_micros() / 60 + 1);
        let (mut gate, mut now) = (Gate::default(), START);
        let mut all: Vec<(Time, u64)> = Vec::new();
        for (pass, count) in deaths {
            now = now.after(Span::millis(pass));
            gate.record_deaths(&settings, count, now);
            all.push((now, u64::from(count)));
            let young = |than: Span| {
                all.iter().filter(|(at, _)| now.since(*at) <= than).map(|(_, count)| count).sum::<u64>()
            };
            let counted = gate.status(&settings, now).deaths;
            prop_assert!(young(settings.within) <= counted, "all within the time count");
            prop_assert!(counted <= young(settings.within.plus(part)), "no death counts a part too long");
        }
    }

    #[test]
    fn it_shuts_at_exactly_so_many_deaths(limit in 1..50_u32, deaths in prop::collection::vec(1..10_u32, 0..40)) {
        let settings = GateSettings { deaths: limit, ..GateSettings::default() };
        let mut gate = Gate::default();
        let mut sum = 0;
        for count in deaths {
            gate.record_deaths(&settings, count, START);
            sum += count;
            prop_assert_eq!(gate.shut(), (sum >= limit).then_some(ShutReason::Deaths));
        }
    }

    #[test]
    fn it_never_sticks_and_reads_back_as_written(
        steps in prop::collection::vec(
            prop::sample::select(vec!["d1", "d9", "full", "room", "S", "F", "N", "a1", "a3", "g1", "+10s", "+60s", "-1h"]),
            0..60,
        ),
    ) {
        let mut rig = Rig::new();
        for step in steps {
            rig.step(step);
            // A gate admits everything if, and only if, it is not shut.
            let is_free = matches!(rig.gate.admits(&rig.settings, rig.now), BreakerAdmission::Unlimited { .. });
            prop_assert_eq!(is_free, rig.gate.shut().is_none());
            prop_assert_eq!(Gate::from_bytes(&rig.gate.to_bytes()), Some(rig.gate.clone()));
        }
        rig.gate.follow_clock(rig.now);
        for _ in 0..3 {
            rig.step("+60s");
            prop_assert_eq!(rig.step("a1"), "1");
            rig.step("S");
        }
        prop_assert_eq!(rig.gate.shut(), None);
    }
}
