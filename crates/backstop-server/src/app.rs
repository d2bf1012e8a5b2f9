//! What every route shares.

use crate::history::History;
use backstop::Backstop;
use backstop::config::Config;
use std::sync::{Arc, PoisonError, RwLock};

/// The store, the configuration as it stands, and the path everything is mounted under. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    backstop: Backstop,
    config: RwLock<Arc<Config>>,
    base: String,
    history: History,
}

impl App {
    /// Serves `backstop` as `config` says. `base` is the path in front of every address, such as `/backstop`; empty
    /// at the root.
    pub fn new(backstop: Backstop, config: Config, base: &str) -> Self {
        let base = base.trim_end_matches('/').to_string();
        Self(Arc::new(Shared { backstop, config: RwLock::new(Arc::new(config)), base, history: History::default() }))
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
}
