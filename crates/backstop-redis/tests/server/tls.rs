//! Encrypted connections, and whom they trust.

use crate::place::open;
use backstop_core::port::{JobStore, Store, StoreError};
use backstop_testkit::given::{START, job};
use backstop_testkit::servers::Redis;
use backstop_testkit::servers::redis::{Append, Settings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory with an authority, a key, and a certificate of `localhost` that the authority
/// signed.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let mut authority = CertificateParams::new(Vec::new()).expect("names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key"))
        .expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    let certificate = certificate
        .signed_by(&key, &authority)
        .expect("a certificate");
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    write("ca.pem", &authority.pem());
    write("key.pem", &key.serialize_pem());
    write("cert.pem", &certificate.pem());
    dir
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

#[tokio::test]
async fn a_server_is_trusted_only_by_its_certificate_and_name() {
    let dir = certificates();
    let shown = |name| file(dir.path(), name).display().to_string();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|bound| bound.local_addr())
        .expect("a port")
        .port();
    let options = vec![
        ("tls-port", port.to_string()),
        ("tls-cert-file", shown("cert.pem")),
        ("tls-key-file", shown("key.pem")),
        ("tls-ca-cert-file", shown("ca.pem")),
        ("tls-auth-clients", "no".to_owned()),
    ];
    let _server = Redis::start(Settings {
        append: Append::Off,
        options,
    });
    let store = open(&format!("rediss://localhost:{port}?ca={}", shown("ca.pem")));
    store.migrate().await.expect("it is trusted");
    store
        .enqueue(vec![job("q", "a").into()], START)
        .await
        .expect("the job goes in");
    for url in [
        format!("rediss://localhost:{port}"),
        format!("rediss://127.0.0.1:{port}?ca={}", shown("ca.pem")),
    ] {
        let refused = open(&url).migrate().await;
        assert!(
            matches!(refused, Err(StoreError::Unavailable { .. })),
            "{url}: {refused:?}"
        );
    }
}
