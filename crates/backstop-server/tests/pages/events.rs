//! Live updates: told when something changed, with ids, to a bounded number of viewers.

use crate::given::ready;
use crate::site::Site;
use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use backstop_server::access::{Caller, ScopeSet};
use backstop_server::events::{VIEWERS_MAX, VIEWERS_OF_ONE_MAX};
use backstop_server::pages;
use std::time::Duration;
use tokio_stream::StreamExt as _;
use tower::ServiceExt as _;

fn router(site: &Site) -> Router {
    pages::routes().with_state(site.app.clone())
}

async fn listen(router: &Router, last: Option<&str>) -> (StatusCode, BodyDataStream) {
    listen_as("ada", router, last).await
}

async fn listen_as(who: &str, router: &Router, last: Option<&str>) -> (StatusCode, BodyDataStream) {
    let request = Request::get("/v1/events").extension(Caller::new(who, ScopeSet::ALL));
    let request = match last {
        Some(id) => request.header("last-event-id", id),
        None => request,
    };
    let answer = router
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
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
        let part = tokio::time::timeout(Duration::from_mins(2), stream.next())
            .await
            .expect("an event comes");
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
    assert_eq!(
        next(&mut stream).await.0,
        "changed",
        "whatever happened since the page was made"
    );
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
    assert_eq!(
        next(&mut back).await.0,
        "tick",
        "nothing to look at before that"
    );
    let (_, mut stranger) = listen(&router, Some("of-another-server-1")).await;
    assert_eq!(next(&mut stranger).await.0, "changed");
}

#[tokio::test(start_paused = true)]
async fn one_viewer_too_many_is_turned_away_until_another_leaves() {
    let site = Site::new("");
    let router = router(&site);
    let mut viewers = Vec::new();
    for number in 0..VIEWERS_MAX {
        let who = format!("viewer {}", number / VIEWERS_OF_ONE_MAX);
        viewers.push(listen_as(&who, &router, None).await);
    }
    assert!(viewers.iter().all(|(status, _)| *status == StatusCode::OK));
    assert_eq!(
        listen(&router, None).await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    viewers.pop();
    assert_eq!(listen(&router, None).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn nobody_has_more_places_than_one_may_have_and_who_leaves_gives_theirs_back() {
    let site = Site::new("");
    let router = router(&site);
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS_OF_ONE_MAX {
        viewers.push(listen_as("ada", &router, None).await);
    }
    assert!(viewers.iter().all(|(status, _)| *status == StatusCode::OK));
    assert_eq!(
        listen_as("ada", &router, None).await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(listen_as("grace", &router, None).await.0, StatusCode::OK);
    for _ in 0..3 {
        viewers.pop();
        viewers.push(listen_as("ada", &router, None).await);
        assert_eq!(viewers.last().unwrap().0, StatusCode::OK);
    }
    assert_eq!(
        listen_as("ada", &router, None).await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test(start_paused = true)]
async fn a_hundred_changes_within_a_second_are_told_as_two_at_most() {
    let site = Site::new("");
    let (_, mut stream) = listen(&router(&site), None).await;
    assert_eq!(next(&mut stream).await.1, "all");
    // The poller has had its first look.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut events = Vec::new();
    for n in 0..100 {
        ready(&site.test.backstop, "emails", &n.to_string()).await;
        if let Ok(event) = tokio::time::timeout(Duration::from_millis(10), next(&mut stream)).await
        {
            events.push(event);
        }
    }
    assert!((1..=2).contains(&events.len()), "{events:?}");
    // The last of them is not lost: whoever looks when told sees all hundred.
    let (name, data, _) = next(&mut stream).await;
    assert_eq!((name.as_str(), data.as_str()), ("changed", "queues"));
    assert_eq!(next(&mut stream).await.0, "tick");
}
