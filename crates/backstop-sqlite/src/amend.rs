//! What an operator does to jobs.
//!
//! A selection by filter is picked by a reader, so that a long search does not keep the writer; every job picked is
//! looked at again by the writer before it is touched.

mod pick;

use crate::lines::{Spot, Standing, Which};
use crate::row;
use crate::work::Work;
use backstop_core::amend::{Action, Refusal, permitted};
use backstop_core::port::Amended;
use backstop_core::port::place::Fitting;
use backstop_core::verdict::Reason;
use backstop_core::{JobId, State, Time};
pub(crate) use pick::pick;
use rusqlite::{Result, params};

const AMEND_RETRY: &str = include_str!("sql/amend_retry.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");

/// Does something to these jobs, and answers for each.
pub(crate) fn amend_ids(work: &mut Work<'_>, ids: &[JobId], action: Action, now: Time) -> Result<Amended> {
    let mut amended = Amended::default();
    for id in ids {
        let answer = match work.standing(Which::Id(*id))? {
            Some(job) => amend_one(work, &job, action, now)?,
            None => Err(Refusal::NotFound),
        };
        note(&mut amended, *id, answer);
    }
    Ok(amended)
}

/// Does something to the jobs that were picked, if they still fit.
pub(crate) fn amend_fitting(
    work: &mut Work<'_>,
    picked: &[i64],
    wanted: &Fitting,
    now: Time,
) -> Result<Amended> {
    let mut amended = Amended::default();
    for no in picked {
        let Some(job) = work.standing(Which::No(*no))? else { continue };
        let fits = wanted.filter.fits(&work.at(job.spot.queue).name, &job.kind, job.state);
        if fits && permitted(wanted.action, job.state).is_ok() {
            let answer = amend_one(work, &job, wanted.action, now)?;
            note(&mut amended, job.id, answer);
        }
    }
    Ok(amended)
}

fn note(amended: &mut Amended, id: JobId, answer: std::result::Result<(), Refusal>) {
    match answer {
        Ok(()) => amended.applied += 1,
        Err(refusal) => amended.refused.push((id, refusal)),
    }
}

fn amend_one(
    work: &mut Work<'_>,
    job: &Standing,
    action: Action,
    now: Time,
) -> Result<std::result::Result<(), Refusal>> {
    if let Err(refusal) = permitted(action, job.state) {
        return Ok(Err(refusal));
    }
    match action {
        Action::Retry => {
            if let Some(holder) = twin(work, job, now)? {
                return Ok(Err(Refusal::Twin(holder)));
            }
            retry(work, job, now)?;
        }
        Action::Cancel => cancel(work, job, now)?,
        Action::Delete => {
            work.leave(job)?;
            work.delete(job.spot.no)?;
            if let Some((key, _)) = &job.unique {
                work.remove_key(job.spot.queue, key, job.id)?;
            }
        }
    }
    Ok(Ok(()))
}

/// Who else holds the key of a job that is to come back to life.
fn twin(work: &mut Work<'_>, job: &Standing, now: Time) -> Result<Option<JobId>> {
    let Some((key, _)) = job.unique.as_ref().filter(|_| job.state.is_final()) else { return Ok(None) };
    Ok(work.key_holder(job.spot.queue, key, now)?.filter(|holder| *holder != job.id))
}

fn retry(work: &mut Work<'_>, job: &Standing, now: Time) -> Result<()> {
    let begins_anew = job.state.is_final();
    if let Some((key, hold)) = job.unique.as_ref().filter(|_| begins_anew) {
        work.put_key(job.spot.queue, key, job.id, *hold)?;
    }
    work.leave(job)?;
    let seq = work.tail(job.spot.queue);
    let begun = params![job.spot.no, seq, now.as_micros(), begins_anew];
    work.db.prepare_cached(AMEND_RETRY)?.execute(begun)?;
    work.enter(Spot { seq, run_at: now, ..job.spot }, State::Ready)
}

fn cancel(work: &mut Work<'_>, job: &Standing, now: Time) -> Result<()> {
    work.leave(job)?;
    let reason = Reason::Operator.as_str();
    let ended = params![job.spot.no, row::code(State::Cancelled), now.as_micros(), reason];
    work.db.prepare_cached(AMEND_END)?.execute(ended)?;
    work.count_end(job.spot.queue, State::Cancelled);
    work.enter(Spot { finished_at: now, ..job.spot }, State::Cancelled)
}
