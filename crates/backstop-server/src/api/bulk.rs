//! Actions on all jobs that match: the same runs that pages start, watch and stop.

use super::read::{Asked, At, Body, json, ok, parsed, to_the_end};
use super::reason::ReasonAsked;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, Reach};
use crate::bulk::{Bulk, Plan, Report, Target, preview};
use crate::wire::bulk::{PreviewShape, RunShape, RunsShape};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::QueueName;
use backstop::core::WorkerName;
use backstop::core::amend::{Action, Filter};
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::search::Search;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Bytes of a text to look for in dead letters.
const TEXT_BYTES_MAX: usize = 1_024;

/// What to do to which jobs.
#[derive(Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a bulk action: an object with `action`"
)]
#[schema(as = BulkAction)]
pub(super) struct BulkAsked {
    /// retry, cancel, delete or move. Dead letters are not cancelled.
    action: String,
    /// The queue that they are to run in, if they are to be moved.
    to: Option<String>,
    /// To what: jobs, if nothing is said, or dead.
    of: Option<String>,
    /// To those that fit. Of jobs: `queue`, `kind`, `state`, `text`, `worker`. Of dead letters:
    /// `queue`, `kind`, `error_type`, `fingerprint`, `since`, `until`, `text`. None of them may be
    /// empty.
    #[schema(value_type = Option<Object>)]
    matching: Option<Map<String, Value>>,
    /// To every one there is: true.
    #[serde(default)]
    all: bool,
}

/// Which jobs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsAsked {
    queue: Option<String>,
    kind: Option<String>,
    state: Option<String>,
    text: Option<String>,
    worker: Option<String>,
}

/// Count the jobs that a bulk action would be about, and do nothing.
#[utoipa::path(
    post, path = "/bulk/preview", tag = "bulk", request_body = BulkAsked,
    responses(
        (status = 200, body = PreviewShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn look(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Problem> {
    let reader = caller.clone();
    let read = move |body: &Body| target(body.read()?, reader.reach());
    let target = body.read_by(&app, read).await?;
    Ok(ok(&PreviewShape::new(preview(&app, &target).await?)))
}

/// Retry, cancel, delete or move all jobs that match. Goes on after the answer, whatever becomes of
/// the caller or of this server.
#[utoipa::path(
    post, path = "/bulk", tag = "bulk", params(ReasonAsked), request_body = BulkAsked,
    responses(
        (status = 202, description = "What was started", body = RunShape<'_>),
        (status = 429, description = "This server has as many under way as it takes", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<ReasonAsked>,
    body: Body,
) -> Result<Response, Problem> {
    let reason = asked.reason()?;
    let reader = caller.clone();
    let read = move |body: &Body| target(body.read()?, reader.reach());
    let target = body.read_by(&app, read).await?;
    let bulk = Bulk::new(&app, caller.name()).because(reason);
    let (of, started) = (app.clone(), bulk.clone());
    let id = to_the_end(async move {
        let place = started.enter().ok_or_else(busy)?;
        let expected = preview(&of, &target).await?.exact();
        let plan = Plan {
            target,
            expected,
            back: String::new(),
        };
        Ok(started.start_in(place, plan).await?)
    });
    let id = id.await?;
    Ok(answer(
        &app,
        StatusCode::ACCEPTED,
        &run(&bulk, caller.reach(), &id).await?,
    ))
}

/// List the bulk actions: those under way, and the last fifty that have ended.
#[utoipa::path(
    get, path = "/bulk", tag = "bulk",
    responses(
        (status = 200, body = RunsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let (reports, config) = (
        Bulk::new(&app, caller.name()).reports().await?,
        app.config(),
    );
    let seen = reports
        .iter()
        .filter(|report| is_within(caller.reach(), report));
    let now = app.backstop().now();
    Ok(ok(&RunsShape {
        runs: seen
            .map(|report| RunShape::new(report, &config.redaction, now))
            .collect(),
    }))
}

/// Show one bulk action: how far it is, and what it left alone.
#[utoipa::path(
    get, path = "/bulk/{id}", tag = "bulk", params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, body = RunShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(id): At<String>,
) -> Result<Response, Problem> {
    Ok(answer(
        &app,
        StatusCode::OK,
        &run(&Bulk::new(&app, caller.name()), caller.reach(), &id).await?,
    ))
}

/// Stop a bulk action before its next step. What was done stays done.
#[utoipa::path(
    post, path = "/bulk/{id}/stop", tag = "bulk", params(("id" = String, Path, description = "Its id"), ReasonAsked),
    responses(
        (status = 200, body = RunShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "It has ended already", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stop(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(id): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let bulk = Bulk::new(&app, caller.name()).because(asked.reason()?);
    run(&bulk, caller.reach(), &id).await?;
    if !bulk.stop(&id).await? {
        return Err(Problem::conflict("it has ended already"));
    }
    Ok(answer(
        &app,
        StatusCode::OK,
        &run(&bulk, caller.reach(), &id).await?,
    ))
}

/// Go on with a bulk action whose server is gone, now and on this one. Servers do so by themselves
/// within half a minute.
#[utoipa::path(
    post, path = "/bulk/{id}/resume", tag = "bulk", params(("id" = String, Path, description = "Its id"), ReasonAsked),
    responses(
        (status = 200, body = RunShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "It has ended, or a server that is alive has it", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 429, description = "This server has as many under way as it takes", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(id): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let bulk = Bulk::new(&app, caller.name()).because(asked.reason()?);
    run(&bulk, caller.reach(), &id).await?;
    let (resumed, named) = (bulk.clone(), id.clone());
    match to_the_end(async move { Ok(resumed.resume(&named).await?) }).await? {
        None => Err(busy()),
        Some(false) => Err(Problem::conflict(
            "it has ended, or a server that is alive has it",
        )),
        Some(true) => Ok(answer(
            &app,
            StatusCode::OK,
            &run(&bulk, caller.reach(), &id).await?,
        )),
    }
}

fn answer(app: &App, status: StatusCode, report: &Report) -> Response {
    json(
        status,
        &RunShape::new(report, &app.config().redaction, app.backstop().now()),
        1_024,
    )
}

/// The run of an id; one that is not the caller's to see is as good as none.
async fn run(bulk: &Bulk, reach: &Reach, id: &str) -> Result<Report, Problem> {
    let found = bulk
        .report(id)
        .await?
        .filter(|report| is_within(reach, report));
    found.ok_or_else(|| reach.no_such_run(id))
}

fn is_within(reach: &Reach, report: &Report) -> bool {
    let keeps_to = |queue: &QueueName| reach.includes(queue);
    let target = &report.target;
    *reach == Reach::Everywhere
        || target.queue().is_some_and(keeps_to) && target.to.as_ref().is_none_or(keeps_to)
}

fn busy() -> Problem {
    Problem::full(
        "as many bulk actions are under way as this server takes, or takes from one caller; nothing was started. Wait for one to end",
    )
}

/// What is asked for, as far as the caller may ask for it.
fn target(asked: BulkAsked, reach: &Reach) -> Result<Target, Problem> {
    let to = parsed::<QueueName>("to", asked.to.as_deref())?;
    let action = match (asked.action.as_str(), to) {
        ("move", Some(queue)) => {
            reach.check(&queue)?;
            Action::Move(queue)
        }
        ("move", None) => return Err(Problem::bad("`to` names the queue they are to run in")),
        (_, Some(_)) => return Err(Problem::bad("`to` goes with the action move only")),
        ("retry", None) => Action::Retry,
        ("cancel", None) => Action::Cancel,
        ("delete", None) => Action::Delete,
        _ => return Err(Problem::bad("`action` is retry, cancel, delete or move")),
    };
    let said = match (asked.matching, asked.all) {
        (Some(said), false) => said,
        (None, true) => Map::new(),
        _ => {
            return Err(Problem::bad(
                "say which: `matching` with a filter, or `all`: true",
            ));
        }
    };
    refuse_blank(&said)?;
    let target = match asked.of.as_deref() {
        None | Some("jobs") => Target::jobs(&jobs(said)?, &action),
        Some("dead") if action == Action::Cancel => {
            return Err(Problem::bad(
                "dead letters have ended: they can be retried, moved and deleted",
            ));
        }
        Some("dead") => Target::letters(&letters(said)?, &action),
        Some(_) => return Err(Problem::bad("`of` is jobs or dead")),
    };
    // Everything there is must be said in so many words.
    if !asked.all && target.is_everything() {
        return Err(Problem::bad(
            "`matching` says nothing; say `all`: true to mean every one there is",
        ));
    }
    match target.queue() {
        Some(queue) => reach.check(queue)?,
        None => reach.check_across("name a `queue` in `matching`")?,
    }
    Ok(target)
}

/// In a list a field that is empty says nothing. Here it would be about more than was meant, so it
/// is refused.
fn refuse_blank(said: &Map<String, Value>) -> Result<(), Problem> {
    let is_blank = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
    match said.iter().find(|(_, value)| is_blank(value)) {
        Some((name, _)) => Err(Problem::bad(format_args!(
            "`matching`: `{name}` is empty; say what it is to be, or leave it out"
        ))),
        None => Ok(()),
    }
}

fn jobs(said: Map<String, Value>) -> Result<Search, Problem> {
    let asked =
        JobsAsked::deserialize(Value::Object(said)).map_err(|error| within_matching(&error))?;
    let filter = Filter {
        queue: parsed("queue", asked.queue.as_deref())?,
        kind: parsed("kind", asked.kind.as_deref())?,
        state: parsed("state", asked.state.as_deref())?,
        fingerprint: None,
    };
    let worker = asked.worker.as_deref().map(WorkerName::new);
    let search = Search {
        filter,
        text: parsed("text", asked.text.as_deref())?,
        worker,
    };
    search.state()?;
    Ok(search)
}

fn letters(said: Map<String, Value>) -> Result<DeadSelection, Problem> {
    let filter =
        DeadFilter::deserialize(Value::Object(said)).map_err(|error| within_matching(&error))?;
    if filter
        .text
        .as_ref()
        .is_some_and(|text| text.len() > TEXT_BYTES_MAX)
    {
        return Err(Problem::bad(format_args!(
            "`text` has at most {TEXT_BYTES_MAX} bytes"
        )));
    }
    Ok(if filter.is_empty() {
        DeadSelection::All
    } else {
        DeadSelection::Matching(filter)
    })
}

fn within_matching(error: &serde_json::Error) -> Problem {
    Problem::bad(format_args!("`matching`: {error}"))
}
