use super::*;
use proptest::prelude::*;

const START: Time = Time::from_millis(1_000_000_000);

fn limit(count: u32, per: &str) -> RateLimit {
    RateLimit::new(count, per.parse().expect("a span"))
}

/// Checks steps: milliseconds after the start, the runs wanted, and the runs admitted.
fn check(limit: RateLimit, steps: &[(i64, u32, u32)]) {
    let mut rate = RateBucket::default();
    for (at_ms, wanted, expected) in steps {
        let now = START.after(Span::millis(*at_ms));
        assert_eq!(
            rate.take(&limit, *wanted, now),
            *expected,
            "{wanted} at {at_ms} ms"
        );
    }
}

#[test]
fn a_full_count_may_come_at_once_and_then_one_at_a_time() {
    check(
        limit(3, "60s"),
        &[
            (0, 10, 3),
            (0, 1, 0),
            (19_999, 1, 0),
            (20_000, 1, 1),
            (20_000, 1, 0),
        ],
    );
    check(limit(3, "60s"), &[(0, 3, 3), (60_000, 10, 3)]);
}

#[test]
fn a_smaller_burst_spreads_the_same_pace() {
    check(
        limit(60, "60s").burst(1),
        &[
            (0, 9, 1),
            (999, 1, 0),
            (1_000, 9, 1),
            (3_000, 9, 1),
            (4_000, 9, 1),
        ],
    );
    check(
        limit(60, "60s").burst(2),
        &[(0, 9, 2), (1_000, 9, 1), (9_000, 9, 2)],
    );
}

#[test]
fn a_pace_that_does_not_divide_evenly_is_exact() {
    let limit = limit(21_600, "60s");
    let mut rate = RateBucket::default();
    assert_eq!(rate.take(&limit, 21_600, START), 21_600);
    let taken: u32 = (1..=60_000)
        .map(|ms| rate.take(&limit, 100, START.after(Span::millis(ms))))
        .sum();
    assert_eq!(
        taken, 21_600,
        "not one more or less in the minute that follows"
    );
}

#[test]
fn the_wait_ends_at_the_very_microsecond() {
    let limit = limit(7, "1s");
    let mut rate = RateBucket::default();
    assert_eq!(rate.take(&limit, 7, START), 7);
    let wait = rate.free_in(&limit, START);
    assert_eq!(
        wait,
        Span::micros(142_858),
        "a seventh of a second, rounded up"
    );
    let mut early = rate;
    assert_eq!(
        early.take(&limit, 1, START.after(wait).before(Span::micros(1))),
        0
    );
    assert_eq!(rate.take(&limit, 1, START.after(wait)), 1);
    assert_eq!(RateBucket::default().free_in(&limit, START), Span::ZERO);
}

#[test]
fn what_was_not_used_can_be_used_again() {
    let limit = limit(3, "60s");
    let mut rate = RateBucket::default();
    assert_eq!(rate.take(&limit, 3, START), 3);
    rate.give_back(&limit, 2, START);
    assert_eq!(rate.take(&limit, 9, START), 2);
    rate.give_back(&limit, 99, START);
    assert_eq!(
        rate.take(&limit, 9, START),
        3,
        "never more than the bucket holds"
    );
}

#[test]
fn a_clock_that_is_set_back_blocks_for_no_longer_than_a_full_bucket() {
    let limit = limit(3, "60s");
    let mut rate = RateBucket::default();
    assert_eq!(rate.take(&limit, 3, START), 3);
    let back = START.before(Span::hours(8));
    assert_eq!(rate.take(&limit, 1, back), 0);
    assert_eq!(rate.take(&limit, 9, back.after(Span::secs(60))), 3);
}

#[test]
fn two_whose_clocks_differ_get_no_more_than_one_who_asks_alone() {
    // A model of two workers that ask in turn for 20 s, one of them with a clock 400 ms ahead.
    let limit = limit(360, "1s");
    let mut rate = RateBucket::default();
    let taken: u32 = (0..800_i64)
        .map(|turn| {
            START
                .after(Span::millis(turn * 25))
                .after(Span::millis(400 * (turn % 2)))
        })
        .map(|now| rate.take(&limit, 100, now))
        .sum();
    let most = 360 + 20 * 360 + 360 * 4 / 10;
    assert!((7_000..=most).contains(&taken), "{taken} of {most}");
}

#[test]
fn whoever_is_behind_is_told_how_long_it_takes_by_its_own_clock() {
    let limit = limit(1, "10s");
    let mut rate = RateBucket::default();
    let (ahead, behind) = (START.after(Span::millis(400)), START);
    assert_eq!(rate.take(&limit, 1, ahead), 1);
    assert_eq!(rate.free_in(&limit, behind), Span::millis(10_400));
    assert_eq!(rate.take(&limit, 1, behind.after(Span::millis(10_399))), 0);
    assert_eq!(rate.take(&limit, 1, behind.after(Span::millis(10_400))), 1);
}

#[test]
fn a_clock_that_is_set_back_a_little_blocks_for_no_longer_than_that() {
    let limit = limit(3, "60s");
    let mut rate = RateBucket::default();
    assert_eq!(rate.take(&limit, 3, START), 3);
    assert_eq!(rate.take(&limit, 1, START.before(Span::secs(59))), 0);
    assert_eq!(
        rate.take(&limit, 1, START.after(Span::secs(20))),
        1,
        "what was taken was taken at the start"
    );
}

#[test]
fn a_limit_that_was_lowered_is_met_at_once_and_blocks_no_longer_than_its_own_bucket() {
    let mut rate = RateBucket::default();
    assert_eq!(rate.take(&limit(1_000, "60s"), 1_000, START), 1_000);
    let lowered = limit(2, "10s");
    assert_eq!(rate.take(&lowered, 1, START), 0);
    assert_eq!(rate.take(&lowered, 9, START.after(Span::secs(10))), 2);
}

#[test]
fn what_is_over_the_limit_goes_back_until_there_is_room_unless_over_says_how_long() {
    let check = |limit: RateLimit, free_in: Span, expected: Span| {
        assert_eq!(limit.back_for(free_in), expected);
    };
    check(limit(5, "1s"), Span::millis(200), Span::millis(200));
    check(limit(5, "1s"), Span::millis(3), BACK_MIN);
    check(
        limit(5, "1s").over(Span::minutes(5)),
        Span::millis(200),
        Span::minutes(5),
    );
    let written = |json: &str| serde_json::from_str::<RateLimit>(json).expect(json);
    assert_eq!(written(r#"{"count":5,"per":"1s"}"#), limit(5, "1s"));
    assert_eq!(
        written(r#"{"count":5,"per":"1s","over":"5m"}"#),
        limit(5, "1s").over(Span::minutes(5))
    );
}

#[test]
fn limits_that_cannot_work_are_refused() {
    let check = |limit: RateLimit, expected: &str| {
        assert!(
            limit
                .check()
                .expect_err("refused")
                .to_string()
                .contains(expected),
            "{limit:?}"
        );
    };
    check(limit(0, "60s"), "`count`");
    check(limit(RATE_COUNT_MAX + 1, "60s"), "`count`");
    check(RateLimit::new(1, Span::ZERO), "`per`");
    check(limit(1, "2d"), "`per`");
    check(limit(1, "60s").over(Span::ZERO), "`over`");
    check(limit(1, "60s").burst(0), "`burst`");
    assert_eq!(limit(21_600, "60s").check(), Ok(()));
    assert_eq!(RateLimit::new(RATE_COUNT_MAX, RATE_PER_MAX).check(), Ok(()));
}

proptest! {
    #[test]
    fn no_window_sees_more_than_the_burst_and_the_pace_allow(
        (count, per_ms, burst) in (1..200_u32, 1..5_000_i64, 1..200_u32),
        steps in prop::collection::vec((0..3_000_i64, 0..50_u32), 1..60),
    ) {
        let limit = RateLimit::new(count, Span::millis(per_ms)).burst(burst);
        let (mut rate, mut now, mut taken) = (RateBucket::default(), START, Vec::new());
        for (gap_ms, wanted) in steps {
            now = now.after(Span::millis(gap_ms));
            taken.push((now, rate.take(&limit, wanted, now)));
        }
        for from in 0..taken.len() {
            let mut sum = 0_i128;
            for (at, count_taken) in &taken[from..] {
                sum += i128::from(*count_taken);
                let window = i128::from(at.since(taken[from].0).as_micros());
                let most = i128::from(burst) + window * i128::from(count) / i128::from(limit.per.as_micros());
                prop_assert!(sum <= most, "{sum} of {most} in {window} us");
            }
        }
    }

    #[test]
    fn clocks_that_differ_stretch_a_window_once(
        (count, per_ms, burst) in (1..200_u32, 1..5_000_i64, 1..200_u32),
        ahead_ms in prop::collection::vec(0..1_000_i64, 2..5),
        steps in prop::collection::vec((0..300_i64, 0..50_u32, 0..100_usize), 1..80),
    ) {
        let limit = RateLimit::new(count, Span::millis(per_ms)).burst(burst);
        let (mut rate, mut now, mut taken) = (RateBucket::default(), START, Vec::new());
        for (gap_ms, wanted, who) in steps {
            now = now.after(Span::millis(gap_ms));
            let clock = now.after(Span::millis(ahead_ms[who % ahead_ms.len()]));
            taken.push((now, rate.take(&limit, wanted, clock)));
        }
        let apart_us = 1_000 * i128::from(ahead_ms.iter().max().unwrap() - ahead_ms.iter().min().unwrap());
        for from in 0..taken.len() {
            let mut sum = 0_i128;
            for (at, count_taken) in &taken[from..] {
                sum += i128::from(*count_taken);
                let window = i128::from(at.since(taken[from].0).as_micros()) + apart_us;
                let most = i128::from(burst) + window * i128::from(count) / i128::from(limit.per.as_micros());
                prop_assert!(sum <= most, "{sum} of {most} in {window} us");
            }
        }
    }

    #[test]
    fn whoever_waits_as_long_as_told_gets_one(
        (count, per_us, burst) in (1..100_000_u32, 1_000..100_000_000_i64, 1..100_u32), wanted in 1..200_u32, gap_us in -100_000..100_000_i64,
    ) {
        let limit = RateLimit::new(count, Span::micros(per_us)).burst(burst);
        let mut rate = RateBucket::default();
        rate.take(&limit, wanted, START);
        let later = Time::from_micros(START.as_micros() + gap_us);
        let wait = rate.free_in(&limit, later);
        prop_assert_eq!(rate.take(&limit, 1, later.after(wait)), 1);
    }

    #[test]
    fn asking_in_parts_gets_no_more_and_no_less_than_asking_at_once(
        (count, burst) in (1..100_u32, 1..100_u32), parts in prop::collection::vec(0..20_u32, 1..20),
    ) {
        let limit = RateLimit::new(count, Span::secs(1)).burst(burst);
        let (mut whole, mut cut) = (RateBucket::default(), RateBucket::default());
        let all = whole.take(&limit, parts.iter().sum(), START);
        let sum: u32 = parts.iter().map(|part| cut.take(&limit, *part, START)).sum();
        prop_assert_eq!(all, sum);
        prop_assert_eq!(whole, cut);
    }
}
