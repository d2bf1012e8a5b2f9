//! Dead letters.

use super::read::{Asked, At, Body, json, large, limit, ok, parsed, to_the_end};
use super::reason::ReasonAsked;
use super::within::{Part, letters_within, narrow_letter, paged};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, Reach};
use crate::redrives::run;
use crate::wire::dead::{ChangedShape, DeadListShape, DeadStatsShape, GroupsShape, RedrivesShape};
use crate::wire::letter::RedriveShape;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::QueueName;
use backstop::core::amend::{Action, Refusal};
use backstop::dead::redrive::{
    CANARY_USUAL, MAX_FAILURES_USUAL, Redrive, RedriveError, THEN_RATE_USUAL,
};
use backstop::dead::{Changed, DeadFilter, DeadLetters, DeadPage, DeadSelection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cmp::Reverse;
use utoipa::{IntoParams, ToSchema};

/// Which groups.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupsAsked {
    /// Of this queue.
    queue: Option<String>,
    /// At most so many: 1 to 1000, 50 if not said.
    limit: Option<String>,
}

/// Which dead letters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadAsked {
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
pub(super) struct SelectionShape {
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
pub(super) struct MoveShape {
    #[serde(flatten)]
    selection: SelectionShape,
    /// The queue they are to run in.
    to: String,
}

/// Which dead letters to redrive, and how.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadRedrive)]
pub(super) struct PlanShape {
    #[serde(flatten)]
    selection: SelectionShape,
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
        .retain(|queue, _| caller.reach().includes(queue));
    stats.total = stats.queues.values().sum();
    Ok(ok(&stats))
}

/// Group dead letters by what they died of, the largest group first.
#[utoipa::path(
    get, path = "/dead/groups", tag = "dead", params(GroupsAsked),
    responses(
        (status = 200, body = GroupsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn groups(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<GroupsAsked>,
) -> Result<Response, Problem> {
    let (queue, limit) = (
        parsed("queue", asked.queue.as_deref())?,
        limit(asked.limit.as_deref())?,
    );
    let queues = match (caller.reach(), queue) {
        (Reach::Queues(queues), None) => queues.iter().cloned().map(Some).collect(),
        (reach, queue) => {
            queue.as_ref().map_or(Ok(()), |queue| reach.check(queue))?;
            vec![queue]
        }
    };
    let mut groups = Vec::new();
    for queue in queues {
        groups.extend(app.backstop().dead().groups(queue, limit).await?);
    }
    groups.sort_by_key(|group| Reverse(group.count));
    groups.truncate(limit);
    Ok(ok(&GroupsShape::new(&groups)))
}

/// List dead letters, the newest death first, with secrets hidden.
#[utoipa::path(
    get, path = "/dead", tag = "dead", params(DeadAsked),
    responses(
        (status = 200, body = DeadListShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<DeadAsked>,
) -> Result<Response, Problem> {
    let limit = limit(asked.limit.as_deref())?;
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let queue = parsed("queue", asked.queue.as_deref())?;
    let filter = DeadFilter {
        queue: None,
        kind: parsed("kind", asked.kind.as_deref())?,
        error_type: said(asked.error_type),
        fingerprint: parsed("fingerprint", asked.fingerprint.as_deref())?,
        since: parsed("since", asked.since.as_deref())?,
        until: parsed("until", asked.until.as_deref())?,
        text: said(asked.text),
    };
    let dead = letters(&app, &caller);
    let part = paged(
        caller.reach(),
        queue,
        said(asked.cursor),
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
                Ok(Part {
                    is_empty,
                    next: page.next.take(),
                    what: page,
                })
            }
        },
    )
    .await?;
    let mut page = DeadPage {
        next: part.next,
        ..part.what
    };
    let bytes = page
        .letters
        .iter()
        .map(|letter| letter.original_job.payload.get().len())
        .sum();
    large(&app, bytes, move || {
        for letter in &mut page.letters {
            narrow_letter(caller.reach(), letter);
        }
        ok(&DeadListShape::new(&page))
    })
    .await
}

/// Make dead letters ready again, with all attempts anew. Their history stays.
#[utoipa::path(
    post, path = "/dead/requeue", tag = "dead", params(ReasonAsked), request_body = SelectionShape,
    responses(
        (status = 200, description = "To how many it was done, and to which not, as those that a full queue has no room for", body = ChangedShape),
        (status = 429, description = "The queue is full and takes none of them; they stay dead", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn requeue(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<ReasonAsked>,
    body: Body,
) -> Result<Response, Problem> {
    let reason = asked.reason()?;
    let selection = body.read_by(&app, |body| selection(body.read()?)).await?;
    let parts = letters_within(&app, &caller, selection).await?;
    change(letters(&app, &caller).because(reason), parts, Action::Retry).await
}

/// Make dead letters ready in another queue, `to`, with all attempts anew.
#[utoipa::path(
    post, path = "/dead/move", tag = "dead", params(ReasonAsked), request_body = MoveShape,
    responses(
        (status = 200, description = "To how many it was done, and to which not, as those that a full queue has no room for", body = ChangedShape),
        (status = 429, description = "The queue is full and takes none of them; they stay dead", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn move_to(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<ReasonAsked>,
    body: Body,
) -> Result<Response, Problem> {
    let reason = asked.reason()?;
    let read = |body: &Body| {
        let mut said: Map<String, Value> = body.read()?;
        let to: Option<QueueName> = taken(&mut said, "to")?;
        let to = to.ok_or_else(|| Problem::bad("`to` names the queue they are to run in"))?;
        Ok((to, selection(said)?))
    };
    let (to, selection) = body.read_by(&app, read).await?;
    caller.reach().check(&to)?;
    let parts = letters_within(&app, &caller, selection).await?;
    change(
        letters(&app, &caller).because(reason),
        parts,
        Action::Move(to),
    )
    .await
}

/// Requeue a few dead letters, watch them, and go on with the rest or stop, by itself. Goes on
/// after the answer.
#[utoipa::path(
    post, path = "/dead/redrive", tag = "dead", params(ReasonAsked), request_body = PlanShape,
    responses(
        (status = 202, description = "What was started", body = RedriveShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn redrive(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<ReasonAsked>,
    body: Body,
) -> Result<Response, Problem> {
    let reason = asked.reason()?;
    let read = |body: &Body| {
        let mut said: Map<String, Value> = body.read()?;
        Ok(Redrive {
            canary: taken(&mut said, "canary")?.unwrap_or(CANARY_USUAL),
            max_failures: taken(&mut said, "max_failures")?.unwrap_or(MAX_FAILURES_USUAL),
            then_rate: taken(&mut said, "then_rate")?.unwrap_or(THEN_RATE_USUAL),
            selection: selection(said)?,
        })
    };
    let plan = body.read_by(&app, read).await?;
    // What runs later is what was looked at now: the caller's own letters, and no others of their
    // ids.
    let plan = Redrive {
        selection: only(letters_within(&app, &caller, plan.selection).await?)?,
        ..plan
    };
    let dead = letters(&app, &caller).because(reason);
    // What is written down is run, whatever becomes of the caller or of the look at it.
    let (id, reports) = to_the_end(async move {
        let id = dead.redrive_unattended(plan).await.map_err(refused)?;
        let reports = dead.redrives().await;
        run(&app, dead, id.clone());
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
    params(("id" = String, Path, description = "The redrive"), ReasonAsked),
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
    At(id): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let dead = letters(&app, &caller).because(asked.reason()?);
    let report = to_the_end(async move { dead.stop_redrive(&id).await.map_err(refused) }).await?;
    Ok(ok(&report))
}

/// Let a redrive go on whose runner is gone: any server of the store goes on with it from now on.
#[utoipa::path(
    post, path = "/dead/redrives/{id}/resume", tag = "dead",
    params(("id" = String, Path, description = "The redrive"), ReasonAsked),
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
    At(id): At<String>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let dead = letters(&app, &caller).because(asked.reason()?);
    let report = to_the_end(async move {
        dead.leave_redrive(&id).await.map_err(refused)?;
        let reports = dead.redrives().await;
        run(&app, dead, id.clone());
        Ok(reports?.into_iter().find(|report| report.id == id))
    });
    Ok(ok(&report.await?))
}

/// Remove dead letters with their history. What is removed cannot be brought back.
#[utoipa::path(
    delete, path = "/dead", tag = "dead", params(ReasonAsked), request_body = SelectionShape,
    responses(
        (status = 200, body = ChangedShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<ReasonAsked>,
    body: Body,
) -> Result<Response, Problem> {
    let reason = asked.reason()?;
    let selection = body.read_by(&app, |body| selection(body.read()?)).await?;
    let parts = letters_within(&app, &caller, selection).await?;
    change(
        letters(&app, &caller).because(reason),
        parts,
        Action::Delete,
    )
    .await
}

/// Changes all of it, also when the caller leaves in the middle.
async fn change(
    dead: DeadLetters,
    parts: Vec<DeadSelection>,
    action: Action,
) -> Result<Response, Problem> {
    let changed = to_the_end(async move {
        let mut changed = Changed::default();
        dead.change_each(&parts, &action, &mut changed).await?;
        Ok(changed)
    });
    let changed = changed.await?;
    let is_untouched =
        changed.count == 0 && changed.damaged.is_empty() && !changed.refused.is_empty();
    if is_untouched && changed.refused.iter().all(|(_, why)| *why == Refusal::Full) {
        return Err(Problem::refused(Refusal::Full));
    }
    Ok(ok(&ChangedShape::new(&changed)))
}

fn letters(app: &App, caller: &Caller) -> DeadLetters {
    app.config().dead(app.backstop(), caller.name())
}

/// A field of its own, taken out from among those of a selection.
fn taken<T: DeserializeOwned>(
    said: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, Problem> {
    let value = said.remove(name).filter(|value| !value.is_null());
    let read = value.map(serde_json::from_value).transpose();
    read.map_err(|error| Problem::bad(format_args!("`{name}`: {error}")))
}

fn selection(said: Map<String, Value>) -> Result<DeadSelection, Problem> {
    DeadSelection::deserialize(Value::Object(said)).map_err(Problem::bad)
}

/// What one redrive can be of.
fn only(parts: Vec<DeadSelection>) -> Result<DeadSelection, Problem> {
    let queues = parts.len();
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next()) {
        (Some(selection), None) => Ok(selection),
        _ => Err(Problem::bad(format_args!(
            "these letters are of {queues} queues, and a redrive by such a token is of one; start one for each"
        ))),
    }
}

fn refused(error: RedriveError) -> Problem {
    match error {
        RedriveError::Store(error) => error.into(),
        RedriveError::BadPlan(_) => Problem::bad(error),
        RedriveError::NotFound(_) => Problem::not_found(error),
        other => Problem::conflict(other),
    }
}
