//! How long and how large requests may be.

use crate::App;
use crate::access::{RequestAudience, RequestRefusal, inner_path};
use crate::api::WAIT_MAX;
use axum::body::{Body, HttpBody};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::Response;
use backstop_core::limits::{ENQUEUE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use futures_util::{FutureExt, StreamExt};
use http_body_util::Limited;
use std::time::Duration;

/// What may stand around one payload.
const ENVELOPE_BYTES: usize = 64 << 10;
/// What strangers may send: the login page takes a token and an address to go back to.
const LOGIN_BYTES_MAX: usize = 8 << 10;
/// What a form of a page may have.
const FORM_BYTES_MAX: usize = 64 << 10;
/// What may stand around the payloads of a batch.
const BATCH_ENVELOPE_BYTES: usize = 2 << 20;
/// Routes that take many items at once, as they end.
const BATCHES: [&str; 4] = ["/v1/jobs/batch", "/v1/settle", "/v1/beat", "/records"];

/// Answers a request within its limits.
pub(super) async fn enforce_limits(
    State(app): State<App>,
    parts: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str);
    let route = &inner_path(&app, route).to_owned();
    // Here for all routes: each by itself would have to say it in the words of its reader.
    if let Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) = parts {
        return RequestRefusal::Unreadable.answer_at(route, app.base());
    }
    let (body_max, within) = (body_max(route), time_limit(&app, route));
    if request.body().size_hint().lower() > body_max as u64 {
        return RequestRefusal::BodyTooLong(body_max).answer_at(route, app.base());
    }
    let request = request.map(|body| Body::new(Limited::new(body, body_max)));
    match tokio::time::timeout(within, next.run(request)).await {
        Ok(response) => end_when_closing(&app, response),
        Err(_) => RequestRefusal::TooSlow(within).answer_at(route, app.base()),
    }
}

/// Bytes the body of a request may have.
fn body_max(route: &str) -> usize {
    match RequestAudience::of(route) {
        RequestAudience::Person if route == "/login" => LOGIN_BYTES_MAX,
        RequestAudience::Person => FORM_BYTES_MAX,
        RequestAudience::Program if BATCHES.iter().any(|batch| route.ends_with(batch)) => {
            ENQUEUE_BYTES_MAX + BATCH_ENVELOPE_BYTES
        }
        RequestAudience::Program => PAYLOAD_BYTES_MAX + ENVELOPE_BYTES,
    }
}

fn time_limit(app: &App, route: &str) -> Duration {
    let usual: Duration = app.config().server.timeout.into();
    // A worker may be kept waiting for a job, and its answer must not be cut off then.
    if route.ends_with("/v1/lease") {
        usual + WAIT_MAX.into()
    } else {
        usual
    }
}

/// An event stream has no end of its own; it ends when the server does, and browsers come back to
/// whoever serves next.
fn end_when_closing(app: &App, response: Response) -> Response {
    let is_stream = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    if !is_stream {
        return response;
    }
    let closing = app.closing().clone();
    response.map(|body| {
        let until = async move { closing.cancelled().await }.boxed();
        Body::from_stream(body.into_data_stream().take_until(until))
    })
}
