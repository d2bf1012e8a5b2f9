//! Open rows that are never tried again: how many, and which, the oldest first.
//!
//! | a row is expired because | answered by an index on |
//! |---|---|
//! | it is too old | status, inserted |
//! | it failed too often, and is not too old | status, failures, last failure |
//!
//! One branch for each status and each of these, in order and up to the limit: no row is in two of
//! them. One condition with `OR` and `status IN (…)` lost: no index leads to it, and every batch of
//! a walk read and sorted all that is expired.

use super::pick::put_past;
use super::{OpenState, RowPlace, SqlBuilder, status_is};
use crate::tables::Table;
use crate::tables::catalogue::TableColumn;
use crate::tables::link::SqlStatement;
use crate::tables::schema::TableSchema;
use backstop_core::Time;
use backstop_core::sweep::SqlDialect;

/// Expired rows that one index leads to.
#[derive(Clone, Copy)]
struct ExpiredBranch<'a> {
    state: OpenState,
    why: ExpiryCause<'a>,
}

#[derive(Clone, Copy)]
enum ExpiryCause<'a> {
    TooOld,
    FailedTooOften {
        failures: &'a TableColumn,
        most: u32,
    },
}

/// How many rows are expired; no more than `max` are counted.
pub(in crate::tables) fn count_expired(
    table: &Table,
    shape: &TableSchema,
    now: Time,
    max: usize,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT count(*) FROM (SELECT * FROM (");
    for (at, branch) in branches(table, shape).iter().enumerate() {
        sql.push(if at == 0 { "" } else { " UNION ALL " })
            .push("SELECT * FROM (SELECT 1 AS one");
        put_branch(&mut sql, table, shape, branch, lead(shape, branch), now);
        sql.push(" LIMIT ").number(max).push(") AS b").number(at);
    }
    sql.push(") AS u LIMIT ").number(max).push(") AS e");
    sql.build()
}

/// Whether more than so many rows of a state failed too often; `None` where the database knows best
/// how to find them. SQLite sorts all of them for the oldest few, a look at the table for each:
/// 5,000,000 in half a minute where the order of insertion leads to 500 in 1 ms.
pub(in crate::tables) fn failed_too_often_beyond(
    table: &Table,
    shape: &TableSchema,
    state: OpenState,
    many: usize,
) -> Option<SqlStatement> {
    let is_led =
        shape.dialect == SqlDialect::Sqlite && shape.has_failure_index() && shape.has_order_index();
    let (failed, most) = shape
        .failed
        .as_ref()
        .zip(table.rules.max_failures())
        .filter(|_| is_led)?;
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT 1 FROM ")
        .push(&shape.catalogue.quoted)
        .push(" WHERE ");
    status_is(&mut sql, shape, state.word(&table.states));
    sql.push(" AND ").failed_at_least(&failed.failures, most);
    sql.push(" LIMIT 1 OFFSET ").number(many);
    Some(sql.build())
}

/// Keys, places and dates of insertion of expired rows, the oldest first; those behind a place, if
/// one is given. Of `dense` states very many failed too often: they are found in the order of
/// insertion.
pub(in crate::tables) fn list_expired(
    table: &Table,
    shape: &TableSchema,
    dense: &[OpenState],
    past: Option<&RowPlace>,
    now: Time,
    max: usize,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT backstop_k, backstop_i, backstop_t FROM (");
    for (at, branch) in branches(table, shape).iter().enumerate() {
        let lead = if dense.contains(&branch.state) {
            ""
        } else {
            lead(shape, branch)
        };
        sql.push(if at == 0 { "" } else { " UNION ALL " })
            .push("SELECT * FROM (SELECT ")
            .place_columns(shape);
        sql.push(", ")
            .read_date(&shape.inserted)
            .push(" AS backstop_t");
        put_branch(&mut sql, table, shape, branch, lead, now);
        if let Some(place) = past {
            put_past(&mut sql, shape, place, lead);
        }
        sql.push(" ORDER BY ")
            .push(lead)
            .ordinal(&shape.inserted)
            .push(", ")
            .name(&shape.id);
        sql.push(" LIMIT ").number(max).push(") AS b").number(at);
    }
    sql.push(") AS u ORDER BY backstop_o, backstop_d LIMIT ")
        .number(max);
    sql.build()
}

fn branches<'a>(table: &Table, shape: &'a TableSchema) -> Vec<ExpiredBranch<'a>> {
    let too_often = shape.failed.as_ref().zip(table.rules.max_failures());
    let too_often = too_often.map(|(failed, most)| ExpiryCause::FailedTooOften {
        failures: &failed.failures,
        most,
    });
    let reasons = std::iter::once(ExpiryCause::TooOld).chain(too_often);
    reasons
        .flat_map(|why| OpenState::ALL.map(|state| ExpiredBranch { state, why }))
        .collect()
}

fn put_branch(
    sql: &mut SqlBuilder,
    table: &Table,
    shape: &TableSchema,
    branch: &ExpiredBranch<'_>,
    lead: &str,
    now: Time,
) {
    let from = now.before(table.rules.max_age());
    sql.push(" FROM ")
        .push(&shape.catalogue.quoted)
        .push(" WHERE ");
    status_is(sql, shape, branch.state.word(&table.states));
    sql.push(" AND ").usable_key(&shape.id).push(" AND ");
    match branch.why {
        ExpiryCause::TooOld => sql.before(&shape.inserted, from),
        ExpiryCause::FailedTooOften { failures, most } => sql
            .failed_at_least(failures, most)
            .push(" AND ")
            .push(lead)
            .at_or_after(&shape.inserted, from),
    };
}

/// What stands before a date of insertion so that SQLite looks for no index on it: that one would
/// lead through all that is not expired.
fn lead(shape: &TableSchema, branch: &ExpiredBranch<'_>) -> &'static str {
    let is_by_failures =
        matches!(branch.why, ExpiryCause::FailedTooOften { .. }) && shape.has_failure_index();
    if is_by_failures && shape.dialect == SqlDialect::Sqlite {
        "+"
    } else {
        ""
    }
}
