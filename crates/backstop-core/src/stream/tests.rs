//! The rules of streams, one test per rule. A script lists what arrives when; the expectation is
//! the output of a replay.

mod outage;
mod properties;
mod recovery;

use super::replay::{Replay, ReplayEffect, ReplayLine, ReplaySummary};
use super::*;
use crate::name::StreamKey;
use crate::retry::RetryPolicy;
use crate::time::Span;

fn rules(change: impl FnOnce(&mut StreamRules)) -> StreamRules {
    let retry = r#"{"kind":"steps","delays":["1s","5s"],"max_attempts":3}"#;
    let retry: RetryPolicy = serde_json::from_str(retry).unwrap();
    let mut rules = StreamRules {
        retry,
        ..StreamRules::default()
    };
    change(&mut rules);
    rules.check().unwrap();
    rules
}

/// Plays `script`: seconds, key and position in minutes, or an event; then the other fields of the
/// line.
fn play(rules: StreamRules, script: &[&str]) -> (Vec<ReplayEffect>, ReplaySummary) {
    let mut replay = Replay::new(rules);
    let mut effects = Vec::new();
    for line in script {
        let (at, rest) = line.split_once(' ').unwrap();
        let at_ms = (at.parse::<f64>().unwrap() * 1000.0) as i64;
        let mut words = rest.split(' ');
        let json = match (words.next().unwrap(), words.next()) {
            (event @ ("store_down" | "store_up"), None) => {
                format!(r#"{{"at_ms":{at_ms},"event":"{event}"}}"#)
            }
            (key, Some(event @ ("forget" | "disable" | "enable"))) => {
                format!(r#"{{"at_ms":{at_ms},"key":"{key}","event":"{event}"}}"#)
            }
            (key, Some(minutes)) => {
                let position = (minutes.parse::<f64>().unwrap() * 60_000.0) as i64;
                let more: Vec<&str> = std::iter::once("").chain(words).collect();
                let more = more.join(",");
                format!(r#"{{"at_ms":{at_ms},"key":"{key}","position":{position}{more}}}"#)
            }
            other => panic!("{other:?}"),
        };
        effects.extend(
            replay
                .play(ReplayLine::parse(&json, Some(60_000)).unwrap())
                .unwrap(),
        );
    }
    let (rest, summary) = replay.finish();
    effects.extend(rest);
    (effects, summary)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the numbers of a script are small"
)]
/// `10 held 2`: second, effect, minute; a range `10 miss_range 1-4`; a wait `10 wait 30#2` with its
/// end and its number.
fn told(effect: &ReplayEffect) -> String {
    let minutes = |position: i64| format!("{}", position as f64 / 60_000.0);
    let seconds = |ms: i64| format!("{}", ms as f64 / 1_000.0);
    let what = match (effect.until_ms, effect.to) {
        (Some(until), _) => format!("{}#{}", seconds(until), effect.attempt.unwrap()),
        (None, Some(to)) => format!("{}-{}", minutes(effect.position.unwrap()), minutes(to)),
        (None, None) => effect.position.map_or("-".to_owned(), minutes),
    };
    format!("{} {} {what}", seconds(effect.at_ms), effect.effect)
}

fn check(rules: StreamRules, script: &[&str], expected: &[&str]) -> ReplaySummary {
    let (effects, summary) = play(rules, script);
    let effects: Vec<String> = effects.iter().map(told).collect();
    assert_eq!(effects, expected, "{script:?}");
    assert_eq!(
        summary.added - summary.removed,
        summary.held,
        "added less removed is held"
    );
    summary
}

fn watermark(summary: &ReplaySummary) -> i64 {
    summary.watermarks[&StreamKey::new("a").unwrap()]
}

fn usual() -> StreamRules {
    rules(|_| {})
}

#[test]
fn the_first_record_is_the_baseline() {
    let summary = check(usual(), &["0 a 500"], &["0 handled 500"]);
    assert_eq!(
        (summary.misses, summary.added, watermark(&summary)),
        (0, 0, 30_000_000)
    );
}

#[test]
fn the_next_position_is_handled_at_once() {
    let summary = check(
        usual(),
        &["0 a 1", "60 a 2", "120 a 3"],
        &["0 handled 1", "60 handled 2", "120 handled 3"],
    );
    assert_eq!(
        (summary.handled, summary.added, summary.task_scheduled),
        (3, 0, 0)
    );
}

#[test]
fn at_or_below_the_watermark_is_a_duplicate() {
    let summary = check(
        usual(),
        &["0 a 2", "1 a 2", "2 a 1"],
        &["0 handled 2", "1 duplicate 2", "2 duplicate 1"],
    );
    assert_eq!(
        (summary.duplicates, summary.late, watermark(&summary)),
        (2, 0, 120_000)
    );
    assert_eq!(summary.off_step, 0, "both are on the grid");
}

#[test]
fn a_duplicate_off_the_grid_is_told_and_counted_apart() {
    let (effects, summary) = play(usual(), &["0 a 1", "1 a 3 \"step_ms\":300000", "2 a 2.5"]);
    assert_eq!(
        effects.iter().map(told).collect::<Vec<_>>(),
        ["0 handled 1", "1 handled 3", "2 duplicate 2.5"]
    );
    assert_eq!(
        effects[2].off_step, None,
        "of another step, so that nobody knows"
    );
    assert_eq!(summary.off_step, 0);

    let step = r#""step_ms":300000"#;
    let script =
        ["0 a 1", "1 a 3", "2 a 2", "3 a 3", "4 a -2"].map(|line| format!("{line} {step}"));
    let (effects, summary) = play(usual(), &script.each_ref().map(String::as_str));
    let off = |minute: i64, from: i64| {
        Some(OffStep {
            position: minute * 60_000,
            step: 300_000,
            from: from * 60_000,
        })
    };
    assert_eq!(
        effects[1].off_grid,
        off(3, 1),
        "handled: {}",
        told(&effects[1])
    );
    assert_eq!(
        effects[2].off_step,
        off(2, 3),
        "a duplicate: {}",
        told(&effects[2])
    );
    assert_eq!(
        (effects[3].off_step, effects[4].off_step),
        (None, None),
        "on the grid"
    );
    assert_eq!(
        (summary.handled, summary.duplicates, summary.off_step),
        (2, 3, 1)
    );
    let json = serde_json::to_value(&effects[2]).unwrap();
    assert_eq!(json["off_step"]["from"], 180_000);
    assert_eq!(json["effect"], "duplicate");
}

#[test]
fn a_gap_holds_and_its_record_releases_the_run_at_once() {
    let expected = [
        "0 handled 1",
        "5 held 3",
        "5 wait 15#1",
        "6 held 4",
        "8 handled 2",
        "8 handled 3",
        "8 handled 4",
        "8 cleared 4",
    ];
    let summary = check(usual(), &["0 a 1", "5 a 3", "6 a 4", "8 a 2"], &expected);
    assert_eq!(
        (
            summary.added,
            summary.removed,
            summary.task_scheduled,
            summary.cleared
        ),
        (3, 3, 1, 1)
    );
    assert_eq!(
        (summary.misses, summary.rescheduling, summary.timeout),
        (0, 0, 0)
    );
}

#[test]
fn the_worked_example_of_the_document_drains_at_the_second_look() {
    // 4:01 arrives while 4:00 is expected; 4:00 arrives between the ends of the first and the
    // second wait.
    let scheduled = rules(|rules| rules.drain = DrainMode::Scheduled);
    let script = ["0 a 239", "0 a 241", "15 a 240"];
    let expected = [
        "0 handled 239",
        "0 held 241",
        "0 wait 10#1",
        "10 wait 30#2",
        "15 held 240",
        "30 handled 240",
        "30 handled 241",
        "30 cleared 241",
    ];
    let summary = check(scheduled, &script, &expected);
    assert_eq!(
        (
            summary.misses,
            summary.cleared,
            summary.rescheduling,
            summary.added
        ),
        (0, 1, 1, 2)
    );
}

#[test]
fn after_the_last_wait_all_is_handled_with_misses() {
    let expected = [
        "0 handled 1",
        "0 held 4",
        "0 wait 10#1",
        "10 wait 30#2",
        "30 wait 60#3",
        "60 wait 120#4",
        "120 wait 180#5",
        "180 timeout 4",
        "180 miss 2",
        "180 miss 3",
        "180 handled 4",
    ];
    let summary = check(usual(), &["0 a 1", "0 a 4"], &expected);
    assert_eq!(
        (
            summary.timeout,
            summary.cleared,
            summary.rescheduling,
            summary.misses
        ),
        (1, 0, 4, 2)
    );
}

#[test]
fn progress_starts_the_wait_anew() {
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 held 6",
        "10 wait 30#2",
        "12 handled 2",
        "12 handled 3",
        "12 wait 22#1",
        "22 wait 42#2",
        "30 handled 4",
        "30 wait 40#1",
        "31 handled 5",
        "31 handled 6",
        "31 cleared 6",
    ];
    check(
        usual(),
        &["0 a 1", "0 a 3", "1 a 6", "12 a 2", "30 a 4", "31 a 5"],
        &expected,
    );
}

#[test]
fn a_full_hold_is_drained_at_once_and_its_wake_up_finds_nothing() {
    let three = rules(|rules| rules.max_held = 3);
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 held 5",
        "2 held 6",
        "2 overflow 3",
        "2 miss 2",
        "2 handled 3",
        "2 miss 4",
        "2 handled 5",
        "2 handled 6",
    ];
    let summary = check(three, &["0 a 1", "0 a 3", "1 a 5", "2 a 6"], &expected);
    assert_eq!(
        (
            summary.circuit_breaker,
            summary.cleared,
            summary.timeout,
            summary.rescheduling
        ),
        (1, 0, 0, 0)
    );
}

#[test]
fn the_record_that_fills_the_gap_comes_before_overflow() {
    let two = rules(|rules| rules.max_held = 2);
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 handled 2",
        "1 handled 3",
        "1 cleared 3",
    ];
    assert_eq!(
        check(two, &["0 a 1", "0 a 3", "1 a 2"], &expected).circuit_breaker,
        0
    );
}

#[test]
fn at_most_so_many_misses_one_by_one_and_the_rest_as_a_range() {
    let two = rules(|rules| (rules.max_misses, rules.steps) = (2, vec![Span::secs(10)]));
    let expected = [
        "0 handled 1",
        "0 held 7",
        "0 wait 10#1",
        "1 held 10",
        "10 timeout 7",
        "10 miss 2",
        "10 miss 3",
        "10 miss_range 4-6",
        "10 handled 7",
        "10 miss 8",
        "10 miss 9",
        "10 handled 10",
    ];
    assert_eq!(
        check(two, &["0 a 1", "0 a 7", "1 a 10"], &expected).misses,
        7
    );
    let none = rules(|rules| (rules.max_misses, rules.max_held) = (0, 1));
    check(
        none,
        &["0 a 1", "0 a 3"],
        &[
            "0 handled 1",
            "0 held 3",
            "0 overflow 3",
            "0 miss_range 2-2",
            "0 handled 3",
        ],
    );
}

#[test]
fn no_record_is_held_for_longer_than_hold_for() {
    let short = rules(|rules| rules.hold_for = Span::secs(25));
    // Each progress starts the wait anew, but no record is held longer than `hold_for`.
    let script = ["0 a 1", "0 a 9", "9 a 2", "18 a 3"];
    let expected = [
        "0 handled 1",
        "0 held 9",
        "0 wait 10#1",
        "9 handled 2",
        "9 wait 19#1",
        "18 handled 3",
        "18 wait 25#1",
        "25 timeout 9",
        "25 miss 4",
        "25 miss 5",
        "25 miss 6",
        "25 miss 7",
        "25 miss 8",
        "25 handled 9",
    ];
    assert_eq!(check(short, &script, &expected).timeout, 1);
}

#[test]
fn a_late_record_is_dropped_and_is_no_duplicate() {
    let one = rules(|rules| rules.max_held = 1);
    let script = ["0 a 1", "0 a 3", "5 a 2", "6 a 3"];
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 overflow 3",
        "0 miss 2",
        "0 handled 3",
        "5 late 2",
        "6 duplicate 3",
    ];
    let summary = check(one, &script, &expected);
    assert_eq!((summary.late, summary.duplicates), (1, 1));
}

#[test]
fn a_late_record_amends_its_miss_once() {
    let amend = rules(|rules| (rules.max_held, rules.late) = (1, LatePolicy::Amend));
    let script = ["0 a 1", "0 a 3", "5 a 2", "6 a 2"];
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 overflow 3",
        "0 miss 2",
        "0 handled 3",
        "5 amended 2",
        "6 duplicate 2",
    ];
    let summary = check(amend, &script, &expected);
    assert_eq!(
        (summary.late, summary.duplicates, summary.handled),
        (1, 1, 2)
    );
}

#[test]
fn between_watermark_and_step_is_handled_and_the_grid_goes_on_from_it() {
    check(
        usual(),
        &["0 a 1", "1 a 1.5", "2 a 2.5"],
        &["0 handled 1", "1 handled 1.5", "2 handled 2.5"],
    );
}

#[test]
fn off_the_grid_by_one_and_a_half_makes_no_miss_and_by_two_and_a_half_makes_one() {
    let one = || rules(|rules| rules.steps = vec![Span::secs(10)]);
    let expected = [
        "0 handled 1",
        "0 held 2.5",
        "0 wait 10#1",
        "10 timeout 2.5",
        "10 handled 2.5",
    ];
    check(one(), &["0 a 1", "0 a 2.5"], &expected);
    let expected = [
        "0 handled 1",
        "0 held 3.5",
        "0 wait 10#1",
        "10 timeout 3.5",
        "10 miss 2",
        "10 handled 3.5",
    ];
    check(one(), &["0 a 1", "0 a 3.5"], &expected);
}

#[test]
fn a_gap_that_spans_a_change_of_step_makes_no_misses() {
    let one = || rules(|rules| rules.steps = vec![Span::secs(10)]);
    let script = [
        "0 a 1",
        "0 a 11 \"step_ms\":300000",
        "20 a 16 \"step_ms\":300000",
    ];
    let expected = [
        "0 handled 1",
        "0 held 11",
        "0 wait 10#1",
        "10 timeout 11",
        "10 handled 11",
        "20 handled 16",
    ];
    assert_eq!(check(one(), &script, &expected).misses, 0);
    // A record with a changed step is in order if it is one new step away.
    check(
        one(),
        &["0 a 1", "0 a 6 \"step_ms\":300000"],
        &["0 handled 1", "0 handled 6"],
    );
}

#[test]
fn of_two_records_for_one_position_the_first_wins_held_or_not() {
    let script = ["0 a 1", "0 a 3", "1 a 3", "2 a 2", "3 a 3"];
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 duplicate 3",
        "2 handled 2",
        "2 handled 3",
        "2 cleared 3",
        "3 duplicate 3",
    ];
    assert_eq!(check(usual(), &script, &expected).duplicates, 2);
}

#[test]
fn keys_do_not_wait_for_each_other() {
    let script = ["0 a 1", "0 b 1", "1 a 3", "2 b 2", "3 a 2"];
    let expected = [
        "0 handled 1",
        "0 handled 1",
        "1 held 3",
        "1 wait 11#1",
        "2 handled 2",
        "3 handled 2",
        "3 handled 3",
        "3 cleared 3",
    ];
    check(usual(), &script, &expected);
}

#[test]
fn a_key_that_is_switched_off_is_handled_at_once_with_misses() {
    let some = rules(|rules| {
        rules.rollout = Rollout {
            percent: 0.0,
            include: vec!["on".into()],
            exclude: vec![],
        }
    });
    let script = [
        "0 a 1",
        "0 a 4",
        "0 b 1 \"tenant\":\"on\"",
        "0 b 3 \"tenant\":\"on\"",
        "1 b 2 \"tenant\":\"on\"",
    ];
    let expected = [
        "0 handled 1",
        "0 miss 2",
        "0 miss 3",
        "0 handled 4",
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 handled 2",
        "1 handled 3",
        "1 cleared 3",
    ];
    assert_eq!(check(some, &script, &expected).misses, 2);
}

#[test]
fn a_forgotten_key_begins_anew_and_what_it_held_is_counted() {
    let script = ["0 a 1", "0 a 3", "1 a forget", "2 a 9"];
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 forgotten 1",
        "2 handled 9",
    ];
    let summary = check(usual(), &script, &expected);
    assert_eq!((summary.added, summary.removed, summary.cleared), (1, 1, 0));
}

#[test]
fn a_disabled_key_ignores_its_records_until_it_is_enabled() {
    let script = [
        "0 a 1",
        "0 a 3",
        "1 a disable",
        "2 a 2",
        "3 a enable",
        "4 a 8",
    ];
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "1 forgotten 1",
        "4 handled 8",
    ];
    let summary = check(usual(), &script, &expected);
    assert_eq!(
        (summary.handled, summary.held, watermark(&summary)),
        (2, 0, 480_000)
    );
}

#[test]
fn without_the_store_records_are_handled_at_once_with_misses_and_what_is_held_stays() {
    let script = [
        "0 a 1",
        "0 a 6",
        "5 store_down",
        "6 a 3",
        "7 a 2",
        "8 store_up",
        "9 a 4",
        "10 a 5",
    ];
    let expected = [
        "0 handled 1",
        "0 held 6",
        "0 wait 10#1",
        "6 miss 2",
        "6 handled 3",
        "7 late 2",
        "9 handled 4",
        "9 wait 19#1",
        "10 handled 5",
        "10 handled 6",
        "10 cleared 6",
    ];
    check(usual(), &script, &expected);
}

#[test]
fn what_the_outage_overtook_does_not_block_the_key() {
    let script = [
        "0 a 1",
        "0 a 3",
        "5 store_down",
        "6 a 4",
        "8 store_up",
        "9 a 5",
    ];
    let expected = [
        "0 handled 1",
        "0 held 3",
        "0 wait 10#1",
        "6 miss 2",
        "6 miss 3",
        "6 handled 4",
        "8 late 3",
        "8 cleared 4",
        "9 handled 5",
    ];
    let summary = check(usual(), &script, &expected);
    assert_eq!((summary.added, summary.removed, summary.late), (1, 1, 1));
}

#[test]
fn a_failing_record_blocks_its_key_and_is_tried_again() {
    let script = ["0 a 1", "0 a 2 \"fail\":2", "0.5 a 3", "0.5 b 1"];
    let expected = [
        "0 handled 1",
        "0 wait 1#1",
        "0.5 held 3",
        "0.5 handled 1",
        "1 wait 6#2",
        "6 handled 2",
        "6 handled 3",
        "6 cleared 3",
    ];
    let summary = check(usual(), &script, &expected);
    assert_eq!((summary.added, summary.removed, summary.handled), (2, 2, 4));
}

#[test]
fn a_blocked_key_gives_nothing_up() {
    let tight = rules(|rules| (rules.max_held, rules.hold_for) = (2, Span::secs(2)));
    let script = ["0 a 1", "0 a 2 \"fail\":2", "0.5 a 5", "0.6 a 6", "0.7 a 7"];
    let (effects, summary) = play(tight, &script);
    let overflow = effects
        .iter()
        .position(|effect| effect.effect == "overflow")
        .unwrap();
    let handled = effects
        .iter()
        .position(|effect| effect.position == Some(120_000) && effect.effect == "handled");
    assert!(handled.unwrap() < overflow, "{effects:?}");
    assert_eq!((summary.misses, summary.handled, summary.held), (2, 5, 0));
}

#[test]
fn a_record_that_fails_for_good_is_passed() {
    let script = ["0 a 1", "0 a 2 \"fail\":9", "1 a 3", "10 a 2"];
    let expected = [
        "0 handled 1",
        "0 wait 1#1",
        "1 wait 6#2",
        "1 held 3",
        "6 dead 2",
        "6 handled 3",
        "6 cleared 3",
        "10 duplicate 2",
    ];
    assert_eq!(check(usual(), &script, &expected).handled, 2);
}

#[test]
fn a_halted_key_holds_everything_until_somebody_acts() {
    let halt = rules(|rules| (rules.on_dead, rules.max_held) = (DeadRecordPolicy::Halt, 2));
    let script = [
        "0 a 1",
        "0 a 2 \"fail\":9",
        "10 a 3",
        "11 a 5",
        "12 a 6",
        "9999 b 1",
    ];
    let expected = [
        "0 handled 1",
        "0 wait 1#1",
        "1 wait 6#2",
        "6 dead 2",
        "10 held 3",
        "11 held 5",
        "12 held 6",
        "9999 handled 1",
    ];
    let summary = check(halt, &script, &expected);
    assert_eq!(
        (summary.held, watermark(&summary), summary.circuit_breaker),
        (4, 60_000, 0)
    );
}
