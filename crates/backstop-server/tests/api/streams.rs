//! `/streams`.

use crate::given::{Api, given, given_with};
use axum::http::Method;
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::limits::{PAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use backstop::core::port::{KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, TakeRequest};
use backstop::core::stream::{FailingCall, KeyChange};
use backstop::streams::KeyState;
use backstop::{Span, StreamKey, StreamName};
use serde_json::{Value, json};

fn record(key: &str, position: i64) -> Value {
    json!({ "key": key, "position": position, "step": 60, "payload": { "token": "t0p" } })
}

#[tokio::test]
async fn records_are_held_once_alone_or_together() {
    let api = given();
    let one = api
        .post("/v1/streams/uptime/records", record("site-7", 60))
        .await
        .ok();
    assert_eq!(
        one,
        json!({ "results": [{ "key": "site-7", "position": 60, "result": "held" }] })
    );
    let records =
        json!({ "records": [record("site-7", 60), record("site-7", 180), record("a/b", 60)] });
    let answer = api.post("/v1/streams/uptime/records", records).await.ok();
    let results: Vec<&Value> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["result"])
        .collect();
    assert_eq!(results, ["duplicate", "held", "held"]);
    let streams = api.get("/v1/streams").await.ok();
    assert_eq!(
        (
            &streams["streams"][0]["name"],
            &streams["streams"][0]["keys"],
            &streams["streams"][0]["records"]
        ),
        (&json!("uptime"), &json!(2), &json!(3))
    );
}

#[tokio::test]
async fn a_key_of_large_records_is_shown_up_to_its_bytes() {
    let api = given();
    let text = "x".repeat(PAYLOAD_BYTES_MAX - 1_000);
    for position in 0..8 {
        let payload = json!({ "text": text, "token": "t0p" });
        let record = json!({ "key": "k", "position": position, "step": 1, "payload": payload });
        api.post("/v1/streams/uptime/records", record).await.ok();
    }
    let shown = api.get("/v1/streams/uptime/keys/k").await.ok();
    let held = shown["held"].as_array().unwrap();
    assert_eq!(
        (held.len(), &shown["more"], &shown["records"]),
        (5, &json!(3), &json!(8))
    );
    let bytes = shown.to_string().len();
    assert!(bytes < PAGE_BYTES_MAX + PAYLOAD_BYTES_MAX, "{bytes} bytes");
    for record in held {
        assert_eq!(record["payload"]["token"], json!("[redacted]"));
    }
}

#[tokio::test]
async fn the_answer_names_records_that_are_off_the_step() {
    let api = given();
    let push = async |position| {
        let body = record("a", position);
        api.post("/v1/streams/uptime/records", body).await.ok()["results"][0].take()
    };
    // Nobody serves the stream: the steps are counted from the record that waits before it.
    assert_eq!(push(60).await.get("off_step"), None);
    assert_eq!(
        push(150).await["off_step"],
        json!({ "position": 150, "step": 60, "from": 60 })
    );
    assert_eq!(push(210).await.get("off_step"), None);
    assert_eq!(push(100).await["off_step"]["from"], 60);
    let standing = KeyState {
        step: Some(60),
        ..KeyState::default()
    };
    standing_at(&api, "uptime", "b", 600, standing).await;
    let records = json!({ "records": [record("b", 630), record("b", 690), record("b", 570)] });
    let answer = api.post("/v1/streams/uptime/records", records).await.ok();
    let from: Vec<&Value> = (0..3)
        .map(|at| &answer["results"][at]["off_step"]["from"])
        .collect();
    assert_eq!(from, [&json!(600), &Value::Null, &json!(600)]);
}

#[tokio::test]
async fn a_configured_stream_takes_records_as_they_are() {
    let api = given_with("[streams.uptime]\nkey = \"/id\"\nposition = \"/at\"\nstep = \"1m\"\n");
    let answer = api
        .post(
            "/v1/streams/uptime/records",
            json!({ "id": 7, "at": 60_000, "status": "ok" }),
        )
        .await
        .ok();
    assert_eq!(answer["results"][0]["key"], "7");
    let detail = api
        .post(
            "/v1/streams/uptime/records",
            json!({ "records": [{ "at": 1 }] }),
        )
        .await
        .problem(400);
    assert!(
        detail.starts_with("record 0: the key of the record is not at `/id`"),
        "{detail}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_record_is_named() {
    let api = given();
    let checks = [
        ("", "EOF"),
        (r#"{"key":"a"}"#, "missing field `position`"),
        (r#"{"key":"a","position":1,"payload":1}"#, "no \"step\""),
        (
            r#"{"key":"a","position":1,"step":0,"payload":1}"#,
            "step 0 is out of range",
        ),
        (r#"{"key":"","position":1,"step":1}"#, "a stream's key has"),
        (
            r#"{"key":"a","position":1,"step":1,"colour":1}"#,
            "unknown field `colour`",
        ),
        (r#"{"records":[{"key":"a","position":1}]}"#, "record 0"),
        (
            r#"{"records":[{"key":"a","position":1,"step":1}],"x":1}"#,
            "unknown field `x`",
        ),
        (r#"{"records":7}"#, "expected a list, found integer `7`"),
    ];
    for (body, part) in checks {
        let told = api
            .ask(Method::POST, "/v1/streams/s/records", body)
            .await
            .problem(400);
        assert!(told.contains(part), "{body}: {told}");
    }
    let many = vec![record("a", 1); 5_001];
    api.post("/v1/streams/s/records", json!({ "records": many }))
        .await
        .problem(413);
    let large = json!({ "key": "a", "position": 1, "step": 1, "payload": "x".repeat(1 << 20) });
    api.post("/v1/streams/s/records", large.clone())
        .await
        .problem(413);
    let told = api
        .post(
            "/v1/streams/s/records",
            json!({ "records": [record("a", 1), large] }),
        )
        .await
        .problem(413);
    assert!(told.contains("record 1"), "{told}");
    api.post("/v1/streams/a%20b/records", record("a", 1))
        .await
        .problem(400);
}

#[tokio::test]
async fn keys_are_listed_page_by_page_and_shown_with_secrets_hidden() {
    let api = given();
    let records: Vec<Value> = ["a", "b", "c/d"]
        .iter()
        .map(|key| record(key, 60))
        .collect();
    api.post("/v1/streams/s/records", json!({ "records": records }))
        .await
        .ok();
    let page = api.get("/v1/streams/s/keys?limit=2").await.ok();
    assert_eq!(
        (
            page["keys"].as_array().unwrap().len(),
            &page["next"],
            &page["keys"][0]["records"]
        ),
        (2, &json!("b"), &json!(1))
    );
    let rest = api
        .get("/v1/streams/s/keys?limit=2&cursor=b&holding=true")
        .await
        .ok();
    assert_eq!(
        (&rest["keys"][0]["key"], &rest["next"]),
        (&json!("c/d"), &Value::Null)
    );
    let key = api.get("/v1/streams/s/keys/c%2Fd").await.ok();
    assert_eq!(
        (&key["key"], &key["held"][0]["position"]),
        (&json!("c/d"), &json!(60))
    );
    assert_eq!(key["held"][0]["payload"], json!({ "token": "[redacted]" }));
}

/// A key that was handled up to here.
async fn handled_up_to(api: &Api, stream: &str, key: &str, watermark: i64) {
    let standing = KeyState {
        step: Some(60),
        ..KeyState::default()
    };
    standing_at(api, stream, key, watermark, standing).await;
}

/// A key that was handled up to here, and stands like this.
async fn standing_at(api: &Api, stream: &str, key: &str, watermark: i64, standing: KeyState) {
    let (now, number) = (api.backstop.now(), LeaseNumber::draw(7));
    let (stream, key): (StreamName, StreamKey) = (stream.parse().unwrap(), key.parse().unwrap());
    let take = TakeRequest {
        stream: stream.clone(),
        number,
        worker: WorkerName::new("w"),
        until: now.after(Span::secs(15)),
        wanted: KeySelection::Keys(vec![key.clone()]),
    };
    let taken = api.backstop.store().take(take, now).await.unwrap();
    let change = KeyChange {
        watermark: Some(watermark),
        state: standing.to_bytes(),
        ..KeyChange::default()
    };
    let lease = KeyLease {
        stream,
        key,
        number,
    };
    let advance = KeyAdvance {
        lease,
        turn: 1,
        seen: taken.keys[0].arrived,
        change,
        lease_action: KeyLeaseAction::Release(None),
    };
    api.backstop
        .store()
        .advance(vec![advance], now)
        .await
        .unwrap();
}

/// A key that has halted at this position.
pub(crate) async fn halted(api: &Api, stream: &str, key: &str, position: i64) {
    api.post(
        &format!("/v1/streams/{stream}/records"),
        record(key, position),
    )
    .await
    .ok();
    let standing = KeyState {
        step: Some(60),
        halted: Some(position),
        ..KeyState::default()
    };
    standing_at(api, stream, key, position - 60, standing).await;
}

#[tokio::test]
async fn a_key_is_resumed_skipped_disabled_and_enabled_where_that_can_be() {
    let api = given();
    let at = |key: &str, deed: &str| format!("/v1/streams/s/keys/{key}/{deed}");
    for deed in ["resume", "skip"] {
        halted(&api, "s", deed, 120).await;
        let key = async || api.get(&format!("/v1/streams/s/keys/{deed}")).await.ok();
        assert_eq!(key().await["halted_at"], 120);
        let done = api.post(&at(deed, deed), Value::Null).await.ok();
        assert_eq!(done["key"], deed);
        let key = key().await;
        assert_eq!(key.get("halted_at"), Some(&Value::Null), "{key}");
        assert_eq!(
            key["watermark"],
            if deed == "skip" { 120 } else { 60 },
            "{key}"
        );
        let told = api.post(&at(deed, deed), Value::Null).await.problem(409);
        assert!(told.contains("is not halted"), "{told}");
    }
    let gone = api.post(&at("resume", "disable"), Value::Null).await.ok();
    assert_eq!(
        gone,
        json!({ "count": 1, "disabled": true, "key": "resume" })
    );
    assert_eq!(
        api.get("/v1/streams/s/keys/resume").await.ok()["state"],
        "disabled"
    );
    let done = api.post(&at("resume", "enable"), Value::Null).await.ok();
    assert_eq!(done, json!({ "done": "enabled", "key": "resume" }));
    assert!(
        api.post(&at("resume", "enable"), Value::Null)
            .await
            .problem(409)
            .contains("is not disabled")
    );
    api.post("/v1/streams/a%20b/keys/k/resume", Value::Null)
        .await
        .problem(400);
}

#[tokio::test]
async fn a_key_says_behind_which_gap_its_first_record_waits() {
    let api = given();
    let records =
        json!({ "records": [record("site-7", 240), record("site-7", 300), record("other", 120)] });
    api.post("/v1/streams/uptime/records", records).await.ok();
    handled_up_to(&api, "uptime", "site-7", 60).await;
    handled_up_to(&api, "uptime", "other", 60).await;
    let key = api.get("/v1/streams/uptime/keys/site-7").await.ok();
    assert_eq!(
        (&key["watermark"], &key["why"]["gate"]),
        (&json!(60), &json!("behind_gap")),
        "{key}"
    );
    let details = &key["why"]["details"];
    assert_eq!(
        (&details["key"], &details["gap"], &details["missing"]),
        (&json!("site-7"), &json!(120), &json!(2))
    );
    let said = key["why"]["why"].as_str().unwrap();
    assert!(
        said.starts_with("it waits behind key site-7 at gap 120 and 1 position more"),
        "{said}"
    );
    let other = api.get("/v1/streams/uptime/keys/other").await.ok();
    assert_eq!(
        other["why"]["gate"], "next",
        "nothing is missing before it: {other}"
    );
}

#[tokio::test]
async fn a_key_is_forgotten_with_what_it_holds_and_that_is_written_down() {
    let api = given();
    api.post("/v1/streams/s/records", record("a", 60))
        .await
        .ok();
    let gone = api.delete("/v1/streams/s/keys/a", Value::Null).await.ok();
    assert_eq!(
        (&gone["key"], &gone["disabled"]),
        (&json!("a"), &json!(false))
    );
    assert!(
        api.get("/v1/streams/s/keys/a")
            .await
            .problem(404)
            .contains("/v1/streams/s/keys")
    );
    api.delete("/v1/streams/s/keys/a", Value::Null)
        .await
        .problem(404);
    let told: Vec<_> = api
        .audit()
        .await
        .into_iter()
        .map(|entry| (entry.what, entry.count))
        .collect();
    assert!(
        told.contains(&("stream forget".to_owned(), Some(1))),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_stream_nobody_has_heard_of_is_not_found() {
    let api = given();
    api.get("/v1/streams/nobody/keys").await.problem(404);
    api.get("/v1/streams/nobody/keys/a").await.problem(404);
    assert_eq!(api.get("/v1/streams").await.ok(), json!({ "streams": [] }));
}

#[tokio::test]
async fn the_error_of_a_record_that_fails_is_redacted_by_whoever_shows_it() {
    // As a worker wrote it down that knew of no such name.
    let error = "answer: {\"pin\": \"4711\"} pin=4711 for card 9".to_owned();
    let failing = FailingCall {
        position: 120,
        failures: 2,
        due: 0,
        wait: None,
        since: 0,
        error,
    };
    for (config, is_hidden) in [("", false), ("redact = [\"pin\"]\n", true)] {
        let api = given_with(config);
        api.post("/v1/streams/s/records", record("a", 120))
            .await
            .ok();
        let standing = KeyState {
            step: Some(60),
            failing: Some(failing.clone()),
            ..KeyState::default()
        };
        standing_at(&api, "s", "a", 60, standing).await;
        let key = api.get("/v1/streams/s/keys/a").await.ok();
        assert_eq!(
            (&key["state"], &key["failing"]["failures"]),
            (&json!("failing"), &json!(2)),
            "{key}"
        );
        assert_eq!(key["why"]["gate"], "behind_failing", "{key}");
        for told in [
            &key["failing"]["error"],
            &key["why"]["why"],
            &key["why"]["details"]["error"],
        ] {
            let told = told.as_str().unwrap();
            assert!(told.contains("answer"), "{told}");
            assert_eq!(!told.contains("4711"), is_hidden, "{told}");
        }
        assert_eq!(!key.to_string().contains("4711"), is_hidden, "{key}");
    }
}
