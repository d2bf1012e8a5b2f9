//! Listening: how the parts are put together, and what stands before them.
//!
//! | what | where |
//! |---|---|
//! | connections: how many, how long a head may take, TLS, going down in good order | `serve/listen.rs`, `serve/connection.rs`, `serve/patience.rs`, `serve/tls.rs` |
//! | requests: how long and how large they may be | `serve/limits.rs` |
//! | who may do what | `access/` |

mod connection;
mod limits;
mod listen;
mod patience;
mod tls;

pub use listen::{CannotServe, Change, Server, Serving, check_certificate};
pub use tls::BadCertificate;

use crate::access::{self, Refusal};
use crate::{App, api, meters, pages};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use std::any::Any;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

/// Everything that is served, under the path of `app`, behind access and limits.
pub fn router(app: &App) -> Router {
    let (api, _description) = OpenApiRouter::new().nest("/v1", api::routes()).split_for_parts();
    let all = Router::new().merge(api).merge(api::described()).merge(pages::routes()).merge(meters::routes());
    let all = all.merge(access::routes());
    let mounted = if app.base().is_empty() { all } else { Router::new().nest(app.base(), all) };
    fortified(mounted, app).with_state(app.clone())
}

/// The same before any routes, the innermost first.
fn fortified(routes: Router<App>, app: &App) -> Router<App> {
    routes
        .layer(from_fn_with_state(app.clone(), limits::bounded))
        // What a body may have is decided by its route, above.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), access::guard))
        .layer(CatchPanicLayer::custom(broken))
        .layer(map_response(access::fortify))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over")]
fn broken(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    tracing::error!(panic = text, "answering a request panicked");
    Refusal::Broken.problem()
}

#[cfg(test)]
mod tests;
