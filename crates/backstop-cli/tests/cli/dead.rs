//! Dead letters, the same on every store.

use crate::place::{Place, ended, json_args, signal, wait_until};
use crate::stores::on_every_store;
use serde_json::{Value, json};

on_every_store! {
    the_dead_are_counted_grouped_listed_and_shown,
    a_list_is_filtered_and_read_page_by_page,
    the_dead_are_requeued_as_they_were_selected_and_keep_their_history,
    a_letter_whose_twin_lives_is_not_requeued_and_the_answer_names_it,
    a_letter_is_moved_to_another_queue,
    what_a_full_queue_has_no_room_for_stays_dead,
    letters_are_removed_only_if_that_was_meant,
    an_export_can_be_taken_in_elsewhere,
    bad_lines_are_named_and_the_good_ones_taken_in,
    a_bad_canary_stops_a_redrive,
    a_good_canary_lets_the_others_follow,
    a_redrive_that_nobody_serves_says_so,
    picked_letters_are_redriven_and_stopping_is_noted,
}

/// Dies with its payload's `error`, in which SECRET becomes one.
const HANDLER: &str = r#"sed 's/.*"error":"\([^"]*\)".*/\1/; s/SECRET/token=abc123/' >&2; exit 65"#;

/// Pushes these jobs, a name and an error each, and lets them die one after another.
fn die(place: &Place, queue: &str, jobs: &[(&str, &str)]) {
    for (name, error) in jobs {
        let payload = json!({ "error": error, "password": "hunter2" }).to_string();
        place.json(["push", queue, &payload, "--id", name, "--kind", "Send"]);
        place
            .run(["work", queue, "--exec", HANDLER, "--until-empty", "-q"])
            .exits(1);
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["dead"]
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| letter["error"].as_str().unwrap())
        .collect()
}

fn the_dead_are_counted_grouped_listed_and_shown(place: &Place) {
    die(
        place,
        "q",
        &[
            ("a", "order 1 lost"),
            ("b", "no such user, SECRET"),
            ("c", "order 3 lost"),
        ],
    );
    place.json(["push", "alive", "1"]);
    assert_eq!(
        place.json(["dead", "stats"]),
        json!({ "queues": { "alive": 0, "q": 3 }, "total": 3 })
    );
    let groups = place.json(["dead", "groups", "--queue", "q"]);
    let groups = groups["groups"].as_array().unwrap();
    let counts: Vec<_> = groups
        .iter()
        .map(|group| group["count"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (counts, &groups[0]["sample"]["error"]),
        (vec![2, 1], &json!("order 3 lost"))
    );
    let list = place.json(["dead", "list"]);
    assert_eq!(
        names(&list),
        [
            "order 3 lost",
            "no such user, token=[redacted]",
            "order 1 lost"
        ]
    );
    assert_eq!(list["next"], Value::Null);
    let text = list.to_string();
    assert!(
        !text.contains("hunter2") && !text.contains("abc123"),
        "{text}"
    );
    let letter = place.json(["dead", "show", "b"]);
    assert!(!letter.to_string().contains("abc123"), "{letter}");
    assert_eq!(
        letter["original_job"]["payload"]["password"], "hunter2",
        "whole"
    );
    assert_eq!(
        (&letter["queue"], &letter["kind"], &letter["requeues"]),
        (&json!("q"), &json!("Send"), &json!(0))
    );
    assert_eq!(
        (&letter["reason"], &letter["attempt_count"]),
        (&json!("rejected"), &json!(1))
    );
    assert_eq!(
        (&letter["retry_delays"], &letter["fingerprint"]),
        (&Value::Null, &groups[1]["fingerprint"])
    );
    assert!(
        letter["last_failed_at"].as_str().unwrap().ends_with('Z'),
        "{letter}"
    );
    assert!(letter["context"]["worker"].is_string(), "{letter}");
    for (args, part) in [
        (&["dead", "stats"][..], "q\t3"),
        (&["dead", "groups"], "order 3 lost"),
        (&["dead", "list"], "ID\tQUEUE\tKIND\tREASON"),
        (&["dead", "show", "b"], "no such user"),
    ] {
        let text = place.run(args).succeeded().stdout;
        assert!(text.contains(part), "{text}");
    }
    place
        .run(["dead", "show", "nobody"])
        .complains(1, &["no dead letter", "try: backstop dead list"]);
}

fn a_list_is_filtered_and_read_page_by_page(place: &Place) {
    die(
        place,
        "q",
        &[
            ("a", "order 1 lost"),
            ("b", "no such user"),
            ("c", "order 3 lost"),
        ],
    );
    die(place, "p", &[("d", "order 4 lost")]);
    let list = |args: &[&str]| place.json(["dead", "list"].iter().chain(args));
    let count = |args: &[&str]| list(args)["dead"].as_array().unwrap().len();
    assert_eq!(
        (
            count(&["--queue", "q"]),
            count(&["--text", "ORDER"]),
            count(&["--kind", "other"])
        ),
        (3, 3, 0)
    );
    assert_eq!(
        (count(&["--since", "1h"]), count(&["--until", "1h"])),
        (4, 0)
    );
    assert_eq!(
        count(&["--until", "2100-01-01T00:00:00Z", "--queue", "p"]),
        1
    );
    assert_eq!(
        (
            count(&["--text", "hunter2"]),
            count(&["--error-type", "Nothing"])
        ),
        (0, 0)
    );
    let print = list(&["--queue", "p"])["dead"][0]["fingerprint"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(count(&["--fingerprint", &print]), 3);
    for filter in [&["--limit", "2"][..], &["--limit", "1", "--text", "order"]] {
        let (mut seen, mut page) = (Vec::new(), list(filter));
        loop {
            seen.extend(
                page["dead"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|letter| letter["id"].to_string()),
            );
            let Some(next) = page["next"].as_str() else {
                break;
            };
            page = list(&[filter, &["--cursor", next]].concat());
        }
        let expected = if filter.len() == 2 { 4 } else { 3 };
        seen.dedup();
        assert_eq!(seen.len(), expected, "{filter:?}");
    }
}

fn the_dead_are_requeued_as_they_were_selected_and_keep_their_history(place: &Place) {
    die(
        place,
        "q",
        &[
            ("a", "boom 1"),
            ("b", "boom 2"),
            ("c", "bang"),
            ("d", "bang"),
            ("e", "bang"),
        ],
    );
    let state = |name: &str| place.job(name)["state"].as_str().unwrap().to_owned();
    assert_eq!(
        place.json(["dead", "requeue", "--oldest", "1", "--queue", "q"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        (state("a"), state("b")),
        ("ready".to_owned(), "dead".to_owned())
    );
    assert_eq!(
        place.json(["dead", "requeue", "--text", "boom"]),
        json!({ "count": 1 })
    );
    assert_eq!(place.json(["dead", "requeue", "c"]), json!({ "count": 1 }));
    let refused = place
        .run(json_args(["dead", "requeue", "c", "nobody"]))
        .exits(1)
        .json();
    assert_eq!(
        (
            &refused["count"],
            refused["refused"].as_array().unwrap().len()
        ),
        (&json!(0), 2)
    );
    assert_eq!(
        place.json(["dead", "requeue", "--all"]),
        json!({ "count": 2 })
    );
    assert_eq!(place.json(["dead", "stats"])["total"], 0);
    place
        .run(["work", "q", "--exec", HANDLER, "--until-empty"])
        .exits(1);
    let letter = place.json(["dead", "show", "a"]);
    assert_eq!(
        (&letter["requeues"], &letter["attempt_count"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        letter["original_job"]["errors"].as_array().unwrap().len(),
        2
    );
    let text = place
        .run(["dead", "requeue", "--queue", "q"])
        .succeeded()
        .stdout;
    assert_eq!(text, "5 dead letters requeued\n");
}

fn a_letter_whose_twin_lives_is_not_requeued_and_the_answer_names_it(place: &Place) {
    let push = |id: &str| place.json(["push", "q", "1", "--id", id, "--unique-key", "k"]);
    push("first");
    place
        .run(["work", "q", "--exec", "exit 65", "--until-empty", "-q"])
        .exits(1);
    let twin = push("second");
    assert_eq!(twin["result"], "inserted", "a dead job holds no key");
    let twin = twin["id"].as_str().unwrap();
    for args in [["dead", "requeue", "first"], ["job", "retry", "first"]] {
        let told = place.run(json_args(args)).exits(1);
        assert!(
            told.stdout.contains(twin) || told.stderr.contains(twin),
            "{told:#?}"
        );
        let told = place.run(args).exits(1);
        assert!(
            format!("{}{}", told.stdout, told.stderr).contains(twin),
            "{told:#?}"
        );
    }
    assert_eq!(
        (&place.job("first")["state"], place.count("q", "ready")),
        (&json!("dead"), 1)
    );
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(
        place.json(["dead", "requeue", "first"]),
        json!({ "count": 1 }),
        "the key is free"
    );
}

fn what_a_full_queue_has_no_room_for_stays_dead(place: &Place) {
    die(place, "q", &[("a", "boom"), ("b", "boom")]);
    die(place, "other", &[("c", "boom")]);
    place.write("backstop.toml", "[queues.q]\nmax_size = 2\n");
    place.json(["push", "q", "1"]);
    let some = place
        .run(json_args(["dead", "requeue", "a", "b"]))
        .exits(1)
        .json();
    assert_eq!(
        (&some["count"], some["refused"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    place
        .run(["dead", "requeue", "b"])
        .complains(1, &["its queue is full"]);
    place
        .run(["dead", "move", "c", "--to", "q"])
        .complains(1, &["its queue is full"]);
    place
        .run(["job", "retry", "b"])
        .complains(1, &["its queue is full"]);
    assert_eq!(
        (&place.job("b")["state"], &place.job("c")["queue"]),
        (&json!("dead"), &json!("other"))
    );
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(place.json(["dead", "requeue", "b"]), json!({ "count": 1 }));
}

fn a_letter_is_moved_to_another_queue(place: &Place) {
    die(place, "q", &[("a", "boom"), ("b", "boom")]);
    assert_eq!(
        place.json(["dead", "move", "a", "--to", "by-hand"]),
        json!({ "count": 1 })
    );
    let job = place.job("a");
    assert_eq!(
        (&job["queue"], &job["state"], &job["requeues"]),
        (&json!("by-hand"), &json!("ready"), &json!(1))
    );
    assert_eq!(job["errors"][0]["message"], "boom");
    assert_eq!(place.json(["dead", "stats"])["queues"]["q"], 1);
    assert_eq!(
        place.json(["dead", "move", "--queue", "q", "--to", "by-hand"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        (place.count("q", "dead"), place.count("by-hand", "ready")),
        (0, 2)
    );
}

fn letters_are_removed_only_if_that_was_meant(place: &Place) {
    die(place, "q", &[("a", "boom"), ("b", "boom"), ("c", "bang")]);
    die(place, "p", &[("d", "boom")]);
    place
        .run(["dead", "delete", "a"])
        .complains(2, &["1 dead letter for good", "--yes"]);
    place
        .run(["dead", "clear", "q"])
        .complains(2, &["3 dead letters", "try: backstop dead clear q --yes"]);
    assert_eq!(
        place.json(["dead", "stats"])["total"],
        4,
        "nothing was removed"
    );
    assert_eq!(
        place.json(["dead", "delete", "a", "--yes"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        place.json(["dead", "delete", "--text", "bang", "--yes"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        place.json(["dead", "clear", "q", "--yes"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        place.json(["dead", "clear", "--all", "--yes"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        place
            .run(["dead", "clear", "q", "--yes"])
            .succeeded()
            .stdout,
        "0 dead letters removed\n"
    );
}

fn an_export_can_be_taken_in_elsewhere(place: &Place) {
    die(place, "q", &[("a", "boom"), ("b", "bang!"), ("c", "bang")]);
    place.json(["dead", "requeue", "a"]);
    place
        .run(["work", "q", "--exec", HANDLER, "--until-empty"])
        .exits(1);
    let lines = place.run(["dead", "export"]).succeeded().stdout;
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.contains("hunter2"), "payloads are whole: {lines}");
    assert_eq!(
        place.json([
            "dead",
            "export",
            "--text",
            "bang",
            "--output",
            "bang.ndjson"
        ])["count"],
        2
    );
    assert_eq!(place.read("bang.ndjson").lines().count(), 2);
    let other = Place::new();
    let taken = other
        .feed(lines.as_bytes(), json_args(["dead", "import", "-"]))
        .succeeded()
        .json();
    assert_eq!(taken, json!({ "count": 3, "same": 0 }));
    let again = other
        .feed(lines.as_bytes(), ["dead", "import", "-"])
        .succeeded()
        .stdout;
    assert_eq!(again, "0 dead letters taken in, 3 known already\n");
    assert_eq!(
        other.run(["dead", "export"]).succeeded().stdout,
        lines,
        "nothing was lost"
    );
    place.json(["dead", "clear", "--all", "--yes"]);
    place.write("back.ndjson", &lines);
    assert_eq!(place.json(["dead", "import", "back.ndjson"])["count"], 3);
    assert_eq!(
        place.run(["dead", "export"]).succeeded().stdout,
        lines,
        "and nothing here"
    );
    assert_eq!(place.json(["dead", "requeue", "--all"])["count"], 3);
}

fn bad_lines_are_named_and_the_good_ones_taken_in(place: &Place) {
    let good = |name: &str| {
        json!({ "id": name, "queue": "q", "original_job": { "payload": 1 } }).to_string()
    };
    let lines = [
        good("a"),
        "{".to_owned(),
        String::new(),
        "{\"id\":\"x\"}".to_owned(),
        good("b"),
    ]
    .join("\n");
    let report = place
        .feed(lines.as_bytes(), json_args(["dead", "import", "-"]))
        .exits(1)
        .json();
    assert_eq!(
        (
            &report["count"],
            &report["bad"][0]["line"],
            &report["bad"][1]["line"]
        ),
        (&json!(2), &json!(2), &json!(4))
    );
    let text = place
        .feed(lines.as_bytes(), ["dead", "import", "-"])
        .exits(1);
    assert!(
        text.stderr
            .contains("line 4: not a dead letter: missing field"),
        "{text:#?}"
    );
    assert_eq!(place.json(["dead", "show", "a"])["error"], "Unknown error");
    assert_eq!(place.json(["dead", "stats"])["total"], 2);
}

fn redrive() -> Vec<std::ffi::OsString> {
    json_args([
        "dead",
        "redrive",
        "--queue",
        "q",
        "--canary",
        "2",
        "--then-rate",
        "100/s",
    ])
}

fn a_bad_canary_stops_a_redrive(place: &Place) {
    die(
        place,
        "q",
        &[("a", "boom"), ("b", "boom"), ("c", "boom"), ("d", "boom")],
    );
    let worker = place.start(["work", "q", "--exec", HANDLER]);
    let report = place.run(redrive()).exits(1).json();
    signal(&worker, "TERM");
    ended(worker);
    assert_eq!(
        (&report["phase"], &report["requeued"]),
        (&json!("failed"), &json!(2)),
        "{report}"
    );
    assert!(
        report["why"].as_str().unwrap().contains("died again"),
        "{report}"
    );
    let requeues = ["a", "b", "c", "d"].map(|name| place.job(name)["requeues"].as_u64().unwrap());
    assert_eq!(requeues, [1, 1, 0, 0]);
    let listed = place.json(["dead", "redrive", "--list"]);
    assert_eq!(
        (
            &listed["redrives"][0]["id"],
            &listed["redrives"][0]["stalled"]
        ),
        (&report["id"], &json!(false))
    );
    let id = report["id"].as_str().unwrap();
    place
        .run(["dead", "redrive", "--resume", id])
        .complains(1, &["has ended: it is failed", "--list"]);
    place
        .run(["dead", "redrive", "--stop", id])
        .complains(1, &["has ended"]);
}

fn a_good_canary_lets_the_others_follow(place: &Place) {
    die(
        place,
        "q",
        &[
            ("a", "boom"),
            ("b", "boom"),
            ("c", "boom"),
            ("d", "boom"),
            ("e", "boom"),
        ],
    );
    let child = place.start(redrive());
    wait_until("the canary", || place.count("q", "ready") == 2);
    signal(&child, "INT");
    let left = ended(child).exits(1).json();
    assert_eq!(
        (&left["requeued"], &left["open"]),
        (&json!(2), &json!(2)),
        "{left}"
    );
    let listed = place.run(["dead", "redrive", "--list"]).succeeded().stdout;
    assert!(
        listed.contains("watching, stalled") && listed.contains("nobody runs it; try --resume"),
        "{listed}"
    );
    let worker = place.start(["work", "q", "--exec", "exit 0"]);
    let resumed = place.json(["dead", "redrive", "--resume", left["id"].as_str().unwrap()]);
    assert_eq!(
        (&resumed["phase"], &resumed["requeued"]),
        (&json!("done"), &json!(5)),
        "{resumed}"
    );
    wait_until("the others", || place.count("q", "done") == 5);
    signal(&worker, "TERM");
    ended(worker).succeeded();
    let requeues =
        ["a", "b", "c", "d", "e"].map(|name| place.job(name)["requeues"].as_u64().unwrap());
    assert_eq!(requeues, [1; 5]);
}

fn a_redrive_that_nobody_serves_says_so(place: &Place) {
    die(place, "q", &[("a", "boom"), ("b", "boom")]);
    let stderr = std::fs::File::create(place.path("stderr")).unwrap();
    let args = ["dead", "redrive", "--queue", "q"];
    let child = place
        .command(args)
        .stdout(std::process::Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let told = "2 requeued; waiting for 2 of them to run; nobody serves q";
    wait_until("a word about it", || place.read("stderr").contains(told));
    signal(&child, "INT");
    ended(child).exits(1);
}

/// Words of the audit, the newest first.
fn audited(place: &Place) -> Vec<String> {
    let audit = place.json(["dead", "audit"]);
    audit["audit"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["what"].as_str().unwrap().to_owned())
        .collect()
}

fn picked_letters_are_redriven_and_stopping_is_noted(place: &Place) {
    die(
        place,
        "q",
        &[("a", "boom"), ("b", "boom"), ("c", "boom"), ("d", "boom")],
    );
    for (picked, names) in [
        (vec!["d"], "d"),
        (vec!["--oldest", "2", "--queue", "q"], "ab"),
    ] {
        let worker = place.start(["work", "q", "--exec", "exit 0"]);
        let args = ["dead", "redrive"]
            .into_iter()
            .chain(picked.iter().copied());
        let report = place.json(args);
        assert_eq!(
            (&report["phase"], &report["requeued"], &report["picked"]),
            (&json!("done"), &json!(names.len()), &json!(names.len())),
            "{report}"
        );
        for name in names.chars() {
            let name = name.to_string();
            wait_until("the end of the job", || place.job(&name)["state"] == "done");
        }
        signal(&worker, "TERM");
        ended(worker).succeeded();
    }
    assert_eq!(place.job("c")["state"], "dead");
    let child = place.start(["dead", "redrive", "c"]);
    wait_until("the canary", || place.count("q", "ready") == 1);
    let id = place.json(["dead", "redrive", "--list"])["redrives"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    place.json(["dead", "redrive", "--stop", &id]);
    ended(child).exits(1);
    let audited = audited(place);
    assert_eq!(
        audited
            .iter()
            .filter(|what| *what == "redrive stop")
            .count(),
        1,
        "{audited:?}"
    );
    assert_eq!(
        audited
            .iter()
            .filter(|what| **what == format!("redrive {id}"))
            .count(),
        1,
        "{audited:?}"
    );
}

#[test]
fn a_selection_must_say_what_it_means() {
    let place = Place::new();
    for word in ["requeue", "delete", "redrive"] {
        place
            .run(["dead", word])
            .complains(2, &["which dead letters", "--all"]);
        place
            .run(["dead", word, "a", "--all"])
            .complains(2, &["use one of them"]);
        place
            .run(["dead", word, "a", "--kind", "k"])
            .complains(2, &["use one of them"]);
        place
            .run(["dead", word, "--oldest", "3"])
            .complains(2, &["--oldest takes", "--queue"]);
        place
            .run(["dead", word, "--oldest", "0", "--queue", "q"])
            .complains(2, &["--oldest takes"]);
        place
            .run(["dead", word, "--oldest", "3", "--queue", "q", "--text", "x"])
            .complains(2, &["no other filter"]);
        place
            .run(["dead", word, "--since", "yesterday"])
            .complains(2, &["not a time", "1h"]);
    }
    place.run(["dead", "move", "a"]).complains(2, &["--to"]);
    place.run(["dead", "clear"]).complains(2, &["QUEUE"]);
    place
        .run(["dead", "redrive", "--all", "--canary", "0"])
        .complains(2, &["the canary is 1 to 500"]);
    place
        .run(["dead", "redrive", "--all", "--then-rate", "fast"])
        .complains(2, &["not a rate"]);
    place
        .run(["dead", "redrive", "--resume", "x", "--all"])
        .complains(2, &["take no letters"]);
    place
        .run(["dead", "redrive", "--resume", "x"])
        .complains(1, &["there is no redrive x"]);
    place
        .run(["dead", "list", "--fingerprint", "x"])
        .complains(2, &["16 hexadecimal digits"]);
    place
        .run(["dead", "import", "nowhere"])
        .complains(2, &["nowhere cannot be read"]);
    place
        .run(["dead", "export", "--output", "no/folder/x"])
        .complains(2, &["cannot be written"]);
}

#[test]
fn one_letter_that_cannot_be_read_hides_no_other() {
    let place = Place::new();
    die(
        &place,
        "q",
        &[("a", "boom 1"), ("b", "boom 2"), ("c", "boom 3")],
    );
    let file = backstop::rusqlite::Connection::open(place.path("backstop.db")).unwrap();
    file.execute_batch("UPDATE backstop_job SET kind = '' WHERE no = 2")
        .unwrap();
    drop(file);
    assert_eq!(place.json(["dead", "stats"])["total"], 3);
    let list = place.json(["dead", "list"]);
    assert_eq!(
        (names(&list), list["damaged"].as_array().unwrap().len()),
        (vec!["boom 3", "boom 1"], 1)
    );
    let text = place.run(["dead", "list"]).succeeded();
    assert!(
        text.stderr.contains("cannot be read") && text.stdout.lines().count() == 3,
        "{text:#?}"
    );
    let export = place.run(["dead", "export"]).exits(1);
    assert!(
        export.stdout.lines().count() == 2 && export.stderr.contains("cannot be read"),
        "{export:#?}"
    );
    let id = list["damaged"][0]["id"].as_str().unwrap();
    assert_eq!(
        place.json(["dead", "delete", id, "--yes"]),
        json!({ "count": 1 })
    );
    assert_eq!(
        place.json(["dead", "requeue", "--text", "boom"]),
        json!({ "count": 2 })
    );
}

#[test]
fn the_audit_tells_of_every_change_and_why_one_ended_early() {
    let place = Place::new();
    let full =
        "[queues.full]\nmax_size = 1\n[schedules.d]\ncron = \"30 8 * * *\"\nqueue = \"full\"\n";
    place.write("backstop.toml", full);
    place.json(["push", "full", "1"]);
    place
        .run(["schedule", "trigger", "d"])
        .complains(1, &["queue full is full"]);
    place.json(["queue", "pause", "q"]);
    let help = place.run(["dead", "audit", "--help"]).succeeded().stdout;
    assert!(
        help.contains("and anything else") && !help.contains("among the dead letters"),
        "{help}"
    );
    let text = place.run(["dead", "audit"]).succeeded().stdout;
    assert!(
        text.starts_with("WHEN\tWHO\tWHAT\tCOUNT\tSELECTION\tREASON\tERROR\n"),
        "{text}"
    );
    assert!(text.contains("\tqueue pause\t1\t"), "{text}");
    assert!(
        text.contains("\tschedule trigger\t0\t") && text.contains("\tqueue full is full;"),
        "{text}"
    );
}

/// An id is unique within its queue only where a store is Redis.
fn letters_of_one_id_go_by_their_queues(place: &Place) {
    for queue in ["a", "c"] {
        die(place, queue, &[("same", "boom")]);
    }
    let worker = place.start(["work", "a", "c", "--exec", "true", "-q"]);
    let report = place.json(["dead", "redrive", "--canary", "1", "--all"]);
    assert_eq!(
        (&report["requeued"], &report["refused"]),
        (&json!(2), &json!(0)),
        "{report}"
    );
    assert_eq!(
        (&report["phase"], &report["died_again"]),
        (&json!("done"), &json!(0)),
        "{report}"
    );
    // Nobody watches the last ones to their end.
    wait_until("both are done", || {
        place.count("a", "done") == 1 && place.count("c", "done") == 1
    });
    assert_eq!(place.json(["dead", "stats"])["total"], 0);
    signal(&worker, "TERM");
    ended(worker).succeeded();
    for queue in ["a", "c"] {
        die(place, queue, &[("twice", "boom")]);
    }
    let id = place.json(["dead", "list", "--queue", "a"])["dead"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let answer = place
        .run(["dead", "redrive", "--canary", "1", &id])
        .exits(1);
    assert!(
        answer
            .stderr
            .contains("several queues have a job of that id"),
        "{answer:?}"
    );
    assert!(
        answer
            .stdout
            .contains("none of those that fit could be requeued"),
        "{answer:?}"
    );
}

#[test]
fn letters_of_one_id_go_by_their_queues_on_redis() {
    letters_of_one_id_go_by_their_queues(&Place::at(
        backstop_testkit::servers::redis().fresh_url(),
    ));
}

#[test]
fn letters_of_one_id_go_by_their_queues_on_a_cluster() {
    letters_of_one_id_go_by_their_queues(&Place::at(
        backstop_testkit::servers::cluster().fresh_url(),
    ));
}
