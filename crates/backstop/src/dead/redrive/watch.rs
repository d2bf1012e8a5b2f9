//! What became of the jobs that were redriven.

use backstop_core::{Job, JobId, JobState, QueueName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// A job that was redriven, or is about to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "StoredRedrivenJob", into = "StoredRedrivenJob")]
pub(super) struct RedrivenJob {
    pub(super) id: JobId,
    /// How often it had been requeued before.
    pub(super) requeues: u32,
    /// Its queue, where it was found without one being named: on Redis another may have a job of
    /// the same id.
    pub(super) queue: Option<QueueName>,
}

/// As the store keeps one: without a queue as ever.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredRedrivenJob {
    Found(JobId, u32, QueueName),
    Named(JobId, u32),
}

impl From<StoredRedrivenJob> for RedrivenJob {
    fn from(written: StoredRedrivenJob) -> Self {
        match written {
            StoredRedrivenJob::Found(id, requeues, queue) => Self {
                id,
                requeues,
                queue: Some(queue),
            },
            StoredRedrivenJob::Named(id, requeues) => Self {
                id,
                requeues,
                queue: None,
            },
        }
    }
}

impl From<RedrivenJob> for StoredRedrivenJob {
    fn from(
        RedrivenJob {
            id,
            requeues,
            queue,
        }: RedrivenJob,
    ) -> Self {
        match queue {
            Some(queue) => Self::Found(id, requeues, queue),
            None => Self::Named(id, requeues),
        }
    }
}

/// How a redriven job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RedrivenStatus {
    Done,
    Died,
    Open,
}

impl RedrivenJob {
    /// A letter of the one queue that was named, or one that was picked by its id alone.
    pub(super) const fn in_named_queue(letter: &Job) -> Self {
        Self {
            id: letter.id,
            requeues: letter.requeues,
            queue: None,
        }
    }

    /// A letter that was found among those of all queues.
    pub(super) fn in_own_queue(letter: &Job) -> Self {
        Self {
            queue: Some(letter.queue.clone()),
            ..Self::in_named_queue(letter)
        }
    }

    /// How it stands, by what the store knows of it.
    pub(super) fn status(&self, job: Option<&Job>) -> RedrivenStatus {
        match job {
            None => RedrivenStatus::Done,
            Some(job) if self.was_requeued_again(job) => RedrivenStatus::Died,
            Some(job) => match job.state {
                JobState::Done => RedrivenStatus::Done,
                JobState::Dead | JobState::Cancelled => RedrivenStatus::Died,
                JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Retrying => {
                    RedrivenStatus::Open
                }
            },
        }
    }

    /// Whether somebody requeued it once more: it must have died.
    pub(super) const fn was_requeued_again(&self, job: &Job) -> bool {
        job.requeues > self.requeues.saturating_add(1)
    }

    /// Whether it came back to life since it was written down.
    pub(super) fn was_requeued(&self, job: Option<&Job>) -> bool {
        job.is_none_or(|job| job.requeues > self.requeues)
    }
}

/// All redriven jobs of one redrive, by how they stand.
#[derive(Default)]
pub(super) struct RedriveWatch {
    known: BTreeSet<(JobId, Option<QueueName>)>,
    open: VecDeque<RedrivenJob>,
    pub(super) done: u64,
    pub(super) died: u64,
}

impl RedriveWatch {
    /// Whether a job of this id was redriven: of the queue, where it was found by one.
    pub(super) fn knows(&self, id: JobId, queue: Option<&QueueName>) -> bool {
        self.known.contains(&(id, None)) || self.known.contains(&(id, queue.cloned()))
    }

    pub(super) fn knows_it(&self, redriven: &RedrivenJob) -> bool {
        self.knows(redriven.id, redriven.queue.as_ref())
    }

    pub(super) fn add(&mut self, redriven: RedrivenJob) {
        if self.known.insert((redriven.id, redriven.queue.clone())) {
            self.open.push_back(redriven);
        }
    }

    /// All of them, ended or not.
    pub(super) fn total(&self) -> u64 {
        self.known.len() as u64
    }

    pub(super) fn open(&self) -> u64 {
        self.open.len() as u64
    }

    /// The one that was not looked at for longest.
    pub(super) fn next(&mut self) -> Option<RedrivenJob> {
        self.open.pop_front()
    }

    /// What was found out about it.
    pub(super) fn record(&mut self, redriven: RedrivenJob, fate: RedrivenStatus) {
        match fate {
            RedrivenStatus::Done => self.done += 1,
            RedrivenStatus::Died => self.died += 1,
            RedrivenStatus::Open => self.open.push_back(redriven),
        }
    }
}
