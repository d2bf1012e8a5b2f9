//! What requests tell, and the span around each.
//!
//! | name | labels | what it is |
//! |---|---|---|
//! | `backstop_http_requests_total` | `method`, `route`, `status` | requests that were answered, by the pattern of their route |
//! | `backstop_http_request_seconds` (histogram) | `method`, `route` | how long the answers took, up to their first byte |
//!
//! `/healthz`, `/readyz` and `/metrics` are asked every few seconds by machines: they are counted,
//! and have no span.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use backstop::{TraceContext, trace};
use std::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// What stands for the route of an address that none is at.
const NO_ROUTE: &str = "none";
/// Routes that are asked by machines, all the time.
const UNTRACED_ROUTES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Counts and times a request, in a span that continues the caller's trace. For
/// `axum::middleware::from_fn`, around all routes.
pub async fn measure(request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or(NO_ROUTE, MatchedPath::as_str)
        .to_owned();
    let method = method_word(request.method());
    let span = if UNTRACED_ROUTES.iter().any(|path| route.ends_with(path)) {
        Span::none()
    } else {
        request_span(method, &route, request.headers())
    };
    let started = Instant::now();
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    let labels = [("method", method.to_owned()), ("route", route)];
    metrics::histogram!("backstop_http_request_seconds", &labels)
        .record(started.elapsed().as_secs_f64());
    let [method, route] = labels;
    let labels = [method, route, ("status", status.as_u16().to_string())];
    metrics::counter!("backstop_http_requests_total", &labels).increment(1);
    response
}

/// Where the caller stands in a trace, by the header `traceparent`; `None` if there is none, or
/// none that can be read. A job that is pushed by the request carries it.
pub fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get("traceparent")?.to_str().ok()?.parse().ok()
}

fn request_span(method: &'static str, route: &str, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        target: "backstop::http",
        "request",
        otel.kind = "server",
        otel.name = %format_args!("{method} {route}"),
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        otel.status_code = Empty,
    );
    if let Some(caller) = trace_of(headers) {
        trace::adopt(&span, caller);
    }
    span
}

/// A method as a label: whoever invents methods makes no new ones.
fn method_word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}
