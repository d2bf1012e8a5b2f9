//! The query for what is due, newest first.

use super::{OpenState, SqlBuilder, is_open, status_is};
use crate::tables::Table;
use crate::tables::adopted_table::ScanView;
use crate::tables::link::SqlStatement;
use crate::tables::row::RowKey;
use crate::tables::schema::{FailureColumns, TableSchema};
use backstop_core::Time;
use backstop_core::sweep::SqlDialect;
use backstop_core::table::{DueCriteria, DueRows, FailureGroup, InsertWindow};

/// Numbers of failures that are looked for one by one; those above are looked through.
const GROUPS_MAX: u32 = 64;

/// A place in the order of rows, as its columns say it.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::tables) struct RowPlace {
    pub(in crate::tables) inserted: RowKey,
    pub(in crate::tables) key: RowKey,
}

/// Which rows of a branch, and whether it can come in order.
struct PickBranch<'a> {
    states: &'a [OpenState],
    is_ordered: bool,
    condition: PickCondition,
}

enum PickCondition {
    Window(InsertWindow),
    /// Failed as often as one of these groups, and long enough ago; or not at all.
    AnyGroup,
    Fresh,
    /// As fresh, taken apart for an index.
    Unfailed,
    Uncounted,
    Unnumbered,
    Group(FailureGroup),
    Undated(FailureGroup),
    /// Each of these groups, joined one after the other.
    Groups(Vec<FailureGroup>),
    UndatedGroups(Vec<FailureGroup>),
    /// Each of these groups, dated or not, as so many ranges of one index.
    Ranges(Vec<FailureGroup>),
}

/// Keys and times of insertion of what is due, newest first and at most `max`; `None` if nothing
/// can be. A row without a key that can be noted down is not among them, and takes nobody's place.
/// Of a branch that does not come in order no more than `cap` are looked at: where [`pick_beyond`]
/// so many are due, these may not be the newest.
pub(in crate::tables) fn pick(
    table: &Table,
    shape: &TableSchema,
    criteria: &DueCriteria,
    view: &ScanView,
    max: usize,
    cap: Option<usize>,
) -> Option<SqlStatement> {
    let branches = branches(shape, criteria);
    (!branches.is_empty()).then(|| pick_of(&branches, table, shape, criteria, view, (max, cap)))
}

/// Whether more than `many` rows are due in the branches that do not come in order.
pub(in crate::tables) fn pick_beyond(
    table: &Table,
    shape: &TableSchema,
    criteria: &DueCriteria,
    many: usize,
) -> SqlStatement {
    let branches = branches(shape, criteria);
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT one FROM (");
    for (at, branch) in branches
        .iter()
        .filter(|branch| !branch.is_ordered)
        .enumerate()
    {
        sql.push(if at == 0 { "" } else { " UNION ALL " })
            .push("SELECT * FROM (SELECT 1 AS one FROM ");
        put_groups(&mut sql, shape, &branch.condition);
        sql.push(&shape.catalogue.quoted).push(" WHERE ");
        put_branch(&mut sql, table, shape, criteria, branch);
        sql.push(" LIMIT ")
            .number(many + 1)
            .push(") AS b")
            .number(at);
    }
    sql.push(") AS u LIMIT 1 OFFSET ").number(many);
    sql.build_indexed(shape.has_order_index() && shape.has_failure_index())
}

/// The same, a statement for each branch.
pub(in crate::tables) fn pick_apart(
    table: &Table,
    shape: &TableSchema,
    criteria: &DueCriteria,
    view: &ScanView,
    max: usize,
) -> Vec<SqlStatement> {
    let branches = branches(shape, criteria);
    branches
        .chunks(1)
        .map(|branch| pick_of(branch, table, shape, criteria, view, (max, None)))
        .collect()
}

fn pick_of(
    branches: &[PickBranch<'_>],
    table: &Table,
    shape: &TableSchema,
    criteria: &DueCriteria,
    view: &ScanView,
    (max, cap): (usize, Option<usize>),
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT backstop_k, backstop_i FROM (");
    for (at, branch) in branches.iter().enumerate() {
        sql.push(if at == 0 { "" } else { " UNION ALL " })
            .push("SELECT * FROM (SELECT ");
        sql.place_columns(shape).push(" FROM ");
        put_groups(&mut sql, shape, &branch.condition);
        sql.push(&shape.catalogue.quoted).push(" WHERE ");
        put_branch(&mut sql, table, shape, criteria, branch);
        sql.push(" AND ").usable_key(&shape.id);
        if let Some(place) = &view.behind {
            put_behind(&mut sql, shape, place);
        }
        if let Some(place) = &view.until {
            put_until(&mut sql, shape, place);
        }
        if branch.is_ordered {
            put_newest_first(&mut sql, shape, max);
        } else if let Some(cap) = cap {
            sql.push(" LIMIT ").number(cap);
        }
        sql.push(") AS b").number(at);
    }
    sql.push(") AS u ORDER BY backstop_o DESC, backstop_d DESC LIMIT ")
        .number(max);
    sql.build_indexed(
        shape.has_order_index() && (shape.failed.is_none() || shape.has_failure_index()),
    )
}

/// Keys, times of insertion, and `e` for errors, of what is due among all new rows and among the
/// newest `among` errors; newest first, and at most `max` of each. If there are `max` errors among
/// them the first `max` of all are those that [`pick`] gives: an error that was not looked at is
/// older than all of these. `None` if [`pick`] reads no more than that anyway, or if no index gives
/// rows in order.
///
/// Where very many errors are due at once, as after an outage, an index by failures leads to all of
/// them, to be sorted for the newest few.
pub(in crate::tables) fn pick_newest(
    table: &Table,
    shape: &TableSchema,
    criteria: &DueCriteria,
    max: usize,
    among: usize,
) -> Option<SqlStatement> {
    let is_in_order = shape.has_order_index() && !shape.inserted.is_mixed();
    let failed = shape
        .failed
        .as_ref()
        .filter(|_| is_in_order && shape.has_failure_index())?;
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT backstop_k, backstop_i, backstop_s FROM (SELECT * FROM (SELECT ")
        .place_columns(shape);
    sql.push(", 'n' AS backstop_s FROM ")
        .push(&shape.catalogue.quoted)
        .push(" WHERE ");
    let new = PickBranch {
        states: &[OpenState::New],
        is_ordered: true,
        condition: PickCondition::AnyGroup,
    };
    put_branch(&mut sql, table, shape, criteria, &new);
    sql.push(" AND ").usable_key(&shape.id);
    put_newest_first(&mut sql, shape, max);
    sql.push(") AS b0 UNION ALL SELECT * FROM (SELECT ")
        .place_columns(shape);
    sql.push(", 'e' AS backstop_s FROM (SELECT ")
        .name(&shape.id)
        .push(", ")
        .name(&shape.inserted.column);
    sql.push(", ")
        .name(&failed.failures)
        .push(", ")
        .name(&failed.last_failure.column)
        .push(" FROM ");
    sql.push(&shape.catalogue.quoted).push(" WHERE ");
    status_is(&mut sql, shape, &table.states.error);
    sql.push(" AND ")
        .at_or_after(&shape.inserted, criteria.inserted_from);
    sql.push(" AND ").usable_key(&shape.id);
    put_newest_first(&mut sql, shape, among);
    sql.push(") AS s WHERE ");
    put_condition(&mut sql, shape, criteria, &PickCondition::AnyGroup);
    put_newest_first(&mut sql, shape, max);
    sql.push(") AS b1) AS u ORDER BY backstop_o DESC, backstop_d DESC");
    Some(sql.build_indexed(true))
}

fn put_newest_first(sql: &mut SqlBuilder, shape: &TableSchema, max: usize) {
    sql.push(" ORDER BY ")
        .ordinal(&shape.inserted)
        .push(" DESC, ")
        .name(&shape.id)
        .push(" DESC");
    sql.push(" LIMIT ").number(max);
}

fn branches(shape: &TableSchema, criteria: &DueCriteria) -> Vec<PickBranch<'static>> {
    const STATES: [&[OpenState]; 2] = [&[OpenState::New], &[OpenState::Error]];
    let in_order = |condition: fn() -> PickCondition| {
        STATES.iter().map(move |states| PickBranch {
            states,
            is_ordered: true,
            condition: condition(),
        })
    };
    match &criteria.due {
        DueRows::ByAge(windows) => windows
            .iter()
            .flat_map(|window| {
                STATES.iter().map(|states| PickBranch {
                    states,
                    is_ordered: true,
                    condition: PickCondition::Window(*window),
                })
            })
            .collect(),
        DueRows::ByFailures { .. } if !shape.has_failure_index() => {
            in_order(|| PickCondition::AnyGroup).collect()
        }
        DueRows::ByFailures {
            groups,
            max_failures,
        } => group_branches(shape, groups, *max_failures),
    }
}

/// Rows that failed are found by how often: a branch for each number, so that an index leads to
/// those that are due. New rows come in order: nearly all of them have not failed. Of the errors
/// nearly all have.
fn group_branches(
    shape: &TableSchema,
    groups: &[FailureGroup],
    max_failures: Option<u32>,
) -> Vec<PickBranch<'static>> {
    let of_errors = |condition| PickBranch {
        states: &[OpenState::Error],
        is_ordered: false,
        condition,
    };
    let mut branches = vec![
        PickBranch {
            states: &[OpenState::New],
            is_ordered: true,
            condition: PickCondition::Fresh,
        },
        of_errors(PickCondition::Unfailed),
        of_errors(PickCondition::Uncounted),
    ];
    if shape.dialect == SqlDialect::Sqlite {
        // A branch of its own: SQLite answers an OR by no index, and read every error.
        branches.push(of_errors(PickCondition::Unnumbered));
    }
    let mut apart = one_by_one(groups, max_failures);
    let mut push = |condition| {
        branches.push(PickBranch {
            states: &OpenState::ALL,
            is_ordered: false,
            condition,
        });
    };
    if !is_joined(shape) {
        if !apart.is_empty() {
            push(PickCondition::Ranges(apart));
        }
        return branches;
    }
    let joined: Vec<FailureGroup> = apart.extract_if(.., |group| !group.or_more).collect();
    if !joined.is_empty() {
        push(PickCondition::Groups(joined.clone()));
        push(PickCondition::UndatedGroups(joined));
    }
    for group in apart {
        push(PickCondition::Group(group));
        push(PickCondition::Undated(group));
    }
    branches
}

/// Whether numbers of failures are rows that the table is joined to. A branch for each lost: SQLite
/// took 100 ms to prepare 130 of them and PostgreSQL 500 to plan, both on a busy machine; joined it
/// is 5 and 15. MySQL has such rows in other words than MariaDB, and both make ranges of one index
/// out of conditions with `OR`: a third of the time that branches took.
fn is_joined(shape: &TableSchema) -> bool {
    shape.dialect != SqlDialect::Mysql
}

/// The groups of a branch as rows that the table is joined to: failures, the last failure that is
/// due, and for an index of SQLite's as text.
fn put_groups(sql: &mut SqlBuilder, shape: &TableSchema, condition: &PickCondition) {
    let (PickCondition::Groups(groups) | PickCondition::UndatedGroups(groups)) = condition else {
        return;
    };
    let Some(failed) = &shape.failed else { return };
    sql.push("(VALUES ");
    for (at, group) in groups.iter().enumerate() {
        sql.push(if at == 0 { "(" } else { ", (" })
            .count(group.failures.into())
            .push(", ");
        sql.bound(&failed.last_failure, group.last_failure_until);
        sql.coarse_bound(&failed.last_failure, group.last_failure_until)
            .push(")");
    }
    // The table is looked at once for each of them, and not the other way round.
    sql.push(") AS backstop_g CROSS JOIN ");
}

/// The groups, with the last, open one taken apart as far as that is worth it.
fn one_by_one(groups: &[FailureGroup], max_failures: Option<u32>) -> Vec<FailureGroup> {
    let mut apart = groups.to_vec();
    let Some(last) = apart.pop_if(|group| group.or_more) else {
        return apart;
    };
    let end = GROUPS_MAX.max(last.failures);
    let end = max_failures.map_or(end, |max| end.min(max));
    for failures in last.failures..end {
        apart.push(FailureGroup {
            failures,
            or_more: false,
            ..last
        });
    }
    apart.push(FailureGroup {
        failures: end,
        ..last
    });
    apart
}

fn put_branch(
    sql: &mut SqlBuilder,
    table: &Table,
    shape: &TableSchema,
    criteria: &DueCriteria,
    branch: &PickBranch<'_>,
) {
    match branch.states {
        [state] => status_is(sql, shape, state.word(&table.states)),
        _ => is_open(sql, shape, &table.states),
    }
    sql.push(" AND ");
    if let PickCondition::Window(window) = &branch.condition {
        put_window(sql, shape, window);
        return;
    }
    if !branch.is_ordered && shape.dialect == SqlDialect::Sqlite {
        // Not an index on insertion: it would lead through every row that failed.
        sql.push("+");
    }
    sql.at_or_after(&shape.inserted, criteria.inserted_from)
        .push(" AND ");
    put_condition(sql, shape, criteria, &branch.condition);
}

/// How often a row failed, and when last.
fn put_condition(
    sql: &mut SqlBuilder,
    shape: &TableSchema,
    criteria: &DueCriteria,
    condition: &PickCondition,
) {
    let (
        Some(failed),
        DueRows::ByFailures {
            groups,
            max_failures,
        },
    ) = (&shape.failed, &criteria.due)
    else {
        sql.push("1 = 0");
        return;
    };
    match condition {
        PickCondition::AnyGroup => put_any_group(sql, failed, groups),
        PickCondition::Fresh => put_fresh(sql, failed),
        PickCondition::Unfailed => {
            sql.unfailed(&failed.failures);
        }
        PickCondition::Uncounted => {
            sql.failures(&failed.failures).push(" IS NULL");
        }
        PickCondition::Unnumbered => {
            sql.unnumbered(&failed.failures);
        }
        PickCondition::Group(group) => {
            put_failures(sql, failed, group);
            sql.push(" AND ")
                .at_or_before(&failed.last_failure, group.last_failure_until);
        }
        PickCondition::Undated(group) => {
            put_failures(sql, failed, group);
            sql.push(" AND ")
                .name(&failed.last_failure.column)
                .push(" IS NULL");
        }
        PickCondition::Ranges(groups) => put_ranges(sql, failed, groups),
        PickCondition::Groups(_) => {
            sql.failures(&failed.failures)
                .push(" = backstop_g.column1 AND ");
            sql.at_or_before_joined(
                &failed.last_failure,
                ["backstop_g.column2", "backstop_g.column3"],
            );
        }
        PickCondition::UndatedGroups(_) => {
            sql.failures(&failed.failures)
                .push(" = backstop_g.column1 AND ");
            sql.name(&failed.last_failure.column).push(" IS NULL");
        }
        PickCondition::Window(_) => {}
    }
    if let Some(max) = max_failures {
        sql.push(" AND ").failed_less_than(&failed.failures, *max);
    }
}

fn put_window(sql: &mut SqlBuilder, shape: &TableSchema, window: &InsertWindow) {
    sql.at_or_after(&shape.inserted, window.from);
    if let Some(before) = window.before {
        sql.push(" AND ").before(&shape.inserted, before);
    }
}

fn put_fresh(sql: &mut SqlBuilder, failed: &FailureColumns) {
    sql.push("(")
        .uncounted(&failed.failures)
        .push(" OR ")
        .unfailed(&failed.failures)
        .push(")");
}

fn put_failures(sql: &mut SqlBuilder, failed: &FailureColumns, group: &FailureGroup) {
    if group.or_more {
        sql.failed_at_least(&failed.failures, group.failures);
    } else {
        sql.failed_times(&failed.failures, group.failures);
    }
}

/// All groups, each by the beginning of an index.
fn put_ranges(sql: &mut SqlBuilder, failed: &FailureColumns, groups: &[FailureGroup]) {
    sql.push("(");
    for (at, group) in groups.iter().enumerate() {
        sql.push(if at == 0 { "(" } else { " OR (" });
        put_failures(sql, failed, group);
        sql.push(" AND ")
            .at_or_before(&failed.last_failure, group.last_failure_until)
            .push(") OR (");
        put_failures(sql, failed, group);
        sql.push(" AND ")
            .name(&failed.last_failure.column)
            .push(" IS NULL)");
    }
    sql.push(")");
}

/// All groups at once, for a row that is looked at anyway.
fn put_any_group(sql: &mut SqlBuilder, failed: &FailureColumns, groups: &[FailureGroup]) {
    sql.push("(");
    put_fresh(sql, failed);
    sql.push(" OR ")
        .name(&failed.last_failure.column)
        .push(" IS NULL");
    if let Some((last, others)) = groups.split_last() {
        sql.push(" OR ")
            .comparable(&failed.last_failure)
            .push(" <= CASE");
        for group in others {
            sql.push(" WHEN ")
                .failed_times(&failed.failures, group.failures)
                .push(" THEN ");
            sql.bound(&failed.last_failure, group.last_failure_until);
        }
        sql.push(" WHEN ");
        put_failures(sql, failed, last);
        sql.push(" THEN ")
            .bound(&failed.last_failure, last.last_failure_until)
            .push(" END");
    }
    sql.push(")");
}

/// Behind a place: inserted before it, or at the same time and with a lower key.
fn put_behind(sql: &mut SqlBuilder, shape: &TableSchema, place: &RowPlace) {
    put_compared(sql, shape, place, "", ["<=", "<", "<"]);
}

fn put_until(sql: &mut SqlBuilder, shape: &TableSchema, place: &RowPlace) {
    put_compared(sql, shape, place, "", [">=", ">", ">="]);
}

/// Ahead of a place in the other order, the oldest first.
pub(super) fn put_past(sql: &mut SqlBuilder, shape: &TableSchema, place: &RowPlace, lead: &str) {
    put_compared(sql, shape, place, lead, [">=", ">", ">"]);
}

/// On one side of a place. The first comparison says no more than the others, in the way that an
/// index is asked; unless `lead` keeps it from that.
fn put_compared(
    sql: &mut SqlBuilder,
    shape: &TableSchema,
    place: &RowPlace,
    lead: &str,
    [roughly, apart, alike]: [&str; 3],
) {
    let (inserted, id) = (&shape.inserted, &shape.id);
    let put = |sql: &mut SqlBuilder, sign: &str| {
        sql.ordinal(inserted)
            .push(" ")
            .push(sign)
            .push(" ")
            .place(place.inserted.param(), inserted);
    };
    sql.push(" AND ").push(lead);
    put(sql, roughly);
    sql.push(" AND (");
    put(sql, apart);
    sql.push(" OR (");
    put(sql, "=");
    sql.push(" AND ")
        .name(id)
        .push(" ")
        .push(alike)
        .push(" ")
        .value(place.key.param(), id)
        .push("))");
}

/// Whether an open row failed after a time.
pub(in crate::tables) fn failed_after(
    table: &Table,
    shape: &TableSchema,
    failed: &FailureColumns,
    time: Time,
) -> SqlStatement {
    let is_indexed = shape.has_failure_index();
    let mut sql = SqlBuilder::new(shape.dialect);
    sql.push("SELECT one FROM (SELECT 1 AS one FROM ");
    if is_indexed {
        // By an index each number is looked for by itself, up to where that is worth it.
        let numbers: Vec<String> = (1..GROUPS_MAX)
            .map(|failures| failures.to_string())
            .collect();
        if is_joined(shape) {
            sql.push("(VALUES (")
                .push(&numbers.join("), ("))
                .push(")) AS backstop_g CROSS JOIN ");
        }
        sql.push(&shape.catalogue.quoted).push(" WHERE ");
        is_open(&mut sql, shape, &table.states);
        sql.push(" AND ").failures(&failed.failures);
        if is_joined(shape) {
            sql.push(" = backstop_g.column1");
        } else {
            sql.push(" IN (").push(&numbers.join(", ")).push(")");
        }
        sql.push(" AND ")
            .after(&failed.last_failure, time)
            .push(" UNION ALL SELECT 1 AS one FROM ");
    }
    sql.push(&shape.catalogue.quoted).push(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.push(" AND ")
        .failed_at_least(&failed.failures, if is_indexed { GROUPS_MAX } else { 1 });
    sql.push(" AND ")
        .after(&failed.last_failure, time)
        .push(") AS u LIMIT 1");
    sql.build_indexed(is_indexed)
}

/// The failures of rows that wait, and the first of their last failures for each number.
pub(in crate::tables) fn next_due(
    table: &Table,
    shape: &TableSchema,
    failed: &FailureColumns,
    inserted_from: Time,
) -> SqlStatement {
    let mut sql = SqlBuilder::new(shape.dialect);
    // `GROUP BY 1` is by the first of these, whatever it is called.
    sql.push("SELECT ")
        .failures(&failed.failures)
        .push(if shape.dialect == SqlDialect::Postgres {
            "::text, "
        } else {
            ", "
        });
    sql.read_first(&failed.last_failure)
        .push(" FROM ")
        .push(&shape.catalogue.quoted)
        .push(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.push(" AND ")
        .at_or_after(&shape.inserted, inserted_from);
    sql.push(" AND ").failed_at_least(&failed.failures, 1);
    sql.push(" AND ").readable(&failed.last_failure);
    sql.push(" GROUP BY 1");
    sql.build()
}
