//! The engine: one file per loop. Each reads, lets the core decide, writes, and waits for a hint or
//! a deadline.
//!
//! | loop | what it does | where it runs |
//! |---|---|---|
//! | [`dispatch`] | claims, keeps handlers busy | the caller's runtime |
//! | [`settle`] | ends runs, many at a time | the caller's runtime |
//! | [`beat`] | keeps leases alive, calls off what is lost or overdue | a thread of its own |
//! | [`maintenance`] | promotes, recovers (as [`grace`], [`recover`] say; [`recovery_lag`] tells what waits), prunes | the same thread |
//! | [`breakers`] | tells and hears what breakers and gates say | the same thread |
//! | [`orders`] | tells who the worker is, hears what its operator asks | the same thread |
//! | [`sweep`] | looks for lost work, each sweep in its period | the same thread |
//! | [`table`] | works off adopted tables, each in its period | the same thread; handlers on the caller's runtime |
//! | [`scheduler`] | fires what schedules say is due | the same thread |
//!
//! All loops are safe on every node at once; no leader is needed for anything to be right.

pub(crate) mod active_leases;
pub(crate) mod beat;
pub(crate) mod breakers;
mod claim;
pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod drain;
pub(crate) mod execute;
mod gc;
mod grace;
pub(crate) mod maintenance;
pub(crate) mod metrics;
pub(crate) mod overlaps;
pub(crate) mod permission_errors;
pub(crate) mod progress;
pub(crate) mod queue_buffer;
pub(crate) mod rate_limits;
pub(crate) mod recover;
mod recovery_lag;
pub(crate) mod running;
pub(crate) mod scheduler;
pub(crate) mod settle;
mod settle_retry;
pub(crate) mod signals;
pub(crate) mod suspects;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod worker_commands;

use crate::client::Backstop;
use crate::handler::{Handler, HandlerStates};
use crate::sweeps::Sweep;
use crate::tables::Table;
use crate::worker::{QueueSettings, WorkerTiming};
use crate::worker_kinds::WorkerKinds;
use active_leases::ActiveLeases;
use backstop_core::limits::PRUNE_MAX;
use backstop_core::port::{PruneRequest, Retention, Store};
use backstop_core::verdict::{DoneRetention, QueueRules};
use backstop_core::worker_command::WorkerRun;
use backstop_core::{Kind, QueueName, Schedule, Span, Time, WorkerName};
use breakers::LocalBreakers;
use overlaps::OverlapRecorder;
use permission_errors::PermissionErrors;
use progress::ProgressCounters;
use rate_limits::LocalRateLimits;
use recover::VanishedWorkers;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use suspects::LocalSuspectSlot;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use worker_commands::LocalWorkerCommands;

/// What all loops of one worker share.
pub(crate) struct Engine {
    pub(crate) backstop: Backstop,
    pub(crate) name: WorkerName,
    /// Which run of the worker of that name this is.
    pub(crate) run: WorkerRun,
    pub(crate) queues: BTreeMap<QueueName, QueueSettings>,
    /// Queues it was told about and does not serve: others run their jobs.
    managed_only: BTreeMap<QueueName, QueueSettings>,
    /// How long ended jobs stay, in the queues this worker was told about.
    retentions: Vec<(QueueName, Retention)>,
    /// The same for all others; `None` leaves them alone.
    default_retention: Option<Retention>,
    handlers: BTreeMap<(QueueName, Option<Kind>), Arc<dyn Handler>>,
    /// What it fires by itself.
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) states: HandlerStates,
    /// What this worker looks for; shared with all who look for the same.
    pub(crate) sweeps: Vec<Sweep>,
    /// Whose rows it works off; shared with all who work on the same.
    pub(crate) tables: Vec<Table>,
    /// The runtime that started the worker, for what must not hold up the loops of this one.
    pub(crate) callers: Option<Handle>,
    pub(crate) timing: WorkerTiming,
    pub(crate) active_leases: ActiveLeases,
    pub(crate) tally: ProgressCounters,
    pub(crate) breakers: LocalBreakers,
    depths: context::QueueDepthCache,
    /// Asks for a beat before its time.
    pub(crate) beat_requested: Notify,
    unrunnable: UnrunnableJobs,
    pub(crate) vanished_workers: VanishedWorkers,
    pub(crate) overlaps: OverlapRecorder,
    pub(crate) rate_limits: LocalRateLimits,
    pub(crate) suspects: LocalSuspectSlot,
    pub(crate) worker_commands: LocalWorkerCommands,
    /// Whether the store refuses what this worker lives on.
    pub(crate) permission_errors: PermissionErrors,
    /// Ends of runs that the store has not answered for.
    pub(crate) unanswered: AtomicUsize,
}

/// Whether this worker lately got jobs it could not run: of kinds it does not know, or suspects
/// while another one ran. It then lets others claim first: they may be able to, and whoever is
/// always first would give the same job back for ever.
#[derive(Default)]
struct UnrunnableJobs(Mutex<Option<Instant>>);

impl UnrunnableJobs {
    /// Longer than such a job is given back for.
    const REMEMBERED: Duration = Duration::from_secs(30);

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // One value, always whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    pub(crate) fn new(
        backstop: Backstop,
        name: WorkerName,
        queues: BTreeMap<QueueName, QueueSettings>,
        retentions: Vec<(QueueName, Retention)>,
        handlers: BTreeMap<(QueueName, Option<Kind>), Arc<dyn Handler>>,
        states: HandlerStates,
        timing: WorkerTiming,
    ) -> Self {
        let run = WorkerRun {
            id: format!("{:016x}", backstop.random().bits()),
            since: backstop.now(),
        };
        let permission_errors = PermissionErrors::new(longest_lease(&queues));
        Self {
            backstop,
            name,
            run,
            queues,
            managed_only: BTreeMap::new(),
            retentions,
            default_retention: None,
            handlers,
            schedules: Vec::new(),
            states,
            sweeps: Vec::new(),
            tables: Vec::new(),
            callers: Handle::try_current().ok(),
            timing,
            active_leases: ActiveLeases::default(),
            tally: ProgressCounters::default(),
            breakers: LocalBreakers::default(),
            depths: context::QueueDepthCache::default(),
            beat_requested: Notify::new(),
            unrunnable: UnrunnableJobs::default(),
            vanished_workers: VanishedWorkers::default(),
            overlaps: OverlapRecorder::default(),
            rate_limits: LocalRateLimits::default(),
            suspects: LocalSuspectSlot::default(),
            worker_commands: LocalWorkerCommands::default(),
            permission_errors,
            unanswered: AtomicUsize::new(0),
        }
    }

    /// With work to look for.
    pub(crate) fn with_sweeps(mut self, sweeps: Vec<Sweep>) -> Self {
        self.sweeps = sweeps;
        self
    }

    /// With tables to work off.
    pub(crate) fn with_tables(self, tables: Vec<Table>) -> Self {
        Self { tables, ..self }
    }

    /// With queues it has no handler for, and yet was told about.
    pub(crate) fn with_managed_only(
        self,
        managed_only: BTreeMap<QueueName, QueueSettings>,
    ) -> Self {
        Self {
            managed_only,
            ..self
        }
    }

    /// All queues it was told about, served here or not.
    pub(crate) fn known_queues(&self) -> impl Iterator<Item = (&QueueName, &QueueSettings)> {
        self.queues.iter().chain(&self.managed_only)
    }

    /// With ended jobs of queues it was told nothing of pruned by this.
    pub(crate) fn with_default_retention(self, default_retention: Option<Retention>) -> Self {
        Self {
            default_retention,
            ..self
        }
    }

    /// With schedules that it fires.
    pub(crate) fn with_schedules(self, schedules: Vec<Schedule>) -> Self {
        Self { schedules, ..self }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.backstop.store()
    }

    pub(crate) fn now(&self) -> Time {
        self.backstop.now()
    }

    /// The handler of a kind, or the one for all kinds of the queue.
    pub(crate) fn handler(&self, queue: &QueueName, kind: &Kind) -> Option<&Arc<dyn Handler>> {
        let own = self.handlers.get(&(queue.clone(), Some(kind.clone())));
        own.or_else(|| self.handlers.get(&(queue.clone(), None)))
    }

    /// Which kinds it has handlers for.
    pub(crate) fn known_kinds(&self) -> WorkerKinds {
        WorkerKinds::from_handlers(
            self.handlers
                .keys()
                .map(|(queue, kind)| (queue, kind.as_ref())),
        )
    }

    /// Notes that a job came here that could not run here.
    pub(crate) fn note_unrunnable(&self) {
        *self.unrunnable.lock() = Some(Instant::now());
    }

    /// How long to let others go first.
    pub(crate) fn backoff(&self) -> Span {
        let lately = self
            .unrunnable
            .lock()
            .is_some_and(|seen| seen.elapsed() < UnrunnableJobs::REMEMBERED);
        if lately {
            Span::millis(20).plus(Span::millis(50).scaled(self.backstop.random().unit()))
        } else {
            Span::ZERO
        }
    }

    /// The rules by which runs of a queue are judged.
    pub(crate) fn rules(settings: &QueueSettings) -> QueueRules<'_> {
        let keep = if settings.retention.done_for.is_zero() || settings.retention.done_max == 0 {
            DoneRetention::Gone
        } else {
            DoneRetention::Listed
        };
        QueueRules {
            retry: &settings.retry,
            keep,
        }
    }

    pub(crate) fn retention(&self) -> PruneRequest {
        PruneRequest {
            default: self.default_retention,
            queues: self.retentions.clone(),
            max: PRUNE_MAX,
        }
    }

    /// The longest lease this worker gives out or takes; the usual one if it only fires schedules.
    pub(crate) fn longest_lease(&self) -> Span {
        longest_lease(&self.queues)
    }

    /// The longest time from a worker's death to the next run of its job, if another worker lives
    /// and has room for it: a handler that is free, and no other suspect at work.
    pub(crate) fn recovery_bound(&self) -> Span {
        self.timing.recovery_bound(self.longest_lease())
    }
}

fn longest_lease(queues: &BTreeMap<QueueName, QueueSettings>) -> Span {
    let longest = queues.values().map(|settings| settings.lease).max();
    longest.unwrap_or_else(|| QueueSettings::default().lease)
}

/// What store calls may add to the path from expiry to rerun: seize, settle and claim, each well
/// under a second.
const STORE_SLACK: Span = Span::secs(1);

impl WorkerTiming {
    /// The longest time from a worker's death to the next run of a job it held under such a lease.
    /// A beat may have come just before the end, so the whole lease passes; then a sweep finds the
    /// job, and at the latest the next poll claims it.
    pub fn recovery_bound(&self, lease: Span) -> Span {
        lease
            .plus(self.maintenance_interval)
            .plus(self.poll)
            .plus(STORE_SLACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_a_dead_workers_job_runs_again_within_twenty_seconds() {
        let bound = WorkerTiming::default().recovery_bound(QueueSettings::default().lease);
        assert_eq!(bound, Span::secs(18));
    }
}
