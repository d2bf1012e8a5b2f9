//! `/dead`.

use crate::given::{Api, given};
use axum::http::Method;
use backstop::dead::DeadSelection;
use backstop::dead::redrive::{
    CANARY_DEFAULT, MAX_FAILURES_DEFAULT, RedrivePlan, THEN_RATE_DEFAULT,
};
use backstop::{JobId, QueueName, Span};
use backstop_core::{Overflow, QueueBounds};
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::time::Duration;

/// Four dead letters: three of queue `q`, one of `other`, a second apart.
async fn buried() -> Api {
    let api = given();
    for (queue, name, error) in [
        ("q", "a", "timeout 1"),
        ("q", "b", "timeout 2"),
        ("q", "c", "no such user"),
        ("other", "d", "x"),
    ] {
        api.clock.advance(Span::secs(1));
        api.bury(queue, name, error).await;
    }
    api
}

fn id(name: &str) -> String {
    JobId::named(name).to_string()
}

#[tokio::test]
async fn dead_letters_are_counted_grouped_and_listed() {
    let api = buried().await;
    assert_eq!(
        api.get("/v1/dead/stats").await.ok(),
        json!({ "queues": { "q": 3, "other": 1 }, "total": 4 })
    );
    let groups = api.get("/v1/dead/groups?queue=q").await.ok()["groups"].clone();
    assert_eq!(
        (&groups[0]["count"], &groups[1]["count"]),
        (&json!(2), &json!(1)),
        "{groups}"
    );
    let list = api.get("/v1/dead?queue=q&limit=2").await.ok();
    let ids: Vec<_> = list["dead"]
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| letter["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [id("c"), id("b")], "the newest death first");
    let cursor = list["next"].as_str().unwrap();
    let rest = api
        .get(&format!("/v1/dead?queue=q&limit=2&cursor={cursor}"))
        .await
        .ok();
    assert_eq!(
        (
            rest["dead"].as_array().unwrap().len(),
            &rest["dead"][0]["id"]
        ),
        (1, &json!(id("a")))
    );
    let fitting = api
        .get("/v1/dead?text=timeout&error_type=Boom&since=2026-01-01T00:00:02Z")
        .await
        .ok();
    assert_eq!(fitting["dead"].as_array().unwrap().len(), 1);
    let fingerprint = groups[1]["fingerprint"].as_str().unwrap();
    assert_eq!(
        api.get(&format!("/v1/dead?fingerprint={fingerprint}"))
            .await
            .ok()["dead"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_dead_letter_has_all_its_fields() {
    let api = buried().await;
    let letter = api.get("/v1/dead?queue=other").await.ok()["dead"][0].clone();
    for field in [
        "original_job",
        "error",
        "attempt_count",
        "first_failed_at",
        "last_failed_at",
        "queue",
        "error_type",
        "stack_trace",
        "http_status",
        "response_body",
        "retry_delays",
        "context",
        "id",
        "kind",
        "fingerprint",
        "requeues",
        "reason",
    ] {
        assert!(letter.get(field).is_some(), "{field} of {letter}");
    }
    assert_eq!(
        (&letter["error"], &letter["reason"], &letter["retry_delays"]),
        (&json!("x"), &json!("rejected"), &Value::Null)
    );
}

#[tokio::test]
async fn every_way_to_select_means_what_it_says() {
    let checks = [
        (json!({ "ids": ["a", "c"] }), vec!["a", "c"]),
        (json!({ "matching": { "text": "timeout" } }), vec!["a", "b"]),
        (json!({ "oldest": 1, "queue": "q" }), vec!["a"]),
        (json!({ "all": true }), vec!["a", "b", "c", "d"]),
    ];
    for (selection, names) in checks {
        let api = buried().await;
        assert_eq!(
            api.post("/v1/dead/requeue", selection.clone()).await.ok(),
            json!({ "count": names.len() })
        );
        for name in ["a", "b", "c", "d"] {
            let state = if names.contains(&name) {
                "ready"
            } else {
                "dead"
            };
            assert_eq!(api.state(name).await, state, "{name} by {selection}");
        }
        let audit = api.audit().await;
        assert_eq!(
            (audit.len(), audit[0].what.as_str(), audit[0].count),
            (1, "requeue", Some(names.len() as u64))
        );
    }
}

#[tokio::test]
async fn what_selects_nothing_or_two_things_is_refused() {
    let api = buried().await;
    let wrong = [
        json!({}),
        json!({ "ids": [] }),
        json!({ "matching": {} }),
        json!({ "matching": { "colour": "red" } }),
        json!({ "oldest": 3 }),
        json!({ "oldest": 0, "queue": "q" }),
        json!({ "oldest": -1, "queue": "q" }),
        json!({ "all": false }),
        json!({ "all": true, "ids": ["a"] }),
        json!([]),
    ];
    for selection in wrong {
        for (method, path) in [
            (Method::POST, "/v1/dead/requeue"),
            (Method::DELETE, "/v1/dead"),
        ] {
            api.ask(method, path, selection.to_string())
                .await
                .problem(400);
        }
    }
    api.ask(Method::DELETE, "/v1/dead", "").await.problem(400);
    assert_eq!(api.get("/v1/dead/stats").await.ok()["total"], 4);
    assert!(api.audit().await.is_empty());
}

#[tokio::test]
async fn a_text_or_a_class_that_is_empty_is_refused_and_fits_no_letter() {
    let api = buried().await;
    let routes = [
        (Method::POST, "/v1/dead/requeue"),
        (Method::POST, "/v1/dead/move"),
        (Method::POST, "/v1/dead/redrive"),
        (Method::DELETE, "/v1/dead"),
    ];
    for field in ["text", "error_type"] {
        for blank in ["", " ", "\t\n"] {
            for mut matching in [json!({}), json!({ "queue": "q" })] {
                matching[field] = json!(blank);
                for (method, path) in &routes {
                    let mut body = json!({ "matching": matching });
                    if path.ends_with("move") {
                        body["to"] = json!("elsewhere");
                    }
                    let detail = api
                        .ask(method.clone(), path, body.to_string())
                        .await
                        .problem(400);
                    assert!(detail.contains(field), "{path} {body}: {detail}");
                }
            }
        }
    }
    assert_eq!(api.get("/v1/dead/stats").await.ok()["total"], 4);
    assert!(api.audit().await.is_empty());
}

#[tokio::test]
async fn secrets_in_what_is_looked_for_stand_neither_in_the_audit_nor_in_redrives() {
    let routes = [
        (Method::POST, "/v1/dead/requeue"),
        (Method::POST, "/v1/dead/move"),
        (Method::POST, "/v1/dead/redrive"),
        (Method::DELETE, "/v1/dead"),
    ];
    for (method, path) in routes {
        let api = buried().await;
        let mut body = json!({ "matching": { "text": " password=hunter2 " } });
        if path.ends_with("move") {
            body["to"] = json!("elsewhere");
        }
        let answer = api.ask(method, path, body.to_string()).await;
        assert!(
            answer.status.is_success() && !answer.text.contains("hunter2"),
            "{path}: {}",
            answer.text
        );
        // A redrive goes on behind its answer.
        let ended = async {
            loop {
                let redrives = api.get("/v1/dead/redrives").await.ok().to_string();
                assert!(!redrives.contains("hunter2"), "{path}: {redrives}");
                let audit = api.audit().await;
                let mut told = audit.iter().map(|entry| entry.selection.to_string());
                assert!(told.all(|told| !told.contains("hunter2")), "{audit:?}");
                if !redrives.contains(r#""ended_at":null"#) && audit.is_empty() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), ended)
            .await
            .expect("it ends, and as nothing was found it leaves no entry");
    }
}

#[tokio::test]
async fn letters_are_moved_to_another_queue() {
    let api = buried().await;
    let moved = json!({ "matching": { "queue": "q" }, "to": "elsewhere" });
    assert_eq!(
        api.post("/v1/dead/move", moved).await.ok(),
        json!({ "count": 3 })
    );
    assert_eq!(api.get("/v1/jobs/a").await.ok()["queue"], "elsewhere");
    let detail = api
        .post("/v1/dead/move", json!({ "all": true }))
        .await
        .problem(400);
    assert!(detail.contains("`to`"), "{detail}");
    api.post("/v1/dead/move", json!({ "all": true, "to": "a b" }))
        .await
        .problem(400);
}

#[tokio::test]
async fn letters_are_deleted_and_what_is_gone_is_refused_by_name() {
    let api = buried().await;
    let answer = api
        .delete("/v1/dead", json!({ "ids": ["a", "nobody"] }))
        .await
        .ok();
    assert_eq!(
        (&answer["count"], &answer["refused"][0]["id"]),
        (&json!(1), &json!(id("nobody")))
    );
    assert_eq!(api.get("/v1/dead/stats").await.ok()["total"], 3);
}

#[tokio::test]
async fn a_redrive_is_started_and_runs_by_itself() {
    let api = buried().await;
    let plan = json!({ "matching": { "queue": "q" }, "canary": 2, "max_failures": 1, "then_rate": "100/s" });
    let answer = api.post("/v1/dead/redrive", plan).await;
    assert_eq!(answer.status.as_u16(), 202);
    let report = answer.ok();
    assert_eq!(
        (&report["phase"], &report["by"], &report["canary"]),
        (&json!("canary"), &json!("ada"), &json!(2))
    );
    let redrive = async || api.backstop.dead().redrives().await.unwrap().remove(0);
    while redrive().await.requeued < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(redrive().await.id, report["id"].as_str().unwrap());
    let listed = api
        .with_scopes(&[Scope::Read])
        .get("/v1/dead/redrives")
        .await
        .ok();
    let listed = &listed["redrives"][0];
    assert_eq!(
        (&listed["id"], &listed["requeued"], &listed["by"]),
        (&report["id"], &json!(2), &json!("ada"))
    );
    assert_eq!(
        api.get("/v1/dead/stats").await.ok()["queues"]["q"],
        1,
        "the third waits for the canary"
    );
}

#[tokio::test]
async fn a_redrive_takes_every_way_to_select() {
    let checks = [
        (json!({ "ids": ["c", "a", "c"] }), vec!["a", "c"]),
        (json!({ "matching": { "text": "timeout" } }), vec!["a", "b"]),
        (json!({ "oldest": 2, "queue": "q" }), vec!["a", "b"]),
        (json!({ "all": true }), vec!["a", "b", "c", "d"]),
    ];
    for (selection, names) in checks {
        let api = buried().await;
        let mut plan = selection.clone();
        plan["canary"] = json!(4);
        let report = api.post("/v1/dead/redrive", plan).await.ok();
        let is_picked = selection.get("matching").is_none() && selection.get("all").is_none();
        assert_eq!(
            report["picked"],
            if is_picked {
                json!(names.len())
            } else {
                Value::Null
            },
            "{report}"
        );
        let watching = async {
            while api.get("/v1/dead/redrives").await.ok()["redrives"][0]["phase"] != "watching" {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), watching)
            .await
            .expect("the canary is out");
        for name in ["a", "b", "c", "d"] {
            let state = if names.contains(&name) {
                "ready"
            } else {
                "dead"
            };
            assert_eq!(api.state(name).await, state, "{name} by {selection}");
        }
        let audit = api.audit().await;
        assert_eq!(
            (audit.len(), audit[0].what.starts_with("redrive ")),
            (1, true),
            "{audit:?}"
        );
    }
}

#[tokio::test]
async fn a_redrive_that_nobody_runs_says_so() {
    let api = buried().await;
    let plan = RedrivePlan {
        canary: CANARY_DEFAULT,
        max_failures: MAX_FAILURES_DEFAULT,
        then_rate: THEN_RATE_DEFAULT,
        selection: DeadSelection::All,
    };
    api.backstop.dead().redrive(plan).await.unwrap();
    let stalled =
        async || api.get("/v1/dead/redrives").await.ok()["redrives"][0]["stalled"].clone();
    assert_eq!(
        stalled().await,
        false,
        "whoever wrote it down is about to run it"
    );
    api.clock.advance(Span::secs(16));
    assert_eq!(stalled().await, true);
}

#[tokio::test]
async fn a_redrive_that_makes_no_sense_is_refused() {
    let api = buried().await;
    let checks = [
        (json!({ "all": true, "canary": 0 }), "1 to 500"),
        (
            json!({ "all": true, "canary": 2, "max_failures": 2 }),
            "die as a whole",
        ),
        (
            json!({ "oldest": 100_001, "queue": "q" }),
            "100000 letters are the most",
        ),
        (json!({ "ids": [] }), "nothing is selected"),
        (json!({ "all": true, "then_rate": "fast" }), "then_rate"),
        (json!({ "all": true, "canary": -1 }), "canary"),
        (json!({}), "a selection is one of"),
    ];
    for (plan, part) in checks {
        let detail = api
            .post("/v1/dead/redrive", plan.clone())
            .await
            .problem(400);
        assert!(detail.contains(part), "{plan}: {detail}");
    }
}

#[tokio::test]
async fn a_letter_whose_twin_lives_is_refused_and_the_answer_names_it() {
    let api = given();
    let job = |id: &str| json!({ "queue": "q", "payload": 1, "id": id, "unique_key": "k" });
    api.post("/v1/jobs", job("first")).await.ok();
    let leased = api.lease("q", 1).await.remove(0);
    assert_eq!(
        api.settle(&leased, json!({ "outcome": "dead" })).await,
        "applied"
    );
    let twin = api.post("/v1/jobs", job("second")).await.ok();
    let twin = twin["id"].as_str().unwrap();
    let answer = api
        .post("/v1/dead/requeue", json!({ "ids": [id("first")] }))
        .await
        .ok();
    assert_eq!(
        (&answer["count"], &answer["refused"][0]["id"]),
        (&json!(0), &json!(id("first"))),
        "{answer}"
    );
    assert!(answer["refused"][0].to_string().contains(twin), "{answer}");
    let detail = api
        .post("/v1/jobs/first/retry", Value::Null)
        .await
        .problem(409);
    assert!(detail.contains(twin), "{detail}");
    assert_eq!(api.state("first").await, "dead");
}

#[tokio::test]
async fn what_a_full_queue_has_no_room_for_stays_dead_and_is_told() {
    let api = buried().await;
    let bounds = QueueBounds {
        max_size: Some(1),
        overflow: Overflow::DropOldest,
        ..QueueBounds::default()
    };
    api.backstop
        .store()
        .set_bounds(QueueName::new("q").unwrap(), bounds, api.backstop.now())
        .await
        .unwrap();
    let some = api
        .post("/v1/dead/requeue", json!({ "ids": [id("a"), id("b")] }))
        .await
        .ok();
    assert_eq!(
        (&some["count"], &some["refused"][0]["id"]),
        (&json!(1), &json!(id("b"))),
        "{some}"
    );
    assert!(
        some["refused"][0]["why"].as_str().unwrap().contains("full"),
        "{some}"
    );
    for (path, body) in [
        (
            "/v1/dead/requeue".to_owned(),
            json!({ "matching": { "queue": "q" } }),
        ),
        (
            "/v1/dead/move".to_owned(),
            json!({ "ids": [id("d")], "to": "q" }),
        ),
        (format!("/v1/jobs/{}/retry", id("b")), json!({})),
    ] {
        let answer = api.post(&path, body).await;
        assert_eq!(answer.headers["retry-after"], "1");
        let told: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(told["count"], 0, "{told}");
        assert!(answer.problem(429).contains("its queue is full"));
    }
    assert_eq!(
        api.get("/v1/dead/stats").await.ok()["queues"],
        json!({ "q": 2, "other": 1 })
    );
}
