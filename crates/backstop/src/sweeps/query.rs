//! A query as a finder: rows of the user's own tables, and what jobs are made of them.

use super::collect::{Collector, Mould};
use super::source::{Search, search};
use super::{BadSource, FindError, Finder, Found, Source, Wanted};
use async_trait::async_trait;
use backstop_core::limits::SWEEP_QUERY_MAX;
use backstop_core::sweep::{BadQuery, BadTemplate, BoundQuery, Shape, Template};
use backstop_core::unique::UniqueKey;
use backstop_core::{Span, Time};
use serde_json::Value;

/// A query over SQLite, PostgreSQL, MySQL or MariaDB. Reads, and nothing else.
#[derive(Clone, Debug)]
pub struct Query {
    source: Source,
    bound: BoundQuery,
    mould: Mould,
    timeout: Span,
}

/// A query that cannot be asked. No message shows a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSweepQuery {
    /// Its address is wrong.
    #[error("`url`: {0}")]
    Source(#[from] BadSource),
    /// Its text is wrong.
    #[error("`query`: {0}")]
    Query(#[from] BadQuery),
    /// The key is no template.
    #[error("`unique_key`: {0}")]
    Key(BadTemplate),
    /// The key is the same for all rows.
    #[error(
        "`unique_key` names no column, so that all rows would share one job; write such as \"order:{{id}}\""
    )]
    ConstantKey,
    /// The payload is no template.
    #[error("`payload`: {0}")]
    Payload(BadTemplate),
    /// The time limit is none.
    #[error("`timeout` must be longer than nothing and at most {SWEEP_QUERY_MAX}")]
    Timeout,
}

impl Query {
    /// How long a query may take where nobody says.
    pub const TIMEOUT: Span = Span::minutes(1);

    /// The query `sql` on the database at `url`. In `unique_key` and in the texts of `payload`,
    /// columns stand in braces; without a payload the row itself is it.
    pub fn new(
        url: &str,
        sql: &str,
        unique_key: &str,
        payload: Option<&Value>,
    ) -> Result<Self, BadSweepQuery> {
        let source = Source::new(url)?;
        BoundQuery::check_reads(sql, source.dialect())?;
        let bound = BoundQuery::new(sql, source.dialect())?;
        let key = Template::parse(unique_key).map_err(BadSweepQuery::Key)?;
        if key.is_constant() {
            return Err(BadSweepQuery::ConstantKey);
        }
        let payload = payload
            .map(Shape::parse)
            .transpose()
            .map_err(BadSweepQuery::Payload)?;
        let payload = payload.unwrap_or(Shape::Row);
        Ok(Self {
            source,
            bound,
            mould: Mould { key, payload },
            timeout: Self::TIMEOUT,
        })
    }

    /// It is stopped after this long.
    pub fn timeout(mut self, timeout: Span) -> Result<Self, BadSweepQuery> {
        if timeout.is_zero() || timeout > SWEEP_QUERY_MAX {
            return Err(BadSweepQuery::Timeout);
        }
        self.timeout = timeout;
        Ok(self)
    }
}

#[async_trait]
impl Finder for Query {
    async fn find(&self, cutoff: Time, max: usize) -> Result<Found, FindError> {
        self.find_wanted(cutoff, max, &Wanted::All).await
    }

    async fn find_wanted(
        &self,
        cutoff: Time,
        max: usize,
        wanted: &Wanted,
    ) -> Result<Found, FindError> {
        let into = Collector::new(self.mould.clone(), wanted.clone(), max);
        let asked = Search {
            query: &self.bound,
            cutoff,
            max,
            limit: self.timeout,
            into,
        };
        search(&self.source, asked).await
    }

    fn is_own(&self, key: &UniqueKey) -> bool {
        self.mould.key.fits(key.as_str())
    }
}

/// Bytes that are no text, as PostgreSQL writes them.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
