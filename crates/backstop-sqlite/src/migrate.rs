//! Creates the schema of a new store, and upgrades that of an old one step by step.
//!
//! Each step is one transaction. If the process is killed, a step is done or not begun. A second
//! process that migrates at the same time waits for it.

use crate::error::store_error;
use backstop_core::port::{MigrationResult, SchemaMark, StoreError, StoreResult, UpgradeSteps};
use rusqlite::{Connection, Error, OptionalExtension, Result, TransactionBehavior};

const SCHEMA: &str = include_str!("sql/schema.sql");
const SCHEMA_GET: &str = include_str!("sql/schema_get.sql");
const SCHEMA_SET: &str = include_str!("sql/schema_set.sql");
const SCHEMA_FORMER: &str = include_str!("sql/schema_former.sql");
const DOING: &str = "migrating";
const INSTEAD: &str = "a new file";

/// The upgrade steps. There is none yet: version 1 is the first one. A release that changes the
/// schema changes `schema.sql` and adds a step here.
const UPGRADES: UpgradeSteps<'_> = UpgradeSteps(&[]);

/// The schema version that this program works with.
pub(crate) const VERSION: u32 = UPGRADES.newest();

/// Upgrades a store to this program's schema version.
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

/// Runs one step, unless another process has run it by now.
fn take_step(db: &mut Connection, to: u32, step: &str) -> Result<()> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_taken = matches!(mark(&transaction)?, SchemaMark::Version(version) if version >= to);
    if !is_taken {
        transaction.execute_batch(step)?;
        transaction.execute(SCHEMA_SET, [to])?;
    }
    transaction.commit()
}

/// Reads the schema version of a file. The usual case costs one query.
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

/// Refuses a store whose version this program does not know. Every transaction calls it, because
/// another process may migrate at any time.
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
