//! What nobody should ask for, and a store that fails.

use crate::given::{Api, given, on};
use axum::http::Method;
use backstop::testing::start;
use backstop::{Backstop, RandomSource};
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use backstop_testkit::flaky::Flaky;
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test]
async fn the_length_of_a_list_is_clamped_whatever_is_asked() {
    let api = given();
    let jobs: Vec<Value> = (0..1_100)
        .map(|n| json!({ "queue": "q", "payload": n }))
        .collect();
    api.post("/v1/jobs/batch", json!({ "jobs": jobs }))
        .await
        .ok();
    for (limit, length) in [
        ("-1", 1),
        ("0", 1),
        ("1000000000", 1_000),
        ("1e9", 1_000),
        ("2.9", 2),
    ] {
        let page = api.get(&format!("/v1/jobs?limit={limit}")).await.ok();
        assert_eq!(page["jobs"].as_array().unwrap().len(), length, "{limit}");
    }
    for list in ["/v1/jobs", "/v1/dead", "/v1/dead/groups"] {
        for limit in ["NaN", "ten", "%00", "1%3BDROP", "0x10"] {
            api.get(&format!("{list}?limit={limit}")).await.problem(400);
        }
    }
}

#[tokio::test]
async fn answers_write_controls_out_and_a_worker_gets_its_payload_byte_for_byte() {
    let api = given();
    let is_raw = |text: &str| text.contains(['\u{7f}', '\u{9b}', '\u{202e}']);
    let hostile = "a\u{7f}b\u{9b}31mc\u{202e}d";
    let job = json!({ "queue": "q", "kind": hostile, "payload": hostile, "id": "a" });
    assert!(is_raw(&job.to_string()));
    api.post("/v1/jobs", job).await.ok();
    for path in ["/v1/jobs", "/v1/jobs/a", "/v1/jobs/a/why"] {
        let answer = api.get(path).await;
        assert!(!is_raw(&answer.text), "{path}: {}", answer.text);
    }
    assert_eq!(api.get("/v1/jobs/a").await.ok()["payload"], hostile);
    let asked = json!({ "queues": [hostile] });
    let answer = api.post("/v1/lease", asked).await;
    assert!(!is_raw(&answer.text), "{}", answer.text);
    assert!(answer.problem(400).contains(hostile));
    let answer = api.post("/v1/lease", json!({ "queues": ["q"] })).await;
    let payload = json!(hostile).to_string();
    assert!(answer.text.contains(&payload), "{}", answer.text);
}

#[tokio::test]
async fn parameters_that_mean_nothing_are_named() {
    let api = given();
    let checks = [
        ("/v1/jobs?stat=dead", "stat"),
        ("/v1/jobs?state=done-ish", "`done-ish` is not a state"),
        ("/v1/jobs?queue=a%20b", "not a queue name"),
        ("/v1/jobs?queue=%27%3B--", "not a queue name"),
        ("/v1/jobs?cursor=garbage", "cursor"),
        ("/v1/jobs?state=dead&cursor=a~1", "cursor"),
        ("/v1/dead?cursor=%00", "cursor"),
        ("/v1/dead?fingerprint=zz", "fingerprint"),
        ("/v1/dead?since=yesterday", "`yesterday` is not a time"),
        ("/v1/jobs?limit=1&limit=2", "limit"),
    ];
    for (path, part) in checks {
        let detail = api.get(path).await.problem(400);
        assert!(detail.contains(part), "{path}: {detail}");
    }
}

#[tokio::test]
async fn ids_that_climb_or_end_early_are_names_like_any_other() {
    let api = given();
    for id in [
        "..%2F..%2Fetc%2Fpasswd",
        "%2e%2e",
        "a%00b",
        "%3Cscript%3E",
        "'%20OR%201=1--",
        &"x".repeat(5_000),
    ] {
        api.get(&format!("/v1/jobs/{id}")).await.problem(404);
        api.post(&format!("/v1/jobs/{id}/retry"), Value::Null)
            .await
            .problem(404);
        api.delete(&format!("/v1/jobs/{id}"), Value::Null)
            .await
            .problem(404);
    }
    api.get("/v1/jobs/%ff").await.problem(400);
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_problems_too() {
    let api = given();
    for path in ["/v1", "/v1/", "/v1/nothing", "/v1/jobs/a/b/c", "/v1/../etc"] {
        let answer = api.get(path).await;
        assert_eq!(answer.status.as_u16(), 404, "{path}");
    }
    assert!(
        api.get("/v1/nothing")
            .await
            .problem(404)
            .contains("there is no /v1/nothing; /openapi.json")
    );
    assert!(
        api.get("/v1/")
            .await
            .problem(404)
            .contains("there is no /v1/;")
    );
    let told = api.ask(Method::PUT, "/v1/jobs", "").await.problem(405);
    assert!(told.contains("PUT does not go with /v1/jobs;"), "{told}");
    for (method, path) in [
        (Method::PUT, "/v1/jobs"),
        (Method::GET, "/v1/lease"),
        (Method::DELETE, "/v1/queues/q/pause"),
    ] {
        api.ask(method, path, "").await.problem(405);
    }
}

/// An API on a store that fails as it is told to.
pub(crate) fn flaky() -> (Api, Arc<Flaky>) {
    let clock = start().clock;
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let backstop = Backstop::on(store.clone(), clock.clone(), RandomSource::seeded(1));
    (on(backstop, clock, "", &[Scope::Admin]), store)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_an_error_and_never_an_empty_list() {
    let (api, store) = flaky();
    api.push("q", "a").await;
    store.set_down(true);
    let gets = [
        "/v1/jobs",
        "/v1/jobs/a",
        "/v1/jobs/a/why",
        "/v1/queues",
        "/v1/dead",
        "/v1/dead/stats",
        "/v1/dead/groups",
        "/v1/streams",
        "/v1/streams/s/keys",
        "/v1/schedules",
        "/v1/breakers",
        "/v1/audit",
    ];
    for path in gets {
        let answer = api.get(path).await;
        assert_eq!(answer.headers["retry-after"], "1", "{path}");
        assert!(answer.problem(503).contains("again"), "{path}");
    }
    let posts = [
        ("/v1/jobs", json!({ "queue": "q", "payload": 1 })),
        (
            "/v1/jobs/batch",
            json!({ "jobs": [{ "queue": "q", "payload": 1 }] }),
        ),
        ("/v1/lease", json!({ "queues": ["q"] })),
        (
            "/v1/settle",
            json!({ "settle": [{ "id": "a", "lease": "4000000000000000-1-3a98--q", "outcome": "failed" }] }),
        ),
        ("/v1/beat", json!({ "worker": "w", "leases": [] })),
        ("/v1/jobs/a/retry", Value::Null),
        ("/v1/queues/q/pause", Value::Null),
        ("/v1/dead/requeue", json!({ "all": true })),
        (
            "/v1/streams/s/records",
            json!({ "key": "a", "position": 1, "step": 1 }),
        ),
        ("/v1/breakers/q/reset", Value::Null),
    ];
    for (path, body) in posts {
        api.post(path, body).await.problem(503);
    }
    store.set_down(false);
    assert_eq!(api.state("a").await, "ready");
}
