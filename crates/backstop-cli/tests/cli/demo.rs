use crate::place::{Place, ended, json_args, signal, wait_until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout};

#[test]
fn the_demo_loses_nothing_and_leaves_something_to_look_at() {
    let place = Place::new();
    let args = [
        "demo",
        "--no-server",
        "--jobs",
        "300",
        "--store",
        "sqlite:demo.db",
    ];
    let text = place.run(args).succeeded();
    for part in [
        "emails",
        "images",
        "webhooks",
        "none lost",
        "job list --state dead",
        "BACKSTOP_STORE=sqlite:demo.db",
    ] {
        assert!(text.stdout.contains(part), "{part:?} is missing: {text:#?}");
    }
    let dead = place.json([
        "job",
        "list",
        "--state",
        "dead",
        "--store",
        "sqlite:demo.db",
    ]);
    assert!(!dead["jobs"].as_array().unwrap().is_empty());
}

#[test]
fn the_demo_does_not_run_anybodys_real_jobs() {
    let place = Place::new();
    place.json(["push", "emails", "1", "--store", "sqlite:real.db"]);
    place
        .run(json_args([
            "demo",
            "--no-server",
            "--store",
            "sqlite:real.db",
        ]))
        .complains(2, &["live jobs in emails"]);
    assert_eq!(
        place.json([
            "job",
            "list",
            "--state",
            "ready",
            "--store",
            "sqlite:real.db"
        ])["jobs"][0]["payload"],
        1
    );
}

/// The first order whose job the demo's shop loses: only the sweep can have pushed it.
const LOST: &str = "order:4";

/// The first line of a demo that was started with `--json`: where it is.
fn told(child: &mut Child) -> (Value, BufReader<ChildStdout>) {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")),
        stdout,
    )
}

#[test]
fn the_demo_serves_a_dashboard_and_plays_all_four_systems_until_it_is_told_to_stop() {
    let place = Place::new();
    let mut demo = place.start(["demo", "--json", "--listen", "127.0.0.1:0"]);
    let (told, mut stdout) = told(&mut demo);
    let (url, config) = (
        told["url"].as_str().unwrap(),
        told["config"].as_str().unwrap(),
    );
    let folder = Path::new(config).parent().unwrap();
    assert_eq!(
        folder.metadata().unwrap().permissions().mode() & 0o777,
        0o700,
        "it is nobody else's"
    );
    let page = get(url, "/queues");
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("emails"),
        "{page}"
    );
    let look = |args: &[&str]| place.json(["--config", config].iter().chain(args));
    wait_until("jobs that are done and dead", || {
        let queues = look(&["queue", "list"])["queues"]
            .as_array()
            .unwrap()
            .clone();
        let any = |state: &str| {
            queues
                .iter()
                .any(|queue| queue[state].as_u64().unwrap() > 0)
        };
        any("done") && any("dead")
    });
    wait_until("records that were held", || {
        look(&["stream", "list"])["streams"][0]["counts"]["added"] != 0
    });
    wait_until("runs that are made up for", || {
        let runs = look(&["schedule", "runs", "minutely_report"])["runs"]
            .as_array()
            .unwrap()
            .clone();
        runs.iter().any(|run| run["what"] == "made_up")
    });
    wait_until("a lost order that has a job", || {
        let jobs = look(&["job", "list", "--queue", "orders"]);
        jobs["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|job| job["unique_key"] == LOST)
    });
    wait_until("rows of the table that failed", || {
        look(&["table", "status", "invoices"])["states"]["error"] != 0
    });
    assert!(event(url).contains("changed"), "live updates come");
    // It happens at its time: an outage, a worker that is killed, and last somebody who redrives
    // what died.
    wait_until("a breaker that was open", || {
        let breakers = answer(url, "/v1/breakers")["breakers"].take();
        let events = breakers
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|breaker| breaker["events"].as_array().unwrap());
        events.into_iter().any(|event| event["to"] == "open")
    });
    wait_until("a killed worker's job that ran again", || {
        let jobs = answer(url, "/v1/jobs?queue=images&state=done&limit=1000")["jobs"].take();
        jobs.as_array()
            .unwrap()
            .iter()
            .any(|job| job["lost_leases"] != 0)
    });
    wait_until("a redrive", || {
        answer(url, "/v1/dead/redrives")["redrives"][0]["requeued"].as_u64() > Some(0)
    });
    signal(&demo, "INT");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(
        ended(demo).code == Some(0) && rest.contains("\"lost\":0"),
        "{rest}"
    );
}

#[test]
fn the_demo_ends_by_itself_and_takes_the_next_port_only_if_none_was_asked_for() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    place
        .run(["demo", "--listen", &listen])
        .complains(1, &[&listen, "try: --listen"]);
    let first = place.run(["demo", "--seconds", "1", "--quiet"]).succeeded();
    assert!(
        first.stdout.contains("http://127.0.0.1:7") && first.stdout.contains("none lost"),
        "{first:#?}"
    );
}

/// A connection on which this was asked for.
fn asked(url: &str, path: &str) -> TcpStream {
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

/// What a server answers to a plain request.
fn get(url: &str, path: &str) -> String {
    let mut answer = Vec::new();
    asked(url, path).read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The same, as a value.
fn answer(url: &str, path: &str) -> Value {
    let text = get(url, path);
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// The name of the next event.
fn event(url: &str) -> String {
    let lines = BufReader::new(asked(url, "/v1/events"))
        .lines()
        .map(Result::unwrap);
    lines
        .into_iter()
        .find(|line| line.starts_with("event:"))
        .unwrap()
}
