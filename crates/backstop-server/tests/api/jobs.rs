//! `/jobs`: looking at jobs, and doing something to one.

use crate::given::{Api, given, given_with};
use backstop::{Exec, JobId, RunningWorker};
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn jobs_are_listed_by_what_they_are_and_page_by_page() {
    let api = given();
    for n in 0..5 {
        api.post(
            "/v1/jobs",
            json!({ "queue": "q", "kind": if n % 2 == 0 { "even" } else { "odd" }, "payload": n }),
        )
        .await
        .ok();
    }
    api.push("other", "x").await;
    let count = async |query: &str| {
        api.get(&format!("/v1/jobs{query}")).await.ok()["jobs"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        (
            count("").await,
            count("?queue=q").await,
            count("?queue=q&kind=even").await
        ),
        (6, 5, 3)
    );
    assert_eq!(
        (count("?state=ready").await, count("?state=dead").await),
        (6, 0)
    );
    assert_eq!(
        count("?queue=&kind=&state=&cursor=&limit=").await,
        6,
        "what is empty says nothing"
    );
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api
            .get(&format!(
                "/v1/jobs?queue=q&state=ready&limit=2&cursor={cursor}"
            ))
            .await
            .ok();
        seen.extend(
            page["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| job["payload"].clone()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        cursor = next.replace(' ', "%20");
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_job_has_all_its_fields_and_secrets_only_for_an_admin() {
    let api = given();
    let payload = json!({ "to": "ada", "password": "hunter2" });
    api.post(
        "/v1/jobs",
        json!({ "queue": "q", "payload": payload, "id": "a" }),
    )
    .await
    .ok();
    let job = api.get("/v1/jobs/a").await.ok();
    for field in [
        "id",
        "queue",
        "kind",
        "state",
        "payload",
        "attempt",
        "max_attempts",
        "lost_leases",
        "run_at",
        "inserted_at",
        "unique_key",
        "errors",
    ] {
        assert!(job.get(field).is_some(), "{field}");
    }
    assert_eq!(job["payload"], payload);
    let shown = &api.audit().await[0];
    assert_eq!(
        (shown.what.as_str(), shown.who.as_str()),
        ("job payload", "ada"),
        "a secret was shown"
    );
    assert_eq!(job["inserted_at"], "2026-01-01T00:00:00Z");
    let hidden = json!({ "to": "ada", "password": "[redacted]" });
    assert_eq!(
        api.get("/v1/jobs").await.ok()["jobs"][0]["payload"],
        hidden,
        "in lists for everybody"
    );
    let reader = api.with_scopes(&[Scope::Read]);
    assert_eq!(reader.get("/v1/jobs/a").await.ok()["payload"], hidden);
    api.push("q", "plain").await;
    api.get("/v1/jobs/plain").await.ok();
    assert_eq!(
        api.audit().await.len(),
        1,
        "what everybody may see is written down for nobody"
    );
}

#[tokio::test]
async fn an_error_text_is_redacted_wherever_it_is_told() {
    let api = given();
    api.push("q", "a").await;
    let job = api.lease("q", 1).await.remove(0);
    let error = json!({ "message": "login failed: password=hunter2" });
    api.settle(&job, json!({ "outcome": "failed", "error": error }))
        .await;
    for path in ["/v1/jobs/a", "/v1/jobs", "/v1/jobs/a/why"] {
        let answer = api.get(path).await;
        assert!(
            answer.text.contains("[redacted]") && !answer.text.contains("hunter2"),
            "{path}: {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_job_is_cancelled_retried_and_deleted_and_each_is_written_down_once() {
    let api = given();
    api.push("q", "a").await;
    assert_eq!(
        api.post("/v1/jobs/a/cancel", Value::Null).await.ok()["count"],
        1
    );
    assert_eq!(api.state("a").await, "cancelled");
    assert!(
        api.post("/v1/jobs/a/cancel", Value::Null)
            .await
            .problem(409)
            .contains("has ended already")
    );
    assert_eq!(
        api.post("/v1/jobs/a/retry", Value::Null).await.ok()["count"],
        1
    );
    assert!(
        api.post("/v1/jobs/a/retry", Value::Null)
            .await
            .problem(409)
            .contains("ready already")
    );
    assert_eq!(api.delete("/v1/jobs/a", Value::Null).await.ok()["count"], 1);
    api.get("/v1/jobs/a").await.problem(404);
    let mut told: Vec<_> = api
        .audit()
        .await
        .into_iter()
        .map(|entry| (entry.what, entry.who, entry.count))
        .collect();
    told.sort();
    let entry = |what: &str, count| (what.to_owned(), "ada".to_owned(), Some(count));
    let expected = [
        entry("job cancel", 1),
        entry("job delete", 1),
        entry("job retry", 1),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_refusal_names_who_holds_the_key() {
    let api = given();
    let job = |id: &str| json!({ "queue": "q", "payload": 1, "id": id, "unique_key": "k" });
    api.post("/v1/jobs", job("first")).await.ok();
    api.post("/v1/jobs/first/cancel", Value::Null).await.ok();
    let second = api.post("/v1/jobs", job("second")).await.ok();
    let detail = api
        .post("/v1/jobs/first/retry", Value::Null)
        .await
        .problem(409);
    assert!(detail.contains(second["id"].as_str().unwrap()), "{detail}");
}

#[tokio::test]
async fn a_running_job_is_not_deleted() {
    let api = given();
    api.push("q", "a").await;
    api.lease("q", 1).await;
    assert!(
        api.delete("/v1/jobs/a", Value::Null)
            .await
            .problem(409)
            .contains("cancel it first")
    );
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let api = given();
    api.get("/v1/jobs/nobody").await.problem(404);
    api.get("/v1/jobs/nobody/why").await.problem(404);
    for path in ["/v1/jobs/nobody/retry", "/v1/jobs/nobody/cancel"] {
        api.post(path, Value::Null).await.problem(404);
    }
    api.delete("/v1/jobs/nobody", Value::Null)
        .await
        .problem(404);
}

#[tokio::test]
async fn why_names_the_gate_and_what_opens_it() {
    let api = given();
    api.push("q", "a").await;
    api.post("/v1/queues/q/pause", Value::Null).await.ok();
    let why = api.get("/v1/jobs/a/why").await.ok();
    assert_eq!(
        (&why["gate"], &why["try"], &why["state"]),
        (
            &json!("paused"),
            &json!("backstop queue resume q"),
            &json!("ready")
        )
    );
}

/// An API with a job before each of these gates, called by its gate.
async fn before_each_gate() -> (Api, RunningWorker) {
    let api =
        given_with("[queues.limited]\nrate_limit = { count = 1, per = \"1h\", over = \"5m\" }\n");
    let push = async |queue: &str, id: &str, more: Value| {
        let mut job = json!({ "queue": queue, "payload": {}, "id": id });
        job.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        api.post("/v1/jobs", job).await.ok();
    };
    push("broken", "breaker_open", json!({})).await;
    api.post("/v1/breakers/broken/open", Value::Null).await.ok();
    push("limited", "first", json!({})).await;
    assert_eq!(api.lease("limited", 1).await.len(), 1);
    push("limited", "rate_limited", json!({})).await;
    push("twins", "unique_twin", json!({ "unique_key": "k" })).await;
    api.post("/v1/jobs/unique_twin/cancel", Value::Null)
        .await
        .ok();
    push("twins", "twin", json!({ "unique_key": "k" })).await;
    push("q", "not_due", json!({ "delay": "1h" })).await;
    let worker = api
        .backstop
        .worker()
        .name("ours")
        .handle_kind("strange", "ours", Exec::shell("true"))
        .start()
        .unwrap();
    push("strange", "unknown_kind", json!({ "kind": "theirs" })).await;
    (api, worker)
}

#[tokio::test(start_paused = true)]
async fn why_names_each_gate_and_what_opens_it() {
    let (api, _worker) = before_each_gate().await;
    let twin = JobId::named("twin").to_string();
    for (gate, detail, value, step) in [
        (
            "breaker_open",
            "until",
            json!(null),
            "backstop breaker reset broken",
        ),
        (
            "rate_limited",
            "count",
            json!(1),
            "a higher rate_limit for limited",
        ),
        (
            "unique_twin",
            "twin",
            json!(twin),
            &format!("backstop job why {twin}"),
        ),
        (
            "not_due",
            "at",
            json!("2026-01-01T01:00:00Z"),
            "backstop job retry",
        ),
        (
            "unknown_kind",
            "kind",
            json!("theirs"),
            "a worker of strange with a handler for theirs",
        ),
    ] {
        // The worker says what it knows in the background.
        let mut why = api.get(&format!("/v1/jobs/{gate}/why")).await.ok();
        for _ in 0..1_000 {
            if why["gate"] == gate {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            why = api.get(&format!("/v1/jobs/{gate}/why")).await.ok();
        }
        assert_eq!(
            (&why["gate"], &why["details"][detail]),
            (&json!(gate), &value),
            "{why}"
        );
        assert!(why["try"].as_str().unwrap().starts_with(step), "{why}");
        assert!(!why["why"].as_str().unwrap().is_empty(), "{why}");
    }
}

#[tokio::test]
async fn jobs_are_found_by_what_is_shown_of_their_payloads() {
    let api = given();
    for (id, payload) in [
        (
            "a",
            json!({ "to": "Ada@example.org", "password": "hunter2" }),
        ),
        (
            "b",
            json!({ "to": "bob@example.org", "password": "hunter3" }),
        ),
    ] {
        api.post(
            "/v1/jobs",
            json!({ "queue": "q", "id": id, "payload": payload }),
        )
        .await
        .ok();
    }
    let found = async |query: &str| {
        let page = api.get(&format!("/v1/jobs?{query}")).await.ok();
        assert_eq!(page["next"], Value::Null, "{query}");
        page["jobs"].as_array().unwrap().len()
    };
    for (query, count) in [
        ("text=ada%40example", 1),
        ("text=example.org", 2),
        ("text=example.org&state=ready&queue=q", 2),
        ("text=example.org&state=dead", 0),
        ("text=carol", 0),
        ("text=hunter", 0),
        ("text=hunter2", 0),
        ("text=%22hunter2%22", 0),
        ("text=%5Bredacted%5D", 2),
        ("text=", 2),
    ] {
        assert_eq!(found(query).await, count, "{query}");
    }
    let detail = api
        .get(&format!("/v1/jobs?text={}", "a".repeat(201)))
        .await
        .problem(400);
    assert!(detail.contains("at most 200 characters"), "{detail}");
}
