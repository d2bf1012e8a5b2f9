//! What became of the jobs that were redriven.

use backstop_core::{Job, JobId, QueueName, State};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// A job that was redriven, or is about to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(super) struct Redriven {
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
enum Written {
    Found(JobId, u32, QueueName),
    Named(JobId, u32),
}

impl From<Written> for Redriven {
    fn from(written: Written) -> Self {
        match written {
            Written::Found(id, requeues, queue) => Self {
                id,
                requeues,
                queue: Some(queue),
            },
            Written::Named(id, requeues) => Self {
                id,
                requeues,
                queue: None,
            },
        }
    }
}

impl From<Redriven> for Written {
    fn from(
        Redriven {
            id,
            requeues,
            queue,
        }: Redriven,
    ) -> Self {
        match queue {
            Some(queue) => Self::Found(id, requeues, queue),
            None => Self::Named(id, requeues),
        }
    }
}

/// How a redriven job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Done,
    Died,
    Open,
}

impl Redriven {
    /// A letter of the one queue that was named, or one that was picked by its id alone.
    pub(super) const fn named(letter: &Job) -> Self {
        Self {
            id: letter.id,
            requeues: letter.requeues,
            queue: None,
        }
    }

    /// A letter that was found among those of all queues.
    pub(super) fn found(letter: &Job) -> Self {
        Self {
            queue: Some(letter.queue.clone()),
            ..Self::named(letter)
        }
    }

    /// How it stands, by what the store knows of it.
    pub(super) fn fate(&self, job: Option<&Job>) -> Fate {
        match job {
            None => Fate::Done,
            Some(job) if self.was_requeued_again(job) => Fate::Died,
            Some(job) => match job.state {
                State::Done => Fate::Done,
                State::Dead | State::Cancelled => Fate::Died,
                State::Scheduled | State::Ready | State::Running | State::Retrying => Fate::Open,
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
pub(super) struct Watch {
    known: BTreeSet<(JobId, Option<QueueName>)>,
    open: VecDeque<Redriven>,
    pub(super) done: u64,
    pub(super) died: u64,
}

impl Watch {
    /// Whether a job of this id was redriven: of the queue, where it was found by one.
    pub(super) fn knows(&self, id: JobId, queue: Option<&QueueName>) -> bool {
        self.known.contains(&(id, None)) || self.known.contains(&(id, queue.cloned()))
    }

    pub(super) fn knows_it(&self, redriven: &Redriven) -> bool {
        self.knows(redriven.id, redriven.queue.as_ref())
    }

    pub(super) fn add(&mut self, redriven: Redriven) {
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
    pub(super) fn next(&mut self) -> Option<Redriven> {
        self.open.pop_front()
    }

    /// What was found out about it.
    pub(super) fn found(&mut self, redriven: Redriven, fate: Fate) {
        match fate {
            Fate::Done => self.done += 1,
            Fate::Died => self.died += 1,
            Fate::Open => self.open.push_back(redriven),
        }
    }
}
