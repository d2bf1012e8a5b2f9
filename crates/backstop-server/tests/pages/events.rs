//! Live updates: told when something changed, with ids, to a bounded number of viewers.

use crate::given::ready;
use crate::site::Site;
use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use axum::{Extension, Router};
use backstop_server::access::{Caller, Scopes};
use backstop_server::events::VIEWERS_MAX;
use backstop_server::pages;
use std::time::Duration;
use tokio_stream::StreamExt as _;
use tower::ServiceExt as _;

fn router(site: &Site) -> Router {
    let routes = pages::routes().layer(Extension(Caller::new("ada", Scopes::ALL)));
    routes.with_state(site.app.clone())
}

async fn listen(router: &Router, last: Option<&str>) -> (StatusCode, BodyDataStream) {
    let request = Request::get("/v1/events");
    let request = match last {
        Some(id) => request.header("last-event-id", id),
        None => request,
    };
    let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    if answer.status() == StatusCode::OK {
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.headers()["x-accel-buffering"], "no");
    }
    (answer.status(), answer.into_body().into_data_stream())
}

/// The next event: its name, its data and its id.
async fn next(stream: &mut BodyDataStream) -> (String, String, String) {
    let mut text = String::new();
    while !text.contains("data:") {
        let part = tokio::time::timeout(Duration::from_mins(2), stream.next()).await.expect("an event comes");
        text.push_str(std::str::from_utf8(&part.expect("it goes on").unwrap()).unwrap());
    }
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    (field("event:"), field("data:"), field("id:"))
}

#[tokio::test(start_paused = true)]
async fn a_viewer_is_told_to_look_and_then_what_changed() {
    let site = Site::new("");
    let (_, mut stream) = listen(&router(&site), None).await;
    assert_eq!(next(&mut stream).await.0, "changed", "whatever happened since the page was made");
    tokio::time::sleep(Duration::from_secs(2)).await;
    ready(&site.test.backstop, "emails", "a").await;
    let (name, data, _) = next(&mut stream).await;
    assert_eq!((name.as_str(), data.as_str()), ("changed", "queues"));
}

#[tokio::test(start_paused = true)]
async fn without_a_change_only_the_time_is_told() {
    let site = Site::new("");
    let (_, mut stream) = listen(&router(&site), None).await;
    next(&mut stream).await;
    let (name, data, _) = next(&mut stream).await;
    assert_eq!((name.as_str(), data.as_str()), ("tick", "time"));
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_with_the_newest_id_has_missed_nothing() {
    let site = Site::new("");
    let router = router(&site);
    let (_, mut stays) = listen(&router, None).await;
    let (_, _, id) = next(&mut stays).await;
    let (_, mut back) = listen(&router, Some(&id)).await;
    assert_eq!(next(&mut back).await.0, "tick", "nothing to look at before that");
    let (_, mut stranger) = listen(&router, Some("of-another-server-1")).await;
    assert_eq!(next(&mut stranger).await.0, "changed");
}

#[tokio::test(start_paused = true)]
async fn one_viewer_too_many_is_turned_away_until_another_leaves() {
    let site = Site::new("");
    let router = router(&site);
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS_MAX {
        viewers.push(listen(&router, None).await);
    }
    assert!(viewers.iter().all(|(status, _)| *status == StatusCode::OK));
    assert_eq!(listen(&router, None).await.0, StatusCode::SERVICE_UNAVAILABLE);
    viewers.pop();
    assert_eq!(listen(&router, None).await.0, StatusCode::OK);
}
