//! Where the calls of a store run.
//!
//! A connection to a server is driven by the runtime that opened it. On the caller's it would stand
//! still while handlers block their threads, and every beat with it; on that of the worker's
//! services it would die with the worker. So a store with connections has a runtime that nobody
//! else runs on. Locks are extended on another thread, for the same reason.

use backstop_core::port::{StoreError, StoreResult};
use std::sync::{Arc, OnceLock};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::context::RuntimeExt;
use tokio_util::task::AbortOnDropHandle;

/// Threads of a store's own runtime: one reads answers while the other waits for more.
#[cfg(any(feature = "postgres", feature = "redis"))]
const THREADS: usize = 2;

/// Where the calls of a store run.
#[derive(Clone)]
pub(crate) enum StoreRuntime {
    /// Wherever they are made: the store waits for nothing but threads of its own.
    Callers,
    /// On a runtime of its own.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "stores without connections need none")
    )]
    Owned(Arc<OwnedRuntime>),
}

/// A runtime that goes away without waiting for what still runs on it.
pub(crate) struct OwnedRuntime(Option<Runtime>);

impl StoreRuntime {
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn start_own() -> std::io::Result<Self> {
        Ok(Self::Owned(Arc::new(OwnedRuntime::start(
            "backstop-store",
            THREADS,
        )?)))
    }

    /// Does something that needs to know its runtime.
    pub(crate) fn enter<T>(&self, action: impl FnOnce() -> T) -> T {
        let _entered = match self {
            Self::Callers => None,
            Self::Owned(owned) => owned.0.as_ref().map(Runtime::enter),
        };
        action()
    }

    /// Waits where it is called for what the store's own tasks do: no hop there and back. What the
    /// call begins, begins there.
    pub(crate) async fn wait<T>(
        &self,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let Self::Owned(owned) = self else {
            return call.await;
        };
        let Some(runtime) = &owned.0 else {
            return call.await;
        };
        runtime.wrap(call).await
    }

    /// Runs a call to its end; one that nobody waits for any more is called off.
    pub(crate) async fn run<T, F>(&self, doing: &'static str, call: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        let Self::Owned(owned) = self else {
            return call.await;
        };
        let Some(runtime) = &owned.0 else {
            return call.await;
        };
        let ended = AbortOnDropHandle::new(runtime.spawn(call)).await;
        ended.unwrap_or_else(|error| Err(StoreError::unavailable(doing, error)))
    }
}

impl OwnedRuntime {
    fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self(Some(
            builder
                .worker_threads(threads)
                .thread_name(name)
                .enable_all()
                .build()?,
        )))
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        // Dropped as it is, it would wait for its threads, which no asynchronous caller may do.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where locks are extended and released. On the runtime of a handler that blocks all its threads a
/// lock would end while its holder works on, and nobody would tell it.
#[derive(Clone)]
pub(crate) enum LockRuntime {
    /// Wherever they are taken, so that a simulation controls their time.
    CallersRuntime,
    /// On a thread that is started with the first of them; `None` if there is none to be had.
    OwnThread(Arc<OnceLock<Option<OwnedRuntime>>>),
}

impl LockRuntime {
    pub(crate) fn on_own_thread() -> Self {
        Self::OwnThread(Arc::default())
    }

    /// Runs what keeps a lock.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        keep: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let Self::OwnThread(started) = self else {
            return tokio::spawn(keep);
        };
        let owned = started.get_or_init(|| {
            let owned = OwnedRuntime::start("backstop-locks", 1);
            owned.inspect_err(|error| {
                tracing::warn!(%error, "no thread to extend locks on; handlers that block theirs may lose them");
            })
            .ok()
        });
        match owned.as_ref().and_then(|own| own.0.as_ref()) {
            Some(runtime) => runtime.spawn(keep),
            None => tokio::spawn(keep),
        }
    }
}
