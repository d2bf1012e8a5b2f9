use super::*;
use crate::limits::RETRY_STEPS_MAX;
use proptest::prelude::*;
use std::num::NonZeroU32;

fn policy(json: &str) -> RetryPolicy {
    RetryPolicy::from_json(json.as_bytes()).expect(json)
}

fn check_preview(json: &str, expected: &[(u32, i64, i64)]) {
    let attempts = expected.last().expect("something expected").0;
    let waits: Vec<_> = preview(&policy(json), attempts)
        .iter()
        .map(|wait| (wait.failures, wait.min.as_millis(), wait.max.as_millis()))
        .collect();
    assert_eq!(waits, expected, "{json}");
}

fn check_refused(json: &str, part: &str) {
    let error = RetryPolicy::from_json(json.as_bytes())
        .expect_err(json)
        .to_string();
    assert!(error.contains(part), "{json}: {error}");
}

#[test]
fn exponential_doubles_to_its_cap_and_adds_a_quarter_after_it() {
    check_preview(
        r#"{"kind":"exponential","base":"1s","factor":2.0,"cap":"30s","jitter":0.25,"max_attempts":3}"#,
        &[
            (1, 1_000, 1_250),
            (2, 2_000, 2_500),
            (3, 4_000, 5_000),
            (4, 8_000, 10_000),
            (5, 16_000, 20_000),
            (6, 30_000, 37_500),
            (7, 30_000, 37_500),
        ],
    );
}

#[test]
fn fibonacci_starts_at_once_and_waits_eight_units_after_six_failures() {
    check_preview(
        r#"{"kind":"fibonacci","unit":"1m"}"#,
        &[
            (0, 0, 0),
            (1, 60_000, 60_000),
            (2, 60_000, 60_000),
            (3, 120_000, 120_000),
            (4, 180_000, 180_000),
        ],
    );
    let waits = preview(
        &policy(r#"{"kind":"fibonacci","unit":"1m","cap":"10m"}"#),
        9,
    );
    let minutes: Vec<_> = waits
        .iter()
        .map(|wait| wait.max.as_millis() / 60_000)
        .collect();
    assert_eq!(minutes, [0, 1, 1, 2, 3, 5, 8, 10, 10, 10]);
}

#[test]
fn steps_repeat_their_last_delay() {
    check_preview(
        r#"{"kind":"steps","delays":["10s","20s","30s","60s","60s"]}"#,
        &[
            (1, 10_000, 10_000),
            (2, 20_000, 20_000),
            (3, 30_000, 30_000),
            (4, 60_000, 60_000),
            (5, 60_000, 60_000),
            (6, 60_000, 60_000),
        ],
    );
}

#[test]
fn progressive_slows_with_age_and_ends_with_its_last_band() {
    let check = |age: Span, wait: Option<Span>| {
        let policy = policy(r#"{"kind":"progressive"}"#);
        assert_eq!(policy.wait(1, age, RandomDraw::LOWEST), wait, "{age}");
    };
    check(Span::ZERO, Some(Span::minutes(5)));
    check(Span::days(1), Some(Span::minutes(5)));
    check(Span::days(1).plus(Span::micros(1)), Some(Span::hours(1)));
    check(Span::days(7), Some(Span::hours(1)));
    check(Span::days(8), Some(Span::hours(12)));
    check(Span::days(30), Some(Span::hours(24)));
    check(Span::days(31), Some(Span::hours(96)));
    check(Span::days(360), Some(Span::hours(192)));
    check(Span::days(361), None);
    let waits = preview(
        &policy(r#"{"kind":"progressive","bands":[{"until":"10m","every":"5m"}]}"#),
        100,
    );
    assert_eq!(waits.len(), 3, "at ages 0, 5 and 10 minutes");
    assert_eq!(policy(r#"{"kind":"progressive"}"#).max_attempts(), None);
}

#[test]
fn polynomial_is_the_fourth_power_and_a_draw_of_thirty() {
    check_preview(
        r#"{"kind":"polynomial"}"#,
        &[
            (1, 15_000, 44_000),
            (2, 16_000, 74_000),
            (3, 31_000, 118_000),
            (4, 96_000, 212_000),
        ],
    );
}

#[test]
fn constant_never_changes() {
    check_preview(
        r#"{"kind":"constant","every":"1m"}"#,
        &[(1, 60_000, 60_000), (2, 60_000, 60_000)],
    );
}

#[test]
fn a_custom_policy_is_a_function_and_cannot_be_written_down() {
    let policy = RetryPolicy::custom(|failures, age, _| {
        (age < Span::hours(1)).then(|| Span::secs(7).times(i64::from(failures)))
    });
    assert_eq!(
        policy.next(2, Span::ZERO, RandomDraw::LOWEST),
        RetryDecision::RetryAfter(Span::secs(14))
    );
    assert_eq!(
        policy.next(2, Span::hours(1), RandomDraw::LOWEST),
        RetryDecision::TooOld
    );
    assert_eq!(
        policy.next(3, Span::ZERO, RandomDraw::LOWEST),
        RetryDecision::AttemptsExhausted
    );
    let endless = RetryPolicy::custom(|_, _, _| Some(Span::days(1_000_000)));
    assert_eq!(
        endless.next(1, Span::ZERO, RandomDraw::LOWEST),
        RetryDecision::RetryAfter(DELAY_MAX)
    );
    assert!(!policy.is_stored() && RetryPolicy::default().is_stored());
    check_refused(
        std::str::from_utf8(&policy.to_json()).expect("text"),
        "a custom policy is code",
    );
}

#[test]
fn jitter_spreads_as_named() {
    check_preview(
        r#"{"kind":"constant","every":"10s","jitter":{"spread":0.1}}"#,
        &[(1, 9_000, 11_000)],
    );
    check_preview(
        r#"{"kind":"constant","every":"10s","jitter":"equal"}"#,
        &[(1, 5_000, 10_000)],
    );
    check_preview(
        r#"{"kind":"constant","every":"10s","jitter":"full"}"#,
        &[(1, 0, 10_000)],
    );
    check_preview(
        r#"{"kind":"exponential","jitter":false}"#,
        &[(1, 1_000, 1_000)],
    );
    check_preview(r#"{"kind":"exponential","jitter":0}"#, &[(1, 1_000, 1_000)]);
}

#[test]
fn the_last_attempt_ends_it() {
    let check = |failures, next| {
        let policy = policy(r#"{"kind":"constant","every":"1s","max_attempts":3}"#);
        assert_eq!(
            policy.next(failures, Span::ZERO, RandomDraw::LOWEST),
            next,
            "{failures}"
        );
    };
    check(1, RetryDecision::RetryAfter(Span::secs(1)));
    check(2, RetryDecision::RetryAfter(Span::secs(1)));
    check(3, RetryDecision::AttemptsExhausted);
    check(4, RetryDecision::AttemptsExhausted);
}

#[test]
fn old_age_ends_it() {
    let policy =
        policy(r#"{"kind":"constant","every":"1s","max_attempts":"unlimited","max_age":"1h"}"#);
    assert_eq!(
        policy.next(1_000_000, Span::minutes(59), RandomDraw::LOWEST),
        RetryDecision::RetryAfter(Span::secs(1))
    );
    assert_eq!(
        policy.next(1, Span::hours(1), RandomDraw::LOWEST),
        RetryDecision::TooOld
    );
}

#[test]
fn a_policy_that_names_its_kind_ends_after_three_runs_and_one_that_does_not_outlives_an_outage() {
    let written = r#"{"kind":"exponential","base":"1s","factor":2.0,"cap":"1h","jitter":0.25,"max_attempts":20}"#;
    let of_queues = RetryPolicy::of_queues();
    assert_eq!(policy(written), of_queues);
    assert_eq!(policy("{}"), of_queues);
    let lasts = shortest_lifetime(&of_queues).expect("its runs have a bound");
    assert_eq!(
        shortest_lifetime(&RetryPolicy::default()),
        Some(Span::secs(3))
    );
    assert_eq!(
        shortest_lifetime(&policy(r#"{"max_attempts":"unlimited"}"#)),
        None
    );
    assert!(lasts > Span::hours(8) && lasts < Span::hours(10), "{lasts}");
    let five = NonZeroU32::new(5).expect("not zero");
    assert_eq!(
        policy(r#"{"max_attempts":5}"#),
        of_queues.clone().with_max_attempts(five)
    );
    let slow = policy(r#"{"base":"10s","jitter":"none","max_age":"1d"}"#);
    assert_eq!(
        (slow.max_attempts(), slow.max_age()),
        (Some(20), Some(Span::days(1)))
    );
    assert_eq!(
        slow.wait(2, Span::ZERO, RandomDraw::HIGHEST),
        Some(Span::secs(20))
    );
    assert_eq!(policy(r#"{"kind":"exponential"}"#), RetryPolicy::default());
    assert_eq!(
        policy(r#"{"kind":"constant","every":"1s"}"#).max_attempts(),
        Some(3)
    );
    check_refused(
        r#"{"every":"1s"}"#,
        "`every` does not belong to a policy of kind exponential",
    );
}

#[test]
fn a_policy_of_a_stream_that_names_no_kind_ends_after_three_runs() {
    let read = |json: &str| deserialize_for_stream(&mut serde_json::Deserializer::from_str(json));
    assert_eq!(read("null").expect("read"), None);
    assert_eq!(read("{}").expect("read"), Some(RetryPolicy::default()));
    let slow = read(r#"{"base":"10s"}"#).expect("read").expect("a policy");
    assert_eq!(
        (slow.max_attempts(), slow.jitter()),
        (Some(3), Jitter::Add(0.25))
    );
    assert_eq!(
        read(r#"{"kind":"polynomial"}"#).expect("read"),
        Some(policy(r#"{"kind":"polynomial"}"#))
    );
}

#[test]
fn a_policy_that_cannot_work_is_refused_with_what_to_write() {
    check_refused(
        r#"{"kind":"exponential","max_attempts":0}"#,
        "max_attempts` must be at least 1",
    );
    check_refused(
        r#"{"kind":"exponential","max_attempts":-1}"#,
        "max_attempts` must be at least 1",
    );
    check_refused(
        r#"{"kind":"exponential","base":"0s"}"#,
        "`base` must be longer than nothing",
    );
    check_refused(r#"{"kind":"exponential","base":"-1s"}"#, "not a duration");
    check_refused(
        r#"{"kind":"exponential","factor":0.5}"#,
        "`factor` must be from 1",
    );
    check_refused(
        r#"{"kind":"exponential","factor":null,"jitter":1.5}"#,
        "`jitter` must be a share",
    );
    check_refused(
        r#"{"kind":"exponential","delays":["1s"]}"#,
        "`delays` does not belong",
    );
    check_refused(r#"{"kind":"exponential","colour":1}"#, "unknown field");
    check_refused(r#"{"kind":"steps"}"#, "needs `delays`");
    check_refused(
        r#"{"kind":"steps","delays":[]}"#,
        "a list of 1 to 100 delays",
    );
    let delays = |count: usize| {
        format!(
            r#"{{"kind":"steps","delays":[{}"1s"]}}"#,
            r#""1s","#.repeat(count - 1)
        )
    };
    assert!(RetryPolicy::from_json(delays(RETRY_STEPS_MAX).as_bytes()).is_ok());
    check_refused(&delays(RETRY_STEPS_MAX + 1), "a list of 1 to 100 delays");
    let band = |day: usize| format!(r#"{{"until":"{day}d","every":"1h"}}"#);
    let bands: Vec<String> = (1..=RETRY_STEPS_MAX + 1).map(band).collect();
    let bands = format!(r#"{{"kind":"progressive","bands":[{}]}}"#, bands.join(","));
    check_refused(&bands, "a list of 1 to 100 bands");
    check_refused(r#"{"kind":"constant"}"#, "needs `every`");
    check_refused(r#"{"kind":"polynomial","jitter":0.1}"#, "does not belong");
    check_refused(r#"{"kind":"linear"}"#, "kinds are exponential");
    let falling = r#"{"kind":"progressive","bands":[{"until":"2d","every":"1h"},{"until":"1d","every":"5m"}]}"#;
    check_refused(falling, "rising");
    check_refused("[]", "not a retry policy");
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let span = (1..DELAY_MAX.as_micros()).prop_map(Span::micros);
    let curve = prop_oneof![
        (span.clone(), 1.0..1000.0, span.clone())
            .prop_map(|(base, factor, cap)| RetryCurve::Exponential { base, factor, cap }),
        (span.clone(), span.clone()).prop_map(|(unit, cap)| RetryCurve::Fibonacci { unit, cap }),
        prop::collection::vec(span.clone(), 1..8).prop_map(RetryCurve::Steps),
        span.clone().prop_map(RetryCurve::Constant),
        Just(RetryCurve::Polynomial),
    ];
    let jitter = prop_oneof![
        Just(Jitter::None),
        (0.01..1.0).prop_map(Jitter::Add),
        (0.01..1.0).prop_map(Jitter::Spread),
        Just(Jitter::Full),
        Just(Jitter::Equal),
    ];
    (
        curve,
        jitter,
        prop::option::of(1..1_000_000_u32),
        prop::option::of(span),
    )
        .prop_map(|(curve, jitter, max_attempts, max_age)| {
            let jitter = if curve == RetryCurve::Polynomial {
                Jitter::None
            } else {
                jitter
            };
            RetryPolicy {
                curve,
                jitter,
                max_attempts,
                max_age,
            }
        })
}

proptest! {
    #[test]
    fn a_wait_lies_between_its_bounds_at_any_attempt(
        policy in any_policy(), failures in 1..=1_000_000_u32, age in 0..i64::MAX, bits: u64,
    ) {
        let age = Span::micros(age);
        let wait = |roll| policy.wait(failures, age, roll).expect("only a progressive curve ends");
        let drawn = wait(RandomDraw::from_bits(bits));
        prop_assert!(drawn >= Span::ZERO && drawn <= DELAY_MAX.times(2));
        prop_assert!(wait(RandomDraw::LOWEST) <= drawn && drawn <= wait(RandomDraw::HIGHEST));
        let is_whole = drawn == Span::millis(drawn.as_millis());
        prop_assert!(is_whole || drawn < Span::millis(1), "{drawn}");
    }

    #[test]
    fn once_capped_a_wait_with_added_jitter_never_falls_below_the_cap(
        cap in 1..1_000_000_i64, failures in 64..=1_000_000_u32, bits: u64,
    ) {
        let cap = Span::millis(cap);
        for curve in [
            RetryCurve::Exponential { base: Span::micros(1), factor: 2.0, cap },
            RetryCurve::Fibonacci { unit: Span::micros(1), cap },
        ] {
            let policy = RetryPolicy { curve, jitter: Jitter::Add(0.25), max_attempts: None, max_age: None };
            let wait = policy.wait(failures, Span::ZERO, RandomDraw::from_bits(bits)).expect("never ends");
            prop_assert!(wait >= cap && wait <= cap.plus(cap.scaled(0.25)));
        }
    }

    #[test]
    fn without_jitter_a_wait_never_shrinks(policy in any_policy(), failures in 1..1_000_000_u32) {
        let policy = RetryPolicy { jitter: Jitter::None, ..policy };
        prop_assume!(!matches!(policy.curve, RetryCurve::Steps(_)));
        let wait = |failures| policy.wait(failures, Span::ZERO, RandomDraw::LOWEST).expect("never ends");
        prop_assert!(wait(failures) <= wait(failures + 1));
    }

    #[test]
    fn a_policy_reads_back_as_written(policy in any_policy()) {
        let read = RetryPolicy::from_json(&policy.to_json()).expect("what we write we can read");
        prop_assert_eq!(read, policy);
    }

    #[test]
    fn a_roll_is_below_one(bits: u64) {
        prop_assert!(RandomDraw::from_bits(bits) >= RandomDraw::LOWEST && RandomDraw::from_bits(bits) <= RandomDraw::HIGHEST);
    }
}
