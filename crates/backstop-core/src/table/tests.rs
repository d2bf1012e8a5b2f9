use super::*;
use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;

/// 2026-01-01T00:00:00Z.
const START: Time = Time::from_millis(1_767_225_600_000);

fn policy(json: &str) -> RetryPolicy {
    RetryPolicy::from_json(json.as_bytes()).expect(json)
}

fn fibonacci() -> TableRules {
    let policy =
        policy(r#"{"kind":"fibonacci","unit":"1m","cap":"1d","max_attempts":"unlimited"}"#);
    TableRules::new(&policy, Some(Span::days(30))).expect("rules")
}

fn progressive() -> TableRules {
    TableRules::new(&policy(r#"{"kind":"progressive"}"#), None).expect("rules")
}

fn minutes(minutes: i64) -> Time {
    Time::from_micros(START.as_micros() + minutes * 60_000_000)
}

fn failed_row(failures: u32, last_failure: Time) -> OpenRow {
    OpenRow {
        inserted: START,
        failures,
        last_failure: Some(last_failure),
    }
}

fn is_due(rules: &TableRules, row: OpenRow, last_pass: Option<Time>, now: Time) -> bool {
    rules.judge(row, last_pass, now) == RowDecision::Due
}

#[test]
fn a_row_that_always_fails_is_tried_at_the_sums_of_the_fibonacci_numbers() {
    let rules = fibonacci();
    let mut row = OpenRow {
        inserted: START,
        failures: 0,
        last_failure: None,
    };
    let mut tries = Vec::new();
    for minute in 0..=400 {
        if is_due(&rules, row, None, minutes(minute)) {
            tries.push(minute);
            row = OpenRow {
                failures: row.failures + 1,
                last_failure: Some(minutes(minute)),
                ..row
            };
        }
    }
    assert_eq!(tries, [0, 1, 2, 4, 7, 12, 20, 33, 54, 88, 143, 232, 376]);
}

#[test]
fn a_row_that_always_fails_is_tried_522_times_in_360_days() {
    let rules = progressive();
    let row = OpenRow {
        inserted: START,
        failures: 0,
        last_failure: None,
    };
    let (mut tries, mut last_pass) = (0, None);
    for minute in 0..=360 * 24 * 60 + 10 {
        let now = minutes(minute);
        tries += u32::from(is_due(&rules, row, last_pass, now));
        last_pass = Some(now);
    }
    assert_eq!(tries, 522);
    assert_eq!(
        rules.judge(row, last_pass, minutes(360 * 24 * 60 + 1)),
        RowDecision::Expired
    );
}

#[test]
fn equality_is_due_and_six_failures_wait_eight_units() {
    let rules = fibonacci();
    let check = |failures, after: Span, expected| {
        let due = is_due(
            &rules,
            failed_row(failures, START),
            None,
            START.after(after),
        );
        assert_eq!(due, expected, "{failures} failures, {after} later");
    };
    for (failures, units) in [(1, 1), (2, 1), (3, 2), (6, 8), (40, 1_440)] {
        check(failures, Span::minutes(units), true);
        check(failures, Span::minutes(units).minus(Span::micros(1)), false);
    }
    check(0, Span::ZERO, true);
}

#[test]
fn a_failure_in_the_future_counts_as_one_now() {
    let rules = fibonacci();
    let row = failed_row(6, minutes(60));
    assert_eq!(
        rules.judge(row, None, minutes(10)),
        RowDecision::Waits(minutes(18))
    );
}

#[test]
fn a_failure_nobody_dated_is_due() {
    let row = OpenRow {
        inserted: START,
        failures: 6,
        last_failure: None,
    };
    assert!(is_due(&fibonacci(), row, None, START));
}

#[test]
fn the_oldest_row_that_is_young_enough_is_tried() {
    let rules = fibonacci();
    let row = OpenRow {
        inserted: START,
        failures: 0,
        last_failure: None,
    };
    assert!(is_due(&rules, row, None, START.after(Span::days(30))));
    let later = START.after(Span::days(30)).after(Span::micros(1));
    assert_eq!(rules.judge(row, None, later), RowDecision::Expired);
}

#[test]
fn used_up_attempts_expire_a_row() {
    let rules = TableRules::new(
        &policy(r#"{"kind":"constant","every":"1m","max_attempts":3}"#),
        None,
    )
    .expect("rules");
    assert!(is_due(&rules, failed_row(2, START), None, minutes(1)));
    assert_eq!(
        rules.judge(failed_row(3, START), None, minutes(1)),
        RowDecision::Expired
    );
}

#[test]
fn a_band_fires_at_its_ticks_and_once_after_a_downtime() {
    let rules = progressive();
    let row = OpenRow {
        inserted: START.before(Span::days(2)),
        failures: 0,
        last_failure: None,
    };
    let due = |last_pass, now| is_due(&rules, row, Some(last_pass), now);
    assert!(
        due(minutes(-1), minutes(0)),
        "a tick is due at its own time"
    );
    assert!(!due(minutes(0), minutes(59)));
    assert!(due(minutes(59), minutes(61)));
    assert!(due(minutes(-600), minutes(5)), "ten ticks went by");
    assert!(!due(minutes(5), minutes(6)), "and are not made up");
    assert!(
        !due(minutes(600), minutes(61)),
        "a pass in the future counts as one now"
    );
    assert!(
        is_due(&rules, row, None, minutes(17)),
        "the first pass tries everything once"
    );
    assert_eq!(
        rules.judge(row, Some(minutes(0)), minutes(59)),
        RowDecision::Waits(minutes(60))
    );
}

#[test]
fn equality_of_age_stays_in_the_younger_band() {
    let rules = progressive();
    let row = OpenRow {
        inserted: START.before(Span::days(1)),
        failures: 0,
        last_failure: None,
    };
    let five = |row| {
        is_due(&rules, row, Some(minutes(-1)), minutes(0))
            && !is_due(&rules, row, Some(minutes(0)), minutes(0))
    };
    assert!(five(row));
    let tick =
        |row: OpenRow, minute| is_due(&rules, row, Some(minutes(minute - 1)), minutes(minute));
    let young = OpenRow {
        inserted: minutes(5).before(Span::days(1)),
        ..row
    };
    assert!(
        tick(young, 5),
        "a day old to the moment: every five minutes"
    );
    let old = OpenRow {
        inserted: young.inserted.before(Span::micros(1)),
        ..row
    };
    assert!(!tick(old, 5), "older by a moment: every hour");
}

#[test]
fn what_a_query_cannot_ask_is_refused() {
    let custom = RetryPolicy::custom(|_, _, _| None);
    assert_eq!(
        TableRules::new(&custom, None),
        Err(InvalidTableRules::Custom)
    );
    let aged = policy(r#"{"kind":"constant","every":"1m","max_age":"1d"}"#);
    assert_eq!(
        TableRules::new(&aged, None),
        Err(InvalidTableRules::AgeInStrategy)
    );
    assert_eq!(
        TableRules::new(&policy(r#"{"kind":"progressive"}"#), Some(Span::ZERO)),
        Err(InvalidTableRules::MaxAge)
    );
}

#[test]
fn every_policy_keeps_its_waits() {
    for json in [
        r#"{"kind":"exponential","base":"1s","factor":2.0,"cap":"30s","jitter":0.25}"#,
        r#"{"kind":"steps","delays":["10s","20s"]}"#,
        r#"{"kind":"constant","every":"1m"}"#,
        r#"{"kind":"polynomial"}"#,
    ] {
        let policy = policy(json);
        let waits = waits(&policy).expect("waits");
        for failures in 1..=TABLE_WAITS_MAX {
            let (low, high) = (
                policy
                    .wait(failures, Span::ZERO, RandomDraw::LOWEST)
                    .expect("a wait"),
                policy
                    .wait(failures, Span::ZERO, RandomDraw::HIGHEST)
                    .expect("a wait"),
            );
            let wait = wait(&waits, failures);
            assert!(
                low <= wait && wait <= high,
                "{json}, {failures} failures: {wait}"
            );
        }
    }
}

fn any_rules() -> impl Generator<Value = TableRules> {
    let policies = prop_oneof![
        Just(r#"{"kind":"fibonacci","unit":"1m","cap":"1d","max_attempts":"unlimited"}"#),
        Just(r#"{"kind":"fibonacci","unit":"1h","max_attempts":9}"#),
        Just(r#"{"kind":"exponential","base":"1m","factor":3.0,"cap":"3d","max_attempts":1}"#),
        Just(r#"{"kind":"polynomial","max_attempts":"unlimited"}"#),
        Just(r#"{"kind":"steps","delays":["10m","1h","1h","2h"],"max_attempts":"unlimited"}"#),
        Just(r#"{"kind":"progressive"}"#),
        Just(
            r#"{"kind":"progressive","bands":[{"until":"1h","every":"7m"},{"until":"2d","every":"13m"},{"until":"9d","every":"1d"}]}"#
        ),
    ];
    (policies, proptest::option::of(1..40_i64)).prop_map(|(json, days)| {
        TableRules::new(&policy(json), days.map(Span::days)).expect("rules")
    })
}

#[test]
fn bounds_between_two_rows_leave_out_what_is_beside_them() {
    let row = |minute| OpenRow {
        inserted: minutes(minute),
        failures: 0,
        last_failure: None,
    };
    let all = progressive().criteria(None, minutes(3_000));
    let part = all
        .clone()
        .between(Some(minutes(2_000)), Some(minutes(100)));
    for minute in 0..3_000 {
        assert!(all.admit(row(minute)));
        assert_eq!(
            part.admit(row(minute)),
            (100..=2_000).contains(&minute),
            "{minute}"
        );
    }
    let none = all.between(Some(minutes(100)), Some(minutes(101)));
    assert_eq!(
        none.due,
        DueRows::ByAge(Vec::new()),
        "nothing is to be asked then"
    );
    let counted = fibonacci().criteria(None, minutes(3_000));
    assert_eq!(counted.clone().between(Some(minutes(1)), None), counted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_bounds_of_a_query_say_what_the_rule_says(
        rules in any_rules(),
        age in -100..60_000_i64,
        offset in -2..3_i64,
        failures in 0..300_u32,
        last in proptest::option::of(-200..50_000_i64),
        pass in proptest::option::of(-50..20_000_i64),
    ) {
        let now = START.after(Span::minutes(17));
        // Also a microsecond beside the borders, which lie at whole minutes.
        let at = |minutes: i64| Time::from_micros(now.as_micros() - minutes * 60_000_000 + offset);
        let row = OpenRow { inserted: at(age), failures, last_failure: last.map(at) };
        let last_pass = pass.map(at);
        let criteria = rules.criteria(last_pass, now);
        prop_assert_eq!(criteria.admit(row), rules.judge(row, last_pass, now) == RowDecision::Due, "{:?}", criteria);
    }
}
