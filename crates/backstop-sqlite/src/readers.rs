//! The reader threads, each with a read-only connection of its own.

mod slots;

use crate::error::store_error;
use crate::file_identity::FileIdentity;
use crate::migrate::check_version;
use backstop_core::port::{StoreError, StoreResult};
use rusqlite::Connection;
pub(crate) use slots::{ReaderSlot, ReaderSlots};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the request channel. When it is full, callers wait to send.
const WAITING_MAX: usize = 256;

/// A read; it gets the connection, or the reason why the file is closed.
type ReadRequest = Box<dyn FnOnce(Result<&mut Connection, &str>) + Send>;

pub(crate) struct ReaderPool {
    reads: Option<mpsc::Sender<ReadRequest>>,
    threads: Vec<JoinHandle<()>>,
    file_identity: Arc<FileIdentity>,
}

impl ReaderPool {
    /// Starts one thread for each connection.
    pub(crate) fn start(
        connections: Vec<Connection>,
        file_identity: &Arc<FileIdentity>,
        slots: &ReaderSlots,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<ReadRequest>(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(receiver));
        let mut readers = Self {
            reads: Some(sender),
            threads: Vec::new(),
            file_identity: Arc::clone(file_identity),
        };
        for db in connections {
            let waiting = Arc::clone(&waiting);
            let slot = slots.add(db);
            let thread = thread::Builder::new().name("backstop-reader".to_owned());
            readers
                .threads
                .push(thread.spawn(move || serve(&slot, &waiting))?);
        }
        Ok(readers)
    }

    /// Runs `read` in one transaction, so that it sees one snapshot.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let file_identity = Arc::clone(&self.file_identity);
        let request: ReadRequest = Box::new(move |db| {
            let db = db.map_err(|cause| StoreError::unavailable(doing, cause));
            let answer = file_identity
                .check(doing)
                .and(db)
                .and_then(|db| read_snapshot(db, doing, read));
            // If this fails, the caller is gone and does not need the result.
            let _ = reply.send(answer);
        });
        let gone = || StoreError::unavailable(doing, "the store's readers have stopped");
        let reads = self.reads.as_ref().ok_or_else(gone)?;
        reads.send(request).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn read_snapshot<T>(
    db: &mut Connection,
    doing: &'static str,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> StoreResult<T> {
    let failed = |error| store_error(doing, &error);
    let transaction = db.transaction().map_err(failed)?;
    check_version(&transaction, doing)?;
    read(&transaction).map_err(failed)
}

fn serve(slot: &ReaderSlot, waiting: &Mutex<mpsc::Receiver<ReadRequest>>) {
    loop {
        // The waiting thread holds the lock; the others queue behind it. The lock cannot be
        // poisoned: no code under it panics.
        let Ok(mut receiver) = waiting.lock() else {
            return;
        };
        let Some(read) = receiver.blocking_recv() else {
            return;
        };
        drop(receiver);
        // The lock is not poisoned: a panic is caught before the lock is released.
        let mut db = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let db = db.as_mut().map_err(|cause| cause.as_str());
        if catch_unwind(AssertUnwindSafe(|| read(db))).is_err() {
            // The panic dropped the reply channel, which tells the caller. The next read may
            // succeed.
            tracing::error!("a read of the store panicked; this is a bug in backstop");
        }
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended already, so the error needs no handling.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
