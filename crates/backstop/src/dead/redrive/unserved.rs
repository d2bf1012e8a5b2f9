//! Whether somebody will run what a redrive has requeued.

use super::RedriveReport;
use super::letters::JobSnapshot;
use crate::dead::DeadLetters;
use crate::why::LIVE_WITHIN;
use backstop_core::port::StoreResult;
use backstop_core::{JobState, QueueName};
use std::collections::BTreeSet;

/// Of the jobs that were requeued, so many of the latest are looked at.
const LOOKED_AT: usize = 100;

impl DeadLetters {
    /// The queues in which jobs of a redrive are ready and which no live worker serves.
    pub async fn unserved(&self, report: &RedriveReport) -> StoreResult<Vec<QueueName>> {
        if report.open == 0 {
            return Ok(Vec::new());
        }
        let latest = self.latest_redriven(&report.id, report.requeued).await?;
        let latest = &latest[latest.len().saturating_sub(LOOKED_AT)..];
        let mut queues = BTreeSet::new();
        for seen in self.read_each(report.plan.queue(), latest).await? {
            if let JobSnapshot::Job(Some(job)) = seen
                && job.state == JobState::Ready
            {
                queues.insert(job.queue);
            }
        }
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let workers = self
            .backstop
            .store()
            .workers(LIVE_WITHIN, self.backstop.current_time().await)
            .await?;
        queues.retain(|queue| !workers.iter().any(|worker| worker.queues.contains(queue)));
        Ok(queues.into_iter().collect())
    }
}
