//! `--reason` of every command that changes something by hand.

use crate::every_command::COMMANDS;
use crate::place::Place;
use serde_json::Value;
use std::collections::BTreeSet;

/// The commands that change something on somebody's word, as the audit tells them.
const CHANGING: &str = "job retry · job cancel · job delete · queue pause · queue resume · queue clear
    · dead requeue · dead move · dead delete · dead clear · dead import · dead redrive · breaker reset · breaker open
    · stream forget · stream enable · stream resume · schedule trigger · schedule pause · schedule resume · sweep
    · token create · token revoke · worker quiet · worker resume · worker stop";

#[test]
fn each_command_that_changes_something_takes_a_reason_and_no_other_does() {
    let place = Place::new();
    let takes_one = |name: &&String| {
        place
            .run(name.split(' ').chain(["-h"]))
            .succeeded()
            .stdout
            .contains("--reason <TEXT>")
    };
    let taking: BTreeSet<&str> = COMMANDS
        .iter()
        .filter(takes_one)
        .map(String::as_str)
        .collect();
    assert_eq!(taking, CHANGING.split('·').map(str::trim).collect());
}

/// The reason of the newest entry.
fn told(place: &Place) -> Value {
    place.json(["dead", "audit", "--limit", "1"])["audit"][0]["reason"].clone()
}

#[test]
fn the_audit_tells_the_reason_of_each_change() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[schedules.d]\ncron = \"30 8 * * *\"\nqueue = \"d\"\n\
         [sweeps.w]\nurl = \"sqlite:app.db\"\nquery = \"SELECT 1 AS id WHERE '2020' > :cutoff\"\nqueue = \"w\"\nunique_key = \"{id}\"\n",
    );
    rusqlite::Connection::open(place.path("app.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (id)")
        .unwrap();
    let letters = ["b", "c", "d", "e"].map(|id| {
        format!(r#"{{"id":"{id}","queue":"q","error":"boom","original_job":{{"payload":1}}}}"#)
    });
    place.write("letters.ndjson", &letters.join("\n"));
    place.json(["push", "q", "1", "--id", "a"]);
    place.json(["push", "q", "1", "--id", "z"]);
    place.json([
        "stream",
        "push",
        "s",
        "1",
        "--key",
        "k",
        "--position",
        "60000",
        "--step",
        "1m",
    ]);
    let token = place.json(["token", "create", "--scope", "read", "--reason", "to look"]);
    assert_eq!(told(&place), "to look");
    let revoke = format!("token revoke {}", token["id"].as_str().unwrap());
    let lines = [
        "job cancel a",
        "job retry a",
        "job delete a",
        "queue pause q",
        "queue resume q",
        "queue clear q --yes",
        "dead import letters.ndjson",
        "dead requeue b",
        "dead move c --to r",
        "dead delete d --yes",
        "dead clear --all --yes",
        "breaker open q",
        "breaker reset q",
        "stream forget s k --disable --yes",
        "stream enable s k",
        "schedule trigger d",
        "schedule pause d",
        "schedule resume d",
        "sweep w",
        &revoke,
    ];
    for (n, line) in lines.into_iter().enumerate() {
        let reason = format!("reason {n}, password=hunter2");
        place
            .run(line.split(' ').chain(["--reason", &reason]))
            .succeeded();
        assert_eq!(
            told(&place),
            format!("reason {n}, password=[redacted]"),
            "{line}"
        );
    }
    place.json(["queue", "pause", "q"]);
    assert_eq!(told(&place), Value::Null);
    let text = place.run(["dead", "audit"]).succeeded().stdout;
    assert!(
        text.contains("\tto look\t") && !text.contains("hunter2"),
        "{text}"
    );
}

#[test]
fn a_breaker_says_the_reason_unless_it_is_told_something_else() {
    let place = Place::new();
    let why = |args: &[&str]| {
        place.json(["breaker", "open", "q"].iter().chain(args).copied());
        place.json(["breaker", "list"])["breakers"][0]["events"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()["why"]
            .clone()
    };
    assert_eq!(why(&[]), "opened by hand");
    assert_eq!(why(&["--reason", "it moves"]), "it moves");
    assert_eq!(
        why(&["--reason", "it moves", "--why", "down until noon"]),
        "down until noon"
    );
}

#[test]
fn what_is_no_reason_is_refused_before_anything_is_changed() {
    let place = Place::new();
    let long = "a".repeat(201);
    for (reason, told) in [
        ("", "says nothing"),
        ("two\nlines", "one line"),
        (long.as_str(), "at most 200"),
    ] {
        place
            .run(["queue", "pause", "q", "--reason", reason])
            .complains(2, &[told]);
    }
    place
        .run(["sweep", "--dry-run", "--reason", "none"])
        .complains(2, &["--reason"]);
    place
        .run(["dead", "redrive", "--list", "--reason", "none"])
        .complains(2, &["--reason"]);
    assert_eq!(told(&place), Value::Null);
}
