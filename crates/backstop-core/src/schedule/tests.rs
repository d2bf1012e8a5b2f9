mod clocks;
mod race;
mod zones;

use super::*;
use crate::limits::{CELL_BYTES_MAX, TRIGGERED_MAX};
use serde_json::json;
use std::collections::BTreeSet;

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn times(texts: &[&str]) -> Vec<Time> {
    texts.iter().map(|text| time(text)).collect()
}

fn schedule(cron: &str, zone: &str) -> Schedule {
    Schedule {
        timezone: Zone::new(zone).unwrap(),
        since: Some(time("2000-01-01T00:00:00Z")),
        ..Schedule::new(
            ScheduleName::new("s").unwrap(),
            Cron::new(cron).unwrap(),
            QueueName::new("q").unwrap(),
        )
    }
}

/// A daily schedule at 08:30 with a window of a week; the tests look at it at noon on 16 November
/// 2026.
fn daily(policy: MissedPolicy, max: u32) -> Schedule {
    Schedule {
        missed: MissedSettings {
            policy,
            max,
            ..MissedSettings::default()
        },
        ..schedule("30 8 * * *", "UTC")
    }
}

const NOON: &str = "2026-11-16T12:00:00Z";

fn standing_of(schedule: &Schedule, now: Time) -> ScheduleState {
    let mut standing = ScheduleState::new(now);
    standing.register(schedule, now);
    standing
}

/// Checks the decision about a schedule whose ledger has these instants: each day of the month with
/// its outcome.
fn check_decided(
    schedule: &Schedule,
    standing: &ScheduleState,
    known: &[&str],
    now: &str,
    expected: &[&str],
) {
    let (now, known): (Time, BTreeSet<Time>) = (time(now), times(known).into_iter().collect());
    let from = now.before(schedule.missed.look_back);
    let decision = decide(
        schedule,
        ScheduleSnapshot {
            state: standing,
            from,
            known: &known,
        },
        now,
    );
    let told = |entry: &LedgerEntry| {
        let more = match entry.outcome {
            InstantOutcome::Coalesced(into) => format!(" into {into}"),
            what => what
                .reason()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default(),
        };
        format!(
            "{} {}{more}",
            &entry.instant.to_string()[8..16],
            entry.outcome
        )
    };
    let told: Vec<String> = decision.enter.iter().map(told).collect();
    assert_eq!(told, expected);
    assert!(decision.enter.iter().all(|entry| entry.at == now));
}

#[test]
fn five_fields_and_nicknames_are_read_and_nothing_else() {
    for good in [
        "30 8 * * *",
        " @daily ",
        "@HOURLY",
        "0 0 L * *",
        "0 9 * * MON-FRI",
        "0 0 * * 5#2",
        "0 0 29 2 *",
    ] {
        assert!(Cron::new(good).is_ok(), "{good}");
    }
    let refused = |text: &str| Cron::new(text).unwrap_err().to_string();
    assert!(
        refused("0 30 8 * * *").contains("6 fields; write five, without seconds"),
        "{}",
        refused("0 30 8 * * *")
    );
    assert!(refused("30 8 * *").contains("4 fields"));
    assert!(refused("").contains("0 fields"));
    assert!(refused("@reboot").contains("there are @hourly, @daily"));
    assert!(refused("0 0 30 2 *").contains("never comes"));
    for bad in [
        "60 * * * *",
        "0 24 * * *",
        "x * * * *",
        "0 0 0 1 *",
        "*/0 * * * *",
        "0 0 * * 9",
        "5-1 * * * *",
    ] {
        assert!(
            matches!(Cron::new(bad), Err(InvalidCron::Field(..))),
            "{bad}"
        );
    }
    assert!(refused(&"1,".repeat(200)).contains("at most 256"));
    assert!(
        Zone::new("Europe/Nowhere")
            .unwrap_err()
            .to_string()
            .contains("Europe/London")
    );
}

#[test]
fn the_fields_mean_what_they_mean_to_cron() {
    let november = |cron: &str| -> Vec<String> {
        let schedule = schedule(cron, "UTC");
        let instants = schedule.between(time("2026-10-31T23:59:59Z"), time("2026-11-30T23:59:59Z"));
        instants
            .map(|at| at.to_string()[8..16].to_owned())
            .collect()
    };
    assert_eq!(
        november("0 0 13 * 5"),
        ["06T00:00", "13T00:00", "20T00:00", "27T00:00"],
        "day or weekday"
    );
    assert_eq!(
        november("0 0 1 * 0"),
        november("0 0 1 * 7"),
        "Sunday has two numbers"
    );
    assert_eq!(november("30 8 L * *"), ["30T08:30"]);
    assert_eq!(november("30 8 * NOV SAT#2"), ["14T08:30"]);
    assert_eq!(november("@monthly"), ["01T00:00"]);
    assert_eq!(
        november("@weekly"),
        ["01T00:00", "08T00:00", "15T00:00", "22T00:00", "29T00:00"]
    );
    assert_eq!(
        (
            november("@daily").len(),
            november("@hourly").len(),
            november("@yearly").len()
        ),
        (30, 720, 0)
    );
}

#[test]
fn zones_are_there_without_any_files() {
    for name in zones::ZONES {
        assert_eq!(Zone::new(name).unwrap().as_str(), name);
    }
    assert_eq!(Zone::UTC, Zone::new("UTC").unwrap());
}

/// The instants of one expression in [from, until), as local times with their offset from UTC.
fn check_instants(cron: &str, zone: &str, from: &str, until: &str, expected: &[&str]) {
    let schedule = schedule(cron, zone);
    let (from, until) = (
        time(from).before(Span::micros(1)),
        time(until).before(Span::micros(1)),
    );
    let zone = jiff::tz::TimeZone::get(zone).unwrap();
    let local = |instant: Time| {
        let zoned = jiff::Timestamp::from_microsecond(instant.as_micros())
            .unwrap()
            .to_zoned(zone.clone());
        zoned.strftime("%d %H:%M %:z").to_string()
    };
    let found: Vec<String> = schedule.between(from, until).map(local).collect();
    assert_eq!(found, expected, "{cron} in {}", schedule.timezone);
}

#[test]
fn a_fixed_time_that_is_skipped_fires_once_right_after_the_gap() {
    // Berlin, 29 March 2026: 02:00 → 03:00.
    let berlin = |cron, expected: &[&str]| {
        check_instants(
            cron,
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-30T12:00:00Z",
            expected,
        );
    };
    berlin("30 2 * * *", &["29 03:00 +02:00", "30 02:30 +02:00"]);
    berlin("0 2 * * *", &["29 03:00 +02:00", "30 02:00 +02:00"]);
    berlin(
        "0,15,30 2 * * *",
        &[
            "29 03:00 +02:00",
            "30 02:00 +02:00",
            "30 02:15 +02:00",
            "30 02:30 +02:00",
        ],
    );
    berlin(
        "0 2,3 * * *",
        &["29 03:00 +02:00", "30 02:00 +02:00", "30 03:00 +02:00"],
    );
    berlin("0 3 * * *", &["29 03:00 +02:00", "30 03:00 +02:00"]);
    berlin("59 1 * * *", &["29 01:59 +01:00", "30 01:59 +02:00"]);
    // Santiago, 6 September 2026: 00:00 → 01:00.
    let from = "2026-09-05T12:00:00Z";
    check_instants(
        "@daily",
        "America/Santiago",
        from,
        "2026-09-07T12:00:00Z",
        &["06 01:00 -03:00", "07 00:00 -03:00"],
    );
    // Lord Howe, 4 October 2026: 02:00 → 02:30.
    let lord_howe = |cron, expected: &[&str]| {
        check_instants(
            cron,
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00Z",
            "2026-10-04T12:00:00Z",
            expected,
        );
    };
    lord_howe("15 2 * * *", &["04 02:30 +11:00"]);
    lord_howe("15,45 2 * * *", &["04 02:30 +11:00", "04 02:45 +11:00"]);
}

#[test]
fn a_whole_day_that_is_skipped_is_a_gap_like_any_other() {
    // Samoa had no 30 December 2011.
    let apia = |cron, expected: &[&str]| {
        check_instants(
            cron,
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            "2012-01-01T12:00:00Z",
            expected,
        );
    };
    apia(
        "30 8 * * *",
        &[
            "29 08:30 -10:00",
            "31 00:00 +14:00",
            "31 08:30 +14:00",
            "01 08:30 +14:00",
        ],
    );
    apia(
        "0 */12 * * *",
        &[
            "29 12:00 -10:00",
            "31 00:00 +14:00",
            "31 12:00 +14:00",
            "01 00:00 +14:00",
            "01 12:00 +14:00",
            "02 00:00 +14:00",
        ],
    );
    apia("30 8 30 12 *", &["31 00:00 +14:00"]);
}

#[test]
fn a_fixed_time_that_is_repeated_fires_once_the_first() {
    // Berlin, 25 October 2026: 03:00 → 02:00.
    let berlin = |cron, expected: &[&str]| {
        check_instants(
            cron,
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-25T12:00:00Z",
            expected,
        );
    };
    berlin("30 2 * * *", &["25 02:30 +02:00"]);
    berlin("0 2 * * *", &["25 02:00 +02:00"]);
    berlin("0 3 * * *", &["25 03:00 +01:00"]);
    berlin(
        "0,30 1,2,3 * * *",
        &[
            "25 01:00 +02:00",
            "25 01:30 +02:00",
            "25 02:00 +02:00",
            "25 02:30 +02:00",
            "25 03:00 +01:00",
            "25 03:30 +01:00",
        ],
    );
    // New York, 1 November 2026: 02:00 → 01:00.
    let from = "2026-11-01T04:00:00Z";
    check_instants(
        "30 1 * * *",
        "America/New_York",
        from,
        "2026-11-02T05:00:00Z",
        &["01 01:30 -04:00"],
    );
    // Santiago, 5 April 2026: 00:00 → 23:00 of the day before.
    let from = "2026-04-04T12:00:00Z";
    check_instants(
        "30 23 * * *",
        "America/Santiago",
        from,
        "2026-04-06T03:59:00Z",
        &["04 23:30 -03:00", "05 23:30 -04:00"],
    );
    check_instants(
        "@daily",
        "America/Santiago",
        from,
        "2026-04-06T03:59:00Z",
        &["05 00:00 -04:00"],
    );
}

#[test]
fn a_rhythm_goes_by_elapsed_time() {
    let berlin = |cron, from, until, expected: &[&str]| {
        check_instants(cron, "Europe/Berlin", from, until, expected);
    };
    let (gap, after_gap) = ("2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z");
    berlin(
        "0 * * * *",
        gap,
        after_gap,
        &["29 01:00 +01:00", "29 03:00 +02:00"],
    );
    berlin(
        "*/30 * * * *",
        gap,
        after_gap,
        &[
            "29 01:00 +01:00",
            "29 01:30 +01:00",
            "29 03:00 +02:00",
            "29 03:30 +02:00",
        ],
    );
    berlin(
        "0 0-23 * * *",
        gap,
        after_gap,
        &["29 01:00 +01:00", "29 03:00 +02:00"],
    );
    berlin("*/30 2 * * *", gap, after_gap, &[]);
    let (fold, after_fold) = ("2026-10-24T23:30:00Z", "2026-10-25T02:30:00Z");
    berlin(
        "0 * * * *",
        fold,
        after_fold,
        &["25 02:00 +02:00", "25 02:00 +01:00", "25 03:00 +01:00"],
    );
    berlin(
        "0 0-11,12-23 * * *",
        fold,
        after_fold,
        &["25 02:00 +02:00", "25 02:00 +01:00", "25 03:00 +01:00"],
    );
    berlin(
        "@hourly",
        fold,
        after_fold,
        &["25 02:00 +02:00", "25 02:00 +01:00", "25 03:00 +01:00"],
    );
    berlin(
        "*/30 2 * * *",
        fold,
        after_fold,
        &[
            "25 02:00 +02:00",
            "25 02:30 +02:00",
            "25 02:00 +01:00",
            "25 02:30 +01:00",
        ],
    );
    // Casablanca, Ramadan 2026: 15 February 03:00 → 02:00, 22 March 02:00 → 03:00.
    let casablanca = |from, until, expected: &[&str]| {
        check_instants("0 * * * *", "Africa/Casablanca", from, until, expected);
    };
    casablanca(
        "2026-02-15T01:00:00Z",
        "2026-02-15T03:30:00Z",
        &["15 02:00 +01:00", "15 02:00 +00:00", "15 03:00 +00:00"],
    );
    casablanca(
        "2026-03-22T01:00:00Z",
        "2026-03-22T03:00:00Z",
        &["22 01:00 +00:00", "22 03:00 +01:00"],
    );
}

#[test]
fn the_first_instant_is_strictly_behind_where_one_asks() {
    let schedule = schedule("30 8 * * *", "UTC");
    let next = |after: &str| schedule.next(time(after)).unwrap();
    assert_eq!(
        next("2026-11-16T08:29:59.999999Z"),
        time("2026-11-16T08:30:00Z")
    );
    assert_eq!(next("2026-11-16T08:30:00Z"), time("2026-11-17T08:30:00Z"));
    assert_eq!(next("2026-11-16T08:30:00.5Z"), time("2026-11-17T08:30:00Z"));
}

#[test]
fn an_instant_is_due_within_its_grace_and_missing_behind_it() {
    let schedule = daily(MissedPolicy::Skip, 7);
    let standing = standing_of(&schedule, time(NOON));
    let known: Vec<String> = (9..16)
        .map(|day| format!("2026-11-{day:02}T08:30:00Z"))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let check = |now, expected: &[&str]| check_decided(&schedule, &standing, &known, now, expected);
    check("2026-11-16T08:29:59.999999Z", &[]);
    check("2026-11-16T08:30:00Z", &["16T08:30 due"]);
    check("2026-11-16T09:00:00Z", &["16T08:30 due"]);
    check(
        "2026-11-16T09:00:00.000001Z",
        &["16T08:30 skipped (policy skip)"],
    );
}

#[test]
fn the_policy_says_what_becomes_of_missing_runs() {
    let decided = |policy, max, expected: &[&str]| {
        let schedule = daily(policy, max);
        let known = ["2026-11-12T08:30:00Z", "2026-11-14T08:30:00Z"];
        check_decided(
            &schedule,
            &standing_of(&schedule, time(NOON)),
            &known,
            NOON,
            expected,
        );
    };
    let skipped = "skipped (policy skip)";
    let skip = ["10", "11", "13", "15", "16"].map(|day| format!("{day}T08:30 {skipped}"));
    decided(MissedPolicy::Skip, 7, &skip.each_ref().map(String::as_str));
    let one = ["10", "11", "13", "15"]
        .map(|day| format!("{day}T08:30 coalesced into 2026-11-16T08:30:00Z"));
    let mut one: Vec<&str> = one.iter().map(String::as_str).collect();
    one.push("16T08:30 due");
    decided(MissedPolicy::One, 7, &one);
    decided(
        MissedPolicy::All,
        7,
        &[
            "10T08:30 due",
            "11T08:30 due",
            "13T08:30 due",
            "15T08:30 due",
            "16T08:30 due",
        ],
    );
    decided(
        MissedPolicy::All,
        2,
        &[
            "10T08:30 missed (over max)",
            "11T08:30 missed (over max)",
            "13T08:30 missed (over max)",
            "15T08:30 due",
            "16T08:30 due",
        ],
    );
}

#[test]
fn what_is_missing_is_told_whatever_the_policy() {
    for policy in [MissedPolicy::Skip, MissedPolicy::One, MissedPolicy::All] {
        let schedule = daily(policy, 1);
        let standing = standing_of(&schedule, time(NOON));
        let known = times(&["2026-11-12T08:30:00Z"]).into_iter().collect();
        let seen = |now: Time| ScheduleSnapshot {
            state: &standing,
            from: now.before(Span::days(7)),
            known: &known,
        };
        let days: Vec<String> = missing(&schedule, seen(time(NOON)), time(NOON))
            .iter()
            .map(|at| at.to_string()[8..10].to_owned())
            .collect();
        assert_eq!(days, ["10", "11", "13", "14", "15", "16"]);
        let edge = time("2026-11-16T08:30:00Z");
        assert_eq!(
            missing(&schedule, seen(edge), edge).first(),
            Some(&time("2026-11-10T08:30:00Z")),
            "the 9th is a week ago"
        );
        let before = edge.before(Span::micros(1));
        assert_eq!(
            missing(&schedule, seen(before), before).first(),
            Some(&time("2026-11-09T08:30:00Z"))
        );
    }
}

#[test]
fn nothing_is_expected_before_since_or_the_first_registration() {
    let schedule = Schedule {
        since: Some(time("2026-11-15T08:30:00Z")),
        ..daily(MissedPolicy::All, 7)
    };
    let standing = standing_of(&schedule, time(NOON));
    check_decided(
        &schedule,
        &standing,
        &[],
        NOON,
        &["15T08:30 due", "16T08:30 due"],
    );
    let schedule = Schedule {
        since: None,
        ..daily(MissedPolicy::All, 7)
    };
    check_decided(
        &schedule,
        &standing_of(&schedule, time("2026-11-15T12:00:00Z")),
        &[],
        NOON,
        &["16T08:30 due"],
    );
    check_decided(
        &schedule,
        &standing_of(&schedule, time(NOON)),
        &[],
        NOON,
        &[],
    );
    let future = Schedule {
        since: Some(time("2027-01-01T00:00:00Z")),
        ..daily(MissedPolicy::All, 7)
    };
    let (standing, known) = (standing_of(&future, time(NOON)), BTreeSet::new());
    let seen = ScheduleSnapshot {
        state: &standing,
        from: time("2026-11-10T00:00:00Z"),
        known: &known,
    };
    let decision = decide(&future, seen, time(NOON));
    assert_eq!(
        (decision.enter.len(), decision.wake),
        (0, Some(time("2027-01-01T08:30:00Z")))
    );
}

#[test]
fn a_changed_rule_counts_from_its_change_and_an_old_one_goes_on() {
    let old = daily(MissedPolicy::All, 7);
    let new = Schedule {
        cron: Cron::new("0 9 * * *").unwrap(),
        ..old.clone()
    };
    let mut standing = standing_of(&old, time("2026-11-01T00:00:00Z"));
    standing.settle(&old, time("2026-11-15T12:00:00Z"));
    standing.register(&new, time("2026-11-15T12:00:00Z"));
    standing.register(&old, time("2026-11-15T13:00:00Z"));
    check_decided(&new, &standing, &[], NOON, &["16T09:00 due"]);
    assert_eq!(standing.since(&old), time("2000-01-01T00:00:00Z"));
    assert_eq!(standing.since(&new), time("2026-11-15T12:00:00Z"));
    let mut back = standing.clone();
    back.register(&old, time("2026-11-18T00:00:00Z"));
    assert_eq!(
        back.since(&old),
        time("2026-11-18T00:00:00Z"),
        "put aside for days, it makes nothing of them up"
    );
    assert_eq!(back.rule(), Some(old.rule().as_str()));
    for minute in 0..60 {
        let another = Schedule {
            cron: Cron::new(&format!("{minute} 1 * * *")).unwrap(),
            ..old.clone()
        };
        standing.register(&another, time(NOON));
        assert_eq!(standing.rule(), Some(another.rule().as_str()));
    }
    assert!(
        serde_json::to_vec(&standing).unwrap().len() < 2_000,
        "rules are forgotten"
    );
}

#[test]
fn instants_of_a_pause_are_skipped() {
    let schedule = daily(MissedPolicy::All, 7);
    let mut standing = standing_of(&schedule, time("2026-11-01T00:00:00Z"));
    assert!(standing.pause(time("2026-11-11T08:30:00Z")));
    assert!(
        !standing.pause(time("2026-11-12T00:00:00Z")),
        "it is paused already"
    );
    assert!(standing.resume(time("2026-11-13T08:30:00Z")));
    assert!(!standing.resume(time("2026-11-14T00:00:00Z")));
    standing.pause(time("2026-11-15T12:00:00Z"));
    let expected = [
        "10T08:30 due",
        "11T08:30 skipped (paused)",
        "12T08:30 skipped (paused)",
        "13T08:30 due",
        "14T08:30 due",
        "15T08:30 due",
        "16T08:30 skipped (paused)",
    ];
    check_decided(&schedule, &standing, &[], NOON, &expected);
    let known = BTreeSet::new();
    let seen = ScheduleSnapshot {
        state: &standing,
        from: time("2026-11-10T00:00:00Z"),
        known: &known,
    };
    assert_eq!(
        missing(&schedule, seen, time(NOON)).len(),
        4,
        "what was paused is not missing"
    );
}

#[test]
fn pauses_are_forgotten_with_the_ledger_and_have_a_bound() {
    let mut standing = ScheduleState::new(time("2026-01-01T00:00:00Z"));
    let mut now = standing.registered;
    for _ in 0..2_000 {
        standing.pause(now);
        now = now.after(Span::minutes(5));
        standing.resume(now);
        now = now.after(Span::minutes(5));
    }
    assert!(serde_json::to_vec(&standing).unwrap().len() < CELL_BYTES_MAX);
    assert!(standing.is_paused_at(now.before(Span::minutes(6))));
    let later = now.after(Span::days(40));
    standing.pause(later);
    standing.resume(later.after(Span::secs(1)));
    assert!(!standing.is_paused_at(now.before(Span::minutes(6))));
}

#[test]
fn what_is_older_than_the_window_is_missed_if_nobody_dealt_with_it() {
    let schedule = daily(MissedPolicy::All, 7);
    let mut standing = standing_of(&schedule, time("2026-11-01T00:00:00Z"));
    standing.settle(&schedule, time("2026-11-06T12:00:00Z"));
    standing.settle(&schedule, time("2026-11-05T12:00:00Z"));
    let (now, known) = (time(NOON), BTreeSet::new());
    let from = time("2026-11-01T00:00:00Z");
    let decision = decide(
        &schedule,
        ScheduleSnapshot {
            state: &standing,
            from,
            known: &known,
        },
        now,
    );
    let told: Vec<String> = decision
        .enter
        .iter()
        .map(|entry| format!("{} {}", &entry.instant.to_string()[8..10], entry.outcome))
        .collect();
    assert_eq!(
        told,
        [
            "07 missed",
            "08 missed",
            "09 missed",
            "10 due",
            "11 due",
            "12 due",
            "13 due",
            "14 due",
            "15 due",
            "16 due"
        ]
    );
    assert_eq!(decision.enter[0].outcome.reason(), Some(SkipReason::TooOld));
    assert_eq!(
        (decision.missing, decision.wake),
        (7, Some(time("2026-11-17T08:30:00Z")))
    );
}

#[test]
fn what_a_run_is_called_depends_on_how_late_it_is() {
    let grace = Span::minutes(30);
    let cases = [
        (Span::ZERO, "fired"),
        (Span::secs(10), "fired"),
        (Span::millis(10_001), "late"),
        (grace, "late"),
        (grace.plus(Span::micros(1)), "made_up"),
    ];
    for (lateness, word) in cases {
        assert_eq!(
            InstantOutcome::after(lateness, grace).as_str(),
            word,
            "{lateness}"
        );
    }
}

#[test]
fn a_job_carries_its_instant_and_its_local_date_and_they_win() {
    let payload = json!({ "range": "daily", "instant": "never", "date": 1 });
    let schedule = Schedule {
        payload: payload.as_object().unwrap().clone(),
        ..schedule("30 0 * * *", "Europe/London")
    };
    let instant = time("2026-06-30T23:30:00Z");
    let job = schedule.job(instant);
    let carried: Value = serde_json::from_slice(job.payload.as_bytes()).unwrap();
    assert_eq!(
        carried,
        json!({ "range": "daily", "instant": "2026-06-30T23:30:00Z", "date": "2026-07-01" })
    );
    assert_eq!(job.id, JobId::named("schedule:s:2026-06-30T23:30:00Z"));
    let unique = job.unique.unwrap();
    assert_eq!(unique.key.as_str(), "schedule:s:2026-06-30T23:30:00Z");
    assert!(
        JobState::ALL
            .iter()
            .all(|state| unique.states.contains(*state))
    );
    assert!(unique.period.unwrap() > schedule.missed.look_back.times(2));
    assert_eq!(schedule.job_by_hand(job.id, instant).unique, None);
}

#[test]
fn what_cannot_work_is_refused_with_what_can() {
    let check = |missed: MissedSettings, part: &str| {
        let message = Schedule {
            missed,
            ..daily(MissedPolicy::One, 1)
        }
        .check()
        .unwrap_err();
        assert!(message.contains(part), "{message}");
    };
    let usual = MissedSettings::default();
    assert_eq!(usual.check(), Ok(()));
    check(
        MissedSettings {
            look_back: Span::days(32),
            ..usual
        },
        "look_back is 32d; give 1m to 31d",
    );
    check(
        MissedSettings {
            grace: Span::ZERO,
            ..usual
        },
        "grace is 0s; give 1s or more",
    );
    check(
        MissedSettings {
            grace: Span::days(7),
            ..usual
        },
        "less than look_back (7d)",
    );
    check(
        MissedSettings { max: 0, ..usual },
        "max is 0; give 1 to 10000",
    );
    let mut large = daily(MissedPolicy::One, 1);
    large
        .payload
        .insert("x".to_owned(), Value::String("x".repeat(70_000)));
    assert!(large.check().unwrap_err().contains("at most 65536"));
}

#[test]
fn a_page_comes_back_as_it_was_written() {
    let day = UtcDay::of(time(NOON));
    let mut page = LedgerPage::empty(day);
    let whats = [
        InstantOutcome::Due,
        InstantOutcome::Fired,
        InstantOutcome::Late,
        InstantOutcome::MadeUp,
        InstantOutcome::Coalesced(time("2026-11-18T08:30:00Z")),
        InstantOutcome::Missed(SkipReason::OverMax),
        InstantOutcome::Missed(SkipReason::TooOld),
        InstantOutcome::Missed(SkipReason::QueueFull),
        InstantOutcome::Skipped(SkipReason::Paused),
        InstantOutcome::Skipped(SkipReason::Policy),
    ];
    for (minute, what) in (0..).zip(whats) {
        let instant = day.start().after(Span::minutes(minute));
        assert!(page.enter(
            LedgerEntry {
                instant,
                outcome: what,
                at: instant.after(Span::millis(1_234))
            },
            instant
        ));
    }
    let at = day.start().after(Span::secs(7));
    page.enter_by_hand(LedgerEntry {
        instant: at,
        outcome: InstantOutcome::Triggered(JobId::named("x")),
        at,
    });
    let read = |text: &str| serde_json::from_str::<LedgerPage>(text);
    assert_eq!(read(&serde_json::to_string(&page).unwrap()).unwrap(), page);
    assert_eq!(
        (day.to_string(), page.newest_first().len()),
        ("2026-11-16".to_owned(), 11)
    );
    assert!(read("{}").is_err() && read(r#"{"day":1,"runs":[[0,"?",0]]}"#).is_err());
}

#[test]
fn the_first_entry_of_an_instant_counts_and_only_what_is_due_changes() {
    let instant = time(NOON);
    let entry = |what| LedgerEntry {
        instant,
        outcome: what,
        at: instant,
    };
    let mut page = LedgerPage::empty(UtcDay::of(instant));
    assert!(
        !page.conclude(entry(InstantOutcome::Fired)),
        "it is not due"
    );
    assert!(page.enter(entry(InstantOutcome::Due), instant));
    assert!(!page.enter(entry(InstantOutcome::Skipped(SkipReason::Paused)), instant));
    assert!(page.conclude(entry(InstantOutcome::Late)));
    assert!(!page.conclude(entry(InstantOutcome::Fired)));
    assert_eq!(
        page.entries()
            .map(|entry| entry.outcome)
            .collect::<Vec<_>>(),
        [InstantOutcome::Late]
    );
}

#[test]
fn a_page_of_the_busiest_day_fits_into_a_cell() {
    let day = UtcDay::of(time(NOON));
    let mut page = LedgerPage::empty(day);
    for minute in 0..1_440 {
        let instant = day.start().after(Span::minutes(minute));
        let into = instant.after(Span::days(31));
        page.enter(
            LedgerEntry {
                instant,
                outcome: InstantOutcome::Coalesced(into),
                at: into.after(Span::millis(999)),
            },
            into,
        );
    }
    for n in 0..TRIGGERED_MAX {
        let at = day.start().after(Span::secs(86_399));
        assert!(page.enter_by_hand(LedgerEntry {
            instant: at,
            outcome: InstantOutcome::Triggered(JobId::named(&n.to_string())),
            at
        }));
    }
    let at = day.start();
    assert!(!page.enter_by_hand(LedgerEntry {
        instant: at,
        outcome: InstantOutcome::Triggered(JobId::named("more")),
        at
    }));
    let bytes = serde_json::to_vec(&page).unwrap().len();
    assert!(bytes < CELL_BYTES_MAX, "{bytes}");
}
