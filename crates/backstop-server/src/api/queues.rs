//! Queues.

use super::read::{PathParams, QueryParams, ok, parse_name, run_detached};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::queue::{AllQueuesShape, PausedShape, QueueShape, QueuesShape};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::QueueName;

/// List all queues with their counts; to a token for some of them, these.
#[utoipa::path(
    get, path = "/queues", tag = "queues",
    responses(
        (status = 200, body = QueuesShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let queues = app.backstop().store().queues(app.backstop().now()).await?;
    let shown = queues
        .iter()
        .filter(|queue| caller.queue_scope().includes(&queue.name));
    Ok(ok(&QueuesShape {
        queues: shown.map(QueueShape::new).collect(),
    }))
}

/// Keep a queue's jobs from being given out, on all workers; pushes go on.
#[utoipa::path(
    post, path = "/queues/{q}/pause", tag = "queues", params(("q" = String, Path, description = "The queue"), ChangeReasonQuery),
    responses(
        (status = 200, body = PausedShape<String>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(queue): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let queue: QueueName = parse_name(&queue)?;
    caller.queue_scope().check_queue(&queue)?;
    app.backstop()
        .changes(caller.name())
        .because(query.reason()?)
        .pause(&queue)
        .await?;
    Ok(ok(&PausedShape::queue(queue, true)))
}

/// Give a paused queue's jobs out again.
#[utoipa::path(
    post, path = "/queues/{q}/resume", tag = "queues", params(("q" = String, Path, description = "The queue"), ChangeReasonQuery),
    responses(
        (status = 200, body = PausedShape<String>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(queue): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let queue: QueueName = parse_name(&queue)?;
    caller.queue_scope().check_queue(&queue)?;
    app.backstop()
        .changes(caller.name())
        .because(query.reason()?)
        .resume(&queue)
        .await?;
    Ok(ok(&PausedShape::queue(queue, false)))
}

/// Keep the jobs of every queue that is open from being given out; pushes go on. A queue that comes
/// into being later is open.
#[utoipa::path(
    post, path = "/queues/pause", tag = "queues", params(ChangeReasonQuery),
    responses(
        (status = 200, body = AllQueuesShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn pause_all(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    let queues = run_detached(async move { Ok(changes.pause_all().await?) }).await?;
    Ok(ok(&AllQueuesShape::new(queues)))
}

/// Give the jobs of the queues that were paused with all others out again; those that were paused
/// by themselves stay so.
#[utoipa::path(
    post, path = "/queues/resume", tag = "queues", params(ChangeReasonQuery),
    responses(
        (status = 200, body = AllQueuesShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume_all(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    let queues = run_detached(async move { Ok(changes.resume_all().await?) }).await?;
    Ok(ok(&AllQueuesShape::new(queues)))
}
