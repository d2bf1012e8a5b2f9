mod replay;

use crate::place::{Place, ended, json_args, signal, wait_until};
use crate::stores::on_every_store;
use serde_json::{Value, json};

on_every_store! {
    records_are_handled_in_order_however_they_are_put_in,
    a_gap_that_stays_is_told_as_misses,
    a_halted_key_is_shown_and_set_going_again,
    a_served_stream_that_is_killed_goes_on_with_the_next,
}

/// A handler that writes each event on a line of its own.
const NOTE: &str = "cat >> events; echo >> events";

fn configure(place: &Place, more: &str) {
    let entry = "[streams.uptime]\nkey = \"/id\"\nposition = \"/at\"\nstep = \"1m\"\n";
    place.write("backstop.toml", &format!("{entry}{more}"));
}

fn record(key: &str, minute: i64) -> String {
    json!({ "id": key, "at": minute * 60_000 }).to_string()
}

fn push(place: &Place, records: &[(&str, i64)]) -> Value {
    let lines: String = records
        .iter()
        .map(|(key, minute)| record(key, *minute) + "\n")
        .collect();
    place
        .feed(
            lines.as_bytes(),
            json_args(["stream", "push", "uptime", "-"]),
        )
        .succeeded()
        .json()
}

/// Minute and effect of a key's events, in the order in which they were handled.
fn events(place: &Place, key: &str) -> Vec<(i64, String)> {
    let text = place.read("events");
    let events = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .filter(|event| event["key"] == key)
        .map(|event| {
            (
                event["position"].as_i64().unwrap() / 60_000,
                event["effect"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn handled(minutes: impl IntoIterator<Item = i64>) -> Vec<(i64, String)> {
    minutes
        .into_iter()
        .map(|minute| (minute, "handled".to_owned()))
        .collect()
}

fn serve_until_empty(place: &Place, exec: &str) -> Value {
    place.json([
        "stream",
        "serve",
        "uptime",
        "--exec",
        exec,
        "--concurrency",
        "1",
        "--until-empty",
    ])
}

fn records_are_handled_in_order_however_they_are_put_in(place: &Place) {
    configure(place, "");
    let pushed = push(place, &[("a", 3), ("a", 1), ("b", 7), ("a", 2), ("a", 1)]);
    assert_eq!(
        pushed,
        json!({ "held": 4, "duplicates": 1, "full": 0, "bad": 0 })
    );
    let keys = place.json(["stream", "keys", "uptime", "--holding"]);
    assert_eq!(keys["keys"][0]["key"], "a");
    assert_eq!(
        (&keys["keys"][0]["records"], &keys["keys"][0]["state"]),
        (&json!(3), &json!("due"))
    );
    let served = serve_until_empty(place, NOTE);
    assert_eq!(served["counts"]["handled"], 4);
    assert_eq!(events(place, "a"), handled([1, 2, 3]));
    assert_eq!(events(place, "b"), handled([7]));
    let one = [
        "stream",
        "push",
        "uptime",
        "--key",
        "a",
        "--position",
        "240000",
        "--tenant",
        "t",
        r#"{"x": 1.50}"#,
    ];
    assert_eq!(
        place.json(one),
        json!({ "key": "a", "position": 240_000, "result": "held" })
    );
    let shown = place.json(["stream", "show", "uptime", "a"]);
    assert_eq!(
        (&shown["watermark"], &shown["held"][0]["tenant"]),
        (&json!(180_000), &json!("t"))
    );
    serve_until_empty(place, NOTE);
    assert!(
        place.read("events").contains(r#""payload":{"x": 1.50}"#),
        "the payload as it came in"
    );
    let status = place.json(["stream", "list"])["streams"][0].take();
    assert_eq!(
        (&status["name"], &status["keys"], &status["records"]),
        (&json!("uptime"), &json!(2), &json!(0))
    );
    assert_eq!(
        (&status["counts"]["handled"], &status["held"]),
        (&json!(5), &json!(0))
    );
    assert_eq!(place.json(["stream", "forget", "uptime", "a"])["count"], 0);
    place
        .run(["stream", "forget", "uptime", "a"])
        .complains(1, &["has no key a", "backstop stream keys uptime"]);
}

fn a_gap_that_stays_is_told_as_misses(place: &Place) {
    configure(
        place,
        "steps = [\"100ms\", \"100ms\"]\nmax_misses = 1\nlate = \"amend\"\n",
    );
    push(place, &[("a", 1)]);
    serve_until_empty(place, NOTE);
    push(place, &[("a", 5)]);
    serve_until_empty(place, NOTE);
    let told: Vec<(i64, String)> = [
        (1, "handled"),
        (2, "miss"),
        (3, "miss_range"),
        (5, "handled"),
    ]
    .map(|(at, word)| (at, word.to_owned()))
    .to_vec();
    assert_eq!(events(place, "a"), told);
    push(place, &[("a", 3), ("a", 5)]);
    let counts = serve_until_empty(place, NOTE)["counts"].take();
    assert_eq!(
        (&counts["timeout"], &counts["misses"], &counts["late"]),
        (&json!(1), &json!(3), &json!(1))
    );
    assert_eq!(
        events(place, "a").last().unwrap(),
        &(3, "amended".to_owned())
    );
    let shown = place.run(["stream", "show", "uptime", "a"]).succeeded();
    let late = shown.stdout.lines().find(|line| line.contains("came late"));
    let late = late.unwrap_or_default();
    assert!(
        late.contains("came late: 180000, ") && late.contains("handled as an amendment"),
        "{shown:#?}"
    );
    let serve = ["stream", "serve", "uptime", "--exec", NOTE, "--until-empty"];
    let told = place.run(serve).succeeded().stdout;
    assert!(
        told.contains("3 declared missing") && !told.contains("task_scheduled"),
        "{told}"
    );
    assert_eq!(
        place.json(["stream", "show", "uptime", "a"])["missed"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

fn a_halted_key_is_shown_and_set_going_again(place: &Place) {
    configure(
        place,
        "on_dead = \"halt\"\nretry = { kind = \"constant\", every = \"50ms\", max_attempts = 2 }\n",
    );
    push(place, &[("a", 1), ("a", 2), ("a", 3)]);
    let fails = "cat > event; grep -q '\"position\":120000' event && { echo broken >&2; exit 1; }; cat event >> events; echo >> events";
    // It ends at a key that cannot go on by itself, and says so.
    place
        .run([
            "stream",
            "serve",
            "uptime",
            "--exec",
            fails,
            "--until-empty",
        ])
        .complains(1, &[]);
    let shown = place
        .run(["stream", "show", "uptime", "a"])
        .succeeded()
        .stdout;
    assert!(
        shown.contains("halted at 120000")
            && shown.contains("backstop stream resume [--skip] uptime a"),
        "{shown}"
    );
    let letter = place.json(["dead", "list"])["dead"][0].take();
    assert_eq!(letter["queue"], "streams.uptime");
    place
        .run(["stream", "resume", "uptime", "a", "--skip"])
        .succeeded();
    place
        .run(["stream", "resume", "uptime", "a"])
        .complains(1, &["is not halted"]);
    serve_until_empty(place, NOTE);
    assert_eq!(events(place, "a"), handled([1, 3]));
}

fn a_served_stream_that_is_killed_goes_on_with_the_next(place: &Place) {
    configure(place, "lease = \"1s\"\n");
    let all: Vec<(&str, i64)> = (1..=20).map(|minute| ("a", minute)).collect();
    push(place, &all);
    let served = place.start([
        "stream",
        "serve",
        "uptime",
        "--exec",
        &format!("{NOTE}; sleep 0.1"),
    ]);
    wait_until("some are handled", || {
        place.path("events").exists() && events(place, "a").len() > 5
    });
    signal(&served, "KILL");
    ended(served);
    serve_until_empty(place, NOTE);
    let mut seen = events(place, "a");
    let all = seen.len();
    seen.dedup();
    assert!(
        all - seen.len() <= 1,
        "at most the one in flight is repeated"
    );
    assert_eq!(seen, handled(1..=20));
}

#[test]
fn a_record_behind_a_gap_is_shown_with_its_key_and_the_gap() {
    let place = Place::new();
    configure(&place, "");
    push(&place, &[("site-7", 1)]);
    serve_until_empty(&place, NOTE);
    push(&place, &[("site-7", 4)]);
    let sentence = "it waits behind key site-7 at gap 120000 and 1 position more";
    let why = place.json(["stream", "show", "uptime", "site-7"])["why"].take();
    assert_eq!(
        (&why["gate"], &why["details"]["key"]),
        (&json!("behind_gap"), &json!("site-7")),
        "{why}"
    );
    assert!(why["why"].as_str().unwrap().starts_with(sentence), "{why}");
    let text = place
        .run(["stream", "show", "uptime", "site-7"])
        .succeeded()
        .stdout;
    assert!(
        text.contains(&format!("why 240000 waits: {sentence}")),
        "{text}"
    );
}

#[test]
fn bad_lines_are_named_and_the_others_go_in() {
    let place = Place::new();
    configure(&place, "");
    let lines = format!(
        "{}\n{{\"id\":\"a\"}}\nnope\n{}\n",
        record("a", 1),
        record("a", 2)
    );
    let answer = place
        .feed(lines.as_bytes(), ["stream", "push", "uptime", "-"])
        .exits(1);
    assert!(
        answer
            .stderr
            .contains("line 2: the position of the record is not at `/at`"),
        "{}",
        answer.stderr
    );
    assert!(
        answer.stderr.contains("line 3: the payload is not JSON"),
        "{}",
        answer.stderr
    );
    assert_eq!(place.json(["stream", "show", "uptime", "a"])["records"], 2);
}

#[test]
fn whoever_pushes_off_the_step_is_told() {
    let place = Place::new();
    configure(&place, "");
    let push = |at: i64| {
        let line = json!({ "id": "a", "at": at }).to_string();
        place
            .run(["stream", "push", "uptime", &line, "--step", "5m"])
            .succeeded()
    };
    assert_eq!(push(60_000).stderr, "");
    serve_until_empty(&place, NOTE);
    let said = push(180_000).stderr;
    assert!(
        said.contains("a: 180000 is not on the step of 300000 from 60000"),
        "{said}"
    );
    serve_until_empty(&place, NOTE);
    let said = push(120_000).stderr;
    assert!(
        said.contains("a: 120000 is not on the step of 300000 from 180000"),
        "{said}"
    );
    assert!(said.contains("dropped as a duplicate"), "{said}");
    let served = serve_until_empty(&place, NOTE);
    assert_eq!(
        (
            &served["counts"]["duplicates"],
            &served["counts"]["off_step"]
        ),
        (&json!(1), &json!(1))
    );
    let shown = place.json(["stream", "show", "uptime", "a"]);
    let results = shown["off_step"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["result"].clone());
    assert_eq!(results.collect::<Vec<_>>(), ["handled", "duplicate"]);
    let shown = place
        .run(["stream", "show", "uptime", "a"])
        .succeeded()
        .stdout;
    assert!(
        shown.contains("off the step: 120000 is not on the step of 300000 from 180000, dropped"),
        "{shown}"
    );

    let lines =
        [480_000, 500_000, 780_000].map(|at| json!({ "id": "a", "at": at }).to_string() + "\n");
    let file = ["stream", "push", "uptime", "-", "--step", "5m"];
    let answer = place.feed(lines.concat().as_bytes(), file).succeeded();
    assert!(
        answer
            .stderr
            .contains("line 2: a: 500000 is not on the step of 300000 from 480000"),
        "{}",
        answer.stderr
    );
    assert!(
        answer.stdout.contains("2 not on the step of its key"),
        "{}",
        answer.stdout
    );
}

#[test]
fn without_a_configuration_lines_say_where_they_belong() {
    let place = Place::new();
    let lines = "{\"key\":\"a\",\"position\":60000,\"payload\":1}\n{\"key\":\"a\",\"position\":120000,\"step\":30000}\n";
    place
        .feed(lines.as_bytes(), ["stream", "push", "s", "-"])
        .complains(1, &["line 1: it has no \"step\""]);
    place
        .feed(
            lines.as_bytes(),
            ["stream", "push", "s", "-", "--step", "1m"],
        )
        .succeeded();
    let held = place.json(["stream", "show", "s", "a"])["held"].take();
    assert_eq!(
        (&held[0]["step"], &held[1]["step"]),
        (&json!(60_000), &json!(30_000))
    );
    place
        .run(["stream", "push", "s", "1"])
        .complains(2, &["which key and position?"]);
    place
        .run(["stream", "push", "s", "1", "--key", "a"])
        .complains(2, &["go together"]);
    place
        .run(["stream", "serve", "s"])
        .complains(2, &["no handler", "backstop stream serve s --exec"]);
    assert!(
        place
            .run(["stream", "list"])
            .succeeded()
            .stdout
            .contains("STREAM\tKEYS\tHELD")
    );
}

#[test]
fn a_stream_that_nobody_configured_is_named_as_the_cause_once() {
    let place = Place::new();
    let lines = "{\"subscription_id\":\"a\",\"position\":60000}\n".repeat(10);
    let answer = place
        .feed(lines.as_bytes(), ["stream", "push", "nope", "-"])
        .exits(1);
    let count = |part: &str| answer.stderr.matches(part).count();
    assert_eq!(count("unknown field `subscription_id`"), 1, "{answer:#?}");
    assert_eq!(count("has no [streams.nope]"), 1, "{answer:#?}");
}

#[test]
fn the_step_of_the_command_wins_and_secrets_are_not_shown() {
    let place = Place::new();
    configure(&place, "");
    let line = r#"{"id":"a","at":600000,"password":"hunter2"}"#;
    place
        .run(["stream", "push", "uptime", line, "--step=-5"])
        .complains(2, &["step"]);
    place
        .run(["stream", "push", "uptime", line, "--step", "5m"])
        .succeeded();
    let shown = place.json(["stream", "show", "uptime", "a"]);
    assert_eq!(
        (
            &shown["held"][0]["step"],
            &shown["held"][0]["payload"]["password"]
        ),
        (&json!(300_000), &json!("[redacted]"))
    );
    let text = place
        .run(["stream", "show", "uptime", "a"])
        .succeeded()
        .stdout;
    assert!(!text.contains("hunter2"), "{text}");
    place
        .feed(
            b"{\"id\":\"b\",\"at\":0}\n",
            json_args(["stream", "push", "uptime", "--file", "-"]),
        )
        .succeeded();
}

#[test]
fn records_that_are_held_are_forgotten_only_if_that_was_meant() {
    let place = Place::new();
    configure(&place, "");
    push(&place, &[("a", 1), ("a", 2)]);
    for more in [&[][..], &["--disable"]] {
        let args = ["stream", "forget", "uptime", "a"].iter().chain(more);
        place
            .run(args)
            .complains(2, &["2 held records of key a for good", "with --yes"]);
    }
    let shown = place.json(["stream", "show", "uptime", "a"]);
    assert_eq!(
        shown["held"].as_array().unwrap().len(),
        2,
        "nothing was forgotten"
    );
    assert_eq!(
        place.json(["stream", "forget", "uptime", "a", "--yes"])["count"],
        2
    );
    place
        .run(["stream", "show", "uptime", "a"])
        .complains(1, &["has no key a"]);
}

#[test]
fn a_disabled_key_ignores_its_records() {
    let place = Place::new();
    configure(&place, "");
    push(&place, &[("a", 1)]);
    serve_until_empty(&place, NOTE);
    place.json(["stream", "forget", "uptime", "a", "--disable"]);
    push(&place, &[("a", 2)]);
    assert_eq!(serve_until_empty(&place, NOTE)["counts"]["ignored"], 1);
    assert_eq!(
        place.json(["stream", "enable", "uptime", "a"])["enabled"],
        true
    );
    push(&place, &[("a", 9)]);
    serve_until_empty(&place, NOTE);
    assert_eq!(events(&place, "a"), handled([1, 9]));
}

#[test]
fn an_entry_that_makes_no_sense_is_refused_with_its_place() {
    let place = Place::new();
    place.write("backstop.toml", "[streams.uptime]\nmax_held = 0\n");
    place
        .run(["stream", "list"])
        .complains(2, &["[streams.uptime]", "max_held is 0; give 1 to"]);
}
