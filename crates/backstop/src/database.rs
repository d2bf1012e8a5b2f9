//! The database of a user's: an address, and how it is reached. Sweeps look at it, tables are
//! worked off in it.

#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use crate::address::{StoreAddress, redacted};
use backstop_core::sweep::SqlDialect;
use std::fmt;

/// The database behind an address.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseSource {
    address: StoreAddress,
    dialect: SqlDialect,
}

/// An address that leads to no database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDatabase {
    /// Not an address of a database.
    #[error(
        "`{0}` is not a database to look at; write sqlite:FILE, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
    )]
    Unknown(String),
    /// One that says what is not to be had.
    #[error("{0}: {1}")]
    Tls(String, String),
    /// One that this program was built without.
    #[error(
        "this program was built without {0}; switch on the feature `{1}` of the crate `backstop`"
    )]
    NotBuiltIn(&'static str, &'static str),
}

impl DatabaseSource {
    /// The database behind an address.
    pub fn new(url: &str) -> Result<Self, InvalidDatabase> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let dialect = match scheme {
            "sqlite" if StoreAddress::new(url).kind().is_some() => SqlDialect::Sqlite,
            "postgres" | "postgresql" => SqlDialect::Postgres,
            "mysql" | "mariadb" => SqlDialect::Mysql,
            _ => return Err(InvalidDatabase::Unknown(redacted(url))),
        };
        let missing = match dialect {
            SqlDialect::Sqlite if !cfg!(feature = "sqlite") => Some(("SQLite", "sqlite")),
            SqlDialect::Postgres if !cfg!(feature = "postgres") => Some(("PostgreSQL", "postgres")),
            SqlDialect::Mysql if !cfg!(feature = "mysql") => Some(("MySQL", "mysql")),
            _ => None,
        };
        #[cfg(feature = "mysql")]
        if dialect == SqlDialect::Mysql {
            mysql::MysqlAddress::new(url)
                .map_err(|wrong| InvalidDatabase::Tls(redacted(url), wrong))?;
        }
        match missing {
            Some((name, feature)) => Err(InvalidDatabase::NotBuiltIn(name, feature)),
            None => Ok(Self {
                address: StoreAddress::new(url),
                dialect,
            }),
        }
    }

    pub const fn dialect(&self) -> SqlDialect {
        self.dialect
    }

    pub const fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// What a driver said, with where, and without the password it may repeat.
    pub(crate) fn redacted_cause(&self, cause: &str) -> String {
        format!(
            "{}: {}",
            self.address,
            without_password(&self.address, cause)
        )
    }
}

impl fmt::Debug for DatabaseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.address)
    }
}

/// A text without the password of an address: a driver may repeat what it was given.
fn without_password(address: &StoreAddress, text: &str) -> String {
    let written = address.as_written();
    let user = written
        .split_once("://")
        .and_then(|(_, rest)| rest.rsplit_once('@'))
        .map(|(user, _)| user);
    match user
        .and_then(|user| user.split_once(':'))
        .map(|(_, password)| password)
    {
        Some(password) if !password.is_empty() => text.replace(password, "[redacted]"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_databases_are_looked_at_and_no_password_is_shown() {
        for url in [
            "memory:",
            "redis://u:secret@h",
            "app.db",
            "",
            "sqlite:",
            "postgres:u:secret@h x",
        ] {
            let refused = DatabaseSource::new(url).map(|source| format!("{source:?}"));
            assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
        }
        assert!(matches!(
            DatabaseSource::new("redis://u:secret@h"),
            Err(InvalidDatabase::Unknown(_))
        ));
    }

    #[test]
    fn what_a_driver_repeats_of_the_password_is_hidden() {
        let address = StoreAddress::new("mysql://ada:se:cr@et@h:1/db");
        let hidden = without_password(&address, "bad url mysql://ada:se:cr@et@h:1/db");
        assert_eq!(hidden, "bad url mysql://ada:[redacted]@h:1/db");
        assert_eq!(
            without_password(&StoreAddress::new("mysql://h/db"), "as it is"),
            "as it is"
        );
    }
}
