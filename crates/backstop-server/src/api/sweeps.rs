//! Sweeps.

use super::read::{PathParams, QueryParams, RequestBody, ok, run_detached};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::sweep::{SweepReportShape, SweepShape, SweepsShape};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::Time;
use backstop::sweeps::SweepError;
use serde::Deserialize;
use utoipa::ToSchema;

/// How to run a sweep. Nothing need be said.
#[derive(Deserialize, ToSchema, Default)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "how to run: an object, or nothing"
)]
#[schema(as = SweepRun)]
pub(super) struct SweepRunShape {
    /// Only say what would be done.
    dry_run: bool,
    /// Look as if it were this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Time>,
}

/// List the sweeps of the configuration, with their last runs.
#[utoipa::path(
    get, path = "/sweeps", tag = "sweeps",
    responses(
        (status = 200, body = SweepsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let (config, mut runs) = (app.config(), Vec::new());
    for sweep in config.sweeps.values() {
        runs.push(app.backstop().sweeper(sweep).history().await?);
    }
    let shown = config.sweeps.iter().zip(&runs);
    let sweeps = shown.map(|((name, sweep), runs)| (name.as_str(), SweepShape::new(sweep, runs)));
    Ok(ok(&SweepsShape {
        sweeps: sweeps.collect(),
    }))
}

/// Run a sweep now: each row that it finds and that has no job gets one.
#[utoipa::path(
    post, path = "/sweeps/{s}/run", tag = "sweeps", params(("s" = String, Path, description = "The sweep"), ChangeReasonQuery),
    request_body = SweepRunShape,
    responses(
        (status = 200, body = SweepReportShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Somebody runs it", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 502, description = "The search failed", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let read = |body: &RequestBody| body.read_or_default::<SweepRunShape>();
    let (config, request) = (app.config(), body.read_with(&app, read).await?);
    let reason = query.reason()?;
    let sweep = config.sweeps.get(&name).cloned().ok_or_else(|| {
        let there: Vec<&str> = config.sweeps.keys().map(String::as_str).collect();
        Problem::not_found(format_args!(
            "there is no such sweep in the configuration; there are: {}",
            there.join(", ")
        ))
    })?;
    let at = request.at.unwrap_or_else(|| app.backstop().now());
    let report = if request.dry_run {
        app.backstop()
            .sweeper(&sweep)
            .dry_run(at)
            .await
            .map_err(sweep_problem)?
    } else {
        let changes = app.backstop().changes(caller.name()).because(reason);
        run_detached(async move { changes.sweep(&sweep, at).await.map_err(sweep_problem) }).await?
    };
    Ok(ok(&SweepReportShape::new(&report, request.dry_run)))
}

fn sweep_problem(error: SweepError) -> Problem {
    match error {
        SweepError::Store(error) => error.into(),
        SweepError::Taken(_) => Problem::conflict(error),
        SweepError::TooSlow(_) => Problem::database_too_slow(error),
        other => Problem::database_failed(other),
    }
}
