//! What is offered to choose from in the fields of the filter: names that are known, so that nobody
//! has to know them by heart. A list that the page carries; it needs no script, and what is not in
//! it can be typed all the same.

use crate::pages::PageView;
use backstop::workers::LISTED;
use backstop_core::Job;
use backstop_core::port::{QueueStatus, StoreResult};
use std::collections::BTreeSet;

const QUEUES_MAX: usize = 500;
const KINDS_MAX: usize = 200;
const WORKERS_MAX: usize = 200;

/// What is offered, by field.
#[derive(Default)]
pub(super) struct FilterSuggestions {
    pub(super) queues: Vec<String>,
    /// Of the jobs on the page, of what workers have handlers for, and of what the configuration
    /// enqueues.
    pub(super) kinds: Vec<String>,
    pub(super) workers: Vec<String>,
}

impl FilterSuggestions {
    pub(super) async fn of(
        view: &PageView,
        queues: &[QueueStatus],
        jobs: &[Job],
    ) -> StoreResult<Self> {
        let (backstop, config) = (view.app().backstop(), view.app().config());
        let known = backstop.known_kinds(KINDS_MAX).await?;
        let workers = view.store().workers(LISTED, view.now()).await?;
        let enqueued = config
            .schedules
            .values()
            .map(|schedule| schedule.kind.to_string());
        let kinds = jobs.iter().map(|job| job.kind.to_string());
        let kinds = kinds
            .chain(known.iter().map(ToString::to_string))
            .chain(enqueued)
            .take(KINDS_MAX);
        Ok(Self {
            queues: queues
                .iter()
                .take(QUEUES_MAX)
                .map(|queue| queue.name.to_string())
                .collect(),
            kinds: kinds.collect::<BTreeSet<_>>().into_iter().collect(),
            workers: workers
                .iter()
                .take(WORKERS_MAX)
                .map(|worker| worker.name.to_string())
                .collect(),
        })
    }
}
