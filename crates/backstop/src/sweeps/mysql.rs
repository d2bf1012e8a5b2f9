//! A query on a MySQL or MariaDB server: one read-only transaction.

use super::query::hex;
use super::source::SourceSearch;
use super::{FindError, FindResult};
use crate::address::StoreAddress;
use crate::database::mysql::{connect, is_mariadb, is_stopped, time_limit};
use backstop_core::sweep::{InvalidQuery, QueryRow, cutoff_text, decimal};
use backstop_core::{Span, Time};
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Params};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What connecting may take beside the query.
const EXTRA_TIME: Duration = Duration::from_secs(15);
/// The character set of bytes that are no text.
const BINARY: u16 = 63;

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
    let mut conn = connect(address)
        .await
        .map_err(|error| FindError::Failed(error.to_string()))?;
    let limit = search.limit;
    let found = read(&mut conn, search).await;
    // Rows that were not asked for may still be on their way: the connection is closed, not
    // cleaned.
    drop(conn);
    found.map_err(|error| failure(&error, limit))?
}

async fn read(
    conn: &mut Conn,
    mut search: SourceSearch<'_>,
) -> mysql_async::Result<Result<FindResult, FindError>> {
    // Also for statements that would end the transaction first.
    conn.query_drop("SET SESSION TRANSACTION READ ONLY").await?;
    conn.query_drop("SET SESSION time_zone = '+00:00'").await?;
    conn.query_drop(format!("SET SESSION sql_select_limit = {}", search.max))
        .await?;
    let is_mariadb = is_mariadb(conn).await?;
    conn.query_drop(time_limit(is_mariadb, search.limit))
        .await?;
    conn.query_drop("START TRANSACTION READ ONLY").await?;
    let cutoff = date(search.cutoff);
    let params = Params::Positional(vec![cutoff; search.query.cutoffs]);
    let mut result = conn.exec_iter(&*search.query.sql, params).await?;
    let described = result.columns().filter(|columns| !columns.is_empty());
    let Some(described) = described else {
        return Ok(Err(FindError::Failed(InvalidQuery::NotASelect.to_string())));
    };
    let columns: Arc<[String]> = described
        .iter()
        .map(|column| column.name_str().into_owned())
        .collect();
    if let Err(unknown) = search.into.check(&columns) {
        return Ok(Err(unknown.into()));
    }
    while let Some(row) = result.next().await? {
        let values = row.unwrap().into_iter().zip(described.iter());
        let values = values.map(|(of, column)| value(of, column)).collect();
        if !search
            .into
            .take(&QueryRow::new(Arc::clone(&columns), values))
        {
            break;
        }
    }
    Ok(Ok(search.into.found()))
}

fn failure(error: &mysql_async::Error, limit: Span) -> FindError {
    match error {
        mysql_async::Error::Server(server_error) if is_stopped(server_error) => {
            FindError::TooSlow(limit)
        }
        mysql_async::Error::Server(server_error) => {
            FindError::Failed(format!("{} ({})", server_error.message, server_error.code))
        }
        other => FindError::Failed(other.to_string()),
    }
}

/// A time as the driver takes it, in UTC.
fn date(time: Time) -> mysql_async::Value {
    let text = cutoff_text(time);
    let mut parts = text.split(['-', ' ', ':']);
    let mut next = || {
        parts
            .next()
            .and_then(|part| part.parse::<u16>().ok())
            .unwrap_or_default()
    };
    let (year, month, day) = (next(), next() as u8, next() as u8);
    let (hour, minute, second) = (next() as u8, next() as u8, next() as u8);
    let micros = u32::try_from(time.as_micros().rem_euclid(1_000_000)).unwrap_or_default();
    mysql_async::Value::Date(year, month, day, hour, minute, second, micros)
}

fn value(of: mysql_async::Value, column: &Column) -> Value {
    use mysql_async::Value as Sql;
    match of {
        Sql::NULL => Value::Null,
        Sql::Int(number) => number.into(),
        Sql::UInt(number) => number.into(),
        // The shortest digits of the single: as a double it would get digits that nobody wrote.
        Sql::Float(number) => decimal(&number.to_string()),
        Sql::Double(number) => number.into(),
        Sql::Bytes(bytes) => text(&bytes, column),
        Sql::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            match column.column_type() {
                ColumnType::MYSQL_TYPE_DATE => date.into(),
                _ => format!("{date} {hour:02}:{minute:02}:{second:02}{}", part(micros)).into(),
            }
        }
        Sql::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let (sign, hours) = (
                if is_negative { "-" } else { "" },
                days * 24 + u32::from(hours),
            );
            format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{}", part(micros)).into()
        }
    }
}

fn part(micros: u32) -> String {
    if micros == 0 {
        String::new()
    } else {
        format!(".{micros:06}")
    }
}

fn text(bytes: &[u8], column: &Column) -> Value {
    let is_number = matches!(
        column.column_type(),
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL
    );
    let is_json = column.column_type() == ColumnType::MYSQL_TYPE_JSON;
    match std::str::from_utf8(bytes) {
        Ok(digits) if is_number => decimal(digits),
        Ok(json) if is_json => serde_json::from_str(json).unwrap_or_else(|_| json.into()),
        Ok(text) if column.character_set() != BINARY => text.into(),
        _ => hex(bytes).into(),
    }
}
