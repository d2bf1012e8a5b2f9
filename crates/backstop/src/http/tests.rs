use super::*;
use crate::handler::HandlerStates;
use backstop_core::failure::FailureHistory;
use backstop_core::job_options::JobOptions;
use backstop_core::lease::LeaseNumber;
use backstop_core::{JobId, Kind, Lease, LeasedRun, Payload, Priority, QueueName};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn run_with(kind: &str, payload: &[u8], cancel: CancellationToken) -> Run {
    let number = LeaseNumber::from_i64(42);
    let lease = Lease {
        queue: QueueName::new("emails").unwrap(),
        job: JobId::named("one"),
        number,
    };
    let leased = LeasedRun {
        lease,
        kind: Kind::new(kind).unwrap(),
        payload: Payload::from_stored(payload.to_vec()),
        priority: Priority::Normal,
        attempts_before: 2,
        lost_leases: 0,
        inserted_at: Time::default(),
        run_at: Time::default(),
        options: JobOptions::default(),
        history: FailureHistory::default(),
    };
    Run::new(Arc::new(leased), HandlerStates::default(), cancel)
}

fn run_of(payload: &[u8]) -> Run {
    run_with("welcome", payload, CancellationToken::new())
}

async fn call(http: &Http) -> RunEnding {
    call_handler(&http.handler().unwrap()).await
}

async fn call_handler(handler: &HttpHandler) -> RunEnding {
    tokio::time::timeout(PATIENCE, handler.run(run_of(b"{}")))
        .await
        .expect("it ends")
}

fn failed(ending: RunEnding) -> (ErrorReport, FailureAdvice, FailureCause) {
    match ending {
        RunEnding::Failed {
            error,
            advice,
            cause,
            ..
        } => (error, advice, cause),
        other => panic!("failed was expected: {other:?}"),
    }
}

/// A real server on a real port that answers every request with the same bytes.
struct Server {
    port: u16,
    log: Arc<Log>,
}

/// What a server has seen.
#[derive(Default)]
struct Log {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    arrived: Notify,
    hung_up: Notify,
    flooded: AtomicUsize,
}

/// What follows the bytes of an answer.
#[derive(Clone, Copy)]
enum Then {
    /// The next request.
    Next,
    /// Nothing, until the other end hangs up.
    Hang,
    /// The same byte again and again, for as long as somebody reads.
    Flood(u8),
}

impl Server {
    async fn answers(bytes: impl Into<Vec<u8>>, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (log, bytes) = (Arc::<Log>::default(), Arc::<[u8]>::from(bytes.into()));
        let server = Self {
            port,
            log: Arc::clone(&log),
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                log.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(attend(stream, Arc::clone(&bytes), then, Arc::clone(&log)));
            }
        });
        server
    }

    /// With a status, headers and a body.
    async fn says(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        Self::answers(answer, Then::Next).await
    }

    fn http(&self) -> Http {
        Http::new(&format!("http://127.0.0.1:{}/detect", self.port)).unwrap()
    }

    fn request(&self) -> String {
        self.log
            .requests
            .lock()
            .unwrap()
            .last()
            .cloned()
            .expect("a request")
    }

    fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }
}

async fn attend(mut stream: TcpStream, bytes: Arc<[u8]>, then: Then, log: Arc<Log>) {
    while let Some(request) = read_request(&mut stream).await {
        log.requests.lock().unwrap().push(request);
        log.arrived.notify_one();
        stream.write_all(&bytes).await.unwrap();
        match then {
            Then::Next => {}
            Then::Hang => {
                while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                log.hung_up.notify_one();
            }
            Then::Flood(byte) => {
                let flood = vec![byte; 65_536];
                while stream.write_all(&flood).await.is_ok() {
                    log.flooded.fetch_add(flood.len(), Ordering::SeqCst);
                }
                log.hung_up.notify_one();
            }
        }
    }
}

/// One request, headers in lower case and body; `None` when the connection is closed.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4_096];
        let count = stream
            .read(&mut buffer)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end + 4].to_vec())
            .unwrap()
            .to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap();
        while bytes.len() < end + 4 + length.parse::<usize>().unwrap() {
            let count = stream
                .read(&mut buffer)
                .await
                .ok()
                .filter(|count| *count > 0)?;
            bytes.extend_from_slice(&buffer[..count]);
        }
        return Some(head + &String::from_utf8(bytes.split_off(end + 4)).unwrap());
    }
}

#[tokio::test]
async fn the_job_is_in_the_headers_and_the_payload_is_the_body() {
    let server = Server::says("204 No Content", "", "").await;
    let payload = "{\"größe\": 1.0,  \"x\":\"\\u00e9\"}";
    let ending = server
        .http()
        .handler()
        .unwrap()
        .run(run_of(payload.as_bytes()))
        .await;
    assert_eq!(ending, RunEnding::Done);
    let request = server.request();
    let id = JobId::named("one");
    for line in [
        "post /detect http/1.1\r\n",
        "content-type: application/json\r\n",
        &format!("x-backstop-job-id: {id}\r\n"),
        "x-backstop-queue: emails\r\n",
        "x-backstop-kind: welcome\r\n",
        "x-backstop-attempt: 3\r\n",
        "x-backstop-lease: 42\r\n",
        &format!("idempotency-key: {id}\r\n"),
    ] {
        assert!(request.contains(line), "{line:?} is missing:\n{request}");
    }
    assert!(
        request.ends_with(&format!("\r\n\r\n{payload}")),
        "byte for byte: {request}"
    );
}

#[tokio::test]
async fn a_kind_cannot_become_a_header() {
    let server = Server::says("200 OK", "", "").await;
    let run = run_with("a b%\r\nX-Evil: é", b"{}", CancellationToken::new());
    assert_eq!(
        server.http().handler().unwrap().run(run).await,
        RunEnding::Done
    );
    let request = server.request();
    assert!(
        request.contains("x-backstop-kind: a%20b%25%0d%0ax-evil:%20%c3%a9\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn a_large_payload_passes() {
    let server = Server::says("200 OK", "", "").await;
    let payload = vec![b'1'; 1 << 20];
    assert_eq!(
        server.http().handler().unwrap().run(run_of(&payload)).await,
        RunEnding::Done
    );
    assert!(server.request().ends_with(&"1".repeat(1 << 20)));
}

#[tokio::test]
async fn the_status_decides() {
    for status in [
        "200 OK",
        "201 Created",
        "202 Accepted",
        "204 No Content",
        "299 Fine",
    ] {
        assert_eq!(
            call(&Server::says(status, "", "").await.http()).await,
            RunEnding::Done,
            "{status}"
        );
    }
    for (status, expected) in [
        ("410 Gone", FailureAdvice::Dead),
        ("422 Unprocessable Content", FailureAdvice::Dead),
        ("400 Bad Request", FailureAdvice::Retry),
        ("404 Not Found", FailureAdvice::Retry),
        ("429 Too Many Requests", FailureAdvice::Retry),
        ("500 Internal Server Error", FailureAdvice::Retry),
        ("503 Service Unavailable", FailureAdvice::Retry),
    ] {
        let server = Server::says(status, "Retry-After: soon\r\n", "no such user").await;
        let (error, advice, cause) = failed(call(&server.http()).await);
        assert_eq!(
            (advice, cause),
            (expected, FailureCause::Failed),
            "{status}"
        );
        assert_eq!(error.http_status, status[..3].parse().ok());
        assert_eq!(error.response_body.as_deref(), Some("no such user"));
        assert_eq!(error.error_type.as_deref(), Some("HttpStatus"));
        let expected = format!(
            "http://127.0.0.1:{}/detect answered {}",
            server.port,
            &status[..3]
        );
        assert!(error.message.starts_with(&expected), "{}", error.message);
    }
}

#[tokio::test]
async fn a_refusal_without_a_body_has_none_on_record() {
    let (error, ..) = failed(call(&Server::says("500 Oh", "", "").await.http()).await);
    assert_eq!((error.http_status, error.response_body), (Some(500), None));
}

#[tokio::test]
async fn retry_after_is_heard_as_seconds_and_as_a_date() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let server = Server::says(status, "Retry-After: 7\r\n", "").await;
        assert_eq!(
            failed(call(&server.http()).await).1,
            FailureAdvice::RetryAfter(Span::secs(7))
        );
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_mins(10));
        let server = Server::says(status, &format!("Retry-After: {date}\r\n"), "").await;
        let FailureAdvice::RetryAfter(wait) = failed(call(&server.http()).await).1 else {
            panic!("a wait")
        };
        assert!(
            wait <= Span::minutes(10) && wait > Span::minutes(9),
            "{wait}"
        );
        let server =
            Server::says(status, "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "").await;
        assert_eq!(
            failed(call(&server.http()).await).1,
            FailureAdvice::RetryAfter(Span::ZERO)
        );
    }
}

#[tokio::test]
async fn a_redirect_is_a_failure_that_says_so() {
    let elsewhere = Server::says("200 OK", "", "").await;
    let location = format!(
        "Location: http://ada:secret@127.0.0.1:{}/b?key=secret\r\n",
        elsewhere.port
    );
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
    ] {
        let server = Server::says(status, &location, "").await;
        let (error, advice, _) = failed(call(&server.http()).await);
        assert_eq!(advice, FailureAdvice::Retry);
        let shown = format!(
            " to http://[redacted]@127.0.0.1:{}/b?key=[redacted]; redirects are not followed",
            elsewhere.port
        );
        assert!(error.message.contains(&shown), "{}", error.message);
    }
    assert_eq!(elsewhere.connections(), 0, "nobody went there");
    let (error, ..) = failed(call(&Server::says("302 Found", "", "").await.http()).await);
    assert!(
        error.message.ends_with("; redirects are not followed"),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn a_slow_service_times_out() {
    let server = Server::answers("", Then::Hang).await;
    let (error, advice, cause) = failed(call(&server.http().timeout(Span::millis(100))).await);
    assert_eq!(
        (advice, cause),
        (FailureAdvice::Retry, FailureCause::TimedOut)
    );
    assert_eq!(error.error_type.as_deref(), Some("HttpTimeout"));
    assert!(
        error
            .message
            .ends_with("/detect did not answer within 100ms"),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn a_body_that_does_not_come_does_not_change_what_the_status_said() {
    let server = Server::answers(
        "HTTP/1.1 422 No\r\nContent-Length: 50\r\n\r\nhalf a ",
        Then::Hang,
    )
    .await;
    let (error, advice, cause) = failed(call(&server.http().timeout(Span::millis(200))).await);
    assert_eq!((advice, cause), (FailureAdvice::Dead, FailureCause::Failed));
    assert_eq!(error.response_body.as_deref(), Some("half a "));
    let server = Server::answers(
        "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf a ",
        Then::Hang,
    )
    .await;
    assert_eq!(call(&server.http()).await, RunEnding::Done);
}

#[tokio::test]
async fn of_an_endless_body_only_the_beginning_is_read() {
    let endless = "HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n";
    for byte in [b'x', 0xff] {
        let server = Server::answers(endless, Then::Flood(byte)).await;
        let (error, ..) = failed(call(&server.http()).await);
        let body = error.response_body.unwrap();
        assert!(
            body.chars().count() <= BODY_BYTES_MAX && body.chars().count() > RESPONSE_CHARS_MAX
        );
        tokio::time::timeout(PATIENCE, server.log.hung_up.notified())
            .await
            .expect("it is closed");
        // What the buffers of two sockets and a client hold, and far below what a second on
        // loopback brings.
        assert!(
            server.log.flooded.load(Ordering::SeqCst) < 32 << 20,
            "it was not read on"
        );
    }
    let server = Server::answers(
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        Then::Flood(b'x'),
    )
    .await;
    assert_eq!(call(&server.http()).await, RunEnding::Done);
}

#[tokio::test]
async fn no_connection_is_a_failure_without_secrets() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let http = Http::new(&format!("http://ada:secret@127.0.0.1:{port}/a?key=secret")).unwrap();
    let (error, advice, cause) = failed(call(&http).await);
    assert_eq!(
        (advice, cause, error.http_status),
        (FailureAdvice::Retry, FailureCause::Failed, None)
    );
    assert_eq!(error.error_type.as_deref(), Some("HttpConnect"));
    assert!(
        error
            .message
            .contains("could not be reached: Connection refused"),
        "{}",
        error.message
    );
    let shown = format!("{error:?} {http:?} {:?}", http.handler().unwrap());
    assert!(
        !shown.contains("secret") && !shown.contains("ada"),
        "{shown}"
    );
}

#[tokio::test]
async fn what_is_no_http_is_broken() {
    for bytes in ["", "SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 2"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(bytes.as_bytes()).await.unwrap();
        });
        let (error, ..) =
            failed(call(&Http::new(&format!("http://127.0.0.1:{port}/")).unwrap()).await);
        assert_eq!(error.error_type.as_deref(), Some("HttpBroken"), "{error:?}");
        assert!(
            error.message.contains("broke off before it answered: "),
            "{}",
            error.message
        );
    }
}

#[tokio::test]
async fn a_run_called_off_is_given_back_and_its_connection_closed() {
    let server = Server::answers("", Then::Hang).await;
    let (handler, cancel) = (server.http().handler().unwrap(), CancellationToken::new());
    let running = tokio::spawn({
        let run = run_with("welcome", b"{}", cancel.clone());
        async move { handler.run(run).await }
    });
    server.log.arrived.notified().await;
    cancel.cancel();
    let ending = tokio::time::timeout(PATIENCE, running)
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(ending, RunEnding::Released(Span::ZERO));
    tokio::time::timeout(PATIENCE, server.log.hung_up.notified())
        .await
        .expect("it is closed");
}

#[tokio::test]
async fn connections_are_used_again() {
    for status in ["200 OK", "500 Oh"] {
        let server = Server::says(status, "", "some words").await;
        let handler = server.http().handler().unwrap();
        for _ in 0..5 {
            call_handler(&handler).await;
        }
        assert_eq!(server.connections(), 1, "{status}");
    }
}

/// Knows one answer per lookup, and none after the last.
struct Answers(Mutex<VecDeque<&'static str>>);

impl Answers {
    fn of(ips: &[&'static str]) -> connection::NameResolver {
        Arc::new(Self(Mutex::new(ips.iter().copied().collect())))
    }
}

impl Resolve for Answers {
    fn resolve(&self, _: Name) -> Resolving {
        let ip: Option<IpAddr> = self
            .0
            .lock()
            .unwrap()
            .pop_front()
            .map(|ip| ip.parse().unwrap());
        Box::pin(async move { Ok(Box::new(ip.into_iter().map(|ip| (ip, 0_u16).into())) as Addrs) })
    }
}

#[tokio::test]
async fn a_name_that_leads_to_a_link_local_address_is_not_called() {
    for ip in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"] {
        let http = Http::new("http://service.example/").unwrap();
        let (error, advice, _) =
            failed(call_handler(&http.handler_with(Answers::of(&[ip])).unwrap()).await);
        assert_eq!(
            (error.error_type.as_deref(), advice),
            (Some("HttpRefused"), FailureAdvice::Retry)
        );
        assert!(
            error
                .message
                .starts_with("http://service.example/ was not called"),
            "{}",
            error.message
        );
        assert!(
            error.message.contains("`allow_link_local = true`"),
            "{}",
            error.message
        );
    }
}

#[tokio::test]
async fn a_name_that_changes_between_two_lookups_gains_nothing() {
    let server = Server::answers(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        Then::Next,
    )
    .await;
    let http = Http::new(&format!("http://service.example:{}/", server.port)).unwrap();
    let handler = http
        .handler_with(Answers::of(&["127.0.0.1", "169.254.169.254"]))
        .unwrap();
    assert_eq!(call_handler(&handler).await, RunEnding::Done);
    let (error, ..) = failed(call_handler(&handler).await);
    assert_eq!(
        error.error_type.as_deref(),
        Some("HttpRefused"),
        "{error:?}"
    );
    let (error, ..) = failed(call_handler(&handler).await);
    assert_eq!(
        error.error_type.as_deref(),
        Some("HttpConnect"),
        "a name without addresses: {error:?}"
    );
}

#[tokio::test]
async fn a_name_that_leads_out_of_the_networks_allowed_is_not_called() {
    let server = Server::answers(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        Then::Next,
    )
    .await;
    let http = Http::new(&format!("http://service.example:{}/", server.port)).unwrap();
    let http = http.allow(["127.0.0.0/8".parse().unwrap()]);
    let handler = http
        .handler_with(Answers::of(&["127.0.0.1", "10.0.0.1"]))
        .unwrap();
    assert_eq!(call_handler(&handler).await, RunEnding::Done);
    let (error, advice, _) = failed(call_handler(&handler).await);
    assert_eq!(
        (error.error_type.as_deref(), advice),
        (Some("HttpRefused"), FailureAdvice::Retry)
    );
    assert!(
        error
            .message
            .contains("leads to 10.0.0.1, which is in none of the networks"),
        "{}",
        error.message
    );
}

#[test]
fn a_number_outside_the_networks_allowed_is_refused_however_it_is_written() {
    let hosts = [
        "127.0.0.1",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "127.1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
    ];
    for host in hosts {
        let number = Http::new(&format!("http://{host}/"))
            .unwrap()
            .allow(["10.0.0.0/8".parse().unwrap()]);
        assert!(
            matches!(number.check(), Err(InvalidHttp::NotAllowed(_))),
            "{host}: {:?}",
            number.check()
        );
        assert!(
            matches!(number.handler(), Err(InvalidHttp::NotAllowed(_))),
            "{host}"
        );
    }
    let mapped = Http::new("http://[::ffff:10.0.0.1]/")
        .unwrap()
        .allow(["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(
        mapped.check(),
        Ok(()),
        "the same address, whichever way it is written"
    );
}

#[test]
fn a_link_local_number_is_refused_before_anything_runs() {
    for host in [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
    ] {
        let http = Http::new(&format!("http://{host}/latest/meta-data")).unwrap();
        assert!(
            matches!(http.check(), Err(InvalidHttp::LinkLocal(_))),
            "{host}"
        );
        assert!(
            matches!(http.handler(), Err(InvalidHttp::LinkLocal(_))),
            "{host}"
        );
        assert_eq!(
            http.link_local(LinkLocalPolicy::Allowed).check(),
            Ok(()),
            "{host}"
        );
    }
}

#[tokio::test]
async fn a_name_is_looked_up_on_this_machine() {
    let server = Server::says("200 OK", "", "").await;
    assert_eq!(
        call(&Http::new(&format!("http://localhost:{}/", server.port)).unwrap()).await,
        RunEnding::Done
    );
    let (error, ..) = failed(call(&Http::new("http://no-such-host.invalid/").unwrap()).await);
    assert_eq!(
        error.error_type.as_deref(),
        Some("HttpConnect"),
        "{error:?}"
    );
}

#[test]
fn roots_that_cannot_be_used_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (
        folder.path().join("missing.pem"),
        folder.path().join("empty.pem"),
    );
    std::fs::write(&empty, "").unwrap();
    for (file, words) in [(missing, "No such file"), (empty, "no certificate in it")] {
        let problem = Http::new("https://h/")
            .unwrap()
            .ca(&file)
            .handler()
            .unwrap_err()
            .to_string();
        assert!(
            problem.contains(&file.display().to_string()) && problem.contains(words),
            "{problem}"
        );
    }
    assert_eq!(
        Http::new("http://h/").unwrap().ca("ca.pem").check(),
        Err(InvalidHttp::CaWithoutTls)
    );
}

#[tokio::test]
async fn a_service_is_told_where_its_run_stands_in_a_trace() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let server = Server::says("200 OK", "", "").await;
    let handler = server.http().handler().unwrap();
    let run = run_of(b"{}");
    assert_eq!(handler.run(run.clone()).await, RunEnding::Done);
    assert!(
        !server.request().contains("traceparent"),
        "{}",
        server.request()
    );
    assert_eq!(
        handler.run(run.with_trace(traceparent.parse().ok())).await,
        RunEnding::Done
    );
    assert!(
        server
            .request()
            .contains(&format!("traceparent: {traceparent}\r\n")),
        "{}",
        server.request()
    );
}
