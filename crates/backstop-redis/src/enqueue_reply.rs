//! Reads the replies of the scripts that accept new jobs and dead letters.
//!
//! A job that an operator moved to another queue stays the same job for as long as that queue knows
//! it. The old queue remembers where the job went, and only the other queue can say whether it
//! still exists.

use crate::context::{StoreContext, readable};
use crate::moves::{check_which_exist, forget};
use crate::record::id_of;
use crate::reply;
use crate::script::ScriptCall;
use backstop_core::port::{EnqueueOutcome, StoreResult};
use backstop_core::{JobId, QueueName};
use redis::Value;

/// Sends jobs to a queue with the script call that `call` builds for the chosen ones; answers in
/// the order of the jobs.
pub(crate) async fn take_in(
    base: &StoreContext,
    doing: &'static str,
    queue: &QueueName,
    ids: &[JobId],
    call: impl Fn(&[usize]) -> ScriptCall,
) -> StoreResult<Vec<EnqueueOutcome>> {
    let all: Vec<usize> = (0..ids.len()).collect();
    let mut replies = ask(base, doing, queue, &call(&all), ids.len()).await?;
    let moved: Vec<(usize, JobId, QueueName)> = all
        .into_iter()
        .filter_map(|at| moved(&replies, ids, at))
        .collect();
    if moved.is_empty() {
        return Ok(replies.into_iter().map(JobReply::answer).collect());
    }
    let places: Vec<(JobId, QueueName)> =
        moved.iter().map(|(_, id, to)| (*id, to.clone())).collect();
    let is_known = check_which_exist(base, doing, &places).await?;
    let gone = |(place, is_known): (_, bool)| (!is_known).then_some(place);
    let forgotten: Vec<(JobId, QueueName)> = places
        .into_iter()
        .zip(is_known.clone())
        .filter_map(gone)
        .collect();
    if !forgotten.is_empty() {
        forget(base, doing, queue, &forgotten).await?;
        let again: Vec<usize> = moved
            .iter()
            .zip(is_known)
            .filter(|(_, is_known)| !is_known)
            .map(|((at, ..), _)| *at)
            .collect();
        let answers = ask(base, doing, queue, &call(&again), again.len()).await?;
        for (at, answer) in again.into_iter().zip(answers) {
            replies[at] = answer;
        }
    }
    Ok(replies.into_iter().map(JobReply::answer).collect())
}

/// The reply of a script for one job.
enum JobReply {
    Answered(EnqueueOutcome),
    /// The job is not here because it was moved to this queue.
    Moved(QueueName),
}

impl JobReply {
    fn answer(self) -> EnqueueOutcome {
        match self {
            Self::Answered(answer) => answer,
            Self::Moved(_) => EnqueueOutcome::Same,
        }
    }
}

fn moved(replies: &[JobReply], ids: &[JobId], at: usize) -> Option<(usize, JobId, QueueName)> {
    match &replies[at] {
        JobReply::Moved(to) => Some((at, ids[at], to.clone())),
        JobReply::Answered(_) => None,
    }
}

async fn ask(
    base: &StoreContext,
    doing: &'static str,
    queue: &QueueName,
    call: &ScriptCall,
    count: usize,
) -> StoreResult<Vec<JobReply>> {
    let answer = base.link.run(doing, call).await?;
    let (replies, is_new) = readable(
        doing,
        read(answer).filter(|(replies, _)| replies.len() == count),
    )?;
    if is_new {
        // Another process may have forgotten the queue just before this call, and may have removed
        // it from the registry after we entered it.
        base.register(doing, &[queue]).await?;
    }
    Ok(replies)
}

/// Decodes the reply for each job, and whether the queue was created by this call.
fn read(answer: Value) -> Option<(Vec<JobReply>, bool)> {
    let mut parts = reply::list(answer)?.into_iter();
    let letters = reply::bytes(parts.next()?)?;
    let parse_reply = |letter: &u8| {
        Some(match letter {
            b'I' => JobReply::Answered(EnqueueOutcome::Inserted),
            b'S' => JobReply::Answered(EnqueueOutcome::Same),
            b'F' => JobReply::Answered(EnqueueOutcome::Full),
            b'D' => JobReply::Answered(EnqueueOutcome::Duplicate(id_of(&reply::bytes(
                parts.next()?,
            )?)?)),
            b'M' => JobReply::Moved(QueueName::new(&reply::text(parts.next()?)?).ok()?),
            _ => return None,
        })
    };
    let replies = letters
        .iter()
        .map(parse_reply)
        .collect::<Option<Vec<JobReply>>>()?;
    let is_new = parts
        .next()
        .and_then(reply::bytes)
        .is_some_and(|word| word == b"new");
    Some((replies, is_new))
}
