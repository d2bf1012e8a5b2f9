//! Applies an operator's action to jobs: retry, cancel, delete or move.
//!
//! A reader picks the jobs that match a filter, so that a long search does not block the writer.
//! The writer checks every picked job again before it changes it.

mod pick;

use crate::enqueue::check_queues;
use crate::row;
use crate::state_index::{IndexEntry, JobLookup, StoredJobRow};
use crate::transaction::{QueueIndex, WriteTransaction};
use backstop_core::amend::{AmendAction, AmendRefusal, needs_room};
use backstop_core::port::cursor::AmendScan;
use backstop_core::port::{AmendJobsRequest, AmendResult, StoreResult};
use backstop_core::verdict::EndReason;
use backstop_core::{JobId, JobState, QueueName, Time};
pub(crate) use pick::pick;
use rusqlite::{Result, params};

const AMEND_RETRY: &str = include_str!("sql/amend_retry.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");

/// Refuses a move to a new queue that the store has no room for.
pub(crate) fn check_target(
    tx: &mut WriteTransaction<'_>,
    action: &AmendAction,
    max: usize,
) -> Result<StoreResult<()>> {
    match action {
        AmendAction::Move(to) => check_queues(tx, [to].into_iter(), max),
        AmendAction::Retry | AmendAction::Cancel | AmendAction::Delete => Ok(Ok(())),
    }
}

/// Applies an action to these jobs, and reports each one.
pub(crate) fn amend_ids(
    tx: &mut WriteTransaction<'_>,
    ids: &[JobId],
    amendment: &AmendJobsRequest,
    now: Time,
) -> Result<AmendResult> {
    let mut amended = AmendResult::default();
    for id in ids {
        let found = tx.find_job_row(JobLookup::Id(*id))?;
        let is_meant = |job: &StoredJobRow| {
            amendment
                .within()
                .is_none_or(|queue| *queue == tx.at(job.entry.queue).name)
        };
        let found = found.filter(is_meant).ok_or(AmendRefusal::NotFound);
        let answer = match found.and_then(|job| amendment.permits(job.state).map(|()| job)) {
            Ok(job) => amend_one(tx, &job, &amendment.action, now)?,
            Err(refusal) => Err(refusal),
        };
        note(&mut amended, *id, answer);
    }
    Ok(amended)
}

/// Applies an action to the picked jobs that still match.
pub(crate) fn amend_fitting(
    tx: &mut WriteTransaction<'_>,
    picked: &[i64],
    wanted: &AmendScan,
    now: Time,
) -> Result<AmendResult> {
    let mut amended = AmendResult::default();
    for no in picked {
        let Some(job) = tx.find_job_row(JobLookup::No(*no))? else {
            continue;
        };
        let name = &tx.at(job.entry.queue).name;
        let fits = wanted
            .filter
            .fits(name, &job.kind, job.state, job.entry.fingerprint);
        if fits && wanted.admits_state(job.state) {
            let answer = amend_one(tx, &job, &wanted.action, now)?;
            note(&mut amended, job.id, answer);
        }
    }
    Ok(amended)
}

fn note(amended: &mut AmendResult, id: JobId, answer: std::result::Result<(), AmendRefusal>) {
    match answer {
        Ok(()) => amended.applied += 1,
        Err(refusal) => amended.refused.push((id, refusal)),
    }
}

/// Applies a permitted action to one job.
fn amend_one(
    tx: &mut WriteTransaction<'_>,
    job: &StoredJobRow,
    action: &AmendAction,
    now: Time,
) -> Result<std::result::Result<(), AmendRefusal>> {
    let to = if let AmendAction::Move(to) = action {
        tx.queue(to)?
    } else {
        Some(job.entry.queue)
    };
    if needs_room(action, job.state) && to.is_some_and(|queue| !tx.has_room(queue)) {
        return Ok(Err(AmendRefusal::Full));
    }
    match action {
        AmendAction::Retry => {
            if let Some(holder) = other_key_holder(tx, job, job.entry.queue, now)? {
                return Ok(Err(AmendRefusal::UniqueKeyHeld(holder)));
            }
            retry(tx, job, job.entry.queue, now)?;
        }
        AmendAction::Move(to) => return move_to(tx, job, to, now),
        AmendAction::Cancel => cancel(tx, job, now)?,
        AmendAction::Delete => {
            tx.leave(job)?;
            tx.delete(job.entry.no)?;
            release_key(tx, job)?;
        }
    }
    Ok(Ok(()))
}

/// Finds another job that holds the unique key of an ended job which is to become live in a queue.
fn other_key_holder(
    tx: &mut WriteTransaction<'_>,
    job: &StoredJobRow,
    queue: QueueIndex,
    now: Time,
) -> Result<Option<JobId>> {
    let Some((key, _)) = job.unique.as_ref().filter(|_| job.state.is_final()) else {
        return Ok(None);
    };
    Ok(tx
        .key_holder(queue, key, now)?
        .filter(|holder| *holder != job.id))
}

/// Makes a job ready in its own queue or in another.
fn retry(
    tx: &mut WriteTransaction<'_>,
    job: &StoredJobRow,
    queue: QueueIndex,
    now: Time,
) -> Result<()> {
    let begins_anew = job.state.is_final();
    if let Some((key, hold)) = job.unique.as_ref().filter(|_| begins_anew) {
        tx.put_key(queue, key, job.id, *hold)?;
    }
    tx.leave(job)?;
    let seq = tx.tail(queue);
    let begun = params![
        job.entry.no,
        seq,
        now.as_micros(),
        begins_anew,
        tx.at(queue).id
    ];
    tx.db.prepare_cached(AMEND_RETRY)?.execute(begun)?;
    tx.enter(
        IndexEntry {
            queue,
            seq,
            run_at: now,
            fingerprint: None,
            ..job.entry
        },
        JobState::Ready,
    )
}

fn move_to(
    tx: &mut WriteTransaction<'_>,
    job: &StoredJobRow,
    to: &QueueName,
    now: Time,
) -> Result<std::result::Result<(), AmendRefusal>> {
    if let Some(queue) = tx.queue(to)?
        && let Some(holder) = other_key_holder(tx, job, queue, now)?
    {
        return Ok(Err(AmendRefusal::UniqueKeyHeld(holder)));
    }
    release_key(tx, job)?;
    let queue = tx.queue_or_new(to)?;
    retry(tx, job, queue, now)?;
    Ok(Ok(()))
}

fn release_key(tx: &mut WriteTransaction<'_>, job: &StoredJobRow) -> Result<()> {
    let Some((key, _)) = &job.unique else {
        return Ok(());
    };
    tx.remove_key(job.entry.queue, key, job.id)
}

fn cancel(tx: &mut WriteTransaction<'_>, job: &StoredJobRow, now: Time) -> Result<()> {
    tx.leave(job)?;
    let reason = EndReason::Operator.as_str();
    let ended = params![
        job.entry.no,
        row::code(JobState::Cancelled),
        now.as_micros(),
        reason
    ];
    tx.db.prepare_cached(AMEND_END)?.execute(ended)?;
    tx.count_end(job.entry.queue, JobState::Cancelled);
    tx.enter(
        IndexEntry {
            finished_at: now,
            ..job.entry
        },
        JobState::Cancelled,
    )
}
