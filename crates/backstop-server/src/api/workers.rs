//! Workers.

use super::read::{PathParams, QueryParams, ok, parse_limit};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::worker::{WorkerCommandShape, WorkerShape, WorkersPageShape};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::core::WorkerName;
use backstop::core::limits::PAGE_MAX;
use backstop::core::worker_command::{CommandOutcome, WorkerCommand};
use backstop::operate::AuditedChanges;
use backstop::workers::LISTED;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which workers.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListWorkersQuery {
    /// Only workers behind this one: the `next` of the page before.
    cursor: Option<String>,
    /// At most so many: 1 to 1000, 1000 if not said. Other numbers are brought into that range.
    limit: Option<String>,
}

/// List the workers that were heard of within the hour, by name.
#[utoipa::path(
    get, path = "/workers", tag = "workers", params(ListWorkersQuery),
    responses(
        (status = 200, body = WorkersPageShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    QueryParams(query): QueryParams<ListWorkersQuery>,
) -> Result<Response, Problem> {
    let limit = match query.limit.as_deref().filter(|limit| !limit.is_empty()) {
        None => PAGE_MAX,
        text => parse_limit(text)?,
    };
    let after = query
        .cursor
        .filter(|cursor| !cursor.is_empty())
        .map(|name| WorkerName::new(&name));
    let page = app
        .backstop()
        .workers_page(LISTED, after.as_ref(), limit)
        .await?;
    let now = app.backstop().now();
    let workers = page
        .workers
        .iter()
        .map(|worker| WorkerShape::new(worker, now))
        .collect();
    Ok(ok(&WorkersPageShape {
        workers,
        next: page.next.as_ref().map(WorkerName::as_str),
    }))
}

/// Ask a worker to take no new jobs; what it runs may end. It heeds that within seconds.
#[utoipa::path(
    post, path = "/workers/{w}/quiet", tag = "workers",
    params(("w" = String, Path, description = "The worker; a slash in its name is written %2F"), ChangeReasonQuery),
    responses(
        (status = 200, body = WorkerCommandShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn quiet(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    send_command(&changes, &name, WorkerCommand::Quiet).await
}

/// Take back what a worker was asked for. One that has begun to stop does not go back to work.
#[utoipa::path(
    post, path = "/workers/{w}/resume", tag = "workers",
    params(("w" = String, Path, description = "The worker; a slash in its name is written %2F"), ChangeReasonQuery),
    responses(
        (status = 200, body = WorkerCommandShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    send_command(&changes, &name, WorkerCommand::Resume).await
}

/// Ask a worker to end what it runs, within its grace, and then itself.
#[utoipa::path(
    post, path = "/workers/{w}/stop", tag = "workers",
    params(("w" = String, Path, description = "The worker; a slash in its name is written %2F"), ChangeReasonQuery),
    responses(
        (status = 200, body = WorkerCommandShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stop(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    send_command(&changes, &name, WorkerCommand::Stop).await
}

async fn send_command(
    changes: &AuditedChanges,
    name: &str,
    send_command: WorkerCommand,
) -> Result<Response, Problem> {
    let worker = WorkerName::new(name);
    match changes.command_worker(&worker, send_command).await? {
        None => Err(Problem::not_found(format_args!(
            "there is no worker {worker} to be asked; /v1/workers lists those that were heard of"
        ))),
        Some(given) if given.outcome == CommandOutcome::TooLate => {
            Err(Problem::conflict(format_args!(
                "worker {worker} has begun to stop and does not go back to work; start another one"
            )))
        }
        Some(given) => Ok(ok(&WorkerCommandShape::new(worker.as_str(), given))),
    }
}
