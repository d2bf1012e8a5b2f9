//! What an operator does to jobs.
//!
//! A selection by filter is picked by a reader, so that a long search does not keep the writer;
//! every job picked is looked at again by the writer before it is touched.

mod pick;

use crate::enqueue::check_queues;
use crate::lines::{Spot, Standing, Which};
use crate::row;
use crate::work::{QueueAt, Work};
use backstop_core::amend::{Action, Refusal, needs_room};
use backstop_core::port::place::Fitting;
use backstop_core::port::{Amended, Amendment, Answer};
use backstop_core::verdict::Reason;
use backstop_core::{JobId, QueueName, State, Time};
pub(crate) use pick::pick;
use rusqlite::{Result, params};

const AMEND_RETRY: &str = include_str!("sql/amend_retry.sql");
const AMEND_END: &str = include_str!("sql/amend_end.sql");

/// Refuses a move to a new queue that the store has no room for.
pub(crate) fn check_target(work: &mut Work<'_>, action: &Action, max: usize) -> Result<Answer<()>> {
    match action {
        Action::Move(to) => check_queues(work, [to].into_iter(), max),
        Action::Retry | Action::Cancel | Action::Delete => Ok(Ok(())),
    }
}

/// Does something to these jobs, and answers for each.
pub(crate) fn amend_ids(
    work: &mut Work<'_>,
    ids: &[JobId],
    amendment: &Amendment,
    now: Time,
) -> Result<Amended> {
    let mut amended = Amended::default();
    for id in ids {
        let found = work.standing(Which::Id(*id))?;
        let is_meant = |job: &Standing| {
            amendment
                .within()
                .is_none_or(|queue| *queue == work.at(job.spot.queue).name)
        };
        let found = found.filter(is_meant).ok_or(Refusal::NotFound);
        let answer = match found.and_then(|job| amendment.permits(job.state).map(|()| job)) {
            Ok(job) => amend_one(work, &job, &amendment.action, now)?,
            Err(refusal) => Err(refusal),
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
        let Some(job) = work.standing(Which::No(*no))? else {
            continue;
        };
        let name = &work.at(job.spot.queue).name;
        let fits = wanted
            .filter
            .fits(name, &job.kind, job.state, job.spot.fingerprint);
        if fits && wanted.state(job.state) {
            let answer = amend_one(work, &job, &wanted.action, now)?;
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

/// Does something that is permitted to a job.
fn amend_one(
    work: &mut Work<'_>,
    job: &Standing,
    action: &Action,
    now: Time,
) -> Result<std::result::Result<(), Refusal>> {
    let to = if let Action::Move(to) = action {
        work.queue(to)?
    } else {
        Some(job.spot.queue)
    };
    if needs_room(action, job.state) && to.is_some_and(|queue| !work.has_room(queue)) {
        return Ok(Err(Refusal::Full));
    }
    match action {
        Action::Retry => {
            if let Some(holder) = twin(work, job, job.spot.queue, now)? {
                return Ok(Err(Refusal::Twin(holder)));
            }
            retry(work, job, job.spot.queue, now)?;
        }
        Action::Move(to) => return move_to(work, job, to, now),
        Action::Cancel => cancel(work, job, now)?,
        Action::Delete => {
            work.leave(job)?;
            work.delete(job.spot.no)?;
            release_key(work, job)?;
        }
    }
    Ok(Ok(()))
}

/// Who else holds the key of a job that is to come back to life in a queue.
fn twin(work: &mut Work<'_>, job: &Standing, queue: QueueAt, now: Time) -> Result<Option<JobId>> {
    let Some((key, _)) = job.unique.as_ref().filter(|_| job.state.is_final()) else {
        return Ok(None);
    };
    Ok(work
        .key_holder(queue, key, now)?
        .filter(|holder| *holder != job.id))
}

/// Makes a job ready in a queue, its own or another.
fn retry(work: &mut Work<'_>, job: &Standing, queue: QueueAt, now: Time) -> Result<()> {
    let begins_anew = job.state.is_final();
    if let Some((key, hold)) = job.unique.as_ref().filter(|_| begins_anew) {
        work.put_key(queue, key, job.id, *hold)?;
    }
    work.leave(job)?;
    let seq = work.tail(queue);
    let begun = params![
        job.spot.no,
        seq,
        now.as_micros(),
        begins_anew,
        work.at(queue).id
    ];
    work.db.prepare_cached(AMEND_RETRY)?.execute(begun)?;
    work.enter(
        Spot {
            queue,
            seq,
            run_at: now,
            fingerprint: None,
            ..job.spot
        },
        State::Ready,
    )
}

fn move_to(
    work: &mut Work<'_>,
    job: &Standing,
    to: &QueueName,
    now: Time,
) -> Result<std::result::Result<(), Refusal>> {
    if let Some(queue) = work.queue(to)?
        && let Some(holder) = twin(work, job, queue, now)?
    {
        return Ok(Err(Refusal::Twin(holder)));
    }
    release_key(work, job)?;
    let queue = work.queue_or_new(to)?;
    retry(work, job, queue, now)?;
    Ok(Ok(()))
}

fn release_key(work: &mut Work<'_>, job: &Standing) -> Result<()> {
    let Some((key, _)) = &job.unique else {
        return Ok(());
    };
    work.remove_key(job.spot.queue, key, job.id)
}

fn cancel(work: &mut Work<'_>, job: &Standing, now: Time) -> Result<()> {
    work.leave(job)?;
    let reason = Reason::Operator.as_str();
    let ended = params![
        job.spot.no,
        row::code(State::Cancelled),
        now.as_micros(),
        reason
    ];
    work.db.prepare_cached(AMEND_END)?.execute(ended)?;
    work.count_end(job.spot.queue, State::Cancelled);
    work.enter(
        Spot {
            finished_at: now,
            ..job.spot
        },
        State::Cancelled,
    )
}
