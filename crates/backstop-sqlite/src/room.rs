//! Room in a full queue, as [`backstop_core::bounds`] says.

use crate::lines::{READY_REMOVE, Spot};
use crate::row;
use crate::work::{QueueAt, Work};
use backstop_core::verdict::Reason;
use backstop_core::{Fingerprint, Overflow, State, Time};
use rusqlite::{OptionalExtension, Result, Row, params};

const ENQUEUE_VICTIM: &str = include_str!("sql/enqueue_victim.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");

/// Makes room for one more job in a queue that has none; whether there is any now.
pub(crate) fn make_room(work: &mut Work<'_>, queue: QueueAt, now: Time) -> Result<bool> {
    let state = match work.at(queue).bounds.overflow {
        Overflow::Reject => return Ok(false),
        Overflow::DeadLetterOldest if !work.has_room_for_dead(queue) => return Ok(false),
        Overflow::DeadLetterOldest => State::Dead,
        Overflow::DropOldest => State::Cancelled,
    };
    let Some(victim) = victim(work, queue, now)? else {
        return Ok(false);
    };
    end(work, victim, state, now)?;
    Ok(true)
}

/// The oldest ready job of the least urgent.
fn victim(work: &Work<'_>, queue: QueueAt, now: Time) -> Result<Option<Spot>> {
    let read = |row: &Row<'_>| {
        let (level, seq, no) = (
            row::whole(row, 0)?,
            row::whole(row, 1)?,
            row::whole(row, 2)?,
        );
        let fingerprint = Some(Fingerprint::of_overflow());
        Ok(Spot {
            no,
            queue,
            level,
            seq,
            run_at: now,
            finished_at: now,
            fingerprint,
        })
    };
    work.db
        .prepare_cached(ENQUEUE_VICTIM)?
        .query_row([work.at(queue).id], read)
        .optional()
}

/// Ends a ready job. A place in line without a job makes room by being dropped.
fn end(work: &mut Work<'_>, victim: Spot, state: State, now: Time) -> Result<()> {
    let Spot {
        no,
        queue,
        level,
        seq,
        ..
    } = victim;
    work.db
        .prepare_cached(READY_REMOVE)?
        .execute([work.at(queue).id, level, seq, no])?;
    work.count(queue, State::Ready, -1);
    let ended = params![
        no,
        row::code(state),
        now.as_micros(),
        Reason::Overflow.as_str()
    ];
    if work.db.prepare_cached(AMEND_END)?.execute(ended)? == 0 {
        return Ok(());
    }
    work.count_end(queue, state);
    work.enter(victim, state)
}
