//! A store in memory: nothing survives the process.
//!
//! It is the oracle: written to be obviously correct, with counts counted and lists sorted on every
//! call, so that every other store can be compared with it.

mod backlog;
mod cells;
mod list;
mod operator;
mod state;
mod streams;

use async_trait::async_trait;
use backstop_core::limits::QUEUES_MAX;
use backstop_core::port::{
    ExaminationReport, FindingSeverity, HintSubscription, MigrationResult, Store, StoreError,
    StoreFinding, StoreResult,
};
use backstop_core::time::Time;
use state::MemoryState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    max_queues: usize,
    /// Notified one after the other, in the order in which they subscribed, so that a simulation
    /// on this store repeats exactly.
    watchers: Mutex<Vec<Weak<Notify>>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            max_queues: QUEUES_MAX,
            watchers: Mutex::default(),
        }
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of queues; configured queues do not count.
    #[must_use]
    pub fn with_max_queues(self, max: usize) -> Self {
        Self {
            max_queues: max,
            ..self
        }
    }

    fn lock_state(&self, doing: &'static str) -> StoreResult<MutexGuard<'_, MemoryState>> {
        self.state
            .lock()
            .map_err(|_| StoreError::corrupt(doing, "an earlier call panicked half-way"))
    }

    fn notify_watchers(&self) {
        self.watchers().retain(|watcher| {
            watcher
                .upgrade()
                .inspect(|watcher| watcher.notify_one())
                .is_some()
        });
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Weak<Notify>>> {
        // No panic leaves the list of watchers half changed, so a poisoned lock is safe to use.
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn migrate(&self) -> StoreResult<MigrationResult> {
        Ok(MigrationResult { from: 1, to: 1 })
    }

    async fn is_new(&self) -> StoreResult<bool> {
        Ok(false)
    }

    async fn time(&self) -> StoreResult<Time> {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Time::default().after(since_1970.into()))
    }

    fn watch(&self) -> Box<dyn HintSubscription> {
        let watcher = Arc::new(Notify::new());
        self.watchers().push(Arc::downgrade(&watcher));
        Box::new(MemoryHints(watcher))
    }

    async fn examine(&self) -> StoreResult<ExaminationReport> {
        let finding = StoreFinding {
            severity: FindingSeverity::Bad,
            what: "kept in memory".to_owned(),
            advice: Some(
                "use a store on disk, such as sqlite:backstop.db, for work that matters".to_owned(),
            ),
        };
        let promise = "Nothing survives the end of the process.".to_owned();
        Ok(ExaminationReport {
            store: "memory".to_owned(),
            promise,
            findings: vec![finding],
        })
    }
}

/// Keeps one notification for a later call of `next`, so that none between two calls is lost.
struct MemoryHints(Arc<Notify>);

#[async_trait]
impl HintSubscription for MemoryHints {
    async fn next(&mut self) {
        self.0.notified().await;
    }
}
