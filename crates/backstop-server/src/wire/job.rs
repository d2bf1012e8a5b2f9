//! Jobs, and what was done to them.

use super::PayloadShape;
use super::letter::JobFailureShape;
use backstop::core::amend::AmendRefusal;
use backstop::core::failure::FailureRecord;
use backstop::core::port::DamagedJob;
use backstop::core::redact::Redaction;
use backstop::core::unique::UniqueKey;
use backstop::core::verdict::EndReason;
use backstop::core::{Job, Priority};
use backstop::operate::ChangedJobs;
use backstop::{JobId, JobState, QueueName, Time};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A job.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Job)]
pub struct JobShape<'a> {
    /// Names it for ever.
    #[schema(value_type = String)]
    id: JobId,
    /// Where it waits, ran or died.
    queue: &'a str,
    /// Which handler it is for.
    kind: &'a str,
    /// scheduled, ready, running, retrying, done, dead or cancelled.
    #[schema(value_type = String)]
    state: JobState,
    /// What the handler gets; secrets are hidden unless the caller may see them.
    #[schema(value_type = Value)]
    payload: Box<RawValue>,
    /// Of bytes that are not JSON; backstop takes none in, but a damaged store may hold some.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
    /// Runs that ended by themselves, and the one that is under way.
    attempt: u32,
    /// All runs it may have; null if only its age ends it.
    max_attempts: Option<u32>,
    /// Runs whose worker vanished.
    lost_leases: u32,
    /// Not before this.
    #[schema(value_type = String, format = DateTime)]
    run_at: Time,
    /// When it came in.
    #[schema(value_type = String, format = DateTime)]
    inserted_at: Time,
    /// The key it holds or held.
    unique_key: Option<&'a str>,
    /// What went wrong so far, the latest last.
    #[schema(value_type = Vec<JobFailureShape>)]
    errors: Vec<FailureRecord>,
    /// critical, high, normal or low.
    #[schema(value_type = String)]
    priority: Priority,
    /// When it ended, if it has.
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Time>,
    /// Why it ended as dead or cancelled.
    reason: Option<&'static str>,
    /// How often an operator requeued it.
    requeues: u32,
    /// Who runs it; null unless it is running.
    worker: Option<&'a str>,
    /// When that one was handed it; null unless it is running, and where a version claimed it that
    /// did not write this down.
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Time>,
    /// Until when that is certain.
    #[schema(value_type = Option<String>, format = DateTime)]
    lease_until: Option<Time>,
}

impl<'a> JobShape<'a> {
    /// The shape of a job in a list: secrets are hidden.
    pub fn listed(job: &'a Job, max_attempts: Option<u32>, redaction: &Redaction) -> Self {
        Self::with(
            job,
            &redaction.payload(job.payload.as_bytes()),
            max_attempts,
            redaction,
        )
    }

    /// The shape of a job, with its payload whole.
    pub fn new(job: &'a Job, max_attempts: Option<u32>, redaction: &Redaction) -> Self {
        Self::with(job, job.payload.as_bytes(), max_attempts, redaction)
    }

    /// What went wrong, for whoever leaves some of it out.
    pub fn errors_mut(&mut self) -> &mut [FailureRecord] {
        &mut self.errors
    }

    fn with(job: &'a Job, shown: &[u8], max_attempts: Option<u32>, redaction: &Redaction) -> Self {
        let shape = PayloadShape::new(shown);
        let payload_hex = shape.hex().map(str::to_owned);
        let payload = match shape {
            PayloadShape::Json(raw) => raw.to_owned(),
            PayloadShape::Text { text, .. } => text,
        };
        Self {
            id: job.id,
            queue: job.queue.as_str(),
            kind: job.kind.as_str(),
            state: job.state,
            payload,
            payload_hex,
            attempt: job.attempt,
            max_attempts,
            lost_leases: job.lost_leases,
            run_at: job.run_at,
            inserted_at: job.inserted_at,
            unique_key: job.unique_key.as_ref().map(UniqueKey::as_str),
            errors: job
                .history
                .failures()
                .into_iter()
                .map(|failure| redaction.failure(failure))
                .collect(),
            priority: job.priority,
            finished_at: job.finished_at,
            reason: job.reason.map(EndReason::as_str),
            requeues: job.requeues,
            worker: job
                .held_by
                .as_ref()
                .map(|claimant| claimant.worker.as_str()),
            started_at: job.started_at(),
            lease_until: job.held_by.as_ref().map(|claimant| claimant.until),
        }
    }
}

/// A page of jobs.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Jobs)]
pub struct JobsShape<'a> {
    /// The jobs.
    pub jobs: Vec<JobShape<'a>>,
    /// Those among them that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedJobShape>,
    /// Where the next page starts; the list ends where there is none.
    pub next: Option<&'a str>,
}

/// What was done to jobs.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Amended)]
pub struct AmendedJobsShape {
    /// To how many jobs.
    pub count: u64,
    /// To which not, and why.
    pub refused: Vec<RefusedJobShape>,
}

impl From<ChangedJobs> for AmendedJobsShape {
    fn from(changed: ChangedJobs) -> Self {
        let refused = changed
            .refused
            .into_iter()
            .map(|(id, why)| RefusedJobShape::new(id, why))
            .collect();
        Self {
            count: changed.count,
            refused,
        }
    }
}

/// A job that something was not done to.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Refused)]
pub struct RefusedJobShape {
    /// Which.
    #[schema(value_type = String)]
    pub id: JobId,
    /// Why.
    pub why: String,
}

impl RefusedJobShape {
    /// The shape of a refusal.
    pub fn new(id: JobId, refusal: AmendRefusal) -> Self {
        Self {
            id,
            why: refusal.to_string(),
        }
    }
}

/// A job that is there and cannot be read.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Damaged)]
pub struct DamagedJobShape {
    /// Its id, if that much is known.
    #[schema(value_type = Option<String>)]
    id: Option<JobId>,
    /// Its queue, if that much is known.
    #[schema(value_type = Option<String>)]
    queue: Option<QueueName>,
    /// What cannot be read, and why.
    why: String,
}

impl DamagedJobShape {
    /// The shape of what is left of a job.
    pub fn new(damaged: &DamagedJob) -> Self {
        Self {
            id: damaged.id,
            queue: damaged.queue.clone(),
            why: damaged.why.clone(),
        }
    }

    /// What it is called, as far as that is known.
    pub fn name(&self) -> String {
        match (&self.id, &self.queue) {
            (Some(id), _) => id.to_string(),
            (None, Some(queue)) => format!("a job of {queue}"),
            (None, None) => "a job".to_owned(),
        }
    }
}
