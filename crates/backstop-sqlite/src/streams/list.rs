//! Lists streams and keys for an operator.

use super::changes::stream_id;
use super::key::{self, KEY_FIND, StreamKeyRow};
use super::records;
use crate::row;
use backstop_core::lease::is_expired;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use backstop_core::port::KeyLeaseHolder;
use backstop_core::port::{KeyFilter, KeyStatus, ListKeysRequest, StreamStatus};
use backstop_core::stream::{StoredKey, StreamCounter, StreamCounts};
use backstop_core::{StreamKey, StreamName, Time, WorkerName};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

const STREAMS: &str = include_str!("../sql/streams.sql");
const STREAMS_OLDEST: &str = include_str!("../sql/streams_oldest.sql");
const STREAMS_COUNTS: &str = include_str!("../sql/streams_counts.sql");
const STREAMS_KEYS: &str = include_str!("../sql/streams_keys.sql");
const STREAMS_HOLDING: &str = include_str!("../sql/streams_holding.sql");

/// Lists all streams that have keys or counts, by name.
pub(crate) fn streams(db: &Connection) -> Result<Vec<StreamStatus>> {
    let mut statement = db.prepare_cached(STREAMS)?;
    let mut rows = statement.query([])?;
    let mut streams = Vec::new();
    while let Some(row) = rows.next()? {
        let known = status(db, row)?.filter(|status| status.keys > 0 || !status.counts.is_empty());
        streams.extend(known);
    }
    Ok(streams)
}

/// Reads a stream's row; `None` if its name cannot be read.
fn status(db: &Connection, row: &Row<'_>) -> Result<Option<StreamStatus>> {
    let Some(name) = row::text(row, 1)?.and_then(|name| StreamName::new(name).ok()) else {
        tracing::warn!("a row of backstop_stream has no readable name; run `backstop doctor`");
        return Ok(None);
    };
    let id = row::whole(row, 0)?;
    Ok(Some(StreamStatus {
        name,
        keys: row::count(row, 2)?,
        holding: row::count(row, 3)?,
        records: row::count(row, 4)?,
        oldest: oldest(db, id)?,
        counts: counts(db, id)?,
    }))
}

/// The arrival time of a stream's oldest record.
fn oldest(db: &Connection, stream: i64) -> Result<Option<Time>> {
    let read = |row: &Row<'_>| Ok(row::maybe_whole(row, 0)?.map(Time::from_micros));
    db.prepare_cached(STREAMS_OLDEST)?.query_row([stream], read)
}

fn counts(db: &Connection, stream: i64) -> Result<StreamCounts> {
    let mut statement = db.prepare_cached(STREAMS_COUNTS)?;
    let mut rows = statement.query([stream])?;
    let mut numbers = [0; StreamCounter::ALL.len()];
    while let Some(row) = rows.next()? {
        // A later version may have more counters, which this one skips.
        let place = usize::try_from(row::whole(row, 0)?)
            .ok()
            .and_then(|place| numbers.get_mut(place));
        if let Some(number) = place {
            *number = row::count(row, 1)?;
        }
    }
    Ok(StreamCounts::from_numbers(numbers))
}

/// Lists the next keys of a stream, by the bytes of their names.
pub(crate) fn keys(db: &Connection, query: &ListKeysRequest, now: Time) -> Result<Vec<KeyStatus>> {
    let Some(stream) = stream_id(db, &query.stream)? else {
        return Ok(Vec::new());
    };
    let sql = match query.filter {
        KeyFilter::All => STREAMS_KEYS,
        KeyFilter::Holding => STREAMS_HOLDING,
    };
    // A key has at least one byte, so every key sorts behind the empty text.
    let after = query.after.as_ref().map_or("", StreamKey::as_str);
    let limit = row::number(query.limit.clamp(1, PAGE_MAX));
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![stream, after, limit])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.extend(key_status(db, row, now)?);
    }
    Ok(keys)
}

/// Reads a key's row; `None` if its name cannot be read.
fn key_status(db: &Connection, row: &Row<'_>, now: Time) -> Result<Option<KeyStatus>> {
    let Some(key) = row::text(row, 0)?.and_then(|name| StreamKey::new(name).ok()) else {
        tracing::warn!("a row of backstop_stream_key has no readable name; run `backstop doctor`");
        return Ok(None);
    };
    let due = row::maybe_whole(row, 4)?.map(Time::from_micros);
    let until = row::maybe_whole(row, 6)?
        .map(Time::from_micros)
        .filter(|until| !is_expired(*until, now));
    let worker = WorkerName::new(row::text(row, 7)?.unwrap_or_default());
    Ok(Some(KeyStatus {
        key,
        watermark: row::maybe_whole(row, 1)?,
        state: row::bytes(row, 2)?.unwrap_or_default().to_vec(),
        records: row::count(row, 3)?,
        oldest: records::oldest(db, row::whole(row, 5)?)?,
        due: due.filter(|_| until.is_none()),
        holder: until.map(|until| KeyLeaseHolder { worker, until }),
    }))
}

/// Reads one key with its records.
pub(crate) fn key(
    db: &Connection,
    stream: &StreamName,
    name: &StreamKey,
) -> Result<Option<StoredKey>> {
    let Some(stream) = stream_id(db, stream)? else {
        return Ok(None);
    };
    let read = |row: &Row<'_>| Ok((StreamKeyRow::read(row)?, key::stored(row, name.clone())?));
    let found = db
        .prepare_cached(KEY_FIND)?
        .query_row(params![stream, name.as_str()], read)
        .optional()?;
    let Some((key, mut stored)) = found else {
        return Ok(None);
    };
    if key.records > 0 {
        records::load(db, key.id, &mut stored, PAGE_BYTES_MAX)?;
    }
    Ok(Some(stored))
}
