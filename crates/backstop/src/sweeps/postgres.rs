//! A query on a PostgreSQL server: one read-only transaction, on a connection under the same rules
//! as the store's.

use super::source::SourceSearch;
use super::{FindError, FindResult};
use crate::address::StoreAddress;
use crate::database::postgres::connect;
use backstop_core::sweep::{InvalidQuery, QueryRow, decimal};
use backstop_core::{Span, Time};
use futures_util::TryStreamExt;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// What connecting, and ending the transaction, may take beside the query.
const EXTRA_TIME: Duration = Duration::from_secs(15);

pub(super) async fn search(
    address: &StoreAddress,
    search: SourceSearch<'_>,
) -> Result<FindResult, FindError> {
    let limit = search.limit;
    let result = tokio::time::timeout(
        Duration::from(limit) + EXTRA_TIME,
        run_query(address, search),
    )
    .await;
    result.unwrap_or(Err(FindError::TooSlow(limit)))
}

async fn run_query(
    address: &StoreAddress,
    search: SourceSearch<'_>,
) -> Result<FindResult, FindError> {
    let client = connect(address).await.map_err(FindError::Failed)?;
    let limit = search.limit;
    let found = read(&client, search)
        .await
        .map_err(|error| failure(&error, limit))?;
    // Nothing was written that could be committed. Where rows may still be on their way nobody
    // waits for them: the connection ends, and the transaction with it.
    if found.as_ref().is_ok_and(|found| !found.is_cut) {
        let _ = client.batch_execute("ROLLBACK").await;
    }
    found
}

async fn read(
    client: &Client,
    mut search: SourceSearch<'_>,
) -> Result<Result<FindResult, FindError>, tokio_postgres::Error> {
    let limit_ms = search.limit.as_millis().max(1);
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {limit_ms}; SET LOCAL lock_timeout = {limit_ms};
         SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'"
    );
    client.batch_execute(&begin).await?;
    let described = client
        .prepare_typed(&search.query.sql, &[Type::TIMESTAMPTZ])
        .await?;
    let columns: Arc<[String]> = described
        .columns()
        .iter()
        .map(|column| column.name().to_owned())
        .collect();
    if columns.is_empty() {
        return Ok(Err(not_a_select()));
    }
    if let Err(unknown) = search.into.check(&columns) {
        return Ok(Err(unknown.into()));
    }
    let sql = search.query.as_json_rows(search.max);
    let cutoff = [(system_time(search.cutoff), Type::TIMESTAMPTZ)];
    let rows = match client.query_typed_raw(&sql, cutoff).await {
        // By itself it is a statement, and as a part of another it is none: it would write.
        Err(error) if is_no_part(&error) => return Ok(Err(not_a_select())),
        rows => rows?,
    };
    let mut rows = pin!(rows);
    while let Some(row) = rows.try_next().await? {
        if !search.into.take(&QueryRow::new(
            Arc::clone(&columns),
            values(row.try_get(0)?),
        )) {
            break;
        }
    }
    Ok(Ok(search.into.found()))
}

fn not_a_select() -> FindError {
    FindError::Failed(InvalidQuery::NotASelect.to_string())
}

fn is_no_part(error: &tokio_postgres::Error) -> bool {
    let codes = [
        SqlState::SYNTAX_ERROR,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    error.code().is_some_and(|code| codes.contains(code))
}

fn failure(error: &tokio_postgres::Error, limit: Span) -> FindError {
    match error.as_db_error() {
        Some(server_error) if server_error.code() == &SqlState::QUERY_CANCELED => {
            FindError::TooSlow(limit)
        }
        Some(server_error) => FindError::Failed(format!(
            "{} ({})",
            server_error.message(),
            server_error.code().code()
        )),
        None => FindError::Failed(
            std::error::Error::source(error)
                .map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
        ),
    }
}

fn system_time(time: Time) -> SystemTime {
    let micros = Duration::from_micros(time.as_micros().unsigned_abs());
    if time.as_micros() < 0 {
        UNIX_EPOCH - micros
    } else {
        UNIX_EPOCH + micros
    }
}

/// The values of a row that came as a JSON object, in the order of its columns.
fn values(json: &str) -> Vec<Value> {
    let mut reader = serde_json::Deserializer::from_str(json);
    reader
        .deserialize_map(OrderedRowVisitor)
        .unwrap_or_default()
}

/// An object's values in the order they are written in, with its numbers as exact as they are
/// written.
struct OrderedRowVisitor;

impl<'de> Visitor<'de> for OrderedRowVisitor {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some((_, raw)) = map.next_entry::<String, Box<RawValue>>()? {
            values.push(value(raw.get()));
        }
        Ok(values)
    }
}

fn value(raw: &str) -> Value {
    let is_digits = raw.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && !raw.contains(['e', 'E']);
    if is_digits {
        decimal(raw)
    } else {
        serde_json::from_str(raw).unwrap_or_else(|_| raw.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_keeps_its_order_its_doubles_and_its_digits() {
        let json = r#"{"b":1,"a":"x","a":null,"n":123456789012345678901234567890,"f":1.50,"big":1e300,"o":{"k":[1]}}"#;
        let digits = json!("123456789012345678901234567890");
        assert_eq!(
            values(json),
            [
                json!(1),
                json!("x"),
                json!(null),
                digits,
                json!(1.5),
                json!(1e300),
                json!({"k": [1]})
            ]
        );
    }

    #[test]
    fn times_before_1970_are_times() {
        assert_eq!(
            system_time(Time::from_micros(-1)),
            UNIX_EPOCH - Duration::from_micros(1)
        );
    }
}
