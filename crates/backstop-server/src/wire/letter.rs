//! What dead letters, failures and redrives look like, for the description of the API: the library
//! writes them itself. `tests/api/openapi.rs` holds both against each other.

use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A job that was given up, and what is known about why.
#[derive(ToSchema)]
#[schema(as = DeadLetter)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct DeadLetterShape {
    /// The job's id.
    id: String,
    /// Its queue.
    queue: String,
    /// Its kind.
    kind: String,
    /// Why it was given up: a word, such as `attempts_exhausted`.
    reason: Option<String>,
    /// What went wrong last, in words.
    error: String,
    /// The class of that error.
    error_type: Option<String>,
    /// Where it happened.
    stack_trace: Option<String>,
    /// The status of the HTTP answer behind it.
    http_status: Option<u16>,
    /// The body of that answer.
    response_body: Option<String>,
    /// Runs that ended by themselves since it was pushed, or requeued.
    attempt_count: u32,
    /// When it failed for the first time ever, requeues included.
    #[schema(format = DateTime)]
    first_failed_at: Option<String>,
    /// When it was given up.
    #[schema(format = DateTime)]
    last_failed_at: Option<String>,
    /// Seconds it waited for each retry, as far as they are remembered.
    retry_delays: Option<Vec<f64>>,
    /// What was known about the world when it died.
    context: Option<DeathContextShape>,
    /// What its death has in common with others.
    fingerprint: Option<String>,
    /// How often an operator requeued it.
    requeues: u32,
    /// The whole job, with all its failures.
    original_job: OriginalJobShape,
}

/// The job behind a dead letter.
#[derive(ToSchema)]
#[schema(as = OriginalJob)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct OriginalJobShape {
    /// Its id.
    #[schema(required = false, nullable = false)]
    id: Option<String>,
    /// Its queue.
    #[schema(required = false, nullable = false)]
    queue: Option<String>,
    /// Its kind.
    #[schema(required = false, nullable = false)]
    kind: Option<String>,
    /// Dead.
    state: String,
    /// Its payload, with secrets hidden.
    payload: Value,
    /// The bytes of the payload, where they are other than what `payload` shows.
    #[schema(required = false, nullable = false)]
    payload_hex: Option<String>,
    /// Runs that ended by themselves.
    attempt: Option<u32>,
    /// All runs it could have had.
    max_attempts: Option<u32>,
    /// Runs whose worker vanished.
    lost_leases: u32,
    /// When it was last to run.
    #[schema(format = DateTime)]
    run_at: Option<String>,
    /// When it came in.
    #[schema(format = DateTime)]
    inserted_at: Option<String>,
    /// Its unique key.
    unique_key: Option<String>,
    /// All failures that are remembered, oldest first.
    errors: Vec<JobFailureShape>,
    /// critical, high, normal or low.
    priority: String,
    /// Its own retry policy.
    #[schema(required = false, nullable = false)]
    retry: Option<Value>,
    /// Where in a trace it was pushed from.
    #[schema(required = false, nullable = false)]
    traceparent: Option<String>,
    /// When it was given up.
    #[schema(format = DateTime)]
    finished_at: Option<String>,
}

/// One failure of a job.
#[derive(ToSchema)]
#[schema(as = Failure)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct JobFailureShape {
    /// When it was recorded.
    #[schema(format = DateTime)]
    at: String,
    /// The run it ended: 1 for the first.
    attempt: u32,
    /// Why: a word, such as `failed` or `timeout`.
    cause: String,
    /// Who ran it.
    worker: String,
    /// What happened, in words.
    message: String,
    /// The class of the error.
    #[schema(required = false, nullable = false)]
    r#type: Option<String>,
    /// Where it happened.
    #[schema(required = false, nullable = false)]
    stack_trace: Option<String>,
    /// The status of the HTTP answer behind it.
    #[schema(required = false, nullable = false)]
    http_status: Option<u16>,
    /// The body of that answer.
    #[schema(required = false, nullable = false)]
    response_body: Option<String>,
    /// How long the job then waited, if it was tried again, such as `1m30s`.
    #[schema(required = false, nullable = false)]
    retry_in: Option<String>,
    /// What else was known, if it was the last.
    #[schema(required = false)]
    context: Option<DeathContextShape>,
}

/// What was known about the world when a job died. What could not be found out is absent.
#[derive(ToSchema)]
#[schema(as = DeathContext)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct DeathContextShape {
    /// Live jobs of the queues the worker serves.
    #[schema(required = false)]
    queue_depths: BTreeMap<String, u64>,
    /// States of the breakers and gates it heeds.
    #[schema(required = false)]
    breakers: BTreeMap<String, String>,
    /// The worker.
    #[schema(required = false, nullable = false)]
    worker: Option<String>,
    /// The machine it ran on.
    #[schema(required = false, nullable = false)]
    host: Option<String>,
    /// The version of backstop.
    #[schema(required = false, nullable = false)]
    version: Option<String>,
    /// The workers that vanished while they ran it, if it died of that; the latest last.
    #[schema(required = false)]
    lost_workers: Vec<String>,
}

/// Dead letters of one queue that died of the same.
#[derive(ToSchema)]
#[schema(as = DeadGroup)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct DeadGroupShape {
    /// What they have in common.
    fingerprint: String,
    /// The queue.
    queue: String,
    /// How many there are.
    count: u64,
    /// When the first of those present died.
    #[schema(format = DateTime)]
    first_at: String,
    /// When the last one did.
    #[schema(format = DateTime)]
    last_at: String,
    /// The last one.
    sample: DeadSampleShape,
}

/// One letter that stands for its group.
#[derive(ToSchema)]
#[schema(as = DeadSample)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct DeadSampleShape {
    /// Its id.
    id: String,
    /// Its kind; null if it could not be read.
    kind: Option<String>,
    /// Its error, or why that cannot be told.
    error: String,
    /// The class of its error.
    error_type: Option<String>,
}

/// What a redrive has done so far.
#[derive(ToSchema)]
#[schema(as = Redrive)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct RedriveShape {
    /// Names it.
    id: String,
    /// canary, watching, rate, done, stopped or failed.
    phase: String,
    /// Who started it.
    by: String,
    /// Why, if they said so.
    #[schema(required = false, nullable = false)]
    reason: Option<String>,
    /// When.
    #[schema(format = DateTime)]
    started_at: String,
    /// When it ended, if it has.
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// So many go first and are watched.
    canary: u32,
    /// More failures than these among them stop it.
    max_failures: u32,
    /// How fast the others follow, such as `10/s`.
    then_rate: String,
    /// Which letters, as they were asked for.
    selection: Value,
    /// How many letters were picked when it was written down, where they were named or are the
    /// oldest.
    picked: Option<u64>,
    /// How many letters it is about, where that could be told when it was written down.
    expected: Option<u64>,
    /// Whether it has not ended and nobody runs it.
    stalled: bool,
    /// How many letters it requeued.
    requeued: u64,
    /// How many of them succeeded.
    done: u64,
    /// How many of them died again, or were cancelled.
    died_again: u64,
    /// How many of them have not ended.
    open: u64,
    /// How many letters could not be requeued.
    refused: u64,
    /// How many letters could not be read.
    damaged: u64,
    /// Why it ended, in words.
    why: Option<String>,
}
