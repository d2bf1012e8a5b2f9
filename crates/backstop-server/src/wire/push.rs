//! Jobs on their way in: what a producer writes, and what it is answered.

use super::list::LimitedList;
use backstop::core::job::{RunAtTooFar, check_run_at};
use backstop::core::limits::ENQUEUE_JOBS_MAX;
use backstop::core::port::EnqueueOutcome;
use backstop::core::unique::{StateSet, UniqueConstraint, UniqueKey};
use backstop::{
    DraftError, JobId, Kind, NewJob, Payload, Priority, QueueName, RetryPolicy, Span, Time,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use utoipa::ToSchema;

/// The keys of a job that comes in.
pub const JOB_KEYS: [&str; 9] = [
    "queue",
    "kind",
    "payload",
    "run_at",
    "delay",
    "unique_key",
    "priority",
    "retry",
    "id",
];

/// Text that is not copied unless it is escaped.
#[derive(Deserialize, Debug)]
#[serde(transparent)]
pub struct BorrowedText<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A job that comes in: the body of `POST /v1/jobs`, and a line of a file that is pushed.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "a job: an object with `queue` and `payload`"
)]
#[schema(as = NewJob)]
pub struct NewJobShape<'a> {
    /// Where it waits.
    #[serde(borrow)]
    #[schema(value_type = String)]
    pub queue: Option<BorrowedText<'a>>,
    /// Which handler it is for; `default` if none is named.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub kind: Option<BorrowedText<'a>>,
    /// What the handler gets: any JSON, returned byte for byte.
    #[serde(borrow)]
    #[schema(value_type = Value)]
    pub payload: &'a RawValue,
    /// Not before this.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub run_at: Option<Time>,
    /// Not before so long from now, such as `10s`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub delay: Option<Span>,
    /// At most one live job of the queue for a key.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub unique_key: Option<BorrowedText<'a>>,
    /// critical, high, normal or low.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub priority: Option<Priority>,
    /// Its own retry policy.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub retry: Option<RetryPolicy>,
    /// A UUID, or any name that stands for the same job every time: pushing it again is harmless.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub id: Option<JobId>,
}

/// Jobs that come in together.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields, expecting = "jobs: an object with a list `jobs`")]
#[schema(as = NewJobs)]
pub struct NewJobsShape<'a> {
    /// The jobs; at most 5000 of 8 MB.
    #[serde(borrow)]
    #[schema(value_type = Vec<NewJobShape<'a>>, max_items = 5000)]
    pub jobs: LimitedList<NewJobShape<'a>, ENQUEUE_JOBS_MAX>,
}

/// A job that cannot be taken as it is written.
#[derive(Debug, thiserror::Error)]
pub enum InvalidNewJob {
    #[error("it names no `queue`")]
    NoQueue,
    #[error("`run_at` and `delay` say the same thing in two ways; keep one")]
    TwoTimes,
    /// It is to run too far in the future.
    #[error(transparent)]
    TooFarAhead(#[from] RunAtTooFar),
    /// Something in it is wrong.
    #[error(transparent)]
    Wrong(#[from] DraftError),
}

impl InvalidNewJob {
    /// Whether there is too much of it.
    pub const fn is_too_large(&self) -> bool {
        matches!(
            self,
            Self::Wrong(DraftError::Payload(
                backstop::core::payload::InvalidPayload::TooLarge(_)
            ))
        )
    }
}

impl NewJobShape<'_> {
    /// When it is to run, if that is said.
    pub fn time(&self, now: Time) -> Result<Option<Time>, InvalidNewJob> {
        match (self.run_at, self.delay) {
            (Some(_), Some(_)) => Err(InvalidNewJob::TwoTimes),
            (run_at, delay) => {
                let run_at = run_at.or_else(|| delay.map(|delay| now.after(delay)));
                check_run_at(run_at, now)?;
                Ok(run_at)
            }
        }
    }

    /// The job. `body` is the text it was read from: the payload is a part of it and is not copied.
    /// `before` is a job whose queue and kind it likely shares, so that a batch makes their names
    /// once. `fresh_id` is asked for an id if it has none.
    pub fn job(
        self,
        body: &Bytes,
        before: Option<&NewJob>,
        now: Time,
        fresh_id: impl FnOnce() -> JobId,
    ) -> Result<NewJob, InvalidNewJob> {
        let run_at = self.time(now)?;
        let queue = self.queue.ok_or(InvalidNewJob::NoQueue)?.0;
        let queue = match before.filter(|before| before.queue.as_str() == queue) {
            Some(before) => before.queue.clone(),
            None => QueueName::new(&queue).map_err(DraftError::from)?,
        };
        let kind = match (self.kind, before) {
            (None, Some(before)) if before.kind == Kind::default() => before.kind.clone(),
            (None, _) => Kind::default(),
            (Some(kind), Some(before)) if before.kind.as_str() == kind.0 => before.kind.clone(),
            (Some(kind), _) => Kind::new(&kind.0).map_err(DraftError::from)?,
        };
        let payload = Payload::from_valid_json(body.slice_ref(self.payload.get().as_bytes()))
            .map_err(DraftError::from)?;
        let key = self
            .unique_key
            .map(|key| UniqueKey::new(&key.0))
            .transpose()
            .map_err(DraftError::from)?;
        Ok(NewJob {
            id: self.id.unwrap_or_else(fresh_id),
            queue,
            kind,
            payload,
            priority: self.priority.unwrap_or_default(),
            run_at,
            unique: key.map(|key| UniqueConstraint {
                key,
                period: None,
                states: StateSet::LIVE,
            }),
            retry: self.retry,
            trace: None,
        })
    }
}

/// What became of a job that was pushed.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Pushed)]
pub struct PushedJobShape {
    /// Its id; for a duplicate, the id of the job that stands for it.
    #[schema(value_type = String)]
    pub id: JobId,
    /// inserted, same (the queue has a job of this id already), duplicate (another job holds its
    /// unique key), full, or conflict (a job of another queue has this id).
    pub result: &'static str,
    /// For a duplicate, the job that holds its unique key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub holder: Option<JobId>,
}

impl PushedJobShape {
    /// What became of the job `id`. The id of a job that was not taken names nothing; what stands
    /// for it is the holder of its key.
    pub fn new(id: JobId, result: EnqueueOutcome) -> Self {
        let (result, holder) = match result {
            EnqueueOutcome::Inserted => ("inserted", None),
            EnqueueOutcome::Same => ("same", None),
            EnqueueOutcome::Duplicate(holder) => ("duplicate", Some(holder)),
            EnqueueOutcome::Full => ("full", None),
            EnqueueOutcome::Conflict => ("conflict", None),
        };
        Self {
            id: holder.unwrap_or(id),
            result,
            holder,
        }
    }
}

/// What became of jobs that were pushed together, in their order.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = PushedTogether)]
pub struct PushedJobsShape {
    /// One for each job.
    pub results: Vec<PushedJobShape>,
}
