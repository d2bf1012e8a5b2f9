//! The exec contract, from the exit code of a real command to the state of its job.

use crate::place::{Place, ended, json_args, signal, wait_until};
use serde_json::{Value, json};

/// Pushes one job, runs it with a shell line until the queue is empty, and answers the job.
fn run_one(line: &str, more: &[&str]) -> (Value, Option<i32>) {
    let place = Place::new();
    place.json([
        "push",
        "q",
        r#"{"to":"ada"}"#,
        "--id",
        "a",
        "--kind",
        "welcome",
    ]);
    let args = ["work", "q", "--exec", line, "--until-empty", "--quiet"];
    let code = place.run(args.iter().chain(more)).code;
    (place.job("a"), code)
}

#[test]
fn exit_0_is_done() {
    let (job, code) = run_one("exit 0", &[]);
    assert_eq!(
        (&job["state"], &job["attempt"], code),
        (&json!("done"), &json!(1), Some(0))
    );
    assert_eq!(job["errors"], json!([]));
}

#[test]
fn exit_65_is_dead_at_once() {
    let (job, code) = run_one("echo context >&2; echo 'no such user' >&2; exit 65", &[]);
    assert_eq!(
        (&job["state"], &job["reason"], code),
        (&json!("dead"), &json!("rejected"), Some(1))
    );
    let errors = job["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "one run was enough");
    assert_eq!(
        (&errors[0]["message"], &errors[0]["type"]),
        (&json!("no such user"), &json!("Exit 65"))
    );
    assert_eq!(errors[0]["stack_trace"], "context\nno such user\n");
}

#[test]
fn exit_75_is_released_and_spends_no_attempt() {
    let line = "[ -e been-here ] && exit 0; touch been-here; exit 75";
    let (job, code) = run_one(line, &["--max-attempts", "1"]);
    assert_eq!(
        (&job["state"], &job["attempt"], code),
        (&json!("done"), &json!(1), Some(0))
    );
    assert_eq!(job["errors"], json!([]));
}

#[test]
fn any_other_exit_is_a_failure_and_tried_again() {
    let retry = r#"{"kind":"constant","every":"10ms","max_attempts":2}"#;
    let (job, code) = run_one(
        "echo attempt $BACKSTOP_ATTEMPT >&2; exit 3",
        &["--retry", retry],
    );
    assert_eq!(
        (&job["state"], &job["reason"], code),
        (&json!("dead"), &json!("attempts_exhausted"), Some(1))
    );
    let errors = job["errors"].as_array().unwrap();
    let seen: Vec<_> = errors
        .iter()
        .map(|error| (error["message"].as_str(), error["type"].as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (Some("attempt 1"), Some("Exit 3")),
            (Some("attempt 2"), Some("Exit 3"))
        ]
    );
}

#[test]
fn a_signal_is_a_failure() {
    let (job, _) = run_one("kill -9 $$", &["--max-attempts", "1"]);
    assert_eq!(job["state"], "dead");
    let error = &job["errors"][0];
    assert_eq!(
        (&error["message"], &error["type"]),
        (&json!("killed by signal 9"), &json!("Signal 9"))
    );
}

#[test]
fn a_command_that_is_not_there_is_refused_before_any_job_is_claimed() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let about = |why| {
        [
            "the handler of queue q cannot be started",
            why,
            "try: correct the command",
        ]
    };
    let lines: [&[&str]; 3] = [
        &["--", "no-such-command", "x"],
        &["--exec", "no-such-command x"],
        &["--exec", "./no-such-command | cat"],
    ];
    for (flags, why) in lines.into_iter().zip([
        "`no-such-command` in PATH",
        "`no-such-command` in PATH",
        "no file ./no-such-command",
    ]) {
        place
            .run(["work", "q"].iter().chain(flags))
            .complains(2, &about(why));
    }
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"./send-mial\"] }\n",
    );
    place
        .run(["work"])
        .complains(2, &about("no file ./send-mial"));
    place
        .run(["serve", "--listen", "127.0.0.1:0"])
        .complains(2, &about("no file ./send-mial"));
    place.write(
        "backstop.toml",
        "[streams.s]\nhandler = { exec = [\"./send-mial\"] }\n",
    );
    place
        .run(["serve", "--listen", "127.0.0.1:0"])
        .complains(2, &["the handler of stream s", "./send-mial"]);
    place
        .run(["stream", "serve", "s"])
        .complains(2, &["the handler of stream s", "./send-mial"]);
    place.write("backstop.toml", "");
    let job = place.job("a");
    assert_eq!(
        (&job["state"], &job["attempt"]),
        (&json!("ready"), &json!(0))
    );
}

#[test]
fn a_command_that_goes_away_costs_no_attempt_and_is_told_of() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    place.write("gone-after-one", "#!/bin/sh\nrm \"$0\"\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path("gone-after-one"), executable).unwrap();
    let stderr = std::fs::File::create(place.path("stderr")).unwrap();
    let args = [
        "work",
        "q",
        "--max-attempts",
        "1",
        "--concurrency",
        "1",
        "--",
        "./gone-after-one",
    ];
    let child = place
        .command(args)
        .stdout(std::process::Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    wait_until("the first job's end", || place.job("a")["state"] == "done");
    place.json(["push", "q", "1", "--id", "b"]);
    wait_until("the second going back", || {
        place.job("b")["state"] == "scheduled"
    });
    let job = place.job("b");
    assert_eq!((&job["attempt"], &job["errors"]), (&json!(0), &json!([])));
    signal(&child, "TERM");
    assert_eq!(
        ended(child).exits(0).stdout.matches("dead").count(),
        1,
        "none dead is all that is said of the dead"
    );
    let stderr = place.read("stderr");
    assert_eq!(
        stderr.matches("./gone-after-one cannot be started").count(),
        1,
        "{stderr}"
    );
    assert!(
        stderr.contains("spend no attempt") && stderr.contains("in its place"),
        "{stderr}"
    );
}

#[test]
fn a_running_job_that_is_cancelled_is_told_of_in_words() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let stderr = std::fs::File::create(place.path("stderr")).unwrap();
    let args = [
        "work",
        "q",
        "--exec",
        "touch begun; sleep 60",
        "--lease",
        "1s",
    ];
    let child = place
        .command(args)
        .stdout(std::process::Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    wait_until("the run's beginning", || place.path("begun").exists());
    place.json(["job", "cancel", "a"]);
    wait_until("a word about it", || {
        place.read("stderr").contains("a run is called off")
    });
    signal(&child, "TERM");
    ended(child).succeeded();
    let (stderr, id) = (
        place.read("stderr"),
        place.job("a")["id"].as_str().unwrap().to_owned(),
    );
    assert!(
        stderr.contains("it was cancelled") && stderr.contains(&format!("job={id}")),
        "{stderr}"
    );
    assert!(!stderr.contains("Lease {"), "{stderr}");
}

#[test]
fn the_command_gets_the_payload_and_the_job() {
    let place = Place::new();
    place.json([
        "push",
        "q",
        r#"{"b":1.50,  "a":"é"}"#,
        "--id",
        "a",
        "--kind",
        "Send mail",
    ]);
    let line = "cat > payload; env | grep ^BACKSTOP_ | sort > env";
    place
        .run(["work", "q", "--exec", line, "--until-empty"])
        .succeeded();
    assert_eq!(
        place.read("payload"),
        r#"{"b":1.50,  "a":"é"}"#,
        "byte for byte"
    );
    let env = place.read("env");
    let id = place.job("a")["id"].as_str().unwrap().to_owned();
    for line in [
        "BACKSTOP_ATTEMPT=1",
        &format!("BACKSTOP_JOB_ID={id}"),
        "BACKSTOP_KIND=Send mail",
        "BACKSTOP_QUEUE=q",
    ] {
        assert!(
            env.lines().any(|seen| seen == line),
            "{line} is missing in {env}"
        );
    }
    assert!(env.contains("BACKSTOP_LEASE="), "{env}");
}

/// Each would leave a file `x` behind if anything took it for a command, or for the name of one.
const COMMANDS: [&str; 8] = [
    "$(touch x)",
    "`touch x`",
    "; touch x #",
    "' ; touch x ; '",
    "|touch x",
    "../../bin/sh",
    "-c touch x",
    "!!python/object/apply:os.system ['touch x']",
];

#[test]
fn what_a_job_says_is_data_and_never_a_command() {
    let place = Place::new();
    let hidden = r#"{"exec":["touch","x"],"handler":{"exec":["touch","x"]},"command":"touch x","__class__":"os.system"}"#;
    let quoted = COMMANDS.map(|text| json!(text).to_string());
    for (kind, payload) in COMMANDS
        .iter()
        .zip(&quoted)
        .chain([(&"exec", &hidden.to_owned())])
    {
        place
            .run([
                "push",
                "q",
                payload,
                &format!("--kind={kind}"),
                &format!("--id={kind}"),
            ])
            .succeeded();
    }
    let line = r#"printf '%s\n' "$BACKSTOP_KIND" >> kinds; cat >> payloads; echo >> payloads"#;
    let one_by_one = ["--concurrency", "1", "--until-empty"];
    place
        .run(["work", "q", "--exec", line].iter().chain(&one_by_one))
        .succeeded();
    assert!(!place.path("x").exists());
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(
        sorted(&place.read("kinds")),
        sorted(&format!("{}\nexec", COMMANDS.join("\n")))
    );
    assert_eq!(
        sorted(&place.read("payloads")),
        sorted(&format!("{}\n{hidden}", quoted.join("\n")))
    );
}

#[test]
fn a_run_over_its_time_is_killed_with_all_it_started() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    let line = "sleep 600 & echo $! > pid; wait";
    let args = [
        "work",
        "q",
        "--exec",
        line,
        "--timeout",
        "500ms",
        "--max-attempts",
        "1",
        "--until-empty",
    ];
    ended(place.start(args)).exits(1);
    let job = place.job("a");
    assert_eq!(
        (&job["state"], &job["errors"][0]["cause"]),
        (&json!("dead"), &json!("timed_out"))
    );
    let stat = format!("/proc/{}/stat", place.read("pid").trim());
    let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    wait_until("the end of the sleeper", is_gone);
}

#[test]
fn arguments_after_the_dashes_need_no_shell() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "a"]);
    place
        .run([
            "work",
            "q",
            "--until-empty",
            "--",
            "sh",
            "-c",
            "[ \"$1\" = 'a b' ]",
            "sh",
            "a b",
        ])
        .succeeded();
    assert_eq!(place.job("a")["state"], "done");
}

#[test]
fn the_commands_stdout_is_kept_apart_from_the_results() {
    let place = Place::new();
    place.json(["push", "q", "1"]);
    let silent = place
        .run(json_args([
            "work",
            "q",
            "--exec",
            "echo noise",
            "--until-empty",
        ]))
        .succeeded();
    assert_eq!(silent.json()["done"], 1);
    assert!(!silent.stderr.contains("noise"));
    place.json(["push", "q", "1"]);
    let shown = place.run(json_args([
        "work",
        "q",
        "--exec",
        "echo noise",
        "--until-empty",
        "--show-output",
    ]));
    assert_eq!(shown.json()["done"], 1);
    assert!(shown.stderr.contains("noise"));
}

#[test]
fn a_command_is_not_given_what_opens_the_store() {
    let place = Place::new();
    place.run(["push", "q", "1"]).succeeded();
    let mut work = place.command(["work", "q", "--exec", "env > seen", "--until-empty"]);
    work.env("BACKSTOP_STORE", "sqlite:backstop.db")
        .env("BACKSTOP_TOKEN", "canary");
    assert!(work.output().unwrap().status.success());
    let seen = place.read("seen");
    assert!(
        seen.contains("BACKSTOP_JOB_ID=") && seen.contains("PATH="),
        "{seen}"
    );
    assert!(
        !seen.contains("BACKSTOP_STORE") && !seen.contains("canary"),
        "{seen}"
    );
}
