//! Makes room in a full queue, by the rules of [`backstop_core::bounds`].

use crate::row;
use crate::state_index::{IndexEntry, READY_REMOVE};
use crate::transaction::{QueueIndex, WriteTransaction};
use backstop_core::verdict::EndReason;
use backstop_core::{Fingerprint, JobState, Overflow, Time};
use rusqlite::{OptionalExtension, Result, Row, params};

const ENQUEUE_VICTIM: &str = include_str!("sql/enqueue_victim.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");

/// Makes room for one more job in a full queue; returns whether there is room now.
pub(crate) fn make_room(
    tx: &mut WriteTransaction<'_>,
    queue: QueueIndex,
    now: Time,
) -> Result<bool> {
    let state = match tx.at(queue).bounds.overflow {
        Overflow::Reject => return Ok(false),
        Overflow::DeadLetterOldest if !tx.has_room_for_dead(queue) => return Ok(false),
        Overflow::DeadLetterOldest => JobState::Dead,
        Overflow::DropOldest => JobState::Cancelled,
    };
    let Some(victim) = victim(tx, queue, now)? else {
        return Ok(false);
    };
    end(tx, victim, state, now)?;
    Ok(true)
}

/// Finds the oldest ready job of the least urgent level.
fn victim(tx: &WriteTransaction<'_>, queue: QueueIndex, now: Time) -> Result<Option<IndexEntry>> {
    let read = |row: &Row<'_>| {
        let (level, seq, no) = (
            row::whole(row, 0)?,
            row::whole(row, 1)?,
            row::whole(row, 2)?,
        );
        let fingerprint = Some(Fingerprint::of_overflow());
        Ok(IndexEntry {
            no,
            queue,
            level,
            seq,
            run_at: now,
            finished_at: now,
            fingerprint,
        })
    };
    tx.db
        .prepare_cached(ENQUEUE_VICTIM)?
        .query_row([tx.at(queue).id], read)
        .optional()
}

/// Ends a ready job. If its place in line has no job, deleting the place makes the room.
fn end(
    tx: &mut WriteTransaction<'_>,
    victim: IndexEntry,
    state: JobState,
    now: Time,
) -> Result<()> {
    let IndexEntry {
        no,
        queue,
        level,
        seq,
        ..
    } = victim;
    tx.db
        .prepare_cached(READY_REMOVE)?
        .execute([tx.at(queue).id, level, seq, no])?;
    tx.count(queue, JobState::Ready, -1);
    let ended = params![
        no,
        row::code(state),
        now.as_micros(),
        EndReason::Overflow.as_str()
    ];
    if tx.db.prepare_cached(AMEND_END)?.execute(ended)? == 0 {
        return Ok(());
    }
    tx.count_end(queue, state);
    tx.enter(victim, state)
}
