//! Workers.

use super::read::{Asked, At, ok};
use super::reason::ReasonAsked;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::worker::{OrderedShape, WorkerShape, WorkersShape};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::core::WorkerName;
use backstop::core::order::{Order, Ordered};
use backstop::operate::Changes;
use backstop::workers::LISTED;

/// List the workers that were heard of within the hour.
#[utoipa::path(
    get, path = "/workers", tag = "workers",
    responses(
        (status = 200, body = WorkersShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let workers = app.backstop().workers(LISTED).await?;
    let now = app.backstop().now();
    let shapes = workers.iter().map(|worker| WorkerShape::new(worker, now));
    Ok(ok(&WorkersShape { workers: shapes.collect() }))
}

/// Ask a worker to take no new jobs; what it runs may end. It heeds that within seconds.
#[utoipa::path(
    post, path = "/workers/{w}/quiet", tag = "workers",
    params(("w" = String, Path, description = "The worker; a slash in its name is written %2F"), ReasonAsked),
    responses(
        (status = 200, body = OrderedShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn quiet(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(name): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let changes = app.backstop().changes(caller.name()).because(asked.reason()?);
    order(&changes, &name, Order::Quiet).await
}

/// Take back what a worker was asked for. One that has begun to stop does not go back to work.
#[utoipa::path(
    post, path = "/workers/{w}/resume", tag = "workers",
    params(("w" = String, Path, description = "The worker; a slash in its name is written %2F"), ReasonAsked),
    responses(
        (status = 200, body = OrderedShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(name): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let changes = app.backstop().changes(caller.name()).because(asked.reason()?);
    order(&changes, &name, Order::Resume).await
}

/// Ask a worker to end what it runs, within its grace, and then itself.
#[utoipa::path(
    post, path = "/workers/{w}/stop", tag = "workers",
    params(("w" = String, Path, description = "The worker; a slash in its name is written %2F"), ReasonAsked),
    responses(
        (status = 200, body = OrderedShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stop(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(name): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let changes = app.backstop().changes(caller.name()).because(asked.reason()?);
    order(&changes, &name, Order::Stop).await
}

async fn order(changes: &Changes, name: &str, order: Order) -> Result<Response, Problem> {
    let worker = WorkerName::new(name);
    match changes.order(&worker, order).await? {
        None => Err(Problem::not_found(format_args!(
            "there is no worker {worker} to be asked; /v1/workers lists those that were heard of"
        ))),
        Some(given) if given.ordered == Ordered::TooLate => Err(Problem::conflict(format_args!(
            "worker {worker} has begun to stop and does not go back to work; start another one"
        ))),
        Some(given) => Ok(ok(&OrderedShape::new(worker.as_str(), given))),
    }
}
