//! Suspects run alone: of the jobs that have lost a worker lately, one at a time in this worker, so
//! that its death names its killer. What that means for whom is decided by
//! [`backstop_core::blame`].
//!
//! The place is taken until the store knows how the run ended, not only until it did: a process
//! that dies in between would leave two suspects that had begun. All others go on beside it, unless
//! it is at its last strike: then nothing else starts for a while, and it starts when what ran
//! before it has ended, or has been waited for long enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a suspect at its last strike waits for the others to end.
pub(crate) const QUIET_WAIT: Duration = Duration::from_secs(15);
/// How long it has the worker to itself. What kills, kills early; and a job of hours must not keep
/// everything else waiting.
const QUIET_FOR: Duration = Duration::from_mins(1);

/// The one place in which a suspect runs.
#[derive(Default)]
pub(crate) struct LocalSuspectSlot(Arc<LocalSuspectSlotState>);

#[derive(Default)]
struct LocalSuspectSlotState {
    is_taken: AtomicBool,
    /// Until then nothing starts beside the one that has the place.
    quiet_until: Mutex<Option<Instant>>,
    freed: Notify,
}

impl LocalSuspectSlotState {
    fn quiet_until(&self) -> MutexGuard<'_, Option<Instant>> {
        // A time is whole between any two of its changes.
        self.quiet_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place, taken. It is free again when the last of those who hold on to it lets go.
pub(crate) struct LocalSuspectGuard(Arc<LocalSuspectSlotState>);

impl LocalSuspectSlot {
    /// Takes the place, if it is free.
    pub(crate) fn enter(&self) -> Option<Arc<LocalSuspectGuard>> {
        let was_taken = self.0.is_taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Arc::new(LocalSuspectGuard(Arc::clone(&self.0))))
    }

    pub(crate) fn is_free(&self) -> bool {
        !self.0.is_taken.load(Ordering::Acquire)
    }

    /// Whether the one that has it has the worker to itself.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_free()
            && self
                .0
                .quiet_until()
                .is_some_and(|until| Instant::now() < until)
    }

    /// Returns when the place has become free.
    pub(crate) async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

impl LocalSuspectGuard {
    /// Nothing starts beside it for a while.
    pub(crate) fn keep_quiet(&self) {
        *self.0.quiet_until() = Some(Instant::now() + QUIET_FOR);
    }
}

impl Drop for LocalSuspectGuard {
    fn drop(&mut self) {
        *self.0.quiet_until() = None;
        self.0.is_taken.store(false, Ordering::Release);
        self.0.freed.notify_one();
    }
}
