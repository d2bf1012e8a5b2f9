//! How much is taken, and how it is told that it was too much.

use crate::given::{GUARDED, HOST, Site, bearing, empty, request};
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use backstop_server::events::VIEWERS_OF_ONE_MAX;
use backstop_testkit::flaky::{Flaky, Odds};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;

const FORM: &str = "application/x-www-form-urlencoded";

/// A form of so many bytes, from a page of ours.
fn form(address: &str, token: &str, bytes: usize) -> Request<Body> {
    let builder = bearing(request(Method::POST, address), token)
        .header(header::ORIGIN, format!("http://{HOST}"))
        .header(header::CONTENT_TYPE, FORM);
    builder
        .body(Body::from(format!("x={}", "a".repeat(bytes - 2))))
        .unwrap()
}

#[tokio::test]
async fn strangers_send_no_more_than_a_token_to_the_login_page() {
    for base in ["", "/bs"] {
        let site = Site::new(&format!("{GUARDED}base = \"{base}\"\n"));
        let address = format!("{base}/login");
        let enough = site.ask(form(&address, "", 8 << 10)).await;
        assert_eq!(
            enough.status,
            StatusCode::SEE_OTHER,
            "{address}: it is read, and is no login"
        );
        let (got, text) = site.read(form(&address, "", (8 << 10) + 1)).await;
        assert_eq!(got.status, StatusCode::PAYLOAD_TOO_LARGE, "{address}");
        assert!(
            text.starts_with("<!doctype html>"),
            "people are told on a page: {text}"
        );
    }
}

#[tokio::test]
async fn pages_take_no_more_than_forms_have() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    assert_eq!(
        site.ask(form("/queues/q/pause", &token, 64 << 10))
            .await
            .status,
        StatusCode::SEE_OTHER
    );
    let got = site
        .ask(form("/queues/q/pause", &token, (64 << 10) + 1))
        .await;
    assert_eq!(got.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn what_took_too_long_is_told_to_people_on_a_page_and_to_programs_as_a_problem() {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let site = Site::on(
        Arc::<Flaky>::clone(&store),
        &format!("{GUARDED}timeout = \"1s\"\n"),
    );
    let token = site.token(&[Scope::Read], None).await.token;
    site.ask(empty(bearing(
        request(Method::GET, "/openapi.json"),
        &token,
    )))
    .await;
    store.set_odds(Odds {
        delay_before: 1.0,
        delay_max: Duration::from_hours(9_000),
        ..Odds::default()
    });
    for (address, content) in [
        ("/queues", "text/html; charset=utf-8"),
        ("/v1/queues", "application/problem+json"),
    ] {
        let got = site
            .ask(empty(bearing(request(Method::GET, address), &token)))
            .await;
        assert_eq!(got.status, StatusCode::REQUEST_TIMEOUT, "{address}");
        assert_eq!(got.text(header::CONTENT_TYPE), content, "{address}");
    }
}

/// An answer to a viewer; as long as it is kept, so is its place.
async fn viewed(site: &Site, token: &str) -> Response {
    let ask = bearing(request(Method::GET, "/v1/events"), token);
    site.router.clone().oneshot(empty(ask)).await.unwrap()
}

#[tokio::test]
async fn a_viewer_too_many_is_told_as_a_problem_and_leaves_room_for_others() {
    let site = Site::new(GUARDED);
    let (greedy, other) = (
        site.token(&[Scope::Read], None).await.token,
        site.token_for(&[Scope::Read], &[]).await,
    );
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS_OF_ONE_MAX {
        viewers.push(viewed(&site, &greedy).await);
    }
    assert!(
        viewers
            .iter()
            .all(|answer| answer.status() == StatusCode::OK)
    );
    let refused = viewed(&site, &greedy).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        refused.headers()[header::CONTENT_TYPE],
        "application/problem+json"
    );
    assert_eq!(refused.headers()[header::RETRY_AFTER], "10");
    let text = to_bytes(refused.into_body(), 1 << 16).await.unwrap();
    assert!(
        String::from_utf8_lossy(&text).contains("20 viewers of yours"),
        "{text:?}"
    );
    assert_eq!(
        viewed(&site, &other).await.status(),
        StatusCode::OK,
        "others have their places"
    );
    viewers.pop();
    assert_eq!(
        viewed(&site, &greedy).await.status(),
        StatusCode::OK,
        "who leaves gives theirs back"
    );
}
