//! What became of the jobs that were redriven.

use backstop_core::{Job, JobId, State};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// A job that was redriven, or is about to be: its id, and how often it had been requeued before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Redriven(pub(super) JobId, pub(super) u32);

/// How a redriven job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Done,
    Died,
    Open,
}

impl Redriven {
    /// A letter that is about to be redriven.
    pub(super) const fn of(letter: &Job) -> Self {
        Self(letter.id, letter.requeues)
    }

    /// How it stands, by what the store knows of it.
    pub(super) fn fate(self, job: Option<&Job>) -> Fate {
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
    pub(super) const fn was_requeued_again(self, job: &Job) -> bool {
        job.requeues > self.1.saturating_add(1)
    }

    /// Whether it came back to life since it was written down.
    pub(super) fn was_requeued(self, job: Option<&Job>) -> bool {
        job.is_none_or(|job| job.requeues > self.1)
    }
}

/// All redriven jobs of one redrive, by how they stand.
#[derive(Default)]
pub(super) struct Watch {
    known: BTreeSet<JobId>,
    open: VecDeque<Redriven>,
    pub(super) done: u64,
    pub(super) died: u64,
}

impl Watch {
    pub(super) fn knows(&self, id: JobId) -> bool {
        self.known.contains(&id)
    }

    pub(super) fn add(&mut self, redriven: Redriven) {
        if self.known.insert(redriven.0) {
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
