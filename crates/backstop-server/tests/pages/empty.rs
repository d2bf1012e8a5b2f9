//! Pages without anything on them teach the next step.

use crate::given::ready;
use crate::site::Site;
use axum::Extension;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use backstop::config::{ConfigFile, ConfigOverrides, resolve};
use backstop_server::access::{Caller, ScopeSet};
use backstop_server::api;
use tower::ServiceExt as _;
use utoipa_axum::router::OpenApiRouter;

/// Pages that quote a configuration while there is nothing on them.
const TEACHING: [&str; 5] = ["/breakers", "/schedules", "/streams", "/sweeps", "/tables"];

async fn check(address: &str, said: &[&str]) {
    let page = Site::new("").page(address).await;
    for words in said {
        assert!(
            page.contains(words),
            "{address} does not say {words}: {page}"
        );
    }
}

#[tokio::test]
async fn an_empty_page_teaches_the_next_step() {
    check(
        "/",
        &[
            "Nothing here yet",
            "backstop push emails",
            "backstop work emails",
        ],
    )
    .await;
    check(
        "/queues",
        &["No queues yet", "backstop push emails", "/v1/jobs"],
    )
    .await;
    check("/jobs", &["No jobs yet", "backstop push emails"]).await;
    check("/jobs?state=dead", &["No job fits", "Show all jobs"]).await;
    check("/jobs/runs", &["No bulk actions yet"]).await;
    check("/dead", &["No dead letters", "/policy"]).await;
    check("/dead?view=letters", &["No dead letters"]).await;
    check(
        "/dead/redrives",
        &["No redrives yet", "backstop dead redrive"],
    )
    .await;
    check(
        "/workers",
        &["No worker was heard", "backstop work emails --exec"],
    )
    .await;
    check(
        "/kinds",
        &["No run ended in this time", "backstop push emails"],
    )
    .await;
    check("/breakers", &["No breakers yet", "failure_threshold = 5"]).await;
    check("/audit", &["Nothing was changed by hand yet"]).await;
}

/// What stands on a page between these.
fn between<'a>(page: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    page.split(before)
        .skip(1)
        .filter_map(|rest| rest.split(after).next())
        .collect()
}

#[tokio::test]
async fn the_request_that_is_taught_pushes_a_job() {
    let site = Site::new("");
    let page = site.page("/queues").await;
    let quotes = between(&page, "-d '", "'");
    let [body] = quotes[..] else {
        panic!("one request is taught: {page}")
    };
    let (api, _) = OpenApiRouter::new()
        .nest("/v1", api::routes())
        .split_for_parts();
    let api = api
        .layer(Extension(Caller::new("ada", ScopeSet::ALL)))
        .with_state(site.app.clone());
    let request = Request::post("/v1/jobs").header("content-type", "application/json");
    let answer = api
        .oneshot(request.body(Body::from(body.to_owned())).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED, "{body}");
    assert!(site.page("/queues").await.contains("/queues/emails"));
}

fn check_configuration(address: &str, text: &str) {
    let text = text.replace("&lt;", "<").replace("&#60;", "<");
    let written = ConfigFile {
        path: "backstop.toml",
        text: &text,
    };
    let resolved = resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    );
    assert!(resolved.is_ok(), "{address} teaches {text}: {resolved:?}");
}

#[tokio::test]
async fn every_configuration_that_is_taught_is_one() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let record = backstop::core::stream::Record {
        key: backstop::StreamKey::new("site-7").unwrap(),
        position: 60_000,
        step: 60_000,
        tenant: None,
        payload: backstop::Payload::json("{}").unwrap(),
    };
    site.test
        .backstop
        .stream("uptime")
        .unwrap()
        .offer(vec![record])
        .await
        .unwrap();
    let empty = Site::new("");
    let teaching = TEACHING.map(|address| (&empty, address));
    for (site, address) in teaching
        .into_iter()
        .chain([(&site, "/queues/emails"), (&site, "/streams/uptime")])
    {
        let page = site.page(address).await;
        let quotes = between(&page, "<pre class=\"quote\">", "</pre>");
        let configurations: Vec<&str> = quotes
            .into_iter()
            .filter(|quote| quote.starts_with('['))
            .collect();
        assert!(!configurations.is_empty(), "{address} teaches none: {page}");
        for text in configurations {
            check_configuration(address, text);
        }
    }
}

#[tokio::test]
async fn every_key_that_is_named_is_one() {
    let page = Site::new("").page("/jobs?state=done").await;
    let keys = between(&page, "the queue's <code>", "</code>");
    let [key] = keys[..] else {
        panic!("one key is named: {page}")
    };
    check_configuration("/jobs", &format!("[queues.q]\n{key} = \"1h\"\n"));
    let page = Site::new("").page("/workers").await;
    let handlers = between(&page, "call one: <code>", "</code>");
    let [handler] = handlers[..] else {
        panic!("one handler is named: {page}")
    };
    check_configuration(
        "/workers",
        &format!("[queues.q]\n{}\n", handler.replace('…', "h/")),
    );
}
