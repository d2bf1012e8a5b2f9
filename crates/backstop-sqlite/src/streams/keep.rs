//! Renews the leases of keys.

use super::key::{self, StreamKeyRow};
use super::lease::KeyLeaseRow;
use crate::transaction::WriteTransaction;
use backstop_core::Time;
use backstop_core::port::KeyLease;
use rusqlite::Result;

/// Renews leases; returns those that are lost.
pub(crate) fn keep(
    tx: &mut WriteTransaction<'_>,
    leases: &[KeyLease],
    until: Time,
    now: Time,
) -> Result<Vec<KeyLease>> {
    let mut lost = Vec::new();
    for lease in leases {
        if !keep_one(tx, lease, until, now)? {
            lost.push(lease.clone());
        }
    }
    Ok(lost)
}

/// Renews a lease; returns `false` if it is not the current one.
fn keep_one(
    tx: &mut WriteTransaction<'_>,
    lease: &KeyLease,
    until: Time,
    now: Time,
) -> Result<bool> {
    let db = tx.db;
    let Some(stream) = tx.streams.find(db, &lease.stream)? else {
        return Ok(false);
    };
    let Some(key) = key::find(db, tx.streams.id(stream), &lease.key)? else {
        return Ok(false);
    };
    let hold = KeyLeaseRow::find(db, key.id)?.filter(|hold| hold.number == lease.number);
    let Some(hold) = hold else { return Ok(false) };
    let until = hold.extend(db, key.id, hold.turn, until, now)?;
    StreamKeyRow {
        due: Some(until).filter(|_| key.records > 0),
        ..key
    }
    .write(tx, stream, &key)?;
    Ok(true)
}
