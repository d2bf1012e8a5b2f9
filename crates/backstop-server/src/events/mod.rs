//! `GET /v1/events`: tells viewers that something changed, so that they look again.
//!
//! One poller a server looks for everybody, and only while somebody listens. An event names what
//! changed; what it is by now is a question for the pages or the API. Events have ids: who comes
//! back with the newest one missed nothing, and everybody else is told to look.

mod hub;
mod watched_state;

pub use hub::{EventHub, VIEWERS_MAX, VIEWERS_OF_ONE_MAX};

use crate::App;
use crate::access::Caller;
use crate::api::{Problem, ProblemShape};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::StreamExt;
use hub::{EventViewer, HubFull, ViewerEvent};
use std::convert::Infallible;
use std::time::Duration;

/// How often a viewer hears something, whatever happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long one answer goes on: whoever may not look any more finds out when they come back.
const ANSWER_MAX: Duration = Duration::from_mins(15);
/// After how many seconds somebody may try again whom there was no room for.
const LATER_SECS: u32 = 10;
/// After how long a browser comes back.
const RETRY: Duration = Duration::from_secs(2);

/// The route, with a hub of its own.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/v1/events", get(events))
        .layer(Extension(EventHub::default()))
}

/// Tell when something changed, as server-sent events, so that it is looked at again. An event
/// names what changed; `Last-Event-ID` says what was heard last.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(("last-event-id" = Option<String>, Header, description = "The id of the last event that was heard")),
    responses(
        (status = 200, description = "Events, until the caller goes away or 15 minutes are over", body = String, content_type = "text/event-stream"),
        (status = 503, description = "There are too many viewers", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn events(
    State(app): State<App>,
    Extension(hub): Extension<EventHub>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let viewer = match hub.join(&app, caller.name(), last) {
        Ok(viewer) => viewer,
        Err(full) => return too_many_viewers(full).into_response(),
    };
    let over = tokio::time::sleep(ANSWER_MAX);
    let events = futures_util::stream::unfold(viewer, |mut viewer: EventViewer| async move {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(sse_event(&event)), viewer))
    });
    let mut answer = Sse::new(events.take_until(over))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("still here"))
        .into_response();
    // A proxy that collects what comes before it hands it on would hold events back.
    answer.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    answer
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn too_many_viewers(full: HubFull) -> Problem {
    let why = match full {
        HubFull::Hub => {
            format!("{VIEWERS_MAX} viewers are connected, and more are not taken; try again later")
        }
        HubFull::Caller => format!(
            "{VIEWERS_OF_ONE_MAX} viewers of yours are connected, and more of one caller are not taken; close some, or use tokens of several names"
        ),
    };
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too-many-viewers",
        "Too many viewers",
        why,
    )
    .retry_after(LATER_SECS)
}

fn sse_event(event: &ViewerEvent) -> Event {
    Event::default()
        .id(&event.id)
        .event(event.name)
        .retry(RETRY)
        .data(event.what.join(","))
}
