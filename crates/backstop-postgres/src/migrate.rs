//! The store's shape: tables and functions in a schema of its own.
//!
//! A step is one transaction: it is there as a whole or not at all, and whoever migrates at the same time waits.

use crate::error::store_error;
use crate::link::Link;
use backstop_core::port::{Answer, Migrated, StoreError};
use std::fmt::Write;
use tokio_postgres::types::Type;

/// The version this code needs.
pub(crate) const VERSION: u32 = 1;
const DOING: &str = "migrating";
/// What the step says when somebody else made it while it waited.
const MEANWHILE: &str = "BS001";
const SERVER_VERSION_MIN: i32 = 140_000;

/// The tables of version 1.
pub(crate) const TABLES: &str = include_str!("sql/tables.sql");
/// The functions, in an order in which each knows those it calls; the settings and rights of all of them last.
pub(crate) const FUNCTIONS: [&str; 19] = [
    include_str!("sql/ticket.sql"),
    include_str!("sql/state_of.sql"),
    include_str!("sql/tell.sql"),
    include_str!("sql/key.sql"),
    include_str!("sql/enqueue.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/beat.sql"),
    include_str!("sql/seize.sql"),
    include_str!("sql/promote.sql"),
    include_str!("sql/amend.sql"),
    include_str!("sql/jobs.sql"),
    include_str!("sql/queues.sql"),
    include_str!("sql/prune.sql"),
    include_str!("sql/public.sql"),
    include_str!("sql/shape.sql"),
    include_str!("sql/grants.sql"),
    "INSERT INTO version (number) VALUES (1); INSERT INTO shape SELECT * FROM shapes();",
];

/// Brings the schema up to date. Where it is, nothing is written and no right to is needed.
pub(crate) async fn migrate(link: &Link) -> Answer<Migrated> {
    check_server(link).await?;
    let found = version(link).await?;
    if found > VERSION {
        return Err(newer(found));
    }
    if found == VERSION {
        return Ok(Migrated { from: found, to: VERSION });
    }
    let mut client = link.client(DOING).await?;
    let step = client.build_transaction().start().await;
    let step = step.map_err(|error| store_error(DOING, &error))?;
    match step.batch_execute(&first_step(link.schema())).await {
        Err(error) if error.code().is_some_and(|code| code.code() == MEANWHILE) => {
            return Ok(Migrated { from: VERSION, to: VERSION });
        }
        done => done.map_err(|error| store_error(DOING, &error))?,
    }
    step.commit().await.map_err(|error| store_error(DOING, &error))?;
    Ok(Migrated { from: found, to: VERSION })
}

/// The version of the schema; 0 if there is none.
pub(crate) async fn version(link: &Link) -> Answer<u32> {
    let table = format!("\"{}\".version", link.schema());
    let there = link.rows(DOING, "SELECT to_regclass($1) IS NOT NULL", &[(&table, Type::TEXT)]).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let rows = link.rows(DOING, &format!("SELECT max(number) FROM {table}"), &[]).await?;
    let version: Option<i32> = rows.first().and_then(|row| row.get(0));
    Ok(version.and_then(|version| u32::try_from(version).ok()).unwrap_or(0))
}

async fn check_server(link: &Link) -> Answer<()> {
    let rows = link.rows(DOING, "SELECT current_setting('server_version_num')::int", &[]).await?;
    let server: i32 = rows.first().map_or(0, |row| row.get(0));
    if server < SERVER_VERSION_MIN {
        let cause = format!("this server is PostgreSQL {}; backstop needs 14 or later", server / 10_000);
        return Err(StoreError::misuse(DOING, cause));
    }
    Ok(())
}

fn newer(found: u32) -> StoreError {
    let cause = format!(
        "the schema has version {found}, made by a later backstop than this one, which knows {VERSION}"
    );
    StoreError::misuse(DOING, format!("{cause}; use that one, or another schema"))
}

/// Everything from nothing. The lock is held to the end of the step: a second one waits, and then finds the tables.
fn first_step(schema: &str) -> String {
    let mut step = format!(
        "SELECT pg_advisory_xact_lock(hashtextextended('backstop migrate {schema}', 0));\n\
         DO $$ BEGIN\n\
         IF to_regclass('\"{schema}\".version') IS NOT NULL THEN RAISE EXCEPTION 'migrated meanwhile' USING ERRCODE = '{MEANWHILE}'; END IF;\n\
         IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}') THEN CREATE SCHEMA \"{schema}\"; END IF;\n\
         END $$;\n\
         SET LOCAL search_path = \"{schema}\", pg_temp;\n\
         SET LOCAL check_function_bodies = off;\n\
         SET LOCAL statement_timeout = 0;\n"
    );
    for part in std::iter::once(TABLES).chain(FUNCTIONS) {
        let _ = writeln!(step, "{part}");
    }
    step
}
