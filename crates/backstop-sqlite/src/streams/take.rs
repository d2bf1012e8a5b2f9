//! Keys out, under a lease.

use super::key::{self, KEY_FIND, KEY_GET, Key};
use super::lease::KeyHold;
use super::ledger::StreamAt;
use super::records;
use crate::row;
use crate::work::Work;
use backstop_core::limits::{LEASE_ASKED_MAX, TAKE_BYTES_MAX};
use backstop_core::port::{Take, Taken, Wanted};
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

/// Hands keys out; what the same take still has, if it is repeated.
pub(crate) fn take(work: &mut Work<'_>, take: &Take, now: Time) -> Result<Taken> {
    work.streams.flush_takes(work.db)?;
    let stream = match &take.wanted {
        Wanted::Keys(_) | Wanted::Seized(_) => work.streams.find_or_new(work.db, &take.stream)?,
        Wanted::Due(_) => match work.streams.find(work.db, &take.stream)? {
            Some(stream) => stream,
            None => return Ok(Taken::default()),
        },
    };
    let known = [take.number.as_i64(), work.streams.id(stream)];
    let keys = if work.db.prepare_cached(TAKE_KNOWN)?.exists(known)? {
        held_under(work, stream, take)?
    } else {
        hand_out(work, stream, take, now)?
    };
    let next_due = match take.wanted {
        Wanted::Due(_) => next_due(work, stream)?,
        Wanted::Keys(_) | Wanted::Seized(_) => None,
    };
    Ok(Taken { keys, next_due })
}

fn next_due(work: &Work<'_>, stream: StreamAt) -> Result<Option<Time>> {
    let read = |row: &Row<'_>| Ok(row::maybe_whole(row, 0)?.map(Time::from_micros));
    work.db
        .prepare_cached(TAKE_NEXT)?
        .query_row([work.streams.id(stream)], read)
}

/// What a take still has.
fn held_under(work: &Work<'_>, stream: StreamAt, take: &Take) -> Result<Vec<StoredKey>> {
    let mut holding = work.db.prepare_cached(TAKE_HELD)?;
    let ids = holding.query_map([take.number.as_i64()], |row| row::whole(row, 0))?;
    let mut get = work.db.prepare_cached(KEY_GET)?;
    let mut keys = Vec::new();
    for id in ids {
        let found = get
            .query_row([id?], |row| named(row, work.streams.id(stream)))
            .optional()?
            .flatten();
        let Some((key, mut stored)) = found else {
            continue;
        };
        if key.records > 0 {
            records::load(work.db, key.id, &mut stored, usize::MAX)?;
        }
        keys.push(stored);
    }
    Ok(keys)
}

/// A key from the columns of `stream_key_get.sql`; `None` if its name cannot be read, or it is of
/// another stream.
fn named(row: &Row<'_>, stream: i64) -> Result<Option<(Key, StoredKey)>> {
    let Some(name) = row::text(row, 8)?.and_then(|name| StreamKey::new(name).ok()) else {
        return Ok(None);
    };
    if row::whole(row, 9)? != stream {
        return Ok(None);
    }
    Ok(Some((Key::read(row)?, key::stored(row, name)?)))
}

fn hand_out(
    work: &mut Work<'_>,
    stream: StreamAt,
    take: &Take,
    now: Time,
) -> Result<Vec<StoredKey>> {
    let mut hand = Hand::new(work, stream, take, now)?;
    match &take.wanted {
        Wanted::Keys(names) | Wanted::Seized(names) => hand.take_named(work, names)?,
        Wanted::Due(max) => hand.take_due(work, *max)?,
    }
    let Hand { keys, .. } = hand;
    if !keys.is_empty() {
        let (number, worker) = (take.number.as_i64(), take.worker.as_str());
        let open = params![
            number,
            work.streams.id(stream),
            worker,
            row::number(keys.len())
        ];
        work.db.prepare_cached(TAKE_OPEN)?.execute(open)?;
    }
    Ok(keys)
}

/// What is being handed out.
struct Hand<'c, 't> {
    stream: StreamAt,
    take: &'t Take,
    now: Time,
    lease: CachedStatement<'c>,
    keys: Vec<StoredKey>,
    bytes: usize,
}

impl<'c, 't> Hand<'c, 't> {
    fn new(work: &Work<'c>, stream: StreamAt, take: &'t Take, now: Time) -> Result<Self> {
        let lease = work.db.prepare_cached(LEASE_ADD)?;
        Ok(Self {
            stream,
            take,
            now,
            lease,
            keys: Vec::new(),
            bytes: 0,
        })
    }

    fn take_named(&mut self, work: &mut Work<'_>, names: &[StreamKey]) -> Result<()> {
        let db = work.db;
        let mut find = db.prepare_cached(KEY_FIND)?;
        let stream = work.streams.id(self.stream);
        self.keys.reserve(names.len());
        for name in names {
            if self.bytes >= TAKE_BYTES_MAX {
                break;
            }
            let read = |row: &Row<'_>| Ok((Key::read(row)?, key::stored(row, name.clone())?));
            let (key, stored) = match find
                .query_row(params![stream, name.as_str()], read)
                .optional()?
            {
                Some(found) => found,
                None => (Key::add(work, self.stream, name)?, unknown(name)),
            };
            self.add(work, &key, stored)?;
        }
        Ok(())
    }

    fn take_due(&mut self, work: &mut Work<'_>, max: usize) -> Result<()> {
        let stream = work.streams.id(self.stream);
        let ids = due(work, stream, max, self.now)?;
        let mut get = work.db.prepare_cached(KEY_GET)?;
        for id in ids {
            if self.bytes >= TAKE_BYTES_MAX {
                break;
            }
            match get
                .query_row([id], |row| named(row, stream))
                .optional()?
                .flatten()
            {
                Some((key, stored)) => self.add(work, &key, stored)?,
                None => put_to_rest(work, id)?,
            }
        }
        Ok(())
    }

    /// Hands a key out if it is to be had.
    fn add(&mut self, work: &mut Work<'_>, key: &Key, mut stored: StoredKey) -> Result<()> {
        let lease = [
            key.id,
            self.take.number.as_i64(),
            self.take.until.as_micros(),
        ];
        if self.lease.execute(lease)? == 0 && !self.take_over(work, lease)? {
            return Ok(());
        }
        if key.records > 0 {
            self.bytes += records::load(work.db, key.id, &mut stored, usize::MAX)?;
        }
        // What its holder leaves undone is due when the lease is over.
        let due = Some(self.take.until).filter(|_| stored.count > 0);
        Key {
            records: stored.count.cast_signed(),
            due,
            ..*key
        }
        .write(work, self.stream, key)?;
        self.keys.push(stored);
        Ok(())
    }

    /// Takes a key from who had it, if that one's lease is over or it is to be seized.
    fn take_over(&self, work: &mut Work<'_>, lease: [i64; 3]) -> Result<bool> {
        let Some(hold) = KeyHold::find(work.db, lease[0])? else {
            return Ok(false);
        };
        let is_asked_twice = hold.number == self.take.number;
        let may_seize = matches!(self.take.wanted, Wanted::Seized(_));
        if is_asked_twice || hold.is_held(self.now) && !may_seize {
            return Ok(false);
        }
        work.db.prepare_cached(LEASE_SEIZE)?.execute(lease)?;
        work.streams.leave_take(self.stream, hold.number);
        Ok(true)
    }
}

fn unknown(name: &StreamKey) -> StoredKey {
    StoredKey {
        key: name.clone(),
        watermark: None,
        standing: Vec::new(),
        arrived: 0,
        records: Vec::new(),
        count: 0,
        highest: None,
    }
}

/// The keys that are due and that nobody has, the longest due first.
fn due(work: &Work<'_>, stream: i64, max: usize, now: Time) -> Result<Vec<i64>> {
    let mut due = work.db.prepare_cached(TAKE_DUE)?;
    let longest = now.after(LEASE_ASKED_MAX);
    let sought = [
        stream,
        now.as_micros(),
        longest.as_micros(),
        row::number(max),
    ];
    due.query_map(sought, |row| row::whole(row, 0))?.collect()
}

/// Makes a key that nobody can be given due no more: it would stand before the others for ever.
fn put_to_rest(work: &Work<'_>, id: i64) -> Result<()> {
    tracing::warn!(
        id,
        "a row of backstop_stream_key has no readable name; its records rest. Run `backstop doctor`"
    );
    work.db
        .prepare_cached(key::KEY_DUE)?
        .execute(params![id, None::<i64>])
        .map(drop)
}
