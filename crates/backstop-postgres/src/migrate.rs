//! The store's shape: tables and functions in a schema of its own.
//!
//! A step is one transaction: it is there as a whole or not at all, and whoever migrates at the same time waits. What SQL cannot
//! do comes after it, and is gone on with until it is done.

mod fingerprints;

use crate::error::store_error;
use crate::link::Link;
use backstop_core::port::{Answer, Migrated, StoreError};
use std::fmt::Write;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// The version this code needs.
pub(crate) const VERSION: u32 = 7;
const DOING: &str = "migrating";
/// What the step says when somebody else made it while it waited.
const MEANWHILE: &str = "BS001";
const SERVER_VERSION_MIN: i32 = 140_000;
/// In the version's table while the dead of version 1 have not all got their fingerprints.
const UNPRINTED: i32 = -2;

/// The tables: those of a version add to those before it, and are never changed.
const TABLES: [&str; VERSION as usize] = [
    include_str!("sql/tables.sql"),
    include_str!("sql/tables_2.sql"),
    include_str!("sql/tables_3.sql"),
    include_str!("sql/tables_4.sql"),
    include_str!("sql/tables_5.sql"),
    include_str!("sql/tables_6.sql"),
    include_str!("sql/tables_7.sql"),
];
const UPGRADE_BEGIN: &str = include_str!("sql/upgrade_begin.sql");
const UPGRADE_END: &str = include_str!("sql/upgrade_end.sql");
/// The functions, in an order in which each knows those it calls; the settings and rights of all of them last.
const FUNCTIONS: [&str; 29] = [
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
    include_str!("sql/fill.sql"),
    include_str!("sql/public.sql"),
    include_str!("sql/shape.sql"),
    include_str!("sql/grants.sql"),
];

/// Brings the schema up to date. Where it is, nothing is written and no right to is needed.
pub(crate) async fn migrate(link: &Link) -> Answer<Migrated> {
    check_server(link).await?;
    let found = version(link).await?;
    if found > VERSION {
        return Err(newer(found));
    }
    let mut migrated = Migrated { from: found, to: VERSION };
    if found < VERSION && take_step(link, found).await? == Step::Meanwhile {
        migrated.from = VERSION;
    }
    if is_unprinted(link).await? {
        fingerprints::fill(link, UNPRINTED).await?;
    }
    Ok(migrated)
}

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Taken,
    /// Somebody else made it.
    Meanwhile,
}

async fn take_step(link: &Link, from: u32) -> Answer<Step> {
    let failed = |error| store_error(DOING, &error);
    let mut client = link.client(DOING).await?;
    let step = client.build_transaction().start().await.map_err(failed)?;
    match step.batch_execute(&step_from(from, link.schema())).await {
        Err(error) if error.code().is_some_and(|code| code.code() == MEANWHILE) => {
            return Ok(Step::Meanwhile);
        }
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            let schema = link.schema();
            return Err(StoreError::unavailable(
                DOING,
                format!(
                    "somebody holds a lock on a table of schema {schema:?}, as pg_dump does on all of them; look in pg_stat_activity, \
                     and migrate again when it has ended ({error})"
                ),
            ));
        }
        done => done.map_err(failed)?,
    }
    step.commit().await.map_err(failed)?;
    Ok(Step::Taken)
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

async fn is_unprinted(link: &Link) -> Answer<bool> {
    let mark = format!("SELECT 1 FROM \"{}\".version WHERE number = $1", link.schema());
    Ok(!link.rows(DOING, &mark, &[(&UNPRINTED, Type::INT4)]).await?.is_empty())
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

/// Everything from a version on; from nothing, if that is 0. The lock is held to the end of the step: a second one waits, and then
/// finds it made.
fn step_from(found: u32, schema: &str) -> String {
    let mut step = format!(
        "SET LOCAL statement_timeout = 0;\n\
         SELECT pg_advisory_xact_lock(hashtextextended('backstop migrate {schema}', 0));\n\
         {}\n\
         SET LOCAL search_path = \"{schema}\", pg_temp;\n\
         SET LOCAL check_function_bodies = off;\n",
        if found == 0 { first_check(schema) } else { later_check(found, schema) },
    );
    let tables = TABLES.into_iter().skip(found as usize);
    let (begin, end) = if found == 0 { ("", "") } else { (UPGRADE_BEGIN, UPGRADE_END) };
    for part in std::iter::once(begin).chain(tables).chain(FUNCTIONS).chain([end]) {
        let _ = writeln!(step, "{part}");
    }
    let marks = if found == 1 { format!(", ({UNPRINTED})") } else { String::new() };
    let _ = writeln!(step, "INSERT INTO version (number) VALUES ({VERSION}){marks};");
    step.push_str("INSERT INTO shape SELECT * FROM shapes();");
    step
}

fn first_check(schema: &str) -> String {
    format!(
        "DO $$ BEGIN\n\
         IF to_regclass('\"{schema}\".version') IS NOT NULL THEN RAISE EXCEPTION 'migrated meanwhile' USING ERRCODE = '{MEANWHILE}'; END IF;\n\
         IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}') THEN CREATE SCHEMA \"{schema}\"; END IF;\n\
         END $$;"
    )
}

fn later_check(found: u32, schema: &str) -> String {
    format!(
        "DO $$ BEGIN\n\
         IF (SELECT max(number) FROM \"{schema}\".version) > {found} THEN RAISE EXCEPTION 'migrated meanwhile' USING ERRCODE = '{MEANWHILE}'; END IF;\n\
         END $$;"
    )
}
