//! Kinds.

use super::read::{QueryParams, ok};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::history::{TimeWindow, read_kinds};
use crate::wire::kind::KindsShape;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which time.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListKindsQuery {
    /// 5m, 1h, 24h or 7d; 1h if not said.
    window: Option<String>,
}

/// List kinds with their runs, failures and how long runs took; to a token for some queues, those
/// of these.
///
/// A run over HTTP counts for its kind if it ends at the server that handed it out, and lately; at
/// another it counts for its queue alone.
#[utoipa::path(
    get, path = "/kinds", tag = "queues", params(ListKindsQuery),
    responses(
        (status = 200, body = KindsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListKindsQuery>,
) -> Result<Response, Problem> {
    let window: TimeWindow = match query.window.as_deref() {
        None => TimeWindow::default(),
        Some(text) => text.parse().map_err(Problem::bad_request)?,
    };
    let found = read_kinds(app.backstop(), window).await?;
    let shown = found
        .iter()
        .filter(|(queue, ..)| caller.queue_scope().includes(queue));
    Ok(ok(&KindsShape::new(window, shown)))
}
