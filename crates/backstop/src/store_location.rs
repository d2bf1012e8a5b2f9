//! Where a store is, to recognise transactions that are elsewhere: jobs there would be jobs that
//! nobody works.

use crate::address::{StoreAddress, StoreKind};
use backstop_core::port::{StoreError, StoreResult};

const DOING: &str = "enqueue in your transaction";

#[derive(Clone, Debug)]
pub(crate) enum StoreLocation {
    /// In a file of SQLite's.
    #[cfg(feature = "sqlite")]
    File(std::path::PathBuf),
    /// In a schema of a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Schema(String),
    /// Where there are no transactions of the user's.
    Elsewhere,
    Unknown,
}

impl StoreLocation {
    /// The home of the store at `address`, which is open.
    pub(crate) fn of(address: &StoreAddress) -> Self {
        match address.kind() {
            #[cfg(feature = "sqlite")]
            Some(StoreKind::Sqlite) => {
                let file = address
                    .sqlite_file()
                    .and_then(|file| file.canonicalize().ok());
                file.map_or(Self::Unknown, Self::File)
            }
            #[cfg(feature = "postgres")]
            Some(StoreKind::Postgres) => backstop_postgres::schema_of(address.as_written())
                .map_or(Self::Unknown, Self::Schema),
            _ => Self::Elsewhere,
        }
    }

    /// Refuses a transaction that is not on the store's file.
    #[cfg(feature = "sqlite")]
    pub(crate) fn check_file(&self, transaction: &rusqlite::Transaction<'_>) -> StoreResult<()> {
        if matches!(self, Self::Unknown) {
            return Ok(());
        }
        let Self::File(ours) = self else {
            return Err(StoreError::misuse(
                DOING,
                "the transaction is SQLite's, the store is not",
            ));
        };
        let theirs = transaction.path().filter(|path| !path.is_empty());
        let theirs = theirs.and_then(|path| std::path::Path::new(path).canonicalize().ok());
        if theirs.as_ref() == Some(ours) {
            return Ok(());
        }
        let cause = format!(
            "the transaction is on another database; begin it on {}",
            ours.display()
        );
        Err(StoreError::misuse(DOING, cause))
    }

    /// The schema to enqueue in.
    #[cfg(feature = "postgres")]
    pub(crate) fn schema(&self) -> StoreResult<&str> {
        if matches!(self, Self::Unknown) {
            return Ok(backstop_postgres::SCHEMA);
        }
        let Self::Schema(schema) = self else {
            return Err(StoreError::misuse(
                DOING,
                "the transaction is PostgreSQL's, the store is not",
            ));
        };
        Ok(schema)
    }
}
