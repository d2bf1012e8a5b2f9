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
use super::{Open, Place, Sql, status_is};
use crate::tables::Table;
use crate::tables::catalogue::Column;
use crate::tables::link::Statement;
use crate::tables::shape::Shape;
use backstop_core::Time;
use backstop_core::sweep::Dialect;

/// Expired rows that one index leads to.
#[derive(Clone, Copy)]
struct Branch<'a> {
    state: Open,
    why: Why<'a>,
}

#[derive(Clone, Copy)]
enum Why<'a> {
    TooOld,
    FailedTooOften { failures: &'a Column, most: u32 },
}

/// How many rows are expired; no more than `max` are counted.
pub(in crate::tables) fn count_expired(
    table: &Table,
    shape: &Shape,
    now: Time,
    max: usize,
) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT count(*) FROM (SELECT * FROM (");
    for (at, branch) in branches(table, shape).iter().enumerate() {
        sql.say(if at == 0 { "" } else { " UNION ALL " })
            .say("SELECT * FROM (SELECT 1 AS one");
        put_branch(&mut sql, table, shape, branch, lead(shape, branch), now);
        sql.say(" LIMIT ").number(max).say(") AS b").number(at);
    }
    sql.say(") AS u LIMIT ").number(max).say(") AS e");
    sql.done()
}

/// Whether more than so many rows of a state failed too often; `None` where the database knows best
/// how to find them. SQLite sorts all of them for the oldest few, a look at the table for each:
/// 5,000,000 in half a minute where the order of insertion leads to 500 in 1 ms.
pub(in crate::tables) fn failed_too_often_beyond(
    table: &Table,
    shape: &Shape,
    state: Open,
    many: usize,
) -> Option<Statement> {
    let is_led =
        shape.dialect == Dialect::Sqlite && shape.has_failure_index() && shape.has_order_index();
    let (failed, most) = shape
        .failed
        .as_ref()
        .zip(table.rules.max_failures())
        .filter(|_| is_led)?;
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT 1 FROM ")
        .say(&shape.catalogue.quoted)
        .say(" WHERE ");
    status_is(&mut sql, shape, state.word(&table.states));
    sql.say(" AND ").failed_at_least(&failed.failures, most);
    sql.say(" LIMIT 1 OFFSET ").number(many);
    Some(sql.done())
}

/// Keys, places and dates of insertion of expired rows, the oldest first; those behind a place, if
/// one is given. Of `dense` states very many failed too often: they are found in the order of
/// insertion.
pub(in crate::tables) fn list_expired(
    table: &Table,
    shape: &Shape,
    dense: &[Open],
    past: Option<&Place>,
    now: Time,
    max: usize,
) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT backstop_k, backstop_i, backstop_t FROM (");
    for (at, branch) in branches(table, shape).iter().enumerate() {
        let lead = if dense.contains(&branch.state) {
            ""
        } else {
            lead(shape, branch)
        };
        sql.say(if at == 0 { "" } else { " UNION ALL " })
            .say("SELECT * FROM (SELECT ")
            .place_columns(shape);
        sql.say(", ")
            .read_date(&shape.inserted)
            .say(" AS backstop_t");
        put_branch(&mut sql, table, shape, branch, lead, now);
        if let Some(place) = past {
            put_past(&mut sql, shape, place, lead);
        }
        sql.say(" ORDER BY ")
            .say(lead)
            .ordinal(&shape.inserted)
            .say(", ")
            .name(&shape.id);
        sql.say(" LIMIT ").number(max).say(") AS b").number(at);
    }
    sql.say(") AS u ORDER BY backstop_o, backstop_d LIMIT ")
        .number(max);
    sql.done()
}

fn branches<'a>(table: &Table, shape: &'a Shape) -> Vec<Branch<'a>> {
    let too_often = shape.failed.as_ref().zip(table.rules.max_failures());
    let too_often = too_often.map(|(failed, most)| Why::FailedTooOften {
        failures: &failed.failures,
        most,
    });
    let reasons = std::iter::once(Why::TooOld).chain(too_often);
    reasons
        .flat_map(|why| Open::ALL.map(|state| Branch { state, why }))
        .collect()
}

fn put_branch(
    sql: &mut Sql,
    table: &Table,
    shape: &Shape,
    branch: &Branch<'_>,
    lead: &str,
    now: Time,
) {
    let from = now.before(table.rules.max_age());
    sql.say(" FROM ")
        .say(&shape.catalogue.quoted)
        .say(" WHERE ");
    status_is(sql, shape, branch.state.word(&table.states));
    sql.say(" AND ").usable_key(&shape.id).say(" AND ");
    match branch.why {
        Why::TooOld => sql.before(&shape.inserted, from),
        Why::FailedTooOften { failures, most } => sql
            .failed_at_least(failures, most)
            .say(" AND ")
            .say(lead)
            .at_or_after(&shape.inserted, from),
    };
}

/// What stands before a date of insertion so that SQLite looks for no index on it: that one would
/// lead through all that is not expired.
fn lead(shape: &Shape, branch: &Branch<'_>) -> &'static str {
    let is_by_failures =
        matches!(branch.why, Why::FailedTooOften { .. }) && shape.has_failure_index();
    if is_by_failures && shape.dialect == Dialect::Sqlite {
        "+"
    } else {
        ""
    }
}
