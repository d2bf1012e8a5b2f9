//! `/workers`.

use crate::given::given;
use backstop::Span;
use serde_json::json;

#[tokio::test]
async fn workers_are_listed_with_what_they_hold_until_they_are_long_gone() {
    let api = given();
    assert_eq!(
        api.get("/v1/workers").await.ok(),
        json!({ "workers": [], "next": null })
    );
    api.push("q", "a").await;
    let leased = api.lease("q", 1).await.remove(0);
    let beat =
        json!({ "worker": "w1", "leases": [{ "id": leased["id"], "lease": leased["lease"] }] });
    api.post("/v1/beat", beat).await.ok();
    let worker = api.get("/v1/workers").await.ok()["workers"][0].clone();
    assert_eq!(
        (&worker["name"], &worker["live"], &worker["running"]),
        (&json!("w1"), &json!(true), &json!(1))
    );
    assert!(
        worker["seen_at"].is_string() && worker["queues"].is_array(),
        "{worker}"
    );
    api.clock.advance(Span::minutes(2));
    assert_eq!(
        api.get("/v1/workers").await.ok()["workers"][0]["live"],
        false
    );
    api.clock.advance(Span::hours(1));
    assert_eq!(
        api.get("/v1/workers").await.ok(),
        json!({ "workers": [], "next": null })
    );
}

#[tokio::test]
async fn a_worker_over_http_says_who_it_is_in_a_lease_or_a_beat() {
    let api = given();
    let about = json!({
        "queues": ["q"], "worker": "w1", "host": "web-1", "pid": 4711, "version": "2.0", "started_at": "2025-12-31T23:00:00Z",
        "concurrency": 4, "memory_bytes": 12_000_000,
    });
    assert_eq!(
        api.post("/v1/lease", about).await.ok(),
        json!({ "jobs": [] })
    );
    let worker = api.get("/v1/workers").await.ok()["workers"][0].clone();
    for (field, expected) in [
        ("host", json!("web-1")),
        ("pid", json!(4711)),
        ("version", json!("2.0")),
        ("started_at", json!("2025-12-31T23:00:00Z")),
        ("concurrency", json!(4)),
        ("memory_bytes", json!(12 << 20)),
        ("taken", json!(0)),
        ("state", json!("live")),
        ("asked", json!(null)),
        ("kinds", json!({})),
    ] {
        assert_eq!(worker[field], expected, "{field}: {worker}");
    }
    api.post(
        "/v1/beat",
        json!({ "worker": "w1", "host": "web-2", "pid": 1 }),
    )
    .await
    .ok();
    assert_eq!(
        api.get("/v1/workers").await.ok()["workers"][0]["host"],
        "web-2"
    );
    for wrong in [
        json!({ "pid": -1 }),
        json!({ "started_at": "yesterday" }),
        json!({ "host": 7 }),
        json!({ "memory": 1 }),
    ] {
        api.post("/v1/beat", wrong).await.problem(400);
    }
}

#[tokio::test]
async fn a_worker_is_quieted_resumed_and_stopped_and_hears_of_it() {
    let api = given();
    api.push("q", "a").await;
    let beat = json!({ "worker": "web/1" });
    let lease = json!({ "queues": ["q"], "worker": "web/1" });
    assert_eq!(
        api.post("/v1/beat", beat.clone()).await.ok(),
        json!({ "lost": [] })
    );
    let order = async |order: &str| {
        api.post(&format!("/v1/workers/web%2F1/{order}"), json!(null))
            .await
    };
    assert_eq!(
        order("quiet").await.ok(),
        json!({ "name": "web/1", "asked": "quiet", "changed": true })
    );
    assert_eq!(order("quiet").await.ok()["changed"], false);
    api.clock.advance(Span::secs(2));
    assert_eq!(
        api.post("/v1/lease", lease.clone()).await.ok(),
        json!({ "jobs": [], "asked": "quiet" })
    );
    assert_eq!(
        api.post("/v1/beat", beat.clone()).await.ok(),
        json!({ "lost": [], "asked": "quiet" })
    );
    let worker = api.get("/v1/workers").await.ok()["workers"][0].clone();
    assert_eq!(
        (&worker["state"], &worker["asked"], &worker["live"]),
        (&json!("quiet"), &json!("quiet"), &json!(true))
    );
    assert!(
        worker["asked_by"].is_string() && worker["asked_at"].is_string(),
        "{worker}"
    );
    assert_eq!(order("stop").await.ok()["asked"], "stop");
    api.clock.advance(Span::secs(2));
    assert_eq!(
        api.post("/v1/beat", beat.clone()).await.ok()["asked"],
        "stop"
    );
    assert_eq!(
        api.get("/v1/workers").await.ok()["workers"][0]["state"],
        "stopping"
    );
    assert_eq!(
        order("resume").await.ok(),
        json!({ "name": "web/1", "asked": null, "changed": true })
    );
    api.clock.advance(Span::secs(2));
    assert_eq!(
        api.post("/v1/lease", lease).await.ok()["jobs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(api.post("/v1/beat", beat).await.ok(), json!({ "lost": [] }));
}

#[tokio::test]
async fn an_order_is_one_entry_of_the_audit_and_one_to_nobody_is_none() {
    let api = given();
    api.post("/v1/beat", json!({ "worker": "w1" })).await.ok();
    for order in ["quiet", "resume", "stop"] {
        let told = api
            .post(&format!("/v1/workers/nobody/{order}"), json!(null))
            .await
            .problem(404);
        assert!(told.contains("nobody"), "{told}");
        api.clock.advance(Span::millis(10));
        api.post(&format!("/v1/workers/w1/{order}"), json!(null))
            .await
            .ok();
        api.clock.advance(Span::millis(10));
    }
    let entries: Vec<_> = api
        .audit()
        .await
        .into_iter()
        .map(|entry| (entry.what, entry.count))
        .collect();
    assert_eq!(entries.len(), 3, "{entries:?}");
    for order in ["quiet", "resume", "stop"] {
        let entry = (format!("worker {order}"), Some(1));
        assert!(entries.contains(&entry), "{entry:?} in {entries:?}");
    }
}
