//! Ids that were used before, for something else: whoever reuses a name would take their job for
//! pushed.

use crate::context::CliContext;
use crate::output::words::counted;
use backstop::core::limits::FIND_MAX;
use backstop::core::port::StoreResult;
use backstop::{Backstop, JobId, NewJob, Payload, QueueName};
use std::collections::BTreeMap;

/// Ids told one by one.
pub(super) const SHOWN_MAX: usize = 20;

/// What was to be pushed under an id.
#[derive(Clone)]
pub(super) struct IntendedJob {
    pub(super) id: JobId,
    queue: QueueName,
    payload: Payload,
}

impl IntendedJob {
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
pub(super) async fn find(backstop: &Backstop, intended: &[IntendedJob]) -> StoreResult<Vec<JobId>> {
    let mut by_queue: BTreeMap<&QueueName, Vec<&IntendedJob>> = BTreeMap::new();
    for one in intended {
        by_queue.entry(&one.queue).or_default().push(one);
    }
    let mut others = Vec::new();
    for (queue, intended) in by_queue {
        for part in intended.chunks(FIND_MAX) {
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
pub(super) fn warn(ids: &[JobId], count: u64, context: &CliContext) {
    let shown = &ids[..ids.len().min(SHOWN_MAX)];
    for id in shown {
        context.output.warn(format!(
            "{id} stands for a job with another payload, or in another queue: nothing was pushed for it; `backstop job show {id}`"
        ));
    }
    let more = count - shown.len() as u64;
    if more > 0 {
        context
            .output
            .warn(format!("… and {} more", counted(more, "id")));
    }
}
