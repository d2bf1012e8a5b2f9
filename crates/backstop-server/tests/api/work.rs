//! `POST /lease`, `/settle` and `/beat`.

use crate::given::{Api, given, given_with};
use axum::http::Method;
use backstop::{JobId, Span};
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test]
async fn a_job_is_leased_once_run_and_done() {
    let api = given();
    api.push("q", "a").await;
    let leased = api.lease("q", 10).await;
    assert_eq!(leased.len(), 1);
    let job = &leased[0];
    assert_eq!(
        (
            &job["queue"],
            &job["kind"],
            &job["payload"],
            &job["attempt"]
        ),
        (&json!("q"), &json!("default"), &json!({}), &json!(1))
    );
    assert!(api.lease("q", 10).await.is_empty(), "it is somebody's");
    assert_eq!(
        api.settle(job, json!({ "outcome": "done" })).await,
        "applied"
    );
    assert_eq!(api.state("a").await, "done");
}

#[tokio::test]
async fn the_same_end_counts_once_and_another_is_stale() {
    let api = given();
    for outcome in ["done", "failed", "dead", "cancelled", "released"] {
        api.push("q", outcome).await;
        let job = api.lease("q", 1).await.remove(0);
        assert_eq!(
            api.settle(&job, json!({ "outcome": outcome })).await,
            "applied"
        );
        assert_eq!(
            api.settle(&job, json!({ "outcome": outcome })).await,
            "applied",
            "{outcome} again"
        );
        let other = if outcome == "done" { "failed" } else { "done" };
        assert_eq!(
            api.settle(&job, json!({ "outcome": other })).await,
            "stale",
            "{other} after {outcome}"
        );
    }
}

#[tokio::test]
async fn a_failed_run_is_tried_again_as_the_queue_says_and_then_dead() {
    let api = given_with(
        "[queues.q]\nretry = { kind = \"steps\", delays = [\"10s\", \"20s\"], max_attempts = 3 }\n",
    );
    api.push("q", "a").await;
    let error = json!({ "message": "no route", "type": "IOError", "http_status": 503, "response_body": "busy", "stack_trace": "at x" });
    for (attempt, wait) in [(1, 10), (2, 20)] {
        let job = api.lease("q", 1).await.remove(0);
        assert_eq!(job["attempt"], attempt);
        assert_eq!(
            api.settle(&job, json!({ "outcome": "failed", "error": error }))
                .await,
            "applied"
        );
        assert_eq!(api.state("a").await, "retrying");
        api.clock.advance(Span::secs(wait - 1));
        assert!(
            api.lease("q", 1).await.is_empty(),
            "too early for attempt {}",
            attempt + 1
        );
        api.clock.advance(Span::secs(1));
    }
    let job = api.lease("q", 1).await.remove(0);
    api.settle(&job, json!({ "outcome": "failed", "error": error }))
        .await;
    assert_eq!(api.state("a").await, "dead");
    let letter = api.get("/v1/dead").await.ok()["dead"][0].clone();
    assert_eq!(
        (&letter["reason"], &letter["error_type"]),
        (&json!("attempts_exhausted"), &json!("IOError"))
    );
    assert_eq!(
        (&letter["http_status"], &letter["response_body"]),
        (&json!(503), &json!("busy"))
    );
    assert_eq!(letter["retry_delays"], json!([10.0, 20.0]));
    assert_eq!(
        (
            &letter["context"]["worker"],
            &letter["context"]["queue_depths"]["q"]
        ),
        (&json!("w1"), &json!(1))
    );
    assert!(letter["context"]["version"].is_string() && letter["context"]["host"].is_string());
}

#[tokio::test]
async fn a_jobs_own_policy_wins_and_retry_in_wins_over_both() {
    let api = given();
    let retry = json!({ "kind": "constant", "every": "1m", "max_attempts": 5 });
    api.post(
        "/v1/jobs",
        json!({ "queue": "q", "payload": 1, "id": "own", "retry": retry }),
    )
    .await
    .ok();
    let mut job = api.lease("q", 1).await.remove(0);
    let waits = async |job: &Value, end: Value| {
        api.settle(job, end).await;
        let run_at = api
            .backstop
            .job(JobId::named("own"))
            .await
            .unwrap()
            .unwrap()
            .run_at;
        run_at.since(api.backstop.now())
    };
    assert_eq!(
        waits(&job, json!({ "outcome": "failed" })).await,
        Span::minutes(1)
    );
    api.clock.advance(Span::minutes(1));
    job = api.lease("q", 1).await.remove(0);
    assert_eq!(
        waits(&job, json!({ "outcome": "failed", "retry_in": "5s" })).await,
        Span::secs(5)
    );
    assert_eq!(api.get("/v1/jobs/own").await.ok()["max_attempts"], 5);
}

#[tokio::test]
async fn a_jobs_policy_that_names_no_kind_is_put_over_the_usual_one() {
    let api = given();
    let push = async |id: &str, retry: Value| {
        let job = json!({ "queue": "q", "payload": 1, "id": id, "retry": retry });
        api.post("/v1/jobs", job).await.ok();
        api.get(&format!("/v1/jobs/{id}")).await.ok()["max_attempts"].clone()
    };
    assert_eq!(push("usual", json!({})).await, 20);
    assert_eq!(push("five", json!({ "max_attempts": 5 })).await, 5);
    assert_eq!(push("named", json!({ "kind": "exponential" })).await, 3);
}

#[tokio::test]
async fn a_released_job_comes_back_after_a_second_with_its_attempt() {
    let api = given();
    api.push("q", "a").await;
    let job = api.lease("q", 1).await.remove(0);
    api.settle(&job, json!({ "outcome": "released" })).await;
    assert!(api.lease("q", 1).await.is_empty());
    api.clock.advance(Span::secs(1));
    assert_eq!(api.lease("q", 1).await[0]["attempt"], 1);
}

#[tokio::test]
async fn whoever_lost_a_lease_changes_nothing() {
    let api = given();
    api.push("q", "a").await;
    let job = api.lease("q", 1).await.remove(0);
    api.post("/v1/jobs/a/cancel", Value::Null).await.ok();
    assert_eq!(
        api.settle(&job, json!({ "outcome": "done" })).await,
        "stale"
    );
    assert_eq!(api.state("a").await, "cancelled");
    let beat = json!({ "worker": "w1", "leases": [{ "id": job["id"], "lease": job["lease"] }] });
    assert_eq!(
        api.post("/v1/beat", beat).await.ok()["lost"],
        json!([job["id"]])
    );
}

#[tokio::test]
async fn what_was_never_handed_out_is_stale_and_lost() {
    let api = given();
    api.push("q", "a").await;
    let id = JobId::named("a").to_string();
    for lease in [
        json!(7),
        json!("nope"),
        json!(""),
        json!("4000000000000000-1-3a98--q"),
    ] {
        let forged = json!({ "id": id, "lease": lease });
        for outcome in ["done", "failed", "dead", "cancelled", "released"] {
            assert_eq!(
                api.settle(&forged, json!({ "outcome": outcome })).await,
                "stale",
                "{lease} {outcome}"
            );
        }
        let lost = api
            .post("/v1/beat", json!({ "worker": "w", "leases": [forged] }))
            .await
            .ok();
        assert_eq!(lost["lost"], json!([id]));
    }
    assert_eq!(api.state("a").await, "ready");
}

#[tokio::test]
async fn a_beat_keeps_a_lease_for_as_long_as_it_was_asked_for() {
    let api = given();
    api.push("q", "a").await;
    let answer = api
        .post(
            "/v1/lease",
            json!({ "queues": ["q"], "worker": "w1", "lease_ms": 60_000 }),
        )
        .await
        .ok();
    let job = &answer["jobs"][0];
    let until = async || {
        api.backstop
            .job(JobId::named("a"))
            .await
            .unwrap()
            .unwrap()
            .held_by
            .unwrap()
            .until
    };
    assert_eq!(until().await.since(api.backstop.now()), Span::minutes(1));
    api.clock.advance(Span::secs(30));
    let beat = json!({ "worker": "w1", "leases": [{ "id": job["id"], "lease": job["lease"] }] });
    assert_eq!(api.post("/v1/beat", beat).await.ok(), json!({ "lost": [] }));
    assert_eq!(until().await.since(api.backstop.now()), Span::minutes(1));
    let workers = api
        .backstop
        .store()
        .workers(Span::minutes(1), api.backstop.now())
        .await
        .unwrap();
    assert_eq!((workers[0].name.as_str(), workers[0].running), ("w1", 1));
}

#[tokio::test]
async fn a_running_job_tells_its_worker_and_since_when() {
    let api = given();
    api.push("q", "a").await;
    let seen = async || {
        let jobs = api.get("/v1/jobs?queue=q").await.ok();
        let (listed, job) = (jobs["jobs"][0].clone(), api.get("/v1/jobs/a").await.ok());
        for field in ["worker", "started_at"] {
            assert!(
                job.get(field).is_some() && job[field] == listed[field],
                "{field}: {job} {listed}"
            );
        }
        (job["worker"].clone(), job["started_at"].clone())
    };
    assert_eq!(seen().await, (Value::Null, Value::Null), "it waits");
    api.clock.advance(Span::secs(5));
    let began = json!(api.backstop.now().to_string());
    let job = api
        .post("/v1/lease", json!({ "queues": ["q"], "worker": "w1" }))
        .await
        .ok()["jobs"][0]
        .clone();
    api.clock.advance(Span::secs(5));
    let beat = json!({ "worker": "w1", "leases": [{ "id": job["id"], "lease": job["lease"] }] });
    assert_eq!(api.post("/v1/beat", beat).await.ok(), json!({ "lost": [] }));
    assert_eq!(seen().await, (json!("w1"), began.clone()));
    let why = api.get("/v1/jobs/a/why").await.ok();
    assert!(
        why.to_string().contains(&format!(
            "it is running on w1 since {}",
            began.as_str().unwrap()
        )),
        "{why}"
    );
    assert_eq!(
        api.settle(&job, json!({ "outcome": "done" })).await,
        "applied"
    );
    assert_eq!(seen().await, (Value::Null, Value::Null), "it is done");
}

#[tokio::test]
async fn numbers_that_cannot_be_are_brought_to_the_nearest_that_can() {
    let api = given();
    api.push("q", "a").await;
    let ask = json!({ "queues": ["q"], "lease_ms": -5, "wait_ms": -1 });
    assert_eq!(
        api.post("/v1/lease", ask).await.ok()["jobs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let until = api
        .backstop
        .job(JobId::named("a"))
        .await
        .unwrap()
        .unwrap()
        .held_by
        .unwrap()
        .until;
    assert_eq!(until.since(api.backstop.now()), Span::millis(500));
    for n in 0..3 {
        api.push("q", &n.to_string()).await;
    }
    let ask = json!({ "queues": ["q"], "max": 1e9, "lease_ms": 1e18 });
    assert_eq!(
        api.post("/v1/lease", ask).await.ok()["jobs"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn whoever_has_no_room_gets_no_job_and_does_not_wait() {
    let api = given();
    api.push("q", "a").await;
    for max in [json!(0), json!(-1), json!(0.5)] {
        let ask = json!({ "queues": ["q"], "max": max, "worker": "w1", "wait_ms": 30_000 });
        let answer = api.post("/v1/lease", ask);
        let answer = tokio::time::timeout(Duration::from_secs(10), answer)
            .await
            .expect("at once");
        assert_eq!(answer.ok(), json!({ "jobs": [] }), "{max}");
    }
    assert_eq!(api.state("a").await, "ready");
}

#[tokio::test]
async fn a_thousand_jobs_go_out_and_end_in_one_call_each() {
    let api = given();
    let jobs: Vec<Value> = (0..1_200)
        .map(|n| json!({ "queue": "q", "payload": n }))
        .collect();
    api.post("/v1/jobs/batch", json!({ "jobs": jobs }))
        .await
        .ok();
    let leased = api.lease("q", 5_000).await;
    assert_eq!(leased.len(), 1_000);
    let ends: Vec<Value> = leased
        .iter()
        .map(|job| json!({ "id": job["id"], "lease": job["lease"], "outcome": "done" }))
        .collect();
    let results = api.post("/v1/settle", json!({ "settle": ends })).await.ok();
    let results = results["results"].as_array().unwrap();
    assert!(results.len() == 1_000 && results.iter().all(|one| one["result"] == "applied"));
    assert!(
        results
            .iter()
            .zip(&leased)
            .all(|(one, job)| one["id"] == job["id"]),
        "in the order they were told"
    );
}

#[tokio::test]
async fn several_queues_are_served_and_what_one_lacks_the_other_gives() {
    let api = given();
    for n in 0..10 {
        api.push("full", &format!("f{n}")).await;
    }
    api.push("few", "one").await;
    let answer = api
        .post(
            "/v1/lease",
            json!({ "queues": ["full", "few", "empty"], "max": 9 }),
        )
        .await
        .ok();
    let of = |queue: &str| {
        answer["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|job| job["queue"] == queue)
            .count()
    };
    assert_eq!((of("full"), of("few")), (8, 1));
}

#[tokio::test]
async fn one_answer_mixes_outcomes_in_order() {
    let api = given();
    for name in ["a", "b", "c"] {
        api.push("q", name).await;
    }
    let leased = api.lease("q", 3).await;
    let end = |at: usize, outcome: &str| json!({ "id": leased[at]["id"], "lease": leased[at]["lease"], "outcome": outcome });
    let mut forged = end(1, "done");
    forged["lease"] = json!("nope");
    let settle = json!({ "settle": [end(0, "done"), forged, end(2, "dead")] });
    let answer = api.post("/v1/settle", settle).await.ok();
    let results: Vec<&Value> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["result"])
        .collect();
    assert_eq!(results, ["applied", "stale", "applied"]);
    assert_eq!(
        (
            api.state("a").await,
            api.state("b").await,
            api.state("c").await
        ),
        ("done".into(), "running".into(), "dead".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_waits_wakes_when_a_job_is_pushed() {
    let api = given();
    let (asking, began) = (api.clone(), tokio::time::Instant::now());
    let waiting = tokio::spawn(async move {
        asking
            .post("/v1/lease", json!({ "queues": ["q"], "wait_ms": 20_000 }))
            .await
            .ok()
    });
    tokio::time::sleep(Duration::from_secs(7)).await;
    api.push("q", "a").await;
    let answer = waiting.await.unwrap();
    assert_eq!(answer["jobs"].as_array().unwrap().len(), 1);
    assert!(
        began.elapsed() < Duration::from_millis(7_100),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_waits_no_longer_than_it_was_told_and_never_longer_than_half_a_minute() {
    let api = given();
    for (wait_ms, secs) in [(0, 0), (3_000, 3), (1_000_000_000, 30)] {
        let began = tokio::time::Instant::now();
        let answer = api
            .post("/v1/lease", json!({ "queues": ["q"], "wait_ms": wait_ms }))
            .await
            .ok();
        assert_eq!(answer, json!({ "jobs": [] }));
        assert_eq!(began.elapsed().as_secs(), secs);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_waits_gets_what_becomes_due() {
    let api = given();
    api.post(
        "/v1/jobs",
        json!({ "queue": "q", "payload": 1, "delay": "5s" }),
    )
    .await
    .ok();
    let asking = api.clone();
    let waiting = tokio::spawn(async move {
        asking
            .post("/v1/lease", json!({ "queues": ["q"], "wait_ms": 20_000 }))
            .await
            .ok()
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.clock.advance(Span::secs(5));
    assert_eq!(
        waiting.await.unwrap()["jobs"].as_array().unwrap().len(),
        1,
        "nobody else made it ready"
    );
}

#[tokio::test]
async fn an_idle_worker_is_seen() {
    let api = given();
    api.push("q", "a").await;
    assert_eq!(api.get("/v1/jobs/a/why").await.ok()["gate"], "no_worker");
    api.post(
        "/v1/lease",
        json!({ "queues": ["q"], "worker": "w9", "max": 1 }),
    )
    .await
    .ok();
    api.push("q", "b").await;
    assert_eq!(api.get("/v1/jobs/b/why").await.ok()["gate"], "waiting");
}

#[tokio::test]
async fn a_beat_leaves_which_queues_a_worker_serves() {
    let api = given();
    api.post(
        "/v1/lease",
        json!({ "queues": ["q", "other"], "worker": "w9" }),
    )
    .await
    .ok();
    api.post("/v1/beat", json!({ "worker": "w9", "leases": [] }))
        .await
        .ok();
    let workers = api
        .backstop
        .store()
        .workers(Span::hours(1), api.backstop.now())
        .await
        .unwrap();
    let mut queues: Vec<&str> = workers[0]
        .queues
        .iter()
        .map(backstop::QueueName::as_str)
        .collect();
    queues.sort_unstable();
    assert_eq!(queues, ["other", "q"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_long_is_seen_all_the_while() {
    let api = given();
    let asking = api.clone();
    let waiting = tokio::spawn(async move {
        asking
            .post(
                "/v1/lease",
                json!({ "queues": ["q"], "worker": "w9", "wait_ms": 20_000 }),
            )
            .await
            .ok()
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.clock.advance(Span::minutes(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let workers = api
        .backstop
        .store()
        .workers(Span::secs(30), api.backstop.now())
        .await
        .unwrap();
    assert_eq!(workers.len(), 1);
    assert_eq!(waiting.await.unwrap(), json!({ "jobs": [] }));
}

#[tokio::test]
async fn a_paused_queue_gives_nothing() {
    let api = given();
    api.push("q", "a").await;
    api.post("/v1/queues/q/pause", Value::Null).await.ok();
    assert!(api.lease("q", 1).await.is_empty());
    api.post("/v1/queues/q/resume", Value::Null).await.ok();
    assert_eq!(api.lease("q", 1).await.len(), 1);
}

#[tokio::test]
async fn a_breaker_that_opens_keeps_jobs_back_and_lets_probes_through() {
    let api = given_with(
        "[queues.q]\nretry = { kind = \"constant\", every = \"1s\", max_attempts = 100 }\n\
         breaker = { failure_threshold = 2, recovery_timeout = \"30s\", half_open_max_calls = 1, success_threshold = 1 }\n",
    );
    for n in 0..4 {
        api.push("q", &n.to_string()).await;
    }
    for job in api.lease("q", 2).await {
        api.settle(&job, json!({ "outcome": "failed" })).await;
    }
    assert!(
        api.lease("q", 4).await.is_empty(),
        "the service is left alone"
    );
    assert_eq!(
        api.get("/v1/breakers").await.ok()["breakers"][0]["state"],
        "open"
    );
    api.clock.advance(Span::secs(30));
    let probes = api.lease("q", 4).await;
    assert_eq!(probes.len(), 1, "one probe");
    assert_eq!(
        api.settle(&probes[0], json!({ "outcome": "done" })).await,
        "applied"
    );
    assert_eq!(
        api.lease("q", 4).await.len(),
        1,
        "it is closed again, for the one that is ready"
    );
    assert_eq!(
        api.lease("q", 4).await.len(),
        2,
        "and for those that failed, which are due"
    );
}

#[tokio::test]
async fn an_end_that_is_told_again_is_not_counted_again() {
    let api = given_with(
        "[queues.q]\nretry = { kind = \"constant\", every = \"1s\", max_attempts = 100 }\n\
         breaker = { failure_threshold = 2, recovery_timeout = \"30s\", half_open_max_calls = 2, success_threshold = 2 }\n\
         dead = { gate = { deaths = 2, within = \"1m\" } }\n",
    );
    let breaker = async || api.get("/v1/breakers").await.ok()["breakers"][0]["state"].clone();
    let again = async |job: &Value, end: Value| {
        for _ in 0..3 {
            assert_eq!(api.settle(job, end.clone()).await, "applied");
        }
    };
    for name in ["a", "b", "c"] {
        api.push("q", name).await;
    }
    let leased = api.lease("q", 3).await;
    again(&leased[0], json!({ "outcome": "failed" })).await;
    assert_eq!(breaker().await, "closed", "one failure, told three times");
    again(&leased[1], json!({ "outcome": "dead" })).await;
    api.push("q", "d").await;
    let other = api.lease("q", 1).await.remove(0);
    assert_eq!(
        other["id"],
        JobId::named("d").to_string(),
        "one death shuts no gate"
    );
    again(&leased[2], json!({ "outcome": "failed" })).await;
    assert_eq!(breaker().await, "open");
    api.clock.advance(Span::secs(30));
    let probes = api.lease("q", 2).await;
    again(&probes[0], json!({ "outcome": "done" })).await;
    assert_eq!(
        breaker().await,
        "half_open",
        "one success, told three times"
    );
}

#[tokio::test]
async fn a_gate_shuts_a_kind_that_dies_too_often() {
    let api = given_with("[queues.q]\ndead = { gate = { deaths = 2, within = \"1m\" } }\n");
    for name in ["a", "b"] {
        api.bury("q", name, "poison").await;
    }
    api.push("q", "c").await;
    let other = json!({ "queue": "q", "kind": "other", "payload": 1, "id": "d" });
    api.post("/v1/jobs", other).await.ok();
    let leased = api.lease("q", 5).await;
    assert_eq!(leased.len(), 1, "only of the other kind");
    assert_eq!(leased[0]["kind"], "other");
    assert_eq!(api.get("/v1/jobs/c/why").await.ok()["gate"], "gate_shut");
}

#[tokio::test]
async fn a_rate_limit_is_kept_and_the_rest_stays_in_line() {
    let api = given_with("[queues.q]\nrate_limit = { count = 2, per = \"60s\", over = \"5m\" }\n");
    for n in 0..5 {
        api.push("q", &n.to_string()).await;
    }
    assert_eq!(api.lease("q", 5).await.len(), 2);
    assert!(api.lease("q", 5).await.is_empty());
    assert_eq!(api.get("/v1/queues").await.ok()["queues"][0]["ready"], 3);
    api.clock.advance(Span::secs(60));
    assert_eq!(api.lease("q", 5).await.len(), 2);
}

#[tokio::test]
async fn a_death_that_finds_no_room_leaves_the_job_alive() {
    let api = given();
    let bounds = backstop::core::QueueBounds {
        dead_max: 1,
        ..Default::default()
    };
    let queue = backstop::QueueName::new("q").unwrap();
    api.backstop
        .store()
        .set_bounds(queue, bounds, api.backstop.now())
        .await
        .unwrap();
    api.bury("q", "first", "x").await;
    api.push("q", "second").await;
    let job = api.lease("q", 1).await.remove(0);
    api.settle(&job, json!({ "outcome": "dead" })).await;
    assert_eq!(api.state("second").await, "scheduled");
}

/// A worker that took this job and never came back.
async fn vanish(api: &Api, name: &str) {
    use backstop::core::port::SeizeRequest;
    let store = api.backstop.store();
    api.clock.advance(Span::secs(16));
    let number = backstop::core::LeaseNumber::draw(api.backstop.now().as_micros().unsigned_abs());
    let worker = backstop::core::WorkerName::new("keeper");
    let until = api.backstop.now().after(Span::secs(15));
    let seized = store
        .seize(
            SeizeRequest {
                number,
                worker,
                until,
                max: 10,
                spared: Vec::new(),
            },
            api.backstop.now(),
        )
        .await
        .unwrap()
        .runs;
    assert!(
        seized
            .iter()
            .any(|one| one.run.lease.job == JobId::named(name)),
        "{name} was taken over"
    );
    let settlements =
        backstop::core::blame::judge_vanished(&seized, &BTreeSet::new(), api.backstop.now());
    store.settle(settlements, api.backstop.now()).await.unwrap();
}

/// Each of three workers of these names takes the job from another server than the one before, and
/// vanishes.
async fn three_deaths(names: [&str; 3]) {
    let api = given();
    let other = api.with_scopes(&[Scope::Admin]);
    let servers = [&api, &other];
    api.push("q", "poison").await;
    for (death, name) in names.into_iter().enumerate() {
        let asked = json!({ "queues": ["q"], "worker": name });
        let leased = servers[death % 2].post("/v1/lease", asked).await.ok();
        assert_eq!(
            leased["jobs"].as_array().unwrap().len(),
            1,
            "run {} of {names:?}",
            death + 1
        );
        vanish(&api, "poison").await;
    }
    assert_eq!(api.state("poison").await, "dead");
    let letter = api.get("/v1/dead").await.ok()["dead"][0].take();
    assert_eq!(letter["reason"], "crashed_worker", "{names:?}");
}

#[tokio::test]
async fn three_deaths_of_a_worker_that_keeps_its_name_bury_a_job_on_two_servers() {
    three_deaths(["pod-0", "pod-0", "pod-0"]).await;
}

#[tokio::test]
async fn three_deaths_of_workers_with_new_names_bury_a_job_on_two_servers() {
    three_deaths(["pod-0", "pod-1", "pod-2"]).await;
}

#[tokio::test]
async fn of_suspects_one_is_handed_out_at_a_time_and_a_late_end_is_stale() {
    let api = given();
    for name in ["a", "b", "c"] {
        api.push("q", name).await;
    }
    let before = api.lease("q", 3).await;
    vanish(&api, "a").await;
    assert_eq!(
        api.settle(&before[0], json!({ "outcome": "done" })).await,
        "stale",
        "its lease is over"
    );
    let leased = api.lease("q", 3).await;
    assert_eq!(leased.len(), 1, "the other suspects wait");
    assert_eq!(
        api.settle(&leased[0], json!({ "outcome": "done" })).await,
        "applied"
    );
    let third = api.lease("q", 3).await;
    assert_eq!(third.len(), 1, "for no longer than until somebody asks");
    assert!(
        api.lease("q", 3).await.is_empty(),
        "the same worker, with another request"
    );
    api.clock.advance(Span::secs(1));
    let another = json!({ "queues": ["q"], "max": 3, "worker": "w2" });
    let other = api.post("/v1/lease", another).await.ok()["jobs"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(other.len(), 1, "another worker has one of its own");
    let overlaps = api.backstop.overlaps(10).await.unwrap();
    assert_eq!(
        overlaps.len(),
        1,
        "the late end was of a run beside another: {overlaps:?}"
    );
    assert_eq!(
        api.settle(&other[0], json!({ "outcome": "released" }))
            .await,
        "applied"
    );
    let errors = api
        .get(&format!("/v1/jobs/{}", other[0]["id"].as_str().unwrap()))
        .await
        .ok()["errors"]
        .clone();
    assert!(
        errors[0]["retry_in"].is_string(),
        "the run that made up for the loss is written down: {errors}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_for_work_is_named() {
    let api = given();
    let checks = [
        ("/v1/lease", r#"{"queues":[]}"#, "1 to 256 queues"),
        ("/v1/lease", r#"{"queues":["a b"]}"#, "not a queue name"),
        ("/v1/lease", r#"{"queue":"q"}"#, "unknown field `queue`"),
        (
            "/v1/lease",
            r#"{"queues":["q"],"max":"many"}"#,
            "expected a number, found string",
        ),
        (
            "/v1/settle",
            r#"{"settle":[{"id":"a","lease":"x","outcome":"finished"}]}"#,
            "unknown variant `finished`",
        ),
        (
            "/v1/settle",
            r#"{"settle":[{"id":"a","lease":"x"}]}"#,
            "missing field `outcome`",
        ),
        (
            "/v1/settle",
            r#"{"settle":[{"id":"a","lease":"x","outcome":"done","colour":1}]}"#,
            "unknown field `colour`",
        ),
        (
            "/v1/settle",
            r#"{"settle":[{"id":"a","lease":"x","outcome":"failed","error":{"massage":"x"}}]}"#,
            "unknown field `massage`",
        ),
        (
            "/v1/settle",
            r#"{"settle":[{"id":"a","lease":"x","outcome":"failed","retry_in":"soon"}]}"#,
            "not a duration",
        ),
        (
            "/v1/beat",
            r#"{"worker":"w","leases":[{"id":"a"}]}"#,
            "missing field `lease`",
        ),
        (
            "/v1/jobs/batch",
            "[]",
            "expected jobs: an object with a list `jobs`",
        ),
        (
            "/v1/lease",
            "[]",
            "expected a request for jobs: an object with a list `queues`",
        ),
        (
            "/v1/settle",
            "[]",
            "expected ends of runs: an object with a list `settle`",
        ),
        (
            "/v1/settle",
            r#"{"settle":["a"]}"#,
            "expected the end of a run: an object with",
        ),
        ("/v1/beat", "7", "expected a sign of life: an object with"),
        (
            "/v1/beat",
            r#"{"leases":[7]}"#,
            "expected a lease: an object with `id` and `lease`",
        ),
    ];
    for (path, body, part) in checks {
        let told = api.ask(Method::POST, path, body).await.problem(400);
        assert!(told.contains(part), "{body}: {told}");
    }
    let queues: Vec<String> = (0..257).map(|n| format!("q{n}")).collect();
    api.post("/v1/lease", json!({ "queues": queues }))
        .await
        .problem(400);
    let ends = vec![json!({ "id": "a", "lease": "x", "outcome": "done" }); 5_001];
    api.post("/v1/settle", json!({ "settle": ends }))
        .await
        .problem(413);
}
