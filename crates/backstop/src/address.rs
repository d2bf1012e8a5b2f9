//! The address of a store: which kind of store it names, and how it is shown without its password.
//!
//! Opens nothing and knows no store: what an address means beyond its kind is the store's business.

use std::fmt;
use std::path::Path;

/// What stands where something must not be shown.
const HIDDEN: &str = "[redacted]";
/// Parameters that no store takes a password in. The value of any other is not shown.
const HARMLESS: [&str; 11] = [
    "application_name",
    "ca",
    "connect_timeout",
    "connections",
    "pooler",
    "prefix",
    "schema",
    "ssl-ca",
    "ssl-mode",
    "sslmode",
    "sslrootcert",
];

/// The address of a store, as in `postgres://ada:password@db.example.org/shop`. Its text for
/// people, for logs and for debugging is [`redacted`].
#[derive(Clone, PartialEq, Eq)]
pub struct StoreAddress(String);

/// What an address can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Lives and dies with its process: `memory:`.
    Memory,
    Sqlite,
    Postgres,
    /// A Redis server, cluster or set of sentinels: `redis://…`, `redis+cluster://…`,
    /// `redis+sentinel://…`.
    Redis,
}

impl StoreKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }
}

impl StoreAddress {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As it was written, password and all: to open the store with, never to be shown.
    pub fn as_written(&self) -> &str {
        &self.0
    }

    /// Whether it has parts that are never shown: whoever reads what is shown cannot open the store
    /// with it.
    pub fn hides_something(&self) -> bool {
        redacted(&self.0) != self.0
    }

    /// The kind of store it names, if it names one.
    pub fn kind(&self) -> Option<StoreKind> {
        let (scheme, rest) = self.0.split_once(':')?;
        match scheme {
            "memory" if rest.is_empty() => Some(StoreKind::Memory),
            "sqlite" if !rest.trim_start_matches('/').is_empty() => Some(StoreKind::Sqlite),
            "postgres" | "postgresql" if rest.starts_with("//") => Some(StoreKind::Postgres),
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel"
                if rest.starts_with("//") =>
            {
                Some(StoreKind::Redis)
            }
            _ => None,
        }
    }

    /// The file behind a `sqlite:` address. `sqlite:a.db` and `sqlite://a.db` are the same file;
    /// `sqlite:///a.db` is an absolute path.
    pub fn sqlite_file(&self) -> Option<&Path> {
        let path = self.0.strip_prefix("sqlite:")?;
        Some(Path::new(path.strip_prefix("//").unwrap_or(path)))
    }

    /// The same address with the parameter `name` set to `value`, which must need no escaping.
    #[must_use]
    pub fn with_parameter(&self, name: &str, value: &str) -> Self {
        let (head, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let is_other = |part: &&str| !part.is_empty() && part.split('=').next() != Some(name);
        let mut parts: Vec<String> = query
            .split('&')
            .filter(is_other)
            .map(str::to_owned)
            .collect();
        parts.push(format!("{name}={value}"));
        Self(format!("{head}?{}", parts.join("&")))
    }
}

impl From<&str> for StoreAddress {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl StoreKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Redis => "Redis",
        }
    }

    /// Its name among programs, which is also the feature of this crate that brings it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }
}

/// An address without what may be secret in it: neither user nor password, no parameter that is not
/// known to be harmless, and nothing at all of what cannot be told apart.
pub fn redacted(address: &str) -> String {
    if address.starts_with("sqlite:") {
        return address.to_owned();
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        // `postgres:ada:secret@host` and `host=… password=…` are no addresses, and carry passwords
        // all the same.
        let may_be_secret = address.contains(['@', '=', ' ']);
        return if may_be_secret {
            HIDDEN.to_owned()
        } else {
            address.to_owned()
        };
    };
    let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = match head.rsplit_once('@') {
        Some((_, place)) => format!("{HIDDEN}@{place}"),
        // Where the parameters hold an @, the question mark may be one of the password.
        None if query.contains('@') => return format!("{scheme}://{HIDDEN}"),
        None => head.to_owned(),
    };
    let shown: Vec<String> = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(parameter)
        .collect();
    let mark = if shown.is_empty() { "" } else { "?" };
    format!("{scheme}://{place}{mark}{}", shown.join("&"))
}

fn parameter(part: &str) -> String {
    match part.split_once('=') {
        Some((name, value)) if HARMLESS.contains(&name) && !value.contains('@') => part.to_owned(),
        Some((name, _)) if !name.contains('@') => format!("{name}={HIDDEN}"),
        _ => HIDDEN.to_owned(),
    }
}

/// A text of which every line ends where an address begins: for messages that repeat what somebody
/// wrote.
pub(crate) fn without_addresses(text: &str) -> String {
    let cut = |line: &str| match line.find("://") {
        None => line.to_owned(),
        Some(at) => {
            let word = line[..at]
                .rfind([' ', '"', '\'', '`', '='])
                .map_or(0, |before| before + 1);
            format!("{}{HIDDEN}", &line[..word])
        }
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
