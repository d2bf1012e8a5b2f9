mod simulate;

use crate::place::Place;
use serde_json::json;

fn preview(policy: &str, attempts: &str) -> Vec<(u64, i64, i64)> {
    let place = Place::new();
    let shape = place.json([
        "policy",
        "preview",
        "--policy",
        policy,
        "--attempts",
        attempts,
    ]);
    let entry = |delay: &serde_json::Value| {
        let number = |key: &str| delay[key].as_i64().unwrap();
        (
            delay["failures"].as_u64().unwrap(),
            number("min_ms"),
            number("max_ms"),
        )
    };
    shape["delays"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect()
}

#[test]
fn the_usual_policy_prints_the_table_of_its_page() {
    let answer = Place::new().run(["policy", "preview"]).succeeded();
    let expected = "\
| Attempt | Base Delay     | With Jitter (0-25%) |
| ------- | -------------- | ------------------- |
| 1       | 1.0s           | 1.0s - 1.25s        |
| 2       | 2.0s           | 2.0s - 2.5s         |
| 3       | 4.0s           | 4.0s - 5.0s         |
| 4       | 8.0s           | 8.0s - 10.0s        |
| 5       | 16.0s          | 16.0s - 20.0s       |
| 6+      | 30.0s (capped) | 30.0s - 37.5s       |
";
    assert!(answer.stdout.starts_with(expected), "{}", answer.stdout);
    assert!(
        answer.stdout.contains("max_attempts 3 cuts this"),
        "{}",
        answer.stdout
    );
}

#[test]
fn the_shape_is_exact() {
    let policy = r#"{"kind":"exponential","base":"1s","factor":2.0,"cap":"30s","jitter":0.25,"max_attempts":3}"#;
    let shape = Place::new().json(["policy", "preview", "--policy", policy, "--attempts", "2"]);
    let expected = json!({ "delays": [
        { "failures": 1, "min_ms": 1000, "max_ms": 1250 },
        { "failures": 2, "min_ms": 2000, "max_ms": 2500 },
    ]});
    assert_eq!(shape, expected);
}

#[test]
fn every_kind_can_be_previewed() {
    let steps = preview(r#"{"kind":"steps","delays":["10s","20s"]}"#, "3");
    assert_eq!(
        steps,
        [
            (1, 10_000, 10_000),
            (2, 20_000, 20_000),
            (3, 20_000, 20_000)
        ]
    );
    let fibonacci = preview(r#"{"kind":"fibonacci","unit":"1m"}"#, "6");
    assert_eq!(
        (fibonacci[0], fibonacci[6]),
        ((0, 0, 0), (6, 480_000, 480_000))
    );
    let polynomial = preview(r#"{"kind":"polynomial"}"#, "2");
    assert_eq!(polynomial, [(1, 15_000, 44_000), (2, 16_000, 74_000)]);
    let progressive = preview(r#"{"kind":"progressive"}"#, "1");
    assert_eq!(progressive, [(1, 300_000, 300_000)]);
    assert_eq!(
        preview(r#"{"kind":"constant","every":"1m"}"#, "1"),
        [(1, 60_000, 60_000)]
    );
}

#[test]
fn a_policy_that_cannot_work_is_refused_with_the_kinds_there_are() {
    let place = Place::new();
    place
        .run(["policy", "preview", "--policy", r#"{"kind":"magic"}"#])
        .complains(
            2,
            &[
                "error: `magic` is not a kind of policy",
                "fibonacci",
                "try: ",
            ],
        );
    place
        .run(["policy", "preview", "--attempts", "0"])
        .complains(2, &["--attempts"]);
}
