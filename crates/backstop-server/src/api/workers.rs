//! Workers.

use super::read::ok;
use super::{Problem, ProblemShape};
use crate::App;
use crate::wire::worker::{LISTED, WorkerShape, WorkersShape};
use axum::extract::State;
use axum::response::Response;

/// List the workers that were heard of within the hour.
#[utoipa::path(
    get, path = "/workers", tag = "workers",
    responses(
        (status = 200, body = WorkersShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let now = app.backstop().now();
    let workers = app.backstop().store().workers(LISTED, now).await?;
    let shapes = workers.iter().map(|worker| WorkerShape::new(worker, now));
    Ok(ok(&WorkersShape { workers: shapes.collect() }))
}
