//! Decodes keys from the result of the SQL functions: one row with array columns.

use crate::row::get;
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::stream::{StoredKey, StoredRecord};
use backstop_core::{Payload, StreamKey, Time};
use std::collections::HashMap;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

const DOING: &str = "reading keys";

/// Reads keys from the columns of `take`. A key with an invalid name was inserted by hand: it is
/// skipped, so that the other keys are still processed.
pub(super) fn stored(rows: &[Row]) -> StoreResult<Vec<StoredKey>> {
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    let names: Vec<&str> = column(row, 0)?;
    let watermarks: Vec<Option<i64>> = column(row, 1)?;
    let key_states: Vec<&[u8]> = column(row, 2)?;
    let arrived: Vec<i64> = column(row, 3)?;
    same_length(
        names.len(),
        &[watermarks.len(), key_states.len(), arrived.len()],
    )?;
    let mut key_records = key_records(row)?;
    let mut keys = Vec::with_capacity(names.len());
    for (at, name) in names.into_iter().enumerate() {
        let KeyRecords {
            count,
            highest,
            records,
        } = key_records.remove(name).unwrap_or_default();
        match StreamKey::new(name) {
            Ok(key) => keys.push(StoredKey {
                key,
                watermark: watermarks[at],
                state: key_states[at].to_vec(),
                arrived: self::count(arrived[at]),
                records,
                count,
                highest,
            }),
            Err(error) => {
                tracing::warn!(%error, "a key of a stream cannot be read and is left out");
            }
        }
    }
    Ok(keys)
}

#[derive(Default)]
struct KeyRecords {
    count: u64,
    highest: Option<i64>,
    records: Vec<StoredRecord>,
}

/// Reads the records of the keys that have any.
fn key_records(row: &Row) -> StoreResult<HashMap<&str, KeyRecords>> {
    let names: Vec<&str> = column(row, 4)?;
    let counts: Vec<i32> = column(row, 5)?;
    let highest: Vec<Option<i64>> = column(row, 6)?;
    same_length(names.len(), &[counts.len(), highest.len()])?;
    let key_records = |(count, highest): (i32, Option<i64>)| KeyRecords {
        count: self::count(count.into()),
        highest,
        records: Vec::new(),
    };
    let mut all: Vec<KeyRecords> = counts.into_iter().zip(highest).map(key_records).collect();
    if !names.is_empty() {
        for (of, record) in records(row)? {
            let key = usize::try_from(of - 1).ok().and_then(|at| all.get_mut(at));
            key.ok_or_else(|| StoreError::corrupt(DOING, format!("a record of key {of}")))?
                .records
                .push(record);
        }
    }
    Ok(names.into_iter().zip(all).collect())
}

/// Reads records, each with the number of its key, counted from 1.
fn records(row: &Row) -> StoreResult<Vec<(i32, StoredRecord)>> {
    let of: Vec<i32> = column(row, 7)?;
    let positions: Vec<i64> = column(row, 8)?;
    let steps: Vec<i64> = column(row, 9)?;
    let tenants: Vec<Option<&str>> = column(row, 10)?;
    let ats: Vec<i64> = column(row, 11)?;
    let arrivals: Vec<i64> = column(row, 12)?;
    let payloads: Vec<&[u8]> = column(row, 13)?;
    let lengths = [
        steps.len(),
        tenants.len(),
        ats.len(),
        arrivals.len(),
        payloads.len(),
        of.len(),
    ];
    same_length(positions.len(), &lengths)?;
    let record = |at: usize| StoredRecord {
        position: positions[at],
        step: steps[at],
        tenant: tenants[at].map(Into::into),
        at: Time::from_micros(ats[at]),
        arrival: count(arrivals[at]),
        payload: Payload::from_stored(payloads[at].to_vec()),
    };
    Ok((0..positions.len())
        .map(|at| (of[at], record(at)))
        .collect())
}

/// Reads an array column; NULL is an empty one.
fn column<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> StoreResult<Vec<T>> {
    get::<Option<Vec<T>>>(row, at).map(Option::unwrap_or_default)
}

fn same_length(length: usize, others: &[usize]) -> StoreResult<()> {
    if others.iter().all(|other| *other == length) {
        return Ok(());
    }
    Err(StoreError::corrupt(DOING, "columns of different lengths"))
}

/// Reads a count; no code writes a negative one.
pub(super) fn count(number: i64) -> u64 {
    number.max(0).unsigned_abs()
}
