//! Jobs on their way in.

use super::read::{RequestBody, json};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, QueueScope};
use crate::telemetry::trace_of;
use crate::wire::push::{
    InvalidNewJob, NewJobShape, NewJobsShape, PushedJobShape, PushedJobsShape,
};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use backstop::core::limits::ENQUEUE_BYTES_MAX;
use backstop::core::port::{EnqueueOutcome, StoreError};
use backstop::{NewJob, Time, TraceContext};
use std::time::Duration;

/// How long the store may take, however often it is tried: whoever waits is told before the
/// request's own time is over.
const PUSH_MAX: Duration = Duration::from_secs(10);
/// About how many bytes one answer takes.
const PUSHED_BYTES: usize = 72;

/// Push a job; when it is answered, the job is durable. Pushing the same `id` again is harmless.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs", request_body = NewJobShape<'_>,
    responses(
        (status = 201, body = PushedJobShape),
        (status = 408, description = "The request took longer than the server's `timeout`; jobs may have been taken in all the same: send it again with the same `id`s", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 429, description = "The queue is full, or it is new and there are too many queues", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer; jobs may have been taken in all the same: send it again with the same `id`s, which are not taken in twice while the store has their jobs", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn one(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: RequestBody,
) -> Result<Response, Problem> {
    let (reading, now) = (app.clone(), app.backstop().current_time().await);
    let mut job = body
        .read_with(&app, move |body| read_job(&reading, now, body))
        .await?;
    caller.queue_scope().check_queue(&job.queue)?;
    job.trace = trace_of(&headers);
    let (id, queue) = (job.id, job.queue.clone());
    let how_to_repeat = || {
        format!(
            "send it again with \"id\": \"{id}\", which is not taken in twice while the store has its job"
        )
    };
    app.new_queues()
        .check(&app, &caller, std::slice::from_ref(&job))
        .await?;
    let result = push(&app, vec![job], how_to_repeat).await?.pop();
    let result = result.ok_or_else(|| StoreError::corrupt("pushing a job", "no answer for it"))?;
    if result == EnqueueOutcome::Full {
        return Err(Problem::full(format_args!(
            "queue {queue} is full and did not take the job; push it again when there is room, or raise its max_size"
        )));
    }
    if result == EnqueueOutcome::Conflict {
        return Err(Problem::conflict(format_args!(
            "a job of another queue has the id {id}; the job was not taken in, push it under another id"
        )));
    }
    Ok(json(
        StatusCode::CREATED,
        &PushedJobShape::new(id, result),
        PUSHED_BYTES,
    ))
}

/// Push jobs together: all that are wrong, or none of them, are refused before anything is pushed.
#[utoipa::path(
    post, path = "/jobs/batch", tag = "jobs", request_body = NewJobsShape<'_>,
    responses(
        (status = 200, description = "One result for each job; a job that its queue had no room for is `full`", body = PushedJobsShape),
        (status = 408, description = "The request took longer than the server's `timeout`; jobs may have been taken in all the same: send it again with the same `id`s", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 429, description = "All queues are full, or one is new and there are too many queues; nothing was taken in", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer; jobs may have been taken in all the same: send it again with the same `id`s, which are not taken in twice while the store has their jobs", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn batch(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: RequestBody,
) -> Result<Response, Problem> {
    let (reading, reader, trace) = (app.clone(), caller.clone(), trace_of(&headers));
    let now = app.backstop().current_time().await;
    let read =
        move |body: &RequestBody| read_jobs(&reading, reader.queue_scope(), trace, now, body);
    let jobs = body.read_with(&app, read).await?;
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let how_to_repeat = || {
        "send them again with the same ids: an id is not taken in twice while the store has its job; a job without one would be"
            .to_owned()
    };
    app.new_queues().check(&app, &caller, &jobs).await?;
    let answers = push(&app, jobs, how_to_repeat).await?;
    if !answers.is_empty() && answers.iter().all(|answer| *answer == EnqueueOutcome::Full) {
        return Err(Problem::full(
            "the queues are full and took none of the jobs; push them again when there is room, or raise their max_size",
        ));
    }
    let results: Vec<PushedJobShape> = ids
        .into_iter()
        .zip(answers)
        .map(|(id, result)| PushedJobShape::new(id, result))
        .collect();
    let size = results.len() * PUSHED_BYTES;
    Ok(json(StatusCode::OK, &PushedJobsShape { results }, size))
}

/// Pushes jobs within the time there is for the answer. `again` says how to repeat the request
/// without doing it twice.
async fn push(
    app: &App,
    jobs: Vec<NewJob>,
    how_to_repeat: impl FnOnce() -> String,
) -> Result<Vec<EnqueueOutcome>, Problem> {
    let within = PUSH_MAX.min(Duration::from(app.config().server.timeout) / 2);
    let pushed = tokio::time::timeout(within, app.backstop().push_jobs(jobs)).await;
    let late = |_| {
        Err(StoreError::unavailable(
            "pushing",
            format!("no answer within {within:?}"),
        ))
    };
    pushed
        .unwrap_or_else(late)
        .map_err(|error| match Problem::from(error.clone()) {
            problem if problem.status() == StatusCode::SERVICE_UNAVAILABLE => {
                Problem::unavailable(format_args!(
                    "{error}. It may have been done all the same; {}",
                    how_to_repeat()
                ))
            }
            other => other,
        })
}

fn read_job(app: &App, now: Time, body: &RequestBody) -> Result<NewJob, Problem> {
    let written: NewJobShape<'_> = body.read()?;
    written
        .job(&body.bytes, None, now, || app.backstop().new_id())
        .map_err(|error| invalid_job(&error, None))
}

fn read_jobs(
    app: &App,
    scope: &QueueScope,
    trace: Option<TraceContext>,
    now: Time,
    body: &RequestBody,
) -> Result<Vec<NewJob>, Problem> {
    let written: NewJobsShape<'_> = body.read()?;
    let written = written.jobs.0;
    let (mut jobs, mut bytes) = (Vec::<NewJob>::with_capacity(written.len()), 0);
    for (at, written) in written.into_iter().enumerate() {
        let job = written.job(&body.bytes, jobs.last(), now, || app.backstop().new_id());
        let mut job = job.map_err(|error| invalid_job(&error, Some(at)))?;
        scope.check_queue(&job.queue)?;
        job.trace = trace;
        bytes += job.payload.len();
        jobs.push(job);
    }
    if bytes > ENQUEUE_BYTES_MAX {
        return Err(Problem::too_large(format_args!(
            "the payloads have {bytes} bytes; at most {ENQUEUE_BYTES_MAX} go into one batch. Send them in several"
        )));
    }
    Ok(jobs)
}

/// A job that cannot be taken; `at` is its place in a batch.
fn invalid_job(error: &InvalidNewJob, at: Option<usize>) -> Problem {
    let detail = at.map_or_else(|| error.to_string(), |at| format!("job {at}: {error}"));
    if error.is_too_large() {
        Problem::too_large(detail)
    } else {
        Problem::bad_request(detail)
    }
}
