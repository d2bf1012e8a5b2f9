//! A dead letter as it is shown, exported and imported.

use backstop_core::failure::{DeathContext, FailureCause, FailureRecord};
use backstop_core::redact::Redaction;
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{
    Fingerprint, Job, JobId, JobState, Kind, Priority, QueueName, Time, TraceContext,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt::Write as _;

/// A job that was given up, and what is known about why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    pub id: JobId,
    pub queue: QueueName,
    #[serde(default)]
    pub kind: Kind,
    /// Why it was given up: a word, such as `attempts_exhausted`.
    #[serde(default)]
    pub reason: Option<String>,
    /// What went wrong last, in words. A death by overflow says so.
    #[serde(default)]
    pub error: String,
    /// The class of that error.
    #[serde(default)]
    pub error_type: Option<String>,
    #[serde(default)]
    pub stack_trace: Option<String>,
    /// The status of the HTTP answer behind it.
    #[serde(default)]
    pub http_status: Option<u16>,
    /// The body of that answer.
    #[serde(default)]
    pub response_body: Option<String>,
    /// Runs that ended by themselves since it was pushed, or requeued.
    #[serde(default)]
    pub attempt_count: u32,
    /// When it failed for the first time ever, requeues included.
    #[serde(default)]
    pub first_failed_at: Option<Time>,
    /// When it was given up.
    #[serde(default)]
    pub last_failed_at: Option<Time>,
    /// Seconds it waited for each retry since it was pushed or requeued, as far as they are
    /// remembered.
    #[serde(default)]
    pub retry_delays: Option<Vec<f64>>,
    /// What was known about the world when it died.
    #[serde(default)]
    pub context: Option<DeathContext>,
    /// What its death has in common with others.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
    /// How often an operator requeued it.
    #[serde(default)]
    pub requeues: u32,
    /// The whole job, with all its failures.
    pub original_job: OriginalJob,
}

/// The job behind a dead letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OriginalJob {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    #[serde(default = "dead")]
    pub state: JobState,
    /// Its payload, on one line.
    pub payload: Box<RawValue>,
    /// The bytes of the payload, where they are other than what `payload` shows: with line ends or
    /// space around them, or not JSON at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_hex: Option<String>,
    /// Runs that ended by themselves.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// All runs it could have had.
    #[serde(default)]
    pub max_attempts: Option<u32>,
    #[serde(default)]
    pub lost_leases: u32,
    /// When it was last to run.
    #[serde(default)]
    pub run_at: Option<Time>,
    #[serde(default)]
    pub inserted_at: Option<Time>,
    #[serde(default)]
    pub unique_key: Option<String>,
    /// All failures that are remembered, oldest first.
    #[serde(default)]
    pub errors: Vec<FailureRecord>,
    /// Its level in the queue.
    #[serde(default)]
    pub priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<RawValue>>,
    /// Where in a trace it was pushed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
    /// When it was given up.
    #[serde(default)]
    pub finished_at: Option<Time>,
}

const fn dead() -> JobState {
    JobState::Dead
}

/// What it died of, whatever its history says.
pub(super) struct DeathCause {
    pub(super) message: String,
    pub(super) error_type: Option<String>,
    stack_trace: Option<String>,
    http_status: Option<u16>,
    response_body: Option<String>,
}

impl DeathCause {
    /// The last failure as it may be shown; an overflow has nothing to do with it.
    pub(super) fn of(
        reason: Option<EndReason>,
        last: Option<&FailureRecord>,
        redaction: &Redaction,
    ) -> Self {
        let none = Self {
            message: "Unknown error".to_owned(),
            error_type: None,
            stack_trace: None,
            http_status: None,
            response_body: None,
        };
        if reason == Some(EndReason::Overflow) {
            let message =
                "the queue was full: this job, the oldest that waited, gave way to a newer one";
            return Self {
                message: message.to_owned(),
                error_type: Some("Overflow".to_owned()),
                ..none
            };
        }
        let Some(last) = last else { return none };
        let error = redaction.error(&last.error);
        let message = if error.message.trim().is_empty() {
            none.message
        } else {
            error.message
        };
        Self {
            message,
            error_type: error.error_type,
            stack_trace: error.stack_trace,
            http_status: error.http_status,
            response_body: error.response_body,
        }
    }
}

impl DeadLetter {
    /// The dead letter of a job, with its payload as the job has it and with errors that may be
    /// shown.
    pub(super) fn new(job: &Job, max_attempts: Option<u32>, redaction: &Redaction) -> Self {
        let failures = job.history.failures();
        let death = DeathCause::of(job.reason, failures.last(), redaction);
        let delays = delays(&failures);
        Self {
            id: job.id,
            queue: job.queue.clone(),
            kind: job.kind.clone(),
            reason: job.reason.map(|reason| reason.to_string()),
            error: death.message,
            error_type: death.error_type,
            stack_trace: death.stack_trace,
            http_status: death.http_status,
            response_body: death.response_body,
            attempt_count: job.attempt,
            first_failed_at: failures
                .first()
                .map(|failure| failure.at)
                .or(job.finished_at),
            last_failed_at: job.finished_at,
            retry_delays: (!delays.is_empty()).then_some(delays),
            context: failures.last().and_then(|failure| failure.context.clone()),
            fingerprint: job.fingerprint(),
            requeues: job.requeues,
            original_job: OriginalJob::new(job, failures, max_attempts, redaction),
        }
    }
}

impl OriginalJob {
    fn new(
        job: &Job,
        failures: Vec<FailureRecord>,
        max_attempts: Option<u32>,
        redaction: &Redaction,
    ) -> Self {
        let (payload, payload_hex) = payload(job.payload.as_bytes());
        let retry = job
            .options
            .retry()
            .and_then(|policy| serde_json::value::to_raw_value(&policy).ok());
        Self {
            id: Some(job.id),
            queue: Some(job.queue.clone()),
            kind: Some(job.kind.clone()),
            state: job.state,
            payload,
            payload_hex,
            attempt: Some(job.attempt),
            max_attempts,
            lost_leases: job.lost_leases,
            run_at: Some(job.run_at),
            inserted_at: Some(job.inserted_at),
            unique_key: job.unique_key.as_ref().map(UniqueKey::to_string),
            errors: failures
                .into_iter()
                .map(|failure| redaction.failure(failure))
                .collect(),
            priority: job.priority,
            retry,
            traceparent: job.options.trace(),
            finished_at: job.finished_at,
        }
    }
}

/// Seconds waited between tries of the last life: what ended for good without having lost its
/// worker ended a life.
fn delays(failures: &[FailureRecord]) -> Vec<f64> {
    let ends_life = |pair: &[FailureRecord]| {
        let was_lost = pair[0].cause == FailureCause::Lost;
        (pair[0].retry_in.is_none() && !was_lost) || pair[0].attempt > pair[1].attempt
    };
    let start = failures
        .windows(2)
        .rposition(ends_life)
        .map_or(0, |end| end + 1);
    failures[start..]
        .iter()
        .filter(|failure| failure.cause != FailureCause::Lost)
        .filter_map(|failure| failure.retry_in)
        .map(backstop_core::Span::as_secs_f64)
        .collect()
}

/// The payload on one line, and its bytes if they are others. A line end in JSON is space: within a
/// string it is escaped.
fn payload(bytes: &[u8]) -> (Box<RawValue>, Option<String>) {
    let text = std::str::from_utf8(bytes)
        .ok()
        .map(|text| text.replace(['\n', '\r'], " "));
    let raw = text.and_then(|text| RawValue::from_string(text).ok());
    let hex = || {
        bytes
            .iter()
            .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
    };
    match raw {
        Some(raw) if raw.get().as_bytes() == bytes => (raw, None),
        Some(raw) => (raw, Some(hex())),
        None => (quoted(&String::from_utf8_lossy(bytes)), Some(hex())),
    }
}

fn quoted(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).expect("text is JSON")
}

#[cfg(test)]
pub(crate) mod tests;
