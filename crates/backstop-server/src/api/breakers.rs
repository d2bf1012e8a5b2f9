//! Breakers and gates.

use super::read::{PathParams, QueryParams, ok, parse_name};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::breaker::{BreakerDoneShape, BreakerShape, BreakersShape};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::breakers::{BY_HAND, BreakerName};

/// List the breakers of queues, and the gates of kinds that had deaths.
#[utoipa::path(
    get, path = "/breakers", tag = "breakers",
    responses(
        (status = 200, body = BreakersShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let guards = app.backstop().breakers().list().await?;
    let shown = guards
        .iter()
        .filter(|guard| caller.queue_scope().includes(guard.name.queue()));
    Ok(ok(&BreakersShape {
        breakers: shown.map(BreakerShape::new).collect(),
    }))
}

/// Close a breaker, or open a gate again, on all workers.
#[utoipa::path(
    post, path = "/breakers/{b}/reset", tag = "breakers",
    params(("b" = String, Path, description = "QUEUE for a breaker; QUEUE%2FKIND for the gate of a kind"), ChangeReasonQuery),
    responses(
        (status = 200, body = BreakerDoneShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn reset(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let guard: BreakerName = parse_name(&name)?;
    caller.queue_scope().check_queue(guard.queue())?;
    if !app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?)
        .reset(&guard)
        .await?
    {
        return Err(Problem::not_found(format_args!(
            "there is no breaker or gate {guard}; /v1/breakers lists them"
        )));
    }
    Ok(ok(&BreakerDoneShape {
        done: "reset",
        name: guard.to_string(),
    }))
}

/// Open a breaker, or shut a gate, on all workers: it lets nothing through until somebody resets
/// it, and its jobs stay where they are. The reason is also what is shown with it.
#[utoipa::path(
    post, path = "/breakers/{b}/open", tag = "breakers",
    params(("b" = String, Path, description = "QUEUE for a breaker; QUEUE%2FKIND for the gate of a kind"), ChangeReasonQuery),
    responses(
        (status = 200, body = BreakerDoneShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn open(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let guard: BreakerName = parse_name(&name)?;
    caller.queue_scope().check_queue(guard.queue())?;
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    changes
        .open(&guard, changes.reason().unwrap_or(BY_HAND))
        .await?;
    Ok(ok(&BreakerDoneShape {
        done: "open",
        name: guard.to_string(),
    }))
}
