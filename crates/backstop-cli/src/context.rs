//! What a command starts from: the configuration in force, the store behind it, and where output
//! goes.

use crate::args::{ConfigFileNeed, GlobalArgs};
use crate::error::{CliError, open_error};
use crate::output::CliOutput;
use backstop::config::{self, Config, ConfigFile, ConfigOverrides, DEFAULT_FILE};
use backstop::{Backstop, QueueSettings, Span, StoreAddress};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What a command starts from.
pub(crate) struct CliContext {
    pub(crate) config: Config,
    /// The store, if a flag names one: what writes for show must not write where the environment
    /// happens to point.
    pub(crate) named_store: Option<StoreAddress>,
    /// The configuration file, if a flag names one: processes that are started go by the same.
    pub(crate) named_file: Option<PathBuf>,
    /// Where results, notes and progress go.
    pub(crate) output: CliOutput,
    /// The configuration file that was read. One that is gone when it is read again is an error,
    /// and not a configuration without anything.
    found_file: OnceLock<PathBuf>,
    flags: ConfigOverrides,
}

impl CliContext {
    /// Defaults, then the file, then the environment, then the flags.
    pub(crate) fn resolve(
        globals: &GlobalArgs,
        file_need: ConfigFileNeed,
    ) -> Result<Self, CliError> {
        let flags = ConfigOverrides {
            store: globals.store.clone(),
            durability: globals.durability,
            ..ConfigOverrides::default()
        };
        let output = CliOutput::new(globals);
        let (config, file) =
            resolve_config(globals.config.as_deref(), flags.clone(), file_need, output)?;
        let (named_store, named_file) = (flags.store.clone(), globals.config.clone());
        let found_file = file.map(OnceLock::from).unwrap_or_default();
        Ok(Self {
            config,
            named_store,
            named_file,
            output,
            found_file,
            flags,
        })
    }

    /// The configuration as it is written now, for a server that flags may place elsewhere.
    pub(crate) fn reload_config(
        &self,
        listen: Option<String>,
        base: Option<String>,
    ) -> Result<Config, CliError> {
        let known = self.named_file.as_ref().or(self.found_file.get());
        let flags = ConfigOverrides {
            listen,
            base,
            ..self.flags.clone()
        };
        let (config, file) = resolve_config(
            known.map(PathBuf::as_path),
            flags,
            ConfigFileNeed::Whole,
            self.output,
        )?;
        if let Some(file) = file {
            self.found_file.get_or_init(|| file);
        }
        Ok(config)
    }

    /// The configuration file that was read, even if it is gone by now; if none was, the one that
    /// would be.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
        self.named_file
            .as_ref()
            .or(self.found_file.get())
            .cloned()
            .or_else(usual)
    }

    /// The store, made and brought up to date if need be.
    pub(crate) async fn open(&self) -> Result<Backstop, CliError> {
        self.open_at(&self.config.store).await
    }

    /// Another store, made and brought up to date if need be.
    pub(crate) async fn open_at(&self, address: &StoreAddress) -> Result<Backstop, CliError> {
        let opened = Backstop::open_with(address.as_written(), self.config.store_options()).await;
        let opened = opened.map_err(|error| open_error(error, address))?;
        Ok(opened.redacting(self.config.redaction.clone()))
    }

    /// The store, to be looked at. One that is not there looks empty, and a typing error leaves no
    /// file and no schema behind.
    pub(crate) async fn open_for_reading(&self) -> Result<Backstop, CliError> {
        let address = &self.config.store;
        let place = match address.sqlite_file() {
            Some(file) if !file.exists() => file.display().to_string(),
            _ => {
                let opened =
                    Backstop::open_if_there(address.as_written(), self.config.store_options())
                        .await;
                match opened.map_err(|error| open_error(error, address))? {
                    Some(opened) => return Ok(opened.redacting(self.config.redaction.clone())),
                    None => address.to_string(),
                }
            }
        };
        self.output.note(format!(
            "note: there is no store at {place}; it comes into being with the first push, or with backstop migrate"
        ));
        self.open_at(&StoreAddress::new("memory:")).await
    }

    /// The store as it is, even one that holds nothing yet.
    pub(crate) async fn connect(&self) -> Result<Backstop, CliError> {
        let connected =
            Backstop::connect(self.config.store.as_written(), self.config.store_options()).await;
        let connected = connected.map_err(|error| open_error(error, &self.config.store))?;
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
    pub(crate) fn current_user() -> String {
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
fn resolve_config(
    named_file: Option<&Path>,
    flags: ConfigOverrides,
    file_need: ConfigFileNeed,
    output: CliOutput,
) -> Result<(Config, Option<PathBuf>), CliError> {
    let path = named_file.unwrap_or_else(|| Path::new(DEFAULT_FILE));
    let environment = ConfigOverrides::from_environment(|name| std::env::var(name).ok())?;
    let names_store = flags.store.is_some() || environment.store.is_some();
    let goes_on = match file_need {
        ConfigFileNeed::Whole => false,
        ConfigFileNeed::Address => names_store,
        ConfigFileNeed::Nothing => true,
    };
    let go_on_without = |problem: &dyn Display| {
        if file_need == ConfigFileNeed::Address {
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
                    CliError::misuse(cause).advise("--config with the path of a file that exists")
                );
            }
            go_on_without(&cause);
            None
        }
    };
    let name = path.display().to_string();
    let written = text.as_deref().map(|text| ConfigFile { path: &name, text });
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
