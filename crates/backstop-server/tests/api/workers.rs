//! `/workers`.

use crate::given::given;
use backstop::Span;
use serde_json::json;

#[tokio::test]
async fn workers_are_listed_with_what_they_hold_until_they_are_long_gone() {
    let api = given();
    assert_eq!(api.get("/v1/workers").await.ok(), json!({ "workers": [] }));
    api.push("q", "a").await;
    let leased = api.lease("q", 1).await.remove(0);
    let beat = json!({ "worker": "w1", "leases": [{ "id": leased["id"], "lease": leased["lease"] }] });
    api.post("/v1/beat", beat).await.ok();
    let worker = api.get("/v1/workers").await.ok()["workers"][0].clone();
    assert_eq!(
        (&worker["name"], &worker["live"], &worker["running"]),
        (&json!("w1"), &json!(true), &json!(1))
    );
    assert!(worker["seen_at"].is_string() && worker["queues"].is_array(), "{worker}");
    api.clock.advance(Span::minutes(2));
    assert_eq!(api.get("/v1/workers").await.ok()["workers"][0]["live"], false);
    api.clock.advance(Span::hours(1));
    assert_eq!(api.get("/v1/workers").await.ok(), json!({ "workers": [] }));
}
