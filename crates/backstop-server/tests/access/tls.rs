//! Encrypted: which protocols, and certificates that are exchanged while it runs.

use crate::given::{Site, config};
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use backstop_server::access::Scope;
use backstop_server::serve::{RunningServer, Server};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Writes a certificate of its own; answers what has to be trusted.
fn write_certificate(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// The text of a configuration, and what has to be trusted.
pub(crate) fn given(folder: &Path) -> (String, CertificateDer<'static>) {
    let trusted = write_certificate(folder);
    (text(folder), trusted)
}

/// What a connection is answered when it asks whether the server is alive.
pub(crate) async fn status(stream: TcpStream, folder: &Path) -> u16 {
    let trusted = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    let mut stream = encrypted(stream, &trusted, &[b"http/1.1"]).await.unwrap();
    let ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text)
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn text(folder: &Path) -> String {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ntls = {{ cert = \"{}\", key = \"{}\" }}\n",
        cert.display(),
        key.display()
    )
}

async fn serve() -> (TempDir, CertificateDer<'static>, Site, RunningServer) {
    let folder = tempfile::tempdir().unwrap();
    let trusted = write_certificate(folder.path());
    let site = Site::new(&text(folder.path()));
    let serving = Server::bind(&site.app).await.unwrap().start();
    (folder, trusted, site, serving)
}

async fn connect(
    serving: &RunningServer,
    trusted: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    encrypted(
        TcpStream::connect(serving.address()).await?,
        trusted,
        protocols,
    )
    .await
}

async fn encrypted(
    stream: TcpStream,
    trusted: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

#[tokio::test]
async fn who_speaks_the_older_protocol_is_answered_in_it() {
    let (_folder, trusted, _site, serving) = serve().await;
    let mut stream = connect(&serving, &trusted, &[b"http/1.1"]).await.unwrap();
    let ask = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

#[tokio::test]
async fn who_speaks_the_newer_protocol_is_answered_in_it_and_guarded_alike() {
    let (_folder, trusted, _site, serving) = serve().await;
    let stream = connect(&serving, &trusted, &[b"h2", b"http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.unwrap();
    let driver = tokio::spawn(connection);
    let address = serving.address();
    let ask = |host: &str| {
        let uri = format!("https://{host}:{}/v1/queues", address.port());
        Request::get(uri).body(Body::empty()).unwrap()
    };
    assert_eq!(
        sender
            .send_request(ask("localhost"))
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
    let foreign = sender.send_request(ask("evil.example")).await.unwrap();
    assert_eq!(
        foreign.status(),
        StatusCode::FORBIDDEN,
        "the host is in another place, and is looked at there"
    );
    assert!(
        foreign
            .headers()
            .contains_key(header::CONTENT_SECURITY_POLICY)
    );
    driver.abort();
}

/// A connection in the newer protocol over which one request was answered; `window` is what it
/// takes of an answer.
async fn connected(
    serving: &RunningServer,
    trusted: &CertificateDer<'static>,
    window: u32,
) -> (
    hyper::client::conn::http2::SendRequest<Body>,
    tokio::task::JoinHandle<hyper::Result<()>>,
) {
    let stream = connect(serving, trusted, &[b"h2"]).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn ask(serving: &RunningServer, path: &str) -> Request<Body> {
    let uri = format!("https://localhost:{}{path}", serving.address().port());
    Request::get(uri).body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_which_nobody_asks_anything_is_closed() {
    let (_folder, trusted, _site, serving) = serve().await;
    let (mut sender, driver) = connected(&serving, &trusted, 65_535).await;
    let got = sender
        .send_request(ask(&serving, "/healthz"))
        .await
        .unwrap();
    assert_eq!(got.status(), StatusCode::OK);
    drop(got);
    let ended = tokio::time::timeout(Duration::from_mins(5), driver).await;
    assert!(ended.is_ok(), "pings alone keep nobody's place");
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_answers_nobody_takes_is_closed() {
    let (_folder, trusted, _site, serving) = serve().await;
    let (mut sender, driver) = connected(&serving, &trusted, 1).await;
    let got = sender
        .send_request(ask(&serving, "/openapi.json"))
        .await
        .unwrap();
    assert_eq!(got.status(), StatusCode::OK);
    let ended = tokio::time::timeout(Duration::from_mins(5), driver).await;
    assert!(
        ended.is_ok(),
        "an answer that is not taken keeps nobody's place"
    );
    drop((sender, got));
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_which_news_are_told_stays() {
    let (_folder, trusted, _site, serving) = serve().await;
    let (mut sender, driver) = connected(&serving, &trusted, 65_535).await;
    let got = sender
        .send_request(ask(&serving, "/v1/events"))
        .await
        .unwrap();
    let mut news = got.into_body();
    let until = tokio::time::Instant::now() + Duration::from_mins(4);
    while tokio::time::Instant::now() < until {
        assert!(
            news.frame().await.is_some_and(|frame| frame.is_ok()),
            "it was cut off"
        );
    }
    driver.abort();
}

#[tokio::test]
async fn nobody_is_answered_without_encryption() {
    let (_folder, _trusted, _site, serving) = serve().await;
    let mut stream = TcpStream::connect(serving.address()).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(
        !bytes.starts_with(b"HTTP"),
        "{}",
        String::from_utf8_lossy(&bytes)
    );
}

#[tokio::test]
async fn a_new_certificate_is_taken_up_and_a_bad_one_is_not() {
    let (folder, old, _site, serving) = serve().await;
    std::fs::write(folder.path().join("cert.pem"), "not a certificate").unwrap();
    let refused = serving
        .prepare(config(&text(folder.path())))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("cert.pem"), "{refused}");
    assert!(
        connect(&serving, &old, &[]).await.is_ok(),
        "the old one stays in force"
    );
    let new = write_certificate(folder.path());
    let change = serving.prepare(config(&text(folder.path()))).await.unwrap();
    serving.apply(change);
    assert!(connect(&serving, &new, &[]).await.is_ok());
    assert!(
        connect(&serving, &old, &[]).await.is_err(),
        "who trusts the old one alone sees that it is gone"
    );
}

#[tokio::test]
async fn what_is_no_certificate_and_a_key_of_another_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = async |what: &str| {
        let site = Site::new(&text(folder.path()));
        let error = Server::bind(&site.app).await.err().expect(what).to_string();
        assert!(
            error.contains(what) && !error.contains("PRIVATE"),
            "{error}"
        );
    };
    refused("cert.pem").await;
    write_certificate(folder.path());
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(
        folder.path().join("key.pem"),
        other.signing_key.serialize_pem(),
    )
    .unwrap();
    refused("key.pem").await;
    std::fs::write(folder.path().join("cert.pem"), "").unwrap();
    refused("cert.pem").await;
}

#[tokio::test]
async fn a_login_over_tls_is_kept_by_this_host_alone() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = write_certificate(folder.path());
    let site = Site::new(&text(folder.path()).replace("127.0.0.1:0", "0.0.0.0:0"));
    let token = site.token(&[Scope::Read], None).await.token;
    let serving = Server::bind(&site.app).await.unwrap().start();
    let mut stream = connect(&serving, &trusted, &[b"http/1.1"]).await.unwrap();
    let body = format!("token={token}");
    let head = format!(
        "POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(
        text.contains("set-cookie: __Host-backstop_session=") && text.contains("; Secure"),
        "{text}"
    );
}
