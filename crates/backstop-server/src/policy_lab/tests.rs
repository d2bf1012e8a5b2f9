use super::*;
use backstop_core::RetryPolicy;
use backstop_core::simulate::{Scenario, SimulationBucket, SimulationResult};

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
fn lengths_of_time_are_round() {
    let check =
        |whole: Span, most, step: Span| assert_eq!(round_step(whole, most), step, "{whole}");
    check(Span::minutes(16), 240, Span::secs(5));
    check(Span::minutes(20), 240, Span::secs(5));
    check(Span::secs(1_201), 240, Span::secs(10));
    check(Span::millis(7), 240, Span::millis(1));
    check(Span::days(3_660), 240, Span::days(30));
}

#[test]
fn the_picture_is_well_formed_and_has_no_script() {
    let svg = render_picture(&scenario(), &simulated(&CALLS), PictureStyle::Standalone);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for part in [
        "<title",
        "prefers-color-scheme: dark",
        "succeeded",
        "failed",
        "service out",
        "no breaker",
    ] {
        assert!(svg.contains(part), "{part} is missing");
    }
    for foreign in ["<script", "href", "javascript", "onload", "NaN", "inf"] {
        assert!(!svg.contains(foreign), "{foreign} does not belong");
    }
    // Every element is closed, one way or the other.
    let opened = svg.matches('<').count() - svg.matches("</").count() - svg.matches("/>").count();
    assert_eq!(opened, svg.matches("</").count());
    assert_eq!(
        svg.matches("<rect class=\"out\"").count(),
        3,
        "two panels and the legend"
    );
}

#[test]
fn in_a_page_the_page_has_the_colours() {
    let svg = render_picture(&scenario(), &simulated(&CALLS), PictureStyle::Embedded);
    assert!(
        !svg.contains("<style")
            && !svg.contains("style=")
            && svg.contains("class=\"chart outage\"")
    );
}

#[test]
fn without_a_length_it_is_played_until_the_backlog_is_gone() {
    let question = SimulationRequest {
        outage: Span::minutes(1),
        ..SimulationRequest::default()
    };
    let (scenario, simulated) = question.run().unwrap();
    assert!(
        simulated
            .backlog_gone_at
            .is_some_and(|at| at <= scenario.run_for)
    );
    let short = SimulationRequest {
        run_for: Some(Span::secs(130)),
        ..question
    };
    assert_eq!(short.run().unwrap().0.run_for, Span::secs(130));
}
