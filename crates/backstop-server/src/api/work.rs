//! Work for workers in any language: lease, settle, beat.

use super::read::{Body, clamped, json, ok, typed, written};
use super::{Problem, ProblemShape, delivery};
use crate::App;
use crate::access::Caller;
use crate::wire::push::Text;
use crate::wire::work::{
    BeatShape, HandedShape, LeaseShape, LeasedShape, LostShape, SaidShape, SettleShape,
    SettledShape,
};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::core::WorkerName;
use backstop::core::limits::{CLAIM_QUEUES_MAX, LEASE_MAX};
use backstop::core::order::Asked;
use backstop::remote::{Ask, Attendance, Ended, Handed, Ticket};
use backstop::workers::About;
use backstop::{JobId, Span};
use std::sync::Arc;

/// The most jobs one lease hands out.
const LEASE_JOBS_MAX: usize = 1_000;
/// The longest that a lease waits for its first job. A request is allowed to take longer than this.
pub const WAIT_MAX: Span = Span::secs(30);
/// About how many bytes an entry of an answer takes, beside its payload.
const HANDED_BYTES: usize = 192;
const SAID_BYTES: usize = 72;

/// Take jobs to run. Waits up to `wait_ms` for the first; each is the worker's own until its lease
/// ends, unless it beats. With a `max` of 0 none is taken, and the answer comes at once.
#[utoipa::path(
    post, path = "/lease", tag = "work", request_body = LeaseShape<'_>,
    responses(
        (status = 200, body = LeasedShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn lease(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(attendance): Extension<Arc<Attendance>>,
    body: Body,
) -> Result<Response, Problem> {
    let reader = caller.clone();
    let read = move |body: &Body| wish(&reader, body);
    let (max, ask) = body.read_by(&app, read).await?;
    let (about, worker) = (ask.about.clone(), ask.worker.clone());
    named(&app, &caller, &worker)?;
    if max < 1.0 {
        // No room for a job: a pool whose places are all taken says so, and is still told what it
        // is asked for.
        let asked = told(&app, &attendance, &worker, &about, &[]).await?;
        return Ok(ok(&LeasedShape {
            jobs: Vec::new(),
            asked,
        }));
    }
    let found = delivery::look(&app, Arc::clone(&attendance), ask).await?;
    let asked = told(&app, &attendance, &worker, &about, found.handed()).await?;
    let handed = found.handed().iter();
    let size = handed
        .map(|one: &Handed| HANDED_BYTES + one.run.payload.len())
        .sum::<usize>()
        + 16;
    let write = move || {
        let jobs = found.handed().iter().map(HandedShape::new).collect();
        let answer = written(&LeasedShape { jobs, asked }, size)?;
        Ok(typed(StatusCode::OK, found.carried_by(answer)))
    };
    app.large().lease(size, write).await?
}

/// How many jobs a worker asks for, as it wrote it, and what it asks for.
fn wish(caller: &Caller, body: &Body) -> Result<(f64, Ask), Problem> {
    let asked: LeaseShape<'_> = body.read().map_err(|problem| {
        // The only list there is.
        let has_too_many = problem.status() == StatusCode::PAYLOAD_TOO_LARGE;
        if has_too_many { queue_count() } else { problem }
    })?;
    if asked.queues.0.is_empty() {
        return Err(queue_count());
    }
    let mut queues = asked.queues.0.iter();
    queues.try_for_each(|queue| caller.reach().check(queue))?;
    let (about, max) = (asked.about(), asked.max.unwrap_or(1.0));
    let wait = asked.wait_ms.map(|wait| millis(wait, WAIT_MAX));
    let ask = Ask {
        max: clamped(max, LEASE_JOBS_MAX),
        worker: worker(asked.worker, caller),
        lease: asked.lease_ms.map(term),
        wait: wait.unwrap_or_default(),
        queues: asked.queues.0,
        about,
    };
    Ok((max, ask))
}

fn queue_count() -> Problem {
    Problem::bad(format_args!(
        "`queues` names 1 to {CLAIM_QUEUES_MAX} queues"
    ))
}

/// End runs. Telling the same end again is harmless, and `applied` for as long as the job is kept;
/// an end under a lease that is over, or of a job that is gone (`keep_done`), is `stale`, and
/// changes nothing.
#[utoipa::path(
    post, path = "/settle", tag = "work", request_body = SettleShape<'_>,
    responses(
        (status = 200, body = SettledShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn settle(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(attendance): Extension<Arc<Attendance>>,
    body: Body,
) -> Result<Response, Problem> {
    let (ids, ended) = body.read_by(&app, move |body| ends(&caller, body)).await?;
    let config = app.config();
    let said = app
        .backstop()
        .remote(&config, &attendance)
        .settle(ended)
        .await?;
    let results: Vec<SaidShape> = ids
        .into_iter()
        .zip(said)
        .map(|(id, said)| SaidShape::new(id, said))
        .collect();
    let size = results.len() * SAID_BYTES + 16;
    Ok(json(StatusCode::OK, &SettledShape { results }, size))
}

/// Keep leases alive; answers which jobs are no longer the worker's own.
#[utoipa::path(
    post, path = "/beat", tag = "work", request_body = BeatShape<'_>,
    responses(
        (status = 200, body = LostShape),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn beat(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(attendance): Extension<Arc<Attendance>>,
    body: Body,
) -> Result<Response, Problem> {
    let reader = caller.clone();
    let sign = body
        .read_by(&app, move |body| sign_of_life(&reader, body))
        .await?;
    named(&app, &caller, &sign.worker)?;
    let config = app.config();
    let remote = app.backstop().remote(&config, &attendance);
    let beaten = remote
        .beat(&sign.worker, &sign.about, sign.held, sign.term)
        .await?;
    Ok(ok(&LostShape {
        lost: beaten.lost,
        asked: beaten.asked.map(Asked::as_str),
    }))
}

/// The ends of runs that a body tells, and their ids as they were sent.
fn ends(caller: &Caller, body: &Body) -> Result<(Vec<String>, Vec<Ended>), Problem> {
    let asked: SettleShape<'_> = body.read()?;
    let (mut ids, mut ended) = (Vec::new(), Vec::<Ended>::new());
    for end in asked.settle.0 {
        ids.push(end.id().to_owned());
        let before: Option<&Ticket> = ended.last().and_then(|before| before.ticket.as_ref());
        let (job, ticket, ending) = end.read(before);
        check(caller, ticket.as_ref())?;
        ended.push(Ended {
            job,
            ticket,
            ending,
        });
    }
    Ok((ids, ended))
}

/// What a worker says when it beats.
struct SignOfLife {
    worker: WorkerName,
    about: About,
    held: Vec<(JobId, Option<Ticket>)>,
    term: Option<Span>,
}

fn sign_of_life(caller: &Caller, body: &Body) -> Result<SignOfLife, Problem> {
    let asked: BeatShape<'_> = body.read()?;
    let held: Vec<_> = asked.leases.0.iter().map(|held| held.read(None)).collect();
    held.iter()
        .try_for_each(|(_, ticket)| check(caller, ticket.as_ref()))?;
    let (about, term) = (asked.about(), asked.lease_ms.map(term));
    Ok(SignOfLife {
        worker: worker(asked.worker, caller),
        about,
        held,
        term,
    })
}

/// Refuses a worker's name that is one too many.
fn named(app: &App, caller: &Caller, worker: &WorkerName) -> Result<(), Problem> {
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
async fn told(
    app: &App,
    attendance: &Attendance,
    worker: &WorkerName,
    about: &About,
    handed: &[Handed],
) -> Result<Option<&'static str>, Problem> {
    if !handed.is_empty() {
        return Ok(None);
    }
    let config = app.config();
    Ok(app
        .backstop()
        .remote(&config, attendance)
        .asked(worker, about)
        .await?
        .map(Asked::as_str))
}

/// Refuses the lease of a queue that is not the caller's. What is no ticket is none of anybody's.
fn check(caller: &Caller, ticket: Option<&Ticket>) -> Result<(), Problem> {
    ticket.map_or(Ok(()), |ticket| caller.reach().check(ticket.queue()))
}

/// Who works; who asks, if it does not say.
fn worker(said: Option<Text<'_>>, caller: &Caller) -> WorkerName {
    match said {
        Some(said) if !said.0.trim().is_empty() => WorkerName::new(&said.0),
        _ => WorkerName::new(caller.name()),
    }
}

/// A lease of so many milliseconds; the library brings it into the range there is.
fn term(ms: f64) -> Span {
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
