//! Where the calls of a store run.
//!
//! A connection to a server is driven by the runtime that opened it. On the caller's it would stand still while handlers
//! block their threads, and every beat with it; on that of the worker's services it would die with the worker. So a store
//! with connections has a runtime that nobody else runs on.

use backstop_core::port::{Answer, StoreError};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio_util::context::RuntimeExt;
use tokio_util::task::AbortOnDropHandle;

/// Threads of a store's own runtime: one reads answers while the other waits for more.
#[cfg(any(feature = "postgres", feature = "redis"))]
const THREADS: usize = 2;

/// Where the calls of a store run.
#[derive(Clone)]
pub(crate) enum Seat {
    /// Wherever they are made: the store waits for nothing but threads of its own.
    Callers,
    /// On a runtime of its own.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "stores without connections need none")
    )]
    Own(Arc<Own>),
}

/// A runtime that goes away without waiting for what still runs on it.
pub(crate) struct Own(Option<Runtime>);

impl Seat {
    /// A new runtime.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn own() -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("backstop-store").enable_all().build()?;
        Ok(Self::Own(Arc::new(Own(Some(runtime)))))
    }

    /// Does something that needs to know its runtime.
    pub(crate) fn enter<T>(&self, action: impl FnOnce() -> T) -> T {
        let _entered = match self {
            Self::Callers => None,
            Self::Own(own) => own.0.as_ref().map(Runtime::enter),
        };
        action()
    }

    /// Waits where it is called for what the store's own tasks do: no hop there and back. What the call begins, begins there.
    pub(crate) async fn wait<T>(&self, call: impl Future<Output = Answer<T>> + Send) -> Answer<T> {
        let Self::Own(own) = self else { return call.await };
        let Some(runtime) = &own.0 else { return call.await };
        runtime.wrap(call).await
    }

    /// Runs a call to its end; one that nobody waits for any more is called off.
    pub(crate) async fn run<T, F>(&self, doing: &'static str, call: F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let Self::Own(own) = self else { return call.await };
        let Some(runtime) = &own.0 else { return call.await };
        let ended = AbortOnDropHandle::new(runtime.spawn(call)).await;
        ended.unwrap_or_else(|error| Err(StoreError::unavailable(doing, error)))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Dropped as it is, it would wait for its threads, which no asynchronous caller may do.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
