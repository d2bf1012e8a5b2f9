//! Tables in a SQLite file, on a thread that may wait for it.

use super::catalogue::{
    CatalogueLookup, ColumnKind, RelationKind, TableCatalogue, TableColumn, TableIndex, match_name,
};
use super::link::{SqlParam, SqlStatement, TableLink, TableLinkError, TransactionMode};
use super::row::SqlValue;
use super::sql::quoted;
use crate::address::StoreAddress;
use async_trait::async_trait;
use backstop_core::limits::TABLE_STATEMENT_MAX;
use backstop_core::sweep::SqlDialect;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, InterruptHandle, OpenFlags, params_from_iter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long somebody who writes may hold a statement up.
const BUSY: Duration = Duration::from_secs(10);

struct SqliteTableLink {
    db: Arc<Mutex<Connection>>,
    interrupt: Arc<InterruptHandle>,
}

pub(super) async fn connect(address: &StoreAddress) -> Result<Box<dyn TableLink>, TableLinkError> {
    let file = address
        .sqlite_file()
        .map(ToOwned::to_owned)
        .unwrap_or_default();
    let opened = tokio::task::spawn_blocking(move || {
        // Never made by looking for a table in it.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(file, flags)?;
        db.busy_timeout(BUSY)?;
        Ok::<_, rusqlite::Error>(db)
    });
    let db = opened
        .await
        .map_err(|error| TableLinkError::Failed(error.to_string()))?
        .map_err(link_error)?;
    let interrupt = Arc::new(db.get_interrupt_handle());
    Ok(Box::new(SqliteTableLink {
        db: Arc::new(Mutex::new(db)),
        interrupt,
    }))
}

#[expect(clippy::needless_pass_by_value, reason = "to be handed to `map_err`")]
fn link_error(error: rusqlite::Error) -> TableLinkError {
    TableLinkError::Failed(error.to_string())
}

impl SqliteTableLink {
    /// Does something with the connection, and stops it at its deadline.
    async fn call<T, F>(&self, work: F) -> Result<T, TableLinkError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let db = Arc::clone(&self.db);
        let mut working = tokio::task::spawn_blocking(move || {
            // One connection, whose transactions end with it.
            work(&db.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let panicked = |error: tokio::task::JoinError| TableLinkError::Failed(error.to_string());
        if let Ok(done) = tokio::time::timeout(TABLE_STATEMENT_MAX.into(), &mut working).await {
            return done.map_err(panicked)?.map_err(link_error);
        }
        self.interrupt.interrupt();
        let _ = working.await;
        Err(TableLinkError::TooSlow)
    }
}

#[async_trait]
impl TableLink for SqliteTableLink {
    async fn begin(&mut self, mode: TransactionMode) -> Result<(), TableLinkError> {
        self.run(match mode {
            TransactionMode::Reading => "BEGIN",
            TransactionMode::Writing => "BEGIN IMMEDIATE",
        })
        .await
    }

    async fn commit(&mut self) -> Result<(), TableLinkError> {
        self.run("COMMIT").await
    }

    async fn roll_back(&mut self) {
        let _ = self
            .call(|db| {
                if db.is_autocommit() {
                    Ok(())
                } else {
                    db.execute_batch("ROLLBACK")
                }
            })
            .await;
    }

    async fn rows(
        &mut self,
        statement: &SqlStatement,
    ) -> Result<Vec<Vec<SqlValue>>, TableLinkError> {
        let statement = statement.clone();
        self.call(move |db| query(db, &statement.sql, &statement.params))
            .await
    }

    async fn run(&mut self, sql: &str) -> Result<(), TableLinkError> {
        let sql = sql.to_owned();
        self.call(move |db| db.execute_batch(&sql)).await
    }

    async fn change(&mut self, statement: &SqlStatement) -> Result<u64, TableLinkError> {
        let statement = statement.clone();
        let changed = move |db: &Connection| {
            db.prepare_cached(&statement.sql)?
                .execute(params_from_iter(statement.params.iter().map(value)))
        };
        self.call(changed).await.map(|count| count as u64)
    }

    async fn plan(&mut self, statement: &SqlStatement) -> Result<Vec<String>, TableLinkError> {
        let SqlStatement { sql, params, .. } = statement.clone();
        let rows = self
            .call(move |db| query(db, &format!("EXPLAIN QUERY PLAN {sql}"), &params))
            .await?;
        let line = |row: Vec<SqlValue>| match row.into_iter().nth(3) {
            Some(SqlValue::Text(line)) => Some(line),
            _ => None,
        };
        Ok(rows.into_iter().filter_map(line).collect())
    }

    async fn catalogue(&mut self, table: &str) -> Result<CatalogueLookup, TableLinkError> {
        let table = table.to_owned();
        self.call(move |db| catalogue(db, &table)).await
    }

    fn product(&self) -> &'static str {
        "SQLite"
    }

    /// A transaction that writes has the whole file to itself.
    fn locking(&self) -> &'static str {
        ""
    }
}

fn value(param: &SqlParam) -> Value {
    match param {
        SqlParam::Whole(number) => {
            i64::try_from(*number).map_or_else(|_| Value::Text(number.to_string()), Value::Integer)
        }
        SqlParam::Text(text) => Value::Text(text.clone()),
        SqlParam::Bytes(bytes) => Value::Blob(bytes.clone()),
    }
}

fn query(db: &Connection, sql: &str, params: &[SqlParam]) -> rusqlite::Result<Vec<Vec<SqlValue>>> {
    let mut statement = db.prepare_cached(sql)?;
    let width = statement.column_count();
    let mut rows = statement.query(params_from_iter(params.iter().map(value)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let cells = (0..width).map(|at| row.get_ref(at).map(cell));
        found.push(cells.collect::<rusqlite::Result<_>>()?);
    }
    Ok(found)
}

fn cell(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Whole(number.into()),
        ValueRef::Real(number) => SqlValue::Real(number),
        ValueRef::Text(bytes) => String::from_utf8(bytes.to_vec())
            .map_or_else(|error| SqlValue::Broken(error.into_bytes()), SqlValue::Text),
        ValueRef::Blob(bytes) => SqlValue::Bytes(bytes.to_vec()),
    }
}

fn catalogue(db: &Connection, wanted: &str) -> rusqlite::Result<CatalogueLookup> {
    // With columns that are made of others, and without those that a virtual table hides.
    const COLUMNS: &str =
        "SELECT name, type, pk FROM pragma_table_xinfo(?1) WHERE hidden IN (0, 2, 3)";
    let names = texts(
        db,
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
        &[],
    )?;
    let Some(at) = match_name(wanted, names.iter().map(String::as_str)) else {
        return Ok(CatalogueLookup::Others(names));
    };
    let name = names[at].clone();
    let of_table = [SqlParam::Text(name.clone())];
    let mut columns = Vec::new();
    let mut row_id = None;
    for row in query(db, COLUMNS, &of_table)? {
        let [
            SqlValue::Text(column),
            SqlValue::Text(declared),
            SqlValue::Whole(pk),
        ] = &row[..]
        else {
            continue;
        };
        if *pk == 1 {
            row_id = Some(column.clone());
        }
        columns.push(column_of(column, declared));
    }
    let mut indexes = Vec::new();
    for row in query(
        db,
        "SELECT name, \"unique\", partial FROM pragma_index_list(?1)",
        &of_table,
    )? {
        let [
            SqlValue::Text(index),
            SqlValue::Whole(is_unique),
            SqlValue::Whole(is_partial),
        ] = &row[..]
        else {
            continue;
        };
        let of_index = [SqlParam::Text(index.clone())];
        let columns = texts(
            db,
            "SELECT coalesce(name, '') FROM pragma_index_info(?1) ORDER BY seqno",
            &of_index,
        )?;
        indexes.push(TableIndex {
            name: index.clone(),
            columns,
            is_partial: *is_partial != 0,
            is_unique: *is_unique != 0,
        });
    }
    let keys = query(
        db,
        "SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0",
        &of_table,
    )?;
    if let (Some(column), Some([SqlValue::Whole(1)])) = (row_id, keys.first().map(Vec::as_slice)) {
        // An INTEGER PRIMARY KEY is the row's own number, and has no index of its own in the list.
        indexes.push(TableIndex {
            name: "the primary key".to_owned(),
            columns: vec![column],
            is_partial: false,
            is_unique: true,
        });
    }
    let views = texts(
        db,
        "SELECT name FROM sqlite_schema WHERE type = 'view' AND name = ?1",
        &of_table,
    )?;
    let relation = if views.is_empty() {
        RelationKind::Table
    } else {
        RelationKind::View
    };
    Ok(CatalogueLookup::Table(TableCatalogue {
        quoted: quoted(SqlDialect::Sqlite, &name),
        name,
        relation,
        columns,
        indexes,
    }))
}

fn texts(db: &Connection, sql: &str, params: &[SqlParam]) -> rusqlite::Result<Vec<String>> {
    let text = |row: Vec<SqlValue>| match row.into_iter().next() {
        Some(SqlValue::Text(text)) => Some(text),
        _ => None,
    };
    Ok(query(db, sql, params)?
        .into_iter()
        .filter_map(text)
        .collect())
}

/// A column by its declared type, as SQLite makes an affinity of it.
fn column_of(name: &str, declared: &str) -> TableColumn {
    let upper = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    let kind = if has(&["INT"]) {
        ColumnKind::Whole
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        ColumnKind::Text
    } else if has(&["BLOB"]) {
        ColumnKind::Bytes
    } else {
        ColumnKind::Any
    };
    TableColumn {
        name: name.to_owned(),
        type_name: declared.to_owned(),
        cast: String::new(),
        kind,
        digits: 0,
    }
}
