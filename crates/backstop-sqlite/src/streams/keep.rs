//! Keys that stay with who has them.

use super::key::{self, Key};
use super::lease::KeyHold;
use crate::work::Work;
use backstop_core::Time;
use backstop_core::port::KeyLease;
use rusqlite::Result;

/// Makes leases last, and tells which of them are lost.
pub(crate) fn keep(
    work: &mut Work<'_>,
    leases: &[KeyLease],
    until: Time,
    now: Time,
) -> Result<Vec<KeyLease>> {
    let mut lost = Vec::new();
    for lease in leases {
        if !keep_one(work, lease, until, now)? {
            lost.push(lease.clone());
        }
    }
    Ok(lost)
}

/// Makes a lease last; `false` if it is not the current one.
fn keep_one(work: &mut Work<'_>, lease: &KeyLease, until: Time, now: Time) -> Result<bool> {
    let db = work.db;
    let Some(stream) = work.streams.find(db, &lease.stream)? else {
        return Ok(false);
    };
    let Some(key) = key::find(db, work.streams.id(stream), &lease.key)? else {
        return Ok(false);
    };
    let hold = KeyHold::find(db, key.id)?.filter(|hold| hold.number == lease.number);
    let Some(hold) = hold else { return Ok(false) };
    let until = hold.extend(db, key.id, hold.turn, until, now)?;
    Key {
        due: Some(until).filter(|_| key.records > 0),
        ..key
    }
    .write(work, stream, &key)?;
    Ok(true)
}
