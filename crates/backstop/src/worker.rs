//! Setting up a worker, and holding on to it while it runs.

use crate::client::Backstop;
use crate::engine::{self, Engine};
use crate::handler::{Handler, HandlerStates, RawRunHandler, Run, RunError, Task, TaskHandler};
use crate::streams::dead_letter_stream;
use crate::sweeps::Sweep;
use crate::tables::Table;
use backstop_core::breaker::BreakerSettings;
use backstop_core::gate::GateSettings;
use backstop_core::limits::{CLAIM_JOBS_MAX, CLAIM_QUEUES_MAX, LEASE_MAX, LEASE_MIN};
use backstop_core::name::InvalidName;
use backstop_core::port::Retention;
use backstop_core::rate::RateLimit;
use backstop_core::{
    Kind, QueueBounds, QueueName, RetryPolicy, Schedule, ScheduleName, Span, WorkerName,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::engine::progress::WorkerProgress;
pub use crate::engine::running::RunningWorker;

/// How a worker serves one queue.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// How many of its jobs run at once.
    pub concurrency: usize,
    /// How many more are claimed ahead; `None` means as many as run at once.
    pub prefetch: Option<usize>,
    /// When a failed job is tried again; [`RetryPolicy::of_queues`] unless changed.
    pub retry: RetryPolicy,
    /// How long one run may take.
    pub timeout: Option<Span>,
    /// How long a job stays with a worker that gives no sign of life.
    pub lease: Span,
    /// How long ended jobs stay.
    pub retention: Retention,
    /// How much it holds; `None` leaves that as it is.
    pub bounds: Option<QueueBounds>,
    /// When to leave the service behind its handler alone; `None` for never.
    pub breaker: Option<BreakerSettings>,
    /// When to stop starting a kind whose jobs die.
    pub gate: GateSettings,
    /// How many of its jobs start in which time, over all workers; `None` for as many as can.
    pub rate_limit: Option<RateLimit>,
}

impl QueueSettings {
    /// With no more starts, over all workers, than `limit` allows. A job over the limit is put back
    /// and loses no attempt.
    #[must_use]
    pub fn rate_limited(self, limit: RateLimit) -> Self {
        Self {
            rate_limit: Some(limit),
            ..self
        }
    }

    /// What holds for a queue that nothing is said about. A dead letter of a stream that is
    /// requeued has the policy of streams.
    pub(crate) fn default_for(queue: &QueueName) -> Self {
        let retry = dead_letter_stream(queue).map(|_| RetryPolicy::default());
        let usual = Self::default();
        Self {
            retry: retry.unwrap_or(usual.retry),
            ..usual
        }
    }

    /// How many jobs are claimed ahead.
    pub(crate) fn default_prefetch(&self) -> usize {
        self.prefetch.unwrap_or(self.concurrency)
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            concurrency: 8,
            prefetch: None,
            retry: RetryPolicy::of_queues(),
            timeout: None,
            lease: Span::secs(15),
            retention: Retention::default(),
            bounds: None,
            breaker: None,
            gate: GateSettings::default(),
            rate_limit: None,
        }
    }
}

/// How often the worker's loops look, and how long they wait.
#[derive(Clone, Copy, Debug)]
pub struct WorkerTiming {
    /// The longest time between two looks for ready jobs; hints make it shorter.
    pub poll: Span,
    /// How often due jobs are made ready and dead workers' jobs are taken over.
    pub maintenance_interval: Span,
    /// How often ended jobs are pruned.
    pub prune: Span,
    /// How long a stopping worker waits for its running jobs.
    pub grace: Span,
    /// How long a run that was called off may take to end by itself.
    pub cancel_grace: Span,
    /// How long the first settlement of a batch waits for company.
    pub settle_linger: Span,
}

impl Default for WorkerTiming {
    fn default() -> Self {
        Self {
            poll: Span::secs(1),
            maintenance_interval: Span::secs(1),
            prune: Span::secs(5),
            grace: Span::secs(30),
            cancel_grace: Span::secs(2),
            settle_linger: Span::millis(1),
        }
    }
}

/// Where the loops run that must not starve: beating, promoting, recovering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ServicePlacement {
    /// On a thread of their own: a handler that blocks its runtime cannot stop them.
    #[default]
    OwnThread,
    /// As tasks of the caller's runtime, so that a simulation controls their time.
    CallersRuntime,
}

/// A worker that cannot work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerSetupError {
    /// It has nothing to do.
    #[error(
        "the worker has neither handler nor schedule; give it one with `.handle(…)`, `.handle_queue(…)` or `.schedule(…)`"
    )]
    NoHandler,
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A queue's settings cannot work.
    #[error("queue {queue}: {problem}")]
    Settings {
        queue: QueueName,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    #[error("schedule {schedule}: {problem}")]
    Schedule {
        schedule: ScheduleName,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// A table has nothing that handles its rows.
    #[error("table {table} has no handler; give it one with `.handler(…)`")]
    Table { table: String },
    /// The thread for the services could not be started.
    #[error("the worker's service thread could not be started: {0}")]
    Thread(String),
}

/// A worker being set up.
#[must_use = "a worker does nothing until it is started"]
pub struct WorkerBuilder {
    backstop: Backstop,
    name: Option<String>,
    handlers: BTreeMap<(String, Option<String>), Arc<dyn Handler>>,
    settings: BTreeMap<String, QueueSettings>,
    schedules: BTreeMap<ScheduleName, Schedule>,
    states: HandlerStates,
    sweeps: BTreeMap<String, Sweep>,
    tables: BTreeMap<String, Table>,
    timing: WorkerTiming,
    services: ServicePlacement,
    /// How long ended jobs stay in queues it was told nothing of; `None` leaves those alone.
    default_retention: Option<Retention>,
}

impl WorkerBuilder {
    pub(crate) fn new(backstop: Backstop) -> Self {
        Self {
            backstop,
            name: None,
            handlers: BTreeMap::new(),
            settings: BTreeMap::new(),
            schedules: BTreeMap::new(),
            states: HandlerStates::default(),
            sweeps: BTreeMap::new(),
            tables: BTreeMap::new(),
            timing: WorkerTiming::default(),
            services: ServicePlacement::default(),
            default_retention: None,
        }
    }

    /// Under this name; the usual one is host, process and a random part. Two live workers must not
    /// share one.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Runs tasks of type `T` with this function.
    pub fn handle<T, F, Fut>(self, function: F) -> Self
    where
        T: Task,
        F: Fn(T, Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        self.handle_kind(T::QUEUE, T::KIND, TaskHandler::new(function))
    }

    /// Runs jobs of one queue and kind with this handler.
    pub fn handle_kind(mut self, queue: &str, kind: &str, handler: impl Handler) -> Self {
        self.handlers
            .insert((queue.to_owned(), Some(kind.to_owned())), Arc::new(handler));
        self
    }

    /// Runs jobs of one queue with this handler, whatever their kind, unless the kind has its own.
    pub fn handle_queue(mut self, queue: &str, handler: impl Handler) -> Self {
        self.handlers
            .insert((queue.to_owned(), None), Arc::new(handler));
        self
    }

    /// Runs jobs of one queue with this function over the raw run.
    pub fn handle_raw<F, Fut>(self, queue: &str, function: F) -> Self
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        self.handle_queue(queue, RawRunHandler(function))
    }

    /// Serves a queue with these settings instead of the usual ones. For a queue without a handler
    /// here its shelf, its bounds and its breaker matter: its ended jobs are pruned by the one, and
    /// whoever pushes to it or runs its jobs heeds the others. Queues that are not named are left
    /// alone.
    pub fn queue(mut self, queue: &str, settings: QueueSettings) -> Self {
        self.settings.insert(queue.to_owned(), settings);
        self
    }

    /// Fires this schedule, together with all other workers that have it: once for each instant. A
    /// worker needs no handler for the schedule's queue.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.insert(schedule.name.clone(), schedule);
        self
    }

    /// Lets handlers find this value with [`Run::state`].
    pub fn state<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.states = self.states.with(value);
        self
    }

    /// Looks for lost work beside its jobs, in the sweep's period; of many workers with a sweep of
    /// this name one does.
    pub fn sweep(mut self, sweep: Sweep) -> Self {
        self.sweeps.insert(sweep.name().to_owned(), sweep);
        self
    }

    /// Works off a table beside its jobs, in the table's period; of many workers with a table of
    /// this name one does at a time.
    pub fn table(mut self, table: Table) -> Self {
        self.tables.insert(table.name().to_owned(), table);
        self
    }

    /// Keeps house for queues whose jobs others run, such as workers over HTTP: makes due jobs
    /// ready, takes over what dead workers left, and prunes ended jobs of queues it was told
    /// nothing of as `shelf` says. Such a worker needs no handler.
    pub fn maintain_other_queues(mut self, retention: Retention) -> Self {
        self.default_retention = Some(retention);
        self
    }

    /// With these intervals instead of the usual ones.
    pub fn timing(mut self, timing: WorkerTiming) -> Self {
        self.timing = timing;
        self
    }

    /// With the services run elsewhere than usual.
    pub fn services(mut self, services: ServicePlacement) -> Self {
        self.services = services;
        self
    }

    /// Starts it. Must be called within a Tokio runtime.
    pub fn start(self) -> Result<RunningWorker, WorkerSetupError> {
        let services = self.services;
        RunningWorker::start(self.build()?, services)
    }

    /// Runs, in this task and one after another, all jobs that are ready or due now, and what
    /// becomes ready meanwhile; nothing runs in the background. Schedules are looked at once,
    /// before that. For tests, and for work that a caller wants to see finished: breakers and gates
    /// are not asked, and bounds are not set.
    pub async fn drain(self) -> Result<WorkerProgress, DrainError> {
        Ok(engine::drain::drain(self.build()?).await?)
    }

    fn build(self) -> Result<Engine, WorkerSetupError> {
        let mut handlers = BTreeMap::new();
        let mut settings = BTreeMap::new();
        for ((queue, kind), handler) in self.handlers {
            let queue = QueueName::new(&queue)?;
            let kind = kind.map(|kind| Kind::new(&kind)).transpose()?;
            settings
                .entry(queue.clone())
                .or_insert_with(|| QueueSettings::default_for(&queue));
            handlers.insert((queue, kind), handler);
        }
        let (mut shelves, mut minded) = (BTreeMap::new(), BTreeMap::new());
        for (queue, chosen) in self.settings {
            let queue = QueueName::new(&queue)?;
            check_settings(&queue, &chosen)?;
            shelves.insert(queue.clone(), chosen.retention);
            let of = if settings.contains_key(&queue) {
                &mut settings
            } else {
                &mut minded
            };
            of.insert(queue, chosen);
        }
        for (queue, served) in &settings {
            shelves.entry(queue.clone()).or_insert(served.retention);
        }
        let shelves = shelves.into_iter().collect();
        if handlers.is_empty()
            && self.schedules.is_empty()
            && self.sweeps.is_empty()
            && self.tables.is_empty()
            && self.default_retention.is_none()
        {
            return Err(WorkerSetupError::NoHandler);
        }
        for (schedule, chosen) in &self.schedules {
            let bad = |problem| WorkerSetupError::Schedule {
                schedule: schedule.clone(),
                problem,
            };
            chosen.check().map_err(bad)?;
        }
        if let Some(table) = self.tables.values().find(|table| !table.is_handled()) {
            return Err(WorkerSetupError::Table {
                table: table.name().to_owned(),
            });
        }
        let schedules = self.schedules.into_values().collect();
        let name = self.name.map_or_else(
            || default_worker_name(&self.backstop),
            |name| WorkerName::new(&name),
        );
        let engine = Engine::new(
            self.backstop,
            name,
            settings,
            shelves,
            handlers,
            self.states,
            self.timing,
        );
        let engine = engine
            .with_managed_only(minded)
            .with_default_retention(self.default_retention);
        let engine = engine.with_tables(self.tables.into_values().collect());
        Ok(engine
            .with_sweeps(self.sweeps.into_values().collect())
            .with_schedules(schedules))
    }
}

/// A drain that could not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    #[error(transparent)]
    Worker(#[from] WorkerSetupError),
    #[error(transparent)]
    Store(#[from] backstop_core::port::StoreError),
}

/// Host, process and a random part.
pub(crate) fn default_worker_name(backstop: &Backstop) -> WorkerName {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let random = backstop.random().bits() & 0xff_ffff;
    WorkerName::new(&format!("{host}/{}/{random:06x}", std::process::id()))
}

pub(crate) fn check_settings(
    queue: &QueueName,
    settings: &QueueSettings,
) -> Result<(), WorkerSetupError> {
    let bad = |problem: String| WorkerSetupError::Settings {
        queue: queue.clone(),
        problem,
    };
    let held_max = CLAIM_JOBS_MAX * CLAIM_QUEUES_MAX;
    if settings.concurrency == 0 || settings.concurrency > held_max {
        return Err(bad(format!("`concurrency` must be from 1 to {held_max}")));
    }
    if settings
        .prefetch
        .is_some_and(|prefetch| prefetch > held_max)
    {
        return Err(bad(format!("`prefetch` must be at most {held_max}")));
    }
    if settings.lease < LEASE_MIN || settings.lease > LEASE_MAX {
        return Err(bad(format!(
            "`lease` must be from {LEASE_MIN} to {LEASE_MAX}; it is {}",
            settings.lease
        )));
    }
    if let Some(breaker) = &settings.breaker {
        breaker
            .check()
            .map_err(|error| bad(format!("breaker: {error}")))?;
    }
    settings
        .gate
        .check()
        .map_err(|error| bad(format!("dead.gate: {error}")))?;
    if let Some(limit) = &settings.rate_limit {
        limit
            .check()
            .map_err(|error| bad(format!("rate_limit: {error}")))?;
    }
    if settings
        .bounds
        .is_some_and(|bounds| bounds.max_size == Some(0))
    {
        return Err(bad(
            "`max_size` is 0: such a queue takes nothing in; leave it out for no bound".to_owned(),
        ));
    }
    if settings.bounds.is_some_and(|bounds| bounds.dead_max == 0) {
        return Err(bad(
            "`dead.max` is 0: such a queue's kinds would stop at their first death; write at least 1"
                .to_owned(),
        ));
    }
    if settings.timeout.is_some_and(Span::is_zero) {
        return Err(bad(
            "`timeout` must be longer than nothing; leave it out for none".to_owned(),
        ));
    }
    Ok(())
}
