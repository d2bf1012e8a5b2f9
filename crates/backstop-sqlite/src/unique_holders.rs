//! Finds the holders of unique keys.

use crate::row;
use backstop_core::port::UniqueKeyHolder;
use backstop_core::unique::UniqueKey;
use backstop_core::{QueueName, Time};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

const HOLDER: &str = include_str!("sql/holder.sql");

/// Finds the holders of these keys in a queue, in the order of `keys`.
pub(crate) fn holders(
    db: &Connection,
    queue: &QueueName,
    keys: &[UniqueKey],
    now: Time,
) -> Result<Vec<Option<UniqueKeyHolder>>> {
    let mut find = db.prepare_cached(HOLDER)?;
    let mut holder_of = |key: &UniqueKey| {
        let found = find.query_row(params![queue.as_str(), key.as_str()], |row| {
            last_holder(row, now)
        });
        let found = found.optional()?.flatten();
        Ok(found
            .filter(|(holder, is_held)| *is_held || holder.is_live())
            .map(|(holder, _)| holder))
    };
    keys.iter().map(&mut holder_of).collect()
}

/// Reads the holder from a row of `key_find.sql` or `holder.sql`, if it still holds the key.
pub(crate) fn holder(row: &Row<'_>, now: Time) -> Result<Option<UniqueKeyHolder>> {
    Ok(last_holder(row, now)?
        .filter(|(_, is_held)| *is_held)
        .map(|(holder, _)| holder))
}

/// The last holder of the key, and whether it still holds it.
fn last_holder(row: &Row<'_>, now: Time) -> Result<Option<(UniqueKeyHolder, bool)>> {
    let is_running = row::whole(row, 4)? != 0;
    let state = row::maybe_whole(row, 3)?.map(|code| row::state(code, is_running));
    let is_held = row::hold(row, 1)?.is_held_by(state, now);
    Ok(row::id(row, 0)?.map(|job| (UniqueKeyHolder { job, state }, is_held)))
}
