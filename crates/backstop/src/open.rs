//! From a store's address to a store.

use crate::address::{StoreAddress, StoreKind};
use crate::store_runtime::StoreRuntime;
use backstop_core::limits::QUEUES_MAX;
use backstop_core::port::{Store, StoreError};
use backstop_memory::MemoryStore;
use std::str::FromStr;
use std::sync::Arc;

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A crash of the process, of the operating system, and a power cut.
    #[default]
    Full,
    /// A crash of the process; a power cut may lose the last moments.
    Relaxed,
}

/// How a store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How many queues there may be, configured ones aside; a push to a new one is refused beyond
    /// that.
    pub max_queues: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            max_queues: QUEUES_MAX,
        }
    }
}

impl From<Durability> for StoreOptions {
    fn from(durability: Durability) -> Self {
        Self {
            durability,
            ..Self::default()
        }
    }
}

/// Text that is no durability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a durability; use full or relaxed")]
pub struct InvalidDurability(String);

impl FromStr for Durability {
    type Err = InvalidDurability;

    fn from_str(text: &str) -> Result<Self, InvalidDurability> {
        match text {
            "full" => Ok(Self::Full),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(InvalidDurability(text.to_owned())),
        }
    }
}

/// A store that cannot be used. No message shows a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address of a store.
    #[error(
        "`{0}` is not a store; write sqlite:FILE, postgres://USER@HOST/DATABASE, redis://HOST:PORT, \
         redis+cluster://HOST:PORT,HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/NAME or memory:"
    )]
    UnknownStore(StoreAddress),
    /// The address of a store that this program was built without.
    #[error(
        "this program was built without {}; switch on the feature `{}` of the crate `backstop`",
        .0.name(), .0.word()
    )]
    NotBuiltIn(StoreKind),
    /// Redis cannot be told to be less durable than it is set to be.
    #[error(
        "durability relaxed means nothing on Redis: its own setting `appendfsync` decides what a crash may lose; \
         leave durability out, and `backstop doctor` says what holds"
    )]
    RedisDecides,
    /// The SQLite file cannot be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] backstop_sqlite::SqliteOpenError),
    /// The address says something that PostgreSQL cannot be reached with.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] backstop_postgres::PostgresOpenError),
    /// The address says something that Redis cannot be reached with.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] backstop_redis::RedisOpenError),
    /// The operating system gives no more threads.
    #[error("the threads that talk to the store could not be started: {0}")]
    Threads(String),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store, and where its calls run.
type OpenedStore = Result<(Arc<dyn Store>, StoreRuntime), OpenError>;

/// Opens the store behind `address`, without migrating it.
pub(crate) fn open_store(address: &StoreAddress, options: StoreOptions) -> OpenedStore {
    match address.kind() {
        Some(StoreKind::Memory) => Ok((
            Arc::new(MemoryStore::new().with_max_queues(options.max_queues)),
            StoreRuntime::Callers,
        )),
        Some(StoreKind::Sqlite) => open_sqlite(address, options),
        Some(StoreKind::Postgres) => open_postgres(address, options),
        Some(StoreKind::Redis) if options.durability == Durability::Relaxed => {
            Err(OpenError::RedisDecides)
        }
        Some(StoreKind::Redis) => open_redis(address, options),
        None => Err(OpenError::UnknownStore(address.clone())),
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(address: &StoreAddress, options: StoreOptions) -> OpenedStore {
    let durability = match options.durability {
        Durability::Full => backstop_sqlite::SqliteDurability::Full,
        Durability::Relaxed => backstop_sqlite::SqliteDurability::Relaxed,
    };
    let how = backstop_sqlite::SqliteOptions {
        durability,
        ..Default::default()
    };
    let file = address
        .sqlite_file()
        .ok_or_else(|| OpenError::UnknownStore(address.clone()))?;
    let store = backstop_sqlite::SqliteStore::open(file, how)?.with_max_queues(options.max_queues);
    Ok((Arc::new(store), StoreRuntime::Callers))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &StoreAddress, _: StoreOptions) -> OpenedStore {
    Err(OpenError::NotBuiltIn(StoreKind::Sqlite))
}

#[cfg(feature = "postgres")]
fn open_postgres(address: &StoreAddress, options: StoreOptions) -> OpenedStore {
    let durability = match options.durability {
        Durability::Full => backstop_postgres::PostgresDurability::Full,
        Durability::Relaxed => backstop_postgres::PostgresDurability::Relaxed,
    };
    let runtime = start_runtime()?;
    let store = runtime
        .enter(|| backstop_postgres::PostgresStore::open(address.as_written(), durability))?;
    Ok((Arc::new(store.with_max_queues(options.max_queues)), runtime))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &StoreAddress, _: StoreOptions) -> OpenedStore {
    Err(OpenError::NotBuiltIn(StoreKind::Postgres))
}

#[cfg(feature = "redis")]
fn open_redis(address: &StoreAddress, options: StoreOptions) -> OpenedStore {
    let runtime = start_runtime()?;
    let store = runtime.enter(|| backstop_redis::RedisStore::open(address.as_written()))?;
    Ok((Arc::new(store.with_max_queues(options.max_queues)), runtime))
}

#[cfg(not(feature = "redis"))]
fn open_redis(_: &StoreAddress, _: StoreOptions) -> OpenedStore {
    Err(OpenError::NotBuiltIn(StoreKind::Redis))
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn start_runtime() -> Result<StoreRuntime, OpenError> {
    StoreRuntime::start_own().map_err(|error| OpenError::Threads(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(address: &str, durability: Durability) -> String {
        open_store(&StoreAddress::new(address), durability.into())
            .err()
            .expect(address)
            .to_string()
    }

    #[test]
    fn an_address_without_a_store_is_refused_without_its_password() {
        for address in [
            "",
            "backstop.db",
            "sqlite:",
            "sqlite://",
            "memory:x",
            "mongodb://u:secret@h/db",
        ] {
            let error = refusal(address, Durability::Full);
            for part in [
                "sqlite:FILE",
                "postgres://",
                "redis://",
                "redis+cluster://",
                "redis+sentinel://",
            ] {
                assert!(error.contains(part) && !error.contains("secret"), "{error}");
            }
        }
    }

    #[test]
    fn redis_decides_by_itself_what_a_crash_may_lose() {
        for address in ["redis://:secret@h", "redis+cluster://h"] {
            let error = refusal(address, Durability::Relaxed);
            assert!(
                error.contains("appendfsync") && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[cfg(not(feature = "postgres"))]
    #[test]
    fn a_store_that_is_not_built_in_names_its_feature() {
        let error = refusal("postgres://u:secret@h", Durability::Full);
        assert!(
            error.contains("without PostgreSQL") && error.contains("`postgres`"),
            "{error}"
        );
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_wrong_address_is_refused_without_its_password() {
        for address in [
            "postgres://u:secret@h:notaport/db",
            "postgres://u:secret@h/db?sslmode=secret",
        ] {
            let error = refusal(address, Durability::Full);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
