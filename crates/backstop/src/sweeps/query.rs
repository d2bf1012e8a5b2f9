//! A query as a finder: rows of the user's own tables, and what jobs are made of them.

use super::source::{Search, rows};
use super::{BadSource, FindError, Finder, Found, Source, Unusable};
use async_trait::async_trait;
use backstop_core::limits::SWEEP_QUERY_MAX;
use backstop_core::payload::Payload;
use backstop_core::sweep::{BadQuery, BadTemplate, BoundQuery, Finding, Row, Shape, Template, UnknownColumn};
use backstop_core::unique::UniqueKey;
use backstop_core::{Span, Time};
use serde_json::Value;

/// A query over SQLite, PostgreSQL, MySQL or MariaDB. Reads, and nothing else.
#[derive(Clone, Debug)]
pub struct Query {
    source: Source,
    bound: BoundQuery,
    key: Template,
    payload: Shape,
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

    /// The query `sql` on the database at `url`. In `unique_key` and in the texts of `payload`, columns stand in braces; without a
    /// payload the row itself is it.
    pub fn new(
        url: &str,
        sql: &str,
        unique_key: &str,
        payload: Option<&Value>,
    ) -> Result<Self, BadSweepQuery> {
        let source = Source::new(url)?;
        let bound = BoundQuery::new(sql, source.dialect())?;
        let key = Template::parse(unique_key).map_err(BadSweepQuery::Key)?;
        if key.is_constant() {
            return Err(BadSweepQuery::ConstantKey);
        }
        let payload = payload.map(Shape::parse).transpose().map_err(BadSweepQuery::Payload)?;
        let payload = payload.unwrap_or(Shape::Row);
        Ok(Self { source, bound, key, payload, timeout: Self::TIMEOUT })
    }

    /// It is stopped after this long.
    pub fn timeout(mut self, timeout: Span) -> Result<Self, BadSweepQuery> {
        if timeout.is_zero() || timeout > SWEEP_QUERY_MAX {
            return Err(BadSweepQuery::Timeout);
        }
        self.timeout = timeout;
        Ok(self)
    }

    fn check(&self, columns: &[String]) -> Result<(), UnknownColumn> {
        self.key.check(columns)?;
        self.payload.check(columns)
    }

    fn finding(&self, row: &Row) -> Result<Finding, String> {
        let key = self.key.fill(row).map_err(|error| error.to_string())?;
        let key = UniqueKey::new(&key).map_err(|error| error.to_string())?;
        let payload = self.payload.fill(row).map_err(|error| error.to_string())?;
        let payload = Payload::json(payload.to_string()).map_err(|error| error.to_string())?;
        Ok(Finding { row: row.id(), key, payload })
    }
}

#[async_trait]
impl Finder for Query {
    async fn find(&self, cutoff: Time, max: usize) -> Result<Found, FindError> {
        let search = Search { query: &self.bound, cutoff, max, limit: self.timeout };
        let rows = rows(&self.source, search).await?;
        self.check(&rows.columns).map_err(|error| FindError::Failed(error.to_string()))?;
        let mut found = Found::default();
        for row in &rows.rows {
            match self.finding(row) {
                Ok(finding) => found.findings.push(finding),
                Err(why) => found.unusable.push(Unusable { row: row.id(), why }),
            }
        }
        Ok(found)
    }

    fn is_own(&self, key: &UniqueKey) -> bool {
        self.key.fits(key.as_str())
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
