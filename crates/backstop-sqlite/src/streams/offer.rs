//! Stores the records that producers offer.

use super::changes::StreamIndex;
use super::key::{self, StreamKeyRow};
use super::lease::KeyLeaseRow;
use super::records::RECORD_ADD;
use crate::transaction::WriteTransaction;
use backstop_core::limits::KEY_RECORDS_MAX;
use backstop_core::port::OfferOutcome;
use backstop_core::stream::Record;
use backstop_core::{StreamKey, StreamName, Time};
use rusqlite::{CachedStatement, Result, params};
use std::collections::HashMap;

const RECORD_KNOWN: &str = include_str!("../sql/record_known.sql");

/// Stores records. It reads and writes a key's row once, however many of the records are of this
/// key.
pub(crate) fn offer(
    tx: &mut WriteTransaction<'_>,
    stream: &StreamName,
    records: &[Record],
    now: Time,
) -> Result<Vec<OfferOutcome>> {
    let stream = tx.streams.find_or_new(tx.db, stream)?;
    let mut add = tx.db.prepare_cached(RECORD_ADD)?;
    let (mut keys, mut by_name) = (
        Vec::<OfferTarget>::new(),
        HashMap::<&StreamKey, usize>::new(),
    );
    let mut answers = Vec::with_capacity(records.len());
    for record in records {
        let at = if let Some(at) = by_name.get(&record.key) {
            *at
        } else {
            keys.push(OfferTarget::of(tx, stream, &record.key, now)?);
            by_name.insert(&record.key, keys.len() - 1);
            keys.len() - 1
        };
        answers.push(keys[at].receive(tx, &mut add, record, now)?);
    }
    for receiver in &keys {
        receiver.key.write(tx, stream, &receiver.before)?;
    }
    if answers.contains(&OfferOutcome::Held) {
        tx.mark_new_work();
    }
    Ok(answers)
}

/// A key to which records are offered.
struct OfferTarget {
    stream: i64,
    key: StreamKeyRow,
    before: StreamKeyRow,
    /// The latest due time of the key once it has stored a record.
    due: Time,
}

impl OfferTarget {
    fn of(
        tx: &mut WriteTransaction<'_>,
        stream: StreamIndex,
        name: &StreamKey,
        now: Time,
    ) -> Result<Self> {
        let id = tx.streams.id(stream);
        let Some(key) = key::find(tx.db, id, name)? else {
            let key = StreamKeyRow::add(tx, stream, name)?;
            return Ok(Self {
                stream: id,
                key,
                before: key,
                due: now,
            });
        };
        let hold = KeyLeaseRow::find(tx.db, key.id)?.filter(|hold| hold.is_held(now));
        Ok(Self {
            stream: id,
            key,
            before: key,
            due: hold.map_or(now, |hold| hold.until),
        })
    }

    fn receive(
        &mut self,
        tx: &WriteTransaction<'_>,
        add: &mut CachedStatement<'_>,
        record: &Record,
        now: Time,
    ) -> Result<OfferOutcome> {
        let key = &mut self.key;
        if key.records.unsigned_abs() >= KEY_RECORDS_MAX {
            let is_known = tx
                .db
                .prepare_cached(RECORD_KNOWN)?
                .exists([key.id, record.position])?;
            return Ok(if is_known {
                OfferOutcome::Duplicate
            } else {
                OfferOutcome::Full
            });
        }
        let added = add.execute(params![
            key.id,
            record.position,
            key.arrived + 1,
            record.step,
            now.as_micros(),
            self.stream,
            record.tenant.as_deref(),
            record.payload.as_bytes(),
        ])?;
        if added == 0 {
            return Ok(OfferOutcome::Duplicate);
        }
        (key.arrived, key.records) = (key.arrived + 1, key.records + 1);
        key.due = Some(key.due.map_or(self.due, |due| due.min(self.due)));
        Ok(OfferOutcome::Held)
    }
}
