//! A job being filled in.

use crate::client::{Backstop, PushResult};
use crate::handler::Task;
use backstop_core::job::RunAtTooFar;
use backstop_core::name::InvalidName;
use backstop_core::payload::InvalidPayload;
use backstop_core::port::{EnqueueOutcome, StoreError};
use backstop_core::unique::{
    InvalidUniqueKey, StateSet, UniqueBy, UniqueByError, UniqueConstraint, UniqueKey,
};
use backstop_core::{
    JobId, JobState, Kind, NewJob, Payload, Priority, QueueName, RetryPolicy, Span, Time,
    TraceContext,
};
use serde::Serialize;

/// A job that could not be pushed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Payload(#[from] InvalidPayload),
    /// The unique key is wrong.
    #[error(transparent)]
    Key(#[from] InvalidUniqueKey),
    /// It is to be unique by what its payload does not have.
    #[error(transparent)]
    Unique(#[from] UniqueByError),
    /// It is to run too far in the future.
    #[error(transparent)]
    TooFarAhead(#[from] RunAtTooFar),
    /// The retry policy is code.
    #[error(
        "a job cannot carry a custom retry policy: it is code. Give it to the queue's settings"
    )]
    CustomRetry,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A job being filled in. What is wrong with it is said when it is pushed.
#[must_use = "a draft does nothing until it is pushed"]
#[derive(Debug, Clone)]
pub struct JobDraft {
    backstop: Backstop,
    id: JobId,
    queue: String,
    kind: Option<String>,
    payload: Result<Payload, InvalidPayload>,
    priority: Priority,
    run_at: Option<Time>,
    delay: Option<Span>,
    unique_key: Option<String>,
    unique_by: Option<UniqueBy>,
    unique_for: Option<Span>,
    unique_states: StateSet,
    retry: Option<RetryPolicy>,
    trace: Option<TraceContext>,
}

impl JobDraft {
    pub(crate) fn new(backstop: Backstop, queue: &str) -> Self {
        Self {
            id: backstop.new_id(),
            backstop,
            queue: queue.to_owned(),
            kind: None,
            payload: Ok(Payload::from_stored(&b"null"[..])),
            priority: Priority::default(),
            run_at: None,
            delay: None,
            unique_key: None,
            unique_by: None,
            unique_for: None,
            unique_states: StateSet::LIVE,
            retry: None,
            trace: None,
        }
    }

    /// With this id: a UUID, or any name that stands for the same job every time.
    pub fn id(mut self, id: &str) -> Self {
        self.id = JobId::from_text(id);
        self
    }

    pub fn kind(mut self, kind: &str) -> Self {
        self.kind = Some(kind.to_owned());
        self
    }

    /// With the kind and the payload of a task.
    pub fn task<T: Task>(self, task: &T) -> Self {
        self.kind(T::KIND).json(task)
    }

    /// With this value as payload.
    pub fn json<T: Serialize>(mut self, value: &T) -> Self {
        let written =
            serde_json::to_vec(value).map_err(|error| InvalidPayload::NotJson(error.to_string()));
        self.payload = written.and_then(Payload::json);
        self
    }

    /// With these bytes as payload, which must be JSON and come back as they are.
    pub fn payload(mut self, bytes: impl Into<bytes::Bytes>) -> Self {
        self.payload = Payload::json(bytes);
        self
    }

    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    pub fn at(mut self, time: Time) -> Self {
        (self.run_at, self.delay) = (Some(time), None);
        self
    }

    /// Not before this long from when it is pushed.
    pub fn after(mut self, span: Span) -> Self {
        (self.run_at, self.delay) = (None, Some(span));
        self
    }

    /// Only if no other live job of the queue has this key.
    pub fn unique_key(mut self, key: &str) -> Self {
        self.unique_key = Some(key.to_owned());
        self
    }

    /// Only if no other live job of the queue and kind is the same work: has the same payload, or
    /// the same values in chosen fields. A unique key says it better where there is one, and wins.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backstop = backstop::Backstop::open("memory:").await?;
    /// use backstop::core::unique::UniqueBy;
    /// let digest = |user: u32| backstop.draft("digests").json(&serde_json::json!({"user": user, "asked": "just now"}));
    /// let by_user = UniqueBy::Fields(vec!["/user".to_owned()]);
    /// let first = digest(7).unique_by(by_user.clone()).push().await?;
    /// let again = digest(7).unique_by(by_user).push().await?;
    /// assert_eq!(again.result, backstop::core::port::EnqueueOutcome::Duplicate(first.id));
    /// # Ok(())
    /// # }
    /// ```
    pub fn unique_by(mut self, by: UniqueBy) -> Self {
        self.unique_by = Some(by);
        self
    }

    /// Holding its unique key no longer than this.
    pub fn unique_for(mut self, period: Span) -> Self {
        self.unique_for = Some(period);
        self
    }

    /// Holding its unique key in these states.
    pub fn unique_in(mut self, states: &[JobState]) -> Self {
        self.unique_states = StateSet::of(states);
        self
    }

    /// With a retry policy of its own.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Asked for from this place in a trace, which its runs are linked to; by default the span
    /// around the push, where spans are exported.
    pub fn trace(mut self, context: TraceContext) -> Self {
        self.trace = Some(context);
        self
    }

    /// The job, checked, with its delay counted from the store's time.
    pub async fn build(self) -> Result<NewJob, DraftError> {
        let now = self.backstop.current_time().await;
        self.into_job(now)
    }

    fn into_job(self, now: Time) -> Result<NewJob, DraftError> {
        let kind = self
            .kind
            .map_or_else(|| Ok(Kind::default()), |kind| Kind::new(&kind))?;
        let payload = self.payload?;
        let key = match (self.unique_key, self.unique_by) {
            (Some(key), _) => Some(UniqueKey::new(&key)?),
            (None, Some(by)) => Some(by.key(&kind, &payload)?),
            (None, None) => None,
        };
        let unique = key.map(|key| UniqueConstraint {
            key,
            period: self.unique_for,
            states: self.unique_states,
        });
        if self
            .retry
            .as_ref()
            .is_some_and(|policy| !policy.is_stored())
        {
            return Err(DraftError::CustomRetry);
        }
        let run_at = self.run_at.or_else(|| Some(now.after(self.delay?)));
        let job = NewJob {
            id: self.id,
            queue: QueueName::new(&self.queue)?,
            kind,
            payload,
            priority: self.priority,
            run_at,
            unique,
            retry: self.retry,
            trace: self.trace,
        };
        job.check_run_at(now)?;
        Ok(job)
    }

    /// Pushes it. When it answers, the job is durable.
    pub async fn push(self) -> Result<PushResult, DraftError> {
        let (backstop, id) = (self.backstop.clone(), self.id);
        let results = backstop.push_jobs(vec![self.build().await?]).await?;
        push_result(id, &results)
    }

    /// Pushes it inside a transaction of your own; see [`Backstop::enqueue_in`].
    #[cfg(feature = "sqlite")]
    pub fn push_in(
        self,
        transaction: &rusqlite::Transaction<'_>,
    ) -> Result<PushResult, DraftError> {
        let (backstop, id) = (self.backstop.clone(), self.id);
        let job = self.into_job(backstop.current_time_in(transaction)?)?;
        let results = backstop.enqueue_in(transaction, &[job])?;
        push_result(id, &results)
    }

    /// Pushes it inside a transaction of your own on PostgreSQL; see
    /// [`Backstop::enqueue_in_postgres`].
    #[cfg(feature = "postgres")]
    pub async fn push_in_postgres(
        self,
        transaction: &tokio_postgres::Transaction<'_>,
    ) -> Result<PushResult, DraftError> {
        let (backstop, id) = (self.backstop.clone(), self.id);
        let results = backstop
            .enqueue_in_postgres(transaction, &[self.build().await?])
            .await?;
        push_result(id, &results)
    }
}

/// What became of the one job that was pushed.
fn push_result(id: JobId, results: &[EnqueueOutcome]) -> Result<PushResult, DraftError> {
    let missing = || StoreError::corrupt("pushing a job", "no answer for it");
    Ok(PushResult {
        id,
        result: results.first().copied().ok_or_else(missing)?,
    })
}
