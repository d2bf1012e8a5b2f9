//! Listening: how the parts are put together, and what stands before them.
//!
//! | what | where |
//! |---|---|
//! | connections: how many, TLS, going down in good order | `serve/listener.rs`, `serve/connection_limit.rs`, `serve/tls.rs` |
//! | one of them: how long a head may take, who stops asking or reading | `serve/connection.rs`, `serve/idle_timeout.rs`, `serve/write_timeout.rs` |
//! | requests: how long and how large they may be | `serve/limits.rs` |
//! | who may do what | `access/` |

mod connection;
mod connection_limit;
mod idle_timeout;
mod limits;
mod listener;
mod tls;
mod write_timeout;

pub use listener::{
    ConfigChange, RunningServer, ServeError, Server, check_certificate, check_encrypted,
};
pub use tls::InvalidCertificate;

use crate::access::{self, RequestRefusal, inner_path};
use crate::{App, api, pages, reads, telemetry};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONNECTION;
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::Response;
use std::any::Any;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

/// Everything that is served, under the path of `app`, behind access and limits.
pub fn router(app: &App) -> Router {
    let (api, _description) = OpenApiRouter::new()
        .nest("/v1", api::routes())
        .split_for_parts();
    let machine_routes = api::description_route(app.base()).merge(telemetry::routes());
    let all = Router::new()
        .merge(api)
        .merge(machine_routes.clone())
        .merge(pages::routes())
        .merge(access::routes());
    let mounted = if app.base().is_empty() {
        all
    } else {
        mount_under(app.base(), all, machine_routes)
    };
    with_middleware(mounted, app).with_state(app.clone())
}

/// `all` under a path. What machines ask for stands at the root as well: probes and scrapers are
/// told of no path.
fn mount_under(base: &str, all: Router<App>, machine_routes: Router<App>) -> Router<App> {
    let mounted = Router::new()
        .nest(base, all)
        .merge(machine_routes)
        .fallback(pages::not_found);
    // A nested router answers at its path without a slash only, and people come with one.
    Router::route(mounted, &format!("{base}/"), pages::front())
}

/// What those are told there is no room for, whatever they ask.
fn refusal_router() -> Router {
    let refuse = || async {
        (
            [(CONNECTION, "close")],
            RequestRefusal::TooManyConnections.problem(),
        )
    };
    Router::new()
        .fallback(refuse)
        .layer(map_response(access::add_security_headers))
}

/// The same before any routes, the innermost first.
fn with_middleware(routes: Router<App>, app: &App) -> Router<App> {
    routes
        .layer(from_fn_with_state(app.clone(), reads::limit_reads))
        .layer(from_fn_with_state(app.clone(), limits::enforce_limits))
        // What a body may have is decided by its route, above.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), access::guard))
        .layer(CatchPanicLayer::custom(mark_panic))
        .layer(from_fn_with_state(app.clone(), answer_panic))
        // Around everything that answers, be it a refusal; it knows the pattern of a route, and
        // never the address.
        .layer(from_fn(telemetry::measure))
        .layer(map_response(access::add_security_headers))
}

/// Marks an answer that a panic broke off: whoever sees the panic does not see the request.
#[derive(Clone)]
struct PanicMarker;

#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over"
)]
fn mark_panic(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    tracing::error!(panic = text, "answering a request panicked");
    let mut response = Response::default();
    response.extensions_mut().insert(PanicMarker);
    response
}

/// Tells of a panic as whoever asked reads it: people on a page, programs as a problem.
async fn answer_panic(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = inner_path(&app, request.uri().path()).to_owned();
    let response = next.run(request).await;
    match response.extensions().get::<PanicMarker>() {
        Some(PanicMarker) => RequestRefusal::Broken.answer_at(&path, app.base()),
        None => response,
    }
}

#[cfg(test)]
mod tests;
