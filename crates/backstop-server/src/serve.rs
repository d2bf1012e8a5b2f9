//! Listening: how the parts are put together, and what stands before them.
//!
//! | what | where |
//! |---|---|
//! | connections: how many, TLS, going down in good order | `serve/listen.rs`, `serve/room.rs`, `serve/tls.rs` |
//! | one of them: how long a head may take, who stops asking or reading | `serve/connection.rs`, `serve/pulse.rs`, `serve/patience.rs` |
//! | requests: how long and how large they may be | `serve/limits.rs` |
//! | who may do what | `access/` |

mod connection;
mod limits;
mod listen;
mod patience;
mod pulse;
mod room;
mod tls;

pub use listen::{CannotServe, Change, Server, Serving, check_certificate, check_encrypted};
pub use tls::BadCertificate;

use crate::access::{self, Refusal, inner_path};
use crate::{App, api, meters, pages, reads};
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
    let of_machines = api::described(app.base()).merge(meters::routes());
    let all = Router::new()
        .merge(api)
        .merge(of_machines.clone())
        .merge(pages::routes())
        .merge(access::routes());
    let mounted = if app.base().is_empty() {
        all
    } else {
        under(app.base(), all, of_machines)
    };
    fortified(mounted, app).with_state(app.clone())
}

/// `all` under a path. What machines ask for stands at the root as well: probes and scrapers are
/// told of no path.
fn under(base: &str, all: Router<App>, of_machines: Router<App>) -> Router<App> {
    let mounted = Router::new()
        .nest(base, all)
        .merge(of_machines)
        .fallback(pages::nowhere);
    // A nested router answers at its path without a slash only, and people come with one.
    Router::route(mounted, &format!("{base}/"), pages::front())
}

/// What those are told there is no room for, whatever they ask.
fn refusing() -> Router {
    let refuse = || async { ([(CONNECTION, "close")], Refusal::NoRoom.problem()) };
    Router::new()
        .fallback(refuse)
        .layer(map_response(access::fortify))
}

/// The same before any routes, the innermost first.
fn fortified(routes: Router<App>, app: &App) -> Router<App> {
    routes
        .layer(from_fn_with_state(app.clone(), reads::few_at_once))
        .layer(from_fn_with_state(app.clone(), limits::bounded))
        // What a body may have is decided by its route, above.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), access::guard))
        .layer(CatchPanicLayer::custom(broken))
        .layer(from_fn_with_state(app.clone(), told_where))
        // Around everything that answers, be it a refusal; it knows the pattern of a route, and
        // never the address.
        .layer(from_fn(meters::measure))
        .layer(map_response(access::fortify))
}

/// Marks an answer that a panic broke off: whoever sees the panic does not see the request.
#[derive(Clone)]
struct Broke;

#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over"
)]
fn broken(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    tracing::error!(panic = text, "answering a request panicked");
    let mut response = Response::default();
    response.extensions_mut().insert(Broke);
    response
}

/// Tells of a panic as whoever asked reads it: people on a page, programs as a problem.
async fn told_where(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = inner_path(&app, request.uri().path()).to_owned();
    let response = next.run(request).await;
    match response.extensions().get::<Broke>() {
        Some(Broke) => Refusal::Broken.at(&path, app.base()),
        None => response,
    }
}

#[cfg(test)]
mod tests;
