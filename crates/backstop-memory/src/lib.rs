//! A store in memory: nothing survives the process.
//!
//! It is the oracle: written for being obviously right, with counts counted and lists sorted on the
//! spot, so that every other store can be compared with it.

mod backlog;
mod cells;
mod list;
mod operator;
mod shelf;
mod streams;

use async_trait::async_trait;
use backstop_core::limits::QUEUES_MAX;
use backstop_core::port::{
    Answer, Examination, Finding, Grade, Hints, Migrated, Store, StoreError,
};
use backstop_core::time::Time;
use shelf::Shelves;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The store.
#[derive(Debug)]
pub struct MemoryStore {
    shelves: Mutex<Shelves>,
    max_queues: usize,
    /// Told one after the other, in the order in which they subscribed: a simulation on this store
    /// repeats exactly.
    watchers: Mutex<Vec<Weak<Notify>>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            shelves: Mutex::default(),
            max_queues: QUEUES_MAX,
            watchers: Mutex::default(),
        }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// With at most so many queues, configured ones aside.
    #[must_use]
    pub fn with_max_queues(self, max: usize) -> Self {
        Self {
            max_queues: max,
            ..self
        }
    }

    fn shelves(&self, doing: &'static str) -> Answer<MutexGuard<'_, Shelves>> {
        self.shelves
            .lock()
            .map_err(|_| StoreError::corrupt(doing, "an earlier call panicked half-way"))
    }

    fn hint(&self) {
        self.watchers().retain(|watcher| {
            watcher
                .upgrade()
                .inspect(|watcher| watcher.notify_one())
                .is_some()
        });
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Weak<Notify>>> {
        // A list of watchers is whole between any two of its changes.
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn migrate(&self) -> Answer<Migrated> {
        Ok(Migrated { from: 1, to: 1 })
    }

    async fn is_new(&self) -> Answer<bool> {
        Ok(false)
    }

    async fn time(&self) -> Answer<Time> {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Time::default().after(since_1970.into()))
    }

    fn watch(&self) -> Box<dyn Hints> {
        let watcher = Arc::new(Notify::new());
        self.watchers().push(Arc::downgrade(&watcher));
        Box::new(Changes(watcher))
    }

    async fn examine(&self) -> Answer<Examination> {
        let finding = Finding {
            grade: Grade::Bad,
            what: "kept in memory".to_owned(),
            advice: Some(
                "use a store on disk, such as sqlite:backstop.db, for work that matters".to_owned(),
            ),
        };
        let promise = "Nothing survives the end of the process.".to_owned();
        Ok(Examination {
            store: "memory".to_owned(),
            promise,
            findings: vec![finding],
        })
    }
}

/// Remembers one notification that nobody waited for: none is missed between two hints.
struct Changes(Arc<Notify>);

#[async_trait]
impl Hints for Changes {
    async fn next(&mut self) {
        self.0.notified().await;
    }
}
