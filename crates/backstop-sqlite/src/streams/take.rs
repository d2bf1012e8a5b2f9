//! Takes keys: hands them out under a lease.

use super::changes::StreamIndex;
use super::key::{self, KEY_FIND, KEY_GET, StreamKeyRow};
use super::lease::KeyLeaseRow;
use super::records;
use crate::row;
use crate::transaction::WriteTransaction;
use backstop_core::limits::{LEASE_REQUEST_MAX, TAKE_BYTES_MAX};
use backstop_core::port::{KeySelection, TakeRequest, TakeResult};
use backstop_core::stream::StoredKey;
use backstop_core::{StreamKey, Time};
use rusqlite::{CachedStatement, OptionalExtension, Result, Row, params};

const TAKE_KNOWN: &str = include_str!("../sql/take_known.sql");
const TAKE_OPEN: &str = include_str!("../sql/take_open.sql");
const TAKE_HELD: &str = include_str!("../sql/take_held.sql");
const TAKE_DUE: &str = include_str!("../sql/take_due.sql");
const TAKE_NEXT: &str = include_str!("../sql/take_next.sql");
const LEASE_ADD: &str = include_str!("../sql/lease_add.sql");
const LEASE_SEIZE: &str = include_str!("../sql/lease_seize.sql");

/// Hands keys out. A repeated take returns the keys that it still has.
pub(crate) fn take(
    tx: &mut WriteTransaction<'_>,
    take: &TakeRequest,
    now: Time,
) -> Result<TakeResult> {
    tx.streams.flush_takes(tx.db)?;
    let stream = match &take.wanted {
        KeySelection::Keys(_) | KeySelection::Seized(_) => {
            tx.streams.find_or_new(tx.db, &take.stream)?
        }
        KeySelection::Due(_) => match tx.streams.find(tx.db, &take.stream)? {
            Some(stream) => stream,
            None => return Ok(TakeResult::default()),
        },
    };
    let known = [take.number.as_i64(), tx.streams.id(stream)];
    let keys = if tx.db.prepare_cached(TAKE_KNOWN)?.exists(known)? {
        held_under(tx, stream, take)?
    } else {
        hand_out(tx, stream, take, now)?
    };
    let next_due = match take.wanted {
        KeySelection::Due(_) => next_due(tx, stream)?,
        KeySelection::Keys(_) | KeySelection::Seized(_) => None,
    };
    Ok(TakeResult { keys, next_due })
}

fn next_due(tx: &WriteTransaction<'_>, stream: StreamIndex) -> Result<Option<Time>> {
    let read = |row: &Row<'_>| Ok(row::maybe_whole(row, 0)?.map(Time::from_micros));
    tx.db
        .prepare_cached(TAKE_NEXT)?
        .query_row([tx.streams.id(stream)], read)
}

/// Reads the keys that a take still has.
fn held_under(
    tx: &WriteTransaction<'_>,
    stream: StreamIndex,
    take: &TakeRequest,
) -> Result<Vec<StoredKey>> {
    let mut holding = tx.db.prepare_cached(TAKE_HELD)?;
    let ids = holding.query_map([take.number.as_i64()], |row| row::whole(row, 0))?;
    let mut get = tx.db.prepare_cached(KEY_GET)?;
    let mut keys = Vec::new();
    for id in ids {
        let found = get
            .query_row([id?], |row| named(row, tx.streams.id(stream)))
            .optional()?
            .flatten();
        let Some((key, mut stored)) = found else {
            continue;
        };
        if key.records > 0 {
            records::load(tx.db, key.id, &mut stored, usize::MAX)?;
        }
        keys.push(stored);
    }
    Ok(keys)
}

/// Reads a key from the columns of `stream_key_get.sql`; `None` if its name cannot be read, or if
/// it is of another stream.
fn named(row: &Row<'_>, stream: i64) -> Result<Option<(StreamKeyRow, StoredKey)>> {
    let Some(name) = row::text(row, 8)?.and_then(|name| StreamKey::new(name).ok()) else {
        return Ok(None);
    };
    if row::whole(row, 9)? != stream {
        return Ok(None);
    }
    Ok(Some((StreamKeyRow::read(row)?, key::stored(row, name)?)))
}

fn hand_out(
    tx: &mut WriteTransaction<'_>,
    stream: StreamIndex,
    take: &TakeRequest,
    now: Time,
) -> Result<Vec<StoredKey>> {
    let mut hand = KeyHandout::new(tx, stream, take, now)?;
    match &take.wanted {
        KeySelection::Keys(names) | KeySelection::Seized(names) => hand.take_named(tx, names)?,
        KeySelection::Due(max) => hand.take_due(tx, *max)?,
    }
    let KeyHandout { keys, .. } = hand;
    if !keys.is_empty() {
        let (number, worker) = (take.number.as_i64(), take.worker.as_str());
        let open = params![
            number,
            tx.streams.id(stream),
            worker,
            row::number(keys.len())
        ];
        tx.db.prepare_cached(TAKE_OPEN)?.execute(open)?;
    }
    Ok(keys)
}

/// The keys that a take is handing out.
struct KeyHandout<'c, 't> {
    stream: StreamIndex,
    take: &'t TakeRequest,
    now: Time,
    lease: CachedStatement<'c>,
    keys: Vec<StoredKey>,
    bytes: usize,
}

impl<'c, 't> KeyHandout<'c, 't> {
    fn new(
        tx: &WriteTransaction<'c>,
        stream: StreamIndex,
        take: &'t TakeRequest,
        now: Time,
    ) -> Result<Self> {
        let lease = tx.db.prepare_cached(LEASE_ADD)?;
        Ok(Self {
            stream,
            take,
            now,
            lease,
            keys: Vec::new(),
            bytes: 0,
        })
    }

    fn take_named(&mut self, tx: &mut WriteTransaction<'_>, names: &[StreamKey]) -> Result<()> {
        let db = tx.db;
        let mut find = db.prepare_cached(KEY_FIND)?;
        let stream = tx.streams.id(self.stream);
        self.keys.reserve(names.len());
        for name in names {
            if self.bytes >= TAKE_BYTES_MAX {
                break;
            }
            let read =
                |row: &Row<'_>| Ok((StreamKeyRow::read(row)?, key::stored(row, name.clone())?));
            let (key, stored) = match find
                .query_row(params![stream, name.as_str()], read)
                .optional()?
            {
                Some(found) => found,
                None => (StreamKeyRow::add(tx, self.stream, name)?, unknown(name)),
            };
            self.add(tx, &key, stored)?;
        }
        Ok(())
    }

    fn take_due(&mut self, tx: &mut WriteTransaction<'_>, max: usize) -> Result<()> {
        let stream = tx.streams.id(self.stream);
        let ids = due(tx, stream, max, self.now)?;
        let mut get = tx.db.prepare_cached(KEY_GET)?;
        for id in ids {
            if self.bytes >= TAKE_BYTES_MAX {
                break;
            }
            match get
                .query_row([id], |row| named(row, stream))
                .optional()?
                .flatten()
            {
                Some((key, stored)) => self.add(tx, &key, stored)?,
                None => clear_due(tx, id)?,
            }
        }
        Ok(())
    }

    /// Hands a key out if no other worker has it, or if its lease can be taken over.
    fn add(
        &mut self,
        tx: &mut WriteTransaction<'_>,
        key: &StreamKeyRow,
        mut stored: StoredKey,
    ) -> Result<()> {
        let lease = [
            key.id,
            self.take.number.as_i64(),
            self.take.until.as_micros(),
        ];
        if self.lease.execute(lease)? == 0 && !self.take_over(tx, lease)? {
            return Ok(());
        }
        if key.records > 0 {
            self.bytes += records::load(tx.db, key.id, &mut stored, usize::MAX)?;
        }
        // If the holder leaves records undone, the key is due when the lease is over.
        let due = Some(self.take.until).filter(|_| stored.count > 0);
        StreamKeyRow {
            records: stored.count.cast_signed(),
            due,
            ..*key
        }
        .write(tx, self.stream, key)?;
        self.keys.push(stored);
        Ok(())
    }

    /// Takes a key over if its lease is expired, or if the take seizes it.
    fn take_over(&self, tx: &mut WriteTransaction<'_>, lease: [i64; 3]) -> Result<bool> {
        let Some(hold) = KeyLeaseRow::find(tx.db, lease[0])? else {
            return Ok(false);
        };
        let is_repeated = hold.number == self.take.number;
        let may_seize = matches!(self.take.wanted, KeySelection::Seized(_));
        if is_repeated || hold.is_held(self.now) && !may_seize {
            return Ok(false);
        }
        tx.db.prepare_cached(LEASE_SEIZE)?.execute(lease)?;
        tx.streams.leave_take(self.stream, hold.number);
        Ok(true)
    }
}

fn unknown(name: &StreamKey) -> StoredKey {
    StoredKey {
        key: name.clone(),
        watermark: None,
        state: Vec::new(),
        arrived: 0,
        records: Vec::new(),
        count: 0,
        highest: None,
    }
}

/// Finds the keys that are due and that no worker has, the longest due first.
fn due(tx: &WriteTransaction<'_>, stream: i64, max: usize, now: Time) -> Result<Vec<i64>> {
    let mut due = tx.db.prepare_cached(TAKE_DUE)?;
    let longest = now.after(LEASE_REQUEST_MAX);
    let sought = [
        stream,
        now.as_micros(),
        longest.as_micros(),
        row::number(max),
    ];
    due.query_map(sought, |row| row::whole(row, 0))?.collect()
}

/// Clears the due time of a key whose name cannot be read. Otherwise it would come before the other
/// keys for ever.
fn clear_due(tx: &WriteTransaction<'_>, id: i64) -> Result<()> {
    tracing::warn!(
        id,
        "a row of backstop_stream_key has no readable name; its records rest. Run `backstop doctor`"
    );
    tx.db
        .prepare_cached(key::KEY_DUE)?
        .execute(params![id, None::<i64>])
        .map(drop)
}
