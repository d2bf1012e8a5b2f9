//! Ids that were used before, for something else: whoever reuses a name would take their job for
//! pushed.

use crate::context::Context;
use crate::output::words::counted;
use backstop::core::limits::FIND_MAX;
use backstop::core::port::Answer;
use backstop::{Backstop, JobId, NewJob, Payload, QueueName};
use std::collections::BTreeMap;

/// Ids told one by one.
pub(super) const TOLD_MAX: usize = 20;

/// What was to be pushed under an id.
#[derive(Clone)]
pub(super) struct Meant {
    pub(super) id: JobId,
    queue: QueueName,
    payload: Payload,
}

impl Meant {
    pub(super) fn new(job: &NewJob) -> Self {
        Self {
            id: job.id,
            queue: job.queue.clone(),
            payload: job.payload.clone(),
        }
    }
}

/// Those whose id stands for a job with another payload, or in another queue. A job that is gone
/// meanwhile tells nothing.
pub(super) async fn others(backstop: &Backstop, meant: &[Meant]) -> Answer<Vec<JobId>> {
    let mut by_queue: BTreeMap<&QueueName, Vec<&Meant>> = BTreeMap::new();
    for one in meant {
        by_queue.entry(&one.queue).or_default().push(one);
    }
    let mut others = Vec::new();
    for (queue, meant) in by_queue {
        for part in meant.chunks(FIND_MAX) {
            let ids = part.iter().map(|one| one.id).collect();
            let found = backstop
                .store()
                .find(queue.clone(), ids, backstop.now())
                .await?;
            for (one, found) in part.iter().zip(found) {
                let is_other = match found {
                    Some(job) => job.payload != one.payload,
                    None => backstop.job(one.id).await?.is_some(),
                };
                if is_other {
                    others.push(one.id);
                }
            }
        }
    }
    Ok(others)
}

/// Says which, and that nothing was pushed for them.
pub(super) fn tell(some: &[JobId], count: u64, context: &Context) {
    let told = &some[..some.len().min(TOLD_MAX)];
    for id in told {
        context.output.warn(format!(
            "{id} stands for a job with another payload, or in another queue: nothing was pushed for it; `backstop job show {id}`"
        ));
    }
    let more = count - told.len() as u64;
    if more > 0 {
        context
            .output
            .warn(format!("… and {} more", counted(more, "id")));
    }
}
