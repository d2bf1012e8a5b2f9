//! Every route that changes something on an operator's word × the audit.

use crate::given::{Api, given_with};
use crate::recovery::{UNPROCESSED, database, sweep};
use axum::http::Method;
use backstop_server::access::{Need, Scope, need};
use backstop_server::api;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

/// What is asked of a route, and the audit's word for it; a route that is missing here fails the test.
fn case(method: &str, pattern: &str) -> (&'static str, Value, &'static str) {
    let oldest = || json!({ "oldest": 1, "queue": "q" });
    match (method, pattern) {
        ("DELETE", "/v1/jobs/{id}") => ("/v1/jobs/ready", Value::Null, "job delete"),
        ("POST", "/v1/jobs/{id}/retry") => ("/v1/jobs/dead/retry", Value::Null, "job retry"),
        ("POST", "/v1/jobs/{id}/cancel") => ("/v1/jobs/ready/cancel", Value::Null, "job cancel"),
        ("POST", "/v1/queues/{q}/pause") => ("/v1/queues/q/pause", Value::Null, "queue pause"),
        ("POST", "/v1/queues/{q}/resume") => ("/v1/queues/q/resume", Value::Null, "queue resume"),
        ("POST", "/v1/dead/requeue") => ("/v1/dead/requeue", oldest(), "requeue"),
        ("POST", "/v1/dead/move") => {
            ("/v1/dead/move", json!({ "all": true, "to": "elsewhere" }), "move to elsewhere")
        }
        ("POST", "/v1/dead/redrive") => ("/v1/dead/redrive", json!({ "all": true }), "redrive "),
        ("DELETE", "/v1/dead") => ("/v1/dead", oldest(), "delete"),
        ("DELETE", "/v1/streams/{s}/keys/{k}") => ("/v1/streams/s/keys/k", Value::Null, "stream forget"),
        ("POST", "/v1/sweeps/{s}/run") => ("/v1/sweeps/changes/run", Value::Null, "sweep run"),
        ("POST", "/v1/breakers/{b}/reset") => ("/v1/breakers/q/reset", Value::Null, "breaker reset"),
        _ => panic!("{method} {pattern} changes something, and has no case here"),
    }
}

/// The routes that need an administrator, as the API describes them.
fn changes() -> Vec<(String, String)> {
    let described = serde_json::to_value(api::description("")).unwrap();
    let mut routes = Vec::new();
    for (pattern, item) in described["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if need(&method.parse().unwrap(), pattern) == Need::Scope(Scope::Admin) {
                routes.push((method, pattern.clone()));
            }
        }
    }
    routes
}

/// Something of everything that can be changed.
async fn given() -> (Api, TempDir) {
    let (folder, address) = database();
    let api = given_with(&sweep(&address, UNPROCESSED));
    api.bury("q", "dead", "boom").await;
    api.push("q", "ready").await;
    let record = json!({ "key": "k", "position": 60, "step": 60, "payload": 1 });
    api.post("/v1/streams/s/records", record).await.ok();
    api.backstop.breakers().open(&"q".parse().unwrap(), "test").await.unwrap();
    (api, folder)
}

#[tokio::test]
async fn each_change_by_an_operator_is_one_entry_in_their_name() {
    let routes = changes();
    assert!(routes.len() >= 12, "{routes:?}");
    for (method, pattern) in routes {
        let (api, _folder) = given().await;
        assert!(api.audit().await.is_empty(), "who pushes and works leaves no entry");
        let (address, body, what) = case(&method, &pattern);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = api.ask(method.parse::<Method>().unwrap(), address, body).await;
        assert!(answer.status.is_success(), "{method} {pattern}: {} {}", answer.status, answer.text);
        // A redrive goes on behind its answer.
        let noted = async {
            while api.audit().await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), noted).await.expect(&pattern);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let audit = api.audit().await;
        assert_eq!(audit.len(), 1, "{method} {pattern}: {audit:?}");
        assert!(audit[0].what.starts_with(what) && audit[0].who == "ada", "{method} {pattern}: {audit:?}");
    }
}
