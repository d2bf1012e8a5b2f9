//! The ladder: one transaction per step, so that a step is there or not, whoever is killed when.

mod fingerprints;

use crate::error::store_error;
use backstop_core::port::{Answer, Migrated, StoreError};
use rusqlite::{Connection, Error, OptionalExtension, Result, TransactionBehavior};

const SCHEMA_MAKE: &str = include_str!("sql/schema_make.sql");
const SCHEMA_GET: &str = include_str!("sql/schema_get.sql");
const SCHEMA_SET: &str = include_str!("sql/schema_set.sql");
const DOING: &str = "migrating";

/// Step n brings a store from version n to n + 1. Steps are appended and never changed.
const LADDER: [Step; 5] = [
    Step::new(include_str!("sql/migrate_1.sql")),
    Step { sql: include_str!("sql/migrate_2.sql"), fill: fingerprints::fill },
    Step::new(include_str!("sql/migrate_3.sql")),
    Step::new(include_str!("sql/migrate_4.sql")),
    Step::new(include_str!("sql/migrate_5.sql")),
];

/// The version this program works with.
pub(crate) const VERSION: u32 = LADDER.len() as u32;

/// One step: what SQL does, and then what SQL cannot.
#[derive(Clone, Copy)]
struct Step {
    sql: &'static str,
    fill: fn(&Connection) -> Result<()>,
}

impl Step {
    /// A step of SQL alone.
    const fn new(sql: &'static str) -> Self {
        Self { sql, fill: |_| Ok(()) }
    }
}

/// How a store's version relates to this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It can be used.
    Current,
    /// It must be migrated first.
    Older,
    /// Another program made it.
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
        return Err(too_new(DOING, from));
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
        transaction.execute_batch(step.sql)?;
        (step.fill)(&transaction)?;
        transaction.execute(SCHEMA_SET, [to])?;
    }
    transaction.commit()
}

/// The version of a store; 0 if it is new.
pub(crate) fn version(db: &Connection) -> Result<u32> {
    match db.prepare_cached(SCHEMA_GET).and_then(|mut get| get.query_row([], |row| row.get(0)).optional()) {
        Ok(version) => Ok(version.unwrap_or(0)),
        Err(error) if is_missing_table(&error) => Ok(0),
        Err(error) => Err(error),
    }
}

fn is_missing_table(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(_, Some(text)) if text.starts_with("no such table: backstop_meta"))
        || matches!(error, Error::SqlInputError { msg, .. } if msg.starts_with("no such table: backstop_meta"))
}

/// How a store of this version relates to this program.
pub(crate) const fn standing(version: u32) -> Standing {
    if version == VERSION {
        Standing::Current
    } else if version < VERSION {
        Standing::Older
    } else {
        Standing::Newer(version)
    }
}

/// Refuses a store of another version. Asked inside every transaction: another process may migrate at any time.
pub(crate) fn check_version(db: &Connection, doing: &'static str) -> Answer<()> {
    match standing(version(db).map_err(|error| store_error(doing, &error))?) {
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
