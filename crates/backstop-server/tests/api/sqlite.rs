//! The same on a file, over a real connection: what a worker in another language does.

use crate::given::{config, router};
use backstop::Backstop;
use backstop_server::App;
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::net::SocketAddr;

struct Server {
    address: SocketAddr,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("backstop.db").display());
        let backstop = Backstop::open(&url).await.unwrap();
        let router = router(&App::new(backstop, config(""), ""), &[Scope::Admin]);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            client: reqwest::Client::new(),
            _folder: folder,
            task,
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self
            .client
            .post(format!("http://{}/v1{path}", self.address))
            .body(body.to_string());
        let response = request.send().await.unwrap();
        assert!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_worker_in_another_language_takes_a_backlog_off() {
    let server = Server::start().await;
    let jobs: Vec<Value> = (0..250)
        .map(|n| json!({ "queue": "q", "payload": { "n": n } }))
        .collect();
    server.post("/jobs/batch", json!({ "jobs": jobs })).await;
    let mut seen = Vec::new();
    loop {
        let leased = server
            .post(
                "/lease",
                json!({ "queues": ["q"], "max": 100, "worker": "python" }),
            )
            .await;
        let leased = leased["jobs"].as_array().unwrap().clone();
        if leased.is_empty() {
            break;
        }
        seen.extend(
            leased
                .iter()
                .map(|job| job["payload"]["n"].as_u64().unwrap()),
        );
        let ends: Vec<Value> = leased
            .iter()
            .map(|job| json!({ "id": job["id"], "lease": job["lease"], "outcome": "done" }))
            .collect();
        let answer = server.post("/settle", json!({ "settle": ends })).await;
        assert!(
            answer["results"]
                .as_array()
                .unwrap()
                .iter()
                .all(|one| one["result"] == "applied")
        );
    }
    assert_eq!(
        seen,
        (0..250).collect::<Vec<_>>(),
        "each once, in the order they came in"
    );
}

#[tokio::test]
async fn a_waiting_lease_wakes_over_the_wire() {
    let server = Server::start().await;
    let waiting = server.post("/lease", json!({ "queues": ["q"], "wait_ms": 30_000 }));
    let pushing = server.post("/jobs", json!({ "queue": "q", "payload": 1 }));
    let (leased, _) = tokio::join!(waiting, pushing);
    assert_eq!(leased["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn ends_are_judged_and_repeated_on_a_file_as_in_memory() {
    let server = Server::start().await;
    server
        .post("/jobs", json!({ "queue": "q", "payload": 1, "id": "a" }))
        .await;
    let leased = server.post("/lease", json!({ "queues": ["q"] })).await["jobs"][0].clone();
    let end = |outcome: &str| json!({ "settle": [{ "id": leased["id"], "lease": leased["lease"], "outcome": outcome, "error": { "message": "x" } }] });
    for (outcome, result) in [
        ("failed", "applied"),
        ("failed", "applied"),
        ("done", "stale"),
        ("dead", "stale"),
    ] {
        assert_eq!(
            server.post("/settle", end(outcome)).await["results"][0]["result"],
            result,
            "{outcome}"
        );
    }
}
