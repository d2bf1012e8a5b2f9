use super::*;
use backstop::RetryPolicy;

/// 20 s out of one minute, in buckets of five seconds.
fn scenario() -> Scenario {
    Scenario {
        arrivals_per_second: 10.0,
        run_for: Span::minutes(1),
        outage: (Span::secs(20), Span::secs(40)),
        service_time: Span::millis(50),
        concurrency: 8,
        policy: RetryPolicy::default(),
        breaker: None,
        seed: 1,
        bucket: Span::secs(5),
    }
}

fn simulated(calls: &[(u64, u64, u64)]) -> SimulationResult {
    let bucket = |(n, &(calls, failed, backlog))| SimulationBucket {
        at: Span::secs(5).times(i64::try_from(n).unwrap()),
        calls,
        failed,
        backlog,
        dead: 0,
    };
    SimulationResult {
        buckets: calls.iter().enumerate().map(bucket).collect(),
        jobs: 600,
        done: 600,
        dead: 0,
        calls: calls.iter().map(|(calls, ..)| calls).sum(),
        failed_calls: calls.iter().map(|(_, failed, _)| failed).sum(),
        calls_during_outage: 300,
        probes: 0,
        peak_calls_per_bucket_after_recovery: 100,
        peak_after_recovery_at: Span::secs(40),
        backlog_gone_at: Some(Span::secs(50)),
    }
}

const CALLS: [(u64, u64, u64); 12] = [
    (50, 0, 1),
    (50, 0, 1),
    (50, 0, 2),
    (50, 1, 4),
    (100, 100, 100),
    (100, 100, 200),
    (100, 100, 300),
    (100, 100, 400),
    (100, 0, 200),
    (80, 0, 0),
    (50, 0, 0),
    (45, 0, 0),
];

#[test]
fn it_shows_when_calls_came_and_which_failed_without_any_colour() {
    let text = render(&scenario(), &simulated(&CALLS), 80, TextPaint::new(false));
    let expected = "\
Calls of the service per 5s: █ succeeded, ░ failed, · a few failed
    100 ┤    ░░░░█
        ┤    ░░░░█
        ┤    ░░░░██
        ┤    ░░░░██
        ┤    ░░░░██
        ┤████░░░░███▄
        ┤████░░░░████
        ┤████░░░░████
        ┤████░░░░████
        ┤███·░░░░████
      0 └────────────
    out      ━━━━
backlog  ▁▁▁▁▂▄▆█▄
   time  0s  20s 40s
";
    assert_eq!(text, expected);
}

#[test]
fn it_is_no_wider_than_the_terminal() {
    let many: Vec<_> = CALLS.iter().copied().cycle().take(240).collect();
    let long = Scenario {
        run_for: Span::minutes(20),
        ..scenario()
    };
    for width in [40, 60, 80, 200] {
        let text = render(&long, &simulated(&many), width, TextPaint::new(false));
        let widest = text
            .lines()
            .skip(1)
            .map(|line| line.chars().count())
            .max()
            .unwrap();
        assert!(
            widest <= width && widest > width / 2,
            "{width}: {widest}\n{text}"
        );
    }
    let text = render(&long, &simulated(&many), 40, TextPaint::new(false));
    assert!(text.starts_with("Calls of the service per 40s"), "{text}");
}

#[test]
fn the_least_failure_can_be_seen_and_nothing_is_nothing() {
    let rare = render(
        &scenario(),
        &simulated(&[(1_000_000, 1, 0), (0, 0, 0)]),
        80,
        TextPaint::new(false),
    );
    assert_eq!(
        rare.lines().nth(10).map(|line| line.ends_with("┤·")),
        Some(true),
        "{rare}"
    );
    let none = render(
        &scenario(),
        &simulated(&[(0, 0, 0)]),
        80,
        TextPaint::new(false),
    );
    assert_eq!(
        none.lines().filter(|line| line.ends_with('┤')).count(),
        10,
        "{none}"
    );
}

#[test]
fn where_all_failed_nothing_looks_as_if_it_had_succeeded() {
    let failed: Vec<_> = (0..=100).map(|calls| (calls, calls, 0)).collect();
    let text = render(&scenario(), &simulated(&failed), 200, TextPaint::new(false));
    let chart: String = text.lines().skip(1).take(10).collect();
    assert!(!chart.contains(&EIGHTHS[1..]), "{text}");
    let good: Vec<_> = (0..=100).map(|calls| (calls, 0, 0)).collect();
    let text = render(&scenario(), &simulated(&good), 200, TextPaint::new(false));
    assert!(
        !text
            .lines()
            .skip(1)
            .any(|line| line.contains([FAILED, FEW_FAILED])),
        "{text}"
    );
}
