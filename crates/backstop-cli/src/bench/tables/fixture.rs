//! The database that is measured, and its table.

use super::super::server;
use super::NOON_S;
use anyhow::{Context, Result};
use backstop::StoreAddress;
use backstop::core::sweep::SqlDialect;
use backstop::postgres::tokio_postgres::Client;
use backstop::tables::DatabaseSource;
#[cfg(feature = "mysql")]
use mysql_async::{Conn, prelude::Queryable};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::block_in_place;

/// Rows written by one statement.
const CHUNK: usize = 100_000;
/// How far back the oldest rows are: none is too old.
const REACH_S: i64 = 29 * 86_400;
/// Rows that came in on the last day, half of which are open.
const YOUNG: usize = 2 * super::DUE;
const DAY_S: i64 = 86_400;

/// The database that is measured, and its table.
pub(super) struct TableFixture {
    url: String,
    table: String,
    link: FixtureConnection,
    /// For a file of our own.
    _folder: TempDir,
}

enum FixtureConnection {
    Sqlite(Connection),
    Postgres(Client),
    #[cfg(feature = "mysql")]
    Mysql(Conn),
}

impl TableFixture {
    /// In the database at `url`, or in a new file beside the current folder's files. The table is
    /// one that nobody else has.
    pub(super) async fn open(url: Option<&str>) -> Result<Self> {
        let folder = tempfile::tempdir_in(".")
            .context("a folder for the measurements could not be made here")?;
        let own = || format!("sqlite:{}", folder.path().join("app.db").display());
        let url = url.map_or_else(own, str::to_owned);
        let link = FixtureConnection::open(&url).await?;
        let table = format!("backstop_bench_{}", std::process::id());
        Ok(Self {
            url,
            table,
            link,
            _folder: folder,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Runs a statement, however long it takes.
    pub(super) async fn run(&mut self, sql: &str) -> Result<()> {
        match &mut self.link {
            FixtureConnection::Sqlite(connection) => {
                block_in_place(|| connection.execute_batch(sql))?;
            }
            FixtureConnection::Postgres(client) => client.batch_execute(sql).await?,
            #[cfg(feature = "mysql")]
            FixtureConnection::Mysql(conn) => conn.query_drop(sql.trim_end_matches(';')).await?,
        }
        Ok(())
    }

    /// Makes the table, and rows of which `due` are due.
    pub(super) async fn fill(
        &mut self,
        rows: usize,
        due: usize,
        mut on_progress: impl FnMut(usize),
    ) -> Result<()> {
        let (dialect, table) = (self.link.dialect(), self.table.clone());
        self.run(&create(dialect, &table)).await?;
        for first in (1..=rows).step_by(CHUNK) {
            let last = (first + CHUNK - 1).min(rows);
            self.run(&insert(dialect, &table, (first, last), rows, rows / due))
                .await?;
            on_progress(last);
        }
        Ok(())
    }

    /// Lets the database learn what a server learns by itself in time. SQLite does not.
    pub(super) async fn analyse(&mut self) -> Result<()> {
        let table = self.table.clone();
        match self.link.dialect() {
            SqlDialect::Sqlite => Ok(()),
            SqlDialect::Postgres => self.run(&format!("ANALYZE {table}")).await,
            SqlDialect::Mysql => self.run(&format!("ANALYZE TABLE {table}")).await,
        }
    }

    pub(super) async fn drop_table(&mut self) -> Result<()> {
        let table = self.table.clone();
        let dropped = self.run(&format!("DROP TABLE IF EXISTS {table}")).await;
        dropped.with_context(|| format!("table {table} could not be dropped"))
    }
}

impl FixtureConnection {
    async fn open(url: &str) -> Result<Self> {
        match DatabaseSource::new(url)?.dialect() {
            SqlDialect::Sqlite => {
                let file = StoreAddress::new(url);
                let file = file.sqlite_file().context("--url names no file")?;
                let connection = Connection::open(file)?;
                // What is filled in is worth nothing after a power cut.
                connection
                    .execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;")?;
                Ok(Self::Sqlite(connection))
            }
            SqlDialect::Postgres => Ok(Self::Postgres(
                server::connect(&StoreAddress::new(url)).await?,
            )),
            #[cfg(feature = "mysql")]
            SqlDialect::Mysql => Ok(Self::Mysql(mysql(url).await?)),
            #[cfg(not(feature = "mysql"))]
            SqlDialect::Mysql => anyhow::bail!("this program was built without MySQL"),
        }
    }

    const fn dialect(&self) -> SqlDialect {
        match self {
            Self::Sqlite(_) => SqlDialect::Sqlite,
            Self::Postgres(_) => SqlDialect::Postgres,
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => SqlDialect::Mysql,
        }
    }
}

#[cfg(feature = "mysql")]
async fn mysql(url: &str) -> Result<Conn> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    Conn::from_url(format!("mysql://{rest}"))
        .await
        .context("the database of --url could not be reached")
}

fn create(dialect: SqlDialect, table: &str) -> String {
    let (unlogged, time) = match dialect {
        SqlDialect::Sqlite => ("", "TEXT"),
        SqlDialect::Postgres => ("UNLOGGED", "timestamptz"),
        SqlDialect::Mysql => ("", "DATETIME"),
    };
    format!(
        "CREATE {unlogged} TABLE {table} (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time} NOT NULL,
         FAILURES INTEGER NOT NULL, LAST_FAILURE {time})"
    )
}

/// Rows `first` to `last` of `rows`, each newer than the one before, and a few on the last day.
/// Every `stride`th is due: one that was never tried, or one that failed once an hour ago. Of the
/// others, the even ones are finished; the odd ones failed so often, and so lately, that they have
/// hours to wait.
fn insert(
    dialect: SqlDialect,
    table: &str,
    (first, last): (usize, usize),
    rows: usize,
    stride: usize,
) -> String {
    let (numbers, div) = (
        numbers(dialect, first, last),
        if dialect == SqlDialect::Mysql {
            "DIV"
        } else {
            "/"
        },
    );
    let time = |seconds: String| match dialect {
        SqlDialect::Sqlite => format!("datetime({seconds}, 'unixepoch')"),
        SqlDialect::Postgres => format!("to_timestamp({seconds})"),
        SqlDialect::Mysql => format!("TIMESTAMPADD(SECOND, {seconds}, '1970-01-01 00:00:00')"),
    };
    let (oldest, a_day_ago, old) = (NOON_S - REACH_S, NOON_S - DAY_S, rows - YOUNG);
    let inserted = time(format!(
        "CASE WHEN n > {old} THEN {a_day_ago} + 600 + (n - {old}) * {} {div} {YOUNG} ELSE {oldest} + n * {} {div} {rows} END",
        DAY_S - 600,
        REACH_S - DAY_S
    ));
    let lately = time(format!("{NOON_S} - n % 200"));
    let once = time(format!("{NOON_S} - 3600"));
    let is_due = format!("n % {stride} = 0");
    let is_new = format!("n % {} = 0", 2 * stride);
    format!(
        "INSERT INTO {table} (ID, STATUS, DATE_INSERTED, FAILURES, LAST_FAILURE)
         SELECT n, CASE WHEN {is_new} THEN 'NEW' WHEN {is_due} THEN 'ERROR' WHEN n % 2 = 0 THEN 'SUCCESS' ELSE 'ERROR' END, {inserted},
           CASE WHEN {is_new} THEN 0 WHEN {is_due} THEN 1 WHEN n % 2 = 0 THEN 0 ELSE 13 + n % 8 END,
           CASE WHEN {is_new} THEN NULL WHEN {is_due} THEN {once} WHEN n % 2 = 0 THEN NULL ELSE {lately} END
         FROM {numbers}"
    )
}

/// The numbers `first` to `last`, as rows with a column `n`.
fn numbers(dialect: SqlDialect, first: usize, last: usize) -> String {
    match dialect {
        SqlDialect::Sqlite => format!(
            "(WITH RECURSIVE up (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM up WHERE n < {last}) SELECT n FROM up) AS numbers"
        ),
        SqlDialect::Postgres => format!("generate_series({first}::bigint, {last}::bigint) AS n"),
        // Neither MySQL nor MariaDB counts that far without being told to, each in words of its
        // own.
        SqlDialect::Mysql => {
            let digit = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
                UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
            format!(
                "(SELECT {first} + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n
                  FROM {digit} AS a, {digit} AS b, {digit} AS c, {digit} AS e, {digit} AS f) AS numbers WHERE n <= {last}"
            )
        }
    }
}
