//! A key as a store keeps it, and what changes in it.

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
    /// What the rules remember, as bytes.
    pub state: Vec<u8>,
    /// How many records were offered since the key came into being: the number of the latest
    /// arrival.
    pub arrived: u64,
    /// The records of the lowest positions, in their order; at most
    /// [`crate::limits::WINDOW_RECORDS_MAX`].
    pub records: Vec<StoredRecord>,
    /// How many records there are in all.
    pub count: u64,
    /// The highest position among all of them.
    pub highest: Option<i64>,
}

impl StoredKey {
    /// How many bytes the payloads of [`Self::records`] have.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.payload.len()).sum()
    }

    /// How many records there are beyond [`Self::records`].
    pub const fn more(&self) -> u64 {
        self.count.saturating_sub(self.records.len() as u64)
    }
}

/// A record as a store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRecord {
    pub position: i64,
    /// How far from it the next one is expected.
    pub step: i64,
    pub tenant: Option<Arc<str>>,
    pub at: Time,
    /// The number of its arrival at this key, from 1 on; 0 for one that whoever had the key's lease
    /// put there.
    pub arrival: u64,
    pub payload: Payload,
}

/// What is to change in a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyChange {
    /// The watermark from now on.
    pub watermark: Option<i64>,
    /// What the rules remember from now on.
    pub state: Vec<u8>,
    /// Records that are held from now on; where one is held already, that one stays. All have
    /// arrival 0.
    pub hold: Vec<StoredRecord>,
    /// Positions whose records are held no longer.
    pub drop: Vec<i64>,
    /// What happened, to be added to the counts of the stream.
    pub counts: StreamCounts,
}
