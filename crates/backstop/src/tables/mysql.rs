//! Tables on a MySQL or MariaDB server.

use super::catalogue::{Catalogue, Column, Found, Index, Kind, Relation, meant};
use super::link::{For, Link, LinkError, Param, Statement};
use super::row::Cell;
use super::sql::quoted;
use crate::address::Address;
use crate::source::mysql::{connect as reach, is_mariadb, is_stopped, time_limit};
use async_trait::async_trait;
use backstop_core::limits::TABLE_STATEMENT_MAX;
use backstop_core::sweep::Dialect;
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Value};
use std::time::Duration;

/// What an answer may take on its way, beside the statement.
const BESIDE: Duration = Duration::from_secs(15);
/// The character set of bytes that are no text.
const BINARY: u16 = 63;
/// What a server says of a lock that was waited for in vain.
const LOCKED: u16 = 1205;
/// The first versions that leave out locked rows: MariaDB's and MySQL's.
const SKIPS_LOCKED: [(u32, u32); 2] = [(10, 6), (8, 0)];

struct Mysql {
    conn: Conn,
    is_mariadb: bool,
    skips_locked: bool,
}

pub(super) async fn connect(address: &Address) -> Result<Box<dyn Link>, LinkError> {
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
        Ok(Mysql {
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
) -> Result<T, LinkError> {
    match tokio::time::timeout(Duration::from(TABLE_STATEMENT_MAX) + BESIDE, work).await {
        Ok(done) => done.map_err(|error| failed(&error)),
        Err(_) => Err(LinkError::TooSlow),
    }
}

fn failed(error: &mysql_async::Error) -> LinkError {
    match error {
        mysql_async::Error::Server(said) if is_stopped(said) => LinkError::TooSlow,
        mysql_async::Error::Server(said) => {
            let text = format!("{} ({})", said.message, said.code);
            if said.code == LOCKED {
                LinkError::Locked(text)
            } else {
                LinkError::Failed(text)
            }
        }
        other => LinkError::Failed(other.to_string()),
    }
}

fn params(params: &[Param]) -> Params {
    let value = |param: &Param| match param {
        Param::Whole(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => Value::Int(number),
            (_, Ok(number)) => Value::UInt(number),
            _ => Value::Bytes(number.to_string().into_bytes()),
        },
        Param::Text(text) => Value::Bytes(text.clone().into_bytes()),
        Param::Bytes(bytes) => Value::Bytes(bytes.clone()),
    };
    if params.is_empty() {
        Params::Empty
    } else {
        Params::Positional(params.iter().map(value).collect())
    }
}

impl Mysql {
    async fn ask(&mut self, sql: &str, asked: &[Param]) -> Result<Vec<Vec<Cell>>, LinkError> {
        in_time(async {
            let mut result = self.conn.exec_iter(sql, params(asked)).await?;
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

fn cell(value: Value, column: &mysql_async::Column) -> Cell {
    match value {
        Value::NULL => Cell::Null,
        Value::Int(number) => Cell::Whole(number.into()),
        Value::UInt(number) => Cell::Whole(number.into()),
        // The shortest digits of the single: as a double it would get digits that nobody wrote.
        Value::Float(number) if number.is_finite() => Cell::Digits(number.to_string()),
        Value::Float(number) => Cell::Real(number.into()),
        Value::Double(number) => Cell::Real(number),
        Value::Bytes(bytes) => bytes_cell(bytes, column),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            Cell::Text(match column.column_type() {
                ColumnType::MYSQL_TYPE_DATE => date,
                _ => format!("{date} {hour:02}:{minute:02}:{second:02}{}", part(micros)),
            })
        }
        Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let (sign, hours) = (
                if is_negative { "-" } else { "" },
                days * 24 + u32::from(hours),
            );
            Cell::Text(format!(
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

fn bytes_cell(bytes: Vec<u8>, column: &mysql_async::Column) -> Cell {
    let is_number = matches!(
        column.column_type(),
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL
    );
    let is_json = column.column_type() == ColumnType::MYSQL_TYPE_JSON;
    match String::from_utf8(bytes) {
        Ok(digits) if is_number => Cell::Digits(digits),
        Ok(json) if is_json => Cell::Json(json),
        Ok(text) if column.character_set() != BINARY => Cell::Text(text),
        Ok(text) => Cell::Bytes(text.into_bytes()),
        Err(error) => Cell::Bytes(error.into_bytes()),
    }
}

#[async_trait]
impl Link for Mysql {
    async fn begin(&mut self, purpose: For) -> Result<(), LinkError> {
        let begin = match purpose {
            For::Reading => "START TRANSACTION READ ONLY",
            For::Writing => "START TRANSACTION READ WRITE",
        };
        in_time(self.conn.query_drop(begin)).await
    }

    async fn commit(&mut self) -> Result<(), LinkError> {
        in_time(self.conn.query_drop("COMMIT")).await
    }

    async fn roll_back(&mut self) {
        let _ = in_time(self.conn.query_drop("ROLLBACK")).await;
    }

    async fn rows(&mut self, statement: &Statement) -> Result<Vec<Vec<Cell>>, LinkError> {
        self.ask(&statement.sql, &statement.params).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), LinkError> {
        in_time(self.conn.query_drop(sql)).await
    }

    async fn change(&mut self, statement: &Statement) -> Result<u64, LinkError> {
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

    async fn plan(&mut self, statement: &Statement) -> Result<Vec<String>, LinkError> {
        let rows = self
            .ask(&format!("EXPLAIN {}", statement.sql), &statement.params)
            .await?;
        let line = |row: Vec<Cell>| {
            // Every cell has its place, so that the columns can be told apart.
            let cells = row.into_iter().map(|cell| match cell {
                Cell::Text(text) | Cell::Digits(text) => text,
                Cell::Whole(number) => number.to_string(),
                Cell::Real(number) => number.to_string(),
                Cell::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                _ => "NULL".to_owned(),
            });
            cells.collect::<Vec<_>>().join(" | ")
        };
        Ok(rows.into_iter().map(line).collect())
    }

    async fn catalogue(&mut self, table: &str) -> Result<Found, LinkError> {
        const HERE: &str =
            "SELECT CONCAT(table_name), CONCAT(table_schema) FROM information_schema.tables
            WHERE table_schema = DATABASE() ORDER BY 1 LIMIT 10000";
        const THERE: &str =
            "SELECT CONCAT(table_name), CONCAT(table_schema) FROM information_schema.tables
            WHERE table_schema = ? ORDER BY 1 LIMIT 10000";
        let here = self.names(HERE, &[]).await?;
        if let Some(at) = meant(table, here.iter().map(|(name, _)| name.as_str())) {
            let (name, database) = here[at].clone();
            let own = quoted(Dialect::Mysql, &name);
            return self.look_up(own, database, name).await;
        }
        if let Some((database, name)) = table.split_once('.') {
            let there = self
                .names(THERE, &[Param::Text(database.to_owned())])
                .await?;
            if let Some(at) = meant(name, there.iter().map(|(name, _)| name.as_str())) {
                let (name, database) = there[at].clone();
                let full = format!(
                    "{}.{}",
                    quoted(Dialect::Mysql, &database),
                    quoted(Dialect::Mysql, &name)
                );
                return self.look_up(full, database, name).await;
            }
        }
        Ok(Found::Others(
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

impl Mysql {
    /// Tables and their databases. No more is asked of all of them: MySQL opens every table for
    /// more.
    async fn names(
        &mut self,
        asked: &str,
        of: &[Param],
    ) -> Result<Vec<(String, String)>, LinkError> {
        let names = |row: Vec<Cell>| match <[Cell; 2]>::try_from(row) {
            Ok([Cell::Text(name), Cell::Text(database)]) => Some((name, database)),
            _ => None,
        };
        Ok(self
            .ask(asked, of)
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
    ) -> Result<Found, LinkError> {
        const KIND: &str = "SELECT CASE WHEN table_type LIKE '%VIEW' THEN 'v' WHEN create_options LIKE '%partitioned%' THEN 'p' ELSE 'r' END
            FROM information_schema.tables WHERE table_schema = ? AND table_name = ?";
        let of_table = [Param::Text(database), Param::Text(name.clone())];
        let kind = self
            .ask(KIND, &of_table)
            .await?
            .into_iter()
            .flatten()
            .next();
        let relation = match kind {
            Some(Cell::Text(kind)) if kind == "v" => Relation::View,
            Some(Cell::Text(kind)) if kind == "p" => Relation::Parts,
            _ => Relation::Table,
        };
        let (columns, indexes) = (
            self.columns(&of_table).await?,
            self.indexes(&of_table).await?,
        );
        Ok(Found::Table(Catalogue {
            quoted,
            name,
            relation,
            columns,
            indexes,
        }))
    }

    async fn columns(&mut self, of_table: &[Param]) -> Result<Vec<Column>, LinkError> {
        const COLUMNS: &str = "SELECT CONCAT(column_name), CONCAT(column_type), CONCAT(data_type), CAST(COALESCE(datetime_precision, 0) AS SIGNED)
            FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
        let mut columns = Vec::new();
        for row in self.ask(COLUMNS, of_table).await? {
            let [
                Cell::Text(name),
                Cell::Text(type_name),
                Cell::Text(base),
                Cell::Whole(digits),
            ] = &row[..]
            else {
                continue;
            };
            columns.push(column_of(name, type_name, base, *digits));
        }
        Ok(columns)
    }

    async fn indexes(&mut self, of_table: &[Param]) -> Result<Vec<Index>, LinkError> {
        const INDEXES: &str = "SELECT CONCAT(index_name), CONCAT(COALESCE(column_name, '')), CAST(non_unique AS SIGNED)
            FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? ORDER BY index_name, seq_in_index";
        let mut indexes: Vec<Index> = Vec::new();
        for row in self.ask(INDEXES, of_table).await? {
            let [
                Cell::Text(name),
                Cell::Text(column),
                Cell::Whole(non_unique),
            ] = &row[..]
            else {
                continue;
            };
            match indexes.last_mut().filter(|index| index.name == *name) {
                Some(index) => index.columns.push(column.clone()),
                None => indexes.push(Index {
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

fn column_of(name: &str, type_name: &str, base: &str, digits: i128) -> Column {
    let kind = match base.to_ascii_lowercase().as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Whole,
        "decimal" | "float" | "double" => Kind::Real,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" => Kind::Text,
        "datetime" | "timestamp" | "date" => Kind::Time,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes,
        _ => Kind::Other,
    };
    let digits = u8::try_from(digits).unwrap_or(6).min(6);
    Column {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        cast: String::new(),
        kind,
        digits,
    }
}
