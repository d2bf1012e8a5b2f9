//! The look at every open row for those that no query for due rows can see, and for dates that do
//! not sort.

use super::{SqlBuilder, is_open};
use crate::tables::Table;
use crate::tables::link::SqlStatement;
use crate::tables::schema::{DateColumn, TableSchema};
use backstop_core::Time;
use backstop_core::table::date::DateForm;

/// Counts, of open rows: those whose dates or failures cannot be read; of the others those without
/// a key that can be noted down; and those whose text is in another form than the column's.
pub(in crate::tables) fn survey(table: &Table, shape: &TableSchema, now: Time) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT count(CASE WHEN ");
    put_undated(&mut sql, table, shape, now);
    sql.push(" THEN 1 END), count(CASE WHEN ");
    put_undated(&mut sql, table, shape, now);
    sql.push(" THEN NULL WHEN ")
        .usable_key(&shape.id)
        .push(" THEN NULL ELSE 1 END), count(CASE WHEN ");
    put_foreign(&mut sql, &shape.inserted);
    if let Some(failed) = &shape.failed {
        sql.push(" OR ");
        put_foreign(&mut sql, &failed.last_failure);
    }
    sql.push(" THEN 1 END) FROM ")
        .push(&shape.catalogue.quoted)
        .push(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.build()
}

/// Nobody can tell whether it is due. A row that is expired anyway needs no last failure.
fn put_undated(sql: &mut SqlBuilder, table: &Table, shape: &TableSchema, now: Time) {
    sql.push("(NOT (").readable(&shape.inserted).push(")");
    if let Some(failed) = &shape.failed {
        sql.push(" OR (")
            .at_or_after(&shape.inserted, now.before(table.rules.max_age()));
        if let Some(max) = table.rules.max_failures() {
            sql.push(" AND ").failed_less_than(&failed.failures, max);
        }
        sql.push(" AND (")
            .failed_in_part(&failed.failures)
            .push(" OR (");
        sql.failed_at_least(&failed.failures, 1);
        sql.push(" AND ")
            .name(&failed.last_failure.column)
            .push(" IS NOT NULL");
        sql.push(" AND NOT (")
            .readable(&failed.last_failure)
            .push("))))");
    }
    sql.push(")");
}

/// It says when, in a form that does not sort with the others.
fn put_foreign(sql: &mut SqlBuilder, column: &DateColumn) {
    match column.form {
        DateForm::Text(form) if form.is_uniform => {
            sql.push("(")
                .readable(column)
                .push(" AND NOT (")
                .in_form(column, form)
                .push("))");
        }
        _ => {
            sql.push("1 = 0");
        }
    }
}
