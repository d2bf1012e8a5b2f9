//! Tables on a PostgreSQL server. Every setting is one of the transaction, so that a pooler may
//! stand in between.

use super::catalogue::{
    CatalogueLookup, ColumnKind, RelationKind, TableCatalogue, TableColumn, TableIndex, match_name,
};
use super::link::{SqlParam, SqlStatement, TableLink, TableLinkError, TransactionMode};
use super::row::{SqlValue, hex};
use super::sql::quoted;
use crate::address::StoreAddress;
use crate::database::postgres::connect as reach;
use async_trait::async_trait;
use backstop_core::limits::TABLE_STATEMENT_MAX;
use backstop_core::sweep::SqlDialect;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// What an answer may take on its way, beside the statement.
const EXTRA_TIME: Duration = Duration::from_secs(5);
/// How long a row may be locked by somebody before a change of it is given up.
const LOCK_MS: i64 = 10_000;
/// What no name of a column has in it.
const BETWEEN: char = '\u{1}';

struct PostgresTableLink {
    client: Client,
}

pub(super) async fn connect(address: &StoreAddress) -> Result<Box<dyn TableLink>, TableLinkError> {
    let client = reach(address).await.map_err(TableLinkError::Failed)?;
    Ok(Box::new(PostgresTableLink { client }))
}

impl PostgresTableLink {
    async fn in_time<T>(
        work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> Result<T, TableLinkError> {
        let limit = Duration::from(TABLE_STATEMENT_MAX) + EXTRA_TIME;
        match tokio::time::timeout(limit, work).await {
            Ok(done) => done.map_err(|error| link_error(&error)),
            Err(_) => Err(TableLinkError::TooSlow),
        }
    }

    async fn run_query(&self, sql: &str, params: &[SqlParam]) -> Result<Vec<Row>, TableLinkError> {
        let texts: Vec<String> = params.iter().map(text).collect();
        let typed: Vec<(&(dyn ToSql + Sync), Type)> = texts
            .iter()
            .map(|text| (text as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        Self::in_time(self.client.query_typed(sql, &typed)).await
    }
}

fn link_error(error: &tokio_postgres::Error) -> TableLinkError {
    match error.as_db_error() {
        Some(db_error) if db_error.code() == &SqlState::QUERY_CANCELED => TableLinkError::TooSlow,
        Some(db_error) => {
            let text = format!("{} ({})", db_error.message(), db_error.code().code());
            let is_locked = db_error.code() == &SqlState::LOCK_NOT_AVAILABLE;
            if is_locked {
                TableLinkError::Locked(text)
            } else {
                TableLinkError::Failed(text)
            }
        }
        None => TableLinkError::Failed(
            std::error::Error::source(error)
                .map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
        ),
    }
}

/// Every parameter is text; the statement says what it is cast to.
fn text(param: &SqlParam) -> String {
    match param {
        SqlParam::Whole(number) => number.to_string(),
        SqlParam::Text(text) => text.clone(),
        SqlParam::Bytes(bytes) => format!("\\x{}", hex(bytes)),
    }
}

fn cells(row: &Row) -> Result<Vec<SqlValue>, TableLinkError> {
    let cell = |(at, column): (usize, &tokio_postgres::Column)| {
        let to_link_error = |error: tokio_postgres::Error| link_error(&error);
        Ok(match *column.type_() {
            Type::INT8 => row
                .try_get::<_, Option<i64>>(at)
                .map_err(to_link_error)?
                .map(|number| SqlValue::Whole(number.into())),
            Type::INT4 => row
                .try_get::<_, Option<i32>>(at)
                .map_err(to_link_error)?
                .map(|number| SqlValue::Whole(number.into())),
            _ => row
                .try_get::<_, Option<String>>(at)
                .map_err(to_link_error)?
                .map(SqlValue::Text),
        }
        .unwrap_or(SqlValue::Null))
    };
    row.columns().iter().enumerate().map(cell).collect()
}

#[async_trait]
impl TableLink for PostgresTableLink {
    async fn begin(&mut self, mode: TransactionMode) -> Result<(), TableLinkError> {
        let access = match mode {
            TransactionMode::Reading => "READ ONLY",
            TransactionMode::Writing => "READ WRITE",
        };
        let limit_ms = TABLE_STATEMENT_MAX.as_millis();
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED {access}; SET LOCAL statement_timeout = {limit_ms};
             SET LOCAL lock_timeout = {LOCK_MS}; SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL jit = off"
        );
        Self::in_time(self.client.batch_execute(&begin)).await
    }

    async fn commit(&mut self) -> Result<(), TableLinkError> {
        Self::in_time(self.client.batch_execute("COMMIT")).await
    }

    async fn roll_back(&mut self) {
        let _ = Self::in_time(self.client.batch_execute("ROLLBACK")).await;
    }

    async fn rows(
        &mut self,
        statement: &SqlStatement,
    ) -> Result<Vec<Vec<SqlValue>>, TableLinkError> {
        self.set_planner_options(statement).await?;
        self.run_query(&statement.sql, &statement.params)
            .await?
            .iter()
            .map(cells)
            .collect()
    }

    async fn run(&mut self, sql: &str) -> Result<(), TableLinkError> {
        Self::in_time(self.client.batch_execute(sql)).await
    }

    async fn change(&mut self, statement: &SqlStatement) -> Result<u64, TableLinkError> {
        // A statement that gives no rows still says how many it changed; asked for them, it gives
        // one for each.
        let rows = self
            .run_query(&format!("{} RETURNING 1", statement.sql), &statement.params)
            .await?;
        Ok(rows.len() as u64)
    }

    async fn plan(&mut self, statement: &SqlStatement) -> Result<Vec<String>, TableLinkError> {
        self.set_planner_options(statement).await?;
        let rows = self
            .run_query(&format!("EXPLAIN {}", statement.sql), &statement.params)
            .await?;
        rows.iter()
            .map(|row| row.try_get(0).map_err(|error| link_error(&error)))
            .collect()
    }

    async fn catalogue(&mut self, table: &str) -> Result<CatalogueLookup, TableLinkError> {
        self.begin(TransactionMode::Reading).await?;
        let found = self.look_up(table).await;
        self.roll_back().await;
        found
    }

    fn product(&self) -> &'static str {
        "PostgreSQL"
    }

    fn locking(&self) -> &'static str {
        " FOR UPDATE OF t SKIP LOCKED"
    }
}

impl PostgresTableLink {
    /// Its statistics say nothing of columns that go together: that nearly no error has no
    /// failures, that nearly all of them failed lately. Left to itself it reads the whole table:
    /// 10,000,000 rows in 800 ms, where the index leads to 500 in 8.
    async fn set_planner_options(&self, statement: &SqlStatement) -> Result<(), TableLinkError> {
        const BY_INDEX: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off;
            SET LOCAL enable_mergejoin = off; SET LOCAL max_parallel_workers_per_gather = 0";
        if statement.is_indexed {
            Self::in_time(self.client.batch_execute(BY_INDEX)).await
        } else {
            Ok(())
        }
    }

    async fn look_up(&self, wanted: &str) -> Result<CatalogueLookup, TableLinkError> {
        const TABLES: &str = "SELECT n.nspname::text, c.relname::text, c.oid::bigint, pg_table_is_visible(c.oid)::int, c.relkind::text
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
            ORDER BY 4 DESC, 1, 2 LIMIT 10000";
        let mut tables = Vec::new();
        for row in self.run_query(TABLES, &[]).await? {
            let [
                SqlValue::Text(schema),
                SqlValue::Text(name),
                SqlValue::Whole(oid),
                SqlValue::Whole(is_visible),
                SqlValue::Text(kind),
            ] = &cells(&row)?[..]
            else {
                continue;
            };
            let relation = match kind.as_str() {
                "p" => RelationKind::Parts,
                "v" => RelationKind::View,
                _ => RelationKind::Table,
            };
            let known = if *is_visible == 1 {
                name.clone()
            } else {
                format!("{schema}.{name}")
            };
            tables.push((known, schema.clone(), name.clone(), *oid, relation));
        }
        let by_known = match_name(wanted, tables.iter().map(|(known, ..)| known.as_str()));
        let full: Vec<String> = tables
            .iter()
            .map(|(_, schema, name, ..)| format!("{schema}.{name}"))
            .collect();
        let Some(at) = by_known.or_else(|| match_name(wanted, full.iter().map(String::as_str)))
        else {
            return Ok(CatalogueLookup::Others(
                tables.into_iter().map(|(known, ..)| known).collect(),
            ));
        };
        let (_, schema, name, oid, relation) = &tables[at];
        let of_table = [SqlParam::Whole(*oid)];
        Ok(CatalogueLookup::Table(TableCatalogue {
            quoted: format!(
                "{}.{}",
                quoted(SqlDialect::Postgres, schema),
                quoted(SqlDialect::Postgres, name)
            ),
            name: name.clone(),
            relation: *relation,
            columns: self.columns(&of_table).await?,
            indexes: self.indexes(&of_table).await?,
        }))
    }

    async fn columns(&self, of_table: &[SqlParam]) -> Result<Vec<TableColumn>, TableLinkError> {
        const COLUMNS: &str =
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, -1),
                t.typname::text, a.atttypmod
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
        let mut columns = Vec::new();
        for row in self.run_query(COLUMNS, of_table).await? {
            let [
                SqlValue::Text(name),
                SqlValue::Text(type_name),
                SqlValue::Text(cast),
                SqlValue::Text(base),
                SqlValue::Whole(modifier),
            ] = &cells(&row)?[..]
            else {
                continue;
            };
            columns.push(column_of(name, type_name, cast, base, *modifier));
        }
        Ok(columns)
    }

    async fn indexes(&self, of_table: &[SqlParam]) -> Result<Vec<TableIndex>, TableLinkError> {
        const INDEXES: &str = "SELECT i.relname::text, x.indisunique::int, (x.indpred IS NOT NULL)::int,
                array_to_string(ARRAY(SELECT coalesce(a.attname::text, '') FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k(n, o)
                    LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.n WHERE k.o <= x.indnkeyatts ORDER BY k.o), E'\\x01')
            FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
            WHERE x.indrelid = $1::text::oid AND x.indisvalid ORDER BY 1";
        let mut indexes = Vec::new();
        for row in self.run_query(INDEXES, of_table).await? {
            let [
                SqlValue::Text(name),
                SqlValue::Whole(is_unique),
                SqlValue::Whole(is_partial),
                SqlValue::Text(columns),
            ] = &cells(&row)?[..]
            else {
                continue;
            };
            indexes.push(TableIndex {
                name: name.clone(),
                columns: columns.split(BETWEEN).map(ToOwned::to_owned).collect(),
                is_partial: *is_partial == 1,
                is_unique: *is_unique == 1,
            });
        }
        Ok(indexes)
    }
}

fn column_of(name: &str, type_name: &str, cast: &str, base: &str, modifier: i128) -> TableColumn {
    let kind = match base {
        "int2" | "int4" | "int8" => ColumnKind::Whole,
        "numeric" | "float4" | "float8" => ColumnKind::Real,
        "text" | "varchar" | "bpchar" => ColumnKind::Text,
        "timestamptz" | "timestamp" | "date" => ColumnKind::Time,
        "bytea" => ColumnKind::Bytes,
        _ => ColumnKind::Other,
    };
    // A day is compared with a time as its first moment: a time cut to its day would not be the
    // same.
    let cast = if base == "date" {
        "timestamp without time zone"
    } else {
        cast
    };
    let digits = if base == "date" {
        0
    } else {
        u8::try_from(modifier).unwrap_or(6).min(6)
    };
    TableColumn {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        cast: cast.to_owned(),
        kind,
        digits,
    }
}
