//! Work for workers in any language: lease, settle, beat.

use super::read::{RequestBody, clamp_number, json, ok, to_json, with_json_type};
use super::{Problem, ProblemShape, delivery};
use crate::App;
use crate::access::Caller;
use crate::wire::push::BorrowedText;
use crate::wire::work::{
    BeatAnswerShape, BeatRequestShape, LeaseAnswerShape, LeaseRequestShape, LeasedJobShape,
    SettleAnswerShape, SettleRequestShape, SettleResultShape,
};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::core::WorkerName;
use backstop::core::limits::{CLAIM_QUEUES_MAX, LEASE_MAX};
use backstop::core::worker_command::DesiredWorkerState;
use backstop::http_workers::{LeaseRequest, LeaseToken, LeasedJob, SeenWorkers, SettleRequest};
use backstop::workers::WorkerDescription;
use backstop::{JobId, Span};
use std::sync::Arc;

/// The most jobs one lease hands out.
const LEASE_JOBS_MAX: usize = 1_000;
/// The longest that a lease waits for its first job. A request is allowed to take longer than this.
pub const WAIT_MAX: Span = Span::secs(30);
/// About how many bytes an entry of an answer takes, beside its payload.
const LEASED_BYTES: usize = 192;
const SETTLED_BYTES: usize = 72;

/// Take jobs to run. Waits up to `wait_ms` for the first; each is the worker's own until its lease
/// ends, unless it beats. With a `max` of 0 none is taken, and the answer comes at once.
#[utoipa::path(
    post, path = "/lease", tag = "work", request_body = LeaseRequestShape<'_>,
    responses(
        (status = 200, body = LeaseAnswerShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn lease(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(attendance): Extension<Arc<SeenWorkers>>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reader = caller.clone();
    let read = move |body: &RequestBody| wish(&reader, body);
    let (max, ask) = body.read_with(&app, read).await?;
    let (about, worker) = (ask.about.clone(), ask.worker.clone());
    note_worker_name(&app, &caller, &worker)?;
    if max < 1.0 {
        // No room for a job: a pool whose places are all taken says so, and is still told what it
        // is asked for.
        let desired_state = load_desired_state(&app, &attendance, &worker, &about, &[]).await?;
        return Ok(ok(&LeaseAnswerShape {
            jobs: Vec::new(),
            desired_state,
        }));
    }
    let found = delivery::lease_jobs(&app, Arc::clone(&attendance), ask).await?;
    let desired_state =
        load_desired_state(&app, &attendance, &worker, &about, found.leased()).await?;
    let leased = found.leased().iter();
    let size = leased
        .map(|one: &LeasedJob| LEASED_BYTES + one.run.payload.len())
        .sum::<usize>()
        + 16;
    let write = move || {
        let jobs = found.leased().iter().map(LeasedJobShape::new).collect();
        let answer = to_json(
            &LeaseAnswerShape {
                jobs,
                desired_state,
            },
            size,
        )?;
        Ok(with_json_type(StatusCode::OK, found.into_body(answer)))
    };
    app.large_work().lease(size, write).await?
}

/// How many jobs a worker asks for, as it wrote it, and what it asks for.
fn wish(caller: &Caller, body: &RequestBody) -> Result<(f64, LeaseRequest), Problem> {
    let request: LeaseRequestShape<'_> = body.read().map_err(|problem| {
        // The only list there is.
        let has_too_many = problem.status() == StatusCode::PAYLOAD_TOO_LARGE;
        if has_too_many { queue_count() } else { problem }
    })?;
    if request.queues.0.is_empty() {
        return Err(queue_count());
    }
    let mut queues = request.queues.0.iter();
    queues.try_for_each(|queue| caller.queue_scope().check_queue(queue))?;
    let (about, max) = (request.about(), request.max.unwrap_or(1.0));
    let wait = request.wait_ms.map(|wait| millis(wait, WAIT_MAX));
    let ask = LeaseRequest {
        max: clamp_number(max, LEASE_JOBS_MAX),
        worker: worker_name(request.worker, caller),
        lease: request.lease_ms.map(lease_span),
        wait: wait.unwrap_or_default(),
        queues: request.queues.0,
        about,
    };
    Ok((max, ask))
}

fn queue_count() -> Problem {
    Problem::bad_request(format_args!(
        "`queues` names 1 to {CLAIM_QUEUES_MAX} queues"
    ))
}

/// End runs. Telling the same end again is harmless, and `applied` for as long as the job is kept;
/// an end under a lease that is over, or of a job that is gone (`keep_done`), is `stale`, and
/// changes nothing.
#[utoipa::path(
    post, path = "/settle", tag = "work", request_body = SettleRequestShape<'_>,
    responses(
        (status = 200, body = SettleAnswerShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn settle(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(attendance): Extension<Arc<SeenWorkers>>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let (ids, ended) = body
        .read_with(&app, move |body| read_endings(&caller, body))
        .await?;
    let config = app.config();
    let outcomes = app
        .backstop()
        .http_workers(&config, &attendance)
        .settle(ended)
        .await?;
    let results: Vec<SettleResultShape> = ids
        .into_iter()
        .zip(outcomes)
        .map(|(id, outcome)| SettleResultShape::new(id, outcome))
        .collect();
    let size = results.len() * SETTLED_BYTES + 16;
    Ok(json(StatusCode::OK, &SettleAnswerShape { results }, size))
}

/// Keep leases alive; answers which jobs are no longer the worker's own.
#[utoipa::path(
    post, path = "/beat", tag = "work", request_body = BeatRequestShape<'_>,
    responses(
        (status = 200, body = BeatAnswerShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn beat(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(attendance): Extension<Arc<SeenWorkers>>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let reader = caller.clone();
    let sign = body
        .read_with(&app, move |body| read_beat(&reader, body))
        .await?;
    note_worker_name(&app, &caller, &sign.worker)?;
    let config = app.config();
    let remote = app.backstop().http_workers(&config, &attendance);
    let beaten = remote
        .beat(&sign.worker, &sign.about, sign.held, sign.term)
        .await?;
    Ok(ok(&BeatAnswerShape {
        lost: beaten.lost,
        desired_state: beaten.desired_state.map(DesiredWorkerState::as_str),
    }))
}

/// The ends of runs that a body tells, and their ids as they were sent.
fn read_endings(
    caller: &Caller,
    body: &RequestBody,
) -> Result<(Vec<String>, Vec<SettleRequest>), Problem> {
    let request: SettleRequestShape<'_> = body.read()?;
    let (mut ids, mut ended) = (Vec::new(), Vec::<SettleRequest>::new());
    for end in request.settle.0 {
        ids.push(end.id().to_owned());
        let before: Option<&LeaseToken> = ended.last().and_then(|before| before.token.as_ref());
        let (job, ticket, ending) = end.read(before);
        check_lease_queue(caller, ticket.as_ref())?;
        ended.push(SettleRequest {
            job,
            token: ticket,
            ending,
        });
    }
    Ok((ids, ended))
}

/// What a worker says when it beats.
struct WorkerBeat {
    worker: WorkerName,
    about: WorkerDescription,
    held: Vec<(JobId, Option<LeaseToken>)>,
    term: Option<Span>,
}

fn read_beat(caller: &Caller, body: &RequestBody) -> Result<WorkerBeat, Problem> {
    let request: BeatRequestShape<'_> = body.read()?;
    let held: Vec<_> = request
        .leases
        .0
        .iter()
        .map(|held| held.read(None))
        .collect();
    held.iter()
        .try_for_each(|(_, ticket)| check_lease_queue(caller, ticket.as_ref()))?;
    let (about, term) = (request.about(), request.lease_ms.map(lease_span));
    Ok(WorkerBeat {
        worker: worker_name(request.worker, caller),
        about,
        held,
        term,
    })
}

/// Refuses a worker's name that is one too many.
fn note_worker_name(app: &App, caller: &Caller, worker: &WorkerName) -> Result<(), Problem> {
    app.worker_names().note(caller.key(), worker, app.backstop().now()).map_err(|error| {
        let detail = format_args!(
            "{error}: `{worker}`. Give a worker a name that lasts, such as its host and a number; a name is free again an hour after its last call"
        );
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-workers", "There are too many workers", detail)
            .retry_after(60)
    })
}

/// What a worker that got nothing is asked for. Whoever got jobs is asked for nothing that concerns
/// them.
async fn load_desired_state(
    app: &App,
    attendance: &SeenWorkers,
    worker: &WorkerName,
    about: &WorkerDescription,
    leased: &[LeasedJob],
) -> Result<Option<&'static str>, Problem> {
    if !leased.is_empty() {
        return Ok(None);
    }
    let config = app.config();
    Ok(app
        .backstop()
        .http_workers(&config, attendance)
        .desired_state(worker, about)
        .await?
        .map(DesiredWorkerState::as_str))
}

/// Refuses the lease of a queue that is not the caller's. What is no ticket is none of anybody's.
fn check_lease_queue(caller: &Caller, ticket: Option<&LeaseToken>) -> Result<(), Problem> {
    ticket.map_or(Ok(()), |ticket| {
        caller.queue_scope().check_queue(ticket.queue())
    })
}

/// Who works; who asks, if it does not say.
fn worker_name(name: Option<BorrowedText<'_>>, caller: &Caller) -> WorkerName {
    match name {
        Some(name) if !name.0.trim().is_empty() => WorkerName::new(&name.0),
        _ => WorkerName::new(caller.name()),
    }
}

/// A lease of so many milliseconds; the library brings it into the range there is.
fn lease_span(ms: f64) -> Span {
    millis(ms, LEASE_MAX)
}

/// So many milliseconds, from none to `max`.
#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a day fit a double exactly"
)]
fn millis(ms: f64, max: Span) -> Span {
    Span::millis(ms.clamp(0.0, max.as_millis() as f64) as i64)
}
