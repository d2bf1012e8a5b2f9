use crate::place::{Place, ended, json_args, signal, wait_until};
use serde_json::json;
use std::process::Stdio;

#[test]
fn it_says_who_works_on_what_and_where_to_see_more() {
    let place = Place::new();
    let answer = place
        .run([
            "work",
            "q",
            "r",
            "--exec",
            "exit 0",
            "--until-empty",
            "--concurrency",
            "3",
        ])
        .succeeded();
    for part in [
        "serves q (3 at once), r (3 at once)",
        "a dead worker's job runs again within 18s",
        "see it with --show-output",
    ] {
        assert!(
            answer.stderr.contains(part),
            "{part:?} is missing: {answer:#?}"
        );
    }
    assert!(
        !answer.stderr.contains("acknowledged enqueue"),
        "that is the doctor's: {answer:#?}"
    );
    assert!(
        answer.stdout.starts_with("0 done, 0 retried, 0 dead"),
        "{}",
        answer.stdout
    );
}

#[test]
fn every_run_that_fails_is_one_line() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let retry = r#"{"kind":"constant","every":"200ms","max_attempts":3}"#;
    let line = "echo \"no route $BACKSTOP_ATTEMPT\" >&2; exit 1";
    let args = [
        "work",
        "q",
        "--exec",
        line,
        "--retry",
        retry,
        "--until-empty",
    ];
    let answer = place.run(args).exits(1);
    let id = place.job("a")["id"].as_str().unwrap().to_owned();
    let told: Vec<&str> = answer
        .stderr
        .lines()
        .filter(|line| line.contains("no route"))
        .collect();
    assert_eq!(told.len(), 3, "{answer:#?}");
    for (line, parts) in told.iter().zip([
        ["attempt 1 of 3 failed: no route 1; next try in 200ms", &id],
        ["attempt 2 of 3 failed: no route 2; next try in 200ms", &id],
        ["a job is dead", "no route 3"],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    place.json(["push", "q", "1", "--id", "b"]);
    let quiet = place.run(["--quiet"].into_iter().chain(args)).exits(1);
    assert!(!quiet.stderr.contains("attempt"), "{quiet:#?}");
}

#[test]
fn the_summary_counts_and_a_death_falls_short() {
    let place = Place::new();
    place.feed(b"1\n2\n3\n", ["push", "q", "-"]).succeeded();
    let line = "read n; [ $n = 2 ] && exit 65; exit 0";
    let answer = place
        .run(json_args(["work", "q", "--exec", line, "--until-empty"]))
        .exits(1);
    let summary = answer.json();
    assert_eq!(
        (&summary["done"], &summary["dead"], &summary["retried"]),
        (&json!(2), &json!(1), &json!(0))
    );
    assert!(summary["worker"].is_string() && summary["elapsed_ms"].is_u64());
}

#[test]
fn until_empty_waits_for_retries_and_for_what_is_due_soon() {
    let place = Place::new();
    place.json(["push", "q", "1", "--delay", "300ms"]);
    place.json(["push", "q", "2"]);
    let retry = r#"{"kind":"constant","every":"200ms","max_attempts":3}"#;
    let line = "[ $BACKSTOP_ATTEMPT = 2 ]";
    let summary = place.json([
        "work",
        "q",
        "--exec",
        line,
        "--retry",
        retry,
        "--until-empty",
    ]);
    assert_eq!(
        (&summary["done"], &summary["retried"]),
        (&json!(2), &json!(2))
    );
}

#[test]
fn several_queues_are_served_at_once() {
    let place = Place::new();
    place.json(["push", "a", "1"]);
    place.json(["push", "b", "1"]);
    assert_eq!(
        place.json(["work", "a", "b", "--exec", "exit 0", "--until-empty"])["done"],
        2
    );
}

#[test]
fn a_signal_lets_running_jobs_end() {
    for name in ["INT", "TERM"] {
        let place = Place::new();
        place.json(["push", "q", "1", "--id", "a"]);
        let child = place.start([
            "work",
            "q",
            "--exec",
            "touch started; while [ ! -e go ]; do sleep 0.05; done",
        ]);
        wait_until("a run", || place.path("started").exists());
        signal(&child, name);
        place.write("go", "");
        let answer = ended(child).succeeded();
        assert!(answer.stdout.starts_with("1 done"), "{answer:#?}");
        assert!(
            answer
                .stderr
                .contains("waiting for running jobs (30s at most)"),
            "{answer:#?}"
        );
        assert_eq!(place.job("a")["state"], "done");
    }
}

#[test]
fn two_signals_at_once_are_one() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let child = place.start([
        "work",
        "q",
        "--exec",
        "touch started; while [ ! -e go ]; do sleep 0.05; done",
    ]);
    wait_until("a run", || place.path("started").exists());
    // As coreutils' `timeout` does, to its child and to the child's group.
    for name in ["TERM", "INT", "TERM"] {
        signal(&child, name);
    }
    place.write("go", "");
    let answer = ended(child).succeeded();
    assert!(
        answer
            .stderr
            .contains("waiting for running jobs (30s at most)")
            && !answer.stderr.contains("called off"),
        "{answer:#?}"
    );
    assert_eq!(place.job("a")["state"], "done");
}

#[test]
fn a_second_signal_gives_running_jobs_back() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let child = place.start(["work", "q", "--exec", "touch started; exec sleep 60"]);
    wait_until("a run", || place.path("started").exists());
    signal(&child, "TERM");
    // Signals that come together count as one; the second is sent until it has an effect.
    let mut child = child;
    wait_until("the end", || {
        if child.try_wait().unwrap().is_none() {
            signal(&child, "TERM");
        }
        child.try_wait().unwrap().is_some()
    });
    let answer = ended(child).succeeded();
    assert!(
        answer.stderr.contains("called off and given back"),
        "{answer:#?}"
    );
    let job = place.job("a");
    assert_eq!(
        (&job["state"], &job["attempt"], &job["errors"]),
        (&json!("ready"), &json!(0), &json!([]))
    );
}

#[test]
fn the_configuration_brings_handlers_and_settings() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.a]\nhandler = { exec = [\"sh\", \"-c\", \"cat > seen\"], timeout = \"5s\" }\nconcurrency = 2\n[queues.b]\nlease = \"20s\"\n",
    );
    place.json(["push", "a", "17"]);
    let answer = place.run(["work", "--until-empty"]).succeeded();
    assert!(
        answer.stderr.contains("serves a (2 at once)\n"),
        "{answer:#?}"
    );
    assert_eq!(place.read("seen"), "17");
    place.run(["work", "b"]).complains(
        2,
        &["queue b has no handler", "try: backstop work b --exec CMD"],
    );
    let answer = place
        .run(["work", "b", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert!(
        answer.stderr.contains("within 23s"),
        "the lease of the file: {answer:#?}"
    );
}

#[test]
fn work_without_anything_to_do_is_wrong_use() {
    let place = Place::new();
    place.run(["work"]).complains(
        2,
        &["nothing to run", "try: backstop work QUEUE --exec CMD"],
    );
    place
        .run(["work", "--exec", "true"])
        .complains(2, &["which queues?"]);
    place.run(["work", "q"]).complains(2, &["no handler"]);
    place
        .run(["work", "q", "--exec", "true", "--", "true"])
        .complains(2, &["cannot be used"]);
    place
        .run(["work", "q", "--exec", "true", "--lease", "1ms"])
        .complains(2, &["`lease` must be from"]);
    place
        .run(["work", "q", "--exec", "true", "--max-attempts", "0"])
        .complains(2, &["--max-attempts"]);
    place
        .run(["work", "q", "--exec", "true", "--concurrency", "0"])
        .complains(2, &["`concurrency`"]);
}

#[test]
fn a_paused_queue_is_named_while_it_is_waited_for() {
    let place = Place::new();
    place.json(["push", "q", "1"]);
    place.json(["queue", "pause", "q"]);
    let stderr = std::fs::File::create(place.path("stderr")).unwrap();
    let args = ["work", "q", "--exec", "exit 0", "--until-empty"];
    let child = place
        .command(args)
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let told = "queue q is paused and not empty; try: backstop queue resume q";
    wait_until("a word about the pause", || {
        place.read("stderr").contains(told)
    });
    place.json(["queue", "resume", "q"]);
    assert!(ended(child).succeeded().stdout.starts_with("1 done"));
}
