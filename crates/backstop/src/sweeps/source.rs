//! Whose tables a query looks at: an address, and what it leads to.
//!
//! A query only reads: the connection, the transaction and the statement all say so. It is stopped at its time limit, by the
//! database where that can be told to. Connections are made for one search and closed after it: searches are rare.

use super::FindError;
use crate::source::Source;
use backstop_core::sweep::{BoundQuery, Dialect, Row};
use backstop_core::{Span, Time};
use std::sync::Arc;

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

/// The rows that a query finds.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    expect(unused_variables, reason = "there is no database to look at")
)]
pub(super) async fn rows(source: &Source, search: Search<'_>) -> Result<Rows, FindError> {
    let found = match source.dialect() {
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => super::sqlite::rows(source.address(), search).await,
        #[cfg(feature = "postgres")]
        Dialect::Postgres => super::postgres::rows(source.address(), search).await,
        #[cfg(feature = "mysql")]
        Dialect::Mysql => super::mysql::rows(source.address(), search).await,
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
        _ => Err(FindError::Failed("this program was built without the database".to_owned())),
    };
    found.map_err(|error| match error {
        FindError::Failed(cause) => FindError::Failed(source.told(&cause)),
        slow => slow,
    })
}
