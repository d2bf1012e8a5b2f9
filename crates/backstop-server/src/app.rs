//! What every route shares.

use crate::access::{TokenCache, TokenFailures};
use crate::api::NewQueueLimit;
use crate::bulk::BulkRunSlots;
use crate::doctor::DoctorCache;
use crate::history::History;
use crate::redrives::AbandonedRedrives;
use crate::work_limits::{CallerLimiters, LargeWork};
use crate::worker_names::WorkerNames;
use backstop::Backstop;
use backstop::config::Config;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The store, the configuration as it stands, and the path everything is mounted under. Cheap to
/// clone.
#[derive(Clone)]
pub struct App(Arc<AppState>);

struct AppState {
    backstop: Backstop,
    config: RwLock<Arc<Config>>,
    base: String,
    history: History,
    doctor: DoctorCache,
    bulk_runs: BulkRunSlots,
    abandoned_redrives: AbandonedRedrives,
    tasks: TaskTracker,
    tokens: TokenCache,
    failures: Mutex<TokenFailures>,
    reads: CallerLimiters,
    bodies: CallerLimiters,
    large_work: LargeWork,
    worker_names: WorkerNames,
    new_queues: NewQueueLimit,
    is_leaving: AtomicBool,
    closing: CancellationToken,
}

impl App {
    /// Serves `backstop` as `config` says. `base` is the path in front of every address, such as
    /// `/backstop`; empty at the root.
    pub fn new(backstop: Backstop, config: Config, base: &str) -> Self {
        Self(Arc::new(AppState {
            backstop,
            config: RwLock::new(Arc::new(config)),
            base: base.trim_end_matches('/').to_string(),
            history: History::default(),
            doctor: DoctorCache::default(),
            bulk_runs: BulkRunSlots::default(),
            abandoned_redrives: AbandonedRedrives::default(),
            tasks: TaskTracker::new(),
            tokens: TokenCache::default(),
            failures: Mutex::default(),
            reads: CallerLimiters::for_reads(),
            bodies: CallerLimiters::for_bodies(),
            large_work: LargeWork::default(),
            worker_names: WorkerNames::default(),
            new_queues: NewQueueLimit::default(),
            is_leaving: AtomicBool::new(false),
            closing: CancellationToken::new(),
        }))
    }

    /// The library it stands on.
    pub fn backstop(&self) -> &Backstop {
        &self.0.backstop
    }

    /// The configuration as it stands; a request that began with one keeps it.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a new configuration in force.
    pub fn reload(&self, config: Config) {
        self.0.backstop.redact_by(config.redaction.clone());
        *self
            .0
            .config
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// What happened lately, for charts.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// What the doctor says of the store.
    pub(crate) fn doctor(&self) -> &DoctorCache {
        &self.0.doctor
    }

    /// The bulk actions that this server has under way.
    pub(crate) fn bulk_runs(&self) -> &BulkRunSlots {
        &self.0.bulk_runs
    }

    /// The redrives that this server gave up.
    pub(crate) fn abandoned_redrives(&self) -> &AbandonedRedrives {
        &self.0.abandoned_redrives
    }

    /// What goes on when no request waits for it. Each ends soon after [`App::closing`] is
    /// cancelled, and is waited for.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// The path in front of every address; empty at the root.
    pub fn base(&self) -> &str {
        &self.0.base
    }

    /// The server goes down before long: whoever shares requests out among servers leaves this one
    /// out from now on.
    pub(crate) fn leave(&self) {
        self.0.is_leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::Relaxed)
    }

    /// Cancelled when the server goes down: whoever makes a caller wait answers with what there is.
    pub fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// The tokens, as this server remembers them.
    pub(crate) fn tokens(&self) -> &TokenCache {
        &self.0.tokens
    }

    /// The reads of each caller that are under way.
    pub(crate) fn reads(&self) -> &CallerLimiters {
        &self.0.reads
    }

    /// The large bodies of each caller that are under way.
    pub(crate) fn bodies(&self) -> &CallerLimiters {
        &self.0.bodies
    }

    /// Large bodies and answers that are under way.
    pub(crate) fn large_work(&self) -> &LargeWork {
        &self.0.large_work
    }

    /// The names that workers elsewhere used lately.
    pub(crate) fn worker_names(&self) -> &WorkerNames {
        &self.0.worker_names
    }

    /// The queues that tokens have named in their pushes.
    pub(crate) fn new_queues(&self) -> &NewQueueLimit {
        &self.0.new_queues
    }

    /// Who sent wrong tokens lately.
    pub(crate) fn failures(&self) -> MutexGuard<'_, TokenFailures> {
        // A table of counts: any state of it is a good state.
        self.0
            .failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
