//! What a script says of jobs that come in, alive or dead.
//!
//! A job that an operator moved to another queue is the same job for as long as it is known there:
//! its old queue remembers where it went, and only the other queue can say whether it is still
//! there.

use crate::base::{Base, readable};
use crate::moves::{forget, known};
use crate::record::id_of;
use crate::reply;
use crate::script::ScriptCall;
use backstop_core::port::{Answer, Enqueued};
use backstop_core::{JobId, QueueName};
use redis::Value;

/// Takes jobs into a queue by the call that is made of those chosen among them; answers in their
/// order.
pub(crate) async fn take_in(
    base: &Base,
    doing: &'static str,
    queue: &QueueName,
    ids: &[JobId],
    call: impl Fn(&[usize]) -> ScriptCall,
) -> Answer<Vec<Enqueued>> {
    let all: Vec<usize> = (0..ids.len()).collect();
    let mut said = ask(base, doing, queue, &call(&all), ids.len()).await?;
    let moved: Vec<(usize, JobId, QueueName)> = all
        .into_iter()
        .filter_map(|at| moved(&said, ids, at))
        .collect();
    if moved.is_empty() {
        return Ok(said.into_iter().map(Said::answer).collect());
    }
    let places: Vec<(JobId, QueueName)> =
        moved.iter().map(|(_, id, to)| (*id, to.clone())).collect();
    let is_known = known(base, doing, &places).await?;
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
            said[at] = answer;
        }
    }
    Ok(said.into_iter().map(Said::answer).collect())
}

/// What a script said of one job.
enum Said {
    Answered(Enqueued),
    /// It is not here because it was moved to this queue.
    Moved(QueueName),
}

impl Said {
    fn answer(self) -> Enqueued {
        match self {
            Self::Answered(answer) => answer,
            Self::Moved(_) => Enqueued::Same,
        }
    }
}

fn moved(said: &[Said], ids: &[JobId], at: usize) -> Option<(usize, JobId, QueueName)> {
    match &said[at] {
        Said::Moved(to) => Some((at, ids[at], to.clone())),
        Said::Answered(_) => None,
    }
}

async fn ask(
    base: &Base,
    doing: &'static str,
    queue: &QueueName,
    call: &ScriptCall,
    count: usize,
) -> Answer<Vec<Said>> {
    let answer = base.link.run(doing, call).await?;
    let (said, is_new) = readable(doing, read(answer).filter(|(said, _)| said.len() == count))?;
    if is_new {
        // Whoever forgot the queue just before this call may have taken it out of the registry
        // after it was entered.
        base.register(doing, &[queue]).await?;
    }
    Ok(said)
}

/// What became of each job, and whether the queue was not there before.
fn read(answer: Value) -> Option<(Vec<Said>, bool)> {
    let mut parts = reply::list(answer)?.into_iter();
    let letters = reply::bytes(parts.next()?)?;
    let said = |letter: &u8| {
        Some(match letter {
            b'I' => Said::Answered(Enqueued::Inserted),
            b'S' => Said::Answered(Enqueued::Same),
            b'F' => Said::Answered(Enqueued::Full),
            b'D' => Said::Answered(Enqueued::Duplicate(id_of(&reply::bytes(parts.next()?)?)?)),
            b'M' => Said::Moved(QueueName::new(&reply::text(parts.next()?)?).ok()?),
            _ => return None,
        })
    };
    let said = letters.iter().map(said).collect::<Option<Vec<Said>>>()?;
    let is_new = parts
        .next()
        .and_then(reply::bytes)
        .is_some_and(|word| word == b"new");
    Some((said, is_new))
}
