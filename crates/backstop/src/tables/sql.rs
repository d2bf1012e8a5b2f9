//! The statements that a table is worked off with, in the SQL of its database.
//!
//! Due rows are told from the others in the query, before its limit. The query is a union of
//! branches that an index can answer each:
//!
//! | rows are tried | one branch for | answered by an index on |
//! |---|---|---|
//! | by age | each status and each window of insertion whose band has ticked, newest first up to the limit | status, inserted |
//! | by failures, without the second index | each status, newest first up to the limit | status, inserted |
//! | by failures, with it | all numbers of failures whose wait is over; and new rows as above | status, failures, last failure |
//!
//! Where many are due at once, the newest errors are looked at first, in the order of the first
//! index: see [`super::newest_first`].
//!
//! One branch with `status IN (…)` instead of two lost: ordered by insertion it has to sort every
//! open row, 10,000,000 of them in seconds. Names come from the catalogue and are quoted;
//! everything else is a parameter.

mod dates;
mod expired;
mod pick;
mod rows;
mod survey;

pub(super) use expired::{count_expired, failed_too_often_beyond, list_expired};
pub(super) use pick::{
    RowPlace, failed_after, next_due, pick, pick_apart, pick_beyond, pick_newest,
};
pub(super) use survey::survey;

use super::catalogue::{ColumnKind, TableColumn};
use super::link::{SqlParam, SqlStatement};
use super::row::RowKey;
use super::schema::{ColumnRoles, DateColumn, FailureColumns, TableSchema};
use super::{StatusValues, Table};
use backstop_core::Time;
use backstop_core::sweep::SqlDialect;
use backstop_core::table::date::DateValue;
use std::fmt::Write;

/// A statement that is being written.
pub(super) struct SqlBuilder {
    dialect: SqlDialect,
    text: String,
    params: Vec<SqlParam>,
}

impl SqlBuilder {
    pub(super) fn new(dialect: SqlDialect) -> Self {
        Self {
            dialect,
            text: String::new(),
            params: Vec::new(),
        }
    }

    /// Words of ours. Never anything from elsewhere.
    pub(super) fn push(&mut self, words: &str) -> &mut Self {
        self.text.push_str(words);
        self
    }

    pub(super) fn number(&mut self, number: usize) -> &mut Self {
        let _ = write!(self.text, "{number}");
        self
    }

    /// The name of a column.
    pub(super) fn name(&mut self, column: &TableColumn) -> &mut Self {
        self.text.push_str(&quoted(self.dialect, &column.name));
        self
    }

    /// A parameter that is compared with a column, or written to it.
    pub(super) fn value(&mut self, param: SqlParam, column: &TableColumn) -> &mut Self {
        self.cast(param, &column.cast)
    }

    /// A parameter of a type: PostgreSQL has to be told which.
    pub(super) fn cast(&mut self, param: SqlParam, cast: &str) -> &mut Self {
        self.params.push(param);
        let number = self.params.len();
        let _ = match self.dialect {
            SqlDialect::Sqlite => write!(self.text, "?{number}"),
            SqlDialect::Mysql => write!(self.text, "?"),
            SqlDialect::Postgres if cast == "text" => write!(self.text, "${number}::text"),
            SqlDialect::Postgres => write!(self.text, "${number}::text::{cast}"),
        };
        self
    }

    pub(super) fn build(self) -> SqlStatement {
        SqlStatement {
            sql: self.text,
            params: self.params,
            is_indexed: false,
        }
    }

    /// The same, where indexes lead to all that it asks for.
    pub(super) fn build_indexed(self, is_indexed: bool) -> SqlStatement {
        SqlStatement {
            is_indexed,
            ..self.build()
        }
    }

    /// A key as it can be read back.
    fn key(&mut self, column: &TableColumn) -> &mut Self {
        self.name(column);
        match (self.dialect, column.kind) {
            (SqlDialect::Postgres, ColumnKind::Whole) => self.push("::bigint"),
            (SqlDialect::Postgres, _) => self.push("::text"),
            _ => self,
        }
    }

    /// A column as the database writes it, to come back to it.
    fn raw(&mut self, column: &TableColumn) -> &mut Self {
        self.name(column);
        if self.dialect == SqlDialect::Postgres {
            self.push("::text")
        } else {
            self
        }
    }

    /// What tells the place of a row in the order of its table: key and insertion to be read, then
    /// both to be ordered by. These are names that no column has: of two that are alike, an order
    /// would be by ours.
    fn place_columns(&mut self, shape: &TableSchema) -> &mut Self {
        self.key(&shape.id)
            .push(" AS backstop_k, ")
            .read_ordinal(&shape.inserted)
            .push(" AS backstop_i, ");
        self.ordinal(&shape.inserted)
            .push(" AS backstop_o, ")
            .name(&shape.id)
            .push(" AS backstop_d")
    }

    /// The row has one of these keys.
    fn has_key(&mut self, column: &TableColumn, keys: &[RowKey]) -> &mut Self {
        self.name(column).push(" IN (");
        for (at, key) in keys.iter().enumerate() {
            self.push(if at == 0 { "" } else { ", " })
                .value(key.param(), column);
        }
        self.push(")")
    }
}

/// A name between quotes, with those inside it doubled.
pub(super) fn quoted(dialect: SqlDialect, name: &str) -> String {
    match dialect {
        SqlDialect::Mysql => format!("`{}`", name.replace('`', "``")),
        SqlDialect::Sqlite | SqlDialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The word of an open state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpenState {
    New,
    Error,
}

impl OpenState {
    pub(super) const ALL: [Self; 2] = [Self::New, Self::Error];

    fn word(self, states: &StatusValues) -> &str {
        match self {
            Self::New => &states.new,
            Self::Error => &states.error,
        }
    }
}

fn status_is(sql: &mut SqlBuilder, shape: &TableSchema, word: &str) {
    sql.name(&shape.status)
        .push(" = ")
        .value(SqlParam::Text(word.to_owned()), &shape.status);
}

fn is_open(sql: &mut SqlBuilder, shape: &TableSchema, states: &StatusValues) {
    sql.name(&shape.status).push(" IN (");
    sql.value(SqlParam::Text(states.new.clone()), &shape.status)
        .push(", ");
    sql.value(SqlParam::Text(states.error.clone()), &shape.status)
        .push(")");
}

/// The dates of the latest rows, to see how they are written.
pub(super) fn sample(
    dialect: SqlDialect,
    table: &str,
    id: &TableColumn,
    date: &TableColumn,
    max: usize,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(dialect);
    sql.push("SELECT ").key(date).push(" FROM ").push(table);
    sql.push(" ORDER BY ")
        .name(id)
        .push(" DESC LIMIT ")
        .number(max);
    sql.build()
}

/// Dates of failures, of the latest rows that failed: the latest of all may have none. Looks
/// through no more than a few rows, so that a table whose errors have no dates yet is not read to
/// its end.
pub(super) fn sample_failures(
    dialect: SqlDialect,
    table: &str,
    roles: &ColumnRoles<'_>,
    error: &str,
    max: usize,
) -> Option<SqlStatement> {
    let (status, inserted) = (roles.status?, roles.inserted?);
    // A type of the database's own says it by itself.
    let last = roles
        .last_failure
        .filter(|last| last.kind != ColumnKind::Time)?;
    let mut sql = SqlBuilder::new(dialect);
    sql.push("SELECT ")
        .key(last)
        .push(" FROM (SELECT ")
        .name(last)
        .push(" FROM ")
        .push(table)
        .push(" WHERE ");
    sql.name(status)
        .push(" = ")
        .value(SqlParam::Text(error.to_owned()), status);
    sql.push(" ORDER BY ")
        .name(inserted)
        .push(" DESC LIMIT ")
        .number(SAMPLED_FROM)
        .push(") AS s WHERE ");
    sql.name(last).push(" IS NOT NULL LIMIT ").number(max);
    Some(sql.build())
}

/// Rows that are looked through for dates of failures.
const SAMPLED_FROM: usize = 1_000;

/// What a row needs to be judged, handled and written back: key, status (n, e, s), failures, last
/// failure, inserted, and the whole of it.
pub(super) fn select_by_keys(
    table: &Table,
    shape: &TableSchema,
    keys: &[RowKey],
    locking: &str,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    select_rows(&mut sql, table, shape);
    sql.push(" WHERE ").has_key(&shape.id, keys).push(locking);
    sql.build()
}

fn select_rows(sql: &mut SqlBuilder, table: &Table, shape: &TableSchema) {
    sql.push("SELECT ").key(&shape.id).push(", CASE WHEN ");
    status_is(sql, shape, &table.states.new);
    sql.push(" THEN 'n' WHEN ");
    status_is(sql, shape, &table.states.error);
    sql.push(" THEN 'e' WHEN ");
    status_is(sql, shape, &table.states.success);
    sql.push(" THEN 's' END, ");
    match &shape.failed {
        Some(failed) => {
            sql.key(&failed.failures)
                .push(", ")
                .read_date(&failed.last_failure);
        }
        None => {
            sql.push("NULL, NULL");
        }
    }
    sql.push(", ").read_date(&shape.inserted).push(", ");
    whole_row(sql, shape);
    sql.push(" FROM ")
        .push(&shape.catalogue.quoted)
        .push(" AS t");
}

/// All columns; of PostgreSQL, which knows best how its types look as JSON, one text.
fn whole_row(sql: &mut SqlBuilder, shape: &TableSchema) {
    let is_postgres = shape.dialect == SqlDialect::Postgres;
    if is_postgres {
        sql.push("(SELECT row_to_json(backstop_j)::text FROM (SELECT ");
    }
    for (at, column) in shape.catalogue.columns.iter().enumerate() {
        sql.push(if at == 0 { "" } else { ", " });
        if is_postgres && column.kind == ColumnKind::Bytes {
            sql.push("translate(encode(t.")
                .name(column)
                .push(", 'base64'), E'\\n', '') AS ")
                .name(column);
        } else {
            sql.push("t.").name(column);
        }
    }
    if is_postgres {
        sql.push(") AS backstop_j)");
    }
}

/// What becomes of a row, if it still is as it was seen.
pub(super) struct RowChange<'a> {
    pub(super) key: &'a RowKey,
    pub(super) seen: OpenState,
    /// The failures as they were; `None` if there was no number.
    pub(super) failures: Option<i128>,
    pub(super) to: RowOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowOutcome {
    Success,
    /// It failed then, and has so many failures now.
    Error {
        at: Time,
        failures: u32,
    },
}

pub(super) fn change(table: &Table, shape: &TableSchema, change: &RowChange<'_>) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("UPDATE ")
        .push(&shape.catalogue.quoted)
        .push(" SET ")
        .name(&shape.status)
        .push(" = ");
    let word = match change.to {
        RowOutcome::Success => &table.states.success,
        RowOutcome::Error { .. } => &table.states.error,
    };
    sql.value(SqlParam::Text(word.clone()), &shape.status);
    if let (Some(failed), RowOutcome::Error { at, failures }) = (&shape.failed, change.to) {
        sql.push(", ").name(&failed.failures).push(" = ");
        sql.value(SqlParam::Whole(failures.into()), &failed.failures);
        sql.push(", ");
        set_date(&mut sql, &failed.last_failure, at);
    }
    sql.push(" WHERE ")
        .has_key(&shape.id, std::slice::from_ref(change.key))
        .push(" AND ");
    status_is(&mut sql, shape, change.seen.word(&table.states));
    if let Some(failed) = &shape.failed {
        sql.push(" AND ")
            .failed_as_seen(&failed.failures, change.failures);
    }
    sql.build()
}

fn set_date(sql: &mut SqlBuilder, column: &DateColumn, at: Time) {
    sql.name(&column.column).push(" = ");
    let param = match column.form.write(at) {
        DateValue::Number(number) => SqlParam::Whole(number.into()),
        DateValue::Text(text) => SqlParam::Text(text),
    };
    sql.value_of_date(param, column);
}

/// Sets failures after a time to that time.
pub(super) fn redate(
    table: &Table,
    shape: &TableSchema,
    failed: &FailureColumns,
    time: Time,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("UPDATE ")
        .push(&shape.catalogue.quoted)
        .push(" SET ");
    set_date(&mut sql, &failed.last_failure, time);
    sql.push(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.push(" AND ").failed_at_least(&failed.failures, 1);
    sql.push(" AND ").after(&failed.last_failure, time);
    sql.build()
}

/// How many rows there are of each word of the status column.
pub(super) fn count_states(shape: &TableSchema, states: &StatusValues) -> SqlStatement {
    count_words(
        shape.dialect,
        &shape.catalogue.quoted,
        &shape.status,
        None,
        states,
        STATES_MAX,
    )
}

/// The same of so many words at most, with how many of the rows have no date. The words of the
/// configuration come first, then the most frequent ones: no limit leaves a state out.
pub(super) fn count_words(
    dialect: SqlDialect,
    table: &str,
    status: &TableColumn,
    date: Option<&TableColumn>,
    states: &StatusValues,
    max: usize,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(dialect);
    sql.push("SELECT ").raw(status).push(", count(*)");
    if let Some(date) = date {
        sql.push(", count(CASE WHEN ")
            .name(date)
            .push(" IS NULL THEN 1 END)");
    }
    sql.push(" FROM ")
        .push(table)
        .push(" GROUP BY ")
        .name(status);
    sql.push(" ORDER BY CASE WHEN ").raw(status).push(" IN (");
    for (at, word) in [&states.new, &states.error, &states.success]
        .into_iter()
        .enumerate()
    {
        // As text: an enumeration may lack the word.
        sql.push(if at == 0 { "" } else { ", " })
            .cast(SqlParam::Text(word.clone()), "text");
    }
    sql.push(") THEN 0 ELSE 1 END, 2 DESC, 1 LIMIT ")
        .number(max);
    sql.build()
}

/// Different words of a status column that are counted.
const STATES_MAX: usize = 1_000;

/// How many open rows of a state were inserted in a stretch of time.
pub(super) fn count_open(
    table: &Table,
    shape: &TableSchema,
    state: OpenState,
    from: Option<Time>,
    before: Option<Time>,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT count(*) FROM ")
        .push(&shape.catalogue.quoted)
        .push(" WHERE ");
    status_is(&mut sql, shape, state.word(&table.states));
    if let Some(from) = from {
        sql.push(" AND ").at_or_after(&shape.inserted, from);
    }
    if let Some(before) = before {
        sql.push(" AND ").before(&shape.inserted, before);
    }
    sql.build()
}

/// A change of no row, which only says whether it may be made.
pub(super) fn change_nothing(shape: &TableSchema) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("UPDATE ")
        .push(&shape.catalogue.quoted)
        .push(" SET ");
    let mut columns = vec![&shape.status];
    if let Some(failed) = &shape.failed {
        columns.extend([&failed.failures, &failed.last_failure.column]);
    }
    for (at, column) in columns.into_iter().enumerate() {
        sql.push(if at == 0 { "" } else { ", " })
            .name(column)
            .push(" = ")
            .name(column);
    }
    sql.push(" WHERE 1 = 0");
    sql.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_quotes() {
        assert_eq!(
            quoted(SqlDialect::Sqlite, "a\"; DROP TABLE x; --"),
            "\"a\"\"; DROP TABLE x; --\""
        );
        assert_eq!(quoted(SqlDialect::Postgres, "a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted(SqlDialect::Mysql, "a`b\""), "`a``b\"`");
    }
}
