//! One id in several queues, as Redis has it, and tokens for some of them.

use crate::given::{GUARDED, Site, bearing, request};
use axum::body::Body;
use axum::http::Method;
use backstop_core::port::Store;
use backstop_redis::RedisStore;
use backstop_server::access::Scope;
use backstop_testkit::servers;
use serde_json::{Value, json};
use std::sync::Arc;

/// A server on Redis with a dead job of one id in each of three queues.
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
            let job = json!({ "queue": queue, "payload": 1, "id": "same" });
            given.ok(&given.admin, Method::POST, "/v1/jobs", job).await;
            let ask = json!({ "queues": [queue], "worker": "w" });
            let leased = given.ok(&given.admin, Method::POST, "/v1/lease", ask).await["jobs"][0].take();
            let end = json!({ "id": leased["id"], "lease": leased["lease"], "outcome": "dead" });
            given.ok(&given.admin, Method::POST, "/v1/settle", json!({ "settle": [end] })).await;
        }
        given
    }

    async fn ask(&self, token: &str, method: Method, address: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = bearing(request(method, address), token).body(Body::from(text)).unwrap();
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
        let listed = self.ok(&self.admin, Method::GET, "/v1/jobs", Value::Null).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let jobs = listed["jobs"].as_array().unwrap().iter();
        let mut jobs: Vec<_> = jobs.map(|job| (text(&job["queue"]), text(&job["state"]))).collect();
        jobs.sort();
        jobs
    }
}

fn stand(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states.iter().map(|(queue, state)| ((*queue).to_owned(), (*state).to_owned())).collect()
}

#[tokio::test]
async fn an_id_of_several_queues_is_a_conflict_until_the_queue_is_named() {
    let given = Given::new().await;
    let before = given.standing().await;
    for (method, address) in [(Method::DELETE, "/v1/jobs/same"), (Method::POST, "/v1/jobs/same/retry")] {
        let (status, problem) = given.ask(&given.admin, method, address, Value::Null).await;
        assert_eq!(status, 409, "{address}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("name the queue"), "{problem}");
    }
    let told = given.ok(&given.admin, Method::POST, "/v1/dead/requeue", json!({ "ids": ["same"] })).await;
    assert_eq!(told["count"], 0, "{told}");
    assert_eq!(given.standing().await, before);
    given.ok(&given.admin, Method::POST, "/v1/jobs/same/retry?queue=own", Value::Null).await;
    let shown = given.ok(&given.admin, Method::GET, "/v1/jobs/same?queue=own", Value::Null).await;
    assert_eq!((&shown["queue"], &shown["state"]), (&json!("own"), &json!("ready")));
    let why = given.ok(&given.admin, Method::GET, "/v1/jobs/same/why?queue=own", Value::Null).await;
    assert!(why.to_string().contains("own"), "{why}");
    let selection = json!({ "ids": ["same"], "queue": "second" });
    given.ok(&given.admin, Method::DELETE, "/v1/dead", selection).await;
    assert_eq!(given.standing().await, stand(&[("other", "dead"), ("own", "ready")]));
}

#[tokio::test]
async fn a_token_for_a_queue_reaches_no_job_of_another_by_its_id() {
    let given = Given::new().await;
    let own = given.site.token_for(&[Scope::Admin], &["own"]).await;
    let shown = given.ok(&own, Method::GET, "/v1/jobs/same", Value::Null).await;
    assert_eq!(shown["queue"], "own");
    given.ok(&own, Method::POST, "/v1/dead/requeue", json!({ "ids": ["same"] })).await;
    let dead = [("other", "dead"), ("second", "dead")];
    assert_eq!(given.standing().await, stand(&[dead[0], ("own", "ready"), dead[1]]));
    given.ok(&own, Method::DELETE, "/v1/jobs/same", Value::Null).await;
    assert_eq!(given.standing().await, stand(&dead));
    for (method, address) in [
        (Method::DELETE, "/v1/jobs/same"),
        (Method::POST, "/v1/jobs/same/retry"),
        (Method::GET, "/v1/jobs/same"),
        (Method::GET, "/v1/jobs/same/why"),
    ] {
        let (status, problem) = given.ask(&own, method.clone(), address, Value::Null).await;
        assert_eq!(status, 404, "{method} {address}: {problem}");
        let (status, problem) = given.ask(&own, method, &format!("{address}?queue=other"), Value::Null).await;
        assert_eq!(status, 403, "{address}: {problem}");
    }
    assert_eq!(given.standing().await, stand(&dead));
}

#[tokio::test]
async fn a_token_for_two_of_the_queues_is_asked_which() {
    let given = Given::new().await;
    let both = given.site.token_for(&[Scope::Admin], &["own", "second"]).await;
    let (status, problem) = given.ask(&both, Method::DELETE, "/v1/jobs/same", Value::Null).await;
    assert_eq!(status, 409, "{problem}");
    given.ok(&both, Method::DELETE, "/v1/jobs/same?queue=second", Value::Null).await;
    given.ok(&both, Method::DELETE, "/v1/jobs/same", Value::Null).await;
    assert_eq!(given.standing().await, stand(&[("other", "dead")]));
}
