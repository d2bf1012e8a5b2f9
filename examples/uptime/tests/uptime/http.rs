//! Results brought by web requests.

use crate::process::{Consumer, generate, output, results};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// One request; answers its status and its body.
fn post(address: &str, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // Whoever is refused need not finish.
    let _ = stream.write_all(body);
    let mut answer = BufReader::new(stream);
    let mut first = String::new();
    answer.read_line(&mut first).unwrap();
    let mut rest = String::new();
    let _ = answer.read_to_string(&mut rest);
    let body = rest
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default();
    (first.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

fn listening(folder: &Path) -> (Consumer, String) {
    let (consumer, said) = Consumer::start(folder, &["--http", "0"], "listening on http://");
    let address = said
        .trim_start_matches("listening on http://")
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        address.starts_with("127.0.0.1:"),
        "a port alone is for this machine: {address}"
    );
    (consumer, address)
}

#[test]
fn results_are_taken_from_requests_and_each_is_answered_for() {
    let folder = tempfile::tempdir().unwrap();
    let of_one = generate(folder.path());
    let (consumer, address) = listening(folder.path());
    // Nothing is known of a baseline, then one of the middle is late.
    let [first, second, third, ..] = of_one.as_slice() else {
        unreachable!("there are more")
    };
    let pretty: serde_json::Value = serde_json::from_str(first).unwrap();
    let pretty = serde_json::to_string_pretty(&pretty).unwrap();
    assert_eq!(
        post(&address, "/results", pretty.as_bytes()),
        (200, "{\"became\":\"handled\"}\n".to_owned())
    );
    let batch = format!("{third}\n\n{{\"guid\":7}}\n{first}\n");
    let (status, answer) = post(&address, "/results", batch.as_bytes());
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!((status, lines.len()), (200, 3), "{answer}");
    assert_eq!(
        (lines[0], lines[2]),
        ("{\"became\":\"held\"}", "{\"became\":\"duplicate\"}")
    );
    assert!(
        lines[1].starts_with("{\"became\":\"broken\",\"why\":\"`guid` is 7"),
        "{answer}"
    );
    assert_eq!(
        post(&address, "/results", second.as_bytes()).1,
        "{\"became\":\"handled\"}\n"
    );
    // Another process on the same store goes on where this one is.
    let (other, other_address) = listening(folder.path());
    assert_eq!(
        post(&other_address, "/results", third.as_bytes()).1,
        "{\"became\":\"duplicate\"}\n"
    );
    for consumer in [consumer, other] {
        consumer.end();
    }
    let told = output(folder.path());
    let effects: Vec<&str> = told
        .lines()
        .map(|line| {
            if line.contains("\"effect\":\"handled\"") {
                "handled"
            } else {
                "other"
            }
        })
        .collect();
    assert_eq!(effects, ["handled"; 3], "{told}");
    assert!(
        told.lines().nth(2).unwrap().contains(third.as_str()),
        "byte for byte: {told}"
    );
}

#[test]
fn a_request_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path());
    let (consumer, address) = listening(folder.path());
    assert_eq!(post(&address, "/results", b"").0, 400);
    assert_eq!(
        post(&address, "/results", &vec![b' '; (4 << 20) + 1]).0,
        413
    );
    assert_eq!(
        post(&address, "/results", "{}\n".repeat(1_001).as_bytes()).0,
        413
    );
    assert_eq!(post(&address, "/other", b"{}").0, 404);
    assert_eq!(
        results(folder.path())
            .first()
            .map(|result| post(&address, "/results", result.as_bytes()).0),
        Some(200)
    );
    consumer.end();
}
