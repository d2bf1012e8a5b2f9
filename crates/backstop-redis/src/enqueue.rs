//! Jobs in: how a queue's script is told of them. Who waits together is decided in `group.rs`, and
//! what the script's answer means in `intake.rs`.

use crate::base::Base;
use crate::intake::take_in;
use crate::record::{self, MEMBER, reason_letter};
use crate::script::{ENQUEUE, ScriptCall};
use backstop_core::bounds::DEAD_MAX_USUAL;
use backstop_core::port::{Answer, Enqueued};
use backstop_core::verdict::Reason;
use backstop_core::{Fingerprint, JobId, NewJob, QueueName, State, Time};
use futures_util::future::try_join;
use std::collections::HashSet;

pub(crate) const DOING: &str = "enqueueing";
/// Jobs of one script: while it runs, the server does nothing else.
pub(crate) const JOBS_AT_ONCE: usize = 1_000;

/// A job that is handed in: when, and as the how-many-th of all.
#[derive(Clone, Copy)]
pub(crate) struct Handed<'a> {
    pub(crate) job: &'a NewJob,
    pub(crate) now: Time,
    pub(crate) arrival: i64,
}

/// Takes jobs of one queue in, in order.
pub(crate) async fn enqueue(
    base: &Base,
    queue: &QueueName,
    jobs: &[Handed<'_>],
) -> Answer<Vec<Enqueued>> {
    let ((), answers) =
        try_join(base.register(DOING, &[queue]), run_each(base, queue, jobs)).await?;
    if answers.contains(&Enqueued::Inserted) {
        base.bell.ring();
    }
    Ok(answers)
}

async fn run_each(base: &Base, queue: &QueueName, jobs: &[Handed<'_>]) -> Answer<Vec<Enqueued>> {
    let mut answers = Vec::with_capacity(jobs.len());
    for slice in jobs.chunks(JOBS_AT_ONCE) {
        let ids: Vec<JobId> = slice.iter().map(|handed| handed.job.id).collect();
        let call = |chosen: &[usize]| {
            let chosen: Vec<Handed<'_>> = chosen.iter().map(|at| slice[*at]).collect();
            call(base, queue, &chosen)
        };
        answers.extend(take_in(base, DOING, queue, &ids, call).await?);
    }
    Ok(answers)
}

fn call(base: &Base, queue: &QueueName, jobs: &[Handed<'_>]) -> ScriptCall {
    let level = common_level(jobs).map_or_else(String::new, |level| level.to_string());
    let mut call = base.script(&ENQUEUE, queue).arg(level).arg(DEAD_MAX_USUAL);
    call.push(&[reason_letter(Some(Reason::Overflow))]);
    call.push(&record::fingerprint_bytes(Fingerprint::of_overflow()));
    for Handed { job, now, arrival } in jobs {
        call.push(&record::member(*arrival, job.id));
        let packed = record::pack(job, *arrival, *now);
        call.push(&packed.record);
        call.push(&packed.payload);
    }
    call
}

/// The level of all these jobs, if the script has nothing to tell apart: each is ready, has no key,
/// and an id of its own, and stands behind those that arrived before it.
fn common_level(jobs: &[Handed<'_>]) -> Option<u8> {
    let level = jobs.first()?.job.priority.level();
    let is_plain = |Handed { job, now, .. }: &Handed<'_>| {
        job.unique.is_none()
            && job.priority.level() == level
            && job.first_state(*now) == State::Ready
    };
    let in_order = jobs.is_sorted_by(|one, next| one.arrival < next.arrival);
    (in_order && jobs.iter().all(is_plain) && are_distinct(jobs)).then_some(level)
}

fn are_distinct(jobs: &[Handed<'_>]) -> bool {
    // Ids that were made one after the other sort that way.
    if jobs.is_sorted_by(|one, next| one.job.id < next.job.id) {
        return true;
    }
    let ids: HashSet<JobId> = jobs.iter().map(|handed| handed.job.id).collect();
    ids.len() == jobs.len()
}

const _: () = assert!(MEMBER == 24, "scripts cut members by number");
