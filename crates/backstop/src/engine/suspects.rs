//! Suspects run alone: of the jobs that have lost a worker lately, one at a time in this worker, so that its death names its
//! killer. What that means for whom is decided by [`backstop_core::blame`].
//!
//! The place is taken until the store knows how the run ended, not only until it did: a process that dies in between would
//! leave two suspects that had begun. All others go on beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The one place in which a suspect runs.
#[derive(Default)]
pub(crate) struct Suspects(Arc<Place>);

#[derive(Default)]
struct Place {
    is_taken: AtomicBool,
    freed: Notify,
}

/// The place, taken. It is free again when the last of those who hold on to it lets go.
pub(crate) struct Alone(Arc<Place>);

impl Suspects {
    /// Takes the place, if it is free.
    pub(crate) fn enter(&self) -> Option<Arc<Alone>> {
        let was_taken = self.0.is_taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Arc::new(Alone(Arc::clone(&self.0))))
    }

    /// Returns when the place has become free.
    pub(crate) async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.freed.notify_one();
    }
}
