//! Examines the store: what can be relied on, read from the live settings.

use crate::migrate;
use crate::open::{FileSystem, SqliteDurability, file_system};
use backstop_core::port::{ExaminationReport, FindingSeverity, SchemaMark, StoreFinding};
use rusqlite::{Connection, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SHAPES: &str = include_str!("sql/shapes.sql");
const EXAMINE_ORPHANS: &str = include_str!("sql/examine_orphans.sql");
const EXAMINE_MISCOUNTED: &str = include_str!("sql/examine_miscounted.sql");

/// A file of this size or more is not read from end to end while a caller waits.
const CHECKED_BYTES_MAX: u64 = 256 << 20;
/// With less free space than this, the examination warns.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// With less free space than this, the next writes may fail already.
const FREE_BYTES_LAST: u64 = 16 << 20;
/// A log of this size was not checkpointed for long: some process keeps an old read transaction
/// open.
const WAL_BYTES_MAX: u64 = 256 << 20;

/// Settings that only the writer's connection can read.
pub(crate) struct SqliteSettings {
    journal_mode: String,
    synchronous: i64,
}

/// Reads the settings with which durable commits are made.
pub(crate) fn settings(
    writer: &Connection,
    durability: SqliteDurability,
) -> Result<SqliteSettings> {
    let before: i64 = writer.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    durability.sync().set(writer)?;
    let settings = SqliteSettings {
        journal_mode: writer.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
        synchronous: writer.query_row("PRAGMA synchronous", [], |row| row.get(0))?,
    };
    // The writer caches the level that it set, so it must find that level unchanged.
    writer.pragma_update(None, "synchronous", before)?;
    Ok(settings)
}

pub(crate) fn examine(
    db: &Connection,
    path: &Path,
    settings: &SqliteSettings,
) -> Result<ExaminationReport> {
    let size = size_of(path);
    let mut findings = vec![
        journal(settings),
        synchronous(settings),
        on_disk(path),
        free_space(path),
        log(path),
        schema(db)?,
        integrity(db, size)?,
    ];
    findings.extend(streams(db, size)?);
    Ok(ExaminationReport {
        store: format!(
            "SQLite {} at {} ({} KiB)",
            rusqlite::version(),
            path.display(),
            size >> 10
        ),
        promise: promise(settings).to_owned(),
        findings,
    })
}

fn promise(settings: &SqliteSettings) -> &'static str {
    if settings.journal_mode == "wal" && settings.synchronous >= 2 {
        "An acknowledged enqueue survives a crash of the process, the operating system and a power cut, \
         if the disk honours fsync."
    } else {
        "An acknowledged enqueue survives a crash of the process; a power cut may lose the last moments."
    }
}

fn finding(grade: FindingSeverity, what: impl Into<String>, advice: Option<&str>) -> StoreFinding {
    StoreFinding {
        severity: grade,
        what: what.into(),
        advice: advice.map(str::to_owned),
    }
}

fn journal(settings: &SqliteSettings) -> StoreFinding {
    let what = format!("journal_mode = {}", settings.journal_mode);
    if settings.journal_mode == "wal" {
        return finding(FindingSeverity::Good, what, None);
    }
    finding(
        FindingSeverity::Bad,
        what,
        Some("close every other program that has the file open, and start again"),
    )
}

fn synchronous(settings: &SqliteSettings) -> StoreFinding {
    match settings.synchronous {
        0 => finding(
            FindingSeverity::Bad,
            "synchronous = off",
            Some("start again; backstop never sets this"),
        ),
        1 => finding(
            FindingSeverity::Warning,
            "synchronous = normal",
            Some("set `durability = \"full\"` if a power cut must lose nothing"),
        ),
        _ => finding(FindingSeverity::Good, "synchronous = full", None),
    }
}

fn on_disk(path: &Path) -> StoreFinding {
    match file_system(path) {
        FileSystem::Local => finding(FindingSeverity::Good, "on a local file system", None),
        FileSystem::User => {
            let advice =
                "make sure that it is a local disk; on a network file system SQLite loses data";
            finding(
                FindingSeverity::Warning,
                "on a FUSE file system",
                Some(advice),
            )
        }
        FileSystem::Network(name) => finding(
            FindingSeverity::Bad,
            format!("on {name}"),
            Some("move the file to a local disk"),
        ),
    }
}

fn free_space(path: &Path) -> StoreFinding {
    let Ok(stat) = rustix::fs::statvfs(path) else {
        return finding(FindingSeverity::Warning, "free space is unknown", None);
    };
    free_space_finding(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn free_space_finding(free: u64) -> StoreFinding {
    let what = format!("{} MiB free on its disk", free >> 20);
    let advice = Some("free some space; a full disk takes no jobs");
    match free {
        ..FREE_BYTES_LAST => finding(FindingSeverity::Bad, what, advice),
        FREE_BYTES_LAST..FREE_BYTES_MIN => finding(FindingSeverity::Warning, what, advice),
        FREE_BYTES_MIN.. => finding(FindingSeverity::Good, what, None),
    }
}

fn log(path: &Path) -> StoreFinding {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = size_of(&PathBuf::from(log));
    let what = format!("write-ahead log of {} KiB", bytes >> 10);
    if bytes > WAL_BYTES_MAX {
        let advice = "some program keeps a reading transaction open; end it, so that the log can be folded in";
        return finding(FindingSeverity::Warning, what, Some(advice));
    }
    finding(FindingSeverity::Good, what, None)
}

fn schema(db: &Connection) -> Result<StoreFinding> {
    let found = match migrate::mark(db)? {
        SchemaMark::Version(found) => found,
        SchemaMark::Missing | SchemaMark::PreRelease => 0,
    };
    let version = format!("version {found} of {}", migrate::VERSION);
    let drifted = drifted(db)?;
    if drifted.is_empty() {
        return Ok(finding(FindingSeverity::Good, version, None));
    }
    let what = format!(
        "{version}, but not as this version makes it: {}",
        drifted.join(", ")
    );
    let advice = "somebody changed backstop's tables or indexes: restore them, or move the jobs to a new store";
    Ok(finding(FindingSeverity::Bad, what, Some(advice)))
}

/// Names the tables and indexes that are missing, changed or not ours, compared with a new store in
/// memory.
fn drifted(db: &Connection) -> Result<Vec<String>> {
    let mut new = Connection::open_in_memory()?;
    if let Err(error) = migrate::migrate(&mut new) {
        return Ok(vec![format!(
            "a store to compare with could not be made ({error})"
        )]);
    }
    let (expected, found) = (shapes(&new)?, shapes(db)?);
    let mut names: Vec<&String> = expected.keys().chain(found.keys()).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names
        .into_iter()
        .filter(|name| expected.get(*name) != found.get(*name))
        .cloned()
        .collect())
}

/// The statements that created our tables and indexes, by name. They are compared without white
/// space: SQLite writes a column that an upgrade adds on the line of the one before it.
fn shapes(db: &Connection) -> Result<BTreeMap<String, String>> {
    let mut shapes = db.prepare(SHAPES)?;
    let rows = shapes.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    rows.map(|row| row.map(|(name, sql)| (name, sql.split_whitespace().collect())))
        .collect()
}

fn integrity(db: &Connection, size: u64) -> Result<StoreFinding> {
    if size > CHECKED_BYTES_MAX {
        let what = format!("integrity not checked: {} MiB would take long", size >> 20);
        let advice = "run `PRAGMA quick_check` on a copy when there is time";
        return Ok(finding(FindingSeverity::Good, what, Some(advice)));
    }
    let found: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(finding(FindingSeverity::Good, "integrity checked", None));
    }
    let advice = "stop every program that uses the file, copy it, and restore a backup or run `sqlite3 FILE .recover`";
    Ok(finding(
        FindingSeverity::Bad,
        format!("damaged: {found}"),
        Some(advice),
    ))
}

/// Counts records without a key, and keys whose record count is wrong; `None` if there are none.
fn streams(db: &Connection, size: u64) -> Result<Option<StoreFinding>> {
    if size > CHECKED_BYTES_MAX {
        return Ok(None);
    }
    let count = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (orphans, miscounted) = (count(EXAMINE_ORPHANS)?, count(EXAMINE_MISCOUNTED)?);
    if (orphans, miscounted) == (0, 0) {
        return Ok(None);
    }
    let what = format!(
        "streams: {orphans} records without a key, {miscounted} keys that count their records wrong"
    );
    let advice = "somebody changed backstop's tables: restore a backup, or clear those keys";
    Ok(Some(finding(FindingSeverity::Bad, what, Some(advice))))
}

fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_takes_no_more_jobs_is_bad_and_not_only_a_warning() {
        let grades = [
            0,
            FREE_BYTES_LAST - 1,
            FREE_BYTES_LAST,
            FREE_BYTES_MIN - 1,
            FREE_BYTES_MIN,
        ];
        let grades = grades.map(|free| free_space_finding(free).severity);
        assert_eq!(
            grades,
            [
                FindingSeverity::Bad,
                FindingSeverity::Bad,
                FindingSeverity::Warning,
                FindingSeverity::Warning,
                FindingSeverity::Good
            ]
        );
        assert!(free_space_finding(0).advice.is_some());
    }
}
