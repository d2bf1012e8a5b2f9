//! Enqueues jobs of one queue: encodes them for the script. `enqueue_batcher.rs` decides which
//! calls share a script call, and `enqueue_reply.rs` reads the reply.

use crate::context::StoreContext;
use crate::enqueue_reply::take_in;
use crate::record::{self, MEMBER_BYTES, reason_code};
use crate::script::{ENQUEUE, ScriptCall};
use backstop_core::bounds::DEAD_MAX_DEFAULT;
use backstop_core::port::{EnqueueOutcome, StoreResult};
use backstop_core::verdict::EndReason;
use backstop_core::{Fingerprint, JobId, JobState, NewJob, QueueName, Time};
use futures_util::future::try_join;
use std::collections::HashSet;

pub(crate) const DOING: &str = "enqueueing";
/// The most jobs of one script call: while a script runs, the server does nothing else.
pub(crate) const JOBS_AT_ONCE: usize = 1_000;

/// A job to enqueue, with its time and its arrival number.
#[derive(Clone, Copy)]
pub(crate) struct NumberedJob<'a> {
    pub(crate) job: &'a NewJob,
    pub(crate) now: Time,
    pub(crate) arrival: i64,
}

/// Enqueues jobs of one queue, in order.
pub(crate) async fn enqueue(
    base: &StoreContext,
    queue: &QueueName,
    jobs: &[NumberedJob<'_>],
) -> StoreResult<Vec<EnqueueOutcome>> {
    let ((), answers) =
        try_join(base.register(DOING, &[queue]), run_each(base, queue, jobs)).await?;
    if answers.contains(&EnqueueOutcome::Inserted) {
        base.notifier.notify();
    }
    Ok(answers)
}

async fn run_each(
    base: &StoreContext,
    queue: &QueueName,
    jobs: &[NumberedJob<'_>],
) -> StoreResult<Vec<EnqueueOutcome>> {
    let mut answers = Vec::with_capacity(jobs.len());
    for slice in jobs.chunks(JOBS_AT_ONCE) {
        let ids: Vec<JobId> = slice.iter().map(|handed| handed.job.id).collect();
        let call = |chosen: &[usize]| {
            let chosen: Vec<NumberedJob<'_>> = chosen.iter().map(|at| slice[*at]).collect();
            call(base, queue, &chosen)
        };
        answers.extend(take_in(base, DOING, queue, &ids, call).await?);
    }
    Ok(answers)
}

fn call(base: &StoreContext, queue: &QueueName, jobs: &[NumberedJob<'_>]) -> ScriptCall {
    let level = common_level(jobs).map_or_else(String::new, |level| level.to_string());
    let mut call = base
        .script(&ENQUEUE, queue)
        .arg(level)
        .arg(DEAD_MAX_DEFAULT);
    call.push(&[reason_code(Some(EndReason::Overflow))]);
    call.push(&record::fingerprint_bytes(Fingerprint::of_overflow()));
    for NumberedJob { job, now, arrival } in jobs {
        call.push(&record::member(*arrival, job.id));
        let packed = record::pack(job, *arrival, *now);
        call.push(&packed.record);
        call.push(&packed.payload);
    }
    call
}

/// The common level of these jobs, if the script can treat them all alike: each is ready, has no
/// unique key, has a distinct id, and arrived after the job before it.
fn common_level(jobs: &[NumberedJob<'_>]) -> Option<u8> {
    let level = jobs.first()?.job.priority.level();
    let is_plain = |NumberedJob { job, now, .. }: &NumberedJob<'_>| {
        job.unique.is_none()
            && job.priority.level() == level
            && job.first_state(*now) == JobState::Ready
    };
    let in_order = jobs.is_sorted_by(|one, next| one.arrival < next.arrival);
    (in_order && jobs.iter().all(is_plain) && are_distinct(jobs)).then_some(level)
}

fn are_distinct(jobs: &[NumberedJob<'_>]) -> bool {
    // Ids that were drawn one after the other are sorted, so the fast check usually succeeds.
    if jobs.is_sorted_by(|one, next| one.job.id < next.job.id) {
        return true;
    }
    let ids: HashSet<JobId> = jobs.iter().map(|handed| handed.job.id).collect();
    ids.len() == jobs.len()
}

const _: () = assert!(MEMBER_BYTES == 24, "scripts cut members by number");
