//! An API on a store in memory, and requests in few words.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::{Extension, Router};
use backstop::audit::AuditEntry;
use backstop::config::{Config, ConfigFile, ConfigOverrides, resolve};
use backstop::testing::{TestBackstop, start};
use backstop::{Backstop, ManualClock};
use backstop_server::access::{Caller, Scope, ScopeSet};
use backstop_server::{App, api};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;
use utoipa_axum::router::OpenApiRouter;

/// An API, asked by one caller.
#[derive(Clone)]
pub(crate) struct Api {
    router: Router,
    pub(crate) backstop: Backstop,
    pub(crate) clock: Arc<ManualClock>,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// What a configuration file with this text says.
pub(crate) fn config(text: &str) -> Config {
    let written = ConfigFile {
        path: "backstop.toml",
        text,
    };
    resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )
    .expect(text)
}

/// The routes as `serve` mounts them, asked by a caller with these rights.
pub(crate) fn router(app: &App, scopes: &[Scope]) -> Router {
    router_for(app, "ada", scopes)
}

fn router_for(app: &App, caller: &str, scopes: &[Scope]) -> Router {
    let caller = Caller::new(caller, scopes.iter().copied().collect::<ScopeSet>());
    let (api, _) = OpenApiRouter::new()
        .nest("/v1", api::routes())
        .split_for_parts();
    api.merge(api::description_route(app.base()))
        .layer(Extension(caller))
        .with_state(app.clone())
}

/// An API for an administrator, without a configuration.
pub(crate) fn given() -> Api {
    given_with("")
}

/// An API for an administrator.
pub(crate) fn given_with(text: &str) -> Api {
    let TestBackstop { backstop, clock } = start();
    on(backstop, clock, text, &[Scope::Admin])
}

pub(crate) fn on(backstop: Backstop, clock: Arc<ManualClock>, text: &str, scopes: &[Scope]) -> Api {
    let router = router(&App::new(backstop.clone(), config(text), ""), scopes);
    Api {
        router,
        backstop,
        clock,
    }
}

/// One API, asked by two administrators.
pub(crate) fn given_for(callers: [&str; 2]) -> [Api; 2] {
    let TestBackstop { backstop, clock } = start();
    let app = App::new(backstop.clone(), config(""), "");
    callers.map(|caller| Api {
        router: router_for(&app, caller, &[Scope::Admin]),
        backstop: backstop.clone(),
        clock: Arc::clone(&clock),
    })
}

impl Api {
    /// The same, asked by a caller with these rights.
    pub(crate) fn with_scopes(&self, scopes: &[Scope]) -> Self {
        on(self.backstop.clone(), Arc::clone(&self.clock), "", scopes)
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        self.send(
            Request::builder()
                .method(method)
                .uri(path)
                .body(body.into())
                .expect(path),
        )
        .await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("routers do not fail");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("answers are text");
        Answer {
            status: parts.status,
            headers: parts.headers,
            text,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::DELETE, path, body.to_string()).await
    }

    /// Pushes a job with this name and payload `{}`.
    pub(crate) async fn push(&self, queue: &str, name: &str) {
        let answer = self
            .post(
                "/v1/jobs",
                json!({ "queue": queue, "payload": {}, "id": name }),
            )
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    }

    /// Leases up to `max` jobs of a queue.
    pub(crate) async fn lease(&self, queue: &str, max: usize) -> Vec<Value> {
        let answer = self
            .post(
                "/v1/lease",
                json!({ "queues": [queue], "max": max, "worker": "w1" }),
            )
            .await;
        answer.ok()["jobs"].as_array().expect("jobs").clone()
    }

    /// Ends the run of a leased job; answers what became of that.
    pub(crate) async fn settle(&self, leased: &Value, end: Value) -> String {
        let mut settle = json!({ "id": leased["id"], "lease": leased["lease"] });
        settle
            .as_object_mut()
            .unwrap()
            .extend(end.as_object().unwrap().clone());
        let answer = self
            .post("/v1/settle", json!({ "settle": [settle] }))
            .await
            .ok();
        answer["results"][0]["result"]
            .as_str()
            .expect("a result")
            .to_owned()
    }

    /// Makes a job that died of `error`.
    pub(crate) async fn bury(&self, queue: &str, name: &str, error: &str) {
        self.push(queue, name).await;
        let leased = self.lease(queue, 1).await.remove(0);
        let end = json!({ "outcome": "dead", "error": { "message": error, "type": "Boom" } });
        assert_eq!(self.settle(&leased, end).await, "applied");
    }

    /// The state of a job.
    pub(crate) async fn state(&self, name: &str) -> String {
        self.get(&format!("/v1/jobs/{name}")).await.ok()["state"]
            .as_str()
            .expect("a state")
            .to_owned()
    }

    /// The audit, the newest first.
    pub(crate) async fn audit(&self) -> Vec<AuditEntry> {
        self.backstop
            .audit("")
            .entries(100)
            .await
            .expect("the audit")
    }
}

impl Answer {
    /// What was answered, which must be well.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{}: {}", self.status, self.text);
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_str(&self.text).expect("JSON")
    }

    /// The detail of the problem, which must have this status.
    #[track_caller]
    pub(crate) fn problem(self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem: Value = serde_json::from_str(&self.text).expect("JSON");
        assert_eq!(problem["status"], status);
        for field in ["type", "title", "detail"] {
            assert!(
                problem[field].as_str().is_some_and(|text| !text.is_empty()),
                "{field} of {problem}"
            );
        }
        problem["detail"].as_str().unwrap_or_default().to_owned()
    }
}
