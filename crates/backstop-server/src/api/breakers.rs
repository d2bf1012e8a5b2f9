//! Breakers and gates.

use super::read::{Asked, At, named, ok};
use super::reason::ReasonAsked;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::breaker::{BreakerShape, BreakersShape, DoneShape};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::breakers::{BY_HAND, GuardName};

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
        .filter(|guard| caller.reach().includes(guard.name.queue()));
    Ok(ok(&BreakersShape {
        breakers: shown.map(BreakerShape::new).collect(),
    }))
}

/// Close a breaker, or open a gate again, on all workers.
#[utoipa::path(
    post, path = "/breakers/{b}/reset", tag = "breakers",
    params(("b" = String, Path, description = "QUEUE for a breaker; QUEUE%2FKIND for the gate of a kind"), ReasonAsked),
    responses(
        (status = 200, body = DoneShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn reset(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(name): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let guard: GuardName = named(&name)?;
    caller.reach().check(guard.queue())?;
    if !app
        .backstop()
        .changes(caller.name())
        .because(asked.reason()?)
        .reset(&guard)
        .await?
    {
        return Err(Problem::not_found(format_args!(
            "there is no breaker or gate {guard}; /v1/breakers lists them"
        )));
    }
    Ok(ok(&DoneShape {
        done: "reset",
        name: guard.to_string(),
    }))
}

/// Open a breaker, or shut a gate, on all workers: it lets nothing through until somebody resets
/// it, and its jobs stay where they are. The reason is also what is shown with it.
#[utoipa::path(
    post, path = "/breakers/{b}/open", tag = "breakers",
    params(("b" = String, Path, description = "QUEUE for a breaker; QUEUE%2FKIND for the gate of a kind"), ReasonAsked),
    responses(
        (status = 200, body = DoneShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn open(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(name): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let guard: GuardName = named(&name)?;
    caller.reach().check(guard.queue())?;
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(asked.reason()?);
    changes
        .open(&guard, changes.reason().unwrap_or(BY_HAND))
        .await?;
    Ok(ok(&DoneShape {
        done: "open",
        name: guard.to_string(),
    }))
}
