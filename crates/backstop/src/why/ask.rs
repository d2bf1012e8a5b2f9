//! Asking for what the answer needs.

use super::{DeadRecord, Facts, Why, why};
use crate::client::Backstop;
use crate::kinds;
use crate::streams::{Stream, letters_of};
use crate::workers::{LISTED, is_heard};
use backstop_core::port::{Answer, KeyHolder, WorkerStatus};
use backstop_core::stream::Standing;
use backstop_core::{Job, JobId, State, StreamKey, Time, WorkerName};
use serde::Deserialize;

/// Why a job does not run, with all there is to show of it.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Which job was asked about.
    pub id: JobId,
    /// The job, if there is one.
    pub job: Option<Job>,
    /// The one gate it stands before.
    pub why: Why,
}

impl Explained {
    /// What opens the gate, where something does: a command, or words.
    pub fn next_step(&self) -> Option<String> {
        self.why.next_step(self.job.as_ref())
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
    ) -> Answer<Explained> {
        match self.job(id).await? {
            Some(job) => self.why_of(job, max_attempts).await,
            None => Ok(Explained {
                id,
                job: None,
                why: Why::NotFound,
            }),
        }
    }

    /// Why a job that was found does not run, as [`Backstop::why`] tells it.
    pub async fn why_of(
        &self,
        job: Job,
        max_attempts: impl FnOnce(&Job) -> Option<u32>,
    ) -> Answer<Explained> {
        let (store, now) = (self.store(), self.current_time().await);
        let queues = store.queues(now).await?;
        let mut workers = store.workers(LISTED, now).await?;
        let holder = job.held_by.as_ref().map(|holder| &holder.worker);
        let holder_seen_at = workers
            .iter()
            .find(|worker| Some(&worker.name) == holder)
            .map(|worker| worker.seen_at);
        workers.retain(|worker| is_heard(worker, now));
        let guards = self.breakers().before(&job.queue, &job.kind).await?;
        let rate = self.rate_of(&job.queue).await?;
        let serving: Vec<_> = workers
            .iter()
            .filter(|worker| worker.queues.contains(&job.queue))
            .collect();
        let strangers = kinds::strangers(self, &serving, &job.queue, &job.kind).await?;
        let quiet = self.quiet(&serving, now).await?;
        let record = self.dead_record(&job).await?;
        let answer = why(Facts {
            job: Some(&job),
            queue: queues.iter().find(|queue| queue.name == job.queue),
            workers: &workers,
            holder_seen_at,
            guards: &guards,
            rate: rate.as_ref(),
            strangers: &strangers,
            quiet: &quiet,
            twin: self.twin(&job).await?,
            record: record.as_ref(),
            max_attempts: max_attempts(&job),
            now,
        });
        Ok(Explained {
            id: job.id,
            job: Some(job),
            why: answer.redacted(&self.redaction()),
        })
    }

    /// Those of `workers` that take no new jobs.
    async fn quiet(&self, workers: &[&WorkerStatus], now: Time) -> Answer<Vec<WorkerName>> {
        let workers = self
            .with_cards(workers.iter().map(|worker| (*worker).clone()).collect())
            .await?;
        let quiet = workers
            .into_iter()
            .filter(|worker| worker.health(now).takes_nothing());
        Ok(quiet.map(|worker| worker.status.name).collect())
    }

    /// Who holds the unique key of a job that has ended.
    async fn twin(&self, job: &Job) -> Answer<Option<KeyHolder>> {
        let Some(key) = job.unique_key.clone().filter(|_| job.state.is_final()) else {
            return Ok(None);
        };
        Ok(self
            .store()
            .holders(job.queue.clone(), vec![key], self.current_time().await)
            .await?
            .pop()
            .flatten())
    }

    /// The record behind a dead letter of a stream.
    async fn dead_record(&self, job: &Job) -> Answer<Option<DeadRecord>> {
        let stream = letters_of(&job.queue);
        let written = serde_json::from_slice::<Written>(job.payload.as_bytes()).ok();
        let (Some(stream), Some(Written { key, position }), State::Dead) =
            (stream, written, job.state)
        else {
            return Ok(None);
        };
        let stored = Stream::of(self.clone(), stream.clone()).key(&key).await?;
        let halted = stored.and_then(|stored| {
            let standing = Standing::from_bytes(&stored.standing).ok()?;
            standing
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
struct Written {
    key: StreamKey,
    position: i64,
}
