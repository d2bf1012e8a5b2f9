//! Jobs in.

use crate::base::{Base, readable};
use crate::record::{self, MEMBER};
use crate::reply;
use crate::script::ENQUEUE;
use backstop_core::port::{Answer, Enqueued};
use backstop_core::{NewJob, QueueName, Time};
use futures_util::future::{try_join, try_join_all};
use redis::Value;
use std::collections::BTreeMap;

const DOING: &str = "enqueueing";
/// Jobs of one script: while it runs, the server does nothing else.
const JOBS_AT_ONCE: usize = 1_000;

/// A job, its arrival, and where its answer belongs.
struct Arrived<'a> {
    job: &'a NewJob,
    arrival: i64,
    at: usize,
}

/// Takes jobs in: queues side by side, the jobs of a queue in order.
pub(crate) async fn enqueue(base: &Base, jobs: &[NewJob], now: Time) -> Answer<Vec<Enqueued>> {
    base.guard.check(&base.link, DOING).await?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let arrivals = base.arrivals.draw(jobs.len(), base.link.clock_offset_micros());
    let mut queues: BTreeMap<&QueueName, Vec<Arrived<'_>>> = BTreeMap::new();
    for (at, (job, arrival)) in jobs.iter().zip(arrivals).enumerate() {
        queues.entry(&job.queue).or_default().push(Arrived { job, arrival, at });
    }
    let names: Vec<&QueueName> = queues.keys().copied().collect();
    let parts = queues.iter().map(|(queue, jobs)| enqueue_in(base, queue, jobs, now));
    let ((), parts) = try_join(base.register(DOING, &names), try_join_all(parts)).await?;
    let mut answers = vec![Enqueued::Same; jobs.len()];
    for (arrived, answer) in queues.values().flatten().zip(parts.into_iter().flatten()) {
        answers[arrived.at] = answer;
    }
    if answers.contains(&Enqueued::Inserted) {
        base.bell.ring();
    }
    Ok(answers)
}

async fn enqueue_in(
    base: &Base,
    queue: &QueueName,
    jobs: &[Arrived<'_>],
    now: Time,
) -> Answer<Vec<Enqueued>> {
    let mut answers = Vec::with_capacity(jobs.len());
    for slice in jobs.chunks(JOBS_AT_ONCE) {
        let mut call = base.script(&ENQUEUE, queue).arg(now.as_micros());
        for Arrived { job, arrival, .. } in slice {
            call.push(&record::member(*arrival, job.id));
            call.push(&record::pack(job, *arrival, now));
            call.push(&record::pack_payload(job));
        }
        let answer = base.link.run(DOING, &call).await?;
        answers.extend(readable(DOING, read(answer).filter(|answers| answers.len() == slice.len()))?);
    }
    Ok(answers)
}

fn read(answer: Value) -> Option<Vec<Enqueued>> {
    let mut parts = reply::list(answer)?.into_iter();
    let letters = reply::bytes(parts.next()?)?;
    let mut holder = || Some(Enqueued::Duplicate(record::id_of(&reply::bytes(parts.next()?)?)?));
    let answer = |letter: &u8| match letter {
        b'I' => Some(Enqueued::Inserted),
        b'S' => Some(Enqueued::Same),
        b'D' => holder(),
        _ => None,
    };
    letters.iter().map(answer).collect()
}

const _: () = assert!(MEMBER == 24, "scripts cut members by number");
