//! A key as a store keeps it, and a change to it.

use super::counts::StreamCounts;
use crate::name::StreamKey;
use crate::payload::Payload;
use crate::time::Time;
use std::sync::Arc;

/// A key as a store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredKey {
    pub key: StreamKey,
    /// The last position that was handled or passed.
    pub watermark: Option<i64>,
    /// The bytes of the key's [`KeyState`](super::KeyState).
    pub state: Vec<u8>,
    /// The number of records offered since the key was created, which is the number of the latest
    /// arrival.
    pub arrived: u64,
    /// The records of the lowest positions, in order; at most
    /// [`crate::limits::WINDOW_RECORDS_MAX`].
    pub records: Vec<StoredRecord>,
    /// The number of all records of the key.
    pub count: u64,
    /// The highest position of all records of the key.
    pub highest: Option<i64>,
}

impl StoredKey {
    /// The size of the payloads of [`Self::records`], in bytes.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.payload.len()).sum()
    }

    /// The number of records that are not in [`Self::records`].
    pub const fn more(&self) -> u64 {
        self.count.saturating_sub(self.records.len() as u64)
    }
}

/// A record as a store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRecord {
    pub position: i64,
    /// The distance to the next expected record of the key.
    pub step: i64,
    pub tenant: Option<Arc<str>>,
    pub at: Time,
    /// The number of the record's arrival at this key, counted from 1; 0 for a record that the
    /// holder of the key's lease wrote.
    pub arrival: u64,
    pub payload: Payload,
}

/// A change to a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyChange {
    /// The new watermark of the key.
    pub watermark: Option<i64>,
    /// The new state of the key, as bytes.
    pub state: Vec<u8>,
    /// Records to hold. Where the store already holds a record at the position, that one stays.
    /// All of these have arrival 0.
    pub hold: Vec<StoredRecord>,
    /// Positions whose records the store removes.
    pub drop: Vec<i64>,
    /// Counts to add to those of the stream.
    pub counts: StreamCounts,
}
