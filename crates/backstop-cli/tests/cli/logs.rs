//! Logs as programs read them.

mod secrets;

use crate::place::Place;
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[test]
fn a_line_of_json_says_which_run_it_is_about() {
    let place = Place::new();
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut push = place.command(["push", "mail", "1", "--kind", "send", "--id", "a"]);
    assert!(
        push.env("TRACEPARENT", traceparent)
            .status()
            .unwrap()
            .success()
    );
    let args = [
        "work",
        "mail",
        "--exec",
        "exit 1",
        "--max-attempts",
        "1",
        "--until-empty",
        "-v",
    ];
    let answer = place
        .run(["--log-format", "json"].into_iter().chain(args))
        .exits(1);
    let lines = lines(&answer.stderr);
    let failed = lines
        .iter()
        .find(|line| line["message"] == "the run failed");
    let failed = failed.unwrap_or_else(|| panic!("{answer:#?}"));
    assert_eq!(failed["job"], place.job("a")["id"]);
    assert_eq!(
        (&failed["queue"], &failed["kind"]),
        (&json!("mail"), &json!("send"))
    );
    assert_eq!(
        (&failed["attempt"], &failed["level"]),
        (&json!(1), &json!("info"))
    );
    assert_eq!(failed["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(
        failed["worker"].is_string() && failed["at"].as_str().unwrap().ends_with('Z'),
        "{failed}"
    );
    let dead = lines
        .iter()
        .find(|line| line["message"] == "a job is dead")
        .unwrap();
    assert_eq!(
        (&dead["level"], &dead["queue"]),
        (&json!("warn"), &json!("mail"))
    );
}

#[test]
fn the_environment_chooses_the_form_and_a_flag_wins() {
    let place = Place::new();
    place.run(["push", "mail", "1"]).succeeded();
    let logs = |flag: Option<&str>, variable: &str| {
        let args = [
            "work",
            "mail",
            "--exec",
            "exit 1",
            "--max-attempts",
            "1",
            "--until-empty",
        ];
        let mut command = place.command(args.into_iter().chain(flag));
        let output = command.env("BACKSTOP_LOG", variable).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(!lines(&logs(None, "json")).is_empty());
    place.run(["push", "mail", "1"]).succeeded();
    assert!(lines(&logs(Some("--log-format=text"), "json")).is_empty());
    assert!(logs(None, "xml").contains("xml"));
}

#[test]
fn no_log_shows_a_secret() {
    for format in ["text", "json"] {
        let place = Place::new();
        place.run(["push", "mail", "1"]).succeeded();
        let line = "echo 'login failed, password=hunter2' >&2; exit 65";
        let answer = place
            .run([
                "--log-format",
                format,
                "work",
                "mail",
                "--exec",
                line,
                "--until-empty",
                "-v",
            ])
            .exits(1);
        assert!(answer.stderr.contains("[redacted]"), "{answer:#?}");
        assert!(!answer.stderr.contains("hunter2"), "{answer:#?}");
    }
}
