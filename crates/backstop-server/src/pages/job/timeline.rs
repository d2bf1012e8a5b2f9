//! What happened to a job, in order: runs, what went wrong in them, and the waits between.

use crate::pages::components::RelativeTime;
use crate::pages::text;
use backstop_core::failure::{FailureCause, FailureRecord};
use backstop_core::redact::Redaction;
use backstop_core::{Job, JobState, Time};

/// One thing that happened, or a wait.
pub(super) struct JobTimelineEntry {
    /// How it is drawn: `failed`, `ended`, `wait` or nothing.
    pub(super) look: &'static str,
    pub(super) title: String,
    pub(super) at: Option<RelativeTime>,
    pub(super) failure: Option<JobFailureView>,
}

/// A failure as it is shown.
pub(super) struct JobFailureView {
    pub(super) number: usize,
    pub(super) error_type: String,
    pub(super) message: String,
    pub(super) worker: String,
    pub(super) stack: Option<String>,
    pub(super) http_status: Option<u16>,
    pub(super) body: Option<String>,
}

/// Its life from the beginning to where it stands.
pub(super) fn moments(job: &Job, redaction: &Redaction, now: Time) -> Vec<JobTimelineEntry> {
    let failures = job.history.failures();
    let mut moments = vec![plain_entry("", "Came in", Some(job.inserted_at), now)];
    for (number, failure) in failures.iter().enumerate() {
        let is_gap = number > 0 && failure.attempt > failures[number - 1].attempt + 1;
        if is_gap {
            let left_out = failure.attempt - failures[number - 1].attempt - 1;
            let title = format!(
                "{} between these are not kept",
                text::many(left_out.into(), "failure", "failures")
            );
            moments.push(plain_entry("wait", &title, None, now));
        }
        moments.push(failure_entry(failure, number, redaction, now));
        if let Some(wait) = failure.retry_in {
            moments.push(plain_entry(
                "wait",
                &format!("waited {}", text::span(wait)),
                None,
                now,
            ));
        }
    }
    moments.extend(last_entries(job, now));
    moments
}

fn plain_entry(look: &'static str, title: &str, at: Option<Time>, now: Time) -> JobTimelineEntry {
    JobTimelineEntry {
        look,
        title: title.to_owned(),
        at: RelativeTime::maybe(at, now),
        failure: None,
    }
}

fn failure_entry(
    failure: &FailureRecord,
    number: usize,
    redaction: &Redaction,
    now: Time,
) -> JobTimelineEntry {
    let title = match failure.cause {
        FailureCause::Failed => format!("Attempt {} failed", failure.attempt),
        FailureCause::TimedOut => format!("Attempt {} ran past its time", failure.attempt),
        FailureCause::Panicked => format!("Attempt {} panicked", failure.attempt),
        FailureCause::Lost => "Its worker vanished".to_owned(),
    };
    let error = redaction.error(&failure.error);
    JobTimelineEntry {
        look: "failed",
        title,
        at: Some(RelativeTime::new(failure.at, now)),
        failure: Some(JobFailureView {
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

fn last_entries(job: &Job, now: Time) -> Vec<JobTimelineEntry> {
    let moment = match job.state {
        JobState::Scheduled => plain_entry("", "To run", Some(job.run_at), now),
        JobState::Retrying => plain_entry(
            "",
            &format!("Attempt {} to run", job.attempt.saturating_add(1)),
            Some(job.run_at),
            now,
        ),
        JobState::Ready => plain_entry("", "Ready for a worker", Some(job.run_at), now),
        JobState::Running => return running_entries(job, now),
        JobState::Done => plain_entry("ended", "Done", job.finished_at, now),
        JobState::Dead => plain_entry("failed", "Given up", job.finished_at, now),
        JobState::Cancelled => plain_entry("", "Cancelled", job.finished_at, now),
    };
    vec![moment]
}

/// Who has had it since when, and whether that one is still to be counted on.
fn running_entries(job: &Job, now: Time) -> Vec<JobTimelineEntry> {
    let attempt = format!("Attempt {}", job.attempt);
    let Some(claimant) = &job.held_by else {
        return vec![plain_entry("ended", &format!("{attempt} runs"), None, now)];
    };
    let (worker, since) = (&claimant.worker, Some(claimant.since));
    if claimant.until >= now {
        return vec![plain_entry(
            "ended",
            &format!("{attempt} runs on {worker}, started"),
            since,
            now,
        )];
    }
    let title = format!("The lease of {worker} is over");
    vec![
        plain_entry("", &format!("{attempt} started on {worker}"), since, now),
        plain_entry("failed", &title, Some(claimant.until), now),
    ]
}
