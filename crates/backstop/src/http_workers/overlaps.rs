//! Runs elsewhere that went on after their lease was over. All that is known of them is that their
//! end is stale, so:
//!
//! | the end is stale, and the job's history … | then |
//! |---|---|
//! | says that this very lease was lost | it is written down: another worker could have had the job since |
//! | says nothing of that lease, and the job runs again, as the same attempt | it is written down: it was taken over without being charged |
//! | says nothing of that lease, and the job does not run | nothing: it was called off, or its end was told before in other words |
//!
//! A worker that dies, or never tells how its run ended, is not seen; nor is a job that is gone.

use super::HttpWorkers;
use super::settle::JudgedEnd;
use crate::engine::metrics;
use crate::overlaps::RunOverlap;
use backstop_core::failure::FailureRecord;
use backstop_core::limits::FIND_MAX;
use backstop_core::port::{SettleOutcome, StoreResult};
use backstop_core::{Job, JobId, JobState, QueueName};
use std::collections::BTreeMap;

/// An end that is told again is of the same run: looked for among so many that were written down
/// last.
const KNOWN_MAX: usize = 100;

impl HttpWorkers<'_> {
    /// Writes down which of these ends came from runs that another worker could have had the job
    /// of. Where the store does not take it, it is in the log.
    pub(super) async fn note_overlaps(
        &self,
        judged: &[Option<JudgedEnd>],
        settled: &[SettleOutcome],
    ) {
        let answered = judged.iter().flatten().zip(settled);
        let mut stale: BTreeMap<&QueueName, Vec<&JudgedEnd>> = BTreeMap::new();
        for (judged, _) in answered.filter(|(_, answer)| **answer == SettleOutcome::Stale) {
            stale
                .entry(&judged.settlement.lease.queue)
                .or_default()
                .push(judged);
        }
        for (queue, ends) in stale {
            for ends in ends.chunks(FIND_MAX) {
                if let Err(error) = self.note_overlaps_of(queue, ends).await {
                    tracing::warn!(%error, %queue, "whether stale ends were of runs beside others could not be looked up or written down");
                }
            }
        }
    }

    async fn note_overlaps_of(&self, queue: &QueueName, ends: &[&JudgedEnd]) -> StoreResult<()> {
        let ids: Vec<JobId> = ends.iter().map(|end| end.settlement.lease.job).collect();
        let jobs = self
            .backstop
            .store()
            .find(queue.clone(), ids, self.backstop.now())
            .await?;
        let found = ends
            .iter()
            .zip(jobs)
            .filter_map(|(end, job)| self.overlap(end, &job?));
        let found: Vec<RunOverlap> = found.collect();
        let known = if found.is_empty() {
            Vec::new()
        } else {
            self.backstop.overlaps(KNOWN_MAX).await?
        };
        for overlap in found {
            if known
                .iter()
                .any(|known| known.job == overlap.job && known.lease == overlap.lease)
            {
                continue;
            }
            tracing::warn!(job = %overlap.job, %queue, "two runs of this job may have been alive together");
            metrics::count_overlap(queue);
            self.backstop.note_overlap(&overlap).await?;
        }
        Ok(())
    }

    fn overlap(&self, end: &JudgedEnd, job: &Job) -> Option<RunOverlap> {
        let (lease, now) = (&end.settlement.lease, self.backstop.now());
        let loss: Option<FailureRecord> = job.history.loss_of(lease.job, lease.number);
        let runs_again = job.state == JobState::Running && job.attempt == end.attempt;
        if loss.is_none() && !runs_again {
            return None;
        }
        Some(RunOverlap {
            job: lease.job,
            queue: lease.queue.clone(),
            kind: job.kind.clone(),
            worker: loss
                .as_ref()
                .map_or_else(|| "unknown".to_owned(), |loss| loss.worker.clone()),
            lease: lease.number.to_string(),
            began_at: end.began_at,
            noticed_at: loss.map_or(now, |loss| loss.at),
            ended_at: now,
        })
    }
}
