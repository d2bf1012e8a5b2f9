//! Promotes due jobs from scheduled or retrying to ready.

use crate::row;
use crate::state_index::READY_ADD;
use crate::transaction::WriteTransaction;
use backstop_core::limits::PROMOTE_MAX;
use backstop_core::port::PromoteResult;
use backstop_core::{JobState, Time};
use rusqlite::{OptionalExtension, Result, params};

const PROMOTE_DUE: &str = include_str!("sql/promote_due.sql");
const PROMOTE_JOB: &str = include_str!("sql/promote_job.sql");
const PROMOTE_CLEAR: &str = include_str!("sql/promote_clear.sql");
const PROMOTE_NEXT: &str = include_str!("sql/promote_next.sql");

/// Makes the jobs ready that are due.
pub(crate) fn promote(
    tx: &mut WriteTransaction<'_>,
    max: usize,
    now: Time,
) -> Result<PromoteResult> {
    let db = tx.db;
    let mut due = db.prepare_cached(PROMOTE_DUE)?;
    let mut job = db.prepare_cached(PROMOTE_JOB)?;
    let mut ready = db.prepare_cached(READY_ADD)?;
    let (mut moved, mut last) = (0, None);
    let mut rows = due.query(params![now.as_micros(), row::number(max.min(PROMOTE_MAX))])?;
    while let Some(row) = rows.next()? {
        let no = row::whole(row, 1)?;
        last = Some([row::whole(row, 0)?, no]);
        // A row of the due table without a waiting job is deleted with the rest of the head.
        let Some(code) = row::maybe_whole(row, 2)? else {
            continue;
        };
        let state = row::state(code, false);
        if !matches!(state, JobState::Scheduled | JobState::Retrying) {
            continue;
        }
        let queue = tx.queue_of(row::whole(row, 3)?)?;
        let seq = tx.tail(queue);
        job.execute([no, seq])?;
        ready.execute([tx.at(queue).id, row::whole(row, 4)?, seq, no])?;
        tx.count(queue, state, -1);
        tx.count(queue, JobState::Ready, 1);
        moved += 1;
    }
    drop(rows);
    if let Some(last) = last {
        db.prepare_cached(PROMOTE_CLEAR)?.execute(last)?;
        tx.mark_new_work();
    }
    let next_due = db
        .prepare_cached(PROMOTE_NEXT)?
        .query_row([], |row| row::time(row, 0))
        .optional()?;
    Ok(PromoteResult {
        moved,
        next_due,
        unanswered: Vec::new(),
    })
}
