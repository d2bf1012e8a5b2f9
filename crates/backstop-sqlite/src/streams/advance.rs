//! Applies what workers decided about keys: watermarks, held records and leases.

use super::changes::StreamIndex;
use super::key::{KEY_FIND, StreamKeyRow};
use super::lease::KeyLeaseRow;
use super::records;
use crate::PAGE_BYTES;
use crate::transaction::WriteTransaction;
use backstop_core::Time;
use backstop_core::port::{AdvanceOutcome, KeyAdvance, KeyLeaseAction};
use rusqlite::{CachedStatement, OptionalExtension, Result, params};

const ADVANCE_KEY: &str = include_str!("../sql/advance_key.sql");
const LEASE_END: &str = include_str!("../sql/lease_end.sql");
const KEY_REMOVE: &str = include_str!("../sql/stream_key_remove.sql");

/// Estimated number of rows, or pages of payload, that a decision touches.
pub(super) fn rows(advance: &KeyAdvance) -> usize {
    let change = &advance.change;
    let bytes: usize = change.hold.iter().map(|record| record.payload.len()).sum();
    1 + change.hold.len() + change.drop.len() + bytes / PAGE_BYTES
}

/// Applies decisions, each one independently of the others.
pub(crate) fn advance(
    tx: &mut WriteTransaction<'_>,
    advances: &[KeyAdvance],
    now: Time,
) -> Result<Vec<AdvanceOutcome>> {
    let mut statements = AdvanceStatements::prepare(tx)?;
    advances
        .iter()
        .map(|advance| advance_one(tx, &mut statements, advance, now))
        .collect()
}

/// The statements that every decision runs.
struct AdvanceStatements<'c> {
    find: CachedStatement<'c>,
    end: CachedStatement<'c>,
    key: CachedStatement<'c>,
}

impl<'c> AdvanceStatements<'c> {
    fn prepare(tx: &WriteTransaction<'c>) -> Result<Self> {
        Ok(Self {
            find: tx.db.prepare_cached(KEY_FIND)?,
            end: tx.db.prepare_cached(LEASE_END)?,
            key: tx.db.prepare_cached(ADVANCE_KEY)?,
        })
    }
}

fn advance_one(
    tx: &mut WriteTransaction<'_>,
    statements: &mut AdvanceStatements<'_>,
    advance: &KeyAdvance,
    now: Time,
) -> Result<AdvanceOutcome> {
    let Some((stream, key)) = find(tx, statements, advance)? else {
        return Ok(if advance.lease_action == KeyLeaseAction::Clear {
            AdvanceOutcome::Applied
        } else {
            AdvanceOutcome::Stale
        });
    };
    let Some(turn) = turn(tx, statements, stream, &key, advance, now)? else {
        return repeated(tx, &key, advance);
    };
    let change = &advance.change;
    tx.streams.count(stream, &change.counts);
    if advance.lease_action == KeyLeaseAction::Clear {
        clear(tx, statements, stream, &key, advance)?;
        return Ok(AdvanceOutcome::Applied);
    }
    write(statements, &key, advance)?;
    let more = records::change(tx.db, tx.streams.id(stream), key.id, change)?;
    let records = (key.records + more).max(0);
    let due = match advance.lease_action {
        KeyLeaseAction::Release(_) if key.arrived.unsigned_abs() > advance.seen => Some(now),
        KeyLeaseAction::Release(wake) => wake,
        KeyLeaseAction::Keep(_) | KeyLeaseAction::Clear => turn.until.filter(|_| records > 0),
    };
    StreamKeyRow {
        records,
        due,
        ..key
    }
    .write(tx, stream, &key)?;
    if due.is_some() && turn.until.is_none() {
        tx.mark_new_work();
    }
    Ok(AdvanceOutcome::Applied)
}

fn find(
    tx: &mut WriteTransaction<'_>,
    statements: &mut AdvanceStatements<'_>,
    advance: &KeyAdvance,
) -> Result<Option<(StreamIndex, StreamKeyRow)>> {
    let lease = &advance.lease;
    let Some(stream) = tx.streams.find(tx.db, &lease.stream)? else {
        return Ok(None);
    };
    let named = params![tx.streams.id(stream), lease.key.as_str()];
    Ok(statements
        .find
        .query_row(named, StreamKeyRow::read)
        .optional()?
        .map(|key| (stream, key)))
}

/// A turn that the store accepted.
struct AcceptedTurn {
    /// The new end of the lease, if the worker keeps it.
    until: Option<Time>,
}

/// Accepts a turn if it is the next one of the current lease.
fn turn(
    tx: &mut WriteTransaction<'_>,
    statements: &mut AdvanceStatements<'_>,
    stream: StreamIndex,
    key: &StreamKeyRow,
    advance: &KeyAdvance,
    now: Time,
) -> Result<Option<AcceptedTurn>> {
    let (number, turn) = (advance.lease.number, i64::from(advance.turn));
    if let KeyLeaseAction::Keep(until) = advance.lease_action {
        let hold = KeyLeaseRow::find(tx.db, key.id)?;
        let Some(hold) = hold.filter(|hold| hold.number == number && hold.turn < turn) else {
            return Ok(None);
        };
        let until = hold.extend(tx.db, key.id, turn, until, now)?;
        return Ok(Some(AcceptedTurn { until: Some(until) }));
    }
    if statements.end.execute([key.id, number.as_i64(), turn])? == 0 {
        return Ok(None);
    }
    tx.streams.leave_take(stream, number);
    Ok(Some(AcceptedTurn { until: None }))
}

/// The outcome of a turn that is not the next one: applied if it is a repetition, else stale.
fn repeated(
    tx: &WriteTransaction<'_>,
    key: &StreamKeyRow,
    advance: &KeyAdvance,
) -> Result<AdvanceOutcome> {
    let (number, last) = match KeyLeaseRow::find(tx.db, key.id)? {
        Some(hold) => (hold.number.as_i64(), hold.turn),
        None => (key.number, key.turn),
    };
    let is_repeated = number == advance.lease.number.as_i64() && i64::from(advance.turn) <= last;
    Ok(if is_repeated {
        AdvanceOutcome::Applied
    } else {
        AdvanceOutcome::Stale
    })
}

/// Writes the columns that every decision changes.
fn write(
    statements: &mut AdvanceStatements<'_>,
    key: &StreamKeyRow,
    advance: &KeyAdvance,
) -> Result<()> {
    let change = &advance.change;
    let decided = params![
        key.id,
        advance.lease.number.as_i64(),
        advance.turn,
        change.watermark,
        change.state
    ];
    statements.key.execute(decided).map(drop)
}

/// Removes the records of a key. Also removes the key, unless its watermark or its state must be
/// kept.
fn clear(
    tx: &mut WriteTransaction<'_>,
    statements: &mut AdvanceStatements<'_>,
    stream: StreamIndex,
    key: &StreamKeyRow,
    advance: &KeyAdvance,
) -> Result<()> {
    records::clear(tx.db, key.id)?;
    if advance.change.watermark.is_some() || !advance.change.state.is_empty() {
        write(statements, key, advance)?;
        return StreamKeyRow {
            records: 0,
            due: None,
            ..*key
        }
        .write(tx, stream, key);
    }
    tx.db.prepare_cached(KEY_REMOVE)?.execute([key.id])?;
    tx.streams.count_records(stream, key.records, 0);
    tx.streams.count_keys(stream, -1);
    Ok(())
}
