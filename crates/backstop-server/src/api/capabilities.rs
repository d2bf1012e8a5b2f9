//! What a caller can do here, before it tries.

use super::read::ok;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, Scope};
use crate::wire::capabilities::CapabilitiesShape;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::{QueueName, StoreKind};

/// Show what this server is, and what the caller's token lets it do. Any token may ask.
#[utoipa::path(
    get, path = "/capabilities", tag = "capabilities",
    responses(
        (status = 200, body = CapabilitiesShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let scopes = Scope::ALL
        .into_iter()
        .filter(|scope| caller.may(*scope))
        .map(Scope::as_str);
    let queues = caller.queue_scope().queues();
    let shape = CapabilitiesShape {
        base: app.base(),
        queues: queues.map(|queues| queues.iter().map(QueueName::as_str).collect()),
        scopes: scopes.collect(),
        store: app
            .config()
            .store
            .kind()
            .map_or("unknown", StoreKind::as_str),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(ok(&shape))
}
