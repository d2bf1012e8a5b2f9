//! What every route shares.

use crate::access::{Failures, Remembered};
use crate::api::NewQueues;
use crate::bulk::Runs;
use crate::doctor::Doctor;
use crate::history::History;
use crate::redrives::GivenUp;
use crate::turns::{CallerTurns, LargeWork};
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
pub struct App(Arc<Shared>);

struct Shared {
    backstop: Backstop,
    config: RwLock<Arc<Config>>,
    base: String,
    history: History,
    doctor: Doctor,
    runs: Runs,
    given_up: GivenUp,
    tasks: TaskTracker,
    tokens: Remembered,
    failures: Mutex<Failures>,
    reads: CallerTurns,
    bodies: CallerTurns,
    large: LargeWork,
    worker_names: WorkerNames,
    new_queues: NewQueues,
    is_leaving: AtomicBool,
    closing: CancellationToken,
}

impl App {
    /// Serves `backstop` as `config` says. `base` is the path in front of every address, such as
    /// `/backstop`; empty at the root.
    pub fn new(backstop: Backstop, config: Config, base: &str) -> Self {
        Self(Arc::new(Shared {
            backstop,
            config: RwLock::new(Arc::new(config)),
            base: base.trim_end_matches('/').to_string(),
            history: History::default(),
            doctor: Doctor::default(),
            runs: Runs::default(),
            given_up: GivenUp::default(),
            tasks: TaskTracker::new(),
            tokens: Remembered::default(),
            failures: Mutex::default(),
            reads: CallerTurns::of_reads(),
            bodies: CallerTurns::of_bodies(),
            large: LargeWork::default(),
            worker_names: WorkerNames::default(),
            new_queues: NewQueues::default(),
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
    pub(crate) fn doctor(&self) -> &Doctor {
        &self.0.doctor
    }

    /// The bulk actions that this server has under way.
    pub(crate) fn runs(&self) -> &Runs {
        &self.0.runs
    }

    /// The redrives that this server gave up.
    pub(crate) fn given_up(&self) -> &GivenUp {
        &self.0.given_up
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
    pub(crate) fn tokens(&self) -> &Remembered {
        &self.0.tokens
    }

    /// The reads of each caller that are under way.
    pub(crate) fn reads(&self) -> &CallerTurns {
        &self.0.reads
    }

    /// The large bodies of each caller that are under way.
    pub(crate) fn bodies(&self) -> &CallerTurns {
        &self.0.bodies
    }

    /// Large bodies and answers that are under way.
    pub(crate) fn large(&self) -> &LargeWork {
        &self.0.large
    }

    /// The names that workers elsewhere used lately.
    pub(crate) fn worker_names(&self) -> &WorkerNames {
        &self.0.worker_names
    }

    /// The queues that tokens have named in their pushes.
    pub(crate) fn new_queues(&self) -> &NewQueues {
        &self.0.new_queues
    }

    /// Who sent wrong tokens lately.
    pub(crate) fn failures(&self) -> MutexGuard<'_, Failures> {
        // A table of counts: any state of it is a good state.
        self.0
            .failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
