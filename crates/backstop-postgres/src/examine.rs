//! Examines the store: what can be relied on, read from the live settings.

use crate::address::PoolerMode;
use crate::link::{CommitMode, PostgresLink};
use crate::migrate;
use crate::row;
use backstop_core::port::{
    ExaminationReport, FindingSeverity, StoreError, StoreFinding, StoreResult,
};
use tokio_postgres::Row;

const DOING: &str = "examining";
const SETTINGS: &str = include_str!("sql/settings.sql");
/// A snapshot of this age keeps vacuum from removing the dead tuples that were deleted since.
const SNAPSHOT_SECS_MAX: i64 = 300;

struct ServerSettings {
    version: String,
    version_number: i32,
    fsync: String,
    synchronous_commit: String,
    full_page_writes: String,
    autovacuum: String,
    statement_timeout: String,
    data_checksums: String,
    standby_names: String,
    is_standby: bool,
    connections_max: i32,
    connections: i32,
    snapshot_secs: Option<i64>,
    database: String,
    bytes: i64,
    /// Whether the role may see the activity of other sessions.
    sees_others: bool,
}

impl ServerSettings {
    fn read(row: &Row) -> StoreResult<Self> {
        Ok(Self {
            version: row::get(row, 0)?,
            version_number: row::get(row, 1)?,
            fsync: row::get(row, 2)?,
            synchronous_commit: row::get(row, 3)?,
            full_page_writes: row::get(row, 4)?,
            autovacuum: row::get(row, 5)?,
            statement_timeout: row::get(row, 6)?,
            data_checksums: row::get(row, 7)?,
            standby_names: row::get(row, 8)?,
            is_standby: row::get(row, 9)?,
            connections_max: row::get(row, 10)?,
            connections: row::get(row, 11)?,
            snapshot_secs: row::get(row, 12)?,
            database: row::get(row, 13)?,
            bytes: row::get(row, 14)?,
            sees_others: row::get(row, 15)?,
        })
    }

    fn survives_a_crash(&self) -> bool {
        self.fsync == "on" && self.full_page_writes == "on"
    }
}

pub(crate) async fn examine(
    link: &PostgresLink,
    commit: CommitMode,
) -> StoreResult<ExaminationReport> {
    let rows = link.rows(DOING, SETTINGS, &[]).await?;
    let settings = ServerSettings::read(
        rows.first()
            .ok_or_else(|| StoreError::corrupt(DOING, "no answer"))?,
    )?;
    let mut findings = vec![
        version(&settings),
        fsync(&settings),
        full_page_writes(&settings),
        synchronous_commit(&settings, commit),
        standby(&settings),
        autovacuum(&settings),
        snapshot(&settings),
        statement_timeout(&settings, link.pooler()),
        connections(&settings, link.connections()),
    ];
    findings.extend(checksums(&settings));
    findings.push(schema(link).await?);
    Ok(ExaminationReport {
        store: format!(
            "PostgreSQL {}, database {}, schema {} ({} MiB)",
            settings.version,
            settings.database,
            link.schema(),
            settings.bytes >> 20
        ),
        promise: promise(&settings, commit).to_owned(),
        findings,
    })
}

fn promise(settings: &ServerSettings, commit: CommitMode) -> &'static str {
    if !settings.survives_a_crash() {
        return "An acknowledged enqueue survives a crash of this process; a crash of the server or a power cut may lose or \
                damage everything.";
    }
    match (commit, settings.synchronous_commit.as_str()) {
        (CommitMode::Quick, _) | (_, "off") => {
            "An acknowledged enqueue survives a crash of this process; a crash of the server or a power cut may lose the last \
             moments, and damages nothing."
        }
        (_, "remote_apply" | "on" | "remote_write") if !settings.standby_names.is_empty() => {
            "An acknowledged enqueue survives a crash of the server and a power cut, and the loss of the server while a \
             synchronous standby lives, if the disks honour fsync."
        }
        _ => {
            "An acknowledged enqueue survives a crash of this process and of the server, and a power cut, if the disk honours \
             fsync."
        }
    }
}

fn finding(grade: FindingSeverity, what: impl Into<String>, advice: Option<&str>) -> StoreFinding {
    StoreFinding {
        severity: grade,
        what: what.into(),
        advice: advice.map(str::to_owned),
    }
}

fn version(settings: &ServerSettings) -> StoreFinding {
    let what = format!("PostgreSQL {}", settings.version);
    if (140_000..140_004).contains(&settings.version_number) {
        let advice = "indexes built concurrently can be damaged before 14.4; update, and REINDEX";
        return finding(FindingSeverity::Bad, what, Some(advice));
    }
    finding(FindingSeverity::Good, what, None)
}

fn fsync(settings: &ServerSettings) -> StoreFinding {
    switched(
        "fsync",
        &settings.fsync,
        "a crash of the server can lose or damage everything; set it on",
    )
}

fn full_page_writes(settings: &ServerSettings) -> StoreFinding {
    let advice =
        "a power cut can damage tables; set it on unless the file system writes whole pages";
    switched("full_page_writes", &settings.full_page_writes, advice)
}

fn switched(name: &str, value: &str, advice: &str) -> StoreFinding {
    let what = format!("{name} = {value}");
    if value == "on" {
        finding(FindingSeverity::Good, what, None)
    } else {
        finding(FindingSeverity::Bad, what, Some(advice))
    }
}

fn synchronous_commit(settings: &ServerSettings, commit: CommitMode) -> StoreFinding {
    let what = format!("synchronous_commit = {}", settings.synchronous_commit);
    match (commit, settings.synchronous_commit.as_str()) {
        (CommitMode::Quick, _) => finding(
            FindingSeverity::Warning,
            format!("{what}, and off for this store (durability = \"relaxed\")"),
            Some("set `durability = \"full\"` if a crash of the server must lose nothing"),
        ),
        (_, "off") => finding(
            FindingSeverity::Bad,
            what,
            Some(
                "set it to on, for the server, the database or this role: ALTER ROLE … SET synchronous_commit = on",
            ),
        ),
        _ => finding(FindingSeverity::Good, what, None),
    }
}

fn standby(settings: &ServerSettings) -> StoreFinding {
    if settings.is_standby {
        let advice = "this is a standby, which takes no jobs; use the primary's address, or target_session_attrs=read-write";
        return finding(FindingSeverity::Bad, "in recovery", Some(advice));
    }
    let what = match settings.standby_names.as_str() {
        "" => "a primary without synchronous standbys".to_owned(),
        names => format!("a primary with synchronous standbys: {names}"),
    };
    finding(FindingSeverity::Good, what, None)
}

fn autovacuum(settings: &ServerSettings) -> StoreFinding {
    let what = format!("autovacuum = {}", settings.autovacuum);
    if settings.autovacuum == "on" {
        return finding(FindingSeverity::Good, what, None);
    }
    finding(
        FindingSeverity::Warning,
        what,
        Some("jobs leave their rows behind as they move on; set it on, or tables only grow"),
    )
}

fn snapshot(settings: &ServerSettings) -> StoreFinding {
    match settings.snapshot_secs {
        Some(secs) if secs > SNAPSHOT_SECS_MAX => finding(
            FindingSeverity::Warning,
            format!("a transaction has been open for {secs} s"),
            Some(
                "until it ends nothing that was deleted since can be cleaned up; find it in pg_stat_activity (xact_start)",
            ),
        ),
        _ if settings.sees_others => finding(
            FindingSeverity::Good,
            "no transaction has been open for long",
            None,
        ),
        _ => finding(
            FindingSeverity::Good,
            "no transaction of this role has been open for long",
            Some(
                "it may not see those of others; look as a role that may: GRANT pg_read_all_stats TO …",
            ),
        ),
    }
}

fn statement_timeout(settings: &ServerSettings, pooler: PoolerMode) -> StoreFinding {
    let what = format!("statement_timeout = {}", settings.statement_timeout);
    if settings.statement_timeout != "0" {
        return finding(FindingSeverity::Good, what, None);
    }
    let advice = match pooler {
        PoolerMode::Transaction => {
            "a pooled connection brings none along; set one for the role: ALTER ROLE … SET statement_timeout = '5s'"
        }
        PoolerMode::None => "leave `options` out of the address, or name a statement_timeout in it",
    };
    finding(FindingSeverity::Warning, what, Some(advice))
}

fn connections(settings: &ServerSettings, ours: usize) -> StoreFinding {
    let what = format!(
        "{} of {} connections taken; this process uses up to {}",
        settings.connections,
        settings.connections_max,
        ours + 1
    );
    if settings.connections * 10 > settings.connections_max * 9 {
        let advice = "raise max_connections, lower `connections` in the address, or put PgBouncer in front (pooler=transaction)";
        return finding(FindingSeverity::Warning, what, Some(advice));
    }
    finding(FindingSeverity::Good, what, None)
}

fn checksums(settings: &ServerSettings) -> Option<StoreFinding> {
    let what = "data_checksums = off";
    let advice = "a disk that returns wrong bytes goes unnoticed; pg_checksums can switch them on while the server is down";
    (settings.data_checksums != "on").then(|| finding(FindingSeverity::Good, what, Some(advice)))
}

async fn schema(link: &PostgresLink) -> StoreResult<StoreFinding> {
    let found = match migrate::version(link).await {
        Err(StoreError::Misuse { cause, .. }) => {
            return Ok(finding(FindingSeverity::Bad, cause, None));
        }
        found => found?,
    };
    let version = format!("version {found} of {}", migrate::VERSION);
    if found == 0 {
        return Ok(finding(
            FindingSeverity::Bad,
            "there is no schema yet",
            Some("run `backstop migrate`"),
        ));
    }
    if found != migrate::VERSION {
        return Ok(finding(
            FindingSeverity::Bad,
            version,
            Some("run `backstop migrate`"),
        ));
    }
    let rows = link.call(DOING, CommitMode::Durable, "drift", &[]).await?;
    let drifted: Vec<String> = rows
        .iter()
        .map(|row| row::get(row, 0))
        .collect::<StoreResult<_>>()?;
    if drifted.is_empty() {
        return Ok(finding(FindingSeverity::Good, version, None));
    }
    let what = format!("{version}, but not as it was made: {}", drifted.join(", "));
    let advice = "somebody changed backstop's tables, indexes or functions: restore them, or move the jobs to a new schema";
    Ok(finding(FindingSeverity::Bad, what, Some(advice)))
}

#[cfg(test)]
mod tests;
