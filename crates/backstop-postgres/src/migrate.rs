//! Creates the schema of a new store, and upgrades that of an old one step by step.
//!
//! Each step is one transaction. If the process is killed, a step is done or not begun. A second
//! process that migrates at the same time waits for it.

use crate::error::store_error;
use crate::link::PostgresLink;
use crate::row;
use backstop_core::port::{MigrationResult, SchemaMark, StoreError, StoreResult, UpgradeSteps};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// The upgrade steps. There is none yet: version 1 is the first one. A release that changes tables
/// or functions changes the files below and adds a step here, which also drops, creates and grants
/// the functions that it changes.
const UPGRADES: UpgradeSteps<'_> = UpgradeSteps(&[]);
/// The schema version that this program needs.
pub(crate) const VERSION: u32 = UPGRADES.newest();
const DOING: &str = "migrating";
const INSTEAD: &str = "another schema";
/// The error code of a step that another process ran while this one waited.
const ALREADY_TAKEN: &str = "BS001";
const SERVER_VERSION_MIN: i32 = 140_000;
/// The column that the version table had in pre-releases.
const FORMER_COLUMN: &str = "number";

/// The tables, and then the functions: each comes after those that it calls.
const SCHEMA: [&str; 28] = [
    include_str!("sql/schema.sql"),
    include_str!("sql/ticket.sql"),
    include_str!("sql/state_of.sql"),
    include_str!("sql/tell.sql"),
    include_str!("sql/key.sql"),
    include_str!("sql/enqueue.sql"),
    include_str!("sql/bounds.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/beat.sql"),
    include_str!("sql/seize.sql"),
    include_str!("sql/promote.sql"),
    include_str!("sql/amend.sql"),
    include_str!("sql/dead.sql"),
    include_str!("sql/jobs.sql"),
    include_str!("sql/queues.sql"),
    include_str!("sql/prune.sql"),
    include_str!("sql/cells.sql"),
    include_str!("sql/stream.sql"),
    include_str!("sql/records.sql"),
    include_str!("sql/offer.sql"),
    include_str!("sql/take.sql"),
    include_str!("sql/keep.sql"),
    include_str!("sql/advance.sql"),
    include_str!("sql/streams.sql"),
    include_str!("sql/public.sql"),
    include_str!("sql/shape.sql"),
];
/// The settings and grants of all functions.
const GRANTS: &str = include_str!("sql/grants.sql");

/// Upgrades the schema. If it is current, nothing is written and no right to write is needed.
pub(crate) async fn migrate(link: &PostgresLink) -> StoreResult<MigrationResult> {
    migrate_by(link, UPGRADES).await
}

async fn migrate_by(
    link: &PostgresLink,
    upgrades: UpgradeSteps<'_>,
) -> StoreResult<MigrationResult> {
    check_server(link).await?;
    let to = upgrades.newest();
    let mut from = mark(link).await?.check(DOING, to, INSTEAD)?;
    let schema = SCHEMA.join("\n");
    for (version, step) in upgrades.steps_from(from, &schema) {
        let text = transaction_of(step, from == 0, version, link.schema());
        if take_step(link, &text).await? == StepOutcome::AlreadyTaken {
            from = version;
        }
    }
    Ok(MigrationResult { from, to })
}

/// The outcome of an upgrade step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepOutcome {
    Taken,
    /// Another process ran the step.
    AlreadyTaken,
}

async fn take_step(link: &PostgresLink, text: &str) -> StoreResult<StepOutcome> {
    let failed = |error| store_error(DOING, &error);
    let mut client = link.client(DOING).await?;
    let step = client.build_transaction().start().await.map_err(failed)?;
    match step.batch_execute(text).await {
        Err(error)
            if error
                .code()
                .is_some_and(|code| code.code() == ALREADY_TAKEN) =>
        {
            return Ok(StepOutcome::AlreadyTaken);
        }
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            let schema = link.schema();
            return Err(StoreError::unavailable(
                DOING,
                format!(
                    "somebody holds a lock on a table of schema {schema:?}, as pg_dump does on all of \
                     them; look in pg_stat_activity, and migrate again when it has ended ({error})"
                ),
            ));
        }
        done => done.map_err(failed)?,
    }
    step.commit().await.map_err(failed)?;
    Ok(StepOutcome::Taken)
}

/// Reads what the database says about the schema: whether it exists, and its version.
async fn mark(link: &PostgresLink) -> StoreResult<SchemaMark> {
    const COLUMN: &str = "SELECT a.attname::text FROM pg_attribute a \
                          WHERE a.attrelid = to_regclass($1) AND a.attnum = 1";
    let table = format!("\"{}\".version", link.schema());
    let columns = link.rows(DOING, COLUMN, &[(&table, Type::TEXT)]).await?;
    match columns
        .first()
        .map(|row| row::get::<&str>(row, 0))
        .transpose()?
    {
        None => return Ok(SchemaMark::Missing),
        Some(FORMER_COLUMN) => return Ok(SchemaMark::PreRelease),
        Some(_) => {}
    }
    let rows = link
        .rows(DOING, &format!("SELECT schema_version FROM {table}"), &[])
        .await?;
    let version = rows
        .first()
        .map(|row| row::get::<i32>(row, 0))
        .transpose()?;
    let version = version.and_then(|version| u32::try_from(version).ok());
    version.map(SchemaMark::Version).ok_or_else(|| {
        StoreError::corrupt(
            DOING,
            format!("table {table} has no version; restore its row"),
        )
    })
}

/// Reads the schema version; 0 if there is no schema. Refuses a version that this program does not
/// know.
pub(crate) async fn version(link: &PostgresLink) -> StoreResult<u32> {
    mark(link).await?.check(DOING, VERSION, INSTEAD)
}

async fn check_server(link: &PostgresLink) -> StoreResult<()> {
    let rows = link
        .rows(
            DOING,
            "SELECT current_setting('server_version_num')::int",
            &[],
        )
        .await?;
    let server: i32 = rows.first().map_or(0, |row| row.get(0));
    if server < SERVER_VERSION_MIN {
        let cause = format!(
            "this server is PostgreSQL {}; backstop needs 14 or later",
            server / 10_000
        );
        return Err(StoreError::misuse(DOING, cause));
    }
    Ok(())
}

/// Builds the SQL of a transaction that runs a step. The transaction holds an advisory lock to its
/// end: a second process waits for it, and then finds that the step is done.
fn transaction_of(step: &str, is_first: bool, to: u32, schema: &str) -> String {
    let check = if is_first {
        first_check(schema)
    } else {
        later_check(to, schema)
    };
    let mark = if is_first {
        format!("INSERT INTO version (schema_version) VALUES ({to})")
    } else {
        format!("UPDATE version SET schema_version = {to}")
    };
    format!(
        "SET LOCAL statement_timeout = 0;\n\
         SELECT pg_advisory_xact_lock(hashtextextended('backstop migrate {schema}', 0));\n\
         {check}\n\
         SET LOCAL lock_timeout = '4s';\n\
         SET LOCAL search_path = \"{schema}\", pg_temp;\n\
         SET LOCAL check_function_bodies = off;\n\
         {step};\n\
         {GRANTS}\n\
         {mark};\n\
         DELETE FROM shape;\n\
         INSERT INTO shape SELECT * FROM shapes();"
    )
}

fn first_check(schema: &str) -> String {
    format!(
        "DO $$ BEGIN\n\
         IF to_regclass('\"{schema}\".version') IS NOT NULL THEN \
         RAISE EXCEPTION 'migrated meanwhile' USING ERRCODE = '{ALREADY_TAKEN}'; END IF;\n\
         IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}') THEN \
         CREATE SCHEMA \"{schema}\"; END IF;\n\
         END $$;"
    )
}

fn later_check(to: u32, schema: &str) -> String {
    format!(
        "DO $$ BEGIN\n\
         IF (SELECT schema_version FROM \"{schema}\".version) >= {to} THEN \
         RAISE EXCEPTION 'migrated meanwhile' USING ERRCODE = '{ALREADY_TAKEN}'; END IF;\n\
         END $$;"
    )
}

#[cfg(test)]
mod tests;
