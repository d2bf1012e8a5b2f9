//! Whose tables a query looks at: an address, and what it leads to.
//!
//! A query only reads: the connection, the transaction and the statement all say so. It is stopped at its time limit, by the
//! database where that can be told to. Connections are made for one search and closed after it: searches are rare.

use super::FindError;
use crate::address::{Address, redacted};
use backstop_core::sweep::{BoundQuery, Dialect, Row};
use backstop_core::{Span, Time};
use std::fmt;
use std::sync::Arc;

/// The database of a query.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    address: Address,
    dialect: Dialect,
}

/// An address that no query can look at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSource {
    /// Not an address of a database.
    #[error(
        "`{0}` is not a database to look at; write sqlite:FILE, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
    )]
    Unknown(String),
    /// One that this program was built without.
    #[error("this program was built without {0}; switch on the feature `{1}` of the crate `backstop`")]
    NotBuiltIn(&'static str, &'static str),
}

/// What a query gives.
pub(super) struct Rows {
    pub(super) columns: Arc<[String]>,
    pub(super) rows: Vec<Row>,
}

/// A search: what, from before when, how much of it, for how long.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    expect(dead_code, reason = "there is no database to look at")
)]
pub(super) struct Search<'a> {
    pub(super) query: &'a BoundQuery,
    pub(super) cutoff: Time,
    pub(super) max: usize,
    pub(super) limit: Span,
}

impl Source {
    /// The database behind an address.
    pub fn new(url: &str) -> Result<Self, BadSource> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let dialect = match scheme {
            "sqlite" if Address::new(url).kind().is_some() => Dialect::Sqlite,
            "postgres" | "postgresql" => Dialect::Postgres,
            "mysql" | "mariadb" => Dialect::Mysql,
            _ => return Err(BadSource::Unknown(redacted(url))),
        };
        let missing = match dialect {
            Dialect::Sqlite if !cfg!(feature = "sqlite") => Some(("SQLite", "sqlite")),
            Dialect::Postgres if !cfg!(feature = "postgres") => Some(("PostgreSQL", "postgres")),
            Dialect::Mysql if !cfg!(feature = "mysql") => Some(("MySQL", "mysql")),
            _ => None,
        };
        match missing {
            Some((name, feature)) => Err(BadSource::NotBuiltIn(name, feature)),
            None => Ok(Self { address: Address::new(url), dialect }),
        }
    }

    /// Whose SQL it speaks.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
        expect(clippy::unused_async, unused_variables, reason = "there is no database to look at")
    )]
    pub(super) async fn rows(&self, search: Search<'_>) -> Result<Rows, FindError> {
        let found = match self.dialect {
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => super::sqlite::rows(&self.address, search).await,
            #[cfg(feature = "postgres")]
            Dialect::Postgres => super::postgres::rows(&self.address, search).await,
            #[cfg(feature = "mysql")]
            Dialect::Mysql => super::mysql::rows(&self.address, search).await,
            #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
            _ => Err(FindError::Failed("this program was built without the database".to_owned())),
        };
        found.map_err(|error| match error {
            FindError::Failed(cause) => {
                FindError::Failed(format!("{}: {}", self.address, without_password(&self.address, &cause)))
            }
            slow => slow,
        })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.address)
    }
}

/// A text without the password of an address: a driver may repeat what it was given.
fn without_password(address: &Address, text: &str) -> String {
    let written = address.as_written();
    let user = written.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(user, _)| user);
    match user.and_then(|user| user.split_once(':')).map(|(_, password)| password) {
        Some(password) if !password.is_empty() => text.replace(password, "[redacted]"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_databases_are_looked_at_and_no_password_is_shown() {
        for url in ["memory:", "redis://u:secret@h", "app.db", "", "sqlite:", "postgres:u:secret@h x"] {
            let refused = Source::new(url).map(|source| format!("{source:?}"));
            assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
        }
        assert!(matches!(Source::new("redis://u:secret@h"), Err(BadSource::Unknown(_))));
    }

    #[test]
    fn what_a_driver_repeats_of_the_password_is_hidden() {
        let address = Address::new("mysql://ada:se:cr@et@h:1/db");
        let hidden = without_password(&address, "bad url mysql://ada:se:cr@et@h:1/db");
        assert_eq!(hidden, "bad url mysql://ada:[redacted]@h:1/db");
        assert_eq!(without_password(&Address::new("mysql://h/db"), "as it is"), "as it is");
    }
}
