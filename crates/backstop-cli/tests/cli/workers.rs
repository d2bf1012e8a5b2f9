//! The workers of the documentation, in other languages: run as they are printed, against a real
//! server.

use crate::place::{Place, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const POLICY: &str =
    "[queues.mail]\nretry = { kind = \"constant\", every = \"100ms\", max_attempts = 3 }\n";

/// Ends with the test, however that ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on a free port; answers where it is.
fn serve(place: &Place) -> (Ended, String) {
    serve_at(place, "127.0.0.1:0")
}

fn serve_at(place: &Place, listen: &str) -> (Ended, String) {
    let mut server = place.command(["serve", "--listen", listen, "--json"]);
    let mut server = server
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    (Ended(server), told["url"].as_str().unwrap().to_owned())
}

/// A worker with the usual lease.
fn worker(program: &str, file: &str, url: &str) -> Ended {
    started(program, file, url, "15000")
}

fn started(program: &str, file: &str, url: &str, lease_ms: &str) -> Ended {
    started_with(program, file, url, lease_ms, Stdio::null())
}

fn started_with(program: &str, file: &str, url: &str, lease_ms: &str, stderr: Stdio) -> Ended {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/workers");
    let mut command = Command::new(program);
    command
        .arg(folder.join(file))
        .arg("mail")
        .stdout(Stdio::null())
        .stderr(stderr);
    let started = command
        .env("BACKSTOP_URL", url)
        .env("BACKSTOP_LEASE_MS", lease_ms)
        .spawn();
    Ended(started.unwrap_or_else(|error| {
        panic!("{program} is missing ({error}); on Debian: apt-get install {program}")
    }))
}

fn check(program: &str, file: &str) {
    let place = Place::new();
    place.write("backstop.toml", POLICY);
    let (_server, url) = serve(&place);
    let push = |payload: &str| {
        place.json(["push", "mail", payload])["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (fine, retried, dead) = (push("{}"), push(r#"{"fails":1}"#), push(r#"{"fails":9}"#));
    let _worker = worker(program, file, &url);
    wait_until("the end of all jobs", || {
        place.count("mail", "done") == 2 && place.count("mail", "dead") == 1
    });
    let state = |id: &str| {
        (
            place.job(id)["state"].clone(),
            place.job(id)["attempt"].clone(),
        )
    };
    assert_eq!(state(&fine), ("done".into(), 1.into()));
    assert_eq!(state(&retried), ("done".into(), 2.into()));
    assert_eq!(state(&dead), ("dead".into(), 3.into()));
    let error = &place.job(&dead)["errors"][0];
    assert_eq!(
        error["message"].as_str(),
        Some("attempt 1 did not get through"),
        "{error}"
    );
    let stack = error["stack_trace"].as_str().unwrap_or_default();
    assert!(stack.contains(file), "{error}");
}

#[test]
fn the_worker_in_python_runs_jobs_that_succeed_fail_and_are_retried() {
    check("python3", "worker.py");
}

#[test]
fn the_worker_in_node_runs_jobs_that_succeed_fail_and_are_retried() {
    check("node", "worker.mjs");
}

/// The first block of README that is in `language` and has `part` in it, with a server's address.
fn readme_block(language: &str, part: &str, url: &str) -> String {
    let readme = include_str!("../../../../README.md");
    let opening = format!("```{language}\n");
    let block = readme
        .split(&opening)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .find(|block| block.contains(part))
        .unwrap_or_else(|| panic!("README has no {language} with {part}"));
    assert!(block.contains("http://127.0.0.1:7007"), "{block}");
    block.replace("http://127.0.0.1:7007", url)
}

#[test]
fn the_worker_of_the_readme_runs_jobs_and_reports_what_fails() {
    let place = Place::new();
    let (_server, url) = serve(&place);
    place.write("worker.py", &readme_block("python", "lease", &url));
    let bad = place.json(["push", "emails", "{}", "--id", "bad"]);
    assert_eq!(bad["result"], "inserted");
    place.json(["push", "emails", r#"{"to":"ada@example.org"}"#]);
    let mut python = Command::new("python3");
    python
        .arg(place.path("worker.py"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _worker = Ended(python.spawn().expect("python3"));
    wait_until("both jobs have run", || {
        place.count("emails", "done") == 1
            && place.job("bad")["errors"][0]["message"].as_str() == Some("'to'")
    });
}

#[test]
fn the_lines_of_the_readme_for_a_shell_push_a_job_and_settle_it() {
    for program in ["curl", "jq"] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: {program} is missing; scripts/servers installs it");
            return;
        }
    }
    let place = Place::new();
    let (_server, url) = serve(&place);
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &readme_block("sh", "jq", &url)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.count("emails", "done"), 1, "{output:?}");
}

/// A job that takes several leases, and a server that is killed and started again in the middle:
/// beats keep the job, and it runs once.
fn check_beats(program: &str, file: &str) {
    let place = Place::new();
    let (server, url) = serve(&place);
    let long = place.json(["push", "mail", r#"{"seconds":12}"#])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let _worker = started(program, file, &url, "3000");
    // Somebody who would run it if its lease ended.
    let _other = worker(program, file, &url);
    wait_until("the run", || place.count("mail", "running") == 1);
    drop(server);
    let (_server, again) = serve_at(&place, url.trim_start_matches("http://"));
    assert_eq!(again, url);
    wait_until("its end", || place.count("mail", "done") == 1);
    let job = place.job(&long);
    assert_eq!(
        (&job["attempt"], &job["lost_leases"]),
        (&1.into(), &0.into()),
        "{job}"
    );
}

#[test]
fn the_worker_in_python_keeps_a_long_job_through_a_restart_of_the_server() {
    check_beats("python3", "worker.py");
}

#[test]
fn the_worker_in_node_keeps_a_long_job_through_a_restart_of_the_server() {
    check_beats("node", "worker.mjs");
}

/// A server that hands out one long job, and then refuses every beat with an answer that cannot be
/// read. Answers where it is.
fn refusing(broken: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let job = r#"{"jobs":[{"id":"a","lease":"1","attempt":1,"payload":{"seconds":3600}}]}"#;
            let answer = match path(&mut stream).as_str() {
                "/v1/lease" => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{job}",
                    job.len()
                )
                .into_bytes(),
                _ => [
                    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n",
                    broken,
                ]
                .concat(),
            };
            // Whoever has ended hears nothing of it.
            let _ = stream.write_all(&answer);
        }
    });
    url
}

/// A server that is too busy, then not there, and then has no jobs. Answers where it is.
fn busy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut refusals, none) = (
            ["429 Too Many Requests", "503 Away"].iter(),
            "{\"jobs\":[]}",
        );
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            path(&mut stream);
            let (status, body) = refusals
                .next()
                .map_or(("200 OK", none), |status| (status, "{}"));
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}");
            let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
        }
    });
    url
}

#[test]
fn a_worker_says_that_it_is_refused_and_tries_again() {
    for (program, file) in [("python3", "worker.py"), ("node", "worker.mjs")] {
        let mut worker = started_with(program, file, &busy(), "300", Stdio::piped());
        let told = worker.0.stderr.take().unwrap();
        let told: Vec<String> = BufReader::new(told)
            .lines()
            .map(Result::unwrap)
            .filter(|line| line.contains("lease"))
            .take(2)
            .collect();
        assert!(
            told.len() == 2 && told[0].contains("429") && told[1].contains("503"),
            "{program}: {told:?}"
        );
        assert_eq!(worker.0.try_wait().unwrap(), None, "{program} has ended");
    }
}

/// The path of a request that was read to its end.
fn path(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut lines, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(said) = line.to_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line);
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    lines[0].split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_worker_whose_beats_are_refused_ends_even_if_the_answer_cannot_be_read() {
    for (program, file) in [("python3", "worker.py"), ("node", "worker.mjs")] {
        for broken in [&b"cut"[..], b"\xff\xfe not "] {
            let url = refusing(broken);
            let mut worker = started(program, file, &url, "300");
            wait_until("its end", || worker.0.try_wait().unwrap().is_some());
            assert_eq!(
                worker.0.wait().unwrap().code(),
                Some(1),
                "{program} {broken:?}"
            );
        }
    }
}

#[test]
fn each_worker_has_at_most_thirty_lines() {
    for file in ["worker.py", "worker.mjs"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/workers")
            .join(file);
        assert!(
            std::fs::read_to_string(path).unwrap().lines().count() <= 30,
            "{file}"
        );
    }
}
