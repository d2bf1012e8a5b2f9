//! The commands.

use crate::process::generate;
use crate::program;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn uptime(folder: &Path, args: &[&str]) -> Output {
    Command::new(program())
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

#[test]
fn a_world_is_made_played_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let made = json(&uptime(
        at,
        &[
            "generate",
            "--out",
            "world",
            "--subscriptions",
            "30",
            "--minutes",
            "12",
            "--broken",
            "0.02",
            "--json",
        ],
    ));
    let played = uptime(
        at,
        &[
            "run",
            "--world",
            "world",
            "--speed",
            "2000",
            "--json",
            "--svg",
            "figures.svg",
        ],
    );
    let played = json(&played);
    assert_eq!(played["world"], made);
    let [immediate, backstop] = played["runs"].as_array().unwrap().as_slice() else {
        unreachable!("both, if nobody says otherwise: {played}")
    };
    for run in [immediate, backstop] {
        assert_eq!(run["counts"]["received"], made["arrivals"]);
        assert_eq!(run["counts"]["broken"], made["broken"]);
    }
    assert_eq!(
        (&immediate["mode"], &immediate["hold"]),
        (&"immediate".into(), &Value::Null)
    );
    assert!(
        immediate["false_misses"].as_u64().unwrap() > 0,
        "{immediate}"
    );
    assert_eq!(
        (&backstop["mode"], &backstop["hold"]["overflows"]),
        (&"backstop".into(), &0.into())
    );
    assert!(
        fs::read_to_string(at.join("figures.svg"))
            .unwrap()
            .starts_with("<svg ")
    );
    let table = stdout(&uptime(
        at,
        &[
            "run",
            "--world",
            "world",
            "--speed",
            "2000",
            "--mode",
            "immediate",
        ],
    ));
    assert!(
        table.contains("false misses") && table.contains("broken: it is not a JSON object"),
        "{table}"
    );
}

#[test]
fn a_file_is_consumed_and_what_is_broken_in_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    stdout(&uptime(
        at,
        &[
            "generate",
            "--out",
            ".",
            "--subscriptions",
            "5",
            "--minutes",
            "6",
            "--broken",
            "0",
        ],
    ));
    let consume = [
        "consume",
        "--file",
        "results",
        "--directory",
        "directory.json",
        "--memory",
        "uptime.db",
        "--mode",
        "immediate",
        "--json",
    ];
    let trace = fs::read_to_string(at.join("trace.ndjson")).unwrap();
    fs::write(
        at.join("results"),
        format!("{{\"guid\":1}}\n{trace}\nrubbish\n"),
    )
    .unwrap();

    let consumed = uptime(at, &consume);
    assert_eq!(
        consumed.status.code(),
        Some(1),
        "somebody must look at what is broken"
    );
    let stderr = String::from_utf8_lossy(&consumed.stderr).into_owned();
    let last = trace.lines().count() + 3;
    assert!(
        stderr.starts_with("line 1: `guid` is 1: invalid type: integer `1`, expected a string\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("line {last}: it is not a JSON object")),
        "{stderr}"
    );
    let counts: Value = serde_json::from_slice(&consumed.stdout).unwrap();
    let handled = counts["counts"]["offered"]["handled"].as_u64().unwrap();
    assert!(handled > 10, "{counts}");

    let output = ["output", "--memory", "uptime.db"];
    let lines = stdout(&uptime(at, &output));
    let of_effect = |effect: &str| {
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["effect"] == effect;
        lines.lines().filter(|text| line(text)).count() as u64
    };
    assert_eq!(of_effect("handled"), handled);

    // The same file again, as after a crash: nothing is handled twice.
    fs::write(at.join("results"), trace).unwrap();
    let again = json(&uptime(at, &consume));
    assert_eq!(again["counts"]["offered"]["handled"], 0);
    assert_eq!(stdout(&uptime(at, &output)), lines);
}

#[test]
fn a_file_out_of_order_is_handled_in_order_without_misses() {
    let folder = tempfile::tempdir().unwrap();
    let of_one = generate(folder.path());
    let mut shuffled = of_one.clone();
    shuffled[1..].reverse();
    let at = folder.path();
    fs::write(at.join("results"), shuffled.join("\n")).unwrap();
    let consume = [
        "consume",
        "--file",
        "results",
        "--directory",
        "directory.json",
        "--memory",
        "uptime.db",
    ];
    let consumed = json(&uptime(
        at,
        &[consume.as_slice(), &["--drain", "--json"]].concat(),
    ));
    assert_eq!(consumed["hold"]["added"], consumed["hold"]["removed"]);
    let lines = stdout(&uptime(at, &["output", "--memory", "uptime.db"]));
    assert_eq!(lines.lines().count(), of_one.len());
    for (line, result) in lines.lines().zip(&of_one) {
        assert!(
            line.contains(result.as_str()),
            "{line}\nis not of\n{result}"
        );
    }
    // What is held stays for whoever comes next, and a file that comes again changes nothing.
    let held = [
        "{}".to_owned(),
        shuffled[1].replace(
            "\"scheduled_check_time_ms\":1",
            "\"scheduled_check_time_ms\":2",
        ),
    ];
    fs::write(at.join("results"), held.join("\n")).unwrap();
    let again = uptime(at, &consume);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(again.contains("1 are held until their turn"), "{again}");
    fs::write(at.join("results"), shuffled.join("\n")).unwrap();
    let again = json(&uptime(at, &[consume.as_slice(), &["--json"]].concat()));
    assert_eq!(
        again["counts"]["offered"]["duplicates"].as_u64(),
        Some(of_one.len() as u64)
    );
}

#[test]
fn wrong_use_is_told_from_failure() {
    let folder = tempfile::tempdir().unwrap();
    let code = |args: &[&str]| uptime(folder.path(), args).status.code();
    assert_eq!(code(&["run", "--mode", "sometime"]), Some(2));
    let consume = ["consume", "--directory", "d", "--memory", "m"];
    assert_eq!(code(&consume), Some(2), "results come from somewhere");
    assert_eq!(
        code(&[consume.as_slice(), &["--file", "f", "--http", "1"]].concat()),
        Some(2),
        "from one place"
    );
    assert_eq!(
        code(&["run", "--world", "w", "--seed", "2"]),
        Some(2),
        "a world is made or given"
    );
    assert_eq!(code(&["run", "--world", "nowhere"]), Some(1));
    assert_eq!(code(&["run", "--workers", "0"]), Some(1));
    assert_eq!(
        code(&["run", "--mode", "backstop", "--store", "memory:"]),
        Some(1),
        "processes do not share it"
    );
    assert_eq!(code(&["output", "--memory", "nowhere.db"]), Some(1));
    assert!(
        !folder.path().join("nowhere.db").exists(),
        "looking at a memory does not make one"
    );
}

#[test]
fn help_says_where_to_begin() {
    let help = stdout(&uptime(Path::new("."), &["--help"]));
    for word in ["uptime run", "generate", "consume", "overtakes"] {
        assert!(help.contains(word), "{word} is not in: {help}");
    }
    assert!(
        !help.contains("worker process of a run"),
        "that is no command for people"
    );
}
