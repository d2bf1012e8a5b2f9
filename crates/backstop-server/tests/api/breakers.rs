//! `/breakers`.

use crate::given::given;
use backstop::breakers::BreakerName;
use serde_json::{Value, json};

#[tokio::test]
async fn breakers_and_gates_are_listed_and_reset_and_that_is_written_down() {
    let api = given();
    for name in ["q", "q/mail"] {
        let guard: BreakerName = name.parse().unwrap();
        api.backstop
            .breakers()
            .open(&guard, "maintenance")
            .await
            .unwrap();
    }
    let listed = api.get("/v1/breakers").await.ok()["breakers"].clone();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["what"], &listed[0]["state"]),
        (&json!("q"), &json!("breaker"), &json!("open"))
    );
    assert_eq!(
        (&listed[1]["kind"], &listed[1]["what"], &listed[1]["shut"]),
        (&json!("mail"), &json!("gate"), &json!("forced"))
    );
    let shut = &listed[1]["events"][0];
    assert_eq!(
        (&listed[1]["state"], &shut["from"], &shut["to"]),
        (&json!("shut"), &json!("open"), &json!("shut"))
    );
    assert_eq!(
        api.post("/v1/breakers/q/reset", Value::Null).await.ok(),
        json!({ "name": "q", "done": "reset" })
    );
    api.post("/v1/breakers/q%2Fmail/reset", Value::Null)
        .await
        .ok();
    let listed = api.get("/v1/breakers").await.ok()["breakers"].clone();
    assert_eq!(
        (&listed[0]["state"], &listed[1]["state"]),
        (&json!("closed"), &json!("open"))
    );
    let told: Vec<_> = api
        .audit()
        .await
        .into_iter()
        .map(|entry| (entry.what, entry.count))
        .collect();
    assert_eq!(told, vec![("breaker reset".to_owned(), Some(1)); 2]);
}

#[tokio::test]
async fn a_breaker_is_opened_and_a_gate_shut_with_the_reason_beside_it() {
    let api = given();
    for (name, reason, why) in [
        ("q", "?reason=the+service+moves", "the service moves"),
        ("q%2Fmail", "", "opened by hand"),
    ] {
        let done = api
            .post(&format!("/v1/breakers/{name}/open{reason}"), Value::Null)
            .await
            .ok();
        assert_eq!(
            done,
            json!({ "name": name.replace("%2F", "/"), "done": "open" })
        );
        let listed = api.get("/v1/breakers").await.ok()["breakers"].clone();
        let guard = listed.as_array().unwrap().last().unwrap();
        assert!(
            ["open", "shut"].contains(&guard["state"].as_str().unwrap()),
            "{guard}"
        );
        assert_eq!(guard["events"][0]["why"], why, "{guard}");
    }
    api.post("/v1/breakers/a%20b/open", Value::Null)
        .await
        .problem(400);
}

#[tokio::test]
async fn a_breaker_that_is_not_there_is_not_found() {
    let api = given();
    assert!(
        api.post("/v1/breakers/q/reset", Value::Null)
            .await
            .problem(404)
            .contains("/v1/breakers")
    );
    api.post("/v1/breakers/a%20b/reset", Value::Null)
        .await
        .problem(400);
    assert_eq!(
        api.get("/v1/breakers").await.ok(),
        json!({ "breakers": [] })
    );
}
