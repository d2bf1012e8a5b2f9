//! A query as a finder: rows of the user's own tables, and what jobs are made of them.

use super::collect::{FindingCollector, FindingTemplate};
use super::source::{SourceSearch, search};
use super::{DatabaseSource, FindError, FindResult, FindScope, Finder, InvalidDatabase};
use async_trait::async_trait;
use backstop_core::limits::SWEEP_QUERY_MAX;
use backstop_core::sweep::{
    BoundQuery, InvalidQuery, InvalidTemplate, PayloadTemplate, TextTemplate,
};
use backstop_core::unique::UniqueKey;
use backstop_core::{Span, Time};
use serde_json::Value;

/// A query over SQLite, PostgreSQL, MySQL or MariaDB. Reads, and nothing else.
#[derive(Clone, Debug)]
pub struct SweepQuery {
    source: DatabaseSource,
    bound: BoundQuery,
    template: FindingTemplate,
    timeout: Span,
}

/// A query that cannot be asked. No message shows a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSweepQuery {
    #[error("`url`: {0}")]
    Source(#[from] InvalidDatabase),
    #[error("`query`: {0}")]
    Query(#[from] InvalidQuery),
    /// The key is no template.
    #[error("`unique_key`: {0}")]
    Key(InvalidTemplate),
    /// The key is the same for all rows.
    #[error(
        "`unique_key` names no column, so that all rows would share one job; write such as \"order:{{id}}\""
    )]
    ConstantKey,
    /// The payload is no template.
    #[error("`payload`: {0}")]
    Payload(InvalidTemplate),
    /// The time limit is none.
    #[error("`timeout` must be longer than nothing and at most {SWEEP_QUERY_MAX}")]
    Timeout,
}

impl SweepQuery {
    /// How long a query may take where nobody says.
    pub const TIMEOUT: Span = Span::minutes(1);

    /// The query `sql` on the database at `url`. In `unique_key` and in the texts of `payload`,
    /// columns stand in braces; without a payload the row itself is it.
    pub fn new(
        url: &str,
        sql: &str,
        unique_key: &str,
        payload: Option<&Value>,
    ) -> Result<Self, InvalidSweepQuery> {
        let source = DatabaseSource::new(url)?;
        BoundQuery::check_reads(sql, source.dialect())?;
        let bound = BoundQuery::new(sql, source.dialect())?;
        let key = TextTemplate::parse(unique_key).map_err(InvalidSweepQuery::Key)?;
        if key.is_constant() {
            return Err(InvalidSweepQuery::ConstantKey);
        }
        let payload = payload
            .map(PayloadTemplate::parse)
            .transpose()
            .map_err(InvalidSweepQuery::Payload)?;
        let payload = payload.unwrap_or(PayloadTemplate::Row);
        Ok(Self {
            source,
            bound,
            template: FindingTemplate { key, payload },
            timeout: Self::TIMEOUT,
        })
    }

    /// It is stopped after this long.
    pub fn timeout(mut self, timeout: Span) -> Result<Self, InvalidSweepQuery> {
        if timeout.is_zero() || timeout > SWEEP_QUERY_MAX {
            return Err(InvalidSweepQuery::Timeout);
        }
        self.timeout = timeout;
        Ok(self)
    }
}

#[async_trait]
impl Finder for SweepQuery {
    async fn find(&self, cutoff: Time, max: usize) -> Result<FindResult, FindError> {
        self.find_wanted(cutoff, max, &FindScope::All).await
    }

    async fn find_wanted(
        &self,
        cutoff: Time,
        max: usize,
        wanted: &FindScope,
    ) -> Result<FindResult, FindError> {
        let into = FindingCollector::new(self.template.clone(), wanted.clone(), max);
        let request = SourceSearch {
            query: &self.bound,
            cutoff,
            max,
            limit: self.timeout,
            into,
        };
        search(&self.source, request).await
    }

    fn is_own(&self, key: &UniqueKey) -> bool {
        self.template.key.fits(key.as_str())
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
