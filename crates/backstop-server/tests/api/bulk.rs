//! `/bulk`: actions on all jobs that match, as objects.

use crate::given::{Api, given};
use backstop::core::port::CellSwap;
use backstop::{Backstop, Span};
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::time::Duration;

/// A run that cancels what is in `queue`, as a server that went down in good order leaves it.
pub(crate) async fn left(backstop: &Backstop, id: &str, queue: &str) {
    kept(backstop, id, "grace", queue, Value::Null).await;
}

/// A run of somebody as its cell keeps it.
async fn kept(backstop: &Backstop, id: &str, who: &str, queue: &str, ended_at: Value) {
    let now = serde_json::to_value(backstop.now()).unwrap();
    let which =
        json!({ "jobs": { "queue": queue, "kind": null, "state": null, "fingerprint": null } });
    let report = json!({
        "id": id, "who": who, "expected": null, "back": "", "started_at": now, "ended_at": ended_at, "seen_at": now,
        "target": { "what": "job cancel", "deed": "cancel", "to": null, "which": which },
        "count": 0, "refused": 0, "refusals": [], "error": null, "is_stop_asked": false, "is_left": true,
        "cursor": null, "runner": 1,
    });
    let value = Some(serde_json::to_vec(&report).unwrap());
    let swap = CellSwap {
        name: format!("bulk/{id}"),
        seen: None,
        version: 7,
        value,
    };
    backstop.store().swap(vec![swap]).await.unwrap();
}

/// Waits until a run has ended.
async fn ended(api: &Api, id: &str) -> Value {
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            let run = api.get(&format!("/v1/bulk/{id}")).await.ok();
            if !run["ended_at"].is_null() {
                return run;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("it ends")
}

async fn jobs(api: &Api) {
    for n in 0..6 {
        let (kind, to) = (
            if n < 4 { "welcome" } else { "digest" },
            if n % 2 == 0 { "ada" } else { "bob" },
        );
        let job = json!({ "queue": "mail", "kind": kind, "payload": { "to": to }, "id": format!("job-{n}") });
        api.post("/v1/jobs", job).await.ok();
    }
}

#[tokio::test]
async fn what_is_counted_before_is_what_is_changed_then() {
    let api = given();
    jobs(&api).await;
    let asked = json!({ "action": "cancel", "matching": { "queue": "mail", "kind": "welcome", "text": "ADA" } });
    let counted = api.post("/v1/bulk/preview", asked.clone()).await.ok();
    assert_eq!(counted, json!({ "count": 2, "exact": true }));
    assert!(api.audit().await.is_empty(), "a look changes nothing");
    let answer = api.post("/v1/bulk?reason=ticket+7", asked).await;
    assert_eq!(answer.status.as_u16(), 202);
    let started = answer.ok();
    let run = ended(&api, started["id"].as_str().unwrap()).await;
    assert_eq!(
        (&run["state"], &run["count"], &run["expected"]),
        (&json!("done"), &json!(2), &json!(2)),
        "{run}"
    );
    assert_eq!(
        (&run["who"], &run["reason"], &run["of"]),
        (&json!("ada"), &json!("ticket 7"), &json!("jobs"))
    );
    assert_eq!(run["selection"]["matching"]["text"], "ADA");
    for (name, state) in [
        ("job-0", "cancelled"),
        ("job-1", "ready"),
        ("job-2", "cancelled"),
        ("job-4", "ready"),
    ] {
        assert_eq!(api.state(name).await, state, "{name}");
    }
    assert_eq!(api.get("/v1/bulk").await.ok()["runs"], json!([run]));
    assert_eq!(api.audit().await[0].count, Some(2));
}

#[tokio::test]
async fn dead_letters_are_moved_and_everything_there_is_must_be_meant() {
    let api = given();
    api.bury("mail", "one", "no answer").await;
    api.bury("mail", "two", "card declined").await;
    let asked =
        json!({ "action": "move", "to": "slow", "of": "dead", "matching": { "text": "declined" } });
    assert_eq!(
        api.post("/v1/bulk/preview", asked.clone()).await.ok()["count"],
        1
    );
    let started = api.post("/v1/bulk", asked).await.ok();
    let run = ended(&api, started["id"].as_str().unwrap()).await;
    assert_eq!(
        (&run["of"], &run["to"], &run["count"]),
        (&json!("dead"), &json!("slow"), &json!(1)),
        "{run}"
    );
    assert_eq!(api.get("/v1/jobs/two").await.ok()["queue"], "slow");
    let all = json!({ "action": "retry", "of": "dead", "all": true });
    let started = api.post("/v1/bulk", all).await.ok();
    assert_eq!(
        ended(&api, started["id"].as_str().unwrap()).await["selection"],
        json!({ "all": true })
    );
    assert_eq!(api.state("one").await, "ready");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    let api = given();
    jobs(&api).await;
    for wrong in [
        json!({}),
        json!({ "action": "cancel" }),
        json!({ "action": "cancel", "matching": {} }),
        json!({ "action": "cancel", "matching": { "queue": "" } }),
        json!({ "action": "cancel", "matching": { "queue": "mail" }, "all": true }),
        json!({ "action": "cancel", "all": false }),
        json!({ "action": "explode", "all": true }),
        json!({ "action": "move", "all": true }),
        json!({ "action": "retry", "to": "slow", "all": true }),
        json!({ "action": "cancel", "of": "dead", "all": true }),
        json!({ "action": "cancel", "of": "letters", "all": true }),
        json!({ "action": "cancel", "matching": { "error_type": "Boom" } }),
        json!({ "action": "cancel", "matching": { "state": "asleep" } }),
        json!({ "action": "cancel", "matching": { "state": "dead", "worker": "w" } }),
        json!({ "action": "cancel", "matching": { "text": "x".repeat(201) } }),
        json!({ "action": "retry", "of": "dead", "matching": { "text": "x".repeat(1_025) } }),
        json!({ "action": "retry", "of": "dead", "matching": { "worker": "w" } }),
        json!({ "action": "cancel", "all": true, "more": 1 }),
    ] {
        for path in ["/v1/bulk/preview", "/v1/bulk"] {
            api.post(path, wrong.clone()).await.problem(400);
        }
    }
    api.post(
        "/v1/bulk?reason=two%0Alines",
        json!({ "action": "cancel", "all": true }),
    )
    .await
    .problem(400);
    assert_eq!(
        (api.state("job-0").await.as_str(), api.audit().await.len()),
        ("ready", 0)
    );
}

#[tokio::test]
async fn a_field_that_is_empty_is_refused_beside_others_that_are_not() {
    let api = given();
    api.bury("mail", "letter", "no answer").await;
    jobs(&api).await;
    let fields = [
        ("jobs", &["queue", "kind", "state", "text", "worker"][..]),
        (
            "dead",
            &[
                "queue",
                "kind",
                "error_type",
                "fingerprint",
                "since",
                "until",
                "text",
            ][..],
        ),
    ];
    for (of, fields) in fields {
        for field in fields {
            for blank in ["", " ", "\t\n"] {
                let mut matching = json!({ "queue": "mail", "kind": "welcome" });
                matching[*field] = json!(blank);
                let asked = json!({ "action": "delete", "of": of, "matching": matching });
                for path in ["/v1/bulk/preview", "/v1/bulk"] {
                    let detail = api.post(path, asked.clone()).await.problem(400);
                    assert!(detail.contains(field), "{asked}: {detail}");
                }
            }
        }
    }
    for of in ["jobs", "dead"] {
        let asked = json!({ "action": "delete", "of": of, "matching": { "text": "" } });
        api.post("/v1/bulk", asked).await.problem(400);
    }
    assert_eq!(api.get("/v1/dead/stats").await.ok()["total"], 1);
    assert_eq!(
        (api.state("job-0").await.as_str(), api.audit().await.len()),
        ("ready", 0)
    );
}

#[tokio::test]
async fn a_run_whose_server_is_gone_is_gone_on_with_or_stopped_once() {
    let api = given();
    jobs(&api).await;
    left(&api.backstop, "one", "mail").await;
    left(&api.backstop, "two", "mail").await;
    assert_eq!(api.get("/v1/bulk/one").await.ok()["state"], "silent");
    let stopped = api.post("/v1/bulk/one/stop", Value::Null).await.ok();
    assert_eq!(
        (&stopped["state"], &stopped["stop_asked"]),
        (&json!("stopped"), &json!(true))
    );
    api.post("/v1/bulk/one/stop", Value::Null)
        .await
        .problem(409);
    api.post("/v1/bulk/one/resume", Value::Null)
        .await
        .problem(409);
    assert_eq!(api.state("job-0").await, "ready");
    api.clock.advance(Span::secs(1));
    api.post("/v1/bulk/two/resume", Value::Null).await.ok();
    assert_eq!(ended(&api, "two").await["count"], 6);
    for address in ["/v1/bulk/none/stop", "/v1/bulk/none/resume"] {
        api.post(address, Value::Null).await.problem(404);
    }
    api.get("/v1/bulk/none").await.problem(404);
}

#[tokio::test]
async fn running_jobs_are_listed_by_their_worker() {
    let api = given().with_scopes(&[Scope::Admin]);
    api.push("q", "a").await;
    api.push("q", "b").await;
    let held = api.lease("q", 1).await.remove(0);
    let found = api.get("/v1/jobs?worker=w1").await.ok();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(found["jobs"][0]["id"], held["id"]);
    assert_eq!(
        api.get("/v1/jobs?worker=w2&state=running").await.ok()["jobs"],
        json!([])
    );
    api.get("/v1/jobs?worker=w1&state=ready").await.problem(400);
}

#[tokio::test]
async fn a_flood_of_runs_pushes_out_nobody_elses() {
    let api = given();
    let now = serde_json::to_value(api.backstop.now()).unwrap();
    kept(&api.backstop, "0-first", "grace", "mail", now.clone()).await;
    for number in 0..60 {
        kept(
            &api.backstop,
            &format!("1-{number:02}"),
            "flood",
            "mail",
            now.clone(),
        )
        .await;
    }
    let start = json!({ "action": "cancel", "matching": { "queue": "mail" } });
    api.post("/v1/bulk", start).await.ok();
    let runs = api.get("/v1/bulk").await.ok();
    let ids: Vec<&str> = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["id"].as_str().unwrap())
        .collect();
    assert!(
        ids.contains(&"0-first") && ids.contains(&"1-59") && !ids.contains(&"1-00"),
        "{ids:?}"
    );
    assert_eq!(ids.len(), 51, "fifty that ended, and the new one");
}

#[tokio::test]
async fn a_bulk_action_on_nothing_leaves_no_entry_in_the_audit() {
    let api = given();
    let asked = json!({ "action": "cancel", "matching": { "queue": "empty" } });
    let started = api.post("/v1/bulk", asked).await.ok();
    let run = ended(&api, started["id"].as_str().unwrap()).await;
    assert_eq!((&run["state"], &run["count"]), (&json!("done"), &json!(0)));
    assert!(api.audit().await.is_empty());
}
