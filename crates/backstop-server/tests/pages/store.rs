//! A store that does not answer is an error on the page, never an empty list.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::{Extension, Router};
use backstop::config::{ConfigOverrides, resolve};
use backstop::{Backstop, RandomSource, testing};
use backstop_server::access::{Caller, ScopeSet};
use backstop_server::{App, pages};
use backstop_testkit::flaky::Flaky;
use std::sync::Arc;
use tower::ServiceExt as _;

fn given() -> (Arc<Flaky>, Router) {
    let store = Arc::new(Flaky::new(Arc::new(backstop_memory::MemoryStore::new()), 1));
    let clock = testing::start().clock;
    let backstop = Backstop::on(Arc::<Flaky>::clone(&store), clock, RandomSource::seeded(1));
    let config = resolve(None, ConfigOverrides::default(), ConfigOverrides::default()).unwrap();
    let routes = pages::routes().layer(Extension(Caller::new("ada", ScopeSet::ALL)));
    (store, routes.with_state(App::new(backstop, config, "")))
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_with_503() {
    let (store, router) = given();
    store.set_down(true);
    for address in [
        "/",
        "/queues",
        "/queues/q",
        "/jobs",
        "/jobs/x",
        "/jobs/runs",
        "/jobs/runs/x",
        "/dead",
        "/dead?view=letters",
        "/dead/x",
        "/dead/redrives",
        "/workers",
        "/breakers",
        "/kinds",
        "/audit",
    ] {
        let request = Request::get(address).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(
            answer.status(),
            StatusCode::SERVICE_UNAVAILABLE,
            "{address}"
        );
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let page = String::from_utf8(body.to_vec()).unwrap();
        assert!(
            page.contains("The store does not answer") && page.contains("nothing is lost"),
            "{address}: {page}"
        );
    }
}

#[tokio::test]
async fn a_change_that_the_store_did_not_take_is_told_with_503() {
    let (store, router) = given();
    store.set_down(true);
    for address in [
        "/queues/q/pause",
        "/breakers/open",
        "/jobs/act",
        "/dead/act",
    ] {
        let request = Request::post(address)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from("name=q&action=delete&id=x"))
            .unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(
            answer.status(),
            StatusCode::SERVICE_UNAVAILABLE,
            "{address}"
        );
    }
}
