//! Operator actions on jobs.
//!
//! A selection by filter first picks the jobs, then amends them. The script checks every job again.

mod pick;

use crate::context::{StoreContext, readable};
use crate::damaged_jobs;
use crate::moves::{LocateResult, MoveOutcome, finish_moves, locate};
use crate::record::{self, reason_code, sortable, state_code, state_of};
use crate::reply;
use crate::script::{AMEND, MARK, ScriptCall};
use crate::state_index::JobLocation;
use backstop_core::amend::{AmendAction, AmendRefusal};
use backstop_core::port::{AmendJobsRequest, AmendResult, AmendSelection, StoreResult};
use backstop_core::verdict::EndReason;
use backstop_core::{JobId, JobState, QueueName, Time};
use futures_util::future::try_join_all;
use pick::PickRequest;

use std::collections::BTreeMap;

const DOING: &str = "amending jobs";
/// The most jobs of one script call: while a script runs, the server does nothing else.
const JOBS_AT_ONCE: usize = 500;
/// How often a job that is moving from one queue to another is looked up again.
const ROUNDS_MAX: usize = 4;

pub(crate) async fn amend(
    base: &StoreContext,
    amendment: &AmendJobsRequest,
    now: Time,
) -> StoreResult<AmendResult> {
    match amendment.check_selection()? {
        AmendSelection::Ids(ids) => {
            amend_ids(
                base,
                ids,
                &AmendRequest {
                    amendment,
                    state: None,
                    now,
                },
            )
            .await
        }
        AmendSelection::Matching(filter) => {
            amend_fitting(base, &PickRequest::of(amendment, filter)?, now).await
        }
    }
}

/// The action, and the state that a job must be in.
struct AmendRequest<'a> {
    amendment: &'a AmendJobsRequest,
    state: Option<JobState>,
    now: Time,
}

/// Amends the jobs with these ids, and answers for each.
async fn amend_ids(
    base: &StoreContext,
    ids: &[JobId],
    request: &AmendRequest<'_>,
) -> StoreResult<AmendResult> {
    let queues = match request.amendment.within() {
        Some(queue) => vec![queue.clone()],
        None => base.queues(DOING).await?,
    };
    let mut done = vec![JobAmendOutcome::Again; ids.len()];
    for _ in 0..ROUNDS_MAX {
        let open: Vec<usize> = (0..ids.len())
            .filter(|at| done[*at] == JobAmendOutcome::Again)
            .collect();
        if open.is_empty() {
            break;
        }
        let open_ids: Vec<JobId> = open.iter().map(|at| ids[*at]).collect();
        for (at, answer) in open
            .into_iter()
            .zip(amend_anywhere(base, &queues, &open_ids, request).await?)
        {
            done[at] = answer;
        }
    }
    let mut amended = AmendResult::default();
    for (id, done) in ids.iter().zip(done) {
        note(
            &mut amended,
            *id,
            if done == JobAmendOutcome::Again {
                NOT_FOUND
            } else {
                done
            },
        );
    }
    base.notifier.notify();
    Ok(amended)
}

/// Amends jobs in whichever of these queues they are. It looks them up first: an id that several
/// queues know is ambiguous, and none of those jobs is amended.
async fn amend_anywhere(
    base: &StoreContext,
    queues: &[QueueName],
    ids: &[JobId],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    let mut found = locate(base, DOING, queues, ids).await?;
    let is_move = matches!(request.amendment.action, AmendAction::Move(_));
    let mut spots = Vec::with_capacity(ids.len());
    for (id, place) in ids.iter().zip(&mut found) {
        match *place {
            LocateResult::In(queue) => spots.push(JobLocation { queue, id: *id }),
            // A second move finds the mark of the first one, and returns the outcome of that.
            LocateResult::Leaving(queue) if is_move => {
                *place = LocateResult::In(queue);
                spots.push(JobLocation { queue, id: *id });
            }
            LocateResult::Leaving(queue) => {
                drop(finish_moves(base, DOING, &queues[queue], &[*id]).await?);
            }
            LocateResult::Nowhere | LocateResult::Several => {}
        }
    }
    let mut done = amend_at(base, queues, &spots, request).await?.into_iter();
    let answer = |place: &LocateResult| match place {
        LocateResult::In(_) => done.next().unwrap_or(NOT_FOUND),
        LocateResult::Leaving(_) => JobAmendOutcome::Again,
        LocateResult::Nowhere => NOT_FOUND,
        LocateResult::Several => JobAmendOutcome::Refused(AmendRefusal::Ambiguous),
    };
    Ok(found.iter().map(answer).collect())
}

/// Amends jobs whose locations are known.
async fn amend_at(
    base: &StoreContext,
    queues: &[QueueName],
    spots: &[JobLocation],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    match &request.amendment.action {
        AmendAction::Move(_) => amend_in_order(base, queues, spots, request).await,
        AmendAction::Retry | AmendAction::Cancel | AmendAction::Delete => {
            amend_side_by_side(base, queues, spots, request).await
        }
    }
}

/// Amends jobs one queue after the other. Jobs that enter the same index then get their places in
/// this order.
async fn amend_in_order(
    base: &StoreContext,
    queues: &[QueueName],
    spots: &[JobLocation],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    let mut done = Vec::with_capacity(spots.len());
    for run in spots.chunk_by(|one, next| one.queue == next.queue) {
        let ids: Vec<JobId> = run.iter().map(|spot| spot.id).collect();
        done.extend(amend_in(base, &queues[run[0].queue], &ids, request).await?);
    }
    Ok(done)
}

/// Amends jobs of all queues in parallel.
async fn amend_side_by_side(
    base: &StoreContext,
    queues: &[QueueName],
    spots: &[JobLocation],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    let mut by_queue: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
    for JobLocation { queue, id } in spots {
        by_queue.entry(*queue).or_default().push(*id);
    }
    let parts = by_queue
        .iter()
        .map(|(queue, ids)| amend_in(base, &queues[*queue], ids, request));
    let parts = try_join_all(parts).await?;
    let mut done: BTreeMap<usize, _> = by_queue
        .keys()
        .copied()
        .zip(parts.into_iter().map(Vec::into_iter))
        .collect();
    let next = |spot: &JobLocation| {
        done.get_mut(&spot.queue)
            .and_then(Iterator::next)
            .unwrap_or(NOT_FOUND)
    };
    Ok(spots.iter().map(next).collect())
}

/// Amends the next jobs that match the filter.
async fn amend_fitting(
    base: &StoreContext,
    wanted: &PickRequest<'_>,
    now: Time,
) -> StoreResult<AmendResult> {
    let picked = wanted.pick(base).await?;
    let request = AmendRequest {
        amendment: wanted.amendment,
        state: wanted.filter.state,
        now,
    };
    let done = amend_at(base, &picked.queues, &picked.spots, &request).await?;
    let mut amended = AmendResult {
        next: picked.next,
        ..AmendResult::default()
    };
    for (spot, answer) in picked.spots.iter().zip(done) {
        // A job that no longer matches is not reported. Of the refusals, only those that depend on
        // other jobs are.
        if matches!(answer, JobAmendOutcome::Applied)
            || matches!(answer, JobAmendOutcome::Refused(refusal) if refusal.depends_on_other_jobs())
        {
            note(&mut amended, spot.id, answer);
        }
    }
    if amended.applied > 0 {
        base.notifier.notify();
    }
    Ok(amended)
}

/// The outcome of an amendment for one job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JobAmendOutcome {
    Applied,
    NotMeant,
    Refused(AmendRefusal),
    /// Not amended: the job is marked as moving to another queue.
    Marked,
    /// Not amended: the record of the job cannot be read.
    Damaged,
    /// Not amended: the job moved to another queue meanwhile.
    Again,
}

const NOT_FOUND: JobAmendOutcome = JobAmendOutcome::Refused(AmendRefusal::NotFound);

fn note(amended: &mut AmendResult, id: JobId, done: JobAmendOutcome) {
    match done {
        JobAmendOutcome::Applied => amended.applied += 1,
        JobAmendOutcome::NotMeant
        | JobAmendOutcome::Marked
        | JobAmendOutcome::Damaged
        | JobAmendOutcome::Again => {}
        JobAmendOutcome::Refused(refusal) => amended.refused.push((id, refusal)),
    }
}

/// Amends jobs of one queue. A move that is under way is finished first.
async fn amend_in(
    base: &StoreContext,
    queue: &QueueName,
    ids: &[JobId],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    let mut done = match &request.amendment.action {
        AmendAction::Move(to) if to != queue => move_each(base, queue, to, ids, request).await?,
        _ => amend_each(base, queue, ids, request).await?,
    };
    let marked = all_of(&done, ids, JobAmendOutcome::Marked);
    if !marked.is_empty() {
        finish_moves(base, DOING, queue, &marked).await?;
        let answers = amend_each(base, queue, &marked, request).await?;
        let gone = |answer| {
            if matches!(answer, NOT_FOUND | JobAmendOutcome::Marked) {
                JobAmendOutcome::Again
            } else {
                answer
            }
        };
        replace(
            &mut done,
            JobAmendOutcome::Marked,
            answers.into_iter().map(gone),
        );
    }
    let damaged = all_of(&done, ids, JobAmendOutcome::Damaged);
    if !damaged.is_empty() {
        let answers = amend_damaged(base, queue, &damaged, request).await?;
        replace(&mut done, JobAmendOutcome::Damaged, answers);
    }
    Ok(done)
}

fn all_of(done: &[JobAmendOutcome], ids: &[JobId], wanted: JobAmendOutcome) -> Vec<JobId> {
    done.iter()
        .zip(ids)
        .filter(|(done, _)| **done == wanted)
        .map(|(_, id)| *id)
        .collect()
}

fn replace(
    done: &mut [JobAmendOutcome],
    old: JobAmendOutcome,
    new: impl IntoIterator<Item = JobAmendOutcome>,
) {
    for (place, answer) in done.iter_mut().filter(|done| **done == old).zip(new) {
        *place = answer;
    }
}

/// A job that cannot be read can only be deleted.
async fn amend_damaged(
    base: &StoreContext,
    queue: &QueueName,
    ids: &[JobId],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    if request.amendment.action != AmendAction::Delete {
        tracing::warn!(%queue, ?ids, "jobs whose record cannot be read can only be deleted, by their id");
        return Ok(vec![NOT_FOUND; ids.len()]);
    }
    let found = damaged_jobs::find(base, DOING, queue, ids).await?;
    let mut done = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(remains) = found.get(id) else {
            continue;
        };
        done.push(
            match remains
                .state
                .map_or(Ok(()), |state| request.amendment.permits(state))
            {
                Err(refusal) => JobAmendOutcome::Refused(refusal),
                Ok(()) if damaged_jobs::erase(base, DOING, queue, *id, remains).await? => {
                    JobAmendOutcome::Applied
                }
                Ok(()) => JobAmendOutcome::Again,
            },
        );
    }
    Ok(done)
}

/// Moves jobs of one queue to another.
async fn move_each(
    base: &StoreContext,
    from: &QueueName,
    to: &QueueName,
    ids: &[JobId],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    let mut done = Vec::with_capacity(ids.len());
    for slice in ids.chunks(JOBS_AT_ONCE) {
        let mut call = base.script(&MARK, from);
        call.push(&rand::random::<[u8; 8]>());
        call.push(&sortable(request.now.as_micros()));
        call.push(to.as_str().as_bytes());
        call.push(&verdicts(request));
        call.push(&meant(request));
        let mut answers = ask(base, call, slice).await?;
        replace(
            &mut answers,
            JobAmendOutcome::Applied,
            std::iter::repeat(JobAmendOutcome::Marked),
        );
        let marked = all_of(&answers, slice, JobAmendOutcome::Marked);
        let ends = finish_moves(base, DOING, from, &marked).await?;
        let ended = ends.into_iter().map(|end| match end {
            MoveOutcome::Moved(queue) if queue == *to => JobAmendOutcome::Applied,
            MoveOutcome::Refused(queue, refusal) if queue == *to => {
                JobAmendOutcome::Refused(refusal)
            }
            MoveOutcome::Moved(_) | MoveOutcome::Refused(..) | MoveOutcome::NotMarked => {
                JobAmendOutcome::Again
            }
        });
        replace(&mut answers, JobAmendOutcome::Marked, ended);
        done.extend(answers);
    }
    Ok(done)
}

/// Amends jobs that stay in their queue.
async fn amend_each(
    base: &StoreContext,
    queue: &QueueName,
    ids: &[JobId],
    request: &AmendRequest<'_>,
) -> StoreResult<Vec<JobAmendOutcome>> {
    let mut done = Vec::with_capacity(ids.len());
    for slice in ids.chunks(JOBS_AT_ONCE) {
        done.extend(ask(base, head(base, queue, request), slice).await?);
    }
    Ok(done)
}

async fn ask(
    base: &StoreContext,
    mut call: ScriptCall,
    ids: &[JobId],
) -> StoreResult<Vec<JobAmendOutcome>> {
    for id in ids {
        call.push(id.as_bytes());
    }
    let answer = base.link.run(DOING, &call).await?;
    let letters = readable(
        DOING,
        reply::all_bytes(answer).filter(|letters| letters.len() == ids.len()),
    )?;
    readable(DOING, letters.iter().map(|letter| read(letter)).collect())
}

fn head(base: &StoreContext, queue: &QueueName, request: &AmendRequest<'_>) -> ScriptCall {
    let mut call = base.script(&AMEND, queue).arg(request.now.as_micros());
    call.push(&sortable(request.now.as_micros()));
    call.push(match request.amendment.action {
        // Moving a dead job to the queue it is in means to retry it there.
        AmendAction::Retry | AmendAction::Move(_) => b"R",
        AmendAction::Cancel => b"C",
        AmendAction::Delete => b"D",
    });
    call.push(&verdicts(request));
    call.push(&meant(request));
    call.push(&[reason_code(Some(EndReason::Operator))]);
    call
}

/// One letter per state: whether the action is permitted in it, or why not.
fn verdicts(request: &AmendRequest<'_>) -> [u8; JobState::ALL.len()] {
    JobState::ALL.map(|state| {
        request
            .amendment
            .permits(state)
            .map_or_else(letter_of, |()| b'A')
    })
}

/// The state that a job must be in; empty if any state will do.
fn meant(request: &AmendRequest<'_>) -> Vec<u8> {
    request
        .state
        .map(|state| vec![state_code(state)])
        .unwrap_or_default()
}

/// The letters from here on mean: the job is in another state than the requested one.
const ELSEWHERE: u8 = b'a';

const fn letter_of(refusal: AmendRefusal) -> u8 {
    match refusal {
        AmendRefusal::NotFound | AmendRefusal::Ambiguous | AmendRefusal::UniqueKeyHeld(_) => b'N',
        AmendRefusal::Running => b'2',
        AmendRefusal::Done => b'4',
        AmendRefusal::Ready => b'1',
        AmendRefusal::Ended => b'E',
        AmendRefusal::Alive => b'V',
        AmendRefusal::Full => b'F',
        AmendRefusal::OtherState(state) => ELSEWHERE + state as u8,
    }
}

fn read(answer: &[u8]) -> Option<JobAmendOutcome> {
    let refusal = match answer.first()? {
        b'A' => return Some(JobAmendOutcome::Applied),
        b'-' => return Some(JobAmendOutcome::NotMeant),
        b'M' => return Some(JobAmendOutcome::Marked),
        b'B' => return Some(JobAmendOutcome::Damaged),
        b'N' => AmendRefusal::NotFound,
        b'2' => AmendRefusal::Running,
        b'4' => AmendRefusal::Done,
        b'1' => AmendRefusal::Ready,
        b'E' => AmendRefusal::Ended,
        b'V' => AmendRefusal::Alive,
        b'F' => AmendRefusal::Full,
        b'T' => AmendRefusal::UniqueKeyHeld(record::id_of(&answer[1..])?),
        letter => AmendRefusal::OtherState(state_of(letter.checked_sub(ELSEWHERE)? + b'0')?),
    };
    Some(JobAmendOutcome::Refused(refusal))
}
