//! Jobs as an operator sees them.

use crate::base::{Base, readable};
use crate::lines::Spot;
use crate::record::{self, Record, state_of};
use crate::reply;
use crate::script::{FETCH, LOOK, Script};
use backstop_core::job::Holder;
use backstop_core::port::Answer;
use backstop_core::{Job, JobId, Kind, QueueName, State, Time, WorkerName};
use redis::Value;
use std::collections::BTreeMap;

/// Jobs of one script that reads whole jobs, payloads and all.
const WHOLE_AT_ONCE: usize = 100;
/// Jobs of one script that reads what a filter asks about.
const LOOKS_AT_ONCE: usize = 1_000;

/// One job, whichever queue it is in.
pub(crate) async fn job(base: &Base, id: JobId) -> Answer<Option<Job>> {
    let doing = "reading a job";
    let queues = base.queues(doing).await?;
    let spots: Vec<Spot> = (0..queues.len()).map(|queue| Spot { queue, id }).collect();
    Ok(jobs_at(base, doing, &queues, &spots).await?.into_iter().next())
}

/// The jobs at these spots, in their order; those that are gone are left out.
pub(crate) async fn jobs_at(
    base: &Base,
    doing: &'static str,
    queues: &[QueueName],
    spots: &[Spot],
) -> Answer<Vec<Job>> {
    let answers = each_at(base, doing, &FETCH, WHOLE_AT_ONCE, queues, spots).await?;
    let mut jobs = Vec::with_capacity(spots.len());
    for (spot, answer) in spots.iter().zip(answers) {
        jobs.extend(job_of(doing, &queues[spot.queue], spot.id, answer)?);
    }
    Ok(jobs)
}

/// The state and kind of the jobs at these spots.
pub(crate) async fn look_at(
    base: &Base,
    doing: &'static str,
    queues: &[QueueName],
    spots: &[Spot],
) -> Answer<Vec<Option<(State, Kind)>>> {
    let answers = each_at(base, doing, &LOOK, LOOKS_AT_ONCE, queues, spots).await?;
    answers.into_iter().map(|answer| look_of(doing, answer)).collect()
}

/// What a script answers for each of these spots, in their order.
async fn each_at(
    base: &Base,
    doing: &'static str,
    script: &'static Script,
    at_once: usize,
    queues: &[QueueName],
    spots: &[Spot],
) -> Answer<Vec<Value>> {
    let mut by_queue: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, spot) in spots.iter().enumerate() {
        by_queue.entry(spot.queue).or_default().push(at);
    }
    let slices: Vec<(usize, &[usize])> = by_queue
        .iter()
        .flat_map(|(queue, ats)| ats.chunks(at_once).map(move |slice| (*queue, slice)))
        .collect();
    let calls = slices.iter().map(|(queue, slice)| {
        let mut call = base.script(script, &queues[*queue]);
        for at in *slice {
            call.push(spots[*at].id.as_bytes());
        }
        call
    });
    let answers = base.run_each(doing, calls.collect()).await?;
    let mut each = vec![Value::Nil; spots.len()];
    for ((_, slice), answer) in slices.iter().zip(answers) {
        for (at, answer) in slice.iter().zip(readable(doing, reply::list(answer))?) {
            each[*at] = answer;
        }
    }
    Ok(each)
}

fn job_of(doing: &'static str, queue: &QueueName, id: JobId, answer: Value) -> Answer<Option<Job>> {
    let parts = readable(doing, reply::list(answer))?;
    if parts.is_empty() {
        return Ok(None);
    }
    readable(doing, read_job(queue, id, parts)).map(Some)
}

fn read_job(queue: &QueueName, id: JobId, parts: Vec<Value>) -> Option<Job> {
    let mut parts = parts.into_iter();
    let record = Record::parse(&reply::bytes(parts.next()?)?)?;
    let payload = parts.next().and_then(reply::bytes).unwrap_or_else(|| record::NO_PAYLOAD.to_vec());
    let history = parts.next().and_then(reply::bytes);
    let worker = parts.next().and_then(reply::text);
    let until = parts.next().and_then(reply::whole);
    let holder = worker
        .zip(until)
        .map(|(worker, until)| Holder { worker: WorkerName::new(&worker), until: Time::from_micros(until) });
    record.view(queue, id, payload, history, holder)
}

fn look_of(doing: &'static str, answer: Value) -> Answer<Option<(State, Kind)>> {
    if answer == Value::Nil {
        return Ok(None);
    }
    readable(doing, reply::text(answer).and_then(|seen| read_look(&seen))).map(Some)
}

fn read_look(seen: &str) -> Option<(State, Kind)> {
    let (state, kind) = seen.split_at_checked(1)?;
    Some((state_of(state.as_bytes()[0])?, Kind::new(kind).ok()?))
}
