//! Stream keys and records as bytes. `lua/streams/shard.lua` describes the layout; its scripts
//! change heads in place.

use crate::record::{from_sortable, sortable};
use crate::reply;
use backstop_core::lease::is_expired;
use backstop_core::port::KeyLeaseHolder;
use backstop_core::port::KeyStatus;
use backstop_core::stream::{StoredKey, StoredRecord};
use backstop_core::{Payload, StreamKey, Time, WorkerName};
use redis::Value;
use std::ops::Range;

const HEAD: usize = 60;
const NEVER: [u8; 8] = [0; 8];
/// The bytes of a record before its tenant.
const RECORD: usize = 24;

/// The state of a key, without its records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StreamKeyHead {
    until: Option<Time>,
    due: Option<Time>,
    oldest: Option<Time>,
    arrived: u64,
    count: u32,
    watermark: Option<i64>,
    worker: String,
    key_state: Vec<u8>,
}

impl StreamKeyHead {
    /// Decodes a head; `None` if the bytes are not a head.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let time = |range: Range<usize>| {
            let bytes = bytes.get(range)?;
            Some(if bytes == NEVER {
                None
            } else {
                Some(Time::from_micros(from_sortable(bytes)?))
            })
        };
        let worker_end =
            HEAD + usize::from(u16::from_be_bytes(bytes.get(58..HEAD)?.try_into().ok()?));
        Some(Self {
            until: time(12..20)?,
            due: time(21..29)?,
            oldest: time(29..37)?,
            arrived: u64::from_be_bytes(bytes.get(37..45)?.try_into().ok()?),
            count: u32::from_be_bytes(bytes.get(45..49)?.try_into().ok()?),
            watermark: if bytes[49] == b'1' {
                from_sortable(&bytes[50..58])
            } else {
                None
            },
            worker: String::from_utf8_lossy(bytes.get(HEAD..worker_end)?).into_owned(),
            key_state: bytes[worker_end..].to_vec(),
        })
    }

    /// Whether the key has held records.
    pub(crate) const fn is_holding(&self) -> bool {
        self.count > 0
    }

    /// The key as its worker gets it.
    pub(crate) fn stored(self, key: StreamKey, window: RecordWindow) -> StoredKey {
        StoredKey {
            key,
            watermark: self.watermark,
            state: self.key_state,
            arrived: self.arrived,
            records: window.records,
            count: u64::from(self.count).saturating_sub(window.damaged),
            highest: window.highest,
        }
    }

    /// The key as an operator sees it.
    pub(crate) fn status(self, key: StreamKey, now: Time) -> KeyStatus {
        let until = self.until.filter(|until| !is_expired(*until, now));
        KeyStatus {
            key,
            watermark: self.watermark,
            state: self.key_state,
            records: u64::from(self.count),
            oldest: self.oldest,
            due: self.due.filter(|_| until.is_none()),
            holder: until.map(|until| KeyLeaseHolder {
                worker: WorkerName::new(&self.worker),
                until,
            }),
        }
    }
}

/// Encodes a watermark as it is stored in heads.
pub(crate) fn watermark_bytes(watermark: Option<i64>) -> [u8; 9] {
    let mut bytes = [b'0', 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(position) = watermark {
        bytes[0] = b'1';
        bytes[1..].copy_from_slice(&sortable(position));
    }
    bytes
}

/// The records of a key that are handed out with it.
#[derive(Default)]
pub(crate) struct RecordWindow {
    highest: Option<i64>,
    records: Vec<StoredRecord>,
    /// How many records cannot be read; the others are still handed out.
    damaged: u64,
    pub(crate) bytes: usize,
}

impl RecordWindow {
    /// Decodes a window from the next four parts: highest position, positions, records, payloads.
    pub(crate) fn read(parts: &mut impl Iterator<Item = Value>) -> Option<Self> {
        let highest = from_sortable(&reply::bytes(parts.next()?)?);
        let positions = reply::bytes(parts.next()?)?;
        let (records, payloads) = (reply::list(parts.next()?)?, reply::list(parts.next()?)?);
        let mut window = Self {
            highest,
            ..Self::default()
        };
        for ((position, record), payload) in positions.chunks_exact(8).zip(records).zip(payloads) {
            let (position, payload) = (from_sortable(position)?, reply::bytes(payload)?);
            window.bytes += payload.len();
            match reply::bytes(record).and_then(|record| unpack(position, &record, payload)) {
                Some(record) => window.records.push(record),
                None => window.damaged += 1,
            }
        }
        Some(window)
    }
}

/// Encodes a record without its arrival, which the script adds.
pub(crate) fn pack(step: i64, at: Time, tenant: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD + 1 + tenant.map_or(0, str::len));
    bytes.extend(step.to_be_bytes());
    bytes.extend(sortable(at.as_micros()));
    bytes.extend([0; 8]);
    bytes.push(if tenant.is_some() { b'1' } else { b'0' });
    bytes.extend(tenant.unwrap_or_default().as_bytes());
    bytes
}

fn unpack(position: i64, bytes: &[u8], payload: Vec<u8>) -> Option<StoredRecord> {
    let (has_tenant, tenant) = bytes.get(RECORD..)?.split_first()?;
    let tenant = if *has_tenant == b'1' {
        Some(std::str::from_utf8(tenant).ok()?.into())
    } else {
        None
    };
    Some(StoredRecord {
        position,
        step: i64::from_be_bytes(bytes[..8].try_into().ok()?),
        tenant,
        at: Time::from_micros(from_sortable(&bytes[8..16])?),
        arrival: u64::from_be_bytes(bytes[16..RECORD].try_into().ok()?),
        payload: Payload::from_stored(payload),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_came_in() {
        let at = Time::from_micros(1_767_225_600_123_457);
        for tenant in [None, Some(""), Some("o'rg \u{1F642}")] {
            let read = unpack(-5, &pack(60, at, tenant), vec![0, 255]).expect("a record");
            assert_eq!(
                (read.position, read.step, read.at, read.arrival),
                (-5, 60, at, 0)
            );
            assert_eq!(
                (read.tenant.as_deref(), read.payload),
                (tenant, Payload::from_stored(vec![0, 255]))
            );
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for bytes in [&b""[..], b"1", &[b'1'; HEAD], &[0; HEAD - 1]] {
            assert_eq!(StreamKeyHead::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(
            StreamKeyHead::parse(&[0; HEAD]),
            Some(StreamKeyHead::default())
        );
        for bytes in [&b""[..], &[0; RECORD]] {
            assert_eq!(unpack(1, bytes, Vec::new()), None, "{bytes:?}");
        }
    }
}
