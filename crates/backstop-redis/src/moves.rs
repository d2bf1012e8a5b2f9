//! Moves ended jobs to another queue, which may be on another server. A move has three steps. Each
//! is a script on one queue and may be repeated:
//!
//! 1. `mark`: the old queue stores the target queue and the token of the move. The job stays
//!    listed.
//! 2. `receive`: the new queue accepts or refuses the job and remembers its decision, so that a
//!    move is decided once.
//! 3. `depart`: the old queue removes the job, or only the mark if the job was refused, and
//!    remembers where the job went.
//!
//! Anyone who finds a mark takes steps 2 and 3: the original caller, another mover, an amendment or
//! a repair. They all use the same token, so the job ends up in one place.

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

/// The most jobs carried at once, and the most bytes.
const JOBS_AT_ONCE: usize = 100;
const BYTES_MAX: usize = 8 << 20;
/// How long the decision on a move is remembered at least. It must be longer than any caller keeps
/// trying to finish the move.
const DECISION_KEPT_FOR_SECS: i64 = 3_600;
/// How many entries one sweep looks at.
const SWEEP: usize = 100;
/// A job moved more often than this is assumed to exist.
const HOPS_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MoveOutcome {
    /// The job is now in this queue.
    Moved(QueueName),
    /// This queue did not accept the job.
    Refused(QueueName, AmendRefusal),
    NotMarked,
}

/// Takes steps 2 and 3 for marked jobs of a queue; answers in the order of `ids`.
pub(crate) async fn finish_moves(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    ids: &[JobId],
) -> StoreResult<Vec<MoveOutcome>> {
    let mut ends = Vec::with_capacity(ids.len());
    while ends.len() < ids.len() {
        let rest = &ids[ends.len()..];
        let carried =
            read_marked_jobs(base, doing, from, &rest[..rest.len().min(JOBS_AT_ONCE)]).await?;
        ends.extend(receive_and_depart(base, doing, from, &carried).await?);
    }
    Ok(ends)
}

/// A marked job, with everything its new queue needs.
struct MovingJob {
    id: JobId,
    token: Vec<u8>,
    at: Vec<u8>,
    to: QueueName,
    record: Vec<u8>,
    payload: Vec<u8>,
    history: Vec<u8>,
}

/// Reads as many of these jobs as fit, at least one; `None` for a job that is not marked.
async fn read_marked_jobs(
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

/// Delivers jobs to their new queues, then tells the old queue.
async fn receive_and_depart(
    base: &StoreContext,
    doing: &'static str,
    from: &QueueName,
    jobs: &[Option<MovingJob>],
) -> StoreResult<Vec<MoveOutcome>> {
    let mut ends = vec![MoveOutcome::NotMarked; jobs.len()];
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
        // Register again, as `enqueue_reply.rs` does: the queue may have been forgotten meanwhile.
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

/// Whether the new queue accepted each job, or why not.
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

/// Where a job is; queues are given by their index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocateResult {
    Nowhere,
    In(usize),
    /// The job is leaving this queue and may already be in its target queue, too.
    Leaving(usize),
    /// Several queues have a job with this id.
    Several,
}

/// Finds the queues that these jobs are in.
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

/// Two queues have the same job only while it moves from one to the other.
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

/// Whether these moved jobs still exist, in the queue they moved to or wherever they went from
/// there.
pub(crate) async fn check_which_exist(
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

/// Forgets that these jobs were moved away from a queue.
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

/// Forgets leftovers of moves in all queues, a few at a time: the targets of jobs that no queue
/// knows any more, and the decisions on moves that ended long ago.
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
        let is_known = check_which_exist(base, doing, &places).await?;
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

/// Forgets the decision on one move once it is old and the old queue has finished the move.
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
    if now_secs - decided_secs < DECISION_KEPT_FOR_SECS {
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
        finish_moves(base, doing, &from, &[id]).await?;
    }
    let mut remove = redis::cmd("HDEL");
    remove.arg(base.keys.part(to, QueueKey::Received)).arg(what);
    base.link.ask(doing, &remove).await.map(drop)
}

/// When a move was decided, and which queue the job came from.
fn read_decision(decision: &[u8]) -> Option<(i64, QueueName)> {
    let (secs, verdict) = (decision.get(..10)?, decision.get(10..)?);
    let from = match verdict.split_first()? {
        (b'A' | b'F', from) => from,
        (_, behind) => behind.get(16..)?,
    };
    let secs = std::str::from_utf8(secs).ok()?.parse().ok()?;
    Some((secs, QueueName::new(std::str::from_utf8(from).ok()?).ok()?))
}
