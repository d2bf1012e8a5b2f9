//! Reads and extends the leases of keys.

use crate::row;
use backstop_core::lease::{extend_lease, is_expired};
use backstop_core::{LeaseNumber, Time};
use rusqlite::{Connection, OptionalExtension, Result};

const LEASE_FIND: &str = include_str!("../sql/lease_find.sql");
const LEASE_EXTEND: &str = include_str!("../sql/lease_extend.sql");

/// A lease on a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLeaseRow {
    pub(super) number: LeaseNumber,
    pub(super) until: Time,
    /// The last turn of this lease that the store accepted.
    pub(super) turn: i64,
}

impl KeyLeaseRow {
    /// Finds the lease of a key, expired or not.
    pub(super) fn find(db: &Connection, key: i64) -> Result<Option<Self>> {
        let read = |row: &rusqlite::Row<'_>| {
            let number = LeaseNumber::from_i64(row::whole(row, 0)?);
            Ok(Self {
                number,
                until: row::time(row, 1)?,
                turn: row::whole(row, 2)?,
            })
        };
        db.prepare_cached(LEASE_FIND)?
            .query_row([key], read)
            .optional()
    }

    /// Whether the lease is current, so that no other worker can take the key.
    pub(super) fn is_held(&self, now: Time) -> bool {
        !is_expired(self.until, now)
    }

    /// Extends the lease and sets its last turn; returns its new end.
    pub(super) fn extend(
        &self,
        db: &Connection,
        key: i64,
        turn: i64,
        until: Time,
        now: Time,
    ) -> Result<Time> {
        let until = extend_lease(self.until, until, now);
        db.prepare_cached(LEASE_EXTEND)?
            .execute([key, until.as_micros(), turn])?;
        Ok(until)
    }
}
