//! Asking for what the answer needs.

use super::{DeadRecord, JobExplanation, JobFacts, explain_job};
use crate::client::Backstop;
use crate::streams::{Stream, dead_letter_stream};
use crate::worker_kinds;
use crate::workers::{LISTED, is_heard};
use backstop_core::port::{StoreResult, UniqueKeyHolder, WorkerStatus};
use backstop_core::stream::KeyState;
use backstop_core::{Job, JobId, JobState, StreamKey, Time, WorkerName};
use serde::Deserialize;

/// Why a job does not run, with all there is to show of it.
#[derive(Clone, Debug)]
pub struct ExplainedJob {
    /// Which job was asked about.
    pub id: JobId,
    /// The job, if there is one.
    pub job: Option<Job>,
    /// The one gate it stands before.
    pub explanation: JobExplanation,
}

impl ExplainedJob {
    /// What opens the gate, where something does: a command, or words.
    pub fn next_step(&self) -> Option<String> {
        self.explanation.next_step(self.job.as_ref())
    }
}

impl Backstop {
    /// Why a job does not run. `max_attempts` tells how many runs the job may have: its own policy
    /// says so, or whoever serves its queue. Errors of handlers are shown with their secrets
    /// hidden.
    pub async fn why(
        &self,
        id: JobId,
        max_attempts: impl FnOnce(&Job) -> Option<u32>,
    ) -> StoreResult<ExplainedJob> {
        match self.job(id).await? {
            Some(job) => self.explain_loaded(job, max_attempts).await,
            None => Ok(ExplainedJob {
                id,
                job: None,
                explanation: JobExplanation::NotFound,
            }),
        }
    }

    /// Why a job that was found does not run, as [`Backstop::why`] tells it.
    pub async fn explain_loaded(
        &self,
        job: Job,
        max_attempts: impl FnOnce(&Job) -> Option<u32>,
    ) -> StoreResult<ExplainedJob> {
        let (store, now) = (self.store(), self.current_time().await);
        let queues = store.queues(now).await?;
        let mut workers = store.workers(LISTED, now).await?;
        let holder = job.held_by.as_ref().map(|holder| &holder.worker);
        let holder_seen_at = workers
            .iter()
            .find(|worker| Some(&worker.name) == holder)
            .map(|worker| worker.seen_at);
        workers.retain(|worker| is_heard(worker, now));
        let guards = self.breakers().list_for(&job.queue, &job.kind).await?;
        let rate = self.rate_of(&job.queue).await?;
        let serving: Vec<_> = workers
            .iter()
            .filter(|worker| worker.queues.contains(&job.queue))
            .collect();
        let strangers =
            worker_kinds::workers_without_handler(self, &serving, &job.queue, &job.kind).await?;
        let quiet = self.quiet_workers(&serving, now).await?;
        let record = self.dead_record(&job).await?;
        let answer = explain_job(JobFacts {
            job: Some(&job),
            queue: queues.iter().find(|queue| queue.name == job.queue),
            workers: &workers,
            holder_seen_at,
            breakers: &guards,
            rate: rate.as_ref(),
            workers_without_handler: &strangers,
            quiet: &quiet,
            key_holder: self.unique_key_holder(&job).await?,
            record: record.as_ref(),
            max_attempts: max_attempts(&job),
            now,
        });
        Ok(ExplainedJob {
            id: job.id,
            job: Some(job),
            explanation: answer.redacted(&self.redaction()),
        })
    }

    /// Those of `workers` that take no new jobs.
    async fn quiet_workers(
        &self,
        workers: &[&WorkerStatus],
        now: Time,
    ) -> StoreResult<Vec<WorkerName>> {
        let workers = self
            .with_heartbeats(workers.iter().map(|worker| (*worker).clone()).collect())
            .await?;
        let quiet = workers
            .into_iter()
            .filter(|worker| worker.health(now).takes_nothing());
        Ok(quiet.map(|worker| worker.status.name).collect())
    }

    /// Who holds the unique key of a job that has ended.
    async fn unique_key_holder(&self, job: &Job) -> StoreResult<Option<UniqueKeyHolder>> {
        let Some(key) = job.unique_key.clone().filter(|_| job.state.is_final()) else {
            return Ok(None);
        };
        Ok(self
            .store()
            .unique_holders(job.queue.clone(), vec![key], self.current_time().await)
            .await?
            .pop()
            .flatten())
    }

    /// The record behind a dead letter of a stream.
    async fn dead_record(&self, job: &Job) -> StoreResult<Option<DeadRecord>> {
        let stream = dead_letter_stream(&job.queue);
        let identity = serde_json::from_slice::<EventIdentity>(job.payload.as_bytes()).ok();
        let (Some(stream), Some(EventIdentity { key, position }), JobState::Dead) =
            (stream, identity, job.state)
        else {
            return Ok(None);
        };
        let stored = Stream::of(self.clone(), stream.clone()).key(&key).await?;
        let halted = stored.and_then(|stored| {
            let state = KeyState::from_bytes(&stored.state).ok()?;
            state
                .halted
                .filter(|at| *at == position)
                .map(|_| stored.count.saturating_sub(1))
        });
        Ok(Some(DeadRecord {
            stream,
            key,
            position,
            halted,
        }))
    }
}

/// What of an event says which record it is.
#[derive(Deserialize)]
struct EventIdentity {
    key: StreamKey,
    position: i64,
}
