//! Ended jobs on their way to another queue, which may be on another server. Three steps, each a
//! script of one queue that may be repeated:
//!
//! 1. `mark`: the old queue notes where the job goes, and the number of the move. It stays listed.
//! 2. `receive`: the new queue takes the job in, or does not, and remembers which: a move is
//!    decided once.
//! 3. `depart`: the old queue removes the job, or the mark if it was not taken, and remembers where
//!    the job went.
//!
//! Whoever finds a mark takes steps 2 and 3, be it the one who made it, another mover, an amendment
//! or a repair: they all carry the same number, so that the job ends in one place.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::link::machine_micros;
use crate::record::id_of;
use crate::reply;
use crate::script::{CARRY, DEPART, FORGET_MOVED, LOCATE, RECEIVE};
use backstop_core::amend::AmendRefusal;
use backstop_core::port::StoreResult;
use backstop_core::{JobId, QueueName};
use redis::{Cmd, Value};
use std::collections::BTreeMap;

/// Jobs carried at once, and their bytes.
const JOBS_AT_ONCE: usize = 100;
const BYTES_MAX: usize = 8 << 20;
/// What was decided about a move is remembered at least so long: longer than anybody tries to carry
/// it out.
const DECIDED_FOR_SECS: i64 = 3_600;
/// Entries one sweep looks at.
const SWEEP: usize = 100;
/// A job moved more often than this is taken to be somewhere.
const HOPS_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MoveOutcome {
    /// The job is in this queue.
    Moved(QueueName),
    /// This queue did not take it.
    Refused(QueueName, AmendRefusal),
    Unmarked,
}

/// Takes the second and third step for jobs that are marked in a queue; answers in their order.
pub(crate) async fn finish(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    ids: &[JobId],
) -> StoreResult<Vec<MoveOutcome>> {
    let mut ends = Vec::with_capacity(ids.len());
    while ends.len() < ids.len() {
        let rest = &ids[ends.len()..];
        let carried = carry(base, doing, from, &rest[..rest.len().min(JOBS_AT_ONCE)]).await?;
        ends.extend(deliver(base, doing, from, &carried).await?);
    }
    Ok(ends)
}

/// A marked job, with what its new queue has to know.
struct MovingJob {
    id: JobId,
    token: Vec<u8>,
    at: Vec<u8>,
    to: QueueName,
    record: Vec<u8>,
    payload: Vec<u8>,
    history: Vec<u8>,
}

/// Reads as many of these jobs as fit, at least one; nothing for those that are not marked.
async fn carry(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    ids: &[JobId],
) -> StoreResult<Vec<Option<MovingJob>>> {
    let mut call = base.script(&CARRY, from).arg(BYTES_MAX);
    for id in ids {
        call.push(id.as_bytes());
    }
    let answer = base.link.run(doing, &call).await?;
    let jobs = readable(doing, reply::list(answer).filter(|jobs| !jobs.is_empty()))?;
    let read = |(id, job): (&JobId, Value)| {
        let parts = reply::all_bytes(job)?;
        if parts.is_empty() {
            return Some(None);
        }
        let [mark, record, payload, history]: [Vec<u8>; 4] = parts.try_into().ok()?;
        let to = QueueName::new(std::str::from_utf8(mark.get(16..)?).ok()?).ok()?;
        let (token, at) = (mark[..8].to_vec(), mark[8..16].to_vec());
        Some(Some(MovingJob {
            id: *id,
            token,
            at,
            to,
            record,
            payload,
            history,
        }))
    };
    readable(doing, ids.iter().zip(jobs).map(read).collect())
}

/// Hands jobs to their new queues, and lets their old one know.
async fn deliver(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    jobs: &[Option<MovingJob>],
) -> StoreResult<Vec<MoveOutcome>> {
    let mut ends = vec![MoveOutcome::Unmarked; jobs.len()];
    let mut by_queue: BTreeMap<&QueueName, Vec<(usize, &MovingJob)>> = BTreeMap::new();
    for (at, job) in jobs
        .iter()
        .enumerate()
        .filter_map(|(at, job)| Some((at, job.as_ref()?)))
    {
        by_queue.entry(&job.to).or_default().push((at, job));
    }
    for (to, jobs) in by_queue {
        base.register(doing, &[to]).await?;
        let taken = receive(base, doing, from, to, &jobs).await?;
        // Again: see `intake.rs`.
        base.register(doing, &[to]).await?;
        let mut call = base.script(&DEPART, from);
        for ((at, job), taken) in jobs.into_iter().zip(taken) {
            call.push(job.id.as_bytes());
            call.push(&job.token);
            call.push(if taken.is_ok() { b"A" } else { b"T" });
            ends[at] = match taken {
                Ok(()) => MoveOutcome::Moved(to.clone()),
                Err(refusal) => MoveOutcome::Refused(to.clone(), refusal),
            };
        }
        base.link.run(doing, &call).await?;
    }
    Ok(ends)
}

/// Whether the new queue took them in, or why not.
async fn receive(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    to: &QueueName,
    jobs: &[(usize, &MovingJob)],
) -> StoreResult<Vec<Result<(), AmendRefusal>>> {
    let mut call = base.script(&RECEIVE, to).arg(from.as_str());
    for (_, job) in jobs {
        call.push(job.id.as_bytes());
        for part in [&job.token, &job.at, &job.record, &job.payload, &job.history] {
            call.push(part);
        }
    }
    let replies = readable(doing, reply::all_bytes(base.link.run(doing, &call).await?))?;
    let read = |reply_bytes: &Vec<u8>| match reply_bytes.split_first()? {
        (b'A', _) => Some(Ok(())),
        (b'F', _) => Some(Err(AmendRefusal::Full)),
        (b'T', twin) => Some(Err(AmendRefusal::UniqueKeyHeld(id_of(twin)?))),
        _ => None,
    };
    let taken: Option<Vec<Result<(), AmendRefusal>>> = replies.iter().map(read).collect();
    readable(doing, taken.filter(|taken| taken.len() == jobs.len()))
}

/// Where a job is, by the numbers of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocateResult {
    Nowhere,
    In(usize),
    /// In this one, which it leaves, and where it goes to as well.
    Leaving(usize),
    /// Several have a job of this id.
    Several,
}

/// In which of these queues jobs are.
pub(crate) async fn locate(
    base: &StoreContext,
    doing: &'static str,
    queues: &[QueueName],
    ids: &[JobId],
) -> StoreResult<Vec<LocateResult>> {
    let calls = queues.iter().map(|queue| {
        let mut call = base.script(&LOCATE, queue);
        for id in ids {
            call.push(id.as_bytes());
        }
        call
    });
    let answers = base.run_each(doing, calls.collect()).await?;
    let mut found: Vec<Vec<(usize, Vec<u8>)>> = vec![Vec::new(); ids.len()];
    for (queue, answer) in answers.into_iter().enumerate() {
        for (found, reply_bytes) in found
            .iter_mut()
            .zip(readable(doing, reply::all_bytes(answer))?)
        {
            if matches!(reply_bytes.first(), Some(b'H' | b'L')) {
                found.push((queue, reply_bytes));
            }
        }
    }
    Ok(found
        .iter()
        .map(|found| locate_result(queues, found))
        .collect())
}

/// Two queues have one job only while it goes from one to the other.
fn locate_result(queues: &[QueueName], found: &[(usize, Vec<u8>)]) -> LocateResult {
    let goes_to = |reply_bytes: &[u8], queue: usize| {
        reply_bytes
            .strip_prefix(b"L")
            .is_some_and(|to| to == queues[queue].as_str().as_bytes())
    };
    match found {
        [] => LocateResult::Nowhere,
        [(queue, _)] => LocateResult::In(*queue),
        [(one, reply_bytes), (other, _)] if goes_to(reply_bytes, *other) => {
            LocateResult::Leaving(*one)
        }
        [(other, _), (one, reply_bytes)] if goes_to(reply_bytes, *other) => {
            LocateResult::Leaving(*one)
        }
        _ => LocateResult::Several,
    }
}

/// Whether jobs that were moved to these queues are known there, or where they went from there.
pub(crate) async fn known(
    base: &StoreContext,
    doing: &'static str,
    places: &[(JobId, QueueName)],
) -> StoreResult<Vec<bool>> {
    let mut is_known = vec![true; places.len()];
    let mut open: Vec<(usize, QueueName)> = places
        .iter()
        .enumerate()
        .map(|(at, (_, queue))| (at, queue.clone()))
        .collect();
    for _ in 0..HOPS_MAX {
        let mut by_queue: BTreeMap<QueueName, Vec<usize>> = BTreeMap::new();
        for (at, queue) in open.drain(..) {
            by_queue.entry(queue).or_default().push(at);
        }
        let calls = by_queue.iter().map(|(queue, ats)| {
            let mut call = base.script(&LOCATE, queue);
            for at in ats {
                call.push(places[*at].0.as_bytes());
            }
            call
        });
        let answers = base.run_each(doing, calls.collect()).await?;
        for (ats, answer) in by_queue.values().zip(answers) {
            for (at, reply_bytes) in ats.iter().zip(readable(doing, reply::all_bytes(answer))?) {
                match reply_bytes.split_first() {
                    Some((b'G', queue)) => {
                        let queue = std::str::from_utf8(queue)
                            .ok()
                            .and_then(|name| QueueName::new(name).ok());
                        open.push((*at, readable(doing, queue)?));
                    }
                    last_reply => is_known[*at] = last_reply.is_some(),
                }
            }
        }
    }
    Ok(is_known)
}

/// Forgets that these jobs were moved from a queue.
pub(crate) async fn forget(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    moved: &[(JobId, QueueName)],
) -> StoreResult<()> {
    let mut call = base.script(&FORGET_MOVED, from);
    for (id, to) in moved {
        call.push(id.as_bytes());
        call.push(to.as_str().as_bytes());
    }
    base.link.run(doing, &call).await.map(drop)
}

/// Forgets what moves left behind in all queues, a little at a time: where jobs went that are known
/// nowhere any more, and what was decided about moves that have long ended.
pub(crate) async fn sweep(
    base: &StoreContext,
    doing: &'static str,
    queues: &[QueueName],
) -> StoreResult<()> {
    let some_of = |part| {
        let command = move |queue: &QueueName| {
            let mut command = redis::cmd("HRANDFIELD");
            command
                .arg(base.keys.part(queue, part))
                .arg(SWEEP)
                .arg("WITHVALUES");
            command
        };
        base.ask_each(doing, queues.iter().map(command).collect::<Vec<Cmd>>())
    };
    for (queue, answer) in queues.iter().zip(some_of(QueueKey::Moved).await?) {
        let moved = readable(doing, reply::pairs(answer))?.into_iter();
        let places = moved.filter_map(|(id, to)| {
            Some((
                id_of(&id)?,
                QueueName::new(std::str::from_utf8(&to).ok()?).ok()?,
            ))
        });
        let places: Vec<(JobId, QueueName)> = places.collect();
        if places.is_empty() {
            continue;
        }
        let is_known = known(base, doing, &places).await?;
        let gone = places
            .into_iter()
            .zip(is_known)
            .filter(|(_, is_known)| !is_known);
        forget(
            base,
            doing,
            queue,
            &gone.map(|(place, _)| place).collect::<Vec<_>>(),
        )
        .await?;
    }
    for (queue, answer) in queues.iter().zip(some_of(QueueKey::Received).await?) {
        for (what, decision) in readable(doing, reply::pairs(answer))? {
            forget_decision(base, doing, queue, &what, &decision).await?;
        }
    }
    Ok(())
}

/// Forgets what was decided about one move, once it is old and the old queue is through with it.
async fn forget_decision(
    base: &StoreContext,
    doing: &'static str,
    to: &QueueName,
    what: &[u8],
    decision: &[u8],
) -> StoreResult<()> {
    let now_secs = (machine_micros() + base.link.clock_offset_micros()) / 1_000_000;
    let Some((decided_secs, from)) = read_decision(decision) else {
        return Ok(());
    };
    if now_secs - decided_secs < DECIDED_FOR_SECS {
        return Ok(());
    }
    let Some((id, token)) = what
        .split_at_checked(16)
        .and_then(|(id, token)| Some((id_of(id)?, token)))
    else {
        return Ok(());
    };
    let mut get = redis::cmd("HGET");
    get.arg(base.keys.part(&from, QueueKey::Moving))
        .arg(&id.as_bytes()[..]);
    let mark = reply::bytes(base.link.ask(doing, &get).await?);
    if mark.is_some_and(|mark| mark.starts_with(token)) {
        finish(base, doing, &from, &[id]).await?;
    }
    let mut remove = redis::cmd("HDEL");
    remove.arg(base.keys.part(to, QueueKey::Received)).arg(what);
    base.link.ask(doing, &remove).await.map(drop)
}

/// When a move was decided, and from which queue it came.
fn read_decision(decision: &[u8]) -> Option<(i64, QueueName)> {
    let (secs, verdict) = (decision.get(..10)?, decision.get(10..)?);
    let from = match verdict.split_first()? {
        (b'A' | b'F', from) => from,
        (_, behind) => behind.get(16..)?,
    };
    let secs = std::str::from_utf8(secs).ok()?.parse().ok()?;
    Some((secs, QueueName::new(std::str::from_utf8(from).ok()?).ok()?))
}
