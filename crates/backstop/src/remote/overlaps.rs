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

use super::Remote;
use super::settle::Judged;
use crate::engine::meters;
use crate::overlaps::Overlap;
use backstop_core::failure::Failure;
use backstop_core::limits::FIND_MAX;
use backstop_core::port::{Answer, Settled};
use backstop_core::{Job, JobId, QueueName, State};
use std::collections::BTreeMap;

/// An end that is told again is of the same run: looked for among so many that were written down
/// last.
const KNOWN_MAX: usize = 100;

impl Remote<'_> {
    /// Writes down which of these ends came from runs that another worker could have had the job
    /// of. Where the store does not take it, it is in the log.
    pub(super) async fn note_overlaps(&self, judged: &[Option<Judged>], settled: &[Settled]) {
        let told = judged.iter().flatten().zip(settled);
        let mut stale: BTreeMap<&QueueName, Vec<&Judged>> = BTreeMap::new();
        for (judged, _) in told.filter(|(_, answer)| **answer == Settled::Stale) {
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

    async fn note_overlaps_of(&self, queue: &QueueName, ends: &[&Judged]) -> Answer<()> {
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
        let found: Vec<Overlap> = found.collect();
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
            meters::overlapped(queue);
            self.backstop.note_overlap(&overlap).await?;
        }
        Ok(())
    }

    fn overlap(&self, end: &Judged, job: &Job) -> Option<Overlap> {
        let (lease, now) = (&end.settlement.lease, self.backstop.now());
        let loss: Option<Failure> = job.history.loss_of(lease.job, lease.number);
        let runs_again = job.state == State::Running && job.attempt == end.attempt;
        if loss.is_none() && !runs_again {
            return None;
        }
        Some(Overlap {
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
