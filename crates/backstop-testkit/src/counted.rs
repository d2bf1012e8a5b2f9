//! A store that counts how often it was asked.

use crate::forward::{
    forward_backlog, forward_cells, forward_operator, forward_store, forward_streams,
};
use backstop_core::port::{HintSubscription, Store, StoreResult};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A store that counts how often it was asked, by method.
pub struct Counted {
    inner: Arc<dyn Store>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl Counted {
    /// Around this store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            calls: Mutex::default(),
        }
    }

    /// What was asked since this was asked last.
    pub fn take_calls(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn pass<T, F>(&self, doing: &'static str, call: impl Fn() -> F + Send) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
    {
        *self
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(doing)
            .or_default() += 1;
        call().await
    }

    fn hints(&self) -> Box<dyn HintSubscription> {
        self.inner.watch()
    }
}

forward_backlog!(Counted);
forward_operator!(Counted);
forward_cells!(Counted);
forward_streams!(Counted);
forward_store!(Counted);
