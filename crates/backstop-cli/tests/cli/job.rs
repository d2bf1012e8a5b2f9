use crate::place::{Place, ended, json_args, lines, signal, wait_until};
use backstop::{Backstop, Exec};
use serde_json::{Value, json};
use std::process::Stdio;

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn a_job_has_its_shape() {
    let place = Place::new();
    place.json(["push", "q", r#"{"a":1}"#, "--id", "a", "--unique-key", "u"]);
    let job = place.job("a");
    let promised = [
        "id",
        "queue",
        "kind",
        "state",
        "payload",
        "attempt",
        "max_attempts",
        "lost_leases",
        "run_at",
        "inserted_at",
        "unique_key",
        "errors",
    ];
    for key in promised {
        assert!(keys(&job).contains(&key), "{key} is missing: {job}");
    }
    assert_eq!(
        (&job["state"], &job["kind"], &job["attempt"]),
        (&json!("ready"), &json!("default"), &json!(0))
    );
    assert_eq!(
        (&job["unique_key"], &job["max_attempts"]),
        (&json!("u"), &json!(20))
    );
    assert!(job["inserted_at"].as_str().unwrap().ends_with('Z'), "{job}");
}

#[test]
fn a_list_can_be_filtered_and_read_page_by_page() {
    let place = Place::new();
    place
        .feed(b"1\n2\n3\n", ["push", "q", "-", "--kind", "k"])
        .succeeded();
    place.json(["push", "r", "4", "--delay", "1h"]);
    let list = |args: &[&str]| place.json(["job", "list"].iter().chain(args));
    assert_eq!(keys(&list(&[])), ["jobs", "next"]);
    let count = |args: &[&str]| list(args)["jobs"].as_array().unwrap().len();
    assert_eq!(
        (
            count(&[]),
            count(&["--queue", "q"]),
            count(&["--kind", "k"])
        ),
        (4, 3, 3)
    );
    assert_eq!(
        (
            count(&["--state", "scheduled"]),
            count(&["--state", "dead"])
        ),
        (1, 0)
    );
    let mut seen = Vec::new();
    let mut page = list(&["--limit", "2", "--queue", "q"]);
    loop {
        seen.extend(
            page["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| job["id"].clone()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        page = list(&["--limit", "2", "--queue", "q", "--cursor", next]);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
    assert_eq!(count(&["--all"]), 4);
    assert_eq!(count(&["--limit", "0"]), 1, "clamped");
}

#[test]
fn a_list_for_people_is_a_line_per_job() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let text = place.run(["job", "list"]).succeeded().stdout;
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.starts_with("ID\tQUEUE\tKIND\tSTATE"), "{text}");
    let shown = place.run(["job", "show", "a"]).succeeded().stdout;
    assert!(
        shown.contains("ready") && shown.contains("attempt") && !shown.contains('\x1b'),
        "{shown}"
    );
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let place = Place::new();
    let lines = lines(20_000);
    place.feed(lines.as_bytes(), ["push", "q", "-"]).succeeded();
    for args in [
        vec!["job", "list", "--all"],
        vec!["job", "list", "--all", "--json"],
    ] {
        let mut child = place
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let answer = ended(child).succeeded();
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn dead_jobs_can_be_retried_by_id_and_by_filter() {
    let place = Place::new();
    place
        .feed(b"1\n2\n3\n", ["push", "q", "-", "--batch", "b"])
        .succeeded();
    place
        .run(["work", "q", "--exec", "exit 65", "--until-empty"])
        .exits(1);
    assert_eq!(place.count("q", "dead"), 3);
    let id = place.json(["job", "list", "--state", "dead"])["jobs"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        place.json(["job", "retry", &id]),
        json!({ "count": 1, "refused": [] })
    );
    assert_eq!(
        place.json(["job", "retry", "--queue", "q", "--state", "dead"])["count"],
        2
    );
    assert_eq!(
        (
            place.count("q", "ready"),
            place.job(&id)["requeues"].as_u64()
        ),
        (3, Some(1))
    );
}

#[test]
fn a_job_that_refuses_says_why() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let answer = place
        .run(json_args(["job", "retry", "a", "nobody"]))
        .exits(1)
        .json();
    assert_eq!(answer["count"], 0);
    let why: Vec<&str> = answer["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|no| no["why"].as_str().unwrap())
        .collect();
    assert!(
        why[0].contains("ready already") && why[1].contains("no such job"),
        "{why:?}"
    );
    let text = place.run(["job", "retry", "a"]).exits(1);
    assert!(
        text.stdout.starts_with("0 jobs made ready") && text.stderr.contains("ready already"),
        "{text:#?}"
    );
}

#[test]
fn jobs_can_be_cancelled_and_deleted() {
    let place = Place::new();
    place.feed(b"1\n2\n3\n", ["push", "q", "-"]).succeeded();
    place.json(["push", "q", "4", "--id", "a"]);
    assert_eq!(place.json(["job", "cancel", "a"])["count"], 1);
    assert_eq!(
        (
            place.job("a")["state"].as_str(),
            place.job("a")["reason"].as_str()
        ),
        (Some("cancelled"), Some("operator"))
    );
    assert_eq!(place.json(["job", "delete", "a"])["count"], 1);
    place
        .run(["job", "show", "a"])
        .complains(1, &["error: there is no job a (", "try: backstop job list"]);
    let id = "019a8c2e-7d11-7c3e-9a55-0d6c1f0a2b3c";
    place
        .run(["job", "show", id])
        .complains(1, &[&format!("there is no job {id};")]);
    place
        .run(["dead", "show", "nosuch"])
        .complains(1, &["there is no dead letter nosuch ("]);
    assert!(
        place
            .run(["job", "why", "nosuch"])
            .exits(1)
            .stdout
            .starts_with("there is no such job: nosuch (")
    );
    let answer = place.run(["job", "cancel", "nosuch"]).exits(1);
    assert!(answer.stderr.contains("nosuch ("), "{answer:?}");
    assert_eq!(place.json(["job", "delete", "--all", "--yes"])["count"], 3);
    assert_eq!(place.json(["job", "list"])["jobs"], json!([]));
}

#[test]
fn jobs_that_nobody_named_are_deleted_only_if_that_was_meant() {
    let place = Place::new();
    place.feed(b"1\n2\n3\n", ["push", "q", "-"]).succeeded();
    place.json(["push", "p", "4"]);
    place
        .run(["job", "delete", "--queue", "q"])
        .complains(2, &["all jobs that fit for good", "with --yes"]);
    place
        .run(["job", "delete", "--all"])
        .complains(2, &["all jobs of all queues for good", "with --yes"]);
    assert_eq!(
        (place.count("q", "ready"), place.count("p", "ready")),
        (3, 1),
        "nothing was removed"
    );
    assert_eq!(
        place.json(["job", "delete", "--queue", "q", "-y"])["count"],
        3
    );
    assert_eq!(place.json(["job", "delete", "--all", "--yes"])["count"], 1);
}

#[test]
fn many_jobs_take_more_than_one_call() {
    let place = Place::new();
    let lines = lines(3_500);
    place.feed(lines.as_bytes(), ["push", "q", "-"]).succeeded();
    assert_eq!(
        place.json(["job", "cancel", "--queue", "q"])["count"],
        3_500
    );
    assert_eq!(place.count("q", "cancelled"), 3_500);
}

#[test]
fn jobs_behind_a_whole_call_of_refusals_are_reached() {
    let place = Place::new();
    let unique: Vec<String> = (0..1_100)
        .map(|n| format!("{{\"payload\":{n},\"unique_key\":\"{n}\"}}"))
        .collect();
    let unique = unique.join("\n");
    place
        .feed(unique.as_bytes(), ["push", "q", "-"])
        .succeeded();
    place.json(["push", "q", "1", "--id", "behind"]);
    assert_eq!(
        place.json(["job", "cancel", "--queue", "q"])["count"],
        1_101
    );
    place
        .feed(unique.as_bytes(), ["push", "q", "-"])
        .succeeded();
    let answer = place
        .run(json_args(["job", "retry", "--state", "cancelled"]))
        .exits(1)
        .json();
    assert_eq!(
        (
            &answer["count"],
            answer["refused"].as_array().unwrap().len()
        ),
        (&json!(1), 1_100)
    );
    assert_eq!(place.job("behind")["state"], "ready");
}

#[test]
fn all_must_be_said() {
    let place = Place::new();
    for action in ["retry", "cancel", "delete"] {
        place
            .run(["job", action])
            .complains(2, &["which jobs", "--all"]);
        place
            .run(["job", action, "x", "--all"])
            .complains(2, &["use one of them"]);
        place
            .run(["job", action, "--queue", "q", "--all"])
            .complains(2, &["use one of them"]);
    }
    place
        .run(["job", "list", "--state", "alive"])
        .complains(2, &["states are scheduled"]);
}

#[test]
fn why_names_the_gate() {
    let place = Place::new();
    let gate = |id: &str| {
        place.json(["job", "why", id])["gate"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    place.json(["push", "q", "1", "--id", "a"]);
    place.json(["push", "q", "1", "--id", "later", "--delay", "1h"]);
    assert_eq!(
        (gate("a"), gate("later")),
        ("no_worker".to_owned(), "not_due".to_owned())
    );
    place.json(["queue", "pause", "q"]);
    assert_eq!(gate("a"), "paused");
    place.json(["queue", "resume", "q"]);
    let child = place.start([
        "work",
        "q",
        "--exec",
        "touch started; while [ ! -e go ]; do sleep 0.05; done; exit 1",
    ]);
    wait_until("a run", || place.path("started").exists());
    assert_eq!(gate("a"), "running");
    check_running(&place);
    place.write("go", "");
    wait_until("a failure", || {
        place.job("a")["errors"].as_array().unwrap().len() == 1
    });
    let sentence = place.run(["job", "why", "a"]).succeeded().stdout;
    crate::place::signal(&child, "TERM");
    ended(child).succeeded();
    assert!(
        sentence.contains("run 2 of 20") && sentence.contains("exited with code 1"),
        "{sentence}"
    );
    place.json(["job", "cancel", "a"]);
    assert_eq!(gate("a"), "cancelled");
    let answer = place.run(["job", "why", "nobody"]).exits(1);
    assert!(
        answer.stdout.contains("there is no such job"),
        "{answer:#?}"
    );
}

/// Job `a` runs, and is shown with its worker and for how long; `later` waits.
fn check_running(place: &Place) {
    let job = place.job("a");
    let (worker, started_at) = (
        job["worker"].as_str().unwrap(),
        job["started_at"].as_str().unwrap(),
    );
    assert!(!worker.is_empty() && started_at.ends_with('Z'), "{job}");
    assert_eq!(
        (
            &place.job("later")["worker"],
            &place.job("later")["started_at"]
        ),
        (&json!(null), &json!(null))
    );
    let text = place.run(["job", "list"]).succeeded().stdout;
    let cells: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(cells[0].last(), Some(&"RUNNING FOR"), "{text}");
    for row in &cells[1..] {
        assert_eq!(row.len(), cells[0].len(), "{text}");
        assert_eq!(
            row[3] == "running",
            !row.last().unwrap().is_empty(),
            "{text}"
        );
    }
    let shown = place.run(["job", "show", "a"]).succeeded().stdout;
    assert!(
        shown.contains("started at") && shown.contains("running for") && shown.contains(worker),
        "{shown}"
    );
}

#[test]
fn a_run_that_outlived_its_lease_is_listed() {
    let place = Place::new();
    assert_eq!(place.json(["job", "overlaps"]), json!({ "overlaps": [] }));
    place.json(["push", "q", "1", "--id", "a", "--kind", "k"]);
    let started = place.path("started");
    let slow = format!("touch {}; exec sleep 60", started.display());
    let first = place.start(["work", "q", "--exec", &slow, "--lease", "500ms"]);
    wait_until("a first run", || started.exists());
    // One that is frozen amid a write keeps the file locked for as long: not what is meant here.
    wait_until("a worker that is frozen between two writes", || {
        signal(&first, "STOP");
        let is_free = place.run(["push", "other", "1"]).code == Some(0);
        if !is_free {
            signal(&first, "CONT");
        }
        is_free
    });
    place
        .run([
            "work",
            "q",
            "--exec",
            "exit 0",
            "--lease",
            "500ms",
            "--until-empty",
        ])
        .succeeded();
    signal(&first, "CONT");
    let overlaps = || place.json(["job", "overlaps"])["overlaps"].take();
    wait_until("the overlap", || {
        overlaps()
            .as_array()
            .is_some_and(|overlaps| overlaps.len() == 1)
    });
    signal(&first, "TERM");
    ended(first);
    let overlap = overlaps()[0].take();
    assert_eq!(
        keys(&overlap),
        [
            "began_at",
            "ended_at",
            "job",
            "kind",
            "lease",
            "noticed_at",
            "queue",
            "worker"
        ]
    );
    assert_eq!(
        (&overlap["job"], &overlap["queue"], &overlap["kind"]),
        (&place.job("a")["id"], &json!("q"), &json!("k"))
    );
    let text = place.run(["job", "overlaps"]).succeeded().stdout;
    assert!(
        text.starts_with("JOB\tQUEUE\tKIND\tWORKER\tLEASE"),
        "{text}"
    );
}

#[test]
fn a_job_over_its_queues_rate_limit_says_until_when() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nrate_limit = { count = 1, per = \"1h\", over = \"5m\" }\n",
    );
    for id in ["a", "b"] {
        place.json(["push", "q", "1", "--id", id]);
    }
    let mut worker = place.start(["work", "q", "--exec", "true"]);
    let is_put_off = || place.job("b")["state"] == "scheduled" && place.job("a")["state"] == "done";
    wait_until("one done, one put off", is_put_off);
    let why = place.json(["job", "why", "b"]);
    assert_eq!(
        (&why["gate"], &why["state"]),
        (&json!("rate_limited"), &json!("scheduled"))
    );
    let told = why["why"].as_str().unwrap();
    let until = place.job("b")["run_at"].as_str().unwrap().to_owned();
    assert!(
        told.starts_with(&format!("rate limit until {until}: ")),
        "{why}"
    );
    assert!(
        told.contains("1 job in 1h") && why["try"].as_str().unwrap().contains("rate_limit"),
        "{why}"
    );
    place.json(["push", "q", "1", "--id", "c"]);
    assert_eq!(
        place.json(["job", "why", "c"])["gate"],
        "rate_limited",
        "one that is ready waits for room"
    );
    signal(&worker, "TERM");
    worker.wait().unwrap();
}

#[test]
fn why_names_an_unknown_kind_and_a_twin() {
    let place = Place::new();
    for (queue, id, more) in [
        ("strange", "unknown_kind", ["--kind", "theirs"]),
        ("twins", "unique_twin", ["--unique-key", "k"]),
        ("twins", "twin", ["--unique-key", "k"]),
    ] {
        place.json(["push", queue, "1", "--id", id].iter().chain(&more));
        if id == "unique_twin" {
            place.json(["job", "cancel", id]);
        }
    }
    // Commands serve all kinds of a queue: one that knows only some is a worker of the library.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let _worker = runtime.block_on(async {
        let store = format!("sqlite:{}", place.path("backstop.db").display());
        let worker = Backstop::open(&store).await.unwrap().worker();
        worker
            .handle_kind("strange", "ours", Exec::shell("true"))
            .start()
            .unwrap()
    });
    let twin = place.job("twin")["id"].as_str().unwrap().to_owned();
    for (gate, sentence, step) in [
        (
            "unknown_kind",
            "has no handler for that",
            "a worker of strange with a handler for theirs",
        ),
        (
            "unique_twin",
            &format!("it cannot come back before job {twin} ends"),
            &format!("backstop job why {twin}"),
        ),
    ] {
        let why = || place.json(["job", "why", gate]);
        wait_until(gate, || why()["gate"] == gate);
        let text = place.run(["job", "why", gate]).succeeded().stdout;
        assert!(text.contains(sentence) && text.contains(step), "{text}");
        assert!(
            why()["try"].as_str().unwrap().starts_with(step),
            "{}",
            why()
        );
    }
}

#[test]
fn jobs_are_found_and_changed_by_what_is_shown_of_their_payloads() {
    let place = Place::new();
    for (id, to) in [
        ("a", "Ada@example.org"),
        ("b", "bob@example.org"),
        ("c", "ada@example.com"),
    ] {
        place.json([
            "push",
            "q",
            &format!(r#"{{"to":"{to}","password":"hunter2"}}"#),
            "--id",
            id,
        ]);
    }
    let count = |args: &[&str]| {
        let found = place.json(["job", "list"].iter().chain(args).copied());
        found["jobs"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--text", "ada@"]), 2);
    assert_eq!(count(&["--text", "ada@", "--all"]), 2);
    assert_eq!(count(&["--text", "ada@", "--limit", "1"]), 1);
    assert_eq!(count(&["--text", "ada@", "--queue", "other"]), 0);
    assert_eq!(
        count(&["--text", "hunter"]),
        0,
        "what is hidden is not found"
    );
    place
        .run(["job", "list", "--text", ""])
        .complains(2, &["what to look for"]);
    assert_eq!(
        place.json(["job", "cancel", "--text", "hunter2"])["count"],
        0
    );
    assert_eq!(
        place.json(["job", "cancel", "--text", "ADA@", "--state", "ready"])["count"],
        2
    );
    place
        .run(["job", "delete", "--text", "ada@"])
        .complains(2, &["all jobs that fit"]);
    assert_eq!(
        place.json(["job", "delete", "--text", "ada@", "--yes"])["count"],
        2
    );
    place
        .run(["job", "delete", "b", "--text", "ada@"])
        .complains(2, &["three ways"]);
    place
        .run(["job", "delete", "--all", "--text", "ada@", "--yes"])
        .complains(2, &["three ways"]);
    assert_eq!(count(&[]), 1);
}

#[test]
fn a_job_that_is_done_has_no_last_error() {
    let place = Place::new();
    place.run(["push", "q", "1", "--id", "a"]).succeeded();
    let retry = r#"{"kind":"constant","every":"10ms","max_attempts":2}"#;
    let line = "[ $BACKSTOP_ATTEMPT = 2 ] || { echo no route >&2; exit 1; }";
    place
        .run([
            "work",
            "q",
            "--exec",
            line,
            "--retry",
            retry,
            "--until-empty",
        ])
        .succeeded();
    let list = place.run(["job", "list"]).succeeded().stdout;
    assert!(
        list.contains("\tdone\t") && !list.contains("no route"),
        "{list}"
    );
    assert!(
        place
            .run(["job", "show", "a"])
            .succeeded()
            .stdout
            .contains("no route"),
        "its history has it"
    );
}

#[test]
fn a_dead_job_is_shown_with_its_attempts_alone_and_a_dash_for_no_kind() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let once = ["--max-attempts", "1", "--until-empty", "--quiet"];
    let work = ["work", "q", "--exec", "false"];
    place.run([work.as_slice(), &once].concat()).exits(1);
    for (command, attempts) in [("job show a", "attempt"), ("dead show a", "attempts")] {
        let shown = place.run(command.split(' ')).succeeded().stdout;
        for field in [["kind", "–"], [attempts, "1"]] {
            let is_there = |line: &str| line.split_whitespace().eq(field);
            assert!(shown.lines().any(is_there), "{field:?}: {shown}");
        }
    }
}
