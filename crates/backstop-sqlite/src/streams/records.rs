//! Reads and writes the records of a key.

use crate::row;
use backstop_core::limits::WINDOW_RECORDS_MAX;
use backstop_core::stream::{KeyChange, StoredKey, StoredRecord};
use backstop_core::{Payload, Time};
use rusqlite::{Connection, Result, Row, params};

pub(super) const RECORD_ADD: &str = include_str!("../sql/record_add.sql");
const RECORDS_WINDOW: &str = include_str!("../sql/records_window.sql");
const RECORDS_HIGHEST: &str = include_str!("../sql/records_highest.sql");
const RECORD_OWN: &str = include_str!("../sql/record_own.sql");
const RECORD_DROP: &str = include_str!("../sql/record_drop.sql");
const RECORDS_OF: &str = include_str!("../sql/records_of.sql");
const RECORD_REMOVE: &str = include_str!("../sql/record_remove.sql");

/// Loads a key's records, until they have `bytes_max` bytes; returns how many bytes they have.
pub(super) fn load(
    db: &Connection,
    id: i64,
    stored: &mut StoredKey,
    bytes_max: usize,
) -> Result<usize> {
    let mut window = db.prepare_cached(RECORDS_WINDOW)?;
    let mut rows = window.query(params![id, row::number(WINDOW_RECORDS_MAX)])?;
    let (mut read, mut bytes) = (0, 0);
    let mut is_all = false;
    stored.records = Vec::new();
    while bytes < bytes_max {
        let Some(row) = rows.next()? else {
            is_all = read < WINDOW_RECORDS_MAX;
            break;
        };
        read += 1;
        let record = record(row)?;
        bytes += record.as_ref().map_or(0, |record| record.payload.len());
        stored.records.extend(record);
    }
    let loaded = stored.records.len() as u64;
    if is_all {
        // The records that exist count, whatever the key's row says.
        stored.count = loaded;
        stored.highest = stored.records.last().map(|record| record.position);
    } else {
        stored.count = stored.count.max(loaded);
        let highest = |row: &Row<'_>| row::maybe_whole(row, 0);
        stored.highest = db
            .prepare_cached(RECORDS_HIGHEST)?
            .query_row([id], highest)?;
    }
    Ok(bytes)
}

/// Reads a record's row; `None` if its position cannot be read, because such a record could never
/// be dropped. An unreadable payload becomes empty: the handler then rejects it, and its place in
/// the order is not lost.
fn record(row: &Row<'_>) -> Result<Option<StoredRecord>> {
    let Some(position) = row::maybe_whole(row, 0)? else {
        tracing::warn!(
            "a row of backstop_stream_record has no readable position; run `backstop doctor`"
        );
        return Ok(None);
    };
    Ok(Some(StoredRecord {
        position,
        step: row::whole(row, 1)?.max(1),
        tenant: row::text(row, 2)?.map(Into::into),
        at: row::time(row, 3)?,
        arrival: row::count(row, 4)?,
        payload: Payload::from_stored(row::bytes(row, 5)?.unwrap_or_default().to_vec()),
    }))
}

/// Removes and inserts records, as the lease's holder decided; returns by how many there are more.
pub(super) fn change(db: &Connection, stream: i64, key: i64, change: &KeyChange) -> Result<i64> {
    let mut more = 0;
    for position in &change.drop {
        more -= row::number(db.prepare_cached(RECORD_DROP)?.execute([key, *position])?);
    }
    for record in &change.hold {
        if db
            .prepare_cached(RECORD_OWN)?
            .execute([key, record.position])?
            == 0
        {
            more += row::number(add(db, stream, key, record)?);
        }
    }
    Ok(more)
}

/// Inserts a record that the lease's holder holds back.
fn add(db: &Connection, stream: i64, key: i64, record: &StoredRecord) -> Result<usize> {
    db.prepare_cached(RECORD_ADD)?.execute(params![
        key,
        record.position,
        0,
        record.step,
        record.at.as_micros(),
        stream,
        record.tenant.as_deref(),
        record.payload.as_bytes(),
    ])
}

/// The arrival time of a key's oldest record.
pub(super) fn oldest(db: &Connection, key: i64) -> Result<Option<Time>> {
    let mut of_key = db.prepare_cached(RECORDS_OF)?;
    let mut rows = of_key.query([key])?;
    let mut oldest: Option<Time> = None;
    while let Some(row) = rows.next()? {
        let at = row::time(row, 1)?;
        oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
    }
    Ok(oldest)
}

/// Removes all records of a key.
pub(super) fn clear(db: &Connection, key: i64) -> Result<()> {
    let mut of_key = db.prepare_cached(RECORDS_OF)?;
    let nos: Vec<i64> = of_key
        .query_map([key], |row| row::whole(row, 0))?
        .collect::<Result<_>>()?;
    let mut remove = db.prepare_cached(RECORD_REMOVE)?;
    nos.into_iter()
        .try_for_each(|no| remove.execute([no]).map(drop))
}
