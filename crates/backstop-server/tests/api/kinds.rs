//! `/kinds`.

use crate::given::given;
use backstop::Span;
use serde_json::json;

#[tokio::test]
async fn runs_of_workers_elsewhere_are_told_by_kind_once_however_often_their_end_is_told() {
    let api = given();
    for id in ["a", "b"] {
        api.push("q", id).await;
    }
    let leased = api.lease("q", 2).await;
    api.clock.advance(Span::secs(3));
    for _ in 0..2 {
        assert_eq!(
            api.settle(&leased[0], json!({ "outcome": "done" })).await,
            "applied"
        );
        assert_eq!(
            api.settle(&leased[1], json!({ "outcome": "failed" })).await,
            "applied"
        );
    }
    assert_eq!(
        api.get("/v1/kinds").await.ok(),
        json!({ "window": "1h", "kinds": [] }),
        "nobody wrote yet"
    );
    api.backstop.run_times().write().await.unwrap();
    for window in ["5m", "1h", "24h", "7d"] {
        let told = api.get(&format!("/v1/kinds?window={window}")).await.ok();
        assert_eq!(told["window"], window);
        let kinds = told["kinds"].as_array().unwrap();
        assert_eq!(kinds.len(), 1, "{told}");
        let kind = &kinds[0];
        assert_eq!(
            (
                &kind["queue"],
                &kind["kind"],
                &kind["runs"],
                &kind["failed"]
            ),
            (&json!("q"), &json!("default"), &json!(2), &json!(1))
        );
        let median = kind["run_ms"]["p50"].as_f64().unwrap();
        assert!((2_000.0..4_000.0).contains(&median), "{told}");
        assert_eq!(kind["buckets"].as_array().unwrap().len(), 1, "{told}");
        assert!(kind["wait_ms"]["p99"].is_number(), "{told}");
    }
    assert_eq!(api.get("/v1/kinds?window=1y").await.status, 400);
}
