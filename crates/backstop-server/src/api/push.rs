//! Jobs on their way in.

use super::read::{Body, json};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::{Caller, Reach};
use crate::meters::trace_of;
use crate::wire::push::{BadJob, NewJobShape, NewJobsShape, PushedShape, PushedTogetherShape};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use backstop::core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use backstop::core::port::{Enqueued, StoreError};
use backstop::{NewJob, TraceContext};

/// About how many bytes one answer takes.
const PUSHED_BYTES: usize = 72;

/// Push a job; when it is answered, the job is durable. Pushing the same `id` again is harmless.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs", request_body = NewJobShape<'_>,
    responses(
        (status = 201, body = PushedShape),
        (status = 429, description = "The queue is full", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn one(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (backstop, now) = (app.backstop(), app.backstop().now());
    let written: NewJobShape<'_> = body.read()?;
    let mut job = written.job(&body.0, None, now, || backstop.new_id()).map_err(|error| bad(&error, None))?;
    caller.reach().check(&job.queue)?;
    job.trace = trace_of(&headers);
    let (id, queue) = (job.id, job.queue.clone());
    let result = backstop.push_jobs(vec![job]).await?.pop();
    let result = result.ok_or_else(|| StoreError::corrupt("pushing a job", "no answer for it"))?;
    if result == Enqueued::Full {
        return Err(Problem::full(format_args!(
            "queue {queue} is full and did not take the job; push it again when there is room, or raise its max_size"
        )));
    }
    Ok(json(StatusCode::CREATED, &PushedShape::new(id, result), PUSHED_BYTES))
}

/// Push jobs together: all that are wrong, or none of them, are refused before anything is pushed.
#[utoipa::path(
    post, path = "/jobs/batch", tag = "jobs", request_body = NewJobsShape<'_>,
    responses(
        (status = 200, description = "One result for each job; a job that its queue had no room for is `full`", body = PushedTogetherShape),
        (status = 429, description = "All queues are full", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn batch(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let jobs = jobs(&app, caller.reach(), trace_of(&headers), &body)?;
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let answers = app.backstop().push_jobs(jobs).await?;
    if !answers.is_empty() && answers.iter().all(|answer| *answer == Enqueued::Full) {
        return Err(Problem::full(
            "the queues are full and took none of the jobs; push them again when there is room, or raise their max_size",
        ));
    }
    let results: Vec<PushedShape> =
        ids.into_iter().zip(answers).map(|(id, result)| PushedShape::new(id, result)).collect();
    let size = results.len() * PUSHED_BYTES;
    Ok(json(StatusCode::OK, &PushedTogetherShape { results }, size))
}

fn jobs(app: &App, reach: &Reach, trace: Option<TraceContext>, body: &Body) -> Result<Vec<NewJob>, Problem> {
    let (backstop, now) = (app.backstop(), app.backstop().now());
    let written: NewJobsShape<'_> = body.read()?;
    if written.jobs.len() > ENQUEUE_JOBS_MAX {
        return Err(Problem::too_large(format_args!(
            "{} jobs at once; at most {ENQUEUE_JOBS_MAX} go into one batch. Send them in several",
            written.jobs.len()
        )));
    }
    let (mut jobs, mut bytes) = (Vec::<NewJob>::with_capacity(written.jobs.len()), 0);
    for (at, written) in written.jobs.into_iter().enumerate() {
        let job = written.job(&body.0, jobs.last(), now, || backstop.new_id());
        let mut job = job.map_err(|error| bad(&error, Some(at)))?;
        reach.check(&job.queue)?;
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
fn bad(error: &BadJob, at: Option<usize>) -> Problem {
    let detail = at.map_or_else(|| error.to_string(), |at| format!("job {at}: {error}"));
    if error.is_too_large() { Problem::too_large(detail) } else { Problem::bad(detail) }
}
