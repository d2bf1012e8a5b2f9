//! What every route shares.

use crate::access::{Failures, Remembered};
use crate::history::History;
use backstop::Backstop;
use backstop::config::Config;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio_util::sync::CancellationToken;

/// The store, the configuration as it stands, and the path everything is mounted under. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    backstop: Backstop,
    config: RwLock<Arc<Config>>,
    base: String,
    history: History,
    tokens: Remembered,
    failures: Mutex<Failures>,
    closing: CancellationToken,
}

impl App {
    /// Serves `backstop` as `config` says. `base` is the path in front of every address, such as `/backstop`; empty
    /// at the root.
    pub fn new(backstop: Backstop, config: Config, base: &str) -> Self {
        Self(Arc::new(Shared {
            backstop,
            config: RwLock::new(Arc::new(config)),
            base: base.trim_end_matches('/').to_string(),
            history: History::default(),
            tokens: Remembered::default(),
            failures: Mutex::default(),
            closing: CancellationToken::new(),
        }))
    }

    /// The library it stands on.
    pub fn backstop(&self) -> &Backstop {
        &self.0.backstop
    }

    /// The configuration as it stands; a request that began with one keeps it.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a new configuration in force.
    pub fn reload(&self, config: Config) {
        self.0.backstop.redact_by(config.redaction.clone());
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// What happened lately, for charts.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// The path in front of every address; empty at the root.
    pub fn base(&self) -> &str {
        &self.0.base
    }

    /// Cancelled when the server goes down: whoever makes a caller wait answers with what there is.
    pub fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// The tokens, as this server remembers them.
    pub(crate) fn tokens(&self) -> &Remembered {
        &self.0.tokens
    }

    /// Who sent wrong tokens lately.
    pub(crate) fn failures(&self) -> MutexGuard<'_, Failures> {
        // A table of counts: any state of it is a good state.
        self.0.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
