//! What a command starts from: the configuration in force, the store behind it, and where output goes.

use crate::args::Globals;
use crate::output::Output;
use crate::trouble::{Trouble, unopened};
use backstop::config::{self, Config, Overrides, USUAL_FILE, Written};
use backstop::{Address, Backstop, QueueSettings, RetryPolicy, Span};
use backstop_core::Job;
use std::io;
use std::path::{Path, PathBuf};

/// What a command starts from.
pub(crate) struct Context {
    /// The configuration in force.
    pub(crate) config: Config,
    /// The store, if a flag names one: what writes for show must not write where the environment happens to point.
    pub(crate) named_store: Option<Address>,
    /// The configuration file, if a flag names one: processes that are started go by the same.
    pub(crate) named_file: Option<PathBuf>,
    /// Where results, notes and progress go.
    pub(crate) output: Output,
}

impl Context {
    /// Defaults, then the file, then the environment, then the flags.
    pub(crate) fn resolve(globals: &Globals) -> Result<Self, Trouble> {
        let file = read_file(globals.config.as_deref())?;
        let path = globals.config.clone().unwrap_or_else(|| PathBuf::from(USUAL_FILE)).display().to_string();
        let written = file.as_deref().map(|text| Written { path: &path, text });
        let environment = Overrides::from_environment(|name| std::env::var(name).ok())?;
        let flags = Overrides { store: globals.store.clone(), durability: globals.durability };
        let named_store = flags.store.clone();
        let config = config::resolve(written, environment, flags)?;
        Ok(Self { config, named_store, named_file: globals.config.clone(), output: Output::new(globals) })
    }

    /// The store, made and brought up to date if need be.
    pub(crate) async fn open(&self) -> Result<Backstop, Trouble> {
        self.open_at(&self.config.store).await
    }

    /// Another store, made and brought up to date if need be.
    pub(crate) async fn open_at(&self, address: &Address) -> Result<Backstop, Trouble> {
        let opened = Backstop::open_with(address.as_written(), self.config.durability).await;
        let opened = opened.map_err(|error| unopened(error, address))?;
        Ok(opened.redacting(self.config.redaction.clone()))
    }

    /// The store, to be looked at. One that is not there looks empty, and a typing error leaves no file behind.
    pub(crate) async fn look(&self) -> Result<Backstop, Trouble> {
        match self.config.store.sqlite_file() {
            Some(file) if !file.exists() => {
                self.output.note(format!(
                    "note: there is no store at {}; it comes into being with the first push",
                    file.display()
                ));
                self.open_at(&Address::new("memory:")).await
            }
            _ => self.open().await,
        }
    }

    /// The store as it is, even one that holds nothing yet.
    pub(crate) async fn connect(&self) -> Result<Backstop, Trouble> {
        let connected = Backstop::connect(self.config.store.as_written(), self.config.durability).await;
        let connected = connected.map_err(|error| unopened(error, &self.config.store))?;
        Ok(connected.redacting(self.config.redaction.clone()))
    }

    /// The shortest lease that the configuration gives: what clocks and round trips are measured against.
    pub(crate) fn shortest_lease(&self) -> Span {
        let usual = QueueSettings::default().lease;
        self.config.queues.values().map(|queue| queue.settings.lease).chain([usual]).min().unwrap_or(usual)
    }

    /// All runs a job may have: by its own policy, its queue's in the configuration, or the usual one.
    pub(crate) fn max_attempts(&self, job: &Job) -> Option<u32> {
        let of_queue = || self.config.queues.get(&job.queue).map(|queue| queue.settings.retry.clone());
        let policy: RetryPolicy = job.terms.retry().or_else(of_queue).unwrap_or_default();
        policy.max_attempts()
    }
}

fn read_file(named: Option<&Path>) -> Result<Option<String>, Trouble> {
    let path = named.unwrap_or_else(|| Path::new(USUAL_FILE));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) => {
            let cause = format!("{} cannot be read: {error}", path.display());
            Err(Trouble::misuse(cause).advise("--config with the path of a file that exists"))
        }
    }
}
