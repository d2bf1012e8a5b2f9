//! The place in a trace that a job was pushed from, on its way to a worker elsewhere.

use crate::given::given;
use axum::body::Body;
use axum::http::Request;
use serde_json::json;

const PUSHED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_leased_job_brings_along_where_in_a_trace_it_was_pushed_from() {
    let api = given();
    let body = json!({ "queue": "q", "payload": {}, "id": "traced" }).to_string();
    let push = Request::post("/v1/jobs")
        .header("traceparent", PUSHED)
        .body(Body::from(body))
        .unwrap();
    api.send(push).await.ok();
    api.push("q", "plain").await;
    let leased = api.lease("q", 2).await;
    assert_eq!(leased[0]["traceparent"], PUSHED, "{}", leased[0]);
    assert!(
        leased[1].get("traceparent").is_none(),
        "the shape without one stays as it was: {}",
        leased[1]
    );
}
