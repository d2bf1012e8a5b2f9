//! Jobs that are there: looking at them, and doing something to one.

use super::read::{
    PathParams, QueryParams, ok, parse_limit, parse_param, respond_off_thread, run_detached,
};
use super::reason::parse_reason;
use super::scoped_reads::{ScopedPage, hide_other_queues, read_page, resolve_job};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, QueueScope, Scope};
use crate::wire::job::{AmendedJobsShape, DamagedJobShape, JobShape, JobsShape};
use crate::wire::why::WhyShape;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::core::WorkerName;
use backstop::core::amend::{AmendAction, Filter, Selection};
use backstop::core::limits::LARGE_BYTES_MIN;
use backstop::core::port::StoreError;
use backstop::search::{JobSearch, SearchText};
use backstop::{JobId, QueueName, StoreKind};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Which jobs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListJobsQuery {
    /// Of this queue.
    queue: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// In this state: scheduled, ready, running, retrying, done, dead or cancelled.
    state: Option<String>,
    /// With this in the payload as it is listed, in whatever case: at most 200 characters. Hidden
    /// secrets are not found.
    text: Option<String>,
    /// Running, and held by the worker of this name.
    worker: Option<String>,
    /// Where to go on: the `next` of the page before.
    cursor: Option<String>,
    /// At most so many: 1 to 1000, 50 if not said. Other numbers are brought into that range.
    limit: Option<String>,
}

/// Of which queue a job is.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JobQueueQuery {
    /// Its queue. On Redis an id is unique within its queue only: where several have a job of it,
    /// none is shown unless one is named.
    queue: Option<String>,
}

/// Of which queue a job is, and why it is changed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeJobQuery {
    /// Its queue. On Redis an id is unique within its queue only: where several have a job of it,
    /// nothing is changed unless one is named.
    queue: Option<String>,
    /// Why, for the audit: one line of at most 200 characters.
    reason: Option<String>,
}

/// List jobs, with secrets hidden. Waiting jobs come by their time, ready ones in the order they
/// run, ended ones newest first. A page may be short, even empty, and go on: a filter that fits
/// little looks at no more jobs than there is time for.
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", params(ListJobsQuery),
    responses(
        (status = 200, body = JobsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListJobsQuery>,
) -> Result<Response, Problem> {
    let queue = parse_param("queue", query.queue.as_deref())?;
    let filter = Filter {
        kind: parse_param("kind", query.kind.as_deref())?,
        state: parse_param("state", query.state.as_deref())?,
        ..Filter::default()
    };
    let text: Option<SearchText> = parse_param("text", query.text.as_deref())?;
    let worker = query
        .worker
        .as_deref()
        .filter(|name| !name.is_empty())
        .map(WorkerName::new);
    let config = app.config();
    let limit = parse_limit(query.limit.as_deref())?;
    let cursor = query.cursor.filter(|cursor| !cursor.is_empty());
    let part = read_page(caller.queue_scope(), queue, cursor, |queue, cursor| {
        let filter = Filter {
            queue,
            ..filter.clone()
        };
        let search = JobSearch {
            filter,
            text: text.clone(),
            worker: worker.clone(),
        };
        let (app, redaction) = (&app, &config.redaction);
        async move {
            let page = app
                .backstop()
                .search(&search, redaction, cursor, limit)
                .await?;
            let is_empty = page.jobs.is_empty() && page.damaged.is_empty();
            Ok(ScopedPage {
                is_empty,
                next: page.next.clone(),
                content: page,
            })
        }
    })
    .await?;
    let bytes = part.content.jobs.iter().map(|job| job.payload.len()).sum();
    respond_off_thread(&app, bytes, move || {
        let listed = |job| {
            let mut shape = JobShape::listed(job, config.max_attempts(job), &config.redaction);
            hide_other_queues(caller.queue_scope(), shape.errors_mut());
            shape
        };
        ok(&JobsShape {
            jobs: part.content.jobs.iter().map(listed).collect(),
            damaged: part
                .content
                .damaged
                .iter()
                .map(DamagedJobShape::new)
                .collect(),
            next: part.next.as_deref(),
        })
    })
    .await
}

/// Show one job. Its payload is whole for scope admin; otherwise secrets are hidden.
#[utoipa::path(
    get, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "Its id, or the name it was pushed under"), JobQueueQuery),
    responses(
        (status = 200, body = JobShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Several queues have a job of this id", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<JobQueueQuery>,
) -> Result<Response, Problem> {
    let (id, config, queue) = (JobId::from_text(&id), app.config(), query.queue()?);
    // Redis knows ids by their queue: all of its queues are asked.
    let is_everywhere = queue.is_none() && config.store.kind() == Some(StoreKind::Redis);
    let turn = if is_everywhere {
        Some(app.reads().acquire(caller.key()).await?)
    } else {
        None
    };
    let job = resolve_job(&app, &caller, id, queue.as_ref()).await?;
    let bytes = job.payload.len();
    let _turn = match turn {
        None if bytes >= LARGE_BYTES_MIN => Some(app.reads().acquire(caller.key()).await?),
        turn => turn,
    };
    let is_whole = caller.may(Scope::Admin);
    let (redaction, payload) = (Arc::clone(&config), job.payload.clone());
    let has_secrets =
        move || is_whole && redaction.redaction.payload(payload.as_bytes()) != payload.as_bytes();
    if app.large_work().answer(bytes, has_secrets).await? {
        // What others are not shown is written down before it is.
        let seen = async { Ok::<_, StoreError>((1, ())) };
        let audit = app.backstop().audit(caller.name());
        audit
            .record("job payload", serde_json::json!({ "ids": [job.id] }), seen)
            .await?;
    }
    respond_off_thread(&app, bytes, move || {
        let max_attempts = config.max_attempts(&job);
        let shape = if is_whole {
            JobShape::new
        } else {
            JobShape::listed
        };
        let mut shape = shape(&job, max_attempts, &config.redaction);
        hide_other_queues(caller.queue_scope(), shape.errors_mut());
        ok(&shape)
    })
    .await
}

/// Remove a job with its history. A running one is to be cancelled first.
#[utoipa::path(
    delete, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "Its id, or the name it was pushed under"), ChangeJobQuery),
    responses(
        (status = 200, body = AmendedJobsShape),
        (status = 409, description = "It is running, or several queues have a job of this id", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeJobQuery>,
) -> Result<Response, Problem> {
    amend(&app, &caller, &id, &query, AmendAction::Delete).await
}

/// Run a job now: a waiting one at once, a dead or cancelled one with all attempts again.
#[utoipa::path(
    post, path = "/jobs/{id}/retry", tag = "jobs", params(("id" = String, Path, description = "Its id, or the name it was pushed under"), ChangeJobQuery),
    responses(
        (status = 200, body = AmendedJobsShape),
        (status = 409, description = "It runs, is ready or done, another job holds its unique key, or several queues have a job of this id; the detail says which", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 429, description = "Its queue is full; the job stays what it was", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn retry(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeJobQuery>,
) -> Result<Response, Problem> {
    amend(&app, &caller, &id, &query, AmendAction::Retry).await
}

/// Call a job off; the worker of a running one is told at its next beat.
#[utoipa::path(
    post, path = "/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path, description = "Its id, or the name it was pushed under"), ChangeJobQuery),
    responses(
        (status = 200, body = AmendedJobsShape),
        (status = 409, description = "It has ended already, or several queues have a job of this id", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ChangeJobQuery>,
) -> Result<Response, Problem> {
    amend(&app, &caller, &id, &query, AmendAction::Cancel).await
}

/// Say why a job does not run: the one gate it stands before, and what opens it.
#[utoipa::path(
    get, path = "/jobs/{id}/why", tag = "jobs", params(("id" = String, Path, description = "Its id, or the name it was pushed under"), JobQueueQuery),
    responses(
        (status = 200, body = WhyShape),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Several queues have a job of this id", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn why(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<JobQueueQuery>,
) -> Result<Response, Problem> {
    let (id, config) = (JobId::from_text(&id), app.config());
    let job = resolve_job(&app, &caller, id, query.queue()?.as_ref()).await?;
    let explained = app
        .backstop()
        .explain_loaded(job, |job| config.max_attempts(job))
        .await?;
    Ok(ok(&WhyShape::new(&explained)))
}

impl JobQueueQuery {
    fn queue(&self) -> Result<Option<QueueName>, Problem> {
        parse_param("queue", self.queue.as_deref())
    }
}

async fn amend(
    app: &App,
    caller: &Caller,
    id: &str,
    query: &ChangeJobQuery,
    action: AmendAction,
) -> Result<Response, Problem> {
    let id = JobId::from_text(id);
    let reason = parse_reason(query.reason.as_deref())?;
    let selection = match (
        parse_param("queue", query.queue.as_deref())?,
        caller.queue_scope(),
    ) {
        (None, QueueScope::AllQueues) => Selection::Ids(vec![id]),
        (Some(queue), scope) => {
            scope.check_queue(&queue)?;
            Selection::Within(queue, vec![id])
        }
        // Where others have a job of this id, that one is none of the caller's.
        (None, QueueScope::Queues(_)) => {
            Selection::Within(resolve_job(app, caller, id, None).await?.queue, vec![id])
        }
    };
    let changes = app.backstop().changes(caller.name()).because(reason);
    let changed =
        run_detached(async move { Ok(changes.amend(&selection, &action).await?) }).await?;
    match changed.refused.first() {
        Some((_, refusal)) => Err(Problem::amend_refused(*refusal)),
        None => Ok(ok(&AmendedJobsShape::from(changed))),
    }
}
