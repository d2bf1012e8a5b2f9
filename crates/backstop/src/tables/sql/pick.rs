//! The query for what is due, newest first.

use super::{Open, Sql, is_open, status_is};
use crate::tables::Table;
use crate::tables::adopted::View;
use crate::tables::link::Statement;
use crate::tables::row::Key;
use crate::tables::shape::{FailureColumns, Shape};
use backstop_core::Time;
use backstop_core::sweep::Dialect;
use backstop_core::table::{Criteria, DueRows, Group, Window};

/// Numbers of failures that are looked for one by one; those above are looked through.
const SOUGHT_MAX: u32 = 64;

/// A place in the order of rows, as its columns say it.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::tables) struct Place {
    pub(in crate::tables) inserted: Key,
    pub(in crate::tables) key: Key,
}

/// Which rows of a branch, and whether it can come in order.
struct Branch<'a> {
    states: &'a [Open],
    is_ordered: bool,
    condition: Condition,
}

enum Condition {
    Window(Window),
    /// Failed as often as one of these groups, and long enough ago; or not at all.
    AnyGroup,
    Fresh,
    /// As fresh, taken apart for an index.
    Unfailed,
    Uncounted,
    Unnumbered,
    Group(Group),
    Undated(Group),
    /// Each of these groups, joined one after the other.
    Groups(Vec<Group>),
    UndatedGroups(Vec<Group>),
    /// Each of these groups, dated or not, as so many ranges of one index.
    Ranges(Vec<Group>),
}

/// Keys and times of insertion of what is due, newest first and at most `max`; `None` if nothing
/// can be. A row without a key that can be noted down is not among them, and takes nobody's place.
/// Of a branch that does not come in order no more than `cap` are looked at: where [`pick_beyond`]
/// so many are due, these may not be the newest.
pub(in crate::tables) fn pick(
    table: &Table,
    shape: &Shape,
    criteria: &Criteria,
    view: &View,
    max: usize,
    cap: Option<usize>,
) -> Option<Statement> {
    let branches = branches(shape, criteria);
    (!branches.is_empty()).then(|| pick_of(&branches, table, shape, criteria, view, (max, cap)))
}

/// Whether more than `many` rows are due in the branches that do not come in order.
pub(in crate::tables) fn pick_beyond(
    table: &Table,
    shape: &Shape,
    criteria: &Criteria,
    many: usize,
) -> Statement {
    let branches = branches(shape, criteria);
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT one FROM (");
    for (at, branch) in branches
        .iter()
        .filter(|branch| !branch.is_ordered)
        .enumerate()
    {
        sql.say(if at == 0 { "" } else { " UNION ALL " })
            .say("SELECT * FROM (SELECT 1 AS one FROM ");
        put_groups(&mut sql, shape, &branch.condition);
        sql.say(&shape.catalogue.quoted).say(" WHERE ");
        put_branch(&mut sql, table, shape, criteria, branch);
        sql.say(" LIMIT ").number(many + 1).say(") AS b").number(at);
    }
    sql.say(") AS u LIMIT 1 OFFSET ").number(many);
    sql.done_indexed(shape.has_order_index() && shape.has_failure_index())
}

/// The same, a statement for each branch.
pub(in crate::tables) fn pick_apart(
    table: &Table,
    shape: &Shape,
    criteria: &Criteria,
    view: &View,
    max: usize,
) -> Vec<Statement> {
    let branches = branches(shape, criteria);
    branches
        .chunks(1)
        .map(|branch| pick_of(branch, table, shape, criteria, view, (max, None)))
        .collect()
}

fn pick_of(
    branches: &[Branch<'_>],
    table: &Table,
    shape: &Shape,
    criteria: &Criteria,
    view: &View,
    (max, cap): (usize, Option<usize>),
) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT backstop_k, backstop_i FROM (");
    for (at, branch) in branches.iter().enumerate() {
        sql.say(if at == 0 { "" } else { " UNION ALL " })
            .say("SELECT * FROM (SELECT ");
        sql.place_columns(shape).say(" FROM ");
        put_groups(&mut sql, shape, &branch.condition);
        sql.say(&shape.catalogue.quoted).say(" WHERE ");
        put_branch(&mut sql, table, shape, criteria, branch);
        sql.say(" AND ").usable_key(&shape.id);
        if let Some(place) = &view.behind {
            put_behind(&mut sql, shape, place);
        }
        if let Some(place) = &view.until {
            put_until(&mut sql, shape, place);
        }
        if branch.is_ordered {
            put_newest_first(&mut sql, shape, max);
        } else if let Some(cap) = cap {
            sql.say(" LIMIT ").number(cap);
        }
        sql.say(") AS b").number(at);
    }
    sql.say(") AS u ORDER BY backstop_o DESC, backstop_d DESC LIMIT ")
        .number(max);
    sql.done_indexed(
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
    shape: &Shape,
    criteria: &Criteria,
    max: usize,
    among: usize,
) -> Option<Statement> {
    let is_in_order = shape.has_order_index() && !shape.inserted.is_mixed();
    let failed = shape
        .failed
        .as_ref()
        .filter(|_| is_in_order && shape.has_failure_index())?;
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT backstop_k, backstop_i, backstop_s FROM (SELECT * FROM (SELECT ")
        .place_columns(shape);
    sql.say(", 'n' AS backstop_s FROM ")
        .say(&shape.catalogue.quoted)
        .say(" WHERE ");
    let new = Branch {
        states: &[Open::New],
        is_ordered: true,
        condition: Condition::AnyGroup,
    };
    put_branch(&mut sql, table, shape, criteria, &new);
    sql.say(" AND ").usable_key(&shape.id);
    put_newest_first(&mut sql, shape, max);
    sql.say(") AS b0 UNION ALL SELECT * FROM (SELECT ")
        .place_columns(shape);
    sql.say(", 'e' AS backstop_s FROM (SELECT ")
        .name(&shape.id)
        .say(", ")
        .name(&shape.inserted.column);
    sql.say(", ")
        .name(&failed.failures)
        .say(", ")
        .name(&failed.last_failure.column)
        .say(" FROM ");
    sql.say(&shape.catalogue.quoted).say(" WHERE ");
    status_is(&mut sql, shape, &table.states.error);
    sql.say(" AND ")
        .at_or_after(&shape.inserted, criteria.inserted_from);
    sql.say(" AND ").usable_key(&shape.id);
    put_newest_first(&mut sql, shape, among);
    sql.say(") AS s WHERE ");
    put_condition(&mut sql, shape, criteria, &Condition::AnyGroup);
    put_newest_first(&mut sql, shape, max);
    sql.say(") AS b1) AS u ORDER BY backstop_o DESC, backstop_d DESC");
    Some(sql.done_indexed(true))
}

fn put_newest_first(sql: &mut Sql, shape: &Shape, max: usize) {
    sql.say(" ORDER BY ")
        .ordinal(&shape.inserted)
        .say(" DESC, ")
        .name(&shape.id)
        .say(" DESC");
    sql.say(" LIMIT ").number(max);
}

fn branches(shape: &Shape, criteria: &Criteria) -> Vec<Branch<'static>> {
    const STATES: [&[Open]; 2] = [&[Open::New], &[Open::Error]];
    let in_order = |condition: fn() -> Condition| {
        STATES.iter().map(move |states| Branch {
            states,
            is_ordered: true,
            condition: condition(),
        })
    };
    match &criteria.due {
        DueRows::ByAge(windows) => windows
            .iter()
            .flat_map(|window| {
                STATES.iter().map(|states| Branch {
                    states,
                    is_ordered: true,
                    condition: Condition::Window(*window),
                })
            })
            .collect(),
        DueRows::ByFailures { .. } if !shape.has_failure_index() => {
            in_order(|| Condition::AnyGroup).collect()
        }
        DueRows::ByFailures {
            groups,
            max_failures,
        } => sought(shape, groups, *max_failures),
    }
}

/// Rows that failed are found by how often: a branch for each number, so that an index leads to
/// those that are due. New rows come in order: nearly all of them have not failed. Of the errors
/// nearly all have.
fn sought(shape: &Shape, groups: &[Group], max_failures: Option<u32>) -> Vec<Branch<'static>> {
    let of_errors = |condition| Branch {
        states: &[Open::Error],
        is_ordered: false,
        condition,
    };
    let mut branches = vec![
        Branch {
            states: &[Open::New],
            is_ordered: true,
            condition: Condition::Fresh,
        },
        of_errors(Condition::Unfailed),
        of_errors(Condition::Uncounted),
    ];
    if shape.dialect == Dialect::Sqlite {
        // A branch of its own: SQLite answers an OR by no index, and read every error.
        branches.push(of_errors(Condition::Unnumbered));
    }
    let mut apart = one_by_one(groups, max_failures);
    let mut push = |condition| {
        branches.push(Branch {
            states: &Open::ALL,
            is_ordered: false,
            condition,
        });
    };
    if !is_joined(shape) {
        if !apart.is_empty() {
            push(Condition::Ranges(apart));
        }
        return branches;
    }
    let joined: Vec<Group> = apart.extract_if(.., |group| !group.or_more).collect();
    if !joined.is_empty() {
        push(Condition::Groups(joined.clone()));
        push(Condition::UndatedGroups(joined));
    }
    for group in apart {
        push(Condition::Group(group));
        push(Condition::Undated(group));
    }
    branches
}

/// Whether numbers of failures are rows that the table is joined to. A branch for each lost: SQLite
/// took 100 ms to prepare 130 of them and PostgreSQL 500 to plan, both on a busy machine; joined it
/// is 5 and 15. MySQL has such rows in other words than MariaDB, and both make ranges of one index
/// out of conditions with `OR`: a third of the time that branches took.
fn is_joined(shape: &Shape) -> bool {
    shape.dialect != Dialect::Mysql
}

/// The groups of a branch as rows that the table is joined to: failures, the last failure that is
/// due, and for an index of SQLite's as text.
fn put_groups(sql: &mut Sql, shape: &Shape, condition: &Condition) {
    let (Condition::Groups(groups) | Condition::UndatedGroups(groups)) = condition else {
        return;
    };
    let Some(failed) = &shape.failed else { return };
    sql.say("(VALUES ");
    for (at, group) in groups.iter().enumerate() {
        sql.say(if at == 0 { "(" } else { ", (" })
            .count(group.failures.into())
            .say(", ");
        sql.bound(&failed.last_failure, group.last_failure_until);
        sql.coarse_bound(&failed.last_failure, group.last_failure_until)
            .say(")");
    }
    // The table is looked at once for each of them, and not the other way round.
    sql.say(") AS backstop_g CROSS JOIN ");
}

/// The groups, with the last, open one taken apart as far as that is worth it.
fn one_by_one(groups: &[Group], max_failures: Option<u32>) -> Vec<Group> {
    let mut apart = groups.to_vec();
    let Some(last) = apart.pop_if(|group| group.or_more) else {
        return apart;
    };
    let end = SOUGHT_MAX.max(last.failures);
    let end = max_failures.map_or(end, |max| end.min(max));
    for failures in last.failures..end {
        apart.push(Group {
            failures,
            or_more: false,
            ..last
        });
    }
    apart.push(Group {
        failures: end,
        ..last
    });
    apart
}

fn put_branch(
    sql: &mut Sql,
    table: &Table,
    shape: &Shape,
    criteria: &Criteria,
    branch: &Branch<'_>,
) {
    match branch.states {
        [state] => status_is(sql, shape, state.word(&table.states)),
        _ => is_open(sql, shape, &table.states),
    }
    sql.say(" AND ");
    if let Condition::Window(window) = &branch.condition {
        put_window(sql, shape, window);
        return;
    }
    if !branch.is_ordered && shape.dialect == Dialect::Sqlite {
        // Not an index on insertion: it would lead through every row that failed.
        sql.say("+");
    }
    sql.at_or_after(&shape.inserted, criteria.inserted_from)
        .say(" AND ");
    put_condition(sql, shape, criteria, &branch.condition);
}

/// How often a row failed, and when last.
fn put_condition(sql: &mut Sql, shape: &Shape, criteria: &Criteria, condition: &Condition) {
    let (
        Some(failed),
        DueRows::ByFailures {
            groups,
            max_failures,
        },
    ) = (&shape.failed, &criteria.due)
    else {
        sql.say("1 = 0");
        return;
    };
    match condition {
        Condition::AnyGroup => put_any_group(sql, failed, groups),
        Condition::Fresh => put_fresh(sql, failed),
        Condition::Unfailed => {
            sql.unfailed(&failed.failures);
        }
        Condition::Uncounted => {
            sql.failures(&failed.failures).say(" IS NULL");
        }
        Condition::Unnumbered => {
            sql.unnumbered(&failed.failures);
        }
        Condition::Group(group) => {
            put_failures(sql, failed, group);
            sql.say(" AND ")
                .at_or_before(&failed.last_failure, group.last_failure_until);
        }
        Condition::Undated(group) => {
            put_failures(sql, failed, group);
            sql.say(" AND ")
                .name(&failed.last_failure.column)
                .say(" IS NULL");
        }
        Condition::Ranges(groups) => put_ranges(sql, failed, groups),
        Condition::Groups(_) => {
            sql.failures(&failed.failures)
                .say(" = backstop_g.column1 AND ");
            sql.at_or_before_joined(
                &failed.last_failure,
                ["backstop_g.column2", "backstop_g.column3"],
            );
        }
        Condition::UndatedGroups(_) => {
            sql.failures(&failed.failures)
                .say(" = backstop_g.column1 AND ");
            sql.name(&failed.last_failure.column).say(" IS NULL");
        }
        Condition::Window(_) => {}
    }
    if let Some(max) = max_failures {
        sql.say(" AND ").failed_less_than(&failed.failures, *max);
    }
}

fn put_window(sql: &mut Sql, shape: &Shape, window: &Window) {
    sql.at_or_after(&shape.inserted, window.from);
    if let Some(before) = window.before {
        sql.say(" AND ").before(&shape.inserted, before);
    }
}

fn put_fresh(sql: &mut Sql, failed: &FailureColumns) {
    sql.say("(")
        .uncounted(&failed.failures)
        .say(" OR ")
        .unfailed(&failed.failures)
        .say(")");
}

fn put_failures(sql: &mut Sql, failed: &FailureColumns, group: &Group) {
    if group.or_more {
        sql.failed_at_least(&failed.failures, group.failures);
    } else {
        sql.failed_times(&failed.failures, group.failures);
    }
}

/// All groups, each by the beginning of an index.
fn put_ranges(sql: &mut Sql, failed: &FailureColumns, groups: &[Group]) {
    sql.say("(");
    for (at, group) in groups.iter().enumerate() {
        sql.say(if at == 0 { "(" } else { " OR (" });
        put_failures(sql, failed, group);
        sql.say(" AND ")
            .at_or_before(&failed.last_failure, group.last_failure_until)
            .say(") OR (");
        put_failures(sql, failed, group);
        sql.say(" AND ")
            .name(&failed.last_failure.column)
            .say(" IS NULL)");
    }
    sql.say(")");
}

/// All groups at once, for a row that is looked at anyway.
fn put_any_group(sql: &mut Sql, failed: &FailureColumns, groups: &[Group]) {
    sql.say("(");
    put_fresh(sql, failed);
    sql.say(" OR ")
        .name(&failed.last_failure.column)
        .say(" IS NULL");
    if let Some((last, others)) = groups.split_last() {
        sql.say(" OR ")
            .comparable(&failed.last_failure)
            .say(" <= CASE");
        for group in others {
            sql.say(" WHEN ")
                .failed_times(&failed.failures, group.failures)
                .say(" THEN ");
            sql.bound(&failed.last_failure, group.last_failure_until);
        }
        sql.say(" WHEN ");
        put_failures(sql, failed, last);
        sql.say(" THEN ")
            .bound(&failed.last_failure, last.last_failure_until)
            .say(" END");
    }
    sql.say(")");
}

/// Behind a place: inserted before it, or at the same time and with a lower key.
fn put_behind(sql: &mut Sql, shape: &Shape, place: &Place) {
    put_beside(sql, shape, place, "", ["<=", "<", "<"]);
}

/// Not behind a place.
fn put_until(sql: &mut Sql, shape: &Shape, place: &Place) {
    put_beside(sql, shape, place, "", [">=", ">", ">="]);
}

/// Ahead of a place in the other order, the oldest first.
pub(super) fn put_past(sql: &mut Sql, shape: &Shape, place: &Place, lead: &str) {
    put_beside(sql, shape, place, lead, [">=", ">", ">"]);
}

/// On one side of a place. The first comparison says no more than the others, in the way that an
/// index is asked; unless `lead` keeps it from that.
fn put_beside(
    sql: &mut Sql,
    shape: &Shape,
    place: &Place,
    lead: &str,
    [roughly, apart, alike]: [&str; 3],
) {
    let (inserted, id) = (&shape.inserted, &shape.id);
    let put = |sql: &mut Sql, sign: &str| {
        sql.ordinal(inserted)
            .say(" ")
            .say(sign)
            .say(" ")
            .place(place.inserted.param(), inserted);
    };
    sql.say(" AND ").say(lead);
    put(sql, roughly);
    sql.say(" AND (");
    put(sql, apart);
    sql.say(" OR (");
    put(sql, "=");
    sql.say(" AND ")
        .name(id)
        .say(" ")
        .say(alike)
        .say(" ")
        .value(place.key.param(), id)
        .say("))");
}

/// Whether an open row failed after a time.
pub(in crate::tables) fn failed_after(
    table: &Table,
    shape: &Shape,
    failed: &FailureColumns,
    time: Time,
) -> Statement {
    let is_indexed = shape.has_failure_index();
    let mut sql = Sql::new(shape.dialect);
    sql.say("SELECT one FROM (SELECT 1 AS one FROM ");
    if is_indexed {
        // By an index each number is looked for by itself, up to where that is worth it.
        let numbers: Vec<String> = (1..SOUGHT_MAX)
            .map(|failures| failures.to_string())
            .collect();
        if is_joined(shape) {
            sql.say("(VALUES (")
                .say(&numbers.join("), ("))
                .say(")) AS backstop_g CROSS JOIN ");
        }
        sql.say(&shape.catalogue.quoted).say(" WHERE ");
        is_open(&mut sql, shape, &table.states);
        sql.say(" AND ").failures(&failed.failures);
        if is_joined(shape) {
            sql.say(" = backstop_g.column1");
        } else {
            sql.say(" IN (").say(&numbers.join(", ")).say(")");
        }
        sql.say(" AND ")
            .after(&failed.last_failure, time)
            .say(" UNION ALL SELECT 1 AS one FROM ");
    }
    sql.say(&shape.catalogue.quoted).say(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.say(" AND ")
        .failed_at_least(&failed.failures, if is_indexed { SOUGHT_MAX } else { 1 });
    sql.say(" AND ")
        .after(&failed.last_failure, time)
        .say(") AS u LIMIT 1");
    sql.done_indexed(is_indexed)
}

/// The failures of rows that wait, and the first of their last failures for each number.
pub(in crate::tables) fn next_due(
    table: &Table,
    shape: &Shape,
    failed: &FailureColumns,
    inserted_from: Time,
) -> Statement {
    let mut sql = Sql::new(shape.dialect);
    // `GROUP BY 1` is by the first of these, whatever it is called.
    sql.say("SELECT ")
        .failures(&failed.failures)
        .say(if shape.dialect == Dialect::Postgres {
            "::text, "
        } else {
            ", "
        });
    sql.read_first(&failed.last_failure)
        .say(" FROM ")
        .say(&shape.catalogue.quoted)
        .say(" WHERE ");
    is_open(&mut sql, shape, &table.states);
    sql.say(" AND ").at_or_after(&shape.inserted, inserted_from);
    sql.say(" AND ").failed_at_least(&failed.failures, 1);
    sql.say(" AND ").readable(&failed.last_failure);
    sql.say(" GROUP BY 1");
    sql.done()
}
