//! One id in several queues, as Redis has it, and tokens for some of them.

use crate::given::{GUARDED, HOST, Site, bearing, empty, request};
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use backstop::JobId;
use backstop::dead::DeadSelection;
use backstop::dead::redrive::{RedrivePlan, RedriveReport};
use backstop_core::port::Store;
use backstop_redis::RedisStore;
use backstop_server::access::Scope;
use backstop_testkit::servers;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// A server on Redis with a dead job of one id in each of three queues, dead of something else in
/// each.
struct Given {
    site: Site,
    admin: String,
}

impl Given {
    async fn new() -> Self {
        let store = RedisStore::open(&servers::redis().fresh_url()).unwrap();
        store.migrate().await.unwrap();
        let site = Site::on(Arc::new(store), GUARDED);
        let admin = site.token(&[Scope::Admin], None).await.token;
        let given = Self { site, admin };
        for queue in ["other", "own", "second"] {
            given.bury(queue, "same").await;
        }
        given
    }

    async fn bury(&self, queue: &str, id: &str) {
        let job =
            json!({ "queue": queue, "payload": 1, "id": id, "kind": format!("kind-{queue}") });
        self.ok(&self.admin, Method::POST, "/v1/jobs", job).await;
        let error =
            json!({ "message": format!("boom of {queue}"), "type": format!("Error-{queue}") });
        self.settle(queue, json!({ "outcome": "dead", "error": error }))
            .await;
    }

    /// Runs the next job of a queue, which ends like this.
    async fn settle(&self, queue: &str, mut end: Value) {
        let ask = json!({ "queues": [queue], "worker": "w" });
        let leased = self.ok(&self.admin, Method::POST, "/v1/lease", ask).await["jobs"][0].take();
        (end["id"], end["lease"]) = (leased["id"].clone(), leased["lease"].clone());
        self.ok(
            &self.admin,
            Method::POST,
            "/v1/settle",
            json!({ "settle": [end] }),
        )
        .await;
    }

    async fn ask(&self, token: &str, method: Method, address: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = bearing(request(method, address), token)
            .body(Body::from(text))
            .unwrap();
        let (got, text) = self.site.read(request).await;
        (got.status.as_u16(), serde_json::from_str(&text).unwrap())
    }

    async fn ok(&self, token: &str, method: Method, address: &str, body: Value) -> Value {
        let (status, said) = self.ask(token, method.clone(), address, body).await;
        assert_eq!(status / 100, 2, "{method} {address}: {said}");
        said
    }

    /// Where a job of the id is, and in which state.
    async fn standing(&self) -> Vec<(String, String)> {
        let listed = self
            .ok(&self.admin, Method::GET, "/v1/jobs", Value::Null)
            .await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let jobs = listed["jobs"].as_array().unwrap().iter();
        let mut jobs: Vec<_> = jobs
            .map(|job| (text(&job["queue"]), text(&job["state"])))
            .collect();
        jobs.sort();
        jobs
    }
}

fn stand(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states
        .iter()
        .map(|(queue, state)| ((*queue).to_owned(), (*state).to_owned()))
        .collect()
}

#[tokio::test]
async fn an_id_of_several_queues_is_a_conflict_until_the_queue_is_named() {
    let given = Given::new().await;
    let before = given.standing().await;
    for (method, address) in [
        (Method::DELETE, "/v1/jobs/same"),
        (Method::POST, "/v1/jobs/same/retry"),
    ] {
        let (status, problem) = given.ask(&given.admin, method, address, Value::Null).await;
        assert_eq!(status, 409, "{address}: {problem}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("name the queue"),
            "{problem}"
        );
    }
    let told = given
        .ok(
            &given.admin,
            Method::POST,
            "/v1/dead/requeue",
            json!({ "ids": ["same"] }),
        )
        .await;
    assert_eq!(told["count"], 0, "{told}");
    assert_eq!(given.standing().await, before);
    given
        .ok(
            &given.admin,
            Method::POST,
            "/v1/jobs/same/retry?queue=own",
            Value::Null,
        )
        .await;
    let shown = given
        .ok(
            &given.admin,
            Method::GET,
            "/v1/jobs/same?queue=own",
            Value::Null,
        )
        .await;
    assert_eq!(
        (&shown["queue"], &shown["state"]),
        (&json!("own"), &json!("ready"))
    );
    let why = given
        .ok(
            &given.admin,
            Method::GET,
            "/v1/jobs/same/why?queue=own",
            Value::Null,
        )
        .await;
    assert!(why.to_string().contains("own"), "{why}");
    let selection = json!({ "ids": ["same"], "queue": "second" });
    given
        .ok(&given.admin, Method::DELETE, "/v1/dead", selection)
        .await;
    assert_eq!(
        given.standing().await,
        stand(&[("other", "dead"), ("own", "ready")])
    );
}

#[tokio::test]
async fn a_token_for_a_queue_reaches_no_job_of_another_by_its_id() {
    let given = Given::new().await;
    let own = given.site.token_for(&[Scope::Admin], &["own"]).await;
    let shown = given
        .ok(&own, Method::GET, "/v1/jobs/same", Value::Null)
        .await;
    assert_eq!(shown["queue"], "own");
    given
        .ok(
            &own,
            Method::POST,
            "/v1/dead/requeue",
            json!({ "ids": ["same"] }),
        )
        .await;
    let dead = [("other", "dead"), ("second", "dead")];
    assert_eq!(
        given.standing().await,
        stand(&[dead[0], ("own", "ready"), dead[1]])
    );
    given
        .ok(&own, Method::DELETE, "/v1/jobs/same", Value::Null)
        .await;
    assert_eq!(given.standing().await, stand(&dead));
    for (method, address) in [
        (Method::DELETE, "/v1/jobs/same"),
        (Method::POST, "/v1/jobs/same/retry"),
        (Method::GET, "/v1/jobs/same"),
        (Method::GET, "/v1/jobs/same/why"),
    ] {
        let (status, problem) = given.ask(&own, method.clone(), address, Value::Null).await;
        assert_eq!(status, 404, "{method} {address}: {problem}");
        let (status, problem) = given
            .ask(&own, method, &format!("{address}?queue=other"), Value::Null)
            .await;
        assert_eq!(status, 403, "{address}: {problem}");
    }
    assert_eq!(given.standing().await, stand(&dead));
}

#[tokio::test]
async fn a_token_for_two_of_the_queues_is_asked_which() {
    let given = Given::new().await;
    let both = given
        .site
        .token_for(&[Scope::Admin], &["own", "second"])
        .await;
    let (status, problem) = given
        .ask(&both, Method::DELETE, "/v1/jobs/same", Value::Null)
        .await;
    assert_eq!(status, 409, "{problem}");
    given
        .ok(
            &both,
            Method::DELETE,
            "/v1/jobs/same?queue=second",
            Value::Null,
        )
        .await;
    given
        .ok(&both, Method::DELETE, "/v1/jobs/same", Value::Null)
        .await;
    assert_eq!(given.standing().await, stand(&[("other", "dead")]));
}

impl Given {
    /// A page, as somebody who has logged in sees it.
    async fn page(&self, cookie: &str, address: &str) -> String {
        let (got, text) = self
            .site
            .read(empty(
                request(Method::GET, address).header(header::COOKIE, cookie),
            ))
            .await;
        assert_eq!(got.status, StatusCode::OK, "{address}: {text}");
        text
    }

    /// Sends a form; answers where it leads.
    async fn send(&self, cookie: &str, address: &str, form: String) -> String {
        let form = request(Method::POST, address)
            .header(header::COOKIE, cookie)
            .header(header::ORIGIN, format!("http://{HOST}"))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(form));
        self.site.ask(form.unwrap()).await.text(header::LOCATION)
    }
}

#[tokio::test]
async fn on_the_pages_the_queue_is_chosen_and_every_action_names_it() {
    let given = Given::new().await;
    let (cookie, id) = (given.site.log_in(&given.admin).await, JobId::named("same"));
    for (address, under) in [("/jobs/same", "/jobs"), ("/dead/same", "/dead")] {
        let page = given.page(&cookie, address).await;
        assert!(page.contains("3 queues have a job of this id"), "{page}");
        for queue in ["other", "own", "second"] {
            assert!(
                page.contains(&format!("href=\"{under}/{id}?queue={queue}\"")),
                "{queue} in {page}"
            );
        }
        assert!(
            !page.contains("Yes, "),
            "nothing can be done to one that is not chosen: {page}"
        );
    }
    let page = given.page(&cookie, "/jobs/same?queue=own").await;
    let forms: Vec<&str> = page.split("name=\"id\" value=\"").skip(1).collect();
    assert!(forms.len() >= 3, "{page}");
    assert!(
        forms
            .iter()
            .all(|form| form.starts_with(&format!("{id}:own\""))),
        "{page}"
    );
    let list = given.page(&cookie, "/jobs?queue=second").await;
    assert!(list.contains(&format!("value=\"{id}:second\"")), "{list}");
    assert!(
        list.contains(&format!("href=\"/jobs/{id}?queue=second\"")),
        "{list}"
    );
    let letters = given.page(&cookie, "/dead?view=letters&queue=second").await;
    assert!(
        letters.contains(&format!("value=\"{id}:second\"")),
        "{letters}"
    );
    let sure = given
        .page(
            &cookie,
            &format!("/dead/confirm?action=delete&id={id}:second"),
        )
        .await;
    assert!(
        sure.contains(&format!("name=\"id\" value=\"{id}:second\"")),
        "{sure}"
    );

    let before = given.standing().await;
    given
        .send(
            &cookie,
            "/jobs/act",
            format!("action=retry&id={id}&back=job"),
        )
        .await;
    assert_eq!(
        given.standing().await,
        before,
        "whichever is meant is not guessed"
    );
    let back = given
        .send(
            &cookie,
            "/jobs/act",
            format!("action=retry&id={id}:own&back=job"),
        )
        .await;
    assert_eq!(back, format!("/jobs/{id}?queue=own"));
    assert_eq!(
        given.standing().await,
        stand(&[("other", "dead"), ("own", "ready"), ("second", "dead")])
    );
    let moved = format!("action=move&id={id}:other&to=fresh&back=job");
    assert_eq!(
        given.send(&cookie, "/dead/act", moved).await,
        format!("/jobs/{id}?queue=fresh")
    );
    assert_eq!(
        given.standing().await,
        stand(&[("fresh", "ready"), ("own", "ready"), ("second", "dead")])
    );
    let both = format!("action=delete&id={id}:second&id={id}:own");
    given.send(&cookie, "/jobs/act", both).await;
    assert_eq!(given.standing().await, stand(&[("fresh", "ready")]));
    let page = given.page(&cookie, "/jobs/same?queue=own").await;
    assert!(
        page.contains("/queues/fresh"),
        "one that has moved on is found where it is: {page}"
    );
}

#[tokio::test]
async fn an_id_of_several_queues_is_not_shown_by_guessing() {
    let given = Given::new().await;
    for address in ["/v1/jobs/same", "/v1/jobs/same/why"] {
        let (status, problem) = given
            .ask(&given.admin, Method::GET, address, Value::Null)
            .await;
        assert_eq!(status, 409, "{address}: {problem}");
        given
            .ok(
                &given.admin,
                Method::GET,
                &format!("{address}?queue=own"),
                Value::Null,
            )
            .await;
    }
}

#[tokio::test]
async fn a_redrive_of_a_queue_leaves_jobs_of_the_same_id_alone() {
    let given = Given::new().await;
    let plan = |selection| RedrivePlan {
        canary: 1,
        max_failures: 0,
        then_rate: "100/s".parse().unwrap(),
        selection,
    };
    let ids = vec![JobId::named("same"), JobId::named("unknown")];
    let dead = given.site.backstop.dead().by("test");
    let within = DeadSelection::Within {
        queue: "own".parse().unwrap(),
        ids,
    };
    let id = dead.redrive(plan(within)).await.unwrap();
    // Left once the first is out: there is no worker that would run it.
    let left = |report: &RedriveReport| {
        if report.requeued == 1 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let report = dead.run_redrive(&id, left).await.unwrap();
    assert_eq!(
        (report.requeued, report.open, report.refused),
        (1, 1, 0),
        "{report:?}"
    );
    assert_eq!(
        given.standing().await,
        stand(&[("other", "dead"), ("own", "ready"), ("second", "dead")])
    );
}

/// Waits for what goes on in the background.
async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("it comes about");
}

impl Given {
    /// The only redrive there is.
    async fn redrive(&self) -> Value {
        self.ok(&self.admin, Method::GET, "/v1/dead/redrives", Value::Null)
            .await["redrives"][0]
            .take()
    }
}

#[tokio::test]
async fn a_redrive_by_a_token_for_a_queue_is_of_its_letters_whatever_becomes_of_them_meanwhile() {
    let given = Given::new().await;
    given.bury("own", "a").await;
    let second = json!({ "ids": ["same"], "queue": "second" });
    given
        .ok(&given.admin, Method::DELETE, "/v1/dead", second)
        .await;
    let own = given.site.token_for(&[Scope::Admin], &["own"]).await;
    let plan = json!({ "ids": ["a", "same"], "canary": 1, "then_rate": "1000/s" });
    let started = given.ok(&own, Method::POST, "/v1/dead/redrive", plan).await;
    until(|| async { given.redrive().await["phase"] == "watching" }).await;
    // The one that is left of the id is another queue's.
    given
        .ok(&own, Method::DELETE, "/v1/jobs/same", Value::Null)
        .await;
    given.settle("own", json!({ "outcome": "done" })).await;
    until(|| async { given.redrive().await["phase"] == "done" }).await;
    let ended = given.redrive().await;
    assert_eq!(
        (&ended["requeued"], &ended["refused"]),
        (&json!(1), &json!(1)),
        "{ended}"
    );
    let others = given
        .ok(&given.admin, Method::GET, "/v1/jobs/same", Value::Null)
        .await;
    assert_eq!(
        (&others["queue"], &others["state"]),
        (&json!("other"), &json!("dead")),
        "{others}"
    );
    assert_eq!(started["selection"]["queue"], "own", "{started}");
}

#[tokio::test]
async fn a_token_for_two_queues_changes_its_letters_by_their_ids_and_no_others() {
    let given = Given::new().await;
    given.bury("own", "a").await;
    given.bury("second", "b").await;
    let both = given
        .site
        .token_for(&[Scope::Admin], &["own", "second"])
        .await;
    let plan = json!({ "ids": ["a", "b"], "canary": 1 });
    let (status, problem) = given
        .ask(&both, Method::POST, "/v1/dead/redrive", plan)
        .await;
    assert!(
        status == 400 && problem["detail"].as_str().unwrap().contains("one for each"),
        "{problem}"
    );
    let told = given
        .ok(
            &both,
            Method::POST,
            "/v1/dead/requeue",
            json!({ "ids": ["a", "b"] }),
        )
        .await;
    assert_eq!(told["count"], 2, "{told}");
    let audit = given.site.backstop.audit("").entries(10).await.unwrap();
    let requeues: Vec<_> = audit
        .iter()
        .filter(|entry| entry.what == "requeue")
        .collect();
    assert!(
        requeues.len() == 1 && requeues[0].count == Some(2),
        "{requeues:?}"
    );
    let parts: Vec<&Value> = requeues[0].selection["each"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["queue"])
        .collect();
    assert_eq!(parts, ["own", "second"]);
    // Meant by their ids they are still no others of these ids.
    given
        .ok(
            &both,
            Method::DELETE,
            "/v1/jobs/same?queue=second",
            Value::Null,
        )
        .await;
    given
        .ok(
            &both,
            Method::POST,
            "/v1/dead/requeue",
            json!({ "ids": ["same"] }),
        )
        .await;
    let standing = given.standing().await;
    assert!(
        standing.contains(&("other".to_owned(), "dead".to_owned())),
        "{standing:?}"
    );
}

#[tokio::test]
async fn a_group_is_shown_by_a_letter_of_its_own_queue() {
    let given = Given::new().await;
    for queue in ["other", "own", "second"] {
        let token = given.site.token_for(&[Scope::Read], &[queue]).await;
        for token in [&token, &given.admin] {
            let address = format!("/v1/dead/groups?queue={queue}");
            let groups = given.ok(token, Method::GET, &address, Value::Null).await;
            let sample = &groups["groups"][0]["sample"];
            assert_eq!(sample["error"], format!("boom of {queue}"), "{groups}");
            assert_eq!(sample["kind"], format!("kind-{queue}"), "{groups}");
            assert_eq!(sample["error_type"], format!("Error-{queue}"), "{groups}");
        }
    }
}

#[tokio::test]
async fn a_bulk_action_on_letters_that_are_looked_at_means_those_of_their_queue() {
    let given = Given::new().await;
    let cookie = given.site.log_in(&given.admin).await;
    let act = async |form: &str| {
        let run = given.send(&cookie, "/dead/act", form.to_owned()).await;
        until(|| async { given.page(&cookie, &run).await.contains(">done<") }).await;
    };
    act("action=requeue&text=boom&queue=own&all=matching").await;
    assert_eq!(
        given.standing().await,
        stand(&[("other", "dead"), ("own", "ready"), ("second", "dead")])
    );
    act("action=delete&error_type=Error-second&all=matching&typed=delete").await;
    assert_eq!(
        given.standing().await,
        stand(&[("other", "dead"), ("own", "ready")])
    );
}
