//! The schema of a store: made at once for a new file, and brought to the newest version by steps.
//!
//! A step is one transaction. Whoever is killed leaves it done or not begun, and a second process
//! that migrates waits for it.

use crate::error::store_error;
use backstop_core::port::{MigrationResult, SchemaMark, StoreError, StoreResult, UpgradeSteps};
use rusqlite::{Connection, Error, OptionalExtension, Result, TransactionBehavior};

const SCHEMA: &str = include_str!("sql/schema.sql");
const SCHEMA_GET: &str = include_str!("sql/schema_get.sql");
const SCHEMA_SET: &str = include_str!("sql/schema_set.sql");
const SCHEMA_FORMER: &str = include_str!("sql/schema_former.sql");
const DOING: &str = "migrating";
const INSTEAD: &str = "a new file";

/// There is none yet: version 1 is the first one. A released version that changes the schema
/// changes `schema.sql` and adds a step here.
const UPGRADES: UpgradeSteps<'_> = UpgradeSteps(&[]);

/// The version this program works with.
pub(crate) const VERSION: u32 = UPGRADES.newest();

/// Brings a store up to date.
pub(crate) fn migrate(db: &mut Connection) -> StoreResult<MigrationResult> {
    migrate_by(db, UPGRADES)
}

fn migrate_by(db: &mut Connection, upgrades: UpgradeSteps<'_>) -> StoreResult<MigrationResult> {
    let failed = |error| store_error(DOING, &error);
    let to = upgrades.newest();
    let from = mark(db).map_err(failed)?.check(DOING, to, INSTEAD)?;
    for (version, step) in upgrades.steps_from(from, SCHEMA) {
        take_step(db, version, step).map_err(failed)?;
    }
    Ok(MigrationResult { from, to })
}

/// Takes one step, unless another process has taken it by now.
fn take_step(db: &mut Connection, to: u32, step: &str) -> Result<()> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_taken = matches!(mark(&transaction)?, SchemaMark::Version(version) if version >= to);
    if !is_taken {
        transaction.execute_batch(step)?;
        transaction.execute(SCHEMA_SET, [to])?;
    }
    transaction.commit()
}

/// What a file says about its schema. The usual case costs one look.
pub(crate) fn mark(db: &Connection) -> Result<SchemaMark> {
    match db
        .prepare_cached(SCHEMA_GET)
        .and_then(|mut get| get.query_row([], |row| row.get(0)))
    {
        Ok(version) => Ok(SchemaMark::Version(version)),
        Err(error) if is_missing_table(&error) => {
            let former = db.query_row(SCHEMA_FORMER, [], |_| Ok(())).optional()?;
            Ok(former.map_or(SchemaMark::Missing, |()| SchemaMark::PreRelease))
        }
        Err(error) => Err(error),
    }
}

fn is_missing_table(error: &Error) -> bool {
    let is_it = |text: &str| text.starts_with("no such table: backstop_schema");
    match error {
        Error::SqliteFailure(_, Some(text)) => is_it(text),
        Error::SqlInputError { msg, .. } => is_it(msg),
        _ => false,
    }
}

/// Refuses a store that this program does not know. Every transaction calls it: another process may
/// migrate at any time.
pub(crate) fn check_version(db: &Connection, doing: &'static str) -> StoreResult<()> {
    let mark = mark(db).map_err(|error| store_error(doing, &error))?;
    if mark.check(doing, VERSION, INSTEAD)? < VERSION {
        let cause = "the store is not migrated; run `backstop migrate` first";
        return Err(StoreError::misuse(doing, cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
