//! Moves ended jobs to another queue, which may be on another server. A move has three steps. Each
//! is a script on one queue and may be repeated:
//!
//! 1. `mark`: the old queue stores the target queue and the token of the move. The job stays
//!    listed. This step is `move_each` in `amend.rs`.
//! 2. `receive`: the new queue accepts or refuses the job and remembers its decision, so that a
//!    move is decided once.
//! 3. `depart`: the old queue removes the job, or only the mark if the job was refused, and
//!    remembers where the job went.
//!
//! This file does steps 2 and 3. Anyone who finds a mark takes them: the original caller, another
//! mover, an amendment or a repair. They all use the same token, so the job ends up in one place.
//!
//! A mark (key `moving` of the old queue, by job id), by byte:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 7 | token: random bytes, which all jobs of one `mark` call share |
//! | 8 to 15 | time of the request to move, as `record::sortable` encodes it: the new `run_at` |
//! | from 16 | name of the target queue |
//!
//! A decision (key `received` of the new queue, by job id and token), by byte:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 9 | when it was made: seconds of the server's clock, as decimal digits |
//! | 10 | `A`, `F` or `T`, see below |
//! | 11 to 26 | only after `T`: the id of the job in the way |
//! | the rest | name of the old queue |
//!
//! The scripts answer in letters:
//!
//! | script | letter | meaning |
//! |---|---|---|
//! | `receive` | `A` | accepted: the job is in the new queue |
//! | | `F` | refused: the new queue is full |
//! | | `T` | refused: another job, whose id follows, has the unique key or the same id (twin) |
//! | `depart`, as an argument | `A` | the new queue accepted: remove the job |
//! | | `T` | the new queue refused, for whatever reason: remove only the mark |
//! | `whereabouts` | `H` | the job is here |
//! | | `L` | the job is here and is leaving for the queue whose name follows |
//! | | `G` | the job has gone to the queue whose name follows |

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

/// The most jobs that one call reads from their old queue.
const JOBS_AT_ONCE: usize = 100;
/// A call that has read this many bytes reads no further job.
const BYTES_MAX: usize = 8 << 20;
/// How long the new queue remembers its decision on a move at least. It must be longer than any
/// caller keeps trying to finish the move.
const DECISION_KEPT_FOR_SECS: i64 = 3_600;
/// At most this many random entries of each kind per queue in one sweep. The kinds are the targets
/// of jobs that moved away, and the decisions.
const SWEEP: usize = 100;
/// How many moves of one job are followed. A job that moved more often is assumed to exist.
const HOPS_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MoveOutcome {
    /// The job is now in this queue.
    Moved(QueueName),
    /// This queue did not accept the job.
    Refused(QueueName, AmendRefusal),
    /// The job had no mark: it never had one, or somebody else finished this move. Or the job was
    /// marked, but its record is missing.
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

/// A marked job, with everything its new queue needs. `token`, `at` and `to` are the parts of its
/// mark.
struct MovingJob {
    id: JobId,
    token: Vec<u8>,
    at: Vec<u8>,
    to: QueueName,
    record: Vec<u8>,
    payload: Vec<u8>,
    history: Vec<u8>,
}

/// Reads as many of these jobs as fit, at least one; `None` for a job without a mark or a record.
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

/// Delivers jobs to their new queues, then tells the old queue which of them were accepted.
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

/// Removes leftovers of moves from a random sample of each queue's entries: the targets of jobs
/// that no queue knows any more, and old decisions. Repeated sweeps reach all entries sooner or
/// later.
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

/// Removes a decision made more than [`DECISION_KEPT_FOR_SECS`] ago; finishes the move first if the
/// old queue still has its mark.
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
    // A mark with another token belongs to a later move of the same job.
    if mark.is_some_and(|mark| mark.starts_with(token)) {
        finish_moves(base, doing, &from, &[id]).await?;
    }
    let mut remove = redis::cmd("HDEL");
    remove.arg(base.keys.part(to, QueueKey::Received)).arg(what);
    base.link.ask(doing, &remove).await.map(drop)
}

/// When a move was decided, and the job's old queue. See the layout at the top of this file.
fn read_decision(decision: &[u8]) -> Option<(i64, QueueName)> {
    let (secs, verdict) = (decision.get(..10)?, decision.get(10..)?);
    let from = match verdict.split_first()? {
        (b'A' | b'F', from) => from,
        (_, behind) => behind.get(16..)?,
    };
    let secs = std::str::from_utf8(secs).ok()?.parse().ok()?;
    Some((secs, QueueName::new(std::str::from_utf8(from).ok()?).ok()?))
}
