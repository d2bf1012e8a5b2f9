//! Text that would take a terminal over, planted wherever one can be, and looked for in everything
//! that is said.

use crate::every_command::{COMMANDS, command_of};
use crate::place::{Answer, Place, ended, json_args, wait_until};
use crate::serve::{HERE, serve};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Sets a title, turns the text red in two ways, deletes, turns the order of letters round, forges
/// a line, and would run a command.
const HOSTILE: &str = "H\u{1b}]0;PWNED\u{7}\u{1b}[31m\u{9b}31m\u{85}\u{7f}\u{202e}\u{2066}\u{61c}\u{200e}\nFORGED\tx'; touch pwned #";

const CONFIG: &str = r#"
[queues.q]
retry = { kind = "constant", every = "1h", max_attempts = 3 }

[streams.s]
step = "1m"

[tables.t]
url = "sqlite:app.db"
table = "BACKLOG"
strategy = { kind = "fibonacci", unit = "1m", cap = "1d" }
max_age = "90d"

[schedules.d]
cron = "30 8 * * *"
queue = "d"

[sweeps.w]
url = "sqlite:app.db"
query = "SELECT ID AS id FROM BACKLOG WHERE '2000' < :cutoff"
queue = "found"
unique_key = "row:{id}"
payload = { id = "{id}" }
"#;

/// Commands that show what there is.
const LOOKS: &[&str] = &[
    "job list",
    "job list --all",
    "job show settled",
    "job show waiting",
    "job why settled",
    "job why waiting",
    "job why gated",
    "job overlaps",
    "dead stats",
    "dead groups",
    "dead list",
    "dead show settled",
    "dead export",
    "dead audit",
    "queue list",
    "worker list",
    "breaker list",
    "stream list",
    "stream keys s",
    "table status t",
    "token list",
    "top --once",
    "doctor",
    "schedule list",
    "schedule runs d",
    "schedule missed",
    "sweep --dry-run",
    "reconcile",
    "config check",
];

/// Commands that repeat what they were given; `@` is the hostile text.
const REPEATS: &[&str] = &[
    "push @ 1",
    "push q @",
    "push q 1 --kind @ --unique-key @ --id @",
    "push q --file @",
    "push q 1 --retry @",
    "job show @",
    "job why @",
    "job retry @",
    "job cancel @",
    "job list --queue @",
    "job list --kind=@",
    "job list --cursor @",
    "job delete @ --yes",
    "queue pause q --reason @",
    "queue pause @",
    "queue resume q --reason @",
    "queue clear @ --yes",
    "worker quiet @",
    "worker resume @",
    "worker stop @",
    "breaker reset @",
    "breaker reset q/@",
    "breaker open q --why @",
    "dead show @",
    "dead requeue @",
    "dead import @",
    "dead move @ --to q",
    "dead delete @ --yes",
    "dead clear @ --yes",
    "dead redrive --resume @",
    "stream show s @",
    "stream show @ x",
    "stream resume s @",
    "stream enable s @",
    "stream keys @",
    "stream push s @",
    "stream push @ 1 --key k --position 1",
    "stream replay --stream @ --input records",
    "stream replay --stream {\"step\":\"1m\"} --input @",
    "stream serve @ --exec true --until-empty",
    "schedule runs @",
    "schedule trigger @",
    "schedule pause @",
    "schedule resume @",
    "config check --config @",
    "table check @",
    "sweep @",
    "token revoke @",
    "token create --scope push --name @",
    "policy preview --policy @",
    "queue list --store @",
    "@",
];

/// Commands with words of their own, beside [`LOOKS`] and [`REPEATS`].
const OTHERS: &[&str] = &[
    "table check t",
    "table due t",
    "dead import letters.ndjson",
    "stream replay --name s --input records",
];

/// Commands with the hostile text as their last word.
const ENDED: &[&str] = &["stream show s", "job list --kind", "stream forget --yes s"];

/// Commands that no list here has, and why.
const EXCUSED: &[(&str, &str)] = &[
    ("serve", "its log is looked at, and it runs to its end"),
    ("work", "run with a handler that prints the text"),
    ("table run", "the same"),
    ("migrate", "shows nothing but numbers of versions"),
    ("bench", "a store of its own"),
    ("drill", "a store of its own"),
    ("demo", "a store of its own"),
    ("alerts", "writes a text of ours"),
    ("completions", "writes a text of ours"),
    (
        "policy simulate",
        "reads its policy as `policy preview` does",
    ),
];

/// Nothing in it moves a terminal, and no line in it is another's.
fn check(what: &str, text: &str) {
    // Between the cells of a table that a program reads is a tab of ours.
    let is_bad = |c: char| backstop_core::terminal::is_control(c) && !"\n\t".contains(c);
    assert!(
        !text.contains(is_bad),
        "{what}: {:?}",
        text.replace("\\n", "\n")
    );
    assert!(
        !text.lines().any(|line| line.starts_with("FORGED")),
        "{what}: a line was forged: {text}"
    );
}

fn check_both(place: &Place, args: &[String]) {
    for args in [args.iter().map(Into::into).collect(), json_args(args)] {
        let what = format!("{args:?}");
        let Answer { stdout, stderr, .. } = place.run(args);
        check(&what, &stdout);
        check(&what, &stderr);
    }
}

/// Jobs of every kind of end, with hostile text in each of their words. What the server wrote into
/// its log.
fn plant(place: &Place) -> String {
    let served = serve(place, &HERE);
    let ask = |path: &str, body: &Value| {
        let (status, text) = served.ask(&format!("POST {path}"), "", &body.to_string());
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let push = |id: &str| {
        let job = json!({ "queue": "q", "kind": HOSTILE, "payload": HOSTILE, "id": id, "unique_key": format!("{HOSTILE}{id}") });
        ask("/v1/jobs", &job);
    };
    let lease = |lease_ms: u64| {
        let worker = json!({
            "queues": ["q"], "worker": HOSTILE, "host": HOSTILE, "version": HOSTILE, "lease_ms": lease_ms, "max": 1,
        });
        ask("/v1/lease", &worker)["jobs"][0].take()
    };
    push("settled");
    let job = lease(15_000);
    let error = json!({ "message": HOSTILE, "type": HOSTILE, "stack_trace": HOSTILE, "response_body": HOSTILE });
    let end = json!({ "id": job["id"], "lease": job["lease"], "outcome": "dead", "error": error });
    ask("/v1/settle", &json!({ "settle": [end] }));
    push("lost");
    lease(500);
    wait_until("the loss of a worker", || served.state("lost") != "running");
    push("waiting");
    let stderr = served.stop();
    let gated = json!({ "queue": "g", "kind": HOSTILE, "payload": 1, "id": "gated" }).to_string();
    place.feed(gated.as_bytes(), ["push", "g", "-"]).succeeded();
    place
        .run(["breaker", "open", &format!("g/{HOSTILE}"), "--why", HOSTILE])
        .succeeded();
    stderr
}

#[test]
fn no_command_and_no_log_obeys_what_somebody_else_wrote() {
    let place = Place::new();
    place.write("backstop.toml", CONFIG);
    let log = plant(&place);
    assert!(log.contains("PWNED"), "nothing of it was logged: {log}");
    check("the server's log", &log);
    let record = json!({ "key": HOSTILE, "position": 60_000, "payload": HOSTILE }).to_string();
    place
        .feed(record.as_bytes(), ["stream", "push", "s", "-"])
        .succeeded();
    place.write(
        "letters.ndjson",
        &json!({ "id": "x", "queue": HOSTILE, "original_job": { "payload": 1 } }).to_string(),
    );
    let database = Connection::open(place.path("app.db")).unwrap();
    database
        .execute_batch("CREATE TABLE BACKLOG (ID TEXT PRIMARY KEY, STATUS TEXT, DATE_INSERTED TEXT, FAILURES INTEGER, LAST_FAILURE TEXT)")
        .unwrap();
    let row = "INSERT INTO BACKLOG VALUES (?1, 'NEW', datetime('now', '-1 hour'), 0, NULL), (?1 || '2', ?1, NULL, 0, NULL)";
    database.execute(row, [HOSTILE]).unwrap();
    place.write(
        "records",
        &json!({ "at_ms": 0, "key": HOSTILE, "position": 60_000 }).to_string(),
    );
    for line in LOOKS.iter().chain(OTHERS) {
        check_both(
            &place,
            &line.split(' ').map(str::to_owned).collect::<Vec<_>>(),
        );
    }
    for key in ENDED {
        check_both(
            &place,
            &key.split(' ')
                .chain([HOSTILE])
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        );
    }
    for line in REPEATS {
        check_both(
            &place,
            &line
                .split(' ')
                .map(|word| word.replace('@', HOSTILE))
                .collect::<Vec<_>>(),
        );
    }
    // What handlers print is an error of a row, and of a job.
    place.write("hostile", HOSTILE);
    check_both(
        &place,
        &["table", "run", "t", "--exec", "cat hostile >&2; exit 1"].map(str::to_owned),
    );
    place.run(["push", "w", "1", "--kind", HOSTILE]).succeeded();
    let work = [
        "work",
        "w",
        "--exec",
        "cat hostile >&2; exit 65",
        "--until-empty",
        "-v",
    ]
    .map(str::to_owned);
    check_both(&place, &work);
    let redrive = ["dead", "redrive", "--queue", "w", "-vv"];
    let redrive = place.start(["--log-format", "json"].iter().chain(&redrive));
    // It ends when its letter has run again, for which somebody has to serve the queue.
    wait_until("its canary", || place.count("w", "ready") == 1);
    place
        .run(["work", "w", "--exec", "true", "--until-empty"])
        .succeeded();
    let logged = ended(redrive);
    check("a log in JSON", &logged.stderr);
}

#[test]
fn every_command_is_tried_with_hostile_text_or_excused() {
    let lines = LOOKS.iter().chain(OTHERS).chain(ENDED).chain(REPEATS);
    let tried: BTreeSet<String> = lines
        .filter(|line| **line != "@")
        .map(|line| command_of(line))
        .collect();
    let missing: Vec<&str> = COMMANDS.difference(&tried).map(String::as_str).collect();
    let mut excused: Vec<&str> = EXCUSED.iter().map(|(name, _)| *name).collect();
    excused.sort_unstable();
    assert_eq!(missing, excused);
}

#[test]
fn what_is_advised_can_be_pasted() {
    let place = Place::new();
    place
        .run(["push", "q", "1", "--kind", HOSTILE, "--id", "a"])
        .succeeded();
    place
        .run(["breaker", "open", &format!("q/{HOSTILE}")])
        .succeeded();
    let advice = place.json(["job", "why", "a"])["try"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, word) = advice.split_once("breaker reset ").unwrap();
    let doctor: Value = place.run(json_args(["doctor"])).json();
    let findings = doctor["findings"].as_array().unwrap().iter();
    let of_gate = findings
        .filter_map(|finding| finding["advice"].as_str()?.split_once("breaker reset "))
        .map(|(_, word)| word);
    assert_eq!(of_gate.collect::<Vec<_>>(), [word], "{doctor}");
    assert!(
        word.starts_with("'q/H") && word.contains(r"'\''; touch pwned #'"),
        "{advice}"
    );
    // The shell takes it for one word, and finds the gate.
    let program = env!("CARGO_BIN_EXE_backstop");
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &format!("{program} breaker reset {word}")])
        .current_dir(place.path(""));
    assert!(shell.status().unwrap().success(), "{advice}");
    assert!(!place.path("pwned").exists());
}

#[test]
fn what_is_advised_has_no_option_from_elsewhere() {
    let place = Place::new();
    let key = "--store=sqlite:evil.db";
    let record = ["--position", "60000", "--step", "1m", "1"];
    let named = format!("--key={key}");
    place
        .run([&["stream", "push", "s", &named][..], &record].concat())
        .succeeded();
    let refused = place.run(["stream", "resume", "s", "--", key]).exits(1);
    let (_, advice) = refused.stderr.split_once("try: backstop ").unwrap();
    assert_eq!(advice.trim_end(), format!("stream show s -- {key}"));
    let program = env!("CARGO_BIN_EXE_backstop");
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &format!("{program} {advice}")])
        .current_dir(place.path(""));
    assert!(shell.status().unwrap().success(), "{advice}");
    assert!(!place.path("evil.db").exists());
}

#[test]
fn an_export_in_which_controls_are_written_out_is_the_same_letters() {
    let place = Place::new();
    place
        .run(["push", "q", &json!(HOSTILE).to_string(), "--id", "a"])
        .succeeded();
    place
        .run(["work", "q", "--exec", "exit 65", "--until-empty"])
        .exits(1);
    let export = place.run(["dead", "export"]).succeeded().stdout;
    check("an export", &export);
    let letter: Value = serde_json::from_str(export.trim_end()).unwrap();
    assert_eq!(letter["original_job"]["payload"], HOSTILE);
    place.json(["dead", "delete", "a", "--yes"]);
    place
        .feed(export.as_bytes(), ["dead", "import", "-"])
        .succeeded();
    assert_eq!(place.job("a")["payload"], HOSTILE);
}
