//! Every route that changes something on an operator's word × the audit, and the list of it.

use crate::given::{Api, given_with};
use crate::recovery::{UNPROCESSED, database, sweep};
use axum::http::Method;
use backstop::Span;
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
        ("POST", "/v1/bulk") => {
            ("/v1/bulk", json!({ "action": "cancel", "matching": { "queue": "q" } }), "job cancel")
        }
        ("POST", "/v1/bulk/{id}/stop") => ("/v1/bulk/left/stop", Value::Null, "bulk stop"),
        ("POST", "/v1/bulk/{id}/resume") => ("/v1/bulk/left/resume", Value::Null, "job cancel"),
        ("POST", "/v1/workers/{w}/quiet") => ("/v1/workers/w/quiet", Value::Null, "worker quiet"),
        ("POST", "/v1/workers/{w}/resume") => ("/v1/workers/w/resume", Value::Null, "worker resume"),
        ("POST", "/v1/workers/{w}/stop") => ("/v1/workers/w/stop", Value::Null, "worker stop"),
        _ => panic!("{method} {pattern} changes something, and has no case here"),
    }
}

/// `größer, password=hunter2`, in an address.
const REASON: &str = "gr%C3%B6%C3%9Fer%2C+password%3Dhunter2";

/// The routes that change something and need an administrator, as the API describes them.
fn changes() -> Vec<(String, String)> {
    let described = serde_json::to_value(api::description("")).unwrap();
    let mut routes = Vec::new();
    for (pattern, item) in described["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if method != "GET" && need(&method.parse().unwrap(), pattern) == Need::Scope(Scope::Admin) {
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
    api.post("/v1/beat", json!({ "worker": "w" })).await.ok();
    api.backstop.breakers().open(&"q".parse().unwrap(), "test").await.unwrap();
    crate::bulk::left(&api.backstop, "left", "q").await;
    (api, folder)
}

#[tokio::test]
async fn each_change_by_an_operator_is_one_entry_in_their_name_and_for_their_reason() {
    let routes = changes();
    assert!(routes.len() >= 12, "{routes:?}");
    for (method, pattern) in routes {
        let (api, _folder) = given().await;
        assert!(api.audit().await.is_empty(), "who pushes and works leaves no entry");
        let (address, body, what) = case(&method, &pattern);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let address = format!("{address}?reason={REASON}");
        let answer = api.ask(method.parse::<Method>().unwrap(), &address, body).await;
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
        let told = audit[0].reason.as_deref();
        assert_eq!(told, Some("größer, password=[redacted]"), "{method} {pattern}");
    }
}

#[tokio::test]
async fn the_audit_is_listed_page_by_page_the_newest_first_and_can_be_filtered() {
    let api = crate::given::given();
    for n in 0..7 {
        api.post(&format!("/v1/queues/q{n}/pause"), Value::Null).await.ok();
        api.clock.advance(Span::secs(1));
    }
    api.backstop.changes("grace").resume(&"q0".parse().unwrap()).await.unwrap();
    let (mut found, mut address) = (Vec::new(), "/v1/audit?limit=3".to_owned());
    loop {
        let page = api.get(&address).await.ok();
        let entries = page["entries"].as_array().unwrap().clone();
        assert!(entries.len() <= 3, "{page}");
        found.extend(entries);
        let Some(next) = page["next"].as_str() else { break };
        address = format!("/v1/audit?limit=3&cursor={next}");
    }
    let queues: Vec<&str> = found.iter().map(|entry| entry["selection"]["queue"].as_str().unwrap()).collect();
    assert_eq!(queues, ["q0", "q6", "q5", "q4", "q3", "q2", "q1", "q0"]);
    let (newest, oldest) = (&found[0], &found[7]);
    assert_eq!((&newest["who"], &newest["what"]), (&json!("grace"), &json!("queue resume")));
    assert_eq!(
        (&oldest["who"], &oldest["count"], &oldest["error"]),
        (&json!("ada"), &json!(1), &Value::Null)
    );
    for (query, count) in [("who=grace", 1), ("what=pause", 7), ("who=ada&what=resume", 0), ("who=&what=", 8)]
    {
        let page = api.get(&format!("/v1/audit?{query}")).await.ok();
        assert_eq!(page["entries"].as_array().unwrap().len(), count, "{query}: {page}");
    }
}

#[tokio::test]
async fn a_page_of_the_audit_that_cannot_be_is_refused() {
    let api = crate::given::given();
    for query in ["limit=ten", "cursor=%00", "cursor=a%20b", "cursor=%C3%A4", "since=1"] {
        api.get(&format!("/v1/audit?{query}")).await.problem(400);
    }
    assert_eq!(api.get("/v1/audit?cursor=zzz").await.ok(), json!({ "entries": [], "next": null }));
    assert_eq!(api.get("/v1/audit").await.ok(), json!({ "entries": [], "next": null }));
}

#[tokio::test]
async fn a_reason_is_listed_and_one_that_is_none_changes_nothing() {
    let api = crate::given::given();
    let long = "a".repeat(201);
    for (reason, told) in [("two%0Alines", "one line"), ("+", "says nothing"), (long.as_str(), "at most 200")]
    {
        for (method, pattern) in changes() {
            let (address, body, _) = case(&method, &pattern);
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let address = format!("{address}?reason={reason}");
            let detail = api.ask(method.parse::<Method>().unwrap(), &address, body).await.problem(400);
            assert!(detail.contains(told), "{method} {address}: {detail}");
        }
    }
    assert!(api.audit().await.is_empty());
    api.post("/v1/queues/q/pause?reason=the+mail+server+moves", Value::Null).await.ok();
    api.clock.advance(Span::secs(1));
    api.post("/v1/queues/q/resume?reason=", Value::Null).await.ok();
    let entries = api.get("/v1/audit").await.ok()["entries"].clone();
    assert_eq!(
        (&entries[0]["reason"], &entries[1]["reason"]),
        (&Value::Null, &json!("the mail server moves"))
    );
}
