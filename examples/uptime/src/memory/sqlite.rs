//! The memory in one SQLite file.

use super::{Incident, KeptLine, LastUpdate, Memory, MemoryError, Transaction};
use crate::directory::{Change, DetectorId};
use crate::event::{Effect, Event};
use crate::limits::{MEMORY_STATEMENTS_MAX, MEMORY_WAIT_MAX, PAGE_LINES_MAX};
use crate::standing::{Notice, Standing};
use crate::wire::SubscriptionId;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The form of the file.
const VERSION: i64 = 1;
/// How often a process looks whether another's transaction has ended. They take about as long.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// What a commit survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// A power cut.
    Full,
    /// A crash of the process; a power cut may take the last moments with it.
    Relaxed,
}

/// The memory in one SQLite file.
pub struct SqliteMemory {
    db: Connection,
}

impl SqliteMemory {
    /// Opens the file, and makes it if it is not there.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, MemoryError> {
        let mut db = Connection::open(path)?;
        db.busy_handler(Some(wait))?;
        db.set_prepared_statement_cache_capacity(MEMORY_STATEMENTS_MAX);
        db.pragma_update(None, "journal_mode", "WAL")?;
        let level = match durability {
            Durability::Full => "FULL",
            Durability::Relaxed => "NORMAL",
        };
        db.pragma_update(None, "synchronous", level)?;
        // Two processes may find the file empty; the second waits here and finds it made.
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version: i64 =
            transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match version {
            0 => {
                transaction.execute_batch(include_str!("sql/schema.sql"))?;
                transaction.pragma_update(None, "user_version", VERSION)?;
            }
            VERSION => {}
            other => return Err(MemoryError::Version(other, VERSION)),
        }
        transaction.commit()?;
        Ok(Self { db })
    }
}

impl Memory for SqliteMemory {
    fn begin(&mut self) -> Result<Box<dyn Transaction + '_>, MemoryError> {
        let transaction = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(Box::new(SqliteTransaction(transaction)))
    }

    fn changes(&mut self, after: i64) -> Result<Vec<(i64, Change)>, MemoryError> {
        let mut statement = self.db.prepare_cached(include_str!("sql/changes.sql"))?;
        let rows =
            statement.query_map([after], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        rows.map(|row| {
            let (seq, text) = row?;
            Ok((seq, read(&text)?))
        })
        .collect()
    }

    fn lines(&mut self, after: i64) -> Result<Vec<KeptLine>, MemoryError> {
        let mut statement = self.db.prepare_cached(include_str!("sql/lines.sql"))?;
        let mut rows = statement.query(params![after, PAGE_LINES_MAX])?;
        let mut page = Vec::new();
        while let Some(row) = rows.next()? {
            page.push(kept_line(row)?);
        }
        Ok(page)
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, MemoryError> {
        let mut statement = self.db.prepare_cached(include_str!("sql/incidents.sql"))?;
        let rows = statement.query_map([], |row| {
            Ok(Incident {
                detector: DetectorId(row.get(0)?),
                opened_ms: row.get(1)?,
                closed_ms: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

struct SqliteTransaction<'a>(rusqlite::Transaction<'a>);

impl Transaction for SqliteTransaction<'_> {
    fn is_noted(&mut self, event: &Event) -> Result<bool, MemoryError> {
        let mut statement = self.0.prepare_cached(include_str!("sql/is_noted.sql"))?;
        let slot = params![event.key.to_string(), event.position, event.effect.as_str()];
        Ok(statement.query_row(slot, |row| row.get(0))?)
    }

    fn note(&mut self, event: &Event, line: &str, at_ms: i64) -> Result<(), MemoryError> {
        let (to, count) = match event.effect {
            Effect::MissRange { to, count } => (Some(to), i64::try_from(count).ok()),
            Effect::Handled | Effect::Miss | Effect::Amended => (None, None),
        };
        let mut statement = self.0.prepare_cached(include_str!("sql/note.sql"))?;
        let (key, effect) = (event.key.to_string(), event.effect.as_str());
        statement.execute(params![key, event.position, effect, to, count, at_ms, line])?;
        Ok(())
    }

    fn standing(&mut self, detector: DetectorId) -> Result<Option<Standing>, MemoryError> {
        let mut statement = self.0.prepare_cached(include_str!("sql/standing.sql"))?;
        let text: Option<String> = statement
            .query_row([detector.0], |row| row.get(0))
            .optional()?;
        text.map(|text| read(&text)).transpose()
    }

    fn set_standing(
        &mut self,
        detector: DetectorId,
        standing: Standing,
    ) -> Result<(), MemoryError> {
        let mut statement = self
            .0
            .prepare_cached(include_str!("sql/set_standing.sql"))?;
        statement.execute(params![detector.0, write(&standing)])?;
        Ok(())
    }

    fn tell(&mut self, detector: DetectorId, notice: Notice) -> Result<(), MemoryError> {
        match notice {
            Notice::Activated => {}
            Notice::Opened { at_ms } => {
                let mut statement = self
                    .0
                    .prepare_cached(include_str!("sql/open_incident.sql"))?;
                statement.execute(params![detector.0, at_ms])?;
            }
            Notice::Closed { opened_ms, at_ms } => {
                let mut statement = self
                    .0
                    .prepare_cached(include_str!("sql/close_incident.sql"))?;
                statement.execute(params![detector.0, opened_ms, at_ms])?;
            }
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<(), MemoryError> {
        let mut statement = self.0.prepare_cached(include_str!("sql/change.sql"))?;
        statement.execute([write(change)])?;
        Ok(())
    }

    fn last_update(&mut self, key: SubscriptionId) -> Result<Option<LastUpdate>, MemoryError> {
        let mut statement = self.0.prepare_cached(include_str!("sql/last_update.sql"))?;
        let found = statement.query_row([key.to_string()], |row| {
            Ok(LastUpdate {
                position: row.get(0)?,
                step: row.get(1)?,
            })
        });
        Ok(found.optional()?)
    }

    fn set_last_update(&mut self, key: SubscriptionId, to: LastUpdate) -> Result<(), MemoryError> {
        let mut statement = self
            .0
            .prepare_cached(include_str!("sql/set_last_update.sql"))?;
        statement.execute(params![key.to_string(), to.position, to.step])?;
        Ok(())
    }

    fn forget_last_update(&mut self, key: SubscriptionId) -> Result<(), MemoryError> {
        self.0
            .prepare_cached(include_str!("sql/forget_last_update.sql"))?
            .execute([key.to_string()])?;
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), MemoryError> {
        Ok(self.0.commit()?)
    }
}

fn kept_line(row: &Row<'_>) -> Result<KeptLine, MemoryError> {
    let key: String = row.get(1)?;
    let effect: String = row.get(3)?;
    let effect = match effect.as_str() {
        "handled" => Effect::Handled,
        "miss" => Effect::Miss,
        "miss_range" => {
            let count: i64 = row.get(5)?;
            Effect::MissRange {
                to: row.get(4)?,
                count: count.unsigned_abs(),
            }
        }
        "amended" => Effect::Amended,
        other => return Err(MemoryError::Corrupt(format!("an effect called {other}"))),
    };
    let key = key
        .parse()
        .map_err(|_| MemoryError::Corrupt(format!("a subscription called {key}")))?;
    Ok(KeptLine {
        seq: row.get(0)?,
        key,
        position: row.get(2)?,
        effect,
        at_ms: row.get(6)?,
        line: row.get(7)?,
    })
}

fn write(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("words and numbers are always JSON")
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, MemoryError> {
    serde_json::from_str(text).map_err(|error| MemoryError::Corrupt(format!("{text}: {error}")))
}

fn wait(looks: i32) -> bool {
    let is_patient = LOOK_AGAIN * looks.unsigned_abs() < MEMORY_WAIT_MAX;
    if is_patient {
        thread::sleep(LOOK_AGAIN);
    }
    is_patient
}
