//! A store in memory: nothing survives the process.
//!
//! It is the oracle: written for being obviously right, with counts counted and lists sorted on the spot, so that
//! every other store can be compared with it.

mod backlog;
mod list;
mod operator;
mod shelf;

use async_trait::async_trait;
use backstop_core::port::{Answer, Examination, Finding, Grade, Hints, Migrated, Store, StoreError};
use backstop_core::time::Time;
use shelf::Shelves;
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The store.
#[derive(Debug)]
pub struct MemoryStore {
    shelves: Mutex<Shelves>,
    changes: watch::Sender<u64>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { shelves: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn shelves(&self, doing: &'static str) -> Answer<MutexGuard<'_, Shelves>> {
        self.shelves.lock().map_err(|_| StoreError::corrupt(doing, "an earlier call panicked half-way"))
    }

    fn hint(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn migrate(&self) -> Answer<Migrated> {
        Ok(Migrated { from: 1, to: 1 })
    }

    async fn time(&self) -> Answer<Time> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Time::default().after(since_1970.into()))
    }

    fn watch(&self) -> Box<dyn Hints> {
        Box::new(Changes(self.changes.subscribe()))
    }

    async fn examine(&self) -> Answer<Examination> {
        let finding = Finding {
            grade: Grade::Bad,
            what: "kept in memory".to_owned(),
            advice: Some("use a store on disk, such as sqlite:backstop.db, for work that matters".to_owned()),
        };
        let promise = "Nothing survives the end of the process.".to_owned();
        Ok(Examination { store: "memory".to_owned(), promise, findings: vec![finding] })
    }
}

struct Changes(watch::Receiver<u64>);

#[async_trait]
impl Hints for Changes {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone, and with it every hint.
            std::future::pending::<()>().await;
        }
    }
}
