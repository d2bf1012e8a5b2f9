//! Dead letters in.

use crate::enqueue::known;
use crate::lines::Spot;
use crate::row;
use crate::work::{QueueAt, Work};
use backstop_core::port::{Burial, Enqueued};
use backstop_core::terms::Terms;
use backstop_core::{State, Time};
use rusqlite::{Result, params};

const BURY_JOB: &str = include_str!("sql/bury_job.sql");

/// Takes dead letters in.
pub(crate) fn bury(work: &mut Work<'_>, burials: &[Burial]) -> Result<Vec<Enqueued>> {
    burials
        .iter()
        .map(|burial| bury_one(work, burial))
        .collect()
}

fn bury_one(work: &mut Work<'_>, burial: &Burial) -> Result<Enqueued> {
    let job = &burial.job;
    if let Some(answer) = known(work, job.id, &job.queue)? {
        return Ok(answer);
    }
    if work
        .queue(&job.queue)?
        .is_some_and(|queue| !work.has_room_for_dead(queue))
    {
        return Ok(Enqueued::Full);
    }
    let queue = work.queue_or_new(&job.queue)?;
    let spot = insert(work, burial, queue)?;
    work.count_enqueued(queue);
    work.count_end(queue, State::Dead);
    work.enter(spot, State::Dead)?;
    Ok(Enqueued::Inserted)
}

/// Writes the job, and tells where it is to lie.
fn insert(work: &Work<'_>, burial: &Burial, queue: QueueAt) -> Result<Spot> {
    let job = &burial.job;
    let hold = job
        .unique
        .as_ref()
        .map(|unique| unique.hold(burial.inserted_at));
    let run_at = job.run_at.unwrap_or(burial.inserted_at);
    work.db.prepare_cached(BURY_JOB)?.execute(params![
        burial.attempts,
        burial.lost_leases,
        burial.requeues,
        run_at.as_micros(),
        burial.finished_at.as_micros(),
        burial.reason.as_str(),
        burial.history.as_bytes(),
        job.id.as_bytes(),
        work.at(queue).id,
        job.priority.level(),
        job.kind.as_str(),
        job.unique.as_ref().map(|unique| unique.key.as_str()),
        hold.map(|hold| hold.states.bits()),
        hold.and_then(|hold| hold.until).map(Time::as_micros),
        burial.inserted_at.as_micros(),
        Terms::of(job).as_bytes(),
        job.payload.as_bytes(),
        row::NO_LEASE,
        row::NO_TAG,
    ])?;
    Ok(Spot {
        no: work.db.last_insert_rowid(),
        queue,
        level: i64::from(job.priority.level()),
        seq: 0,
        run_at,
        finished_at: burial.finished_at,
        fingerprint: Some(burial.fingerprint()),
    })
}
