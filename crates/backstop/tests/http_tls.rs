//! Web services behind TLS, called by the engine. A file of its own: what makes certificates brings
//! the `time` crate, whose comparisons would make those of the library ambiguous in its unit tests.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

use backstop::core::failure::FailureRecord;
use backstop::core::{Job, JobState};
use backstop::{Backstop, Http, QueueSettings, RetryPolicy};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// A service with a certificate for `localhost` of its own making; answers 200 to whoever trusts
/// it. With the certificate as PEM.
fn tls_server() -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            // Whoever does not trust it hangs up here.
            if stream.read(&mut [0; 4_096]).is_ok() {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.write_all(answer).unwrap();
            }
        }
    });
    (port, made.cert.pem())
}

/// A job that ran once, by this service.
async fn run_once(http: &Http) -> Job {
    let backstop = Backstop::open("memory:").await.unwrap();
    let id = backstop.draft("q").push().await.unwrap().id;
    let once = RetryPolicy::default().with_max_attempts(1.try_into().unwrap());
    let worker = backstop.worker().handle_queue("q", http.handler().unwrap());
    let worker = worker
        .queue(
            "q",
            QueueSettings {
                retry: once,
                ..QueueSettings::default()
            },
        )
        .start()
        .unwrap();
    for _ in 0..2_000 {
        let job = backstop.job(id).await.unwrap().unwrap();
        if matches!(job.state, JobState::Done | JobState::Dead) {
            worker.stop();
            worker.stopped().await;
            return job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the job did not end");
}

fn last_failure(job: &Job) -> FailureRecord {
    job.history.failures().pop().expect("a failure")
}

#[tokio::test]
async fn a_certificate_is_checked_against_the_machines_roots_or_those_of_a_file() {
    let (port, pem) = tls_server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let http = |host: &str| Http::new(&format!("https://{host}:{port}/")).unwrap();
    assert_eq!(
        run_once(&http("localhost").ca(&file)).await.state,
        JobState::Done
    );
    // Without the file nobody vouches for it; with it, it is vouched for under its own name alone.
    for stranger in [http("localhost"), http("127.0.0.1").ca(&file)] {
        let job = run_once(&stranger).await;
        let error = last_failure(&job).error;
        assert_eq!(
            (job.state, error.error_type.as_deref()),
            (JobState::Dead, Some("HttpTls")),
            "{error:?}"
        );
        assert!(
            error.message.contains("could not be trusted: "),
            "{}",
            error.message
        );
    }
}
