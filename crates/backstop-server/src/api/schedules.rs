//! Schedules.

use super::read::{PathParams, QueryParams, ok, parse_limit, parse_name, run_detached};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::queue::PausedShape;
use crate::wire::schedule::{
    ScheduleRunsShape, ScheduleShape, ScheduleTriggeredShape, SchedulesShape,
};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::ScheduleName;
use backstop::schedules::TriggerError;
use serde::Deserialize;
use utoipa::IntoParams;

/// How many runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListScheduleRunsQuery {
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
        shapes.push(ScheduleShape::configured(
            schedule,
            &schedules.status(schedule).await?,
        ));
    }
    let others = schedules.list_known().await?;
    let others = others
        .iter()
        .filter(|(name, _)| !config.schedules.contains_key(name));
    shapes.extend(others.map(|(name, schedule_state)| ScheduleShape::known(name, schedule_state)));
    Ok(ok(&SchedulesShape { schedules: shapes }))
}

/// Show the ledger of a schedule: what became of each instant, the newest first.
#[utoipa::path(
    get, path = "/schedules/{s}/runs", tag = "schedules", params(("s" = String, Path, description = "The schedule"), ListScheduleRunsQuery),
    responses(
        (status = 200, body = ScheduleRunsShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn runs(
    State(app): State<App>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ListScheduleRunsQuery>,
) -> Result<Response, Problem> {
    let name: ScheduleName = parse_name(&name)?;
    let runs = app
        .backstop()
        .schedules()
        .runs(&name, parse_limit(query.limit.as_deref())?)
        .await?;
    if runs.is_empty() && !app.config().schedules.contains_key(&name) {
        return Err(schedule_not_found(&name));
    }
    Ok(ok(&ScheduleRunsShape::new(&name, &runs)))
}

/// Run a schedule now, whether or not it is paused; none of its instants is touched.
#[utoipa::path(
    post, path = "/schedules/{s}/trigger", tag = "schedules",
    params(("s" = String, Path, description = "The schedule, one of the configuration"), ChangeReasonQuery),
    responses(
        (status = 200, body = ScheduleTriggeredShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Its job runs, and its ledger has no room for that", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 429, description = "Its queue is full", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn trigger(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let (name, config): (ScheduleName, _) = (parse_name(&name)?, app.config());
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    let schedule = config.schedules.get(&name).cloned().ok_or_else(|| {
        Problem::not_found(format_args!(
            "schedule {name} is not in the configuration of this server, so it cannot be run from here; /v1/schedules lists those that are"
        ))
    })?;
    // A job and its entry in the ledger belong together, whatever becomes of the caller.
    let triggered =
        run_detached(async move { changes.trigger(&schedule).await.map_err(trigger_problem) })
            .await?;
    Ok(ok(&ScheduleTriggeredShape {
        instant: triggered.instant,
        job: triggered.id,
        schedule: &name,
    }))
}

/// Pause a schedule on all workers, until it is resumed: its instants are skipped.
#[utoipa::path(
    post, path = "/schedules/{s}/pause", tag = "schedules",
    params(("s" = String, Path, description = "The schedule"), ChangeReasonQuery),
    responses(
        (status = 200, body = PausedShape<String>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    let name = find_schedule(&app, &name).await?;
    changes.pause_schedule(&name).await?;
    Ok(ok(&PausedShape { name, paused: true }))
}

/// Set a paused schedule going again with its next instant; what fell into the pause stays skipped.
#[utoipa::path(
    post, path = "/schedules/{s}/resume", tag = "schedules",
    params(("s" = String, Path, description = "The schedule"), ChangeReasonQuery),
    responses(
        (status = 200, body = PausedShape<String>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
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
    let name = find_schedule(&app, &name).await?;
    changes.resume_schedule(&name).await?;
    Ok(ok(&PausedShape {
        name,
        paused: false,
    }))
}

/// One of the configuration, or one that the store has heard of: anything else is a slip.
async fn find_schedule(app: &App, name: &str) -> Result<ScheduleName, Problem> {
    let name: ScheduleName = parse_name(name)?;
    let is_configured = app.config().schedules.contains_key(&name);
    if is_configured
        || app
            .backstop()
            .schedules()
            .list_known()
            .await?
            .iter()
            .any(|(known, _)| *known == name)
    {
        return Ok(name);
    }
    Err(schedule_not_found(&name))
}

fn schedule_not_found(name: &ScheduleName) -> Problem {
    Problem::not_found(format_args!(
        "there is no schedule {name}; /v1/schedules lists them, an entry [schedules.{name}] in the configuration makes one"
    ))
}

fn trigger_problem(error: TriggerError) -> Problem {
    match error {
        TriggerError::Store(error) => error.into(),
        TriggerError::Full(_) => Problem::full(error),
        other => Problem::conflict(other),
    }
}
