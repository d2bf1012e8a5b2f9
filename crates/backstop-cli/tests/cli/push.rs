use crate::place::{Place, finished, json_args, lines, wait_until};
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

#[test]
fn one_job_is_in_and_the_same_id_is_the_same_job() {
    let place = Place::new();
    let first = place.json([
        "push",
        "emails",
        r#"{"to":"ada"}"#,
        "--id",
        "order-17",
        "--kind",
        "welcome",
    ]);
    assert_eq!(first["result"], "inserted");
    let again = place.json(["push", "emails", r#"{"to":"ada"}"#, "--id", "order-17"]);
    assert_eq!(again, json!({ "id": first["id"], "result": "same" }));
    let text = place
        .run(["push", "emails", r#"{"to":"ada"}"#, "--id", "order-17"])
        .succeeded();
    assert_eq!(
        text.stdout,
        format!("{} same\n", first["id"].as_str().unwrap())
    );
    let other_payload = place.run(["push", "emails", "1", "--id", "order-17"]);
    let warning = other_payload.succeeded().stderr;
    assert!(warning.contains("nothing was pushed for it"), "{warning}");
    place
        .run(["push", "others", r#"{"to":"ada"}"#, "--id", "order-17"])
        .complains(1, &["a job of another queue has the id"]);
    let job = place.job("order-17");
    assert_eq!(
        (&job["kind"], &job["payload"]),
        (&json!("welcome"), &json!({ "to": "ada" }))
    );
}

#[test]
fn a_name_of_a_batch_that_is_used_again_for_other_lines_is_told() {
    let place = Place::new();
    let push = |lines: &[u8]| place.feed(lines, ["push", "q", "-", "--batch", "monday"]);
    push(b"1\n2\n").succeeded();
    push(b"1\n2\n").succeeded();
    let again = push(b"1\n3\n4\n").exits(1);
    assert_eq!(again.stdout, "1 inserted, 2 same, 0 duplicate, 0 bad\n");
    assert_eq!(
        again.stderr.matches("nothing was pushed for it").count(),
        1,
        "{}",
        again.stderr
    );
}

#[test]
fn lines_of_a_pipe_that_stays_open_go_out_as_they_come() {
    let place = Place::new();
    let mut command = place.command(["push", "q", "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    for lines in 1..=3 {
        pipe.write_all(b"1\n\n").unwrap();
        wait_until("the line is in the store", || {
            place.count("q", "ready") == lines
        });
    }
    drop(pipe);
    assert_eq!(
        finished(child).succeeded().stdout,
        "3 inserted, 0 same, 0 duplicate, 0 bad\n"
    );
}

#[test]
fn a_line_that_is_too_long_names_the_bound_of_a_payload() {
    let place = Place::new();
    for bytes in [1 << 20, 3 << 20] {
        let line = format!("\"{}\"\n", "x".repeat(bytes));
        place
            .feed(line.as_bytes(), ["push", "q", "-"])
            .complains(1, &["line 1", "1048576"]);
    }
}

#[test]
fn a_duplicate_names_its_holder() {
    let place = Place::new();
    let push = || place.json(["push", "emails", "1", "--unique-key", "ada"]);
    let (first, second) = (push(), push());
    assert_eq!(
        (&second["result"], &second["holder"]),
        (&json!("duplicate"), &first["id"])
    );
    assert_eq!(place.count("emails", "ready"), 1);
}

#[test]
fn an_id_that_another_queue_has_is_a_conflict() {
    let place = Place::new();
    place.json(["push", "a", "1", "--id", "invoice"]);
    let one = place
        .run(["push", "b", "1", "--id", "invoice", "--json"])
        .exits(1)
        .json();
    assert_eq!(one["result"], "conflict");
    place
        .run(["push", "b", "1", "--id", "invoice"])
        .complains(1, &["another queue", "under another id"]);
    let lines = b"{\"id\":\"invoice\",\"payload\":1}\n{\"payload\":2}\n";
    let report = place
        .feed(lines, ["push", "b", "-", "--json"])
        .exits(1)
        .json();
    assert_eq!(
        (&report["inserted"], &report["conflict"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(place.json(["job", "show", "invoice"])["queue"], "a");
}

#[test]
fn what_makes_jobs_the_same_is_said_by_flags() {
    let place = Place::new();
    let push = |payload: &str, flags: &[&str]| {
        place.json([&["push", "digests", payload], flags].concat())["result"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let by_user = ["--unique-by", "/user"];
    assert_eq!(push(r#"{"user":7,"day":1}"#, &by_user), "inserted");
    assert_eq!(
        push(r#"{"user":7,"day":2}"#, &by_user),
        "duplicate",
        "the same user"
    );
    assert_eq!(push(r#"{"user":8,"day":2}"#, &by_user), "inserted");
    let whole = ["--unique-by", "payload"];
    assert_eq!(push(r#"{"a":1,"b":2}"#, &whole), "inserted");
    assert_eq!(push(r#"{"a":1,"b":2}"#, &whole), "duplicate");
    assert_eq!(
        push(r#"{"a":1, "b":2}"#, &whole),
        "inserted",
        "byte for byte"
    );
    place
        .run(["push", "digests", "{}", "--unique-by", "user"])
        .complains(2, &["--unique-by"]);
    place
        .run(["push", "digests", "{}", "--unique-by", "/user"])
        .complains(2, &["nothing at /user"]);
}

#[test]
fn how_long_and_in_which_states_a_key_is_held_is_said_by_flags() {
    let place = Place::new();
    let push = |key: &str, flags: &[&str]| {
        place.json([&["push", "q", "1", "--unique-key", key], flags].concat())["result"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(push("short", &["--unique-for", "1ms"]), "inserted");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(
        push("short", &["--unique-for", "1h"]),
        "inserted",
        "its time was over"
    );
    assert_eq!(push("short", &[]), "duplicate", "an hour is not");
    assert_eq!(
        push("final", &["--unique-in", "ready,running,done"]),
        "inserted"
    );
    assert_eq!(push("live", &[]), "inserted");
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(
        push("final", &[]),
        "duplicate",
        "it is held by a job that is done"
    );
    assert_eq!(push("live", &[]), "inserted", "this one let go of it");
    place
        .run(["push", "q", "1", "--unique-for", "1h"])
        .complains(2, &["--unique-for and --unique-in", "--unique-by payload"]);
    place
        .run([
            "push",
            "q",
            "1",
            "--unique-in",
            "asleep",
            "--unique-key",
            "k",
        ])
        .exits(2);
}

#[test]
fn flags_shape_the_job() {
    let place = Place::new();
    let retry = r#"{"kind":"constant","every":"1m","max_attempts":7}"#;
    place.json([
        "push",
        "q",
        "1",
        "--id",
        "a",
        "--priority",
        "high",
        "--at",
        "2035-01-01T00:00:00Z",
        "--retry",
        retry,
    ]);
    let job = place.job("a");
    assert_eq!(
        (&job["state"], &job["priority"]),
        (&json!("scheduled"), &json!("high"))
    );
    assert_eq!(
        (&job["run_at"], &job["max_attempts"]),
        (&json!("2035-01-01T00:00:00Z"), &json!(7))
    );
    place.json(["push", "q", "1", "--id", "b", "--delay", "1h"]);
    assert_eq!(place.job("b")["state"], "scheduled");
    place.json(["push", "q", "-5", "--id", "c"]);
    assert_eq!(place.job("c")["payload"], -5);
}

#[test]
fn wrong_use_is_told_apart_from_failure() {
    let place = Place::new();
    place
        .run(["push", "emails", "{to: ada}"])
        .complains(2, &["error: the payload is not JSON", "try: backstop push"]);
    place
        .run(["push", "a b", "1"])
        .complains(2, &["is not a queue name"]);
    place.run(["push", "emails"]).complains(2, &["JSON"]);
    place
        .run(["push", "emails", "1", "--delay", "soon"])
        .complains(2, &["such as 500ms"]);
    place
        .run([
            "push",
            "emails",
            "1",
            "--delay",
            "1s",
            "--at",
            "2035-01-01T00:00:00Z",
        ])
        .complains(2, &["--at"]);
    place
        .run(["push", "emails", "--file", "missing.ndjson"])
        .complains(2, &["missing.ndjson", "try: "]);
    place
        .run(["push", "emails", "1", "--batch", "b"])
        .complains(2, &["--batch"]);
    place
        .feed(b"1\n", ["push", "emails", "-", "--id", "x"])
        .complains(2, &["--id", "--batch"]);
    let told = place.run(json_args(["push", "emails", "{"])).exits(2);
    let error: serde_json::Value = serde_json::from_str(&told.stderr).unwrap();
    assert!(
        error["error"].as_str().unwrap().contains("not JSON") && error["try"].is_string(),
        "{error}"
    );
    let told = place.run(json_args(["push"])).exits(2);
    let error: serde_json::Value = serde_json::from_str(&told.stderr).unwrap();
    assert!(
        error["error"].as_str().unwrap().contains("<QUEUE>"),
        "{error}"
    );
}

#[test]
fn lines_are_payloads_or_jobs() {
    let place = Place::new();
    let lines = concat!(
        "{\"to\":  \"ada\", \"x\":1.50}\n",
        "\n",
        "{\"payload\":{\"b\":1e2,  \"a\":\"\\u00e9\"},\"id\":\"j\",\"queue\":\"other\",\"kind\":\"k\",\"priority\":\"low\"}\r\n",
        "{\"payload\":1,\"mine\":true}",
    );
    place.write("jobs.ndjson", lines);
    let report = place.json(["push", "emails", "--file", "jobs.ndjson", "--kind", "usual"]);
    assert_eq!(
        report,
        json!({ "inserted": 3, "same": 0, "duplicate": 0, "full": 0, "bad": [], "bad_count": 0 })
    );
    let shown = place
        .run(json_args(["job", "show", "j"]))
        .succeeded()
        .stdout;
    assert!(
        shown.contains("\"payload\":{\"b\":1e2,  \"a\":\"\\u00e9\"},"),
        "byte for byte: {shown}"
    );
    let job = place.job("j");
    assert_eq!(
        (&job["queue"], &job["kind"], &job["priority"]),
        (&json!("other"), &json!("k"), &json!("low"))
    );
    let list = place
        .run(json_args(["job", "list", "--queue", "emails"]))
        .succeeded()
        .stdout;
    assert!(
        list.contains("\"payload\":{\"to\":  \"ada\", \"x\":1.50},"),
        "byte for byte: {list}"
    );
    assert!(
        list.contains("\"payload\":{\"payload\":1,\"mine\":true},"),
        "a key of its own makes it a payload"
    );
    assert!(
        list.contains("\"kind\":\"usual\""),
        "flags hold for lines that do not say otherwise"
    );
}

#[test]
fn what_a_line_is_can_be_said() {
    let place = Place::new();
    let input = b"{\"payload\":1}\n";
    place
        .feed(
            input,
            ["push", "q", "-", "--lines", "payloads", "--batch", "p"],
        )
        .succeeded();
    place
        .feed(b"{\"to\":1}\n", ["push", "q", "-", "--lines", "jobs"])
        .complains(1, &["line 1: not a job"]);
    let list = place.json(["job", "list"]);
    assert_eq!(list["jobs"][0]["payload"], json!({ "payload": 1 }));
}

#[test]
fn bad_lines_are_named_and_the_good_ones_go_in() {
    let place = Place::new();
    let mut input = b"1\n{bad\n\"\xff\"\n{\"payload\":1,\"delay\":\"soon\"}\n2\n".to_vec();
    let answer = place
        .feed(&input, ["push", "q", "-"])
        .complains(1, &["line 2: ", "line 3: ", "line 4: "]);
    assert_eq!(answer.stdout, "2 inserted, 0 same, 0 duplicate, 3 bad\n");
    assert_eq!(place.count("q", "ready"), 2);
    let report = place
        .feed(&input, json_args(["push", "q", "-"]))
        .exits(1)
        .json();
    let lines: Vec<u64> = report["bad"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bad| bad["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [2, 3, 4]);
    assert!(
        report["bad"][2]["error"]
            .as_str()
            .unwrap()
            .contains("not a duration")
    );
    input.clear();
    input.extend("{bad\n".repeat(50).bytes());
    let answer = place
        .feed(&input, ["push", "q", "-"])
        .complains(1, &["line 20: ", "… and 30 more bad lines"]);
    assert!(!answer.stderr.contains("line 21: "));
}

#[test]
fn strict_pushes_all_or_nothing() {
    let place = Place::new();
    place.write("bad.ndjson", "1\n2\n{bad\n");
    let answer = place
        .run(["push", "q", "--file", "bad.ndjson", "--strict"])
        .complains(1, &["line 3: "]);
    assert_eq!(answer.stdout, "0 inserted, 0 same, 0 duplicate, 1 bad\n");
    place
        .feed(b"1\n{bad\n", ["push", "q", "-", "--strict"])
        .exits(1);
    assert_eq!(place.count("q", "ready"), 0);
    place
        .feed(b"1\n2\n", ["push", "q", "-", "--strict"])
        .succeeded();
    assert_eq!(place.count("q", "ready"), 2);
}

#[test]
fn a_batch_can_be_repeated_and_extended() {
    let place = Place::new();
    let push = |input: &[u8], queue: &str| {
        place
            .feed(input, json_args(["push", queue, "-", "--batch", "monday"]))
            .json()
    };
    assert_eq!(push(b"1\n2\n", "q")["inserted"], 2);
    let again = push(b"1\n2\n3\n", "q");
    assert_eq!((&again["inserted"], &again["same"]), (&json!(1), &json!(2)));
    assert_eq!(
        push(b"1\n2\n", "other")["inserted"],
        2,
        "another queue is other work"
    );
}

#[test]
fn many_lines_all_arrive() {
    let place = Place::new();
    let lines = lines(25_000);
    let report = place
        .feed(lines.as_bytes(), json_args(["push", "q", "-"]))
        .succeeded()
        .json();
    assert_eq!(report["inserted"], 25_000);
    assert_eq!(place.count("q", "ready"), 25_000);
    let list = place.json(["job", "list", "--all"]);
    assert_eq!(list["jobs"].as_array().unwrap().len(), 25_000);
}

#[test]
fn a_job_that_a_full_queue_refused_has_no_id_to_be_looked_for() {
    let place = Place::new();
    place.write("backstop.toml", "[queues.q]\nmax_size = 1\n");
    place.run(["push", "q", "1"]).succeeded();
    let answer = place.run(["push", "q", "2"]).exits(1);
    assert_eq!(answer.stdout, "");
    assert!(
        answer.stderr.contains("q is full and did not take it"),
        "{answer:#?}"
    );
    assert_eq!(
        place.run(["push", "q", "2", "--json"]).exits(1).json()["result"],
        "full"
    );
}

#[test]
fn a_policy_that_names_no_kind_is_put_over_the_usual_one() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "usual"]);
    place.json(["push", "q", "1", "--id", "five", "--max-attempts", "5"]);
    place.json([
        "push",
        "q",
        "1",
        "--id",
        "six",
        "--retry",
        r#"{"max_attempts":6}"#,
    ]);
    place.json([
        "push",
        "q",
        "1",
        "--id",
        "two",
        "--retry",
        r#"{"kind":"polynomial"}"#,
        "--max-attempts",
        "2",
    ]);
    let max = ["usual", "five", "six", "two"].map(|name| place.job(name)["max_attempts"].as_u64());
    assert_eq!(max, [20, 5, 6, 2].map(Some));
}
