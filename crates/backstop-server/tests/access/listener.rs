//! A real listener, and clients that mean no good, or wait.

use crate::given::{Site, config};
use backstop::Span;
use backstop_server::access::{NewToken, Scope, TokenRegistry};
use backstop_server::serve::{RunningServer, ServeError, Server};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything here takes that is to come to pass.
const PATIENCE: Duration = Duration::from_mins(5);

async fn serve(text: &str) -> (Site, RunningServer) {
    let site = Site::new(&format!("[server]\nlisten = \"127.0.0.1:0\"\n{text}"));
    let serving = Server::bind(&site.app).await.unwrap().start();
    (site, serving)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Everything until the other end closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too: the server need not read what it has refused.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text))
        .await
        .expect("the connection ends");
    String::from_utf8_lossy(&text).into_owned()
}

/// One answer with a length, on a connection that stays.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "cut off: {text}");
        text.push_str(&String::from_utf8_lossy(&part[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .to_ascii_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if length.is_some_and(|length: usize| body.len() >= length) {
            return text;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_is_cut_off() {
    let (_site, serving) = serve("").await;
    let mut stream = connect(serving.address()).await;
    stream
        .write_all(b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nX: ")
        .await
        .unwrap();
    let mut sent = 0;
    while stream.write_all(b"a").await.is_ok() && sent < 100 {
        sent += 1;
        let mut byte = [0];
        match timeout(Duration::from_secs(1), stream.read(&mut byte)).await {
            Err(_) => {}
            Ok(_) => break,
        }
    }
    assert!(sent < 30, "still taken after {sent} s");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_cut_off() {
    let (_site, serving) = serve("").await;
    let mut stream = connect(serving.address()).await;
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_kept_after_an_answer_and_says_no_more_is_cut_off() {
    let (_site, serving) = serve("connections_max = 1\n").await;
    let mut stream = connect(serving.address()).await;
    for _ in 0..2 {
        stream.write_all(ASK).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(rest(&mut stream).await, "");
    answered_again(serving.address()).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for_for_ever() {
    let (_site, serving) = serve("timeout = \"5s\"\n").await;
    let mut stream = connect(serving.address()).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let text = rest(&mut stream).await;
    assert!(
        text.starts_with("HTTP/1.1 408") && text.contains("application/problem+json"),
        "{text}"
    );
}

#[tokio::test]
async fn long_heads_and_large_bodies_are_refused_unread() {
    let (_site, serving) = serve("").await;
    let long = "a".repeat(17 << 10);
    let mut stream = connect(serving.address()).await;
    let head = format!("GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).await;
    let text = rest(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 431"), "{text}");
    let mut stream = connect(serving.address()).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let text = answer(&mut stream).await;
    assert!(
        text.starts_with("HTTP/1.1 413") && text.contains("application/problem+json"),
        "{text}"
    );
}

#[tokio::test]
async fn chunks_without_an_end_are_refused_at_the_limit() {
    let (_site, serving) = serve("").await;
    let (mut reader, mut writer) = connect(serving.address()).await.into_split();
    let head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    writer.write_all(head.as_bytes()).await.unwrap();
    let sending = tokio::spawn(async move {
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        let mut sent = 0_usize;
        while writer.write_all(chunk.as_bytes()).await.is_ok() {
            sent += 0x10000;
            assert!(sent < 256 << 20, "everything is taken");
        }
    });
    let mut text = Vec::new();
    let _ = timeout(PATIENCE, reader.read_to_end(&mut text))
        .await
        .expect("the connection ends");
    let text = String::from_utf8_lossy(&text);
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    sending.await.unwrap();
}

const ASK: &[u8] = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Asks on a connection of its own until there is room for it.
async fn answered_again(address: SocketAddr) {
    let again = async {
        loop {
            let mut stream = connect(address).await;
            stream.write_all(ASK).await.unwrap();
            if answer(&mut stream).await.starts_with("HTTP/1.1 200") {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(PATIENCE, again).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn whoever_there_is_no_room_for_is_told_so_at_once() {
    let (_site, serving) = serve("connections_max = 1\n").await;
    let mut first = connect(serving.address()).await;
    first.write_all(ASK).await.unwrap();
    assert!(answer(&mut first).await.starts_with("HTTP/1.1 200"));
    let mut second = connect(serving.address()).await;
    second.write_all(ASK).await.unwrap();
    let text = rest(&mut second).await;
    assert!(
        text.starts_with("HTTP/1.1 503") && text.contains("application/problem+json"),
        "{text}"
    );
    assert!(
        text.contains("retry-after: 1") && text.contains("connections_max"),
        "{text}"
    );
    first.write_all(ASK).await.unwrap();
    assert!(
        answer(&mut first).await.starts_with("HTTP/1.1 200"),
        "who was there first stays"
    );
    drop(first);
    answered_again(serving.address()).await;
}

#[tokio::test]
async fn connections_that_send_nothing_keep_nobody_out_and_whoever_was_let_in_stays() {
    let (_site, serving) = serve("connections_max = 3\n").await;
    let mut ours = connect(serving.address()).await;
    ours.write_all(ASK).await.unwrap();
    assert!(answer(&mut ours).await.starts_with("HTTP/1.1 200"));
    let mut flood = Vec::new();
    for _ in 0..20 {
        let mut stranger = connect(serving.address()).await;
        stranger.write_all(b"G").await.unwrap();
        flood.push(stranger);
    }
    let mut newcomer = connect(serving.address()).await;
    newcomer.write_all(ASK).await.unwrap();
    assert!(answer(&mut newcomer).await.starts_with("HTTP/1.1 200"));
    ours.write_all(ASK).await.unwrap();
    assert!(answer(&mut ours).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn no_address_takes_all_the_room_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (encrypted, _) = crate::tls::given(folder.path());
    let site =
        Site::new(&format!("{encrypted}connections_max = 4\n").replace("127.0.0.1:0", "0.0.0.0:0"));
    site.token(&[Scope::Read], None).await;
    let serving = Server::bind(&site.app).await.unwrap().start();
    let port = serving.address().port();
    let from = async |address: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((address, 0))).unwrap();
        socket
            .connect(SocketAddr::from(([127, 0, 0, 1], port)))
            .await
            .unwrap()
    };
    let greedy = [from([127, 0, 0, 2]).await, from([127, 0, 0, 2]).await];
    let status = async |stream| crate::tls::status(stream, folder.path()).await;
    assert_eq!(
        status(from([127, 0, 0, 2]).await).await,
        503,
        "half of it is one address's share"
    );
    assert_eq!(
        status(from([127, 0, 0, 3]).await).await,
        200,
        "others have theirs"
    );
    drop(greedy);
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_reading_does_not_keep_their_place() {
    let (_site, serving) = serve("connections_max = 1\n").await;
    let mut deaf = connect(serving.address()).await;
    // More answers than any buffer on the way holds.
    while let Ok(Ok(())) = timeout(Duration::from_secs(1), deaf.write_all(&ASK.repeat(100))).await {
    }
    answered_again(serving.address()).await;
    drop(deaf);
}

#[tokio::test]
async fn whoever_waits_for_a_job_or_for_news_is_let_go_when_the_server_closes() {
    let (site, mut serving) = serve("").await;
    let address = serving.address();
    let mut poll = connect(address).await;
    let body = r#"{"queues":["q"],"max":1,"worker":"w1","wait_ms":30000}"#;
    let length = body.len();
    let head = format!(
        "POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    poll.write_all(head.as_bytes()).await.unwrap();
    let mut events = connect(address).await;
    events
        .write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 12];
    events.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    while site
        .backstop
        .store()
        .workers(Span::hours(1), site.backstop.now())
        .await
        .unwrap()
        .is_empty()
    {
        tokio::task::yield_now().await;
    }
    serving.stop();
    // Both would go on for half a minute and more.
    let closed = async {
        let text = rest(&mut poll).await;
        assert!(
            text.starts_with("HTTP/1.1 200") && text.ends_with(r#"{"jobs":[]}"#),
            "{text}"
        );
        rest(&mut events).await;
        serving.wait_until_ended().await;
    };
    timeout(Duration::from_secs(20), closed)
        .await
        .expect("nobody is kept");
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody is let in any more"
    );
}

#[tokio::test]
async fn a_server_that_is_forced_cuts_everything_off() {
    let (_site, mut serving) = serve("").await;
    let mut stream = connect(serving.address()).await;
    stream
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        .await
        .unwrap();
    serving.force();
    serving.wait_until_ended().await;
    assert_eq!(rest(&mut stream).await, "");
}

async fn refused(text: &str, tokens: bool) -> Option<ServeError> {
    let site = Site::new(text);
    if tokens {
        let new = NewToken {
            name: String::new(),
            scopes: vec![Scope::Admin],
            queues: Vec::new(),
            expires_in: Some(Span::hours(1)),
        };
        TokenRegistry::of(&site.backstop)
            .create("test", new)
            .await
            .unwrap();
    }
    Server::bind(&site.app).await.err()
}

#[tokio::test]
async fn what_others_can_reach_does_not_start_without_tokens_and_encryption() {
    let open = "[server]\nlisten = \"0.0.0.0:0\"\n";
    let proxied = "[server]\nlisten = \"0.0.0.0:0\"\nplain_http = true\n";
    let named = "[server]\nlisten = \"127.0.0.1:0\"\norigins = [\"https://jobs.example.org\"]\n";
    assert!(matches!(
        refused(open, false).await,
        Some(ServeError::NoToken(_))
    ));
    assert!(matches!(
        refused(open, true).await,
        Some(ServeError::NotEncrypted(_))
    ));
    assert!(matches!(
        refused(proxied, false).await,
        Some(ServeError::NoToken(_))
    ));
    assert!(refused(proxied, true).await.is_none());
    assert!(matches!(
        refused(named, false).await,
        Some(ServeError::NoToken(_))
    ));
    assert!(refused(named, true).await.is_none());
    let near = "[server]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n";
    assert!(
        matches!(refused(near, false).await, Some(ServeError::NoToken(_))),
        "a proxy lets others in"
    );
    assert!(refused(near, true).await.is_none());
    assert!(
        refused("[server]\nlisten = \"[::1]:0\"\n", false)
            .await
            .is_none()
    );
}

#[tokio::test]
async fn a_token_whose_time_is_over_is_no_token() {
    let site = Site::new("[server]\nlisten = \"0.0.0.0:0\"\nplain_http = true\n");
    site.token(&[Scope::Admin], Some(Span::secs(5))).await;
    site.clock.advance(Span::secs(5));
    assert!(matches!(
        Server::bind(&site.app).await.err(),
        Some(ServeError::NoToken(_))
    ));
}

#[tokio::test]
async fn a_configuration_it_would_not_have_started_with_is_not_taken_up() {
    let (site, serving) = serve("").await;
    let named = "[server]\nlisten = \"127.0.0.1:9\"\norigins = [\"https://jobs.example.org\"]\nsession = \"1h\"\n";
    assert!(matches!(
        serving.prepare(config(named)).await.err(),
        Some(ServeError::NoToken(_))
    ));
    site.token(&[Scope::Admin], None).await;
    let change = serving.prepare(config(named)).await.unwrap();
    serving.apply(change);
    let server = &site.app.config().server;
    assert_eq!((server.session, server.origins.len()), (Span::hours(1), 1));
    assert_eq!(server.listen.port(), 0, "where it listens stays as it was");
}

#[tokio::test]
async fn a_reload_leaves_the_store_as_it_is_however_often() {
    let (site, serving) = serve("").await;
    let (store, durability) = (
        site.app.config().store.clone(),
        site.app.config().durability,
    );
    for _ in 0..2 {
        let other = config("[store]\nurl = \"redis://elsewhere/\"\ndurability = \"relaxed\"\n");
        assert!(other.store != store && other.durability != durability);
        serving.apply(serving.prepare(other).await.unwrap());
        assert!(site.app.config().store == store && site.app.config().durability == durability);
    }
}
