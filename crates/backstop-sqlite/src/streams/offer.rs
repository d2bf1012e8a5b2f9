//! Records in.

use super::key::{self, Key};
use super::lease::KeyHold;
use super::ledger::StreamAt;
use super::records::RECORD_ADD;
use crate::work::Work;
use backstop_core::limits::KEY_RECORDS_MAX;
use backstop_core::port::Offered;
use backstop_core::stream::Record;
use backstop_core::{StreamKey, StreamName, Time};
use rusqlite::{CachedStatement, Result, params};
use std::collections::HashMap;

const RECORD_KNOWN: &str = include_str!("../sql/record_known.sql");

/// Takes records in. A key's row is read once and written once, however many of them are its own.
pub(crate) fn offer(
    work: &mut Work<'_>,
    stream: &StreamName,
    records: &[Record],
    now: Time,
) -> Result<Vec<Offered>> {
    let stream = work.streams.find_or_new(work.db, stream)?;
    let mut add = work.db.prepare_cached(RECORD_ADD)?;
    let (mut keys, mut by_name) = (Vec::<Receiver>::new(), HashMap::<&StreamKey, usize>::new());
    let mut answers = Vec::with_capacity(records.len());
    for record in records {
        let at = if let Some(at) = by_name.get(&record.key) {
            *at
        } else {
            keys.push(Receiver::of(work, stream, &record.key, now)?);
            by_name.insert(&record.key, keys.len() - 1);
            keys.len() - 1
        };
        answers.push(keys[at].receive(work, &mut add, record, now)?);
    }
    for receiver in &keys {
        receiver.key.write(work, stream, &receiver.before)?;
    }
    if answers.contains(&Offered::Held) {
        work.stir();
    }
    Ok(answers)
}

/// A key that records are offered to.
struct Receiver {
    stream: i64,
    key: Key,
    before: Key,
    /// When it is due at the latest once it has taken something in.
    due: Time,
}

impl Receiver {
    fn of(work: &mut Work<'_>, stream: StreamAt, name: &StreamKey, now: Time) -> Result<Self> {
        let id = work.streams.id(stream);
        let Some(key) = key::find(work.db, id, name)? else {
            let key = Key::add(work, stream, name)?;
            return Ok(Self {
                stream: id,
                key,
                before: key,
                due: now,
            });
        };
        let hold = KeyHold::find(work.db, key.id)?.filter(|hold| hold.is_held(now));
        Ok(Self {
            stream: id,
            key,
            before: key,
            due: hold.map_or(now, |hold| hold.until),
        })
    }

    fn receive(
        &mut self,
        work: &Work<'_>,
        add: &mut CachedStatement<'_>,
        record: &Record,
        now: Time,
    ) -> Result<Offered> {
        let key = &mut self.key;
        if key.records.unsigned_abs() >= KEY_RECORDS_MAX {
            let is_known = work
                .db
                .prepare_cached(RECORD_KNOWN)?
                .exists([key.id, record.position])?;
            return Ok(if is_known {
                Offered::Duplicate
            } else {
                Offered::Full
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
            return Ok(Offered::Duplicate);
        }
        (key.arrived, key.records) = (key.arrived + 1, key.records + 1);
        key.due = Some(key.due.map_or(self.due, |due| due.min(self.due)));
        Ok(Offered::Held)
    }
}
