use crate::place::{Place, json_args};
use serde_json::{Value, json};

fn replay(stream: &str, lines: &[Value]) -> (Vec<Value>, Value) {
    let input = lines
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let args = ["stream", "replay", "--stream", stream, "--input", "-"];
    let answer = Place::new()
        .feed(input.as_bytes(), json_args(args))
        .succeeded();
    let mut told: Vec<Value> = answer
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summary = told.pop().unwrap()["summary"].take();
    (told, summary)
}

#[test]
fn the_shapes_are_exact() {
    let lines = [
        json!({ "at_ms": 0, "key": "a", "position": 60_000 }),
        json!({ "at_ms": 500, "key": "a", "position": 360_000, "tenant": "t", "payload": { "x": 1 } }),
        json!({ "at_ms": 600, "key": "a", "position": 60_000 }),
    ];
    let (told, summary) = replay(r#"{"step":"1m","steps":["10s"],"max_misses":2}"#, &lines);
    let expected = [
        json!({ "at_ms": 0, "key": "a", "effect": "handled", "position": 60_000 }),
        json!({ "at_ms": 500, "key": "a", "effect": "held", "position": 360_000 }),
        json!({ "at_ms": 500, "key": "a", "effect": "wait", "position": 360_000, "until_ms": 10_500, "attempt": 1 }),
        json!({ "at_ms": 600, "key": "a", "effect": "duplicate", "position": 60_000 }),
        json!({ "at_ms": 10_500, "key": "a", "effect": "timeout", "position": 360_000 }),
        json!({ "at_ms": 10_500, "key": "a", "effect": "miss", "position": 120_000 }),
        json!({ "at_ms": 10_500, "key": "a", "effect": "miss", "position": 180_000 }),
        json!({ "at_ms": 10_500, "key": "a", "effect": "miss_range", "position": 240_000, "to": 300_000, "count": 2 }),
        json!({ "at_ms": 10_500, "key": "a", "effect": "handled", "position": 360_000 }),
    ];
    assert_eq!(told, expected);
    let expected = json!({
        "added": 1, "removed": 1, "task_scheduled": 1, "cleared": 0, "timeout": 1, "circuit_breaker": 0,
        "rescheduling": 0, "handled": 2, "misses": 4, "duplicates": 1, "late": 0, "held": 0,
        "watermarks": { "a": 360_000 },
    });
    assert_eq!(summary, expected);
}

#[test]
fn a_duplicate_off_the_step_is_told_and_counted_apart() {
    let line = |position: i64| json!({ "at_ms": 0, "key": "a", "position": position });
    let lines = [line(60_000), line(180_000), line(120_000), line(180_000)];
    let (told, summary) = replay(r#"{"step":"5m"}"#, &lines);
    let off_step = json!({ "position": 120_000, "step": 300_000, "from": 180_000 });
    let expected = [
        json!({ "at_ms": 0, "key": "a", "effect": "handled", "position": 60_000 }),
        json!({ "at_ms": 0, "key": "a", "effect": "handled", "position": 180_000 }),
        json!({ "at_ms": 0, "key": "a", "effect": "duplicate", "position": 120_000, "off_step": off_step }),
        json!({ "at_ms": 0, "key": "a", "effect": "duplicate", "position": 180_000 }),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        (&summary["duplicates"], &summary["off_step"]),
        (&json!(2), &json!(1))
    );
    let input = lines.map(|line| line.to_string()).join("\n");
    let args = [
        "stream",
        "replay",
        "--stream",
        r#"{"step":"5m"}"#,
        "--input",
        "-",
    ];
    let text = Place::new().feed(input.as_bytes(), args).succeeded().stdout;
    assert!(
        text.contains("a  handled 180000 (180000 is not on the step of 300000 from 60000)"),
        "{text}"
    );
    assert!(
        text.contains("a  duplicate 120000 (120000 is not on the step of 300000 from 180000)"),
        "{text}"
    );
    assert!(
        text.contains("2 duplicates (1 of them not on the step)"),
        "{text}"
    );
}

#[test]
fn the_worked_example_of_the_document_ends_as_it_says() {
    let minute = |hour: i64, minute: i64| (hour * 60 + minute) * 60_000;
    let lines = [
        json!({ "at_ms": 0, "key": "s", "position": minute(3, 59) }),
        json!({ "at_ms": 1_000, "key": "s", "position": minute(4, 1) }),
        json!({ "at_ms": 15_000, "key": "s", "position": minute(4, 0) }),
    ];
    let (told, summary) = replay(r#"{"step":"1m","drain":"scheduled"}"#, &lines);
    let handled: Vec<(i64, i64)> = told
        .iter()
        .filter(|effect| effect["effect"] == "handled")
        .map(|effect| {
            (
                effect["at_ms"].as_i64().unwrap(),
                effect["position"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        handled,
        [
            (0, minute(3, 59)),
            (31_000, minute(4, 0)),
            (31_000, minute(4, 1))
        ]
    );
    assert_eq!(
        (
            &summary["misses"],
            &summary["cleared"],
            &summary["rescheduling"]
        ),
        (&json!(0), &json!(1), &json!(1))
    );
    let (told, _) = replay(r#"{"step":"1m"}"#, &lines);
    assert_eq!(
        told.iter()
            .filter(|effect| effect["at_ms"] == 15_000 && effect["effect"] == "handled")
            .count(),
        2
    );
}

#[test]
fn events_of_keys_and_of_the_store_are_played() {
    let lines = [
        json!({ "at_ms": 0, "key": "a", "position": 60_000, "fail": 1 }),
        json!({ "at_ms": 5_000, "event": "store_down" }),
        json!({ "at_ms": 6_000, "key": "a", "position": 180_000 }),
        json!({ "at_ms": 7_000, "event": "store_up" }),
        json!({ "at_ms": 8_000, "key": "a", "event": "disable" }),
        json!({ "at_ms": 9_000, "key": "a", "position": 240_000 }),
        json!({ "at_ms": 10_000, "key": "a", "event": "enable" }),
        json!({ "at_ms": 11_000, "key": "a", "position": 300_000, "step_ms": 1_000 }),
    ];
    let stream = r#"{"step":"1m","retry":{"kind":"constant","every":"1s","max_attempts":2}}"#;
    let (told, summary) = replay(stream, &lines);
    let words: Vec<&str> = told
        .iter()
        .map(|effect| effect["effect"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        [
            "wait",
            "handled",
            "cleared",
            "miss",
            "handled",
            "forgotten",
            "handled"
        ]
    );
    assert_eq!(
        (&summary["handled"], &summary["misses"]),
        (&json!(3), &json!(1))
    );
}

#[test]
fn what_cannot_be_played_is_named_with_its_line() {
    let place = Place::new();
    let check = |stream: &str, input: &str, parts: &[&str]| {
        let args = ["stream", "replay", "--stream", stream, "--input", "-"];
        place.feed(input.as_bytes(), args).complains(2, parts);
    };
    check(
        r#"{"step":"1m"}"#,
        "{\"at_ms\":0,\"key\":\"a\"}\n",
        &["line 1", "neither a record nor an event"],
    );
    check(
        "{}",
        "{\"at_ms\":0,\"key\":\"a\",\"position\":1}\n",
        &["line 1", "no step"],
    );
    check(
        r#"{"step":"1m"}"#,
        "{\"at_ms\":0,\"event\":\"boom\"}\n",
        &["`boom` is no event"],
    );
    let late =
        "{\"at_ms\":9,\"key\":\"a\",\"position\":1}\n{\"at_ms\":8,\"key\":\"a\",\"position\":2}\n";
    check(
        r#"{"step":"1m"}"#,
        late,
        &["line 2", "in the order of their at_ms"],
    );
    check(r#"{"max_held":0}"#, "", &["--stream: max_held is 0"]);
    place
        .run(["stream", "replay", "--input", "nosuch.ndjson"])
        .complains(2, &["nosuch.ndjson cannot be read"]);
}
