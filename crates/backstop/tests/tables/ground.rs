//! What the tests of tables stand on: a table, its rows, its handlers, and noon.

use crate::databases::Database;
use backstop::core::port::CellSwap;
use backstop::core::table::OpenRow;
use backstop::tables::{AdoptedTable, PassReport, Table, TableRow};
use backstop::testing::{self, TestBackstop};
use backstop::{Backstop, RetryPolicy, RunError, Time};
use serde_json::Value;
use std::sync::{Arc, Mutex};

pub(crate) const NOON: &str = "2026-03-01T12:00:00Z";
pub(crate) const FIBONACCI: &str =
    r#"{"kind":"fibonacci","unit":"1m","cap":"1d","max_attempts":"unlimited"}"#;
pub(crate) const PROGRESSIVE: &str = r#"{"kind":"progressive"}"#;

pub(crate) fn noon() -> Time {
    NOON.parse().expect("a time")
}

pub(crate) fn minutes(minutes: i64) -> Time {
    Time::from_micros(noon().as_micros() + minutes * 60_000_000)
}

pub(crate) fn policy(json: &str) -> RetryPolicy {
    RetryPolicy::from_json(json.as_bytes()).expect(json)
}

/// How a table writes its dates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dates {
    Native,
    Text,
    Rfc3339,
    Seconds,
    Millis,
}

impl Dates {
    pub(crate) const ALL: [Self; 5] = [
        Self::Native,
        Self::Text,
        Self::Rfc3339,
        Self::Seconds,
        Self::Millis,
    ];

    pub(crate) fn type_name(self, database: &Database) -> &'static str {
        match self {
            Self::Native => database.dialect("TEXT", "timestamptz", "DATETIME(6)"),
            Self::Text | Self::Rfc3339 => database.dialect("TEXT", "text", "VARCHAR(40)"),
            Self::Seconds | Self::Millis => "BIGINT",
        }
    }

    /// A time as a literal.
    pub(crate) fn literal(self, time: Time) -> String {
        let text = time.to_string();
        match self {
            Self::Native => format!("'{}'", text.replace('T', " ").trim_end_matches('Z')),
            Self::Text => format!("'{}'", text[..19].replace('T', " ")),
            Self::Rfc3339 => format!("'{text}'"),
            Self::Seconds => (time.as_micros().div_euclid(1_000_000)).to_string(),
            Self::Millis => time.as_millis().to_string(),
        }
    }

    /// The finest step that it can tell.
    pub(crate) const fn step_micros(self) -> i64 {
        match self {
            Self::Native | Self::Rfc3339 => 1,
            Self::Millis => 1_000,
            Self::Text | Self::Seconds => 1_000_000,
        }
    }
}

pub(crate) fn create(database: &Database, dates: Dates) {
    let (time, note) = (
        dates.type_name(database),
        database.dialect("TEXT", "text", "VARCHAR(200)"),
    );
    database.sql(&format!(
        "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time},
         FAILURES INTEGER, LAST_FAILURE {time}, NOTE {note})"
    ));
}

/// The table once more and empty, with the indexes that `check` suggests or without.
pub(crate) fn create_anew(database: &Database, dates: Dates, is_indexed: bool) {
    let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
    create(database, dates);
    if is_indexed {
        create_indexes(database);
    }
}

/// The indexes that `check` suggests.
pub(crate) fn create_indexes(database: &Database) {
    database.sql(
        "CREATE INDEX backlog_inserted ON BACKLOG (STATUS, DATE_INSERTED);
         CREATE INDEX backlog_due ON BACKLOG (STATUS, FAILURES, LAST_FAILURE, DATE_INSERTED)",
    );
}

pub(crate) fn insert(database: &Database, dates: Dates, rows: &[(i64, &str, OpenRow)]) {
    for part in rows.chunks(200) {
        let values: Vec<String> = part
            .iter()
            .map(|(id, status, row)| {
                let last = row
                    .last_failure
                    .map_or("NULL".to_owned(), |last| dates.literal(last));
                format!(
                    "({id}, '{status}', {}, {}, {last}, 'n')",
                    dates.literal(row.inserted),
                    row.failures
                )
            })
            .collect();
        database.sql(&format!("INSERT INTO BACKLOG VALUES {}", values.join(", ")));
    }
}

pub(crate) fn fresh(inserted: Time) -> OpenRow {
    OpenRow {
        inserted,
        failures: 0,
        last_failure: None,
    }
}

pub(crate) fn table(database: &Database, strategy: &str) -> Table {
    let table = Table::new("backlog", &database.url(), "BACKLOG").expect("a table");
    table.strategy(&policy(strategy), None).expect("a strategy")
}

/// What handlers were called with, and what they are to answer.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Value>>>);

impl Calls {
    pub(crate) fn keys(&self) -> Vec<Value> {
        self.0.lock().expect("calls").clone()
    }

    pub(crate) fn table(
        &self,
        table: Table,
        fails: impl Fn(&TableRow) -> bool + Send + Sync + 'static,
    ) -> Table {
        let (calls, fails) = (Arc::clone(&self.0), Arc::new(fails));
        table.handler(move |row: TableRow| {
            calls.lock().expect("calls").push(row.key.clone());
            let fails = fails(&row);
            async move {
                if fails {
                    Err(RunError::retry("no"))
                } else {
                    Ok(())
                }
            }
        })
    }
}

pub(crate) async fn run(adopted: &AdoptedTable, at: Time) -> PassReport {
    adopted.run_at(at, &mut |_| {}).await.expect("a pass")
}

pub(crate) async fn due(adopted: &AdoptedTable, at: Time) -> Vec<Value> {
    let due = adopted.due(at, None).await.expect("due rows");
    due.into_iter().map(|row| row.key).collect()
}

pub(crate) fn at_noon() -> TestBackstop {
    let test = testing::start();
    test.clock.advance(noon().since(test.backstop.now()));
    test
}

/// The status of each row.
pub(crate) async fn states(adopted: &AdoptedTable, at: Time) -> [u64; 3] {
    let status = adopted.status(at).await.expect("a status");
    [status.new, status.error, status.success]
}

/// What the runners of the table know together, as if they had left it so.
pub(crate) async fn leave_desk(backstop: &Backstop, desk: &str) {
    leave_cell(backstop, "tables/backlog/desk", desk).await;
}

/// Another value that they share.
pub(crate) async fn leave_cell(backstop: &Backstop, name: &str, value: &str) {
    let name = name.to_owned();
    let there = backstop
        .store()
        .cells(vec![name.clone()])
        .await
        .expect("cells")
        .pop()
        .flatten();
    let seen = there.map(|cell| cell.version);
    let left = CellSwap {
        name,
        seen,
        version: 17,
        value: Some(value.as_bytes().to_vec()),
    };
    backstop.store().swap(vec![left]).await.expect("a cell");
}
