use super::*;
use crate::limits::{SIMULATED_BUCKETS_MAX, SIMULATED_EVENTS_MAX};
use proptest::prelude::*;

/// 10 jobs a second, 4 calls at a time of 100 ms, an outage from 10 s to 40 s, over two minutes.
fn scenario() -> Scenario {
    Scenario {
        arrivals_per_second: 10.0,
        run_for: Span::minutes(2),
        outage: (Span::secs(10), Span::secs(40)),
        service_time: Span::millis(100),
        concurrency: 4,
        policy: policy(r#"{"kind":"constant","every":"5s","max_attempts":"unlimited"}"#),
        breaker: None,
        seed: 1,
        bucket: Span::secs(1),
    }
}

/// The same scenario, with a slot for every call that is due.
fn roomy() -> Scenario {
    Scenario {
        concurrency: 40,
        ..scenario()
    }
}

fn policy(json: &str) -> RetryPolicy {
    RetryPolicy::from_json(json.as_bytes()).expect("a policy")
}

fn simulated(scenario: &Scenario) -> SimulationResult {
    simulate(scenario).expect("a scenario")
}

fn left(simulated: &SimulationResult) -> u64 {
    simulated.buckets.last().expect("a bucket").backlog
}

/// Checks what must be true of every simulation.
fn check_sums(simulated: &SimulationResult) -> Result<(), TestCaseError> {
    let sum = |part: fn(&SimulationBucket) -> u64| simulated.buckets.iter().map(part).sum::<u64>();
    prop_assert_eq!(sum(|bucket| bucket.calls), simulated.calls);
    prop_assert_eq!(sum(|bucket| bucket.failed), simulated.failed_calls);
    prop_assert_eq!(sum(|bucket| bucket.dead), simulated.dead);
    prop_assert!(
        simulated
            .buckets
            .iter()
            .all(|bucket| bucket.failed <= bucket.calls)
    );
    prop_assert_eq!(
        simulated.done + simulated.dead + left(simulated),
        simulated.jobs
    );
    prop_assert!(simulated.calls_during_outage <= simulated.failed_calls);
    prop_assert!(simulated.done + simulated.failed_calls <= simulated.calls);
    Ok(())
}

#[test]
fn jobs_arrive_at_their_rate_to_the_job() {
    let check = |rate: f64, jobs: u64| {
        let simulated = simulated(&Scenario {
            arrivals_per_second: rate,
            ..scenario()
        });
        assert!(
            simulated.jobs.abs_diff(jobs) <= 1,
            "{rate}: {}",
            simulated.jobs
        );
    };
    check(10.0, 1_200);
    check(0.1, 12);
    check(333.3, 39_996);
}

#[test]
fn without_breaker_every_due_attempt_calls_the_service() {
    let simulated = simulated(&roomy());
    // Each of the 300 jobs of the outage fails at once and again every 5.1 s until it ends: 1, 2 …
    // 6 times.
    let expected: u64 = (1..=6).map(|attempts| attempts * 51).sum();
    assert!(
        simulated.calls_during_outage.abs_diff(expected) < 40,
        "{}",
        simulated.calls_during_outage
    );
    assert_eq!((simulated.dead, simulated.probes), (0, 0));
    // Calls under way when the outage began failed, too.
    assert!((1..=4).contains(&(simulated.failed_calls - simulated.calls_during_outage)));
}

#[test]
fn the_service_fails_during_the_outage_and_at_no_other_time() {
    let simulated = simulated(&scenario());
    for bucket in &simulated.buckets {
        let is_out = bucket.at >= Span::secs(10) && bucket.at < Span::secs(40);
        let failed = if is_out { bucket.calls } else { 0 };
        // Calls that began in the last second before the outage may have failed.
        if bucket.at != Span::secs(9) {
            assert_eq!(bucket.failed, failed, "{bucket:?}");
        }
    }
}

#[test]
fn the_backlog_is_gone_when_the_last_wait_is_over() {
    let simulated = simulated(&roomy());
    let gone_at = simulated.backlog_gone_at.expect("it is gone");
    assert!(
        gone_at >= Span::secs(44) && gone_at <= Span::secs(47),
        "{gone_at}"
    );
    let backlog_at = |secs: usize| simulated.buckets[secs].backlog;
    assert!(backlog_at(5) <= 4 && backlog_at(38) > 280 && backlog_at(60) <= 4);
}

#[test]
fn attempts_run_out_and_the_job_is_dead() {
    let twice = policy(r#"{"kind":"constant","every":"5s","max_attempts":2}"#);
    let simulated = simulated(&Scenario {
        policy: twice,
        ..scenario()
    });
    // Both attempts of a job fall into the outage if the job arrives more than 5.1 s before its
    // end.
    assert!(simulated.dead.abs_diff(250) <= 4, "{}", simulated.dead);
    let first = simulated
        .buckets
        .iter()
        .find(|bucket| bucket.dead > 0)
        .expect("some die");
    assert_eq!(first.at, Span::secs(15));
}

#[test]
fn old_age_kills_as_well() {
    let aging =
        policy(r#"{"kind":"constant","every":"5s","max_attempts":"unlimited","max_age":"12s"}"#);
    let simulated = simulated(&Scenario {
        policy: aging,
        ..scenario()
    });
    assert!(
        simulated.dead > 100 && simulated.dead < 200,
        "{}",
        simulated.dead
    );
}

#[test]
fn with_a_breaker_only_its_threshold_and_its_probes_call_and_nobody_dies() {
    let usual = Scenario {
        policy: RetryPolicy::default(),
        ..scenario()
    };
    let breaker = BreakerSettings {
        recovery_timeout: Span::secs(8),
        ..BreakerSettings::default()
    };
    let guarded = simulated(&Scenario {
        breaker: Some(breaker),
        ..usual.clone()
    });
    let unguarded = simulated(&usual);
    assert!(
        unguarded.dead > 200 && unguarded.calls_during_outage > 800,
        "{unguarded:?}"
    );
    // Five failures open the breaker, a few more calls are under way, and it lets through three
    // probes each at about 18, 26 and 34 s.
    assert!(
        guarded.calls_during_outage <= 5 + 4 + 9,
        "{}",
        guarded.calls_during_outage
    );
    assert_eq!(guarded.dead, 0);
    assert!(
        (3 + 2..=9 + 3).contains(&guarded.probes),
        "{}",
        guarded.probes
    );
    assert!(guarded.backlog_gone_at.is_some());
}

#[test]
fn while_the_breaker_is_open_nothing_is_called() {
    let breaker = BreakerSettings {
        recovery_timeout: Span::secs(60),
        ..BreakerSettings::default()
    };
    let simulated = simulated(&Scenario {
        breaker: Some(breaker),
        ..scenario()
    });
    let quiet = simulated
        .buckets
        .iter()
        .filter(|bucket| bucket.at > Span::secs(12) && bucket.at < Span::secs(69));
    assert_eq!(quiet.map(|bucket| bucket.calls).sum::<u64>(), 0);
    // Then the backlog runs at once, as fast as 4 calls of 100 ms can be.
    assert_eq!(simulated.peak_calls_per_bucket_after_recovery, 40);
    assert!(
        simulated.peak_after_recovery_at >= Span::secs(70),
        "{}",
        simulated.peak_after_recovery_at
    );
}

#[test]
fn a_quiet_queue_probes_as_soon_as_it_may() {
    let breaker = BreakerSettings {
        failure_threshold: 1,
        ..BreakerSettings::default()
    };
    let quiet = Scenario {
        arrivals_per_second: 0.001,
        run_for: Span::secs(1_000),
        outage: (Span::ZERO, Span::secs(999)),
        policy: policy(r#"{"kind":"constant","every":"1s","max_attempts":"unlimited"}"#),
        breaker: Some(breaker),
        ..scenario()
    };
    let simulated = simulated(&quiet);
    // One job, and nothing else that could trigger an event: a call every 30.1 s.
    let arrived = simulated
        .buckets
        .iter()
        .find(|bucket| bucket.calls > 0)
        .expect("a call")
        .at;
    let calls = (quiet.run_for.minus(arrived).as_millis() / 30_100).unsigned_abs();
    assert!(
        simulated.jobs == 1 && calls > 9 && simulated.calls.abs_diff(calls) <= 1,
        "{simulated:?}"
    );
}

#[test]
fn what_waits_goes_to_the_tail() {
    // One call at a time, and more jobs than it can do: a retry comes up only after all jobs that
    // arrived before it was due.
    let busy = Scenario {
        arrivals_per_second: 20.0,
        concurrency: 1,
        outage: (Span::ZERO, Span::millis(50)),
        run_for: Span::secs(20),
        policy: policy(r#"{"kind":"constant","every":"1s"}"#),
        ..scenario()
    };
    let simulated = simulated(&busy);
    assert_eq!(simulated.failed_calls, 1);
    assert_eq!(
        simulated.backlog_gone_at, None,
        "there is more to do than can be done"
    );
    assert!(left(&simulated).abs_diff(200) <= 2, "{}", left(&simulated));
}

#[test]
fn the_peak_after_recovery_leaves_the_outage_out() {
    let late = Scenario {
        outage: (Span::secs(10), Span::millis(40_500)),
        ..scenario()
    };
    let simulated = simulated(&late);
    let peak = simulated.peak_calls_per_bucket_after_recovery;
    assert!(simulated.peak_after_recovery_at >= Span::secs(40));
    let after = simulated
        .buckets
        .iter()
        .filter(|bucket| bucket.at >= Span::secs(41));
    assert!(after.map(|bucket| bucket.calls).max() <= Some(peak));
    assert!(peak <= 40);
}

#[test]
fn a_seed_gives_the_same_and_another_gives_another() {
    let jittered = Scenario {
        policy: policy(r#"{"kind":"exponential","jitter":"full"}"#),
        ..scenario()
    };
    assert_eq!(simulated(&jittered), simulated(&jittered));
    assert_ne!(
        simulated(&jittered),
        simulated(&Scenario {
            seed: 2,
            ..jittered
        })
    );
}

#[test]
fn draws_are_those_of_splitmix64_everywhere() {
    // A seed is useful only if it gives the same result after an update and on every machine.
    let simulated = simulated(&Scenario {
        policy: RetryPolicy::default(),
        ..scenario()
    });
    let sums = (
        simulated.calls,
        simulated.failed_calls,
        simulated.dead,
        simulated.backlog_gone_at,
    );
    assert_eq!(sums, (1_790, 856, 266, Some(Span::micros(42_525_993))));
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_what_must_be() {
    let check = |scenario: Scenario, words: &str| {
        let error = simulate(&scenario).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    };
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        check(
            Scenario {
                arrivals_per_second: rate,
                ..scenario()
            },
            "must be above 0",
        );
    }
    check(
        Scenario {
            concurrency: 0,
            ..scenario()
        },
        "at least 1",
    );
    check(
        Scenario {
            service_time: Span::ZERO,
            ..scenario()
        },
        "service time of 0s",
    );
    check(
        Scenario {
            service_time: Span::hours(25),
            ..scenario()
        },
        "at most 1d",
    );
    check(
        Scenario {
            outage: (Span::secs(9), Span::secs(9)),
            ..scenario()
        },
        "must take some time",
    );
    check(
        Scenario {
            outage: (Span::secs(9), Span::minutes(2)),
            ..scenario()
        },
        "end before the simulation",
    );
    check(
        Scenario {
            run_for: Span::days(10_000),
            ..scenario()
        },
        "too long",
    );
    check(
        Scenario {
            bucket: Span::ZERO,
            ..scenario()
        },
        "buckets of 0s",
    );
    check(
        Scenario {
            bucket: Span::millis(1),
            ..scenario()
        },
        "1 to 10000 of them",
    );
    let sticks = BreakerSettings {
        success_threshold: 9,
        ..BreakerSettings::default()
    };
    check(
        Scenario {
            breaker: Some(sticks),
            ..scenario()
        },
        "`success_threshold` is 9",
    );
    check(
        Scenario {
            arrivals_per_second: 50_000.0,
            ..scenario()
        },
        "more than 5000000",
    );
    assert_eq!(
        (SIMULATED_EVENTS_MAX, SIMULATED_BUCKETS_MAX),
        (5_000_000, 10_000)
    );
}

#[test]
fn a_scenario_that_turns_out_too_large_ends_with_an_error_and_not_never() {
    let endless = policy(r#"{"kind":"constant","every":"1us","max_attempts":"unlimited"}"#);
    let storm = Scenario {
        policy: endless,
        service_time: Span::micros(1),
        concurrency: 1_000,
        ..scenario()
    };
    assert_eq!(simulate(&storm), Err(InvalidScenario::TooLarge));
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    let policies = prop::sample::select(vec![
        r#"{"kind":"exponential"}"#,
        r#"{"kind":"exponential","jitter":"full","max_attempts":10}"#,
        r#"{"kind":"fibonacci","unit":"1s","max_attempts":8}"#,
        r#"{"kind":"constant","every":"3s","max_attempts":"unlimited"}"#,
        r#"{"kind":"steps","delays":["1s","10s"],"max_attempts":1}"#,
        r#"{"kind":"polynomial"}"#,
    ]);
    let breaker = prop::option::of((1..9_u32, 1..20_000_i64, 1..5_u32, 1..5_u32).prop_map(
        |(failures, recovery, calls, successes)| BreakerSettings {
            failure_threshold: failures,
            recovery_timeout: Span::millis(recovery),
            half_open_max_calls: calls,
            success_threshold: successes.min(calls),
        },
    ));
    let outage = (0..30_000_i64, 1..40_000_i64)
        .prop_map(|(from, length)| (Span::millis(from), Span::millis(from + length)));
    (
        1..50_u32,
        outage,
        1..2_000_i64,
        1..9_u32,
        policies,
        breaker,
        any::<u64>(),
        100..9_000_i64,
    )
        .prop_map(
            |(rate, outage, service, concurrency, json, breaker, seed, bucket)| Scenario {
                arrivals_per_second: f64::from(rate) / 2.0,
                run_for: Span::secs(90),
                outage,
                service_time: Span::millis(service),
                concurrency,
                policy: policy(json),
                breaker,
                seed,
                bucket: Span::millis(bucket),
            },
        )
}

proptest! {
    #[test]
    fn no_job_is_lost_and_no_call_uncounted(scenario in any_scenario()) {
        check_sums(&simulated(&scenario))?;
    }

    #[test]
    fn never_more_calls_than_there_is_room_for(scenario in any_scenario()) {
        let simulated = simulated(&scenario);
        let per_slot = scenario.bucket.as_micros() / scenario.service_time.as_micros() + 1;
        let most = u64::try_from(per_slot).expect("positive") * u64::from(scenario.concurrency);
        prop_assert!(simulated.buckets.iter().all(|bucket| bucket.calls <= most));
        prop_assert!(simulated.peak_calls_per_bucket_after_recovery <= most);
    }

    #[test]
    fn during_the_outage_a_breaker_lets_through_its_threshold_and_its_probes(scenario in any_scenario()) {
        prop_assume!(scenario.breaker.is_some());
        let breaker = scenario.breaker.unwrap_or_default();
        let (from, until) = scenario.outage;
        let rounds = until.minus(from).as_micros() / breaker.recovery_timeout.as_micros() + 1;
        let rounds = u64::try_from(rounds).expect("positive");
        let probes = rounds * u64::from(breaker.half_open_max_calls);
        // Calls that were under way when the breaker opened count once; a probe of one round may
        // still be under way in the next.
        let most = u64::from(breaker.failure_threshold + scenario.concurrency) + probes;
        let called = simulated(&scenario).calls_during_outage;
        prop_assert!(called <= most, "{called} > {most}");
    }
}
