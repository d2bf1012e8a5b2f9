//! What an operator does to jobs.
//!
//! A selection by filter is picked first and done then; the script that does it looks at every job again.

mod pick;

use crate::base::{Base, readable};
use crate::lines::Spot;
use crate::record::{self, reason_letter, sortable, state_letter};
use crate::reply;
use crate::script::{AMEND, ScriptCall};
use backstop_core::amend::{Action, Refusal, permitted};
use backstop_core::port::{Amended, Amendment, Answer, Sought};
use backstop_core::verdict::Reason;
use backstop_core::{JobId, QueueName, State, Time};
use futures_util::future::try_join_all;
use pick::Wanted;

use std::collections::BTreeMap;

const DOING: &str = "amending jobs";
/// Jobs of one script: while it runs, the server does nothing else.
const JOBS_AT_ONCE: usize = 500;

/// Does something to jobs.
pub(crate) async fn amend(base: &Base, amendment: &Amendment, now: Time) -> Answer<Amended> {
    match amendment.sought()? {
        Sought::Ids(ids) => amend_ids(base, ids, amendment.action, now).await,
        Sought::Fitting(filter) => amend_fitting(base, &Wanted::of(amendment, filter)?, now).await,
    }
}

/// What is to be done, and to jobs of which state.
struct Deed {
    action: Action,
    state: Option<State>,
    now: Time,
}

/// Does something to these jobs, and answers for each. Every queue is asked: only one of them knows a job.
async fn amend_ids(base: &Base, ids: &[JobId], action: Action, now: Time) -> Answer<Amended> {
    let queues = base.queues(DOING).await?;
    let deed = Deed { action, state: None, now };
    let parts = queues.iter().map(|queue| amend_in(base, queue, ids, &deed));
    let parts: Vec<Vec<Done>> = try_join_all(parts).await?;
    let mut amended = Amended::default();
    for (at, id) in ids.iter().enumerate() {
        let known = parts.iter().map(|part| part[at]).find(|done| *done != Done::Refused(Refusal::NotFound));
        note(&mut amended, *id, known.unwrap_or(Done::Refused(Refusal::NotFound)));
    }
    base.bell.ring();
    Ok(amended)
}

/// Does something to the next jobs that fit.
async fn amend_fitting(base: &Base, wanted: &Wanted, now: Time) -> Answer<Amended> {
    let picked = wanted.pick(base).await?;
    let deed = Deed { action: wanted.action, state: wanted.filter.state, now };
    let mut by_queue: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
    for Spot { queue, id } in &picked.spots {
        by_queue.entry(*queue).or_default().push(*id);
    }
    let parts = by_queue.iter().map(|(queue, ids)| amend_in(base, &picked.queues[*queue], ids, &deed));
    let parts = try_join_all(parts).await?;
    let mut done: BTreeMap<usize, _> =
        by_queue.keys().copied().zip(parts.into_iter().map(Vec::into_iter)).collect();
    let mut amended = Amended { next: picked.next, ..Amended::default() };
    for Spot { queue, id } in &picked.spots {
        let answer = done.get_mut(queue).and_then(Iterator::next);
        // What no longer fits was not meant: of refusals only those of a key's new holder are told.
        if let Some(answer @ (Done::Applied | Done::Refused(Refusal::Twin(_)))) = answer {
            note(&mut amended, *id, answer);
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
}

fn note(amended: &mut Amended, id: JobId, done: Done) {
    match done {
        Done::Applied => amended.applied += 1,
        Done::NotMeant => {}
        Done::Refused(refusal) => amended.refused.push((id, refusal)),
    }
}

async fn amend_in(base: &Base, queue: &QueueName, ids: &[JobId], deed: &Deed) -> Answer<Vec<Done>> {
    let mut done = Vec::with_capacity(ids.len());
    for slice in ids.chunks(JOBS_AT_ONCE) {
        let mut call = head(base, queue, deed);
        for id in slice {
            call.push(id.as_bytes());
        }
        let answer = base.link.run(DOING, &call).await?;
        let letters =
            readable(DOING, reply::all_bytes(answer).filter(|letters| letters.len() == slice.len()))?;
        for letter in letters {
            done.push(readable(DOING, read(&letter))?);
        }
    }
    Ok(done)
}

fn head(base: &Base, queue: &QueueName, deed: &Deed) -> ScriptCall {
    let mut call = base.script(&AMEND, queue).arg(deed.now.as_micros());
    call.push(&sortable(deed.now.as_micros()));
    call.push(match deed.action {
        Action::Retry => b"R",
        Action::Cancel => b"C",
        Action::Delete => b"D",
    });
    call.push(&State::ALL.map(|state| permitted(deed.action, state).map_or_else(letter_of, |()| b'A')));
    call.push(&deed.state.map(|state| vec![state_letter(state)]).unwrap_or_default());
    call.push(&[reason_letter(Some(Reason::Operator))]);
    call
}

const fn letter_of(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::NotFound | Refusal::Twin(_) => b'N',
        Refusal::Running => b'2',
        Refusal::Done => b'4',
        Refusal::Ready => b'1',
        Refusal::Ended => b'E',
    }
}

fn read(answer: &[u8]) -> Option<Done> {
    let refusal = match answer.first()? {
        b'A' => return Some(Done::Applied),
        b'-' => return Some(Done::NotMeant),
        b'N' => Refusal::NotFound,
        b'2' => Refusal::Running,
        b'4' => Refusal::Done,
        b'1' => Refusal::Ready,
        b'E' => Refusal::Ended,
        b'T' => Refusal::Twin(record::id_of(&answer[1..])?),
        _ => return None,
    };
    Some(Done::Refused(refusal))
}
