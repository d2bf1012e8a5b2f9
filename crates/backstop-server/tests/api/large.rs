//! What there is too much of: lists, delays, policies, names of workers.

use crate::given::{given, given_for};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use backstop::Span;
use backstop::core::limits::{
    BEAT_LEASES_MAX, CALLER_BODIES_MAX, CALLER_BODIES_WAITING_MAX, CALLER_READS_MAX,
    CALLER_READS_WAITING_MAX, CLAIM_QUEUES_MAX, ENQUEUE_JOBS_MAX, OFFER_MAX, RETRY_STEPS_MAX,
    SETTLE_MAX, WORKERS_OF_CALLER_MAX,
};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::pending;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::convert::Infallible;

#[tokio::test]
async fn a_list_is_read_up_to_its_bound_and_no_further() {
    let api = given();
    for (path, name, entry, max) in [
        (
            "/v1/jobs/batch",
            "jobs",
            r#"{"queue":"q","payload":0}"#,
            ENQUEUE_JOBS_MAX,
        ),
        (
            "/v1/settle",
            "settle",
            r#"{"id":"a","lease":"b","outcome":"done"}"#,
            SETTLE_MAX,
        ),
        (
            "/v1/beat",
            "leases",
            r#"{"id":"a","lease":"b"}"#,
            BEAT_LEASES_MAX,
        ),
        (
            "/v1/streams/s/records",
            "records",
            r#"{"key":"k","position":1,"step":1}"#,
            OFFER_MAX,
        ),
    ] {
        let list = format!(r#"{{"{name}":[{}"#, vec![entry; max + 1].join(","));
        // Whoever read on would find out that this is no JSON.
        let detail = api.ask(Method::POST, path, list + ",!!").await.problem(413);
        assert!(
            detail.contains(&format!("at most {max} go into one request")),
            "{detail}"
        );
    }
    let retry = r#"{"queue":"q","payload":0,"retry":{"kind""#;
    for (path, begin, entry, max, said) in [
        (
            "/v1/lease",
            r#"{"queues":["#.to_owned(),
            r#""q""#,
            CLAIM_QUEUES_MAX,
            "1 to 256 queues",
        ),
        (
            "/v1/jobs",
            format!(r#"{retry}:"steps","delays":["#),
            r#""1s""#,
            RETRY_STEPS_MAX,
            "1 to 100 delays",
        ),
        (
            "/v1/jobs",
            format!(r#"{retry}:"progressive","bands":["#),
            r#"{"until":"1d","every":"5m"}"#,
            RETRY_STEPS_MAX,
            "1 to 100 bands",
        ),
    ] {
        let list = begin + &vec![entry; max + 1].join(",") + ",!!";
        let detail = api.ask(Method::POST, path, list).await.problem(400);
        assert!(detail.contains(said), "{detail}");
    }
    let page = api.get("/v1/jobs").await.ok();
    assert_eq!(page["jobs"], json!([]), "nothing was pushed");
}

#[tokio::test]
async fn large_bodies_of_one_caller_keep_none_of_another_out() {
    let [many, one] = given_for(["many", "one"]);
    // Bodies that never end: so many are received, and so many wait for that.
    for _ in 0..CALLER_BODIES_MAX + CALLER_BODIES_WAITING_MAX {
        let many = many.clone();
        tokio::spawn(async move {
            let endless = Body::from_stream(pending::<Result<Bytes, Infallible>>());
            many.ask(Method::POST, "/v1/jobs/batch", endless).await
        });
    }
    tokio::task::yield_now().await;
    let job = json!({ "queue": "q", "payload": "x".repeat(300 << 10) });
    let batch = json!({ "jobs": [job] });
    let detail = many
        .post("/v1/jobs/batch", batch.clone())
        .await
        .problem(429);
    assert!(detail.contains("nothing was done"), "{detail}");
    one.post("/v1/jobs/batch", batch).await.ok();
    // What is small needs no place.
    many.push("q", "small").await;
}

#[tokio::test]
async fn one_caller_looks_at_a_few_large_jobs_at_once() {
    let api = given();
    for (name, bytes, refused) in [
        ("small", 1, 0),
        (
            "large",
            1_000_000,
            100 - CALLER_READS_MAX - CALLER_READS_WAITING_MAX,
        ),
    ] {
        let job = json!({ "queue": "q", "payload": "x".repeat(bytes), "id": name });
        api.post("/v1/jobs", job).await.ok();
        let address = format!("/v1/jobs/{name}");
        let answers = join_all((0..100).map(|_| api.get(&address))).await;
        let busy = answers
            .iter()
            .filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(busy.count(), refused, "{name}");
    }
}

#[tokio::test]
async fn a_large_batch_is_taken_and_listed_as_it_is() {
    let api = given();
    let job =
        |n: usize| json!({ "queue": "q", "payload": "x".repeat(1_000), "id": format!("j{n}") });
    let jobs: Vec<Value> = (0..1_000).map(job).collect();
    let answer = api
        .post("/v1/jobs/batch", json!({ "jobs": jobs }))
        .await
        .ok();
    assert_eq!(answer["results"].as_array().unwrap().len(), 1_000);
    let page = api.get("/v1/jobs?queue=q&limit=1000").await.ok();
    assert!(
        page["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|job| job["payload"] == "x".repeat(1_000))
    );
    assert!(
        api.lease("q", 600).await.len() > 300,
        "a large lease is written elsewhere, too"
    );
}

#[tokio::test]
async fn a_job_runs_within_ten_years_and_its_policy_has_a_hundred_steps() {
    let api = given();
    let push = async |field: &str, value: Value| {
        let mut job = json!({ "queue": "q", "payload": 1 });
        job[field] = value;
        let batch = json!({ "jobs": [{ "queue": "q", "payload": 1 }, job.clone()] });
        [
            api.post("/v1/jobs", job).await,
            api.post("/v1/jobs/batch", batch).await,
        ]
    };
    let later = api.backstop.now().after(Span::days(3_661));
    for (field, value, said) in [
        ("delay", json!("106751991d"), "ten years"),
        ("delay", json!("3661d"), "ten years"),
        ("run_at", json!(later), "ten years"),
        (
            "retry",
            json!({ "kind": "steps", "delays": vec!["1s"; RETRY_STEPS_MAX + 1] }),
            "1 to 100 delays",
        ),
    ] {
        for answer in push(field, value).await {
            let detail = answer.problem(400);
            assert!(detail.contains(said), "{detail}");
        }
    }
    assert_eq!(api.get("/v1/jobs").await.ok()["jobs"], json!([]));
    for answer in push("delay", json!("3660d")).await {
        answer.ok();
    }
}

#[tokio::test]
async fn a_caller_invents_so_many_workers_and_they_are_listed_in_pages() {
    let api = given();
    let ask = |worker: usize| json!({ "queues": ["q"], "worker": format!("w{worker:04}") });
    for worker in 0..WORKERS_OF_CALLER_MAX {
        api.post("/v1/lease", ask(worker)).await.ok();
    }
    for path in ["/v1/lease", "/v1/beat"] {
        let mut body = ask(WORKERS_OF_CALLER_MAX);
        if path == "/v1/beat" {
            body.as_object_mut().unwrap().remove("queues");
        }
        let answer = api.post(path, body).await;
        assert_eq!(answer.headers["retry-after"], "60");
        assert!(answer.problem(429).contains("1000 worker names"));
    }
    api.post("/v1/lease", ask(0)).await.ok();
    let (mut names, mut address) = (BTreeSet::new(), "/v1/workers?limit=300".to_owned());
    let mut pages = 0;
    loop {
        let page = api.get(&address).await.ok();
        let workers = page["workers"].as_array().unwrap();
        assert!(workers.len() <= 300);
        names.extend(
            workers
                .iter()
                .map(|worker| worker["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        let Some(next) = page["next"].as_str() else {
            break;
        };
        address = format!("/v1/workers?limit=300&cursor={next}");
    }
    assert_eq!((names.len(), pages), (WORKERS_OF_CALLER_MAX, 4));
    let whole = api.get("/v1/workers").await.ok();
    assert_eq!(
        whole["workers"].as_array().unwrap().len(),
        WORKERS_OF_CALLER_MAX
    );
}

#[tokio::test]
async fn a_settlement_is_answered_under_the_id_it_was_sent_with() {
    let api = given();
    api.push("q", "invoice-7").await;
    let leased = api.lease("q", 1).await.remove(0);
    let end = |id: &str, lease: &Value| json!({ "id": id, "lease": lease, "outcome": "done" });
    let ends = json!([end("nope", &json!("x")), end("invoice-7", &leased["lease"])]);
    let results = api.post("/v1/settle", json!({ "settle": ends })).await.ok()["results"].clone();
    let expected =
        json!([{ "id": "nope", "result": "stale" }, { "id": "invoice-7", "result": "applied" }]);
    assert_eq!(results, expected);
}

#[tokio::test]
async fn an_error_is_an_object_with_a_message_and_memory_a_number_of_64_bits() {
    let api = given();
    let end = |error: Value| json!({ "settle": [{ "id": "a", "lease": "b", "outcome": "failed", "error": error }] });
    let detail = api
        .post("/v1/settle", end(json!("boom")))
        .await
        .problem(400);
    assert!(
        detail.contains(r#"`error` as an object: {"message":"boom"}"#),
        "{detail}"
    );
    api.post("/v1/settle", end(json!({}))).await.problem(400);
    api.post("/v1/settle", end(json!({ "message": "boom" })))
        .await
        .ok();
    api.post("/v1/beat", json!({ "memory_bytes": i64::MAX }))
        .await
        .ok();
    api.post("/v1/beat", json!({ "memory_bytes": i64::MAX as u64 + 1 }))
        .await
        .problem(400);
}
