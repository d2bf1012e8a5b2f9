//! Inserts jobs that are dead already.

use crate::enqueue::find_known;
use crate::row;
use crate::state_index::IndexEntry;
use crate::transaction::{QueueIndex, WriteTransaction};
use backstop_core::job_options::JobOptions;
use backstop_core::port::{EnqueueOutcome, NewDeadLetter};
use backstop_core::{JobState, Time};
use rusqlite::{Result, params};

const BURY_JOB: &str = include_str!("sql/bury_job.sql");

pub(crate) fn bury(
    tx: &mut WriteTransaction<'_>,
    burials: &[NewDeadLetter],
) -> Result<Vec<EnqueueOutcome>> {
    burials.iter().map(|burial| bury_one(tx, burial)).collect()
}

fn bury_one(tx: &mut WriteTransaction<'_>, burial: &NewDeadLetter) -> Result<EnqueueOutcome> {
    let job = &burial.job;
    if let Some(answer) = find_known(tx, job.id, &job.queue)? {
        return Ok(answer);
    }
    if tx
        .queue(&job.queue)?
        .is_some_and(|queue| !tx.has_room_for_dead(queue))
    {
        return Ok(EnqueueOutcome::Full);
    }
    let queue = tx.queue_or_new(&job.queue)?;
    let entry = insert(tx, burial, queue)?;
    tx.count_enqueued(queue);
    tx.count_end(queue, JobState::Dead);
    tx.enter(entry, JobState::Dead)?;
    Ok(EnqueueOutcome::Inserted)
}

/// Inserts the job's row; returns the entry to make in the index tables.
fn insert(
    tx: &WriteTransaction<'_>,
    burial: &NewDeadLetter,
    queue: QueueIndex,
) -> Result<IndexEntry> {
    let job = &burial.job;
    let hold = job
        .unique
        .as_ref()
        .map(|unique| unique.hold(burial.inserted_at));
    let run_at = job.run_at.unwrap_or(burial.inserted_at);
    tx.db.prepare_cached(BURY_JOB)?.execute(params![
        burial.attempts,
        burial.lost_leases,
        burial.requeues,
        run_at.as_micros(),
        burial.finished_at.as_micros(),
        burial.reason.as_str(),
        burial.history.as_bytes(),
        job.id.as_bytes(),
        tx.at(queue).id,
        job.priority.level(),
        job.kind.as_str(),
        job.unique.as_ref().map(|unique| unique.key.as_str()),
        hold.map(|hold| hold.states.bits()),
        hold.and_then(|hold| hold.until).map(Time::as_micros),
        burial.inserted_at.as_micros(),
        JobOptions::of(job).as_bytes(),
        job.payload.as_bytes(),
        row::NO_LEASE,
        row::NO_TAG,
    ])?;
    Ok(IndexEntry {
        no: tx.db.last_insert_rowid(),
        queue,
        level: i64::from(job.priority.level()),
        seq: 0,
        run_at,
        finished_at: burial.finished_at,
        fingerprint: Some(burial.fingerprint()),
    })
}
