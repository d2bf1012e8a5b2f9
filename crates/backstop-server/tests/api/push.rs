//! `POST /jobs` and `POST /jobs/batch`.

use crate::given::{given, given_with, on};
use axum::http::Method;
use backstop::core::port::Store;
use backstop::core::{Overflow, QueueBounds};
use backstop::{JobId, QueueName, Span};
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use backstop_testkit::clock::{an_hour_behind, is_near};
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test]
async fn a_job_comes_in_once_whoever_repeats_it() {
    let api = given();
    let job = json!({ "queue": "emails", "kind": "welcome", "payload": { "to": "ada" }, "id": "order-17", "unique_key": "ada" });
    let first = api.post("/v1/jobs", job.clone()).await;
    assert_eq!(first.status.as_u16(), 201);
    let first = first.ok();
    assert_eq!(first["result"], "inserted");
    let again = api.post("/v1/jobs", job).await;
    assert_eq!(
        (again.status.as_u16(), again.ok()["result"].clone()),
        (201, json!("same"))
    );
    let twin = json!({ "queue": "emails", "payload": null, "unique_key": "ada" });
    let twin = api.post("/v1/jobs", twin).await.ok();
    assert_eq!(
        (&twin["result"], &twin["id"], &twin["holder"]),
        (&json!("duplicate"), &first["id"], &first["id"])
    );
    let shown = api.get("/v1/jobs/order-17").await.ok();
    assert_eq!(
        (&shown["kind"], &shown["state"], &shown["attempt"]),
        (&json!("welcome"), &json!("ready"), &json!(0))
    );
}

#[tokio::test]
async fn a_payload_comes_back_byte_for_byte() {
    let api = given();
    let payload = r#"{"a": 1.0, "a":1e2, "big":9223372036854775808 , "nul":"\u0000","é":"🙂"}"#;
    let body = format!(r#"{{"queue":"q","id":"x","payload":{payload}}}"#);
    api.ask(Method::POST, "/v1/jobs", body).await.ok();
    assert!(api.get("/v1/jobs/x").await.text.contains(payload));
    let leased = api.post("/v1/lease", json!({ "queues": ["q"] })).await;
    assert!(leased.text.contains(payload), "{}", leased.text);
}

#[tokio::test]
async fn a_job_runs_not_before_its_time() {
    let api = given();
    api.post(
        "/v1/jobs",
        json!({ "queue": "q", "payload": 1, "id": "later", "delay": "10s" }),
    )
    .await
    .ok();
    api.post(
        "/v1/jobs",
        json!({ "queue": "q", "payload": 1, "id": "then", "run_at": "2026-01-01T00:00:20Z" }),
    )
    .await
    .ok();
    assert_eq!(api.state("later").await, "scheduled");
    assert!(api.lease("q", 5).await.is_empty());
    api.clock.advance(Span::secs(10));
    assert_eq!(api.lease("q", 5).await.len(), 1);
    api.clock.advance(Span::secs(10));
    assert_eq!(api.lease("q", 5).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_the_stores_time_where_no_worker_compares_the_clocks() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let job = |id: &str| json!({ "queue": "q", "payload": 1, "id": id, "delay": "10m" });
    for (path, id, body) in [
        ("/v1/jobs", "alone", job("alone")),
        (
            "/v1/jobs/batch",
            "batched",
            json!({ "jobs": [job("batched")] }),
        ),
    ] {
        let backstop = an_hour_behind(Arc::clone(&store)).await;
        let api = on(backstop.clone(), Arc::default(), "", &[Scope::Admin]);
        api.post(path, body).await.ok();
        let pushed = backstop.job(JobId::named(id)).await.expect("an answer");
        let run_at = pushed.expect("a job").run_at;
        let now = store.time().await.expect("a time");
        assert!(
            is_near(run_at, now.after(Span::minutes(10))),
            "{path}: {run_at} at {now}"
        );
    }
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let api = given();
    api.push("q", "b").await;
    let jobs = json!({ "jobs": [
        { "queue": "q", "payload": 1, "id": "a", "unique_key": "k" },
        { "queue": "q", "payload": 2, "id": "b" },
        { "queue": "other", "kind": "mail", "payload": 3, "priority": "high" },
        { "queue": "q", "payload": 4, "unique_key": "k", "retry": { "kind": "constant", "every": "1m" } },
    ] });
    let answer = api.post("/v1/jobs/batch", jobs).await.ok();
    let results: Vec<&Value> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["result"])
        .collect();
    assert_eq!(results, ["inserted", "same", "inserted", "duplicate"]);
    assert_eq!(
        api.post("/v1/jobs/batch", json!({ "jobs": [] })).await.ok(),
        json!({ "results": [] })
    );
}

#[tokio::test]
async fn of_a_batch_with_a_bad_job_nothing_goes_in_and_the_job_is_named() {
    let api = given();
    let jobs =
        json!({ "jobs": [{ "queue": "q", "payload": 1 }, { "queue": "a b", "payload": 2 }] });
    let detail = api.post("/v1/jobs/batch", jobs).await.problem(400);
    assert!(
        detail.starts_with("job 1: `a b` is not a queue name"),
        "{detail}"
    );
    assert_eq!(api.get("/v1/queues").await.ok(), json!({ "queues": [] }));
}

#[tokio::test]
async fn what_is_wrong_with_a_job_is_named() {
    let api = given();
    let detail = async |body: &str| {
        api.ask(Method::POST, "/v1/jobs", body.to_owned())
            .await
            .problem(400)
    };
    let checks = [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "expected a job: an object with `queue` and `payload`"),
        ("7", "expected a job: an object with `queue` and `payload`"),
        (r#"{"payload":1}"#, "names no `queue`"),
        (r#"{"queue":"q"}"#, "missing field `payload`"),
        (
            r#"{"queue":"q","payload":1,"quue":2}"#,
            "unknown field `quue`",
        ),
        (
            r#"{"queue":"q","payload":1,"run_at":"soon"}"#,
            "`soon` is not a time",
        ),
        (
            r#"{"queue":"q","payload":1,"delay":"soon"}"#,
            "`soon` is not a duration",
        ),
        (
            r#"{"queue":"q","payload":1,"delay":"1s","run_at":"2026-01-01T00:00:00Z"}"#,
            "keep one",
        ),
        (
            r#"{"queue":"q","payload":1,"priority":9}"#,
            "not a priority",
        ),
        (
            r#"{"queue":"q","payload":1,"unique_key":""}"#,
            "a unique key has 1 to",
        ),
        (r#"{"queue":"q","payload":1,"kind":"a\u0000"}"#, "no NUL"),
        (
            r#"{"queue":"q","payload":1,"retry":{"kind":"exponential","max_attempts":0}}"#,
            "max_attempts",
        ),
        (r#"{"queue":"q","payload":{"a":}}"#, "expected value"),
    ];
    for (body, part) in checks {
        let told = detail(body).await;
        assert!(told.contains(part), "{body}: {told}");
    }
}

#[tokio::test]
async fn json_that_is_no_text_or_too_deep_is_refused() {
    let api = given();
    let nested = |depth: usize| {
        format!(
            r#"{{"queue":"q","payload":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    api.ask(Method::POST, "/v1/jobs", nested(128)).await.ok();
    assert!(
        api.ask(Method::POST, "/v1/jobs", nested(129))
            .await
            .problem(400)
            .contains("nested 129 deep")
    );
    api.ask(Method::POST, "/v1/jobs", nested(100_000))
        .await
        .problem(400);
    for body in [
        &b"{\"queue\":\"q\",\"payload\":\"\xff\"}"[..],
        b"{\"queue\":\"\xff\",\"payload\":1}",
        b"\xff\xfe",
    ] {
        api.ask(Method::POST, "/v1/jobs", body.to_vec())
            .await
            .problem(400);
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_its_size() {
    let api = given();
    let job = |bytes: usize| format!(r#"{{"queue":"q","payload":"{}"}}"#, "x".repeat(bytes - 2));
    api.ask(Method::POST, "/v1/jobs", job(1 << 20)).await.ok();
    let detail = api
        .ask(Method::POST, "/v1/jobs", job((1 << 20) + 1))
        .await
        .problem(413);
    assert!(detail.contains("1048576 is the most"), "{detail}");
    api.ask(Method::POST, "/v1/jobs", job(3 << 20))
        .await
        .problem(413);
    let batch =
        |jobs: usize, bytes: usize| format!(r#"{{"jobs":[{}]}}"#, vec![job(bytes); jobs].join(","));
    api.ask(Method::POST, "/v1/jobs/batch", batch(8, 1 << 20))
        .await
        .ok();
    api.ask(Method::POST, "/v1/jobs/batch", batch(9, 1 << 20))
        .await
        .problem(413);
    api.ask(Method::POST, "/v1/jobs/batch", batch(1, (1 << 20) + 1))
        .await
        .problem(413);
    api.ask(Method::POST, "/v1/jobs/batch", batch(20, 1 << 20))
        .await
        .problem(413);
    api.ask(Method::POST, "/v1/jobs/batch", batch(5_001, 3))
        .await
        .problem(413);
}

#[tokio::test]
async fn a_full_queue_says_when_to_try_again() {
    let api = given_with("");
    let bounds = QueueBounds {
        max_size: Some(1),
        overflow: Overflow::Reject,
        ..QueueBounds::default()
    };
    api.backstop
        .store()
        .set_bounds(QueueName::new("q").unwrap(), bounds, api.backstop.now())
        .await
        .unwrap();
    let both = json!({ "jobs": [{ "queue": "q", "payload": 1 }, { "queue": "q", "payload": 2 }] });
    let answer = api.post("/v1/jobs/batch", both.clone()).await.ok();
    assert_eq!(
        (
            &answer["results"][0]["result"],
            &answer["results"][1]["result"]
        ),
        (&json!("inserted"), &json!("full"))
    );
    for (path, body) in [
        ("/v1/jobs", json!({ "queue": "q", "payload": 1 })),
        ("/v1/jobs/batch", both),
    ] {
        let answer = api.post(path, body).await;
        assert_eq!(answer.headers["retry-after"], "1");
        answer.problem(429);
    }
}

#[tokio::test]
async fn an_id_that_another_queue_has_is_a_conflict() {
    let api = given_with("");
    api.post(
        "/v1/jobs",
        json!({ "queue": "a", "payload": "squat", "id": "invoice-1001" }),
    )
    .await
    .ok();
    let job = json!({ "queue": "b", "payload": "the real one", "id": "invoice-1001" });
    let detail = api.post("/v1/jobs", job.clone()).await.problem(409);
    assert!(
        detail.contains("another queue") && !detail.contains("queue a"),
        "{detail}"
    );
    let batch = json!({ "jobs": [job, { "queue": "b", "payload": 2 }] });
    let results = api.post("/v1/jobs/batch", batch).await.ok()["results"].take();
    assert_eq!(
        (&results[0]["result"], &results[1]["result"]),
        (&json!("conflict"), &json!("inserted"))
    );
}
