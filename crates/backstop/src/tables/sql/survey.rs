//! The look at every open row for those that no query for due rows can see, and for dates that do
//! not sort.

use super::{Sql, is_open};
use crate::tables::Table;
use crate::tables::link::Statement;
use crate::tables::shape::{DateColumn, Shape};
use backstop_core::Time;
use backstop_core::table::date::Form;

/// Counts, of open rows: those whose dates or failures cannot be read; of the others those without
/// a key that can be noted down; and those whose text is in another form than the column's.
pub(in crate::tables) fn survey(table: &Table, shape: &Shape, now: Time) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT count(CASE WHEN ");
    put_undated(&mut sql, table, shape, now);
    sql.say(" THEN 1 END), count(CASE WHEN ");
    put_undated(&mut sql, table, shape, now);
    sql.say(" THEN NULL WHEN ")
        .usable_key(&shape.id)
        .say(" THEN NULL ELSE 1 END), count(CASE WHEN ");
    put_foreign(&mut sql, &shape.inserted);
    if let Some(failed) = &shape.failed {
        sql.say(" OR ");
        put_foreign(&mut sql, &failed.last_failure);
    }
    sql.say(" THEN 1 END) FROM ")
        .say(&shape.catalogue.quoted)
        .say(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.done()
}

/// Nobody can tell whether it is due. A row that is expired anyway needs no last failure.
fn put_undated(sql: &mut Sql, table: &Table, shape: &Shape, now: Time) {
    sql.say("(NOT (").readable(&shape.inserted).say(")");
    if let Some(failed) = &shape.failed {
        sql.say(" OR (")
            .at_or_after(&shape.inserted, now.before(table.rules.max_age()));
        if let Some(max) = table.rules.max_failures() {
            sql.say(" AND ").failed_less_than(&failed.failures, max);
        }
        sql.say(" AND (")
            .failed_in_part(&failed.failures)
            .say(" OR (");
        sql.failed_at_least(&failed.failures, 1);
        sql.say(" AND ")
            .name(&failed.last_failure.column)
            .say(" IS NOT NULL");
        sql.say(" AND NOT (")
            .readable(&failed.last_failure)
            .say("))))");
    }
    sql.say(")");
}

/// It says when, in a form that does not sort with the others.
fn put_foreign(sql: &mut Sql, column: &DateColumn) {
    match column.form {
        Form::Text(form) if form.is_uniform => {
            sql.say("(")
                .readable(column)
                .say(" AND NOT (")
                .in_form(column, form)
                .say("))");
        }
        _ => {
            sql.say("1 = 0");
        }
    }
}
