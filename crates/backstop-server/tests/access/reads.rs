//! Lists of one caller, and what must never wait behind them.

use crate::given::{GUARDED, Site, bearing, empty, request};
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use backstop_core::limits::{CALLER_READS_MAX, CALLER_READS_WAITING_MAX};
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use backstop_testkit::flaky::Flaky;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

#[tokio::test(start_paused = true)]
async fn one_caller_has_a_few_lists_under_way_and_nothing_else_waits_behind_them() {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let site = Site::on(Arc::<Flaky>::clone(&store), GUARDED);
    let [greedy, other] = [
        site.token(&[Scope::Admin], None).await,
        site.token(&[Scope::Admin], None).await,
    ];
    store.hang("queues");
    let ask = |token: &str, address: &str| empty(bearing(request(Method::GET, address), token));
    let mut asking = Vec::new();
    for _ in 0..CALLER_READS_MAX + CALLER_READS_WAITING_MAX {
        asking.push(tokio::spawn(
            site.router
                .clone()
                .oneshot(ask(&greedy.token, "/v1/queues")),
        ));
        tokio::task::yield_now().await;
    }
    for (address, content) in [
        ("/v1/queues", "application/problem+json"),
        ("/queues", "text/html; charset=utf-8"),
    ] {
        let got = site.ask(ask(&greedy.token, address)).await;
        assert_eq!(got.status, StatusCode::TOO_MANY_REQUESTS, "{address}");
        assert_eq!(got.text(header::RETRY_AFTER), "1");
        assert_eq!(got.text(header::CONTENT_TYPE), content);
    }
    for address in ["/readyz", "/healthz", "/v1/capabilities", "/openapi.json"] {
        assert_eq!(
            site.ask(ask(&greedy.token, address)).await.status,
            StatusCode::OK,
            "{address}"
        );
    }
    let post = async |path: &str, body: Value| {
        let builder = bearing(request(Method::POST, path), &greedy.token);
        site.ask(builder.body(Body::from(body.to_string())).unwrap())
            .await
            .status
    };
    assert_eq!(
        post("/v1/jobs", json!({ "queue": "q", "payload": 1 })).await,
        StatusCode::CREATED
    );
    assert_eq!(
        post("/v1/lease", json!({ "queues": ["q"], "worker": "w" })).await,
        StatusCode::OK
    );
    assert_eq!(
        post("/v1/beat", json!({ "worker": "w" })).await,
        StatusCode::OK
    );
    assert_eq!(
        post("/v1/settle", json!({ "settle": [] })).await,
        StatusCode::OK
    );
    let cancel = json!({ "action": "cancel", "matching": { "queue": "q" } });
    assert_eq!(
        post("/v1/bulk", cancel).await,
        StatusCode::TOO_MANY_REQUESTS,
        "it counts what matches"
    );
    let got = site.ask(ask(&other.token, "/v1/audit")).await;
    assert_eq!(
        got.status,
        StatusCode::OK,
        "another caller of the same name has turns of its own"
    );
    for request in asking {
        request.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_bulk_action_without_a_place_counts_nothing() {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let site = Site::on(Arc::<Flaky>::clone(&store), GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    let post = async |path: &str, body: Value| {
        let builder = bearing(request(Method::POST, path), &token);
        let asked = builder.body(Body::from(body.to_string())).unwrap();
        site.ask(asked).await.status
    };
    let job = json!({ "queue": "q", "payload": 1 });
    assert_eq!(post("/v1/jobs", job).await, StatusCode::CREATED);
    // What is started goes on for ever.
    store.hang("amend");
    store.hang("jobs");
    let cancel = json!({ "action": "cancel", "matching": { "queue": "q" } });
    for _ in 0..3 {
        let status = post("/v1/bulk", cancel.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED);
    }
    store.hang("queues");
    assert_eq!(
        post("/v1/bulk", cancel).await,
        StatusCode::TOO_MANY_REQUESTS
    );
}
