//! Every route that changes something on an operator's word × the audit, and the list of it.

use crate::given::{Api, given_with};
use crate::recovery::{UNPROCESSED, database, sweep};
use crate::streams::halted;
use axum::http::Method;
use backstop::Span;
use backstop::audit::AuditEntry;
use backstop::dead::DeadSelection;
use backstop::dead::redrive::RedrivePlan;
use backstop_server::access::{RequiredAccess, Scope, required_access};
use backstop_server::api;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

/// What is asked of a route, and the audit's word for it; a route that is missing here fails the
/// test.
fn case(method: &str, pattern: &str, redrive: &str) -> (String, Value, &'static [&'static str]) {
    let oldest = || json!({ "oldest": 1, "queue": "q" });
    let one = |address: &str, body: Value, what: &'static [&'static str]| {
        (address.to_owned(), body, what)
    };
    match (method, pattern) {
        ("POST", "/v1/dead/redrives/{id}/stop") => (
            format!("/v1/dead/redrives/{redrive}/stop"),
            Value::Null,
            &["redrive stop"],
        ),
        // It is left to the servers, and then one of them runs it.
        ("POST", "/v1/dead/redrives/{id}/resume") => (
            format!("/v1/dead/redrives/{redrive}/resume"),
            Value::Null,
            &["redrive ", "redrive leave"],
        ),
        ("POST", "/v1/streams/{s}/keys/{k}/disable") => one(
            "/v1/streams/s/keys/k/disable",
            Value::Null,
            &["stream disable"],
        ),
        ("POST", "/v1/streams/{s}/keys/{k}/enable") => one(
            "/v1/streams/s/keys/off/enable",
            Value::Null,
            &["stream enable"],
        ),
        ("POST", "/v1/streams/{s}/keys/{k}/resume") => one(
            "/v1/streams/s/keys/halted/resume",
            Value::Null,
            &["stream resume"],
        ),
        ("POST", "/v1/streams/{s}/keys/{k}/skip") => one(
            "/v1/streams/s/keys/halted/skip",
            Value::Null,
            &["stream resume past"],
        ),
        ("POST", "/v1/schedules/{s}/trigger") => one(
            "/v1/schedules/daily/trigger",
            Value::Null,
            &["schedule trigger"],
        ),
        ("POST", "/v1/schedules/{s}/pause") => one(
            "/v1/schedules/daily/pause",
            Value::Null,
            &["schedule pause"],
        ),
        ("POST", "/v1/schedules/{s}/resume") => one(
            "/v1/schedules/resting/resume",
            Value::Null,
            &["schedule resume"],
        ),
        ("POST", "/v1/breakers/{b}/open") => {
            one("/v1/breakers/q/open", Value::Null, &["breaker open"])
        }
        ("DELETE", "/v1/jobs/{id}") => one("/v1/jobs/ready", Value::Null, &["job delete"]),
        ("POST", "/v1/jobs/{id}/retry") => one("/v1/jobs/dead/retry", Value::Null, &["job retry"]),
        ("POST", "/v1/jobs/{id}/cancel") => {
            one("/v1/jobs/ready/cancel", Value::Null, &["job cancel"])
        }
        ("POST", "/v1/queues/{q}/pause") => {
            one("/v1/queues/q/pause", Value::Null, &["queue pause"])
        }
        ("POST", "/v1/queues/{q}/resume") => {
            one("/v1/queues/paused/resume", Value::Null, &["queue resume"])
        }
        ("POST", "/v1/queues/pause") => one("/v1/queues/pause", Value::Null, &["queue pause"]),
        ("POST", "/v1/queues/resume") => one("/v1/queues/resume", Value::Null, &["queue resume"]),
        ("POST", "/v1/dead/requeue") => one("/v1/dead/requeue", oldest(), &["requeue"]),
        ("POST", "/v1/dead/move") => one(
            "/v1/dead/move",
            json!({ "all": true, "to": "elsewhere" }),
            &["move to elsewhere"],
        ),
        ("POST", "/v1/dead/redrive") => {
            one("/v1/dead/redrive", json!({ "all": true }), &["redrive "])
        }
        ("DELETE", "/v1/dead") => one("/v1/dead", oldest(), &["delete"]),
        ("DELETE", "/v1/streams/{s}/keys/{k}") => {
            one("/v1/streams/s/keys/k", Value::Null, &["stream forget"])
        }
        ("POST", "/v1/sweeps/{s}/run") => {
            one("/v1/sweeps/changes/run", Value::Null, &["sweep run"])
        }
        ("POST", "/v1/breakers/{b}/reset") => {
            one("/v1/breakers/q/reset", Value::Null, &["breaker reset"])
        }
        ("POST", "/v1/workers/{w}/quiet") => {
            one("/v1/workers/w/quiet", Value::Null, &["worker quiet"])
        }
        ("POST", "/v1/workers/{w}/resume") => {
            one("/v1/workers/quiet/resume", Value::Null, &["worker resume"])
        }
        ("POST", "/v1/workers/{w}/stop") => {
            one("/v1/workers/w/stop", Value::Null, &["worker stop"])
        }
        ("POST", "/v1/bulk") => one(
            "/v1/bulk",
            json!({ "action": "cancel", "matching": { "queue": "q" } }),
            &["job cancel"],
        ),
        ("POST", "/v1/bulk/{id}/stop") => one("/v1/bulk/left/stop", Value::Null, &["bulk stop"]),
        ("POST", "/v1/bulk/{id}/resume") => {
            one("/v1/bulk/left/resume", Value::Null, &["job cancel"])
        }
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
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .map(|method| method.to_uppercase())
        {
            if method != "GET"
                && required_access(&method.parse().unwrap(), pattern)
                    == RequiredAccess::Scope(Scope::Admin)
            {
                routes.push((method, pattern.clone()));
            }
        }
    }
    routes
}

/// Something of everything that can be changed, and the id of a redrive whose runner is gone.
async fn given() -> (Api, String, TempDir) {
    let (folder, address) = database();
    let schedule =
        |name: &str| format!("[schedules.{name}]\ncron = \"30 8 * * *\"\nqueue = \"q\"\n");
    let schedules = schedule("daily") + &schedule("resting");
    let api = given_with(&format!("{}\n{schedules}", sweep(&address, UNPROCESSED)));
    let started_at = api.backstop.now();
    api.post(
        "/v1/beat",
        json!({ "worker": "quiet", "started_at": started_at }),
    )
    .await
    .ok();
    api.post("/v1/workers/quiet/quiet", Value::Null).await.ok();
    api.backstop
        .schedules()
        .pause(&"resting".parse().unwrap())
        .await
        .unwrap();
    api.push("paused", "waiting").await;
    api.push("with-all", "waiting too").await;
    api.post("/v1/queues/pause", Value::Null).await.ok();
    api.post("/v1/queues/paused/pause", Value::Null).await.ok();
    api.bury("q", "dead", "boom").await;
    let then_rate = "1/s".parse().unwrap();
    let plan = RedrivePlan {
        canary: 1,
        max_failures: 0,
        then_rate,
        selection: DeadSelection::All,
    };
    let redrive = api.backstop.dead().redrive(plan).await.unwrap();
    api.clock.advance(Span::minutes(1));
    halted(&api, "s", "halted", 60).await;
    let off = "off".parse().unwrap();
    api.backstop
        .stream("s")
        .unwrap()
        .disable(&off)
        .await
        .unwrap();
    api.push("q", "ready").await;
    let record = json!({ "key": "k", "position": 60, "step": 60, "payload": 1 });
    api.post("/v1/streams/s/records", record).await.ok();
    api.post("/v1/beat", json!({ "worker": "w" })).await.ok();
    api.backstop
        .breakers()
        .open(&"q".parse().unwrap(), "test")
        .await
        .unwrap();
    crate::bulk::left(&api.backstop, "left", "q").await;
    (api, redrive, folder)
}

/// What was done since it was given, the newest first.
async fn audit(api: &Api) -> Vec<AuditEntry> {
    let before = api.backstop.now().before(Span::secs(30));
    api.audit()
        .await
        .into_iter()
        .filter(|entry| entry.at > before)
        .collect()
}

#[tokio::test]
async fn each_change_by_an_operator_is_one_entry_in_their_name_and_for_their_reason() {
    let routes = changes();
    assert!(routes.len() >= 25, "{routes:?}");
    for (method, pattern) in routes {
        let (api, redrive, _folder) = given().await;
        assert!(
            audit(&api).await.is_empty(),
            "who pushes and works leaves no entry"
        );
        let (address, body, words) = case(&method, &pattern, &redrive);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let address = format!("{address}?reason={REASON}");
        let answer = api
            .ask(method.parse::<Method>().unwrap(), &address, body)
            .await;
        assert!(
            answer.status.is_success(),
            "{method} {pattern}: {} {}",
            answer.status,
            answer.text
        );
        // A redrive goes on behind its answer.
        let noted = async {
            while audit(&api).await.len() < words.len() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), noted)
            .await
            .expect(&pattern);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let audit = audit(&api).await;
        let mut said: Vec<&str> = audit.iter().map(|entry| entry.what.as_str()).collect();
        said.sort_unstable();
        assert_eq!(said.len(), words.len(), "{method} {pattern}: {audit:?}");
        assert!(
            said.iter()
                .zip(words)
                .all(|(said, word)| said.starts_with(word)),
            "{pattern}: {audit:?}"
        );
        for entry in &audit {
            let told = (entry.who.as_str(), entry.reason.as_deref());
            assert_eq!(
                told,
                ("ada", Some("größer, password=[redacted]")),
                "{method} {pattern}: {audit:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_audit_is_listed_page_by_page_the_newest_first_and_can_be_filtered() {
    let api = crate::given::given();
    for n in 0..7 {
        api.post(&format!("/v1/queues/q{n}/pause"), Value::Null)
            .await
            .ok();
        api.clock.advance(Span::secs(1));
    }
    api.backstop
        .changes("grace")
        .resume(&"q0".parse().unwrap())
        .await
        .unwrap();
    let (mut found, mut address) = (Vec::new(), "/v1/audit?limit=3".to_owned());
    loop {
        let page = api.get(&address).await.ok();
        let entries = page["entries"].as_array().unwrap().clone();
        assert!(entries.len() <= 3, "{page}");
        found.extend(entries);
        let Some(next) = page["next"].as_str() else {
            break;
        };
        address = format!("/v1/audit?limit=3&cursor={next}");
    }
    let queues: Vec<&str> = found
        .iter()
        .map(|entry| entry["selection"]["queue"].as_str().unwrap())
        .collect();
    assert_eq!(queues, ["q0", "q6", "q5", "q4", "q3", "q2", "q1", "q0"]);
    let (newest, oldest) = (&found[0], &found[7]);
    assert_eq!(
        (&newest["who"], &newest["what"]),
        (&json!("grace"), &json!("queue resume"))
    );
    assert_eq!(
        (&oldest["who"], &oldest["count"], &oldest["error"]),
        (&json!("ada"), &json!(1), &Value::Null)
    );
    for (query, count) in [
        ("who=grace", 1),
        ("what=pause", 7),
        ("who=ada&what=resume", 0),
        ("who=&what=", 8),
    ] {
        let page = api.get(&format!("/v1/audit?{query}")).await.ok();
        assert_eq!(
            page["entries"].as_array().unwrap().len(),
            count,
            "{query}: {page}"
        );
    }
}

#[tokio::test]
async fn a_page_of_the_audit_that_cannot_be_is_refused() {
    let api = crate::given::given();
    for query in [
        "limit=ten",
        "cursor=%00",
        "cursor=a%20b",
        "cursor=%C3%A4",
        "since=1",
    ] {
        api.get(&format!("/v1/audit?{query}")).await.problem(400);
    }
    assert_eq!(
        api.get("/v1/audit?cursor=zzz").await.ok(),
        json!({ "entries": [], "next": null })
    );
    assert_eq!(
        api.get("/v1/audit").await.ok(),
        json!({ "entries": [], "next": null })
    );
}

#[tokio::test]
async fn a_reason_is_listed_and_one_that_is_none_changes_nothing() {
    let api = crate::given::given();
    let long = "a".repeat(201);
    for (reason, told) in [
        ("two%0Alines", "one line"),
        ("+", "says nothing"),
        (long.as_str(), "at most 200"),
    ] {
        for (method, pattern) in changes() {
            let (address, body, _) = case(&method, &pattern, "x");
            let body = if body.is_null() {
                String::new()
            } else {
                body.to_string()
            };
            let address = format!("{address}?reason={reason}");
            let detail = api
                .ask(method.parse::<Method>().unwrap(), &address, body)
                .await
                .problem(400);
            assert!(detail.contains(told), "{method} {address}: {detail}");
        }
    }
    assert!(api.audit().await.is_empty());
    api.post(
        "/v1/queues/q/pause?reason=the+mail+server+moves",
        Value::Null,
    )
    .await
    .ok();
    api.clock.advance(Span::secs(1));
    api.post("/v1/queues/q/resume?reason=", Value::Null)
        .await
        .ok();
    let entries = api.get("/v1/audit").await.ok()["entries"].clone();
    assert_eq!(
        (&entries[0]["reason"], &entries[1]["reason"]),
        (&Value::Null, &json!("the mail server moves"))
    );
}
