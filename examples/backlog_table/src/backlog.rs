//! The table: its rows, and how old they are.

use anyhow::{Context, Result};
use backstop::{Span, Time};
use rusqlite::Connection;
use std::path::PathBuf;
use tempfile::TempDir;

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Its key.
    pub id: i64,
    /// How old it is when we come to the table.
    pub age: Span,
}

/// The rows that are there when we come to it, newest first.
pub const ARTICLE: [Sample; 4] = [
    Sample {
        id: 4,
        age: Span::minutes(8),
    },
    Sample {
        id: 3,
        age: Span::hours(5),
    },
    Sample {
        id: 2,
        age: Span::days(3),
    },
    Sample {
        id: 1,
        age: Span::days(60),
    },
];

/// One that comes in at that very moment: it has its whole life before it.
pub const FRESH: Sample = Sample {
    id: 5,
    age: Span::ZERO,
};

/// The moment at which we come to the table: 2026-01-01, midnight.
pub fn moment() -> Time {
    Time::from_millis(1_767_225_600_000)
}

/// The table in a file of its own, gone with it.
pub struct Backlog {
    folder: TempDir,
}

impl Backlog {
    /// With these rows, all of them new.
    pub fn new(rows: &[Sample]) -> Result<Self> {
        let backlog = Self {
            folder: tempfile::tempdir()?,
        };
        let db = backlog.open()?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE BACKLOG (
                 ID INTEGER PRIMARY KEY, STATUS TEXT NOT NULL, DATE_INSERTED TEXT NOT NULL,
                 FAILURES INTEGER NOT NULL DEFAULT 0, LAST_FAILURE TEXT);",
        )?;
        let mut insert = db.prepare(
            "INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED) VALUES (?, 'NEW', datetime(?, 'unixepoch'))",
        )?;
        for row in rows {
            insert.execute((row.id, moment().before(row.age).as_millis() / 1_000))?;
        }
        drop(insert);
        Ok(backlog)
    }

    /// Where it is, for backstop.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    /// Its rows and what became of them, newest first.
    pub fn rows(&self) -> Result<Vec<(i64, String)>> {
        let db = self.open()?;
        let mut asked = db.prepare("SELECT ID, STATUS FROM BACKLOG ORDER BY DATE_INSERTED DESC")?;
        let rows = asked.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    fn open(&self) -> Result<Connection> {
        Connection::open(self.file()).context("the table's file could not be opened")
    }
}
