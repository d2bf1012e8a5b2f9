//! What the user wrote, and what the program needs.
//!
//! [`resolve`] is the one way from the first to the second: defaults, then the file, then the
//! environment, then the flags; what comes later wins. Reads nothing itself: texts come in, a
//! [`Config`] or the reason why not comes out.

mod error_location;
mod raw;
mod schedule;
mod server;
mod stream;
mod sweep;
mod table;
mod telemetry;

pub use error_location::line_of;
pub use server::{
    CONNECTIONS_MAX, DEFAULT_LISTEN, SESSION_MAX, ServerConfig, ServerTransport, TIMEOUT_MAX,
    TlsFiles,
};
pub use stream::{KafkaSource, StreamConfig};
pub use table::TableConfig;
pub use telemetry::TelemetryConfig;

use crate::address::StoreAddress;
use crate::client::Backstop;
use crate::dead::DeadLetters;
use crate::exec::Exec;
#[cfg(feature = "http")]
use crate::http::Http;
use crate::open::{Durability, InvalidDurability, StoreOptions};
use crate::sweeps::Sweep;
use crate::worker::{QueueSettings, WorkerSetupError, WorkerTiming, check_settings};
use backstop_core::limits::{LEASE_MAX, QUEUES_MAX};
use backstop_core::redact::Redaction;
use backstop_core::{Job, QueueName, RetryPolicy, Schedule, ScheduleName, Span, StreamName};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "backstop.toml";
/// The store that is used when none is named.
pub const DEFAULT_STORE: &str = "sqlite:backstop.db";
/// The environment's word for the store.
pub const ENV_STORE: &str = "BACKSTOP_STORE";
/// The environment's word for the token of a client.
pub const ENV_TOKEN: &str = "BACKSTOP_TOKEN";
/// The environment's word for the durability.
pub const ENV_DURABILITY: &str = "BACKSTOP_DURABILITY";
/// The environment's word for where the server listens.
pub const ENV_LISTEN: &str = "BACKSTOP_LISTEN";
/// The environment's word for the path in front of every address of the server.
pub const ENV_BASE: &str = "BACKSTOP_BASE";

/// What the program needs, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the store.
    pub store: StoreAddress,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How many queues there may be, configured ones aside.
    pub max_queues: usize,
    /// The queues that have an entry. A queue needs none to exist.
    pub queues: BTreeMap<QueueName, QueueConfig>,
    /// The streams that have an entry.
    pub streams: BTreeMap<StreamName, StreamConfig>,
    pub sweeps: BTreeMap<String, Sweep>,
    /// The tables that are worked off, by name.
    pub tables: BTreeMap<String, TableConfig>,
    pub schedules: BTreeMap<ScheduleName, Schedule>,
    /// Whose values are hidden in logs and views.
    pub redaction: Redaction,
    /// How long a worker that stops lets its runs end, before it calls them off and gives their
    /// jobs back.
    pub grace: Span,
    pub telemetry: TelemetryConfig,
    /// How the server is reached, and what it bears.
    pub server: ServerConfig,
}

impl Config {
    /// How the store is opened.
    pub const fn store_options(&self) -> StoreOptions {
        StoreOptions {
            durability: self.durability,
            max_queues: self.max_queues,
        }
    }

    /// The retry policy of a queue: its own, or the usual one.
    pub fn retry_of(&self, queue: &QueueName) -> RetryPolicy {
        let own = self
            .queues
            .get(queue)
            .map(|queue| queue.settings.retry.clone());
        own.unwrap_or_else(|| QueueSettings::default_for(queue).retry)
    }

    /// All runs a job may have: by its own policy, its queue's, or the usual one; `None` if only
    /// its age ends it.
    pub fn max_attempts(&self, job: &Job) -> Option<u32> {
        job.options
            .retry()
            .unwrap_or_else(|| self.retry_of(&job.queue))
            .max_attempts()
    }

    /// The dead letters of a store, on behalf of `who`, with what is said here about queues.
    pub fn dead(&self, backstop: &Backstop, who: &str) -> DeadLetters {
        let policies = self
            .queues
            .iter()
            .map(|(name, queue)| (name.clone(), queue.settings.retry.clone()));
        backstop
            .dead()
            .by(who)
            .with_retry_policies(policies.collect())
    }
}

impl Config {
    /// Every handler it names, with the keys that lead to it: of queues, streams and tables.
    pub fn handlers(&self) -> Vec<([&str; 2], &HandlerConfig)> {
        let queues = self
            .queues
            .iter()
            .map(|(name, queue)| (["queues", name.as_str()], &queue.handler));
        let streams = self
            .streams
            .iter()
            .map(|(name, stream)| (["streams", name.as_str()], &stream.handler));
        let tables = self
            .tables
            .iter()
            .map(|(name, table)| (["tables", name.as_str()], &table.handler));
        let all = queues.chain(streams).chain(tables);
        all.filter_map(|(keys, handler)| Some((keys, handler.as_ref()?)))
            .collect()
    }
}

/// What is said about one queue.
#[derive(Clone, Debug, Default)]
pub struct QueueConfig {
    /// What runs its jobs, if anything here does.
    pub handler: Option<HandlerConfig>,
    pub settings: QueueSettings,
}

/// What runs the jobs of a queue.
#[derive(Clone, Debug)]
pub enum HandlerConfig {
    Exec(Exec),
    #[cfg(feature = "http")]
    Http(Http),
}

impl HandlerConfig {
    /// With the time limit of its queue, if that has one. The engine stops every handler at it; one
    /// that knows it can say better what it waited for.
    #[must_use]
    pub fn within(self, timeout: Option<Span>) -> Self {
        match (self, timeout) {
            #[cfg(feature = "http")]
            (Self::Http(http), Some(timeout)) => Self::Http(http.timeout(timeout)),
            (other, _) => other,
        }
    }
}

/// A configuration file as it was read.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile<'a> {
    /// Where it is, for messages.
    pub path: &'a str,
    pub text: &'a str,
}

/// What the environment or the flags say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigOverrides {
    /// The address of the store.
    pub store: Option<StoreAddress>,
    /// What an acknowledged write survives.
    pub durability: Option<Durability>,
    pub listen: Option<String>,
    /// The path in front of every address of the server.
    pub base: Option<String>,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidConfig {
    /// The file does not say what it should; the message has line, column and what is allowed
    /// there.
    #[error("{path}: {problem}")]
    File {
        path: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// One queue's entry does not make sense.
    #[error("{path}: [queues.{queue}]: {problem}")]
    Queue {
        path: String,
        queue: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// One stream's entry does not make sense.
    #[error("{path}: [streams.{stream}]: {problem}")]
    Stream {
        path: String,
        stream: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// One sweep's entry does not make sense.
    #[error("{path}: [sweeps.{sweep}]: {problem}")]
    Sweep {
        path: String,
        sweep: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// One table's entry does not make sense.
    #[error("{path}: [tables.{table}]: {problem}")]
    Table {
        path: String,
        table: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// One schedule's entry does not make sense.
    #[error("{path}: [schedules.{schedule}]: {problem}")]
    Schedule {
        path: String,
        schedule: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// What is said about the server does not make sense.
    #[error("{path}: [server]: {problem}")]
    Server {
        path: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The entry about telemetry does not make sense.
    #[error("{path}: [telemetry]: {problem}")]
    Telemetry {
        path: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// A flag does not say what it should.
    #[error("{name}: {problem}")]
    Flag {
        name: &'static str,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// A variable of the environment does not say what it should.
    #[error("environment variable {name}: {problem}")]
    Environment {
        name: &'static str,
        /// What is wrong, and what to write instead.
        problem: String,
    },
}

impl InvalidConfig {
    /// Whether it is the file that cannot be used, or an entry of it: without the file the same
    /// command may work.
    pub const fn is_about_the_file(&self) -> bool {
        !matches!(self, Self::Flag { .. } | Self::Environment { .. })
    }
}

impl ConfigOverrides {
    /// What the environment says; `read` looks up a variable. An empty one says nothing.
    pub fn from_environment(read: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidConfig> {
        let read_set = |name| read(name).filter(|text| !text.is_empty());
        let durability = read_set(ENV_DURABILITY)
            .map(|text| text.parse())
            .transpose();
        let durability =
            durability.map_err(|problem: InvalidDurability| InvalidConfig::Environment {
                name: ENV_DURABILITY,
                problem: problem.to_string(),
            })?;
        let (listen, base) = (read_set(ENV_LISTEN), read_set(ENV_BASE));
        Ok(Self {
            store: read_set(ENV_STORE).map(StoreAddress::new),
            durability,
            listen,
            base,
        })
    }
}

/// Defaults, then `file`, then `environment`, then `flags`; what comes later wins.
pub fn resolve(
    file: Option<ConfigFile<'_>>,
    environment: ConfigOverrides,
    flags: ConfigOverrides,
) -> Result<Config, InvalidConfig> {
    let raw = file.map_or_else(|| Ok(raw::RawConfig::default()), raw::read)?;
    build(raw, file, environment, flags).map_err(|bad| bad.with_location(file))
}

/// As [`resolve`], for a look at a store while the file cannot be used: of the file only the names
/// of secret fields hold, if they can be read.
pub fn resolve_without(
    file: ConfigFile<'_>,
    environment: ConfigOverrides,
    flags: ConfigOverrides,
) -> Result<Config, InvalidConfig> {
    build(raw::read_redact(file), Some(file), environment, flags)
}

fn build(
    raw: raw::RawConfig,
    file: Option<ConfigFile<'_>>,
    environment: ConfigOverrides,
    flags: ConfigOverrides,
) -> Result<Config, InvalidConfig> {
    let path = file.map_or(DEFAULT_FILE, |written| written.path);
    let store = flags
        .store
        .or(environment.store)
        .or(raw.store.url.map(StoreAddress::new));
    let durability = flags
        .durability
        .or(environment.durability)
        .or(raw.store.durability);
    let queues = raw
        .queues
        .into_iter()
        .map(|(name, queue)| build_queue(path, &name, queue));
    let streams = raw
        .streams
        .into_iter()
        .map(|(name, stream)| build_stream(path, &name, stream));
    let sweeps = raw
        .sweeps
        .into_iter()
        .map(|(name, sweep)| build_sweep(path, name, sweep));
    let tables = raw
        .tables
        .into_iter()
        .map(|(name, table)| build_table(path, name, table));
    let schedules = raw
        .schedules
        .into_iter()
        .map(|(name, schedule)| build_schedule(path, &name, schedule));
    let server = build_server(
        path,
        raw.server,
        [
            (environment.listen, environment.base),
            (flags.listen, flags.base),
        ],
    )?;
    let store = store.unwrap_or_else(|| StoreAddress::new(DEFAULT_STORE));
    // Handlers, collectors and databases are addresses between quotes, wherever the file names
    // them.
    let words = file
        .map_or("", |written| written.text)
        .split(['"', '\'', ',', ' ', '\n']);
    let redaction = raw.redact.map(Redaction::of).unwrap_or_default();
    let redaction = redaction.with_addresses(words.chain([store.as_written()]));
    Ok(Config {
        store,
        durability: durability.unwrap_or_default(),
        max_queues: raw.store.max_queues.map_or(QUEUES_MAX, NonZeroUsize::get),
        queues: queues.collect::<Result<_, _>>()?,
        streams: streams.collect::<Result<_, _>>()?,
        sweeps: sweeps.collect::<Result<_, _>>()?,
        tables: tables.collect::<Result<_, _>>()?,
        schedules: schedules.collect::<Result<_, _>>()?,
        redaction,
        grace: check_grace(path, raw.grace)?,
        server,
        telemetry: raw.telemetry.build(path)?,
    })
}

/// How long a worker that stops lets its runs end: not for ever, since whoever stops it waits.
fn check_grace(path: &str, configured: Option<Span>) -> Result<Span, InvalidConfig> {
    let grace = configured.unwrap_or(WorkerTiming::default().grace);
    if Span::ZERO <= grace && grace <= LEASE_MAX {
        return Ok(grace);
    }
    let problem = format!("`grace` is {grace}; write a time from \"0s\" to \"{LEASE_MAX}\"");
    Err(InvalidConfig::File {
        path: path.to_owned(),
        problem,
    })
}

/// The entry, then what the environment and the flags say of where the server is.
fn build_server(
    path: &str,
    raw: server::RawServer,
    [environment, flags]: [(Option<String>, Option<String>); 2],
) -> Result<ServerConfig, InvalidConfig> {
    let mut config = raw.build().map_err(|problem| InvalidConfig::Server {
        path: path.to_owned(),
        problem,
    })?;
    let of_environment = |name| move |problem| InvalidConfig::Environment { name, problem };
    let of_flag = |name| move |problem| InvalidConfig::Flag { name, problem };
    if let Some(text) = environment.0 {
        config.listen = server::listen(&text).map_err(of_environment(ENV_LISTEN))?;
    }
    if let Some(text) = environment.1 {
        config.base = server::base(&text).map_err(of_environment(ENV_BASE))?;
    }
    if let Some(text) = flags.0 {
        config.listen = server::listen(&text).map_err(of_flag("--listen"))?;
    }
    if let Some(text) = flags.1 {
        config.base = server::base(&text).map_err(of_flag("--base"))?;
    }
    Ok(config)
}

fn build_queue(
    path: &str,
    name: &str,
    raw: raw::RawQueue,
) -> Result<(QueueName, QueueConfig), InvalidConfig> {
    let bad = |problem: String| InvalidConfig::Queue {
        path: path.to_owned(),
        queue: name.to_owned(),
        problem,
    };
    let queue = QueueName::new(name).map_err(|error| bad(error.to_string()))?;
    let config = raw.build().map_err(bad)?;
    check_settings(&queue, &config.settings).map_err(|error| match error {
        WorkerSetupError::Settings { problem, .. } => bad(problem),
        other => bad(other.to_string()),
    })?;
    Ok((queue, config))
}

fn build_stream(
    path: &str,
    name: &str,
    raw: stream::RawStream,
) -> Result<(StreamName, StreamConfig), InvalidConfig> {
    let bad = |problem: String| InvalidConfig::Stream {
        path: path.to_owned(),
        stream: name.to_owned(),
        problem,
    };
    let stream = StreamName::new(name).map_err(|error| bad(error.to_string()))?;
    Ok((stream, raw.build().map_err(bad)?))
}

fn build_sweep(
    path: &str,
    name: String,
    raw: sweep::RawSweep,
) -> Result<(String, Sweep), InvalidConfig> {
    let bad = |problem: String| InvalidConfig::Sweep {
        path: path.to_owned(),
        sweep: name.clone(),
        problem,
    };
    let sweep = raw.build(&name).map_err(bad)?;
    Ok((name, sweep))
}

fn build_table(
    path: &str,
    name: String,
    raw: table::RawTable,
) -> Result<(String, TableConfig), InvalidConfig> {
    let bad = |problem: String| InvalidConfig::Table {
        path: path.to_owned(),
        table: name.clone(),
        problem,
    };
    let table = raw.build(&name).map_err(bad)?;
    Ok((name, table))
}

fn build_schedule(
    path: &str,
    name: &str,
    raw: schedule::RawSchedule,
) -> Result<(ScheduleName, Schedule), InvalidConfig> {
    let bad = |problem: String| InvalidConfig::Schedule {
        path: path.to_owned(),
        schedule: name.to_owned(),
        problem,
    };
    let schedule = ScheduleName::new(name).map_err(|error| bad(error.to_string()))?;
    Ok((schedule.clone(), raw.build(schedule).map_err(bad)?))
}

#[cfg(test)]
mod tests;
