//! The readers' connections, in slots where the writer can close them while their threads wait for
//! work.

use backstop_core::limits::READS_ENDED_WITHIN;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// A reader's connection, or why it has none.
pub(crate) type ReaderSlot = Mutex<Result<Connection, String>>;

/// The slots of all readers. When a reader ends, its connection is dropped with it.
#[derive(Default)]
pub(crate) struct ReaderSlots(Mutex<Vec<Weak<ReaderSlot>>>);

impl ReaderSlots {
    /// Adds a slot for one more reader.
    pub(crate) fn add(&self, db: Connection) -> Arc<ReaderSlot> {
        let slot = Arc::new(Mutex::new(Ok(db)));
        // A poisoned lock is harmless: one push cannot leave the list half changed.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&slot));
        slot
    }

    /// Closes every connection; returns whether all are closed. A connection that is still reading
    /// at the deadline stays open, and a later call closes it.
    pub(crate) fn close(&self, cause: &str) -> bool {
        let until = Instant::now() + Duration::from(READS_ENDED_WITHIN);
        let mut is_closed = true;
        for slot in self.all() {
            match lock_until(&slot, until) {
                Some(mut slot) => *slot = Err(cause.to_owned()),
                None => is_closed = false,
            }
        }
        is_closed
    }

    /// Opens a new connection for every reader.
    pub(crate) fn open(
        &self,
        connect: impl Fn() -> rusqlite::Result<Connection>,
    ) -> rusqlite::Result<()> {
        for slot in self.all() {
            let db = connect()?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Ok(db);
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<ReaderSlot>> {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().filter_map(Weak::upgrade).collect()
    }
}

fn lock_until(
    slot: &ReaderSlot,
    until: Instant,
) -> Option<MutexGuard<'_, Result<Connection, String>>> {
    loop {
        match slot.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}
