//! `/queues`.

use crate::given::given;
use serde_json::{Value, json};

#[tokio::test]
async fn queues_are_listed_with_their_counts() {
    let api = given();
    api.push("b", "1").await;
    api.push("a", "2").await;
    api.bury("a", "3", "x").await;
    let queues = api.get("/v1/queues").await.ok()["queues"].clone();
    let told: Vec<_> = queues
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| (&queue["name"], &queue["ready"], &queue["dead"]))
        .collect();
    // The first job of queue `a` was leased and buried in place of the third: one waits, one is
    // dead.
    assert_eq!(
        told,
        [
            (&json!("a"), &json!(1), &json!(1)),
            (&json!("b"), &json!(1), &json!(0))
        ]
    );
}

#[tokio::test]
async fn pausing_and_resuming_are_told_and_written_down() {
    let api = given();
    assert_eq!(
        api.post("/v1/queues/q/pause", Value::Null).await.ok(),
        json!({ "name": "q", "paused": true })
    );
    assert_eq!(
        api.get("/v1/queues").await.ok()["queues"][0]["paused"],
        true
    );
    assert_eq!(
        api.post("/v1/queues/q/resume", Value::Null).await.ok(),
        json!({ "name": "q", "paused": false })
    );
    let mut told: Vec<_> = api
        .audit()
        .await
        .into_iter()
        .map(|entry| (entry.what, entry.selection, entry.count))
        .collect();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let entry = |what: &str| (what.to_owned(), json!({ "queue": "q" }), Some(1));
    assert_eq!(told, [entry("queue pause"), entry("queue resume")]);
}

#[tokio::test]
async fn all_queues_are_paused_and_those_are_resumed() {
    let api = given();
    for queue in ["a", "b", "c"] {
        api.post("/v1/jobs", json!({ "queue": queue, "payload": 1 }))
            .await;
    }
    api.post("/v1/queues/b/pause", Value::Null).await.ok();
    let together = json!({ "count": 2, "queues": ["a", "c"] });
    assert_eq!(
        api.post("/v1/queues/pause?reason=moving", Value::Null)
            .await
            .ok(),
        together
    );
    let leased = api
        .post("/v1/lease", json!({ "queues": ["a", "b", "c"] }))
        .await
        .ok();
    assert_eq!(leased["jobs"], json!([]));
    assert_eq!(
        api.post("/v1/queues/resume", Value::Null).await.ok(),
        together
    );
    let leased = api
        .post("/v1/lease", json!({ "queues": ["a", "b", "c"], "max": 3 }))
        .await
        .ok();
    assert_eq!(
        leased["jobs"].as_array().unwrap().len(),
        2,
        "b was paused by itself: {leased}"
    );
}

#[tokio::test]
async fn what_cannot_be_a_queue_is_refused_with_the_letters_it_may_have() {
    let api = given();
    for name in ["a%20b", "..%2F..", "%00", &"q".repeat(129)] {
        let detail = api
            .post(&format!("/v1/queues/{name}/pause"), Value::Null)
            .await
            .problem(400);
        assert!(detail.contains("A-Z a-z 0-9"), "{detail}");
    }
    assert!(api.audit().await.is_empty());
}
