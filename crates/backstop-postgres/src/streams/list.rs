//! Lists streams and keys for an operator.

use super::stored::{count, stored};
use crate::link::{CommitMode, PostgresLink};
use crate::row::{self, get};
use backstop_core::lease::is_expired;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX, WINDOW_RECORDS_MAX};
use backstop_core::port::KeyLeaseHolder;
use backstop_core::port::{
    KeyFilter, KeyStatus, ListKeysRequest, StoreError, StoreResult, StreamStatus,
};
use backstop_core::stream::{StoredKey, StreamCounter, StreamCounts};
use backstop_core::{StreamKey, StreamName, Time, WorkerName};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// Numbers of the column `what` that are not those of a counter: see `schema.sql`.
const KEYS: i16 = -1;
const HOLDING: i16 = -2;
const RECORDS: i16 = -3;
/// Records that one call reads to find the oldest of each key; the last key may exceed this.
const RECORDS_LOOKED_AT: i32 = 20_000;

/// Lists all streams that have keys or counts.
pub(super) async fn streams(link: &PostgresLink) -> StoreResult<Vec<StreamStatus>> {
    let rows = link
        .call("listing streams", CommitMode::Durable, "streams", &[])
        .await?;
    let streams: Vec<StreamStatus> = rows.iter().map(status).collect::<StoreResult<_>>()?;
    Ok(streams
        .into_iter()
        .filter(|stream| stream.keys > 0 || !stream.counts.is_empty())
        .collect())
}

fn status(row: &Row) -> StoreResult<StreamStatus> {
    let (whats, numbers): (Vec<i16>, Vec<i64>) = (get(row, 1)?, get(row, 2)?);
    let of = |wanted: i16| {
        let counted = whats
            .iter()
            .zip(&numbers)
            .find(|(what, _)| **what == wanted);
        counted.map_or(0, |(_, number)| count(*number))
    };
    Ok(StreamStatus {
        name: StreamName::new(get(row, 0)?)
            .map_err(|error| StoreError::corrupt("listing streams", error))?,
        keys: of(KEYS),
        holding: of(HOLDING),
        records: of(RECORDS),
        oldest: get::<Option<i64>>(row, 3)?.map(Time::from_micros),
        counts: StreamCounts::from_numbers((0..).zip(StreamCounter::ALL).map(|(what, _)| of(what))),
    })
}

/// Lists the next keys of a stream. Keys with many records take several calls, each of them short.
pub(super) async fn keys(
    link: &PostgresLink,
    query: &ListKeysRequest,
    now: Time,
) -> StoreResult<Vec<KeyStatus>> {
    let mut after = query
        .after
        .as_ref()
        .map_or("", StreamKey::as_str)
        .to_owned();
    let mut left = query.limit.clamp(1, PAGE_MAX);
    let mut keys = Vec::new();
    loop {
        let params = [
            (&query.stream.as_str() as _, Type::TEXT),
            (&after as _, Type::TEXT),
            (&(query.filter == KeyFilter::Holding) as _, Type::BOOL),
            (&row::number(left) as _, Type::INT4),
            (&RECORDS_LOOKED_AT as _, Type::INT4),
        ];
        let rows = link
            .call(
                "listing keys",
                CommitMode::Durable,
                "list_stream_keys",
                &params,
            )
            .await?;
        let mut looked_at = 0;
        for row in &rows {
            keys.extend(key_status(row, now)?);
            looked_at += i64::from(get::<i32>(row, 3)?);
        }
        left = left.saturating_sub(rows.len());
        match rows.last() {
            Some(last) if left > 0 && looked_at >= RECORDS_LOOKED_AT.into() => {
                after = get(last, 0)?;
            }
            _ => return Ok(keys),
        }
    }
}

fn key_status(row: &Row, now: Time) -> StoreResult<Option<KeyStatus>> {
    let Ok(key) = StreamKey::new(get(row, 0)?) else {
        return Ok(None);
    };
    let time = |column| get::<Option<i64>>(row, column).map(|time| time.map(Time::from_micros));
    let worker: Option<&str> = get(row, 6)?;
    let holder = worker
        .map(WorkerName::new)
        .zip(time(7)?)
        .map(|(worker, until)| KeyLeaseHolder { worker, until });
    let holder = holder.filter(|holder| !is_expired(holder.until, now));
    Ok(Some(KeyStatus {
        key,
        watermark: get(row, 1)?,
        state: get(row, 2)?,
        records: count(get::<i32>(row, 3)?.into()),
        oldest: time(4)?,
        due: time(5)?.filter(|_| holder.is_none()),
        holder,
    }))
}

/// Reads one key, with the records that a take would load.
pub(super) async fn key(
    link: &PostgresLink,
    stream: &StreamName,
    key: &StreamKey,
) -> StoreResult<Option<StoredKey>> {
    let params = [
        (&stream.as_str() as _, Type::TEXT),
        (&key.as_str() as _, Type::TEXT),
        (&row::number(WINDOW_RECORDS_MAX) as _, Type::INT4),
        (&row::number(PAGE_BYTES_MAX) as _, Type::INT4),
    ];
    let rows = link
        .call(
            "looking at a key",
            CommitMode::Durable,
            "read_stream_key",
            &params,
        )
        .await?;
    Ok(stored(&rows)?.pop())
}
