//! The http contract, from the status of a real server to the state of its job.

use crate::place::{Answer, Place};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A request as the server saw it: its head in lower case, and its body.
type Request = (String, String);

/// A server that answers its requests one by one, the last answer again and again. With its
/// address, and what it sees.
fn serve(answers: &'static [&'static str]) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://127.0.0.1:{}/detect",
        listener.local_addr().unwrap().port()
    );
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        let mut answers = answers
            .iter()
            .chain(std::iter::repeat(answers.last().unwrap()));
        for stream in listener.incoming() {
            answer_one(stream.unwrap(), answers.next().unwrap(), &seen);
        }
    });
    (url, requests)
}

/// `answer` is the status and headers, an empty line, and the body.
fn answer_one(stream: TcpStream, answer: &str, seen: &Sender<Request>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(
            stream.read_line(&mut head).unwrap() > 0,
            "a whole request: {head}"
        );
    }
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let _ = seen.send((head, String::from_utf8(body).unwrap()));
    let (top, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let top = top.replace('\n', "\r\n");
    let length = body.len();
    write!(
        stream.get_mut(),
        "HTTP/1.1 {top}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
}

/// Pushes one job, has it run by the service until the queue is empty, and answers the job.
fn run_one(place: &Place, url: &str, more: &[&str]) -> (Value, Answer) {
    place.json([
        "push",
        "q",
        r#"{"to":"ada"}"#,
        "--id",
        "a",
        "--kind",
        "welcome",
    ]);
    let args = ["work", "q", "--http", url, "--until-empty"];
    let answer = place.run(args.iter().chain(more));
    (place.job("a"), answer)
}

#[test]
fn a_2xx_is_done_and_the_service_knows_the_job() {
    let (place, (url, requests)) = (Place::new(), serve(&["202 Accepted\n\nthanks"]));
    let (job, answer) = run_one(&place, &url, &[]);
    assert!(answer.succeeded().stdout.starts_with("1 done"));
    assert_eq!(
        (&job["state"], &job["attempt"], &job["errors"]),
        (&json!("done"), &json!(1), &json!([]))
    );
    let (head, body) = requests.recv().unwrap();
    assert_eq!(body, r#"{"to":"ada"}"#);
    let id = job["id"].as_str().unwrap();
    for line in [
        "post /detect http/1.1",
        "content-type: application/json",
        &format!("x-backstop-job-id: {id}"),
        "x-backstop-queue: q",
        "x-backstop-kind: welcome",
        "x-backstop-attempt: 1",
        &format!("idempotency-key: {id}"),
    ] {
        assert!(
            head.lines().any(|seen| seen == line),
            "{line:?} is missing:\n{head}"
        );
    }
    assert!(head.contains("\r\nx-backstop-lease: "), "{head}");
}

#[test]
fn a_422_is_dead_at_once_with_the_answer_on_record() {
    let (place, (url, _requests)) = (
        Place::new(),
        serve(&["422 Unprocessable Content\n\n{\"why\":\"no such user\"}"]),
    );
    let (job, answer) = run_one(&place, &url, &[]);
    answer.exits(1);
    assert_eq!(
        (&job["state"], &job["reason"]),
        (&json!("dead"), &json!("rejected"))
    );
    let errors = job["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "one run was enough");
    assert_eq!(
        (&errors[0]["http_status"], &errors[0]["type"]),
        (&json!(422), &json!("HttpStatus"))
    );
    assert_eq!(errors[0]["response_body"], "{\"why\":\"no such user\"}");
    assert_eq!(
        errors[0]["message"],
        format!("{url} answered 422 Unprocessable Entity")
    );
}

#[test]
fn what_fails_is_tried_again_when_the_policy_or_the_service_says() {
    let answers = &[
        "500 Oh\n\nfirst",
        "503 Busy\nRetry-After: 0\n\nsecond",
        "200 OK",
    ];
    let (place, (url, requests)) = (Place::new(), serve(answers));
    let retry = r#"{"kind":"constant","every":"10ms","max_attempts":3}"#;
    let (job, answer) = run_one(&place, &url, &["--retry", retry]);
    answer.succeeded();
    assert_eq!(
        (&job["state"], &job["attempt"]),
        (&json!("done"), &json!(3))
    );
    let errors = job["errors"].as_array().unwrap();
    let seen: Vec<_> = errors
        .iter()
        .map(|error| {
            (
                error["http_status"].as_u64(),
                error["response_body"].as_str(),
                error["retry_in"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some(500), Some("first"), Some("10ms")),
            (Some(503), Some("second"), Some("0s"))
        ]
    );
    let keys: Vec<String> = requests
        .try_iter()
        .filter_map(|(head, _)| {
            head.lines()
                .find(|line| line.starts_with("idempotency-key"))
                .map(str::to_owned)
        })
        .collect();
    assert!(
        keys.len() == 3 && keys.iter().all(|key| *key == keys[0]),
        "the same key every time: {keys:?}"
    );
}

#[test]
fn a_long_body_is_cut_to_the_limit_and_marked() {
    let long: &'static str = format!("410 Gone\n\n{}", "é".repeat(100_000)).leak();
    let (place, (url, _requests)) = (Place::new(), serve(vec![long].leak()));
    let (job, answer) = run_one(&place, &url, &[]);
    answer.exits(1);
    let body = job["errors"][0]["response_body"].as_str().unwrap();
    assert_eq!(body.chars().count(), 2_048);
    assert!(body.ends_with("é [truncated]"), "{body:.20}");
}

#[test]
fn a_service_that_is_not_there_is_named_without_its_secrets() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let place = Place::new();
    let url = format!("http://ada:secret@127.0.0.1:{port}/a?key=secret");
    let (job, answer) = run_one(&place, &url, &["--max-attempts", "1", "-v"]);
    let answer = answer.exits(1);
    let error = &job["errors"][0];
    assert_eq!(
        (&job["state"], &error["type"]),
        (&json!("dead"), &json!("HttpConnect"))
    );
    let shown = format!("{job} {} {}", answer.stdout, answer.stderr);
    assert!(
        !shown.contains("secret") && !shown.contains("ada:"),
        "{shown}"
    );
}

#[test]
fn the_time_limit_of_the_queue_is_that_of_the_service() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://127.0.0.1:{}/",
        listener.local_addr().unwrap().port()
    );
    let (job, answer) = run_one(
        &Place::new(),
        &url,
        &["--max-attempts", "1", "--timeout", "200ms"],
    );
    answer.exits(1);
    let error = &job["errors"][0];
    assert_eq!(
        (&error["type"], &error["cause"]),
        (&json!("HttpTimeout"), &json!("timed_out"))
    );
    assert_eq!(
        error["message"],
        format!("{url} did not answer within 200ms")
    );
}

#[test]
fn the_configuration_brings_services() {
    let (place, (url, requests)) = (Place::new(), serve(&["200 OK"]));
    place.write(
        "backstop.toml",
        &format!("[queues.q]\nhandler = {{ http = \"{url}\", timeout = \"5s\" }}\n"),
    );
    place.json(["push", "q", "17"]);
    assert_eq!(place.json(["work", "--until-empty"])["done"], 1);
    assert_eq!(requests.recv().unwrap().1, "17");
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { http = \"https://h/\", ca = \"missing.pem\" }\n",
    );
    place
        .run(["work"])
        .complains(2, &["queue q", "`ca`: missing.pem", "No such file"]);
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { http = \"http://h/\", exec = [\"a\"] }\n",
    );
    place
        .run(["work"])
        .complains(2, &["[queues.q]", "`exec` and `http`"]);
}

#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let (place, (url, _requests)) = (Place::new(), serve(&["200 OK"]));
    place.json(["push", "q", "1"]);
    let mut command = place.command([
        "work",
        "q",
        "--http",
        &url,
        "--until-empty",
        "--max-attempts",
        "1",
    ]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:1");
    }
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_service_that_cannot_be_called_is_wrong_use() {
    let place = Place::new();
    for (url, words) in [
        ("", "not an address"),
        ("ftp://u:secret@h/", "only http:// and https://"),
        ("http://u:secret@h:99999/", "not an address"),
        (
            "http://u:secret@169.254.169.254/",
            "allow_link_local = true",
        ),
    ] {
        let answer = place
            .run(["work", "q", "--http", url])
            .complains(2, &["--http: ", words, "try: "]);
        assert!(!answer.stderr.contains("secret"), "{}", answer.stderr);
    }
    place
        .run(["work", "q", "--http", "http://h/", "--exec", "true"])
        .complains(2, &["cannot be used"]);
    place
        .run(["work", "q", "--http", "http://h/", "--", "true"])
        .complains(2, &["cannot be used"]);
    place
        .run(["work", "--http", "http://h/"])
        .complains(2, &["which queues?"]);
}
