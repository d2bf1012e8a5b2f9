//! Tables on a MySQL or MariaDB server.

use super::catalogue::{
    CatalogueLookup, ColumnKind, RelationKind, TableCatalogue, TableColumn, TableIndex, match_name,
};
use super::link::{SqlParam, SqlStatement, TableLink, TableLinkError, TransactionMode};
use super::row::SqlValue;
use super::sql::quoted;
use crate::address::StoreAddress;
use crate::database::mysql::{connect as reach, is_mariadb, is_stopped, time_limit};
use async_trait::async_trait;
use backstop_core::limits::TABLE_STATEMENT_MAX;
use backstop_core::sweep::SqlDialect;
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Value};
use std::time::Duration;

/// What an answer may take on its way, beside the statement.
const EXTRA_TIME: Duration = Duration::from_secs(15);
/// The character set of bytes that are no text.
const BINARY: u16 = 63;
/// What a server says of a lock that was waited for in vain.
const LOCKED: u16 = 1205;
/// The first versions that leave out locked rows: MariaDB's and MySQL's.
const SKIPS_LOCKED: [(u32, u32); 2] = [(10, 6), (8, 0)];

struct MysqlTableLink {
    conn: Conn,
    is_mariadb: bool,
    skips_locked: bool,
}

pub(super) async fn connect(address: &StoreAddress) -> Result<Box<dyn TableLink>, TableLinkError> {
    let connecting = async {
        let mut conn = reach(address).await?;
        let is_mariadb = is_mariadb(&mut conn).await?;
        let version: Option<String> = conn.query_first("SELECT VERSION()").await?;
        conn.query_drop("SET SESSION time_zone = '+00:00'").await?;
        conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            .await?;
        conn.query_drop("SET SESSION innodb_lock_wait_timeout = 10")
            .await?;
        conn.query_drop(time_limit(is_mariadb, TABLE_STATEMENT_MAX))
            .await?;
        let skips_locked = version.is_some_and(|version| skips_locked(&version, is_mariadb));
        Ok(MysqlTableLink {
            conn,
            is_mariadb,
            skips_locked,
        })
    };
    Ok(Box::new(in_time(connecting).await?))
}

fn skips_locked(version: &str, is_mariadb: bool) -> bool {
    let mut parts = version
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or_default());
    let found = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    found >= SKIPS_LOCKED[usize::from(!is_mariadb)]
}

async fn in_time<T>(
    work: impl Future<Output = mysql_async::Result<T>> + Send,
) -> Result<T, TableLinkError> {
    match tokio::time::timeout(Duration::from(TABLE_STATEMENT_MAX) + EXTRA_TIME, work).await {
        Ok(done) => done.map_err(|error| link_error(&error)),
        Err(_) => Err(TableLinkError::TooSlow),
    }
}

fn link_error(error: &mysql_async::Error) -> TableLinkError {
    match error {
        mysql_async::Error::Server(server_error) if is_stopped(server_error) => {
            TableLinkError::TooSlow
        }
        mysql_async::Error::Server(server_error) => {
            let text = format!("{} ({})", server_error.message, server_error.code);
            if server_error.code == LOCKED {
                TableLinkError::Locked(text)
            } else {
                TableLinkError::Failed(text)
            }
        }
        other => TableLinkError::Failed(other.to_string()),
    }
}

fn params(params: &[SqlParam]) -> Params {
    let value = |param: &SqlParam| match param {
        SqlParam::Whole(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => Value::Int(number),
            (_, Ok(number)) => Value::UInt(number),
            _ => Value::Bytes(number.to_string().into_bytes()),
        },
        SqlParam::Text(text) => Value::Bytes(text.clone().into_bytes()),
        SqlParam::Bytes(bytes) => Value::Bytes(bytes.clone()),
    };
    if params.is_empty() {
        Params::Empty
    } else {
        Params::Positional(params.iter().map(value).collect())
    }
}

impl MysqlTableLink {
    async fn run_query(
        &mut self,
        sql: &str,
        values: &[SqlParam],
    ) -> Result<Vec<Vec<SqlValue>>, TableLinkError> {
        in_time(async {
            let mut result = self.conn.exec_iter(sql, params(values)).await?;
            let columns = result.columns();
            let columns = columns.as_deref().unwrap_or_default();
            let mut rows = Vec::new();
            while let Some(row) = result.next().await? {
                rows.push(
                    row.unwrap()
                        .into_iter()
                        .zip(columns)
                        .map(|(value, column)| cell(value, column))
                        .collect(),
                );
            }
            Ok(rows)
        })
        .await
    }
}

fn cell(value: Value, column: &mysql_async::Column) -> SqlValue {
    match value {
        Value::NULL => SqlValue::Null,
        Value::Int(number) => SqlValue::Whole(number.into()),
        Value::UInt(number) => SqlValue::Whole(number.into()),
        // The shortest digits of the single: as a double it would get digits that nobody wrote.
        Value::Float(number) if number.is_finite() => SqlValue::Digits(number.to_string()),
        Value::Float(number) => SqlValue::Real(number.into()),
        Value::Double(number) => SqlValue::Real(number),
        Value::Bytes(bytes) => bytes_cell(bytes, column),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            SqlValue::Text(match column.column_type() {
                ColumnType::MYSQL_TYPE_DATE => date,
                _ => format!("{date} {hour:02}:{minute:02}:{second:02}{}", part(micros)),
            })
        }
        Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let (sign, hours) = (
                if is_negative { "-" } else { "" },
                days * 24 + u32::from(hours),
            );
            SqlValue::Text(format!(
                "{sign}{hours:02}:{minutes:02}:{seconds:02}{}",
                part(micros)
            ))
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

fn bytes_cell(bytes: Vec<u8>, column: &mysql_async::Column) -> SqlValue {
    let is_number = matches!(
        column.column_type(),
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL
    );
    let is_json = column.column_type() == ColumnType::MYSQL_TYPE_JSON;
    match String::from_utf8(bytes) {
        Ok(digits) if is_number => SqlValue::Digits(digits),
        Ok(json) if is_json => SqlValue::Json(json),
        Ok(text) if column.character_set() != BINARY => SqlValue::Text(text),
        Ok(text) => SqlValue::Bytes(text.into_bytes()),
        Err(error) => SqlValue::Bytes(error.into_bytes()),
    }
}

#[async_trait]
impl TableLink for MysqlTableLink {
    async fn begin(&mut self, mode: TransactionMode) -> Result<(), TableLinkError> {
        let begin = match mode {
            TransactionMode::Reading => "START TRANSACTION READ ONLY",
            TransactionMode::Writing => "START TRANSACTION READ WRITE",
        };
        in_time(self.conn.query_drop(begin)).await
    }

    async fn commit(&mut self) -> Result<(), TableLinkError> {
        in_time(self.conn.query_drop("COMMIT")).await
    }

    async fn roll_back(&mut self) {
        let _ = in_time(self.conn.query_drop("ROLLBACK")).await;
    }

    async fn rows(
        &mut self,
        statement: &SqlStatement,
    ) -> Result<Vec<Vec<SqlValue>>, TableLinkError> {
        self.run_query(&statement.sql, &statement.params).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), TableLinkError> {
        in_time(self.conn.query_drop(sql)).await
    }

    async fn change(&mut self, statement: &SqlStatement) -> Result<u64, TableLinkError> {
        in_time(async {
            let result = self
                .conn
                .exec_iter(&*statement.sql, params(&statement.params))
                .await?;
            let count = result.affected_rows();
            result.drop_result().await?;
            Ok(count)
        })
        .await
    }

    async fn plan(&mut self, statement: &SqlStatement) -> Result<Vec<String>, TableLinkError> {
        let rows = self
            .run_query(&format!("EXPLAIN {}", statement.sql), &statement.params)
            .await?;
        let line = |row: Vec<SqlValue>| {
            // Every cell has its place, so that the columns can be told apart.
            let cells = row.into_iter().map(|cell| match cell {
                SqlValue::Text(text) | SqlValue::Digits(text) => text,
                SqlValue::Whole(number) => number.to_string(),
                SqlValue::Real(number) => number.to_string(),
                SqlValue::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                _ => "NULL".to_owned(),
            });
            cells.collect::<Vec<_>>().join(" | ")
        };
        Ok(rows.into_iter().map(line).collect())
    }

    async fn catalogue(&mut self, table: &str) -> Result<CatalogueLookup, TableLinkError> {
        const HERE: &str =
            "SELECT CONCAT(table_name), CONCAT(table_schema) FROM information_schema.tables
            WHERE table_schema = DATABASE() ORDER BY 1 LIMIT 10000";
        const THERE: &str =
            "SELECT CONCAT(table_name), CONCAT(table_schema) FROM information_schema.tables
            WHERE table_schema = ? ORDER BY 1 LIMIT 10000";
        let here = self.names(HERE, &[]).await?;
        if let Some(at) = match_name(table, here.iter().map(|(name, _)| name.as_str())) {
            let (name, database) = here[at].clone();
            let own = quoted(SqlDialect::Mysql, &name);
            return self.look_up(own, database, name).await;
        }
        if let Some((database, name)) = table.split_once('.') {
            let there = self
                .names(THERE, &[SqlParam::Text(database.to_owned())])
                .await?;
            if let Some(at) = match_name(name, there.iter().map(|(name, _)| name.as_str())) {
                let (name, database) = there[at].clone();
                let full = format!(
                    "{}.{}",
                    quoted(SqlDialect::Mysql, &database),
                    quoted(SqlDialect::Mysql, &name)
                );
                return self.look_up(full, database, name).await;
            }
        }
        Ok(CatalogueLookup::Others(
            here.into_iter().map(|(name, _)| name).collect(),
        ))
    }

    fn product(&self) -> &'static str {
        if self.is_mariadb { "MariaDB" } else { "MySQL" }
    }

    /// Older versions can only wait for one another: there a row is read as it is, and what its
    /// owner has locked shows when it is written.
    fn locking(&self) -> &'static str {
        if self.skips_locked {
            " FOR UPDATE SKIP LOCKED"
        } else {
            ""
        }
    }
}

impl MysqlTableLink {
    /// Tables and their databases. No more is asked of all of them: MySQL opens every table for
    /// more.
    async fn names(
        &mut self,
        query: &str,
        of: &[SqlParam],
    ) -> Result<Vec<(String, String)>, TableLinkError> {
        let names = |row: Vec<SqlValue>| match <[SqlValue; 2]>::try_from(row) {
            Ok([SqlValue::Text(name), SqlValue::Text(database)]) => Some((name, database)),
            _ => None,
        };
        Ok(self
            .run_query(query, of)
            .await?
            .into_iter()
            .filter_map(names)
            .collect())
    }

    async fn look_up(
        &mut self,
        quoted: String,
        database: String,
        name: String,
    ) -> Result<CatalogueLookup, TableLinkError> {
        const KIND: &str = "SELECT CASE WHEN table_type LIKE '%VIEW' THEN 'v' WHEN create_options LIKE '%partitioned%' THEN 'p' ELSE 'r' END
            FROM information_schema.tables WHERE table_schema = ? AND table_name = ?";
        let of_table = [SqlParam::Text(database), SqlParam::Text(name.clone())];
        let kind = self
            .run_query(KIND, &of_table)
            .await?
            .into_iter()
            .flatten()
            .next();
        let relation = match kind {
            Some(SqlValue::Text(kind)) if kind == "v" => RelationKind::View,
            Some(SqlValue::Text(kind)) if kind == "p" => RelationKind::Parts,
            _ => RelationKind::Table,
        };
        let (columns, indexes) = (
            self.columns(&of_table).await?,
            self.indexes(&of_table).await?,
        );
        Ok(CatalogueLookup::Table(TableCatalogue {
            quoted,
            name,
            relation,
            columns,
            indexes,
        }))
    }

    async fn columns(&mut self, of_table: &[SqlParam]) -> Result<Vec<TableColumn>, TableLinkError> {
        const COLUMNS: &str = "SELECT CONCAT(column_name), CONCAT(column_type), CONCAT(data_type), CAST(COALESCE(datetime_precision, 0) AS SIGNED)
            FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
        let mut columns = Vec::new();
        for row in self.run_query(COLUMNS, of_table).await? {
            let [
                SqlValue::Text(name),
                SqlValue::Text(type_name),
                SqlValue::Text(base),
                SqlValue::Whole(digits),
            ] = &row[..]
            else {
                continue;
            };
            columns.push(column_of(name, type_name, base, *digits));
        }
        Ok(columns)
    }

    async fn indexes(&mut self, of_table: &[SqlParam]) -> Result<Vec<TableIndex>, TableLinkError> {
        const INDEXES: &str = "SELECT CONCAT(index_name), CONCAT(COALESCE(column_name, '')), CAST(non_unique AS SIGNED)
            FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? ORDER BY index_name, seq_in_index";
        let mut indexes: Vec<TableIndex> = Vec::new();
        for row in self.run_query(INDEXES, of_table).await? {
            let [
                SqlValue::Text(name),
                SqlValue::Text(column),
                SqlValue::Whole(non_unique),
            ] = &row[..]
            else {
                continue;
            };
            match indexes.last_mut().filter(|index| index.name == *name) {
                Some(index) => index.columns.push(column.clone()),
                None => indexes.push(TableIndex {
                    name: name.clone(),
                    columns: vec![column.clone()],
                    is_partial: false,
                    is_unique: *non_unique == 0,
                }),
            }
        }
        Ok(indexes)
    }
}

fn column_of(name: &str, type_name: &str, base: &str, digits: i128) -> TableColumn {
    let kind = match base.to_ascii_lowercase().as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => ColumnKind::Whole,
        "decimal" | "float" | "double" => ColumnKind::Real,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" => {
            ColumnKind::Text
        }
        "datetime" | "timestamp" | "date" => ColumnKind::Time,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
            ColumnKind::Bytes
        }
        _ => ColumnKind::Other,
    };
    let digits = u8::try_from(digits).unwrap_or(6).min(6);
    TableColumn {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        cast: String::new(),
        kind,
        digits,
    }
}
