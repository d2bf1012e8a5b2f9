//! Handlers: what runs a job, and how it says what came of it.

use async_trait::async_trait;
use backstop_core::failure::{ErrorReport, FailureCause};
use backstop_core::verdict::{FailureAdvice, RunEnding};
use backstop_core::{JobId, Kind, Lease, LeasedRun, QueueName, Span, Time, TraceContext};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// A kind of job with a type of its own.
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// What names the kind in the store. Keep it when the type is renamed: jobs pushed before carry
    /// it.
    const KIND: &'static str;
    const QUEUE: &'static str = "default";
}

/// Runs jobs. Closures over a [`Task`] are the usual form; this one sees the raw payload.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one job to its end. May be dropped at any await: when the job times out, when its lease
    /// is lost, or when a shutdown is forced.
    async fn run(&self, run: Run) -> RunEnding;
}

/// Values handlers share, by type.
#[derive(Clone, Default)]
pub(crate) struct HandlerStates(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl HandlerStates {
    pub(crate) fn with<T: Any + Send + Sync>(self, value: T) -> Self {
        let mut map = HashMap::clone(&self.0);
        map.insert(TypeId::of::<T>(), Arc::new(value));
        Self(Arc::new(map))
    }
}

/// One run of one job.
#[derive(Clone)]
pub struct Run {
    leased: Arc<LeasedRun>,
    states: HandlerStates,
    cancel: CancellationToken,
    progressed: Arc<AtomicBool>,
    /// Its place in a trace.
    trace: Option<TraceContext>,
}

impl Run {
    pub(crate) fn new(
        leased: Arc<LeasedRun>,
        states: HandlerStates,
        cancel: CancellationToken,
    ) -> Self {
        let trace = leased.options.trace();
        Self {
            leased,
            states,
            cancel,
            progressed: Arc::default(),
            trace,
        }
    }

    /// At this place in a trace.
    pub(crate) fn with_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Says that this run got further than those before it. If it fails all the same, its attempts
    /// and waits are counted from this failure on; a maximum age still ends the job.
    pub fn progressed(&self) {
        self.progressed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.progressed)
    }

    /// The job's id: the same in every run. Give it to services that take an idempotency key.
    pub fn id(&self) -> JobId {
        self.leased.lease.job
    }

    pub fn queue(&self) -> &QueueName {
        &self.leased.lease.queue
    }

    pub fn kind(&self) -> &Kind {
        &self.leased.kind
    }

    /// The payload as it was pushed.
    pub fn payload(&self) -> &[u8] {
        self.leased.payload.as_bytes()
    }

    /// 1 in the first run.
    pub fn attempt(&self) -> u32 {
        self.leased.attempt()
    }

    /// What to hand on to services this run calls, as the W3C's header `traceparent`: the place of
    /// this run in its trace where spans are exported, where its job was pushed from otherwise;
    /// `None` if neither is known.
    pub fn traceparent(&self) -> Option<String> {
        self.trace.map(|trace| trace.to_string())
    }

    /// The right to end this run. A later run of the job has another number. Numbers are random and
    /// shared by the jobs of one claim: compare them for equality with the id beside them; they do
    /// not grow.
    pub fn lease(&self) -> &Lease {
        &self.leased.lease
    }

    /// When the job was pushed.
    pub fn inserted_at(&self) -> Time {
        self.leased.inserted_at
    }

    /// What the worker was given with [`crate::WorkerBuilder::state`].
    pub fn state<T: Any + Send + Sync>(&self) -> Result<&T, RunError> {
        let found = self
            .states
            .0
            .get(&TypeId::of::<T>())
            .and_then(|value| value.downcast_ref());
        found.ok_or_else(|| {
            let name = type_name::<T>();
            RunError::retry(format!(
                "the worker has no state of type {name}; give it one with `.state(…)`"
            ))
        })
    }

    /// Whether the run was called off: its lease is lost, or the worker stops at once.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the run is called off.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("leased", &self.leased)
            .finish_non_exhaustive()
    }
}

/// Why a run did not end as done. Any error turns into one that is tried again, so `?` works.
#[derive(Debug, Clone)]
pub struct RunError(Box<RunEnding>);

impl RunError {
    /// Try again, as the policy says.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::with_advice(
            ErrorReport::message(error.to_string()),
            FailureAdvice::Retry,
        )
    }

    /// Try again after this long.
    pub fn retry_after(wait: Span, error: impl fmt::Display) -> Self {
        Self::with_advice(
            ErrorReport::message(error.to_string()),
            FailureAdvice::RetryAfter(wait),
        )
    }

    /// No other try can help: to the dead letters at once.
    pub fn dead(error: impl fmt::Display) -> Self {
        Self::with_advice(ErrorReport::message(error.to_string()), FailureAdvice::Dead)
    }

    /// Not worth keeping: cancelled, with the error on record.
    pub fn discard(error: impl fmt::Display) -> Self {
        Self::with_advice(
            ErrorReport::message(error.to_string()),
            FailureAdvice::Discard,
        )
    }

    /// Nothing went wrong; come again after this long. Costs no attempt.
    pub fn snooze(wait: Span) -> Self {
        Self(Box::new(RunEnding::Snoozed(wait)))
    }

    /// The work is no longer wanted.
    pub fn cancel(why: impl fmt::Display) -> Self {
        Self(Box::new(RunEnding::Cancelled(why.to_string())))
    }

    /// A failure with all that is known about it.
    pub fn with_advice(error: ErrorReport, advice: FailureAdvice) -> Self {
        Self(Box::new(RunEnding::Failed {
            cause: FailureCause::Failed,
            error,
            advice,
            progressed: false,
        }))
    }

    /// The ending it stands for.
    pub fn into_ending(self) -> RunEnding {
        *self.0
    }
}

impl RunError {
    /// Of a run that did not end as done.
    pub(crate) fn from_ending(ending: RunEnding) -> Self {
        Self(Box::new(ending))
    }
}

impl<E: std::error::Error> From<E> for RunError {
    fn from(error: E) -> Self {
        let mut chain = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            chain.push(format!("caused by: {cause}"));
            source = cause.source();
        }
        let report = ErrorReport {
            error_type: Some(type_name::<E>().to_owned()),
            stack_trace: (!chain.is_empty()).then(|| chain.join("\n")),
            ..ErrorReport::message(error.to_string())
        };
        Self::with_advice(report, FailureAdvice::Retry)
    }
}

/// A closure over a task.
pub(crate) struct TaskHandler<T, F> {
    function: F,
    task: PhantomData<fn(T)>,
}

impl<T, F> TaskHandler<T, F> {
    pub(crate) const fn new(function: F) -> Self {
        Self {
            function,
            task: PhantomData,
        }
    }
}

#[async_trait]
impl<T, F, Fut> Handler for TaskHandler<T, F>
where
    T: Task,
    F: Fn(T, Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send,
{
    async fn run(&self, run: Run) -> RunEnding {
        let task = match serde_json::from_slice::<T>(run.payload()) {
            Ok(task) => task,
            Err(error) => return unreadable_payload::<T>(&error),
        };
        match (self.function)(task, run).await {
            Ok(()) => RunEnding::Done,
            Err(fail) => fail.into_ending(),
        }
    }
}

/// The same bytes will not read better the next time; once the type is mended, the dead letter can
/// be requeued.
fn unreadable_payload<T>(error: &serde_json::Error) -> RunEnding {
    let report = ErrorReport {
        error_type: Some("UnreadablePayload".to_owned()),
        ..ErrorReport::message(format!(
            "the payload is not a {}: {error}",
            type_name::<T>()
        ))
    };
    RunError::with_advice(report, FailureAdvice::Dead).into_ending()
}

/// A closure over the raw run.
pub(crate) struct RawRunHandler<F>(pub(crate) F);

#[async_trait]
impl<F, Fut> Handler for RawRunHandler<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send,
{
    async fn run(&self, run: Run) -> RunEnding {
        match (self.0)(run).await {
            Ok(()) => RunEnding::Done,
            Err(fail) => fail.into_ending(),
        }
    }
}
