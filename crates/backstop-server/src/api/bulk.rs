//! Actions on all jobs that match: the same runs that pages start, watch and stop.

use super::read::{PathParams, QueryParams, RequestBody, json, ok, parse_param, run_detached};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, QueueScope};
use crate::bulk::{BulkActions, BulkPlan, BulkReport, BulkTarget, count_target};
use crate::wire::bulk::{BulkPreviewShape, BulkRunShape, BulkRunsShape};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::QueueName;
use backstop::core::WorkerName;
use backstop::core::amend::{AmendAction, Filter};
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::search::JobSearch;
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
pub(super) struct BulkBody {
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFilterBody {
    queue: Option<String>,
    kind: Option<String>,
    state: Option<String>,
    text: Option<String>,
    worker: Option<String>,
}

/// Count the jobs that a bulk action would be about, and do nothing.
#[utoipa::path(
    post, path = "/bulk/preview", tag = "bulk", request_body = BulkBody,
    responses(
        (status = 200, body = BulkPreviewShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn look(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reader = caller.clone();
    let read = move |body: &RequestBody| read_target(body.read()?, reader.queue_scope());
    let target = body.read_with(&app, read).await?;
    Ok(ok(&BulkPreviewShape::new(
        count_target(&app, &target).await?,
    )))
}

/// Retry, cancel, delete or move all jobs that match. Goes on after the answer, whatever becomes of
/// the caller or of this server.
#[utoipa::path(
    post, path = "/bulk", tag = "bulk", params(ChangeReasonQuery), request_body = BulkBody,
    responses(
        (status = 202, description = "What was started", body = BulkRunShape<'_>),
        (status = 429, description = "This server has as many under way as it takes", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reason = query.reason()?;
    let reader = caller.clone();
    let read = move |body: &RequestBody| read_target(body.read()?, reader.queue_scope());
    let target = body.read_with(&app, read).await?;
    let bulk = BulkActions::new(&app, caller.name()).because(reason);
    let (app_handle, started) = (app.clone(), bulk.clone());
    let id = run_detached(async move {
        let place = started.enter().ok_or_else(too_many_runs)?;
        let expected = count_target(&app_handle, &target).await?.exact();
        let plan = BulkPlan {
            target,
            expected,
            back: String::new(),
        };
        Ok(started.start_in(place, plan).await?)
    });
    let id = id.await?;
    Ok(respond_run(
        &app,
        StatusCode::ACCEPTED,
        &find_run(&bulk, caller.queue_scope(), &id).await?,
    ))
}

/// List the bulk actions: those under way, and the last fifty that have ended.
#[utoipa::path(
    get, path = "/bulk", tag = "bulk",
    responses(
        (status = 200, body = BulkRunsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let (reports, config) = (
        BulkActions::new(&app, caller.name()).reports().await?,
        app.config(),
    );
    let seen = reports
        .iter()
        .filter(|report| is_within(caller.queue_scope(), report));
    let now = app.backstop().now();
    Ok(ok(&BulkRunsShape {
        runs: seen
            .map(|report| BulkRunShape::new(report, &config.redaction, now))
            .collect(),
    }))
}

/// Show one bulk action: how far it is, and what it left alone.
#[utoipa::path(
    get, path = "/bulk/{id}", tag = "bulk", params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, body = BulkRunShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Response, Problem> {
    Ok(respond_run(
        &app,
        StatusCode::OK,
        &find_run(
            &BulkActions::new(&app, caller.name()),
            caller.queue_scope(),
            &id,
        )
        .await?,
    ))
}

/// Stop a bulk action before its next step. What was done stays done.
#[utoipa::path(
    post, path = "/bulk/{id}/stop", tag = "bulk", params(("id" = String, Path, description = "Its id"), ChangeReasonQuery),
    responses(
        (status = 200, body = BulkRunShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "It has ended already", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stop(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let bulk = BulkActions::new(&app, caller.name()).because(query.reason()?);
    find_run(&bulk, caller.queue_scope(), &id).await?;
    if !bulk.stop(&id).await? {
        return Err(Problem::conflict("it has ended already"));
    }
    Ok(respond_run(
        &app,
        StatusCode::OK,
        &find_run(&bulk, caller.queue_scope(), &id).await?,
    ))
}

/// Go on with a bulk action whose server is gone, now and on this one. Servers do so by themselves
/// within half a minute.
#[utoipa::path(
    post, path = "/bulk/{id}/resume", tag = "bulk", params(("id" = String, Path, description = "Its id"), ChangeReasonQuery),
    responses(
        (status = 200, body = BulkRunShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "It has ended, or a server that is alive has it", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 429, description = "This server has as many under way as it takes", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let bulk = BulkActions::new(&app, caller.name()).because(query.reason()?);
    find_run(&bulk, caller.queue_scope(), &id).await?;
    let (resumed, named) = (bulk.clone(), id.clone());
    match run_detached(async move { Ok(resumed.resume(&named).await?) }).await? {
        None => Err(too_many_runs()),
        Some(false) => Err(Problem::conflict(
            "it has ended, or a server that is alive has it",
        )),
        Some(true) => Ok(respond_run(
            &app,
            StatusCode::OK,
            &find_run(&bulk, caller.queue_scope(), &id).await?,
        )),
    }
}

fn respond_run(app: &App, status: StatusCode, report: &BulkReport) -> Response {
    json(
        status,
        &BulkRunShape::new(report, &app.config().redaction, app.backstop().now()),
        1_024,
    )
}

/// The run of an id; one that is not the caller's to see is as good as none.
async fn find_run(bulk: &BulkActions, scope: &QueueScope, id: &str) -> Result<BulkReport, Problem> {
    let found = bulk
        .report(id)
        .await?
        .filter(|report| is_within(scope, report));
    found.ok_or_else(|| scope.bulk_run_not_found(id))
}

fn is_within(scope: &QueueScope, report: &BulkReport) -> bool {
    let keeps_to = |queue: &QueueName| scope.includes(queue);
    let target = &report.target;
    *scope == QueueScope::AllQueues
        || target.queue().is_some_and(keeps_to) && target.to.as_ref().is_none_or(keeps_to)
}

fn too_many_runs() -> Problem {
    Problem::full(
        "as many bulk actions are under way as this server takes, or takes from one caller; nothing was started. Wait for one to end",
    )
}

/// What is asked for, as far as the caller may ask for it.
fn read_target(body: BulkBody, scope: &QueueScope) -> Result<BulkTarget, Problem> {
    let to = parse_param::<QueueName>("to", body.to.as_deref())?;
    let action = match (body.action.as_str(), to) {
        ("move", Some(queue)) => {
            scope.check_queue(&queue)?;
            AmendAction::Move(queue)
        }
        ("move", None) => {
            return Err(Problem::bad_request(
                "`to` names the queue they are to run in",
            ));
        }
        (_, Some(_)) => return Err(Problem::bad_request("`to` goes with the action move only")),
        ("retry", None) => AmendAction::Retry,
        ("cancel", None) => AmendAction::Cancel,
        ("delete", None) => AmendAction::Delete,
        _ => {
            return Err(Problem::bad_request(
                "`action` is retry, cancel, delete or move",
            ));
        }
    };
    let fields = match (body.matching, body.all) {
        (Some(fields), false) => fields,
        (None, true) => Map::new(),
        _ => {
            return Err(Problem::bad_request(
                "say which: `matching` with a filter, or `all`: true",
            ));
        }
    };
    refuse_blank(&fields)?;
    let target = match body.of.as_deref() {
        None | Some("jobs") => BulkTarget::jobs(&read_job_search(fields)?, &action),
        Some("dead") if action == AmendAction::Cancel => {
            return Err(Problem::bad_request(
                "dead letters have ended: they can be retried, moved and deleted",
            ));
        }
        Some("dead") => BulkTarget::letters(&read_dead_selection(fields)?, &action),
        Some(_) => return Err(Problem::bad_request("`of` is jobs or dead")),
    };
    // Everything there is must be said in so many words.
    if !body.all && target.is_everything() {
        return Err(Problem::bad_request(
            "`matching` says nothing; say `all`: true to mean every one there is",
        ));
    }
    match target.queue() {
        Some(queue) => scope.check_queue(queue)?,
        None => scope.check_all_queues("name a `queue` in `matching`")?,
    }
    Ok(target)
}

/// In a list a field that is empty says nothing. Here it would be about more than was meant, so it
/// is refused.
fn refuse_blank(fields: &Map<String, Value>) -> Result<(), Problem> {
    let is_blank = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
    match fields.iter().find(|(_, value)| is_blank(value)) {
        Some((name, _)) => Err(Problem::bad_request(format_args!(
            "`matching`: `{name}` is empty; say what it is to be, or leave it out"
        ))),
        None => Ok(()),
    }
}

fn read_job_search(fields: Map<String, Value>) -> Result<JobSearch, Problem> {
    let body =
        JobFilterBody::deserialize(Value::Object(fields)).map_err(|error| bad_matching(&error))?;
    let filter = Filter {
        queue: parse_param("queue", body.queue.as_deref())?,
        kind: parse_param("kind", body.kind.as_deref())?,
        state: parse_param("state", body.state.as_deref())?,
        fingerprint: None,
    };
    let worker = body.worker.as_deref().map(WorkerName::new);
    let search = JobSearch {
        filter,
        text: parse_param("text", body.text.as_deref())?,
        worker,
    };
    search.state()?;
    Ok(search)
}

fn read_dead_selection(fields: Map<String, Value>) -> Result<DeadSelection, Problem> {
    let filter =
        DeadFilter::deserialize(Value::Object(fields)).map_err(|error| bad_matching(&error))?;
    if filter
        .text
        .as_ref()
        .is_some_and(|text| text.len() > TEXT_BYTES_MAX)
    {
        return Err(Problem::bad_request(format_args!(
            "`text` has at most {TEXT_BYTES_MAX} bytes"
        )));
    }
    Ok(if filter.is_empty() {
        DeadSelection::All
    } else {
        DeadSelection::Matching(filter)
    })
}

fn bad_matching(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format_args!("`matching`: {error}"))
}
