//! Whose tables a query looks at: an address, and what it leads to.
//!
//! A query only reads: the connection, the transaction and the statement all say so. It is stopped
//! at its time limit, by the database where that can be told to. Connections are made for one
//! search and closed after it: searches are rare.

use super::collect::FindingCollector;
use super::{FindError, FindResult};
use crate::database::DatabaseSource;
use backstop_core::sweep::{BoundQuery, SqlDialect};
use backstop_core::{Span, Time};

/// A search: what, from before when, how many rows, for how long, and what takes them in.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    expect(dead_code, reason = "there is no database to look at")
)]
pub(super) struct SourceSearch<'a> {
    pub(super) query: &'a BoundQuery,
    pub(super) cutoff: Time,
    pub(super) max: usize,
    pub(super) limit: Span,
    pub(super) into: FindingCollector,
}

#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    expect(unused_variables, reason = "there is no database to look at")
)]
pub(super) async fn search(
    source: &DatabaseSource,
    search: SourceSearch<'_>,
) -> Result<FindResult, FindError> {
    let found = match source.dialect() {
        #[cfg(feature = "sqlite")]
        SqlDialect::Sqlite => super::sqlite::search(source.address(), search).await,
        #[cfg(feature = "postgres")]
        SqlDialect::Postgres => super::postgres::search(source.address(), search).await,
        #[cfg(feature = "mysql")]
        SqlDialect::Mysql => super::mysql::search(source.address(), search).await,
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
        _ => Err(FindError::Failed(
            "this program was built without the database".to_owned(),
        )),
    };
    found.map_err(|error| match error {
        FindError::Failed(cause) => FindError::Failed(source.redacted_cause(&cause)),
        other => other,
    })
}
