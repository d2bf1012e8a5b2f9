//! What happened to a job, in order: runs, what went wrong in them, and the waits between.

use crate::pages::mark::When;
use crate::pages::text;
use backstop_core::failure::{Cause, Failure};
use backstop_core::redact::Redaction;
use backstop_core::{Job, State, Time};

/// One thing that happened, or a wait.
pub(super) struct Moment {
    /// How it is drawn: `failed`, `ended`, `wait` or nothing.
    pub(super) look: &'static str,
    pub(super) title: String,
    pub(super) at: Option<When>,
    pub(super) failure: Option<Shown>,
}

/// A failure as it is shown.
pub(super) struct Shown {
    pub(super) number: usize,
    pub(super) error_type: String,
    pub(super) message: String,
    pub(super) worker: String,
    pub(super) stack: Option<String>,
    pub(super) http_status: Option<u16>,
    pub(super) body: Option<String>,
}

/// Its life from the beginning to where it stands.
pub(super) fn moments(job: &Job, redaction: &Redaction, now: Time) -> Vec<Moment> {
    let failures = job.history.failures();
    let mut moments = vec![plain("", "Came in", Some(job.inserted_at), now)];
    for (number, failure) in failures.iter().enumerate() {
        let is_gap = number > 0 && failure.attempt > failures[number - 1].attempt + 1;
        if is_gap {
            let left_out = failure.attempt - failures[number - 1].attempt - 1;
            let title = format!(
                "{} between these are not kept",
                text::many(left_out.into(), "failure", "failures")
            );
            moments.push(plain("wait", &title, None, now));
        }
        moments.push(failed(failure, number, redaction, now));
        if let Some(wait) = failure.retry_in {
            moments.push(plain(
                "wait",
                &format!("waited {}", text::span(wait)),
                None,
                now,
            ));
        }
    }
    moments.extend(end(job, now));
    moments
}

fn plain(look: &'static str, title: &str, at: Option<Time>, now: Time) -> Moment {
    Moment {
        look,
        title: title.to_owned(),
        at: When::maybe(at, now),
        failure: None,
    }
}

fn failed(failure: &Failure, number: usize, redaction: &Redaction, now: Time) -> Moment {
    let title = match failure.cause {
        Cause::Failed => format!("Attempt {} failed", failure.attempt),
        Cause::TimedOut => format!("Attempt {} ran past its time", failure.attempt),
        Cause::Panicked => format!("Attempt {} panicked", failure.attempt),
        Cause::Lost => "Its worker vanished".to_owned(),
    };
    let error = redaction.error(&failure.error);
    Moment {
        look: "failed",
        title,
        at: Some(When::new(failure.at, now)),
        failure: Some(Shown {
            number,
            error_type: error.error_type.unwrap_or_default(),
            message: error.message,
            worker: failure.worker.clone(),
            stack: error.stack_trace.filter(|stack| !stack.trim().is_empty()),
            http_status: error.http_status,
            body: error.response_body.filter(|body| !body.trim().is_empty()),
        }),
    }
}

/// Where it stands.
fn end(job: &Job, now: Time) -> Vec<Moment> {
    let moment = match job.state {
        State::Scheduled => plain("", "To run", Some(job.run_at), now),
        State::Retrying => plain(
            "",
            &format!("Attempt {} to run", job.attempt.saturating_add(1)),
            Some(job.run_at),
            now,
        ),
        State::Ready => plain("", "Ready for a worker", Some(job.run_at), now),
        State::Running => return running(job, now),
        State::Done => plain("ended", "Done", job.finished_at, now),
        State::Dead => plain("failed", "Given up", job.finished_at, now),
        State::Cancelled => plain("", "Cancelled", job.finished_at, now),
    };
    vec![moment]
}

/// Who has had it since when, and whether that one is still to be counted on.
fn running(job: &Job, now: Time) -> Vec<Moment> {
    let attempt = format!("Attempt {}", job.attempt);
    let Some(claimant) = &job.held_by else {
        return vec![plain("ended", &format!("{attempt} runs"), None, now)];
    };
    let (worker, since) = (&claimant.worker, Some(claimant.since));
    if claimant.until >= now {
        return vec![plain(
            "ended",
            &format!("{attempt} runs on {worker}, started"),
            since,
            now,
        )];
    }
    let title = format!("The lease of {worker} is over");
    vec![
        plain("", &format!("{attempt} started on {worker}"), since, now),
        plain("failed", &title, Some(claimant.until), now),
    ]
}
