//! One simulated process: everything it asks of the store goes through here, where it can be stopped in the middle.

use super::faults::Fired;
use crate::forward::forward_store;
use backstop_core::port::{Answer, Store};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

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

/// The store as one process sees it.
pub(super) struct Process {
    inner: Arc<dyn Store>,
    life: watch::Receiver<Life>,
    /// How often the network delivers a request twice.
    twice: f64,
    dice: Mutex<StdRng>,
    fired: Fired,
}

impl Process {
    pub(super) fn new(
        inner: Arc<dyn Store>,
        life: watch::Receiver<Life>,
        twice: f64,
        seed: u64,
        fired: Fired,
    ) -> Self {
        Self { inner, life, twice, dice: Mutex::new(StdRng::seed_from_u64(seed)), fired }
    }

    /// One call on its way to the store and back. A process that died meanwhile never hears the answer.
    async fn pass<T, F>(&self, _: &'static str, call: impl Fn() -> F + Send) -> Answer<T>
    where
        T: Send,
        F: Future<Output = Answer<T>> + Send,
    {
        until_running(&self.life).await;
        if self.dice.lock().unwrap_or_else(PoisonError::into_inner).random_bool(self.twice) {
            self.fired.note("delivered twice");
            drop(call().await);
        }
        let answer = call().await;
        until_running(&self.life).await;
        answer
    }
}

/// Returns when the process may go on; never, if it is dead.
pub(super) async fn until_running(life: &watch::Receiver<Life>) {
    let mut life = life.clone();
    while *life.borrow_and_update() != Life::Runs {
        if *life.borrow() == Life::Dead || life.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

forward_store!(Process);
