//! Schedules.

use super::read::{Asked, At, limit, named, ok};
use super::{Problem, ProblemShape};
use crate::App;
use crate::wire::schedule::{RunsShape, SchedulesShape, configured, known};
use axum::extract::State;
use axum::response::Response;
use backstop::ScheduleName;
use serde::Deserialize;
use utoipa::IntoParams;

/// How many runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsAsked {
    /// At most so many: 1 to 1000, 50 if not said. Other numbers are brought into that range.
    limit: Option<String>,
}

/// List schedules: the next instant, the last run, what is missing.
#[utoipa::path(
    get, path = "/schedules", tag = "schedules",
    responses(
        (status = 200, body = SchedulesShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let (config, mut shapes) = (app.config(), Vec::new());
    let schedules = app.backstop().schedules();
    for schedule in config.schedules.values() {
        shapes.push(configured(schedule, &schedules.status(schedule).await?));
    }
    let others = schedules.known().await?;
    let others = others.iter().filter(|(name, _)| !config.schedules.contains_key(name));
    shapes.extend(others.map(|(name, standing)| known(name, standing)));
    Ok(ok(&SchedulesShape { schedules: shapes }))
}

/// Show the ledger of a schedule: what became of each instant, the newest first.
#[utoipa::path(
    get, path = "/schedules/{s}/runs", tag = "schedules", params(("s" = String, Path, description = "The schedule"), RunsAsked),
    responses(
        (status = 200, body = RunsShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn runs(
    State(app): State<App>,
    At(name): At<String>,
    Asked(asked): Asked<RunsAsked>,
) -> Result<Response, Problem> {
    let name: ScheduleName = named(&name)?;
    let runs = app.backstop().schedules().runs(&name, limit(asked.limit.as_deref())?).await?;
    if runs.is_empty() && !app.config().schedules.contains_key(&name) {
        return Err(Problem::not_found(format_args!(
            "there is no schedule {name}; /v1/schedules lists them, an entry [schedules.{name}] in the configuration makes one"
        )));
    }
    Ok(ok(&RunsShape::new(&name, &runs)))
}
