//! One simulated process: everything it asks of the store goes through here, where it can be
//! stopped in the middle.

use super::faults::Fired;
use crate::forward::{
    forward_backlog, forward_cells, forward_operator, forward_store, forward_streams,
};
use backstop_core::port::{HintSubscription, Store, StoreResult};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// What a process can do at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// Everything.
    Runs,
    /// Nothing, until it is resumed: `SIGSTOP`.
    Paused,
    /// Nothing ever again: `kill -9`.
    Dead,
}

/// The life of a process. Whoever waits for it goes on in the order of waiting, so that a seed
/// repeats.
#[derive(Clone, Debug)]
pub(super) struct Pulse(Arc<(Mutex<Life>, Notify)>);

impl Pulse {
    pub(super) fn beating() -> Self {
        Self(Arc::new((Mutex::new(Life::Runs), Notify::new())))
    }

    fn life(&self) -> Life {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, life: Life) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = life;
        self.0.1.notify_waiters();
    }

    /// `SIGCONT`: goes on if it was only paused.
    pub(super) fn resume(&self) {
        if self.life() == Life::Paused {
            self.set(Life::Runs);
        }
    }

    /// Returns when the process may go on; never, if it is dead.
    pub(super) async fn running(&self) {
        loop {
            let mut changed = pin!(self.0.1.notified());
            // Subscribed before looking: a change in between is not missed.
            changed.as_mut().enable();
            if self.life() == Life::Runs {
                return;
            }
            changed.await;
        }
    }
}

/// The store as one process sees it.
pub(super) struct Process {
    inner: Arc<dyn Store>,
    pulse: Pulse,
    /// How often the network delivers a request twice.
    twice: f64,
    dice: Mutex<StdRng>,
    fired: Fired,
}

impl Process {
    pub(super) fn new(
        inner: Arc<dyn Store>,
        pulse: Pulse,
        twice: f64,
        seed: u64,
        fired: Fired,
    ) -> Self {
        Self {
            inner,
            pulse,
            twice,
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
            fired,
        }
    }

    /// One call on its way to the store and back. A process that died meanwhile never hears the
    /// answer.
    async fn pass<T, F>(&self, _: &'static str, call: impl Fn() -> F + Send) -> StoreResult<T>
    where
        T: Send,
        F: Future<Output = StoreResult<T>> + Send,
    {
        self.pulse.running().await;
        if self
            .dice
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .random_bool(self.twice)
        {
            self.fired.note("delivered twice");
            drop(call().await);
        }
        let answer = call().await;
        self.pulse.running().await;
        answer
    }

    fn hints(&self) -> Box<dyn HintSubscription> {
        self.inner.watch()
    }
}

forward_backlog!(Process);
forward_cells!(Process);
forward_streams!(Process);
forward_operator!(Process);
forward_store!(Process);
