//! Reads and writes the row of a key.

use super::changes::StreamIndex;
use crate::row;
use crate::transaction::WriteTransaction;
use backstop_core::stream::StoredKey;
use backstop_core::{StreamKey, Time};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

pub(super) const KEY_FIND: &str = include_str!("../sql/stream_key_find.sql");
pub(super) const KEY_GET: &str = include_str!("../sql/stream_key_get.sql");
const KEY_ADD: &str = include_str!("../sql/stream_key_add.sql");
const KEY_HOLD: &str = include_str!("../sql/stream_key_hold.sql");
pub(super) const KEY_DUE: &str = include_str!("../sql/stream_key_due.sql");

/// The columns of a key that the store itself uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamKeyRow {
    pub(super) id: i64,
    /// The lease that ended last, and its last turn.
    pub(super) number: i64,
    pub(super) turn: i64,
    pub(super) arrived: i64,
    pub(super) records: i64,
    pub(super) due: Option<Time>,
}

impl StreamKeyRow {
    /// Reads the columns of `stream_key_find.sql`.
    pub(super) fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row::whole(row, 0)?,
            number: row::whole(row, 1)?,
            turn: row::whole(row, 2)?,
            arrived: row::whole(row, 3)?,
            records: row::whole(row, 4)?.max(0),
            due: row::maybe_whole(row, 5)?.map(Time::from_micros),
        })
    }

    /// Inserts a new key without a watermark, state or records.
    pub(super) fn add(
        tx: &mut WriteTransaction<'_>,
        stream: StreamIndex,
        name: &StreamKey,
    ) -> Result<Self> {
        let new = params![tx.streams.id(stream), name.as_str(), row::NO_LEASE];
        tx.db.prepare_cached(KEY_ADD)?.execute(new)?;
        tx.streams.count_keys(stream, 1);
        let id = tx.db.last_insert_rowid();
        Ok(Self {
            id,
            number: row::NO_LEASE,
            turn: 0,
            arrived: 0,
            records: 0,
            due: None,
        })
    }

    /// Writes the records count, the arrivals and the due time, if they changed.
    pub(super) fn write(
        &self,
        tx: &mut WriteTransaction<'_>,
        stream: StreamIndex,
        before: &Self,
    ) -> Result<()> {
        if self == before {
            return Ok(());
        }
        let due = self.due.map(Time::as_micros);
        if self.records == before.records && self.arrived == before.arrived {
            return tx
                .db
                .prepare_cached(KEY_DUE)?
                .execute(params![self.id, due])
                .map(drop);
        }
        tx.streams
            .count_records(stream, before.records, self.records);
        let held = params![self.id, self.arrived, self.records, due];
        tx.db.prepare_cached(KEY_HOLD)?.execute(held).map(drop)
    }
}

/// Finds the key of this name in a stream.
pub(super) fn find(db: &Connection, stream: i64, name: &StreamKey) -> Result<Option<StreamKeyRow>> {
    db.prepare_cached(KEY_FIND)?
        .query_row(params![stream, name.as_str()], StreamKeyRow::read)
        .optional()
}

/// Reads a key without its records, from the columns of `stream_key_find.sql`.
pub(super) fn stored(row: &Row<'_>, key: StreamKey) -> Result<StoredKey> {
    Ok(StoredKey {
        key,
        watermark: row::maybe_whole(row, 6)?,
        state: row::bytes(row, 7)?.unwrap_or_default().to_vec(),
        arrived: row::count(row, 3)?,
        records: Vec::new(),
        count: row::count(row, 4)?,
        highest: None,
    })
}
