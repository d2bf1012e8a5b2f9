//! Parses a store's address into everything that a connection needs.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The schema of a store whose address names none.
pub const SCHEMA: &str = "backstop";

/// Longest name of a schema, in characters. Names that are derived from it, such as that of a
/// channel, need the rest.
const SCHEMA_CHARS_MAX: usize = 48;
const CONNECTIONS: usize = 8;
const CONNECTIONS_MAX: usize = 100;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// If the peer acknowledges no bytes for so long, the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Why a store cannot be opened. The message never contains a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    #[error(
        "the PostgreSQL address cannot be read: {0}. Write postgres://USER:PASSWORD@HOST:PORT/DATABASE"
    )]
    PostgresAddress(String),
    /// The name cannot be that of a schema.
    #[error(
        "`{0}` cannot be the name of a schema here; use up to {SCHEMA_CHARS_MAX} lower-case letters, digits and underscores, \
         a letter or underscore first, and not `pg_`"
    )]
    Schema(String),
    /// One of our parameters has an invalid value.
    #[error("`{name}={value}` in the address cannot be; use {expected}")]
    Parameter {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    /// The certificates that servers are checked against cannot be read.
    #[error("the certificates to check the server with cannot be read: {0}")]
    Certificates(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolerMode {
    None,
    /// A pooler that gives every transaction another server connection, so that no session state
    /// lasts.
    Transaction,
}

#[derive(Clone, Debug)]
pub(crate) struct PostgresAddress {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) pooler: PoolerMode,
    pub(crate) connections: usize,
    pub(crate) root_certificate: Option<PathBuf>,
}

impl FromStr for PostgresAddress {
    type Err = PostgresOpenError;

    fn from_str(text: &str) -> Result<Self, PostgresOpenError> {
        let (server, query) = text.split_once('?').unwrap_or((text, ""));
        let mut read = Self {
            config: Config::new(),
            schema: SCHEMA.to_owned(),
            pooler: PoolerMode::None,
            connections: CONNECTIONS,
            root_certificate: None,
        };
        let mut rest = Vec::new();
        let says_tls = query.split('&').any(|pair| pair.starts_with("sslmode="));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let Some(kept) = read.parameter(name, value)? {
                rest.push(kept);
            }
        }
        let separator = if rest.is_empty() { "" } else { "?" };
        let server = format!("{server}{separator}{}", rest.join("&"));
        read.config = Config::from_str(&server)
            .map_err(|error| PostgresOpenError::PostgresAddress(reason(&error)))?;
        read.finish(says_tls);
        Ok(read)
    }
}

/// Returns the schema that an address names.
pub fn schema_of(address: &str) -> Result<String, PostgresOpenError> {
    PostgresAddress::from_str(address).map(|address| address.schema)
}

impl PostgresAddress {
    /// Handles one of our parameters. Returns a parameter of the driver's, in a form that the
    /// driver knows.
    fn parameter(&mut self, name: &str, value: &str) -> Result<Option<String>, PostgresOpenError> {
        let wrong = |name, expected| PostgresOpenError::Parameter {
            name,
            value: value.to_owned(),
            expected,
        };
        match (name, value) {
            ("schema", _) => self.schema = schema(value)?,
            ("pooler", "transaction") => self.pooler = PoolerMode::Transaction,
            ("pooler", "none") => self.pooler = PoolerMode::None,
            ("pooler", _) => return Err(wrong("pooler", "none or transaction")),
            ("connections", _) => {
                let connections = value
                    .parse()
                    .ok()
                    .filter(|count| (1..=CONNECTIONS_MAX).contains(count));
                self.connections = connections.ok_or_else(|| wrong("connections", "1 to 100"))?;
            }
            ("sslrootcert", _) => self.root_certificate = Some(PathBuf::from(value)),
            // Our TLS always checks the server's certificate and name, so `require` is no weaker
            // than these.
            ("sslmode", "verify-ca" | "verify-full") => {
                return Ok(Some("sslmode=require".to_owned()));
            }
            _ => return Ok(Some(format!("{name}={value}"))),
        }
        Ok(None)
    }

    fn finish(&mut self, says_tls: bool) {
        let config = &mut self.config;
        if config.get_application_name().is_none() {
            config.application_name("backstop");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        config
            .tcp_user_timeout(SILENCE_MAX)
            .keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        // `prefer` would continue without TLS if an attacker on the network claims that the server
        // has none.
        let is_far = !config.get_hosts().iter().all(is_near);
        if config.get_ssl_mode() == SslMode::Prefer
            && (self.root_certificate.is_some() || (is_far && !says_tls))
        {
            config.ssl_mode(SslMode::Require);
        }
    }
}

/// Whether the host is this machine.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

fn schema(name: &str) -> Result<String, PostgresOpenError> {
    let first = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
    let fits = name.len() <= SCHEMA_CHARS_MAX
        && name.as_bytes().first().is_some_and(first)
        && name
            .bytes()
            .all(|byte| first(&byte) || byte.is_ascii_digit())
        && !name.starts_with("pg_");
    if fits {
        Ok(name.to_owned())
    } else {
        Err(PostgresOpenError::Schema(name.to_owned()))
    }
}

fn reason(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests;
