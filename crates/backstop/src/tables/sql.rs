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
//! index: see [`super::crowd`].
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
pub(super) use pick::{Place, failed_after, next_due, pick, pick_apart, pick_beyond, pick_newest};
pub(super) use survey::survey;

use super::catalogue::{Column, Kind};
use super::link::{Param, Statement};
use super::row::Key;
use super::shape::{DateColumn, FailureColumns, Roles, Shape};
use super::{States, Table};
use backstop_core::Time;
use backstop_core::sweep::Dialect;
use backstop_core::table::date::Written;
use std::fmt::Write;

/// A statement that is being written.
pub(super) struct Sql {
    dialect: Dialect,
    text: String,
    params: Vec<Param>,
}

impl Sql {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            text: String::new(),
            params: Vec::new(),
        }
    }

    /// Words of ours. Never anything from elsewhere.
    pub(super) fn say(&mut self, words: &str) -> &mut Self {
        self.text.push_str(words);
        self
    }

    pub(super) fn number(&mut self, number: usize) -> &mut Self {
        let _ = write!(self.text, "{number}");
        self
    }

    /// The name of a column.
    pub(super) fn name(&mut self, column: &Column) -> &mut Self {
        self.text.push_str(&quoted(self.dialect, &column.name));
        self
    }

    /// A parameter that is compared with a column, or written to it.
    pub(super) fn value(&mut self, param: Param, column: &Column) -> &mut Self {
        self.cast(param, &column.cast)
    }

    /// A parameter of a type: PostgreSQL has to be told which.
    pub(super) fn cast(&mut self, param: Param, cast: &str) -> &mut Self {
        self.params.push(param);
        let number = self.params.len();
        let _ = match self.dialect {
            Dialect::Sqlite => write!(self.text, "?{number}"),
            Dialect::Mysql => write!(self.text, "?"),
            Dialect::Postgres if cast == "text" => write!(self.text, "${number}::text"),
            Dialect::Postgres => write!(self.text, "${number}::text::{cast}"),
        };
        self
    }

    pub(super) fn done(self) -> Statement {
        Statement {
            sql: self.text,
            params: self.params,
            is_indexed: false,
        }
    }

    /// The same, where indexes lead to all that it asks for.
    pub(super) fn done_indexed(self, is_indexed: bool) -> Statement {
        Statement {
            is_indexed,
            ..self.done()
        }
    }

    /// A key as it can be read back.
    fn key(&mut self, column: &Column) -> &mut Self {
        self.name(column);
        match (self.dialect, column.kind) {
            (Dialect::Postgres, Kind::Whole) => self.say("::bigint"),
            (Dialect::Postgres, _) => self.say("::text"),
            _ => self,
        }
    }

    /// A column as the database writes it, to come back to it.
    fn raw(&mut self, column: &Column) -> &mut Self {
        self.name(column);
        if self.dialect == Dialect::Postgres {
            self.say("::text")
        } else {
            self
        }
    }

    /// What tells the place of a row in the order of its table: key and insertion to be read, then
    /// both to be ordered by. These are names that no column has: of two that are alike, an order
    /// would be by ours.
    fn place_columns(&mut self, shape: &Shape) -> &mut Self {
        self.key(&shape.id)
            .say(" AS backstop_k, ")
            .read_ordinal(&shape.inserted)
            .say(" AS backstop_i, ");
        self.ordinal(&shape.inserted)
            .say(" AS backstop_o, ")
            .name(&shape.id)
            .say(" AS backstop_d")
    }

    /// The row has one of these keys.
    fn has_key(&mut self, column: &Column, keys: &[Key]) -> &mut Self {
        self.name(column).say(" IN (");
        for (at, key) in keys.iter().enumerate() {
            self.say(if at == 0 { "" } else { ", " })
                .value(key.param(), column);
        }
        self.say(")")
    }
}

/// A name between quotes, with those inside it doubled.
pub(super) fn quoted(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
        Dialect::Sqlite | Dialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The word of an open state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Open {
    New,
    Error,
}

impl Open {
    pub(super) const ALL: [Self; 2] = [Self::New, Self::Error];

    fn word(self, states: &States) -> &str {
        match self {
            Self::New => &states.new,
            Self::Error => &states.error,
        }
    }
}

fn status_is(sql: &mut Sql, shape: &Shape, word: &str) {
    sql.name(&shape.status)
        .say(" = ")
        .value(Param::Text(word.to_owned()), &shape.status);
}

fn is_open(sql: &mut Sql, shape: &Shape, states: &States) {
    sql.name(&shape.status).say(" IN (");
    sql.value(Param::Text(states.new.clone()), &shape.status)
        .say(", ");
    sql.value(Param::Text(states.error.clone()), &shape.status)
        .say(")");
}

/// The dates of the latest rows, to see how they are written.
pub(super) fn sample(
    dialect: Dialect,
    table: &str,
    id: &Column,
    date: &Column,
    max: usize,
) -> Statement {
    let mut sql = Sql::new(dialect);
    sql.say("SELECT ").key(date).say(" FROM ").say(table);
    sql.say(" ORDER BY ")
        .name(id)
        .say(" DESC LIMIT ")
        .number(max);
    sql.done()
}

/// Dates of failures, of the latest rows that failed: the latest of all may have none. Looks
/// through no more than a few rows, so that a table whose errors have no dates yet is not read to
/// its end.
pub(super) fn sample_failures(
    dialect: Dialect,
    table: &str,
    roles: &Roles<'_>,
    error: &str,
    max: usize,
) -> Option<Statement> {
    let (status, inserted) = (roles.status?, roles.inserted?);
    // A type of the database's own says it by itself.
    let last = roles.last_failure.filter(|last| last.kind != Kind::Time)?;
    let mut sql = Sql::new(dialect);
    sql.say("SELECT ")
        .key(last)
        .say(" FROM (SELECT ")
        .name(last)
        .say(" FROM ")
        .say(table)
        .say(" WHERE ");
    sql.name(status)
        .say(" = ")
        .value(Param::Text(error.to_owned()), status);
    sql.say(" ORDER BY ")
        .name(inserted)
        .say(" DESC LIMIT ")
        .number(SAMPLED_FROM)
        .say(") AS s WHERE ");
    sql.name(last).say(" IS NOT NULL LIMIT ").number(max);
    Some(sql.done())
}

/// Rows that are looked through for dates of failures.
const SAMPLED_FROM: usize = 1_000;

/// What a row needs to be judged, handled and written back: key, status (n, e, s), failures, last
/// failure, inserted, and the whole of it.
pub(super) fn take(table: &Table, shape: &Shape, keys: &[Key], locking: &str) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    select_rows(&mut sql, table, shape);
    sql.say(" WHERE ").has_key(&shape.id, keys).say(locking);
    sql.done()
}

fn select_rows(sql: &mut Sql, table: &Table, shape: &Shape) {
    sql.say("SELECT ").key(&shape.id).say(", CASE WHEN ");
    status_is(sql, shape, &table.states.new);
    sql.say(" THEN 'n' WHEN ");
    status_is(sql, shape, &table.states.error);
    sql.say(" THEN 'e' WHEN ");
    status_is(sql, shape, &table.states.success);
    sql.say(" THEN 's' END, ");
    match &shape.failed {
        Some(failed) => {
            sql.key(&failed.failures)
                .say(", ")
                .read_date(&failed.last_failure);
        }
        None => {
            sql.say("NULL, NULL");
        }
    }
    sql.say(", ").read_date(&shape.inserted).say(", ");
    whole_row(sql, shape);
    sql.say(" FROM ").say(&shape.catalogue.quoted).say(" AS t");
}

/// All columns; of PostgreSQL, which knows best how its types look as JSON, one text.
fn whole_row(sql: &mut Sql, shape: &Shape) {
    let is_postgres = shape.dialect == Dialect::Postgres;
    if is_postgres {
        sql.say("(SELECT row_to_json(backstop_j)::text FROM (SELECT ");
    }
    for (at, column) in shape.catalogue.columns.iter().enumerate() {
        sql.say(if at == 0 { "" } else { ", " });
        if is_postgres && column.kind == Kind::Bytes {
            sql.say("translate(encode(t.")
                .name(column)
                .say(", 'base64'), E'\\n', '') AS ")
                .name(column);
        } else {
            sql.say("t.").name(column);
        }
    }
    if is_postgres {
        sql.say(") AS backstop_j)");
    }
}

/// What becomes of a row, if it still is as it was seen.
pub(super) struct Change<'a> {
    pub(super) key: &'a Key,
    pub(super) seen: Open,
    /// The failures as they were; `None` if there was no number.
    pub(super) failures: Option<i128>,
    pub(super) to: Became,
}

/// What a row became.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Became {
    Success,
    /// It failed then, and has so many failures now.
    Error {
        at: Time,
        failures: u32,
    },
}

pub(super) fn change(table: &Table, shape: &Shape, change: &Change<'_>) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("UPDATE ")
        .say(&shape.catalogue.quoted)
        .say(" SET ")
        .name(&shape.status)
        .say(" = ");
    let word = match change.to {
        Became::Success => &table.states.success,
        Became::Error { .. } => &table.states.error,
    };
    sql.value(Param::Text(word.clone()), &shape.status);
    if let (Some(failed), Became::Error { at, failures }) = (&shape.failed, change.to) {
        sql.say(", ").name(&failed.failures).say(" = ");
        sql.value(Param::Whole(failures.into()), &failed.failures);
        sql.say(", ");
        set_date(&mut sql, &failed.last_failure, at);
    }
    sql.say(" WHERE ")
        .has_key(&shape.id, std::slice::from_ref(change.key))
        .say(" AND ");
    status_is(&mut sql, shape, change.seen.word(&table.states));
    if let Some(failed) = &shape.failed {
        sql.say(" AND ")
            .failed_as_seen(&failed.failures, change.failures);
    }
    sql.done()
}

fn set_date(sql: &mut Sql, column: &DateColumn, at: Time) {
    sql.name(&column.column).say(" = ");
    let param = match column.form.write(at) {
        Written::Number(number) => Param::Whole(number.into()),
        Written::Text(text) => Param::Text(text),
    };
    sql.value_of_date(param, column);
}

/// Sets failures after a time to that time.
pub(super) fn redate(
    table: &Table,
    shape: &Shape,
    failed: &FailureColumns,
    time: Time,
) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("UPDATE ").say(&shape.catalogue.quoted).say(" SET ");
    set_date(&mut sql, &failed.last_failure, time);
    sql.say(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.say(" AND ").failed_at_least(&failed.failures, 1);
    sql.say(" AND ").after(&failed.last_failure, time);
    sql.done()
}

/// How many rows there are of each word of the status column.
pub(super) fn count_states(shape: &Shape, states: &States) -> Statement {
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
    dialect: Dialect,
    table: &str,
    status: &Column,
    date: Option<&Column>,
    states: &States,
    max: usize,
) -> Statement {
    let mut sql = Sql::new(dialect);
    sql.say("SELECT ").raw(status).say(", count(*)");
    if let Some(date) = date {
        sql.say(", count(CASE WHEN ")
            .name(date)
            .say(" IS NULL THEN 1 END)");
    }
    sql.say(" FROM ").say(table).say(" GROUP BY ").name(status);
    sql.say(" ORDER BY CASE WHEN ").raw(status).say(" IN (");
    for (at, word) in [&states.new, &states.error, &states.success]
        .into_iter()
        .enumerate()
    {
        // As text: an enumeration may lack the word.
        sql.say(if at == 0 { "" } else { ", " })
            .cast(Param::Text(word.clone()), "text");
    }
    sql.say(") THEN 0 ELSE 1 END, 2 DESC, 1 LIMIT ").number(max);
    sql.done()
}

/// Different words of a status column that are counted.
const STATES_MAX: usize = 1_000;

/// How many open rows of a state were inserted in a stretch of time.
pub(super) fn count_open(
    table: &Table,
    shape: &Shape,
    state: Open,
    from: Option<Time>,
    before: Option<Time>,
) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT count(*) FROM ")
        .say(&shape.catalogue.quoted)
        .say(" WHERE ");
    status_is(&mut sql, shape, state.word(&table.states));
    if let Some(from) = from {
        sql.say(" AND ").at_or_after(&shape.inserted, from);
    }
    if let Some(before) = before {
        sql.say(" AND ").before(&shape.inserted, before);
    }
    sql.done()
}

/// A change of no row, which only says whether it may be made.
pub(super) fn change_nothing(shape: &Shape) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("UPDATE ").say(&shape.catalogue.quoted).say(" SET ");
    let mut columns = vec![&shape.status];
    if let Some(failed) = &shape.failed {
        columns.extend([&failed.failures, &failed.last_failure.column]);
    }
    for (at, column) in columns.into_iter().enumerate() {
        sql.say(if at == 0 { "" } else { ", " })
            .name(column)
            .say(" = ")
            .name(column);
    }
    sql.say(" WHERE 1 = 0");
    sql.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_quotes() {
        assert_eq!(
            quoted(Dialect::Sqlite, "a\"; DROP TABLE x; --"),
            "\"a\"\"; DROP TABLE x; --\""
        );
        assert_eq!(quoted(Dialect::Postgres, "a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted(Dialect::Mysql, "a`b\""), "`a``b\"`");
    }
}
