use crate::place::Place;
use serde_json::{Value, json};

/// A minute of 20 jobs a second, a third of it without the service.
const SMALL: [&str; 10] = [
    "policy",
    "simulate",
    "--rate",
    "20/s",
    "--outage",
    "20s",
    "--outage-at",
    "10s",
    "--for",
    "1m",
];

fn small(more: &[&str]) -> Value {
    Place::new().json(SMALL.iter().chain(more))
}

#[test]
fn the_shape_is_exact() {
    let mut shape = small(&["--seed", "7"]);
    let buckets = shape["buckets"].take();
    let buckets = buckets.as_array().unwrap();
    assert_eq!(buckets.len(), 120);
    assert_eq!(
        buckets[0],
        json!({ "at_ms": 0, "calls": 10, "failed": 0, "backlog": 1, "dead": 0 })
    );
    let expected = json!({
        "scenario": {
            "arrivals_per_second": 20.0,
            "run_for_ms": 60_000,
            "outage_from_ms": 10_000,
            "outage_until_ms": 30_000,
            "service_time_ms": 50.0,
            "concurrency": 8,
            "policy": {
                "kind": "exponential", "base": "1s", "factor": 2.0, "cap": "30s", "jitter": 0.25, "max_attempts": 3
            },
            "breaker": null,
            "seed": 7,
            "bucket_ms": 500,
        },
        "jobs": 1_200,
        "done": 866,
        "dead": 333,
        "calls": 1_978,
        "failed_calls": 1_111,
        "calls_during_outage": 1_110,
        "probes": 0,
        "peak_calls_per_bucket_after_recovery": 30,
        "peak_after_recovery_at_ms": 30_000,
        "backlog_gone_at_ms": 32_343,
        "buckets": null,
    });
    assert_eq!(shape, expected);
}

#[test]
fn a_breaker_spares_the_service_and_the_jobs() {
    let (without, with) = (small(&[]), small(&["--breaker"]));
    let number = |shape: &Value, key: &str| shape[key].as_u64().unwrap();
    assert!(
        number(&without, "dead") > 300 && number(&without, "calls_during_outage") > 1_000,
        "{without}"
    );
    assert!(
        number(&with, "dead") == 0 && number(&with, "calls_during_outage") < 20,
        "{with}"
    );
    let usual = json!({
        "failure_threshold": 5, "recovery_timeout": "30s", "half_open_max_calls": 3, "success_threshold": 2
    });
    assert_eq!(with["scenario"]["breaker"], usual);
    let own = small(&["--breaker", r#"{"recovery_timeout":"2s"}"#]);
    assert!(number(&own, "probes") > number(&with, "probes"), "{own}");
}

#[test]
fn a_seed_gives_the_same_and_another_gives_another() {
    assert_eq!(small(&["--seed", "3"]), small(&["--seed", "3"]));
    assert_ne!(
        small(&["--seed", "3"])["calls"],
        small(&["--seed", "4"])["calls"]
    );
}

#[test]
fn people_get_a_chart_and_four_sentences() {
    let answer = Place::new().run(SMALL).succeeded();
    for part in [
        "█ succeeded, ░ failed",
        "░░░",
        "━━━",
        "Outage: ",
        "Recovery: ",
        "Backlog: ",
        "Deaths: ",
    ] {
        assert!(
            answer.stdout.contains(part),
            "{part:?} is missing: {}",
            answer.stdout
        );
    }
    assert!(
        !answer.stdout.contains('\x1b'),
        "no colours where there is no terminal"
    );
    assert!(
        answer
            .stdout
            .lines()
            .all(|line| line.chars().count() <= 120),
        "{}",
        answer.stdout
    );
}

#[test]
fn without_a_length_it_goes_on_until_the_backlog_is_gone() {
    let slow = r#"{"kind":"constant","every":"5m","max_attempts":"unlimited"}"#;
    let shape = Place::new().json([
        "policy", "simulate", "--rate", "60/m", "--outage", "1m", "--policy", slow,
    ]);
    let gone_at_ms = shape["backlog_gone_at_ms"].as_i64().unwrap();
    let run_for_ms = shape["scenario"]["run_for_ms"].as_i64().unwrap();
    assert!(
        gone_at_ms > 300_000 && run_for_ms > gone_at_ms && run_for_ms < 2 * gone_at_ms,
        "{shape}"
    );
    let overrun = [
        "policy",
        "simulate",
        "--rate",
        "20/s",
        "--outage",
        "1m",
        "--concurrency",
        "1",
    ];
    let answer = Place::new().run(overrun).succeeded();
    assert!(answer.stdout.contains("it never goes"), "{}", answer.stdout);
}

#[test]
fn the_picture_stands_for_itself() {
    let place = Place::new();
    let svg = ["--svg", "chart.svg", "--breaker"];
    place.run(SMALL.iter().chain(&svg)).succeeded();
    let picture = place.read("chart.svg");
    assert!(picture.starts_with("<svg ") && picture.contains("prefers-color-scheme: dark"));
    assert!(
        picture.contains("&quot;kind&quot;:&quot;exponential&quot;")
            && !picture.contains("<script")
    );
    let nowhere = ["--svg", "no/such/folder/chart.svg"];
    place
        .run(SMALL.iter().chain(&nowhere))
        .complains(1, &["chart", "no/such/folder"]);
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_to_write() {
    let place = Place::new();
    let check = |args: &[&str], parts: &[&str]| {
        place
            .run(["policy", "simulate"].iter().chain(args))
            .complains(2, parts);
    };
    check(&["--rate", "100"], &["--rate", "100/s"]);
    check(&["--rate", "0/s"], &["a number above 0"]);
    check(&["--outage", "10"], &["--outage", "not a duration"]);
    check(
        &["--outage", "0s"],
        &["error: an outage", "try: --outage 10m"],
    );
    check(
        &["--for", "5m"],
        &["end before the simulation", "try: --for 21m"],
    );
    check(&["--service-time", "0s"], &["service time of 0s"]);
    check(&["--concurrency", "0"], &["concurrency of 0"]);
    check(&["--rate", "100000/s"], &["too many to simulate", "try: "]);
    check(
        &["--policy", r#"{"colour":1}"#],
        &["error: not a retry policy", "try: "],
    );
    check(
        &["--breaker", r#"{"success_threshold":9}"#],
        &["error: not a breaker", "`success_threshold` is 9", "try: "],
    );
    check(
        &["--breaker", r#"{"colour":1}"#],
        &["unknown field `colour`"],
    );
}

#[test]
fn help_teaches_with_and_without_a_breaker() {
    let help = Place::new()
        .run(["policy", "simulate", "--help"])
        .succeeded()
        .stdout;
    assert!(help.contains("Examples:"), "{help}");
    let examples: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with("  backstop policy simulate"))
        .collect();
    assert!(
        examples.iter().any(|line| line.contains("--breaker")),
        "{help}"
    );
    assert!(
        examples.iter().any(|line| !line.contains("--breaker")),
        "{help}"
    );
}
