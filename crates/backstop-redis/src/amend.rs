//! What an operator does to jobs.
//!
//! A selection by filter is picked first and done then; the script that does it looks at every job
//! again.

mod pick;

use crate::base::{Base, readable};
use crate::damage;
use crate::lines::Spot;
use crate::moves::{End, Whereabouts, finish, locate};
use crate::record::{self, reason_letter, sortable, state_letter, state_of};
use crate::reply;
use crate::script::{AMEND, MARK, ScriptCall};
use backstop_core::amend::{Action, Refusal};
use backstop_core::port::{Amended, Amendment, Answer, Sought};
use backstop_core::verdict::Reason;
use backstop_core::{JobId, QueueName, State, Time};
use futures_util::future::try_join_all;
use pick::Wanted;

use std::collections::BTreeMap;

const DOING: &str = "amending jobs";
/// Jobs of one script: while it runs, the server does nothing else.
const JOBS_AT_ONCE: usize = 500;
/// How often a job is looked for that was found on its way from one queue to another.
const ROUNDS_MAX: usize = 4;

/// Does something to jobs.
pub(crate) async fn amend(base: &Base, amendment: &Amendment, now: Time) -> Answer<Amended> {
    match amendment.sought()? {
        Sought::Ids(ids) => {
            amend_ids(
                base,
                ids,
                &Deed {
                    amendment,
                    state: None,
                    now,
                },
            )
            .await
        }
        Sought::Fitting(filter) => amend_fitting(base, &Wanted::of(amendment, filter)?, now).await,
    }
}

/// What is to be done, and to jobs of which state.
struct Deed<'a> {
    amendment: &'a Amendment,
    state: Option<State>,
    now: Time,
}

/// Does something to these jobs, and answers for each.
async fn amend_ids(base: &Base, ids: &[JobId], deed: &Deed<'_>) -> Answer<Amended> {
    let queues = match deed.amendment.within() {
        Some(queue) => vec![queue.clone()],
        None => base.queues(DOING).await?,
    };
    let mut done = vec![Done::Again; ids.len()];
    for _ in 0..ROUNDS_MAX {
        let open: Vec<usize> = (0..ids.len())
            .filter(|at| done[*at] == Done::Again)
            .collect();
        if open.is_empty() {
            break;
        }
        let asked: Vec<JobId> = open.iter().map(|at| ids[*at]).collect();
        for (at, answer) in open
            .into_iter()
            .zip(amend_anywhere(base, &queues, &asked, deed).await?)
        {
            done[at] = answer;
        }
    }
    let mut amended = Amended::default();
    for (id, done) in ids.iter().zip(done) {
        note(
            &mut amended,
            *id,
            if done == Done::Again { NOT_FOUND } else { done },
        );
    }
    base.bell.ring();
    Ok(amended)
}

/// Does something to jobs, whichever of these queues they are in. They are looked for first: an id
/// that several queues know is not one job, and nothing is done to any of them.
async fn amend_anywhere(
    base: &Base,
    queues: &[QueueName],
    ids: &[JobId],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    let mut found = locate(base, DOING, queues, ids).await?;
    let is_move = matches!(deed.amendment.action, Action::Move(_));
    let mut spots = Vec::with_capacity(ids.len());
    for (id, place) in ids.iter().zip(&mut found) {
        match *place {
            Whereabouts::In(queue) => spots.push(Spot { queue, id: *id }),
            // Who moves it again meets the mark of the move, and is told how that ended.
            Whereabouts::Leaving(queue) if is_move => {
                *place = Whereabouts::In(queue);
                spots.push(Spot { queue, id: *id });
            }
            Whereabouts::Leaving(queue) => drop(finish(base, DOING, &queues[queue], &[*id]).await?),
            Whereabouts::Nowhere | Whereabouts::Several => {}
        }
    }
    let mut done = amend_at(base, queues, &spots, deed).await?.into_iter();
    let answer = |place: &Whereabouts| match place {
        Whereabouts::In(_) => done.next().unwrap_or(NOT_FOUND),
        Whereabouts::Leaving(_) => Done::Again,
        Whereabouts::Nowhere => NOT_FOUND,
        Whereabouts::Several => Done::Refused(Refusal::Ambiguous),
    };
    Ok(found.iter().map(answer).collect())
}

/// Does something to jobs that have been found.
async fn amend_at(
    base: &Base,
    queues: &[QueueName],
    spots: &[Spot],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    match &deed.amendment.action {
        Action::Move(_) => amend_in_order(base, queues, spots, deed).await,
        Action::Retry | Action::Cancel | Action::Delete => {
            amend_side_by_side(base, queues, spots, deed).await
        }
    }
}

/// Does something to jobs one queue after the other: those that meet in one line get their places
/// in this order.
async fn amend_in_order(
    base: &Base,
    queues: &[QueueName],
    spots: &[Spot],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    let mut done = Vec::with_capacity(spots.len());
    for run in spots.chunk_by(|one, next| one.queue == next.queue) {
        let ids: Vec<JobId> = run.iter().map(|spot| spot.id).collect();
        done.extend(amend_in(base, &queues[run[0].queue], &ids, deed).await?);
    }
    Ok(done)
}

/// Does something to jobs, all queues at once.
async fn amend_side_by_side(
    base: &Base,
    queues: &[QueueName],
    spots: &[Spot],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    let mut by_queue: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
    for Spot { queue, id } in spots {
        by_queue.entry(*queue).or_default().push(*id);
    }
    let parts = by_queue
        .iter()
        .map(|(queue, ids)| amend_in(base, &queues[*queue], ids, deed));
    let parts = try_join_all(parts).await?;
    let mut done: BTreeMap<usize, _> = by_queue
        .keys()
        .copied()
        .zip(parts.into_iter().map(Vec::into_iter))
        .collect();
    let next = |spot: &Spot| {
        done.get_mut(&spot.queue)
            .and_then(Iterator::next)
            .unwrap_or(NOT_FOUND)
    };
    Ok(spots.iter().map(next).collect())
}

/// Does something to the next jobs that fit.
async fn amend_fitting(base: &Base, wanted: &Wanted<'_>, now: Time) -> Answer<Amended> {
    let picked = wanted.pick(base).await?;
    let deed = Deed {
        amendment: wanted.amendment,
        state: wanted.filter.state,
        now,
    };
    let done = amend_at(base, &picked.queues, &picked.spots, &deed).await?;
    let mut amended = Amended {
        next: picked.next,
        ..Amended::default()
    };
    for (spot, answer) in picked.spots.iter().zip(done) {
        // What no longer fits was not meant: of refusals only those of a key's new holder are told.
        if matches!(answer, Done::Applied)
            || matches!(answer, Done::Refused(refusal) if refusal.is_by_others())
        {
            note(&mut amended, spot.id, answer);
        }
    }
    if amended.applied > 0 {
        base.bell.ring();
    }
    Ok(amended)
}

/// What was done to one job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Applied,
    NotMeant,
    Refused(Refusal),
    /// Nothing: it is marked as on its way to another queue.
    Marked,
    /// Nothing: its record cannot be read.
    Damaged,
    /// Nothing: it went to another queue meanwhile.
    Again,
}

const NOT_FOUND: Done = Done::Refused(Refusal::NotFound);

fn note(amended: &mut Amended, id: JobId, done: Done) {
    match done {
        Done::Applied => amended.applied += 1,
        Done::NotMeant | Done::Marked | Done::Damaged | Done::Again => {}
        Done::Refused(refusal) => amended.refused.push((id, refusal)),
    }
}

/// Does something to jobs of one queue. A move that is found under way is finished first.
async fn amend_in(
    base: &Base,
    queue: &QueueName,
    ids: &[JobId],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    let mut done = match &deed.amendment.action {
        Action::Move(to) if to != queue => move_each(base, queue, to, ids, deed).await?,
        _ => amend_each(base, queue, ids, deed).await?,
    };
    let marked = all_of(&done, ids, Done::Marked);
    if !marked.is_empty() {
        finish(base, DOING, queue, &marked).await?;
        let answers = amend_each(base, queue, &marked, deed).await?;
        let gone = |answer| {
            if matches!(answer, NOT_FOUND | Done::Marked) {
                Done::Again
            } else {
                answer
            }
        };
        replace(&mut done, Done::Marked, answers.into_iter().map(gone));
    }
    let damaged = all_of(&done, ids, Done::Damaged);
    if !damaged.is_empty() {
        let answers = amend_damaged(base, queue, &damaged, deed).await?;
        replace(&mut done, Done::Damaged, answers);
    }
    Ok(done)
}

fn all_of(done: &[Done], ids: &[JobId], wanted: Done) -> Vec<JobId> {
    done.iter()
        .zip(ids)
        .filter(|(done, _)| **done == wanted)
        .map(|(_, id)| *id)
        .collect()
}

fn replace(done: &mut [Done], old: Done, new: impl IntoIterator<Item = Done>) {
    for (place, answer) in done.iter_mut().filter(|done| **done == old).zip(new) {
        *place = answer;
    }
}

/// Of a job that cannot be read nothing is left to be done but to delete it.
async fn amend_damaged(
    base: &Base,
    queue: &QueueName,
    ids: &[JobId],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    if deed.amendment.action != Action::Delete {
        tracing::warn!(%queue, ?ids, "jobs whose record cannot be read can only be deleted, by their id");
        return Ok(vec![NOT_FOUND; ids.len()]);
    }
    let found = damage::find(base, DOING, queue, ids).await?;
    let mut done = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(remains) = found.get(id) else {
            continue;
        };
        done.push(
            match remains
                .state
                .map_or(Ok(()), |state| deed.amendment.permits(state))
            {
                Err(refusal) => Done::Refused(refusal),
                Ok(()) if damage::erase(base, DOING, queue, *id, remains).await? => Done::Applied,
                Ok(()) => Done::Again,
            },
        );
    }
    Ok(done)
}

/// Moves jobs of one queue to another.
async fn move_each(
    base: &Base,
    from: &QueueName,
    to: &QueueName,
    ids: &[JobId],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    let mut done = Vec::with_capacity(ids.len());
    for slice in ids.chunks(JOBS_AT_ONCE) {
        let mut call = base.script(&MARK, from);
        call.push(&rand::random::<[u8; 8]>());
        call.push(&sortable(deed.now.as_micros()));
        call.push(to.as_str().as_bytes());
        call.push(&verdicts(deed));
        call.push(&meant(deed));
        let mut answers = ask(base, call, slice).await?;
        replace(&mut answers, Done::Applied, std::iter::repeat(Done::Marked));
        let marked = all_of(&answers, slice, Done::Marked);
        let ends = finish(base, DOING, from, &marked).await?;
        let ended = ends.into_iter().map(|end| match end {
            End::Moved(queue) if queue == *to => Done::Applied,
            End::Refused(queue, refusal) if queue == *to => Done::Refused(refusal),
            End::Moved(_) | End::Refused(..) | End::Unmarked => Done::Again,
        });
        replace(&mut answers, Done::Marked, ended);
        done.extend(answers);
    }
    Ok(done)
}

/// Does something to jobs that stay in their queue.
async fn amend_each(
    base: &Base,
    queue: &QueueName,
    ids: &[JobId],
    deed: &Deed<'_>,
) -> Answer<Vec<Done>> {
    let mut done = Vec::with_capacity(ids.len());
    for slice in ids.chunks(JOBS_AT_ONCE) {
        done.extend(ask(base, head(base, queue, deed), slice).await?);
    }
    Ok(done)
}

async fn ask(base: &Base, mut call: ScriptCall, ids: &[JobId]) -> Answer<Vec<Done>> {
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

fn head(base: &Base, queue: &QueueName, deed: &Deed<'_>) -> ScriptCall {
    let mut call = base.script(&AMEND, queue).arg(deed.now.as_micros());
    call.push(&sortable(deed.now.as_micros()));
    call.push(match deed.amendment.action {
        // To be moved to where it is already means to come back to life there.
        Action::Retry | Action::Move(_) => b"R",
        Action::Cancel => b"C",
        Action::Delete => b"D",
    });
    call.push(&verdicts(deed));
    call.push(&meant(deed));
    call.push(&[reason_letter(Some(Reason::Operator))]);
    call
}

/// A letter for each state: whether it may be done there, or why not.
fn verdicts(deed: &Deed<'_>) -> [u8; State::ALL.len()] {
    State::ALL.map(|state| {
        deed.amendment
            .permits(state)
            .map_or_else(letter_of, |()| b'A')
    })
}

/// The state a job must be in to be meant at all.
fn meant(deed: &Deed<'_>) -> Vec<u8> {
    deed.state
        .map(|state| vec![state_letter(state)])
        .unwrap_or_default()
}

/// States that are not the one that was meant stand from here on.
const ELSEWHERE: u8 = b'a';

const fn letter_of(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::NotFound | Refusal::Ambiguous | Refusal::Twin(_) => b'N',
        Refusal::Running => b'2',
        Refusal::Done => b'4',
        Refusal::Ready => b'1',
        Refusal::Ended => b'E',
        Refusal::Alive => b'V',
        Refusal::Full => b'F',
        Refusal::Elsewhere(state) => ELSEWHERE + state as u8,
    }
}

fn read(answer: &[u8]) -> Option<Done> {
    let refusal = match answer.first()? {
        b'A' => return Some(Done::Applied),
        b'-' => return Some(Done::NotMeant),
        b'M' => return Some(Done::Marked),
        b'B' => return Some(Done::Damaged),
        b'N' => Refusal::NotFound,
        b'2' => Refusal::Running,
        b'4' => Refusal::Done,
        b'1' => Refusal::Ready,
        b'E' => Refusal::Ended,
        b'V' => Refusal::Alive,
        b'F' => Refusal::Full,
        b'T' => Refusal::Twin(record::id_of(&answer[1..])?),
        letter => Refusal::Elsewhere(state_of(letter.checked_sub(ELSEWHERE)? + b'0')?),
    };
    Some(Done::Refused(refusal))
}
