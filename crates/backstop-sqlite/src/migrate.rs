//! The ladder: one transaction per step, so that a step is there or not, whoever is killed when.
//!
//! Programs of two versions work on one file while one is rolled out. So a store keeps, beside its version, the least version that a program
//! must know to use it:
//!
//! | a step | the least version after it |
//! |---|---|
//! | adds what programs of before need not know: a column that may be NULL, an index | as it was |
//! | anything else | its own |
//!
//! | the store's version | its least | this program |
//! |---|---|---|
//! | its own | | uses it |
//! | older | | migrates it first |
//! | newer | no more than its own | uses it, and leaves its shape alone |
//! | newer | more, or not said | refuses it |

mod fingerprints;

use crate::error::store_error;
use backstop_core::port::{Answer, Migrated, StoreError};
use rusqlite::{Connection, Error, OptionalExtension, Result, TransactionBehavior};

const SCHEMA_MAKE: &str = include_str!("sql/schema_make.sql");
const SCHEMA_GET: &str = include_str!("sql/schema_get.sql");
const SCHEMA_SET: &str = include_str!("sql/schema_set.sql");
const LEAST_GET: &str = include_str!("sql/least_get.sql");
const LEAST_SET: &str = include_str!("sql/least_set.sql");
const DOING: &str = "migrating";

/// Step n brings a store from version n to n + 1. Steps are appended and never changed.
const LADDER: [Step; 5] = [
    Step::new(include_str!("sql/migrate_1.sql")),
    Step { fill: fingerprints::fill, ..Step::new(include_str!("sql/migrate_2.sql")) },
    Step::new(include_str!("sql/migrate_3.sql")),
    Step::adding(include_str!("sql/migrate_4.sql")),
    Step::adding(include_str!("sql/migrate_5.sql")),
];

/// The version this program works with.
pub(crate) const VERSION: u32 = LADDER.len() as u32;

/// One step: what SQL does, and then what SQL cannot.
#[derive(Clone, Copy)]
struct Step {
    sql: &'static str,
    fill: fn(&Connection) -> Result<()>,
    /// Whether programs of the version before can go on with what it leaves.
    only_adds: bool,
}

impl Step {
    /// A step of SQL alone.
    const fn new(sql: &'static str) -> Self {
        Self { sql, fill: |_| Ok(()), only_adds: false }
    }

    /// One that takes nothing from programs of the version before.
    const fn adding(sql: &'static str) -> Self {
        Self { only_adds: true, ..Self::new(sql) }
    }
}

/// How a store's version relates to this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It can be used.
    Current,
    /// It must be migrated first.
    Older,
    /// Another program made it, for such as itself.
    Newer(u32),
}

/// Brings a store up to date.
pub(crate) fn migrate(db: &mut Connection) -> Answer<Migrated> {
    climb(db, &LADDER)
}

fn climb(db: &mut Connection, ladder: &[Step]) -> Answer<Migrated> {
    let failed = |error| store_error(DOING, &error);
    let from = version(db).map_err(failed)?;
    let to = ladder.len() as u32;
    if from > to {
        return match least(db).map_err(failed)? {
            least if least <= to => Ok(Migrated { from, to: from }),
            _ => Err(too_new(DOING, from)),
        };
    }
    for (version, step) in (1..=to).zip(ladder) {
        climb_to(db, version, step).map_err(failed)?;
    }
    Ok(Migrated { from, to })
}

/// One step, unless somebody else has made it by now.
fn climb_to(db: &mut Connection, to: u32, step: &Step) -> Result<()> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? < to {
        transaction.execute_batch(SCHEMA_MAKE)?;
        let least = if step.only_adds { least(&transaction)? } else { to };
        transaction.execute_batch(step.sql)?;
        (step.fill)(&transaction)?;
        transaction.execute(SCHEMA_SET, [to])?;
        transaction.execute(LEAST_SET, [least])?;
    }
    transaction.commit()
}

/// The version of a store; 0 if it is new.
pub(crate) fn version(db: &Connection) -> Result<u32> {
    Ok(number(db, SCHEMA_GET)?.unwrap_or(0))
}

/// The least version that a program must know to use a store. Where it is not said, the store was made by programs that knew one only.
fn least(db: &Connection) -> Result<u32> {
    match number(db, LEAST_GET)? {
        Some(least) => Ok(least),
        None => version(db),
    }
}

fn number(db: &Connection, get: &str) -> Result<Option<u32>> {
    match db.prepare_cached(get).and_then(|mut get| get.query_row([], |row| row.get(0)).optional()) {
        Err(error) if is_missing_table(&error) => Ok(None),
        answer => answer,
    }
}

fn is_missing_table(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(_, Some(text)) if text.starts_with("no such table: backstop_meta"))
        || matches!(error, Error::SqlInputError { msg, .. } if msg.starts_with("no such table: backstop_meta"))
}

/// How a store relates to this program.
pub(crate) fn standing(db: &Connection) -> Result<Standing> {
    Ok(match version(db)? {
        VERSION => Standing::Current,
        version if version < VERSION => Standing::Older,
        // The usual case costs one look, this one two.
        _ if least(db)? <= VERSION => Standing::Current,
        version => Standing::Newer(version),
    })
}

/// Refuses a store that this program does not know. Asked inside every transaction: another process may migrate at any time.
pub(crate) fn check_version(db: &Connection, doing: &'static str) -> Answer<()> {
    match standing(db).map_err(|error| store_error(doing, &error))? {
        Standing::Current => Ok(()),
        Standing::Older => {
            Err(StoreError::misuse(doing, "the store is not migrated; run `backstop migrate` first"))
        }
        Standing::Newer(version) => Err(too_new(doing, version)),
    }
}

fn too_new(doing: &'static str, version: u32) -> StoreError {
    let cause = format!(
        "the store has version {version} and this program knows {VERSION}; use the program that migrated it, or a newer one"
    );
    StoreError::misuse(doing, cause)
}

#[cfg(test)]
mod tests;
