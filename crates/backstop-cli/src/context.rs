//! What a command starts from: the configuration in force, the store behind it, and where output
//! goes.

use crate::args::{FileNeed, Globals};
use crate::output::Output;
use crate::trouble::{Trouble, unopened};
use backstop::config::{self, Config, Overrides, USUAL_FILE, Written};
use backstop::{Address, Backstop, QueueSettings, Span};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What a command starts from.
pub(crate) struct Context {
    /// The configuration in force.
    pub(crate) config: Config,
    /// The store, if a flag names one: what writes for show must not write where the environment
    /// happens to point.
    pub(crate) named_store: Option<Address>,
    /// The configuration file, if a flag names one: processes that are started go by the same.
    pub(crate) named_file: Option<PathBuf>,
    /// Where results, notes and progress go.
    pub(crate) output: Output,
    /// The configuration file that was read. One that is gone when it is read again is an error,
    /// and not a configuration without anything.
    read: OnceLock<PathBuf>,
    /// What the flags say.
    flags: Overrides,
}

impl Context {
    /// Defaults, then the file, then the environment, then the flags.
    pub(crate) fn resolve(globals: &Globals, need: FileNeed) -> Result<Self, Trouble> {
        let flags = Overrides {
            store: globals.store.clone(),
            durability: globals.durability,
            ..Overrides::default()
        };
        let output = Output::new(globals);
        let (config, file) = resolved(globals.config.as_deref(), flags.clone(), need, output)?;
        let (named_store, named_file) = (flags.store.clone(), globals.config.clone());
        let read = file.map(OnceLock::from).unwrap_or_default();
        Ok(Self {
            config,
            named_store,
            named_file,
            output,
            read,
            flags,
        })
    }

    /// The configuration as it is written now, for a server that flags may place elsewhere.
    pub(crate) fn read_again(
        &self,
        listen: Option<String>,
        base: Option<String>,
    ) -> Result<Config, Trouble> {
        let known = self.named_file.as_ref().or(self.read.get());
        let flags = Overrides {
            listen,
            base,
            ..self.flags.clone()
        };
        let (config, file) = resolved(
            known.map(PathBuf::as_path),
            flags,
            FileNeed::Whole,
            self.output,
        )?;
        if let Some(file) = file {
            self.read.get_or_init(|| file);
        }
        Ok(config)
    }

    /// The configuration file that was read, even if it is gone by now; if none was, the one that
    /// would be.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(USUAL_FILE)).filter(|path| path.exists());
        self.named_file
            .as_ref()
            .or(self.read.get())
            .cloned()
            .or_else(usual)
    }

    /// The store, made and brought up to date if need be.
    pub(crate) async fn open(&self) -> Result<Backstop, Trouble> {
        self.open_at(&self.config.store).await
    }

    /// Another store, made and brought up to date if need be.
    pub(crate) async fn open_at(&self, address: &Address) -> Result<Backstop, Trouble> {
        let opened = Backstop::open_with(address.as_written(), self.config.store_options()).await;
        let opened = opened.map_err(|error| unopened(error, address))?;
        Ok(opened.redacting(self.config.redaction.clone()))
    }

    /// The store, to be looked at. One that is not there looks empty, and a typing error leaves no
    /// file and no schema behind.
    pub(crate) async fn look(&self) -> Result<Backstop, Trouble> {
        let address = &self.config.store;
        let place = match address.sqlite_file() {
            Some(file) if !file.exists() => file.display().to_string(),
            _ => {
                let opened =
                    Backstop::open_if_there(address.as_written(), self.config.store_options())
                        .await;
                match opened.map_err(|error| unopened(error, address))? {
                    Some(opened) => return Ok(opened.redacting(self.config.redaction.clone())),
                    None => address.to_string(),
                }
            }
        };
        self.output.note(format!(
            "note: there is no store at {place}; it comes into being with the first push, or with backstop migrate"
        ));
        self.open_at(&Address::new("memory:")).await
    }

    /// The store as it is, even one that holds nothing yet.
    pub(crate) async fn connect(&self) -> Result<Backstop, Trouble> {
        let connected =
            Backstop::connect(self.config.store.as_written(), self.config.store_options()).await;
        let connected = connected.map_err(|error| unopened(error, &self.config.store))?;
        Ok(connected.redacting(self.config.redaction.clone()))
    }

    /// The shortest lease that the configuration gives: what clocks and round trips are measured
    /// against.
    pub(crate) fn shortest_lease(&self) -> Span {
        let usual = QueueSettings::default().lease;
        self.config
            .queues
            .values()
            .map(|queue| queue.settings.lease)
            .chain([usual])
            .min()
            .unwrap_or(usual)
    }

    /// Whoever sits here, as the audit calls them: `user@host`.
    pub(crate) fn who() -> String {
        let named = |name: &str| std::env::var(name).ok().filter(|user| !user.is_empty());
        let user = named("USER").or_else(|| named("LOGNAME"));
        let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
        format!(
            "{user}@{}",
            rustix::system::uname().nodename().to_string_lossy()
        )
    }
}

/// Defaults, then the file, then the environment, then the flags; and the file, if there was one to
/// read. A file that is broken stops a command that needs it. One that only looks says so and goes
/// on: in an incident the store that is named can be looked at all the same.
fn resolved(
    named_file: Option<&Path>,
    flags: Overrides,
    need: FileNeed,
    output: Output,
) -> Result<(Config, Option<PathBuf>), Trouble> {
    let path = named_file.unwrap_or_else(|| Path::new(USUAL_FILE));
    let environment = Overrides::from_environment(|name| std::env::var(name).ok())?;
    let names_store = flags.store.is_some() || environment.store.is_some();
    let goes_on = match need {
        FileNeed::Whole => false,
        FileNeed::Address => names_store,
        FileNeed::Nothing => true,
    };
    let go_on_without = |problem: &dyn Display| {
        if need == FileNeed::Address {
            output.warn(format!(
                "warning: {problem}; this command only looks, and goes on without the file"
            ));
        }
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named_file.is_none() => None,
        Err(error) => {
            let cause = format!("{} cannot be read: {error}", path.display());
            if !goes_on || named_file.is_some() {
                return Err(
                    Trouble::misuse(cause).advise("--config with the path of a file that exists")
                );
            }
            go_on_without(&cause);
            None
        }
    };
    let name = path.display().to_string();
    let written = text.as_deref().map(|text| Written { path: &name, text });
    let resolved = config::resolve(written, environment.clone(), flags.clone());
    let config = match (resolved, written) {
        (Err(bad), Some(written)) if goes_on && bad.is_about_the_file() => {
            go_on_without(&bad);
            config::resolve_without(written, environment, flags)?
        }
        (resolved, _) => resolved?,
    };
    Ok((config, text.map(|_| path.to_owned())))
}
