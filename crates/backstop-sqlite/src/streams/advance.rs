//! What was decided about keys.

use super::key::{KEY_FIND, Key};
use super::lease::KeyHold;
use super::ledger::StreamAt;
use super::records;
use crate::PAGE_BYTES;
use crate::work::Work;
use backstop_core::Time;
use backstop_core::port::{Advance, Advanced, Then};
use rusqlite::{CachedStatement, OptionalExtension, Result, params};

const ADVANCE_KEY: &str = include_str!("../sql/advance_key.sql");
const LEASE_END: &str = include_str!("../sql/lease_end.sql");
const KEY_REMOVE: &str = include_str!("../sql/stream_key_remove.sql");

/// About how many rows, or pages of payload, a decision touches.
pub(super) fn rows(advance: &Advance) -> usize {
    let change = &advance.change;
    let bytes: usize = change.hold.iter().map(|record| record.payload.len()).sum();
    1 + change.hold.len() + change.drop.len() + bytes / PAGE_BYTES
}

/// Takes in what was decided, each by itself.
pub(crate) fn advance(
    work: &mut Work<'_>,
    advances: &[Advance],
    now: Time,
) -> Result<Vec<Advanced>> {
    let mut lines = Lines::prepare(work)?;
    advances
        .iter()
        .map(|advance| advance_one(work, &mut lines, advance, now))
        .collect()
}

/// What every decision reads and writes.
struct Lines<'c> {
    find: CachedStatement<'c>,
    end: CachedStatement<'c>,
    key: CachedStatement<'c>,
}

impl<'c> Lines<'c> {
    fn prepare(work: &Work<'c>) -> Result<Self> {
        Ok(Self {
            find: work.db.prepare_cached(KEY_FIND)?,
            end: work.db.prepare_cached(LEASE_END)?,
            key: work.db.prepare_cached(ADVANCE_KEY)?,
        })
    }
}

fn advance_one(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    advance: &Advance,
    now: Time,
) -> Result<Advanced> {
    let Some((stream, key)) = find(work, lines, advance)? else {
        return Ok(if advance.then == Then::Clear {
            Advanced::Applied
        } else {
            Advanced::Stale
        });
    };
    let Some(turn) = turn(work, lines, stream, &key, advance, now)? else {
        return repeated(work, &key, advance);
    };
    let change = &advance.change;
    work.streams.count(stream, &change.counts);
    if advance.then == Then::Clear {
        clear(work, lines, stream, &key, advance)?;
        return Ok(Advanced::Applied);
    }
    write(lines, &key, advance)?;
    let more = records::change(work.db, work.streams.id(stream), key.id, change)?;
    let records = (key.records + more).max(0);
    let due = match advance.then {
        Then::Release(_) if key.arrived.unsigned_abs() > advance.seen => Some(now),
        Then::Release(wake) => wake,
        Then::Keep(_) | Then::Clear => turn.until.filter(|_| records > 0),
    };
    Key {
        records,
        due,
        ..key
    }
    .write(work, stream, &key)?;
    if due.is_some() && turn.until.is_none() {
        work.stir();
    }
    Ok(Advanced::Applied)
}

fn find(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    advance: &Advance,
) -> Result<Option<(StreamAt, Key)>> {
    let lease = &advance.lease;
    let Some(stream) = work.streams.find(work.db, &lease.stream)? else {
        return Ok(None);
    };
    let named = params![work.streams.id(stream), lease.key.as_str()];
    Ok(lines
        .find
        .query_row(named, Key::read)
        .optional()?
        .map(|key| (stream, key)))
}

/// A turn that was taken in.
struct Turn {
    /// Until when the lease goes on, if it does.
    until: Option<Time>,
}

/// Takes a turn in, if it is the next one of the current lease.
fn turn(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    stream: StreamAt,
    key: &Key,
    advance: &Advance,
    now: Time,
) -> Result<Option<Turn>> {
    let (number, turn) = (advance.lease.number, i64::from(advance.turn));
    if let Then::Keep(until) = advance.then {
        let hold = KeyHold::find(work.db, key.id)?;
        let Some(hold) = hold.filter(|hold| hold.number == number && hold.turn < turn) else {
            return Ok(None);
        };
        let until = hold.extend(work.db, key.id, turn, until, now)?;
        return Ok(Some(Turn { until: Some(until) }));
    }
    if lines.end.execute([key.id, number.as_i64(), turn])? == 0 {
        return Ok(None);
    }
    work.streams.leave_take(stream, number);
    Ok(Some(Turn { until: None }))
}

/// The answer to a turn that is not the next one.
fn repeated(work: &Work<'_>, key: &Key, advance: &Advance) -> Result<Advanced> {
    let (number, last) = match KeyHold::find(work.db, key.id)? {
        Some(hold) => (hold.number.as_i64(), hold.turn),
        None => (key.number, key.turn),
    };
    let is_repeated = number == advance.lease.number.as_i64() && i64::from(advance.turn) <= last;
    Ok(if is_repeated {
        Advanced::Applied
    } else {
        Advanced::Stale
    })
}

/// Writes what every decision changes.
fn write(lines: &mut Lines<'_>, key: &Key, advance: &Advance) -> Result<()> {
    let change = &advance.change;
    let decided = params![
        key.id,
        advance.lease.number.as_i64(),
        advance.turn,
        change.watermark,
        change.standing
    ];
    lines.key.execute(decided).map(drop)
}

/// Forgets what a key holds, and the key with it if nothing else is to be remembered.
fn clear(
    work: &mut Work<'_>,
    lines: &mut Lines<'_>,
    stream: StreamAt,
    key: &Key,
    advance: &Advance,
) -> Result<()> {
    records::clear(work.db, key.id)?;
    if advance.change.watermark.is_some() || !advance.change.standing.is_empty() {
        write(lines, key, advance)?;
        return Key {
            records: 0,
            due: None,
            ..*key
        }
        .write(work, stream, key);
    }
    work.db.prepare_cached(KEY_REMOVE)?.execute([key.id])?;
    work.streams.count_records(stream, key.records, 0);
    work.streams.count_keys(stream, -1);
    Ok(())
}
