//! Dead letters.

use super::read::{
    PathParams, QueryParams, RequestBody, json, ok, parse_limit, parse_param, respond_off_thread,
    run_detached,
};
use super::reason::ChangeReasonQuery;
use super::scoped_reads::{
    ScopedPage, hide_other_queues_in_letter, read_page, resolve_dead_selection,
};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, QueueScope};
use crate::redrives::spawn_redrive;
use crate::wire::dead::{
    DeadChangedShape, DeadGroupsShape, DeadListShape, DeadStatsShape, RedrivesShape,
};
use crate::wire::letter::RedriveShape;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::QueueName;
use backstop::core::amend::{AmendAction, AmendRefusal};
use backstop::dead::redrive::{
    CANARY_DEFAULT, MAX_FAILURES_DEFAULT, RedriveError, RedrivePlan, THEN_RATE_DEFAULT,
};
use backstop::dead::{DeadChangeResult, DeadFilter, DeadLetters, DeadPage, DeadSelection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cmp::Reverse;
use utoipa::{IntoParams, ToSchema};

/// Which groups.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListDeadGroupsQuery {
    /// Of this queue.
    queue: Option<String>,
    /// At most so many: 1 to 1000, 50 if not said.
    limit: Option<String>,
}

/// Which dead letters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListDeadQuery {
    /// Of this queue.
    queue: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// Dead of an error of this class.
    error_type: Option<String>,
    /// Of this group.
    fingerprint: Option<String>,
    /// That died at this time or later.
    since: Option<String>,
    /// That died at this time or earlier.
    until: Option<String>,
    /// With this in the error, its class or the payload.
    text: Option<String>,
    /// Where to go on: the `next` of the page before.
    cursor: Option<String>,
    /// At most so many: 1 to 1000, 50 if not said. Other numbers are brought into that range.
    limit: Option<String>,
}

/// Which dead letters to change: one of the four ways to say it.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadSelection)]
pub(super) struct DeadSelectionShape {
    /// These.
    ids: Option<Vec<String>>,
    /// Those that fit: `queue`, `kind`, `error_type`, `fingerprint`, `since`, `until`, `text`.
    #[schema(value_type = Option<Object>)]
    matching: Option<Map<String, Value>>,
    /// So many that died first, of `queue`.
    oldest: Option<u64>,
    /// The queue of `oldest`, or of `ids`: on Redis others may have jobs of the same ids.
    queue: Option<String>,
    /// Every one there is: true.
    all: Option<bool>,
}

/// Which dead letters to move, and where to.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadMove)]
pub(super) struct DeadMoveShape {
    #[serde(flatten)]
    selection: DeadSelectionShape,
    /// The queue they are to run in.
    to: String,
}

/// Which dead letters to redrive, and how.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadRedrive)]
pub(super) struct RedrivePlanShape {
    #[serde(flatten)]
    selection: DeadSelectionShape,
    /// So many go first and are watched; 5 if not said.
    canary: Option<u32>,
    /// More failures than these among them stop it; 0 if not said.
    max_failures: Option<u32>,
    /// How fast the others follow; `10/s` if not said.
    then_rate: Option<String>,
}

/// Count dead letters, by queue and in total.
#[utoipa::path(
    get, path = "/dead/stats", tag = "dead",
    responses(
        (status = 200, body = DeadStatsShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stats(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let mut stats = app.backstop().dead().stats().await?;
    stats
        .queues
        .retain(|queue, _| caller.queue_scope().includes(queue));
    stats.total = stats.queues.values().sum();
    Ok(ok(&stats))
}

/// Group dead letters by what they died of, the largest group first.
#[utoipa::path(
    get, path = "/dead/groups", tag = "dead", params(ListDeadGroupsQuery),
    responses(
        (status = 200, body = DeadGroupsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn groups(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListDeadGroupsQuery>,
) -> Result<Response, Problem> {
    let (queue, limit) = (
        parse_param("queue", query.queue.as_deref())?,
        parse_limit(query.limit.as_deref())?,
    );
    let queues = match (caller.queue_scope(), queue) {
        (QueueScope::Queues(queues), None) => queues.iter().cloned().map(Some).collect(),
        (scope, queue) => {
            queue
                .as_ref()
                .map_or(Ok(()), |queue| scope.check_queue(queue))?;
            vec![queue]
        }
    };
    let mut groups = Vec::new();
    for queue in queues {
        groups.extend(app.backstop().dead().groups(queue, limit).await?);
    }
    groups.sort_by_key(|group| Reverse(group.count));
    groups.truncate(limit);
    Ok(ok(&DeadGroupsShape::new(&groups)))
}

/// List dead letters, the newest death first, with secrets hidden.
#[utoipa::path(
    get, path = "/dead", tag = "dead", params(ListDeadQuery),
    responses(
        (status = 200, body = DeadListShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListDeadQuery>,
) -> Result<Response, Problem> {
    let limit = parse_limit(query.limit.as_deref())?;
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let queue = parse_param("queue", query.queue.as_deref())?;
    let filter = DeadFilter {
        queue: None,
        kind: parse_param("kind", query.kind.as_deref())?,
        error_type: non_empty(query.error_type),
        fingerprint: parse_param("fingerprint", query.fingerprint.as_deref())?,
        since: parse_param("since", query.since.as_deref())?,
        until: parse_param("until", query.until.as_deref())?,
        text: non_empty(query.text),
    };
    let dead = dead_letters(&app, &caller);
    let part = read_page(
        caller.queue_scope(),
        queue,
        non_empty(query.cursor),
        |queue, cursor| {
            let (filter, dead) = (
                DeadFilter {
                    queue,
                    ..filter.clone()
                },
                &dead,
            );
            async move {
                let mut page = dead.list(&filter, cursor, limit).await?;
                let is_empty = page.letters.is_empty() && page.damaged.is_empty();
                Ok(ScopedPage {
                    is_empty,
                    next: page.next.take(),
                    content: page,
                })
            }
        },
    )
    .await?;
    let mut page = DeadPage {
        next: part.next,
        ..part.content
    };
    let bytes = page
        .letters
        .iter()
        .map(|letter| letter.original_job.payload.get().len())
        .sum();
    respond_off_thread(&app, bytes, move || {
        for letter in &mut page.letters {
            hide_other_queues_in_letter(caller.queue_scope(), letter);
        }
        ok(&DeadListShape::new(&page))
    })
    .await
}

/// Make dead letters ready again, with all attempts anew. Their history stays.
#[utoipa::path(
    post, path = "/dead/requeue", tag = "dead", params(ChangeReasonQuery), request_body = DeadSelectionShape,
    responses(
        (status = 200, description = "To how many it was done, and to which not, as those that a full queue has no room for", body = DeadChangedShape),
        (status = 429, description = "The queue is full and takes none of them; they stay dead", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn requeue(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reason = query.reason()?;
    let selection = body
        .read_with(&app, |body| read_selection(body.read()?))
        .await?;
    let parts = resolve_dead_selection(&app, &caller, selection).await?;
    change(
        dead_letters(&app, &caller).because(reason),
        parts,
        AmendAction::Retry,
    )
    .await
}

/// Make dead letters ready in another queue, `to`, with all attempts anew.
#[utoipa::path(
    post, path = "/dead/move", tag = "dead", params(ChangeReasonQuery), request_body = DeadMoveShape,
    responses(
        (status = 200, description = "To how many it was done, and to which not, as those that a full queue has no room for", body = DeadChangedShape),
        (status = 429, description = "The queue is full and takes none of them; they stay dead", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn move_to(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reason = query.reason()?;
    let read = |body: &RequestBody| {
        let mut fields: Map<String, Value> = body.read()?;
        let to: Option<QueueName> = take_field(&mut fields, "to")?;
        let to =
            to.ok_or_else(|| Problem::bad_request("`to` names the queue they are to run in"))?;
        Ok((to, read_selection(fields)?))
    };
    let (to, selection) = body.read_with(&app, read).await?;
    caller.queue_scope().check_queue(&to)?;
    let parts = resolve_dead_selection(&app, &caller, selection).await?;
    change(
        dead_letters(&app, &caller).because(reason),
        parts,
        AmendAction::Move(to),
    )
    .await
}

/// Requeue a few dead letters, watch them, and go on with the rest or stop, by itself. Goes on
/// after the answer.
#[utoipa::path(
    post, path = "/dead/redrive", tag = "dead", params(ChangeReasonQuery), request_body = RedrivePlanShape,
    responses(
        (status = 202, description = "What was started", body = RedriveShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn redrive(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reason = query.reason()?;
    let read = |body: &RequestBody| {
        let mut fields: Map<String, Value> = body.read()?;
        Ok(RedrivePlan {
            canary: take_field(&mut fields, "canary")?.unwrap_or(CANARY_DEFAULT),
            max_failures: take_field(&mut fields, "max_failures")?.unwrap_or(MAX_FAILURES_DEFAULT),
            then_rate: take_field(&mut fields, "then_rate")?.unwrap_or(THEN_RATE_DEFAULT),
            selection: read_selection(fields)?,
        })
    };
    let plan = body.read_with(&app, read).await?;
    // What runs later is what was looked at now: the caller's own letters, and no others of their
    // ids.
    let plan = RedrivePlan {
        selection: only_selection(resolve_dead_selection(&app, &caller, plan.selection).await?)?,
        ..plan
    };
    let dead = dead_letters(&app, &caller).because(reason);
    // What is written down is run, whatever becomes of the caller or of the look at it.
    let (id, reports) = run_detached(async move {
        let id = dead
            .redrive_unattended(plan)
            .await
            .map_err(redrive_problem)?;
        let reports = dead.redrives().await;
        spawn_redrive(&app, dead, id.clone());
        Ok((id, reports?))
    })
    .await?;
    let report = reports.into_iter().find(|report| report.id == id);
    Ok(json(StatusCode::ACCEPTED, &report, 1_024))
}

/// List the redrives, the newest first: those under way, and the last hundred that have ended.
#[utoipa::path(
    get, path = "/dead/redrives", tag = "dead",
    responses(
        (status = 200, body = RedrivesShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn redrives(State(app): State<App>) -> Result<Response, Problem> {
    Ok(ok(&RedrivesShape {
        redrives: &app.backstop().dead().redrives().await?,
    }))
}

/// Stop a redrive before its next step; what was requeued stays requeued.
#[utoipa::path(
    post, path = "/dead/redrives/{id}/stop", tag = "dead",
    params(("id" = String, Path, description = "The redrive"), ChangeReasonQuery),
    responses(
        (status = 200, body = RedriveShape),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "It has ended, or somebody runs it", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stop_redrive(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let dead = dead_letters(&app, &caller).because(query.reason()?);
    let report =
        run_detached(async move { dead.stop_redrive(&id).await.map_err(redrive_problem) }).await?;
    Ok(ok(&report))
}

/// Let a redrive go on whose runner is gone: any server of the store goes on with it from now on.
#[utoipa::path(
    post, path = "/dead/redrives/{id}/resume", tag = "dead",
    params(("id" = String, Path, description = "The redrive"), ChangeReasonQuery),
    responses(
        (status = 200, body = RedriveShape),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "It has ended, or somebody runs it", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume_redrive(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let dead = dead_letters(&app, &caller).because(query.reason()?);
    let report = run_detached(async move {
        dead.leave_redrive(&id).await.map_err(redrive_problem)?;
        let reports = dead.redrives().await;
        spawn_redrive(&app, dead, id.clone());
        Ok(reports?.into_iter().find(|report| report.id == id))
    });
    Ok(ok(&report.await?))
}

/// Remove dead letters with their history. What is removed cannot be brought back.
#[utoipa::path(
    delete, path = "/dead", tag = "dead", params(ChangeReasonQuery), request_body = DeadSelectionShape,
    responses(
        (status = 200, body = DeadChangedShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reason = query.reason()?;
    let selection = body
        .read_with(&app, |body| read_selection(body.read()?))
        .await?;
    let parts = resolve_dead_selection(&app, &caller, selection).await?;
    change(
        dead_letters(&app, &caller).because(reason),
        parts,
        AmendAction::Delete,
    )
    .await
}

/// Changes all of it, also when the caller leaves in the middle.
async fn change(
    dead: DeadLetters,
    parts: Vec<DeadSelection>,
    action: AmendAction,
) -> Result<Response, Problem> {
    let changed = run_detached(async move {
        let mut changed = DeadChangeResult::default();
        dead.change_each(&parts, &action, &mut changed).await?;
        Ok(changed)
    });
    let changed = changed.await?;
    let is_untouched =
        changed.count == 0 && changed.damaged.is_empty() && !changed.refused.is_empty();
    if is_untouched
        && changed
            .refused
            .iter()
            .all(|(_, why)| *why == AmendRefusal::Full)
    {
        return Err(Problem::amend_refused(AmendRefusal::Full));
    }
    Ok(ok(&DeadChangedShape::new(&changed)))
}

fn dead_letters(app: &App, caller: &Caller) -> DeadLetters {
    app.config().dead(app.backstop(), caller.name())
}

/// A field of its own, taken out from among those of a selection.
fn take_field<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, Problem> {
    let value = fields.remove(name).filter(|value| !value.is_null());
    let read = value.map(serde_json::from_value).transpose();
    read.map_err(|error| Problem::bad_request(format_args!("`{name}`: {error}")))
}

fn read_selection(fields: Map<String, Value>) -> Result<DeadSelection, Problem> {
    DeadSelection::deserialize(Value::Object(fields)).map_err(Problem::bad_request)
}

/// What one redrive can be of.
fn only_selection(parts: Vec<DeadSelection>) -> Result<DeadSelection, Problem> {
    let queues = parts.len();
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next()) {
        (Some(selection), None) => Ok(selection),
        _ => Err(Problem::bad_request(format_args!(
            "these letters are of {queues} queues, and a redrive by such a token is of one; start one for each"
        ))),
    }
}

fn redrive_problem(error: RedriveError) -> Problem {
    match error {
        RedriveError::Store(error) => error.into(),
        RedriveError::BadPlan(_) => Problem::bad_request(error),
        RedriveError::NotFound(_) => Problem::not_found(error),
        other => Problem::conflict(other),
    }
}
