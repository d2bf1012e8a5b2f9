//! What producers and workers saw, checked against what the store ended up with.
//!
//! Whoever takes part writes down what it does, outside the store under test. After the faults are
//! over and the backlog has drained, [`check`] looks for promises that were broken. Jobs must stay
//! listed for that: run with [`DoneRetention::Listed`](backstop_core::verdict::DoneRetention) and
//! without pruning.

mod check;
mod line;
mod log;
mod recorder;

pub use check::{FinalState, Violation, check};
pub use line::BadLine;
pub use log::{HistoryLog, Unreadable};
pub use recorder::Recorder;

use backstop_core::{JobId, LeaseNumber, Outcome, WorkerName};
use std::collections::BTreeSet;

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A producer handed a job in.
    Enqueued {
        /// The job.
        job: JobId,
        /// What the producer heard.
        heard: Heard,
    },
    /// The store gave a job out, or to whoever took it over.
    Granted {
        /// The job.
        job: JobId,
        /// Under which lease.
        lease: LeaseNumber,
    },
    /// A handler was called. Written before it does anything.
    Started {
        /// The job.
        job: JobId,
        /// The number of the run: 1 for the first.
        attempt: u32,
        /// Under which lease.
        lease: LeaseNumber,
        /// By whom.
        worker: WorkerName,
    },
    /// A handler came back. Written before anybody tells the store.
    Ended {
        /// The job.
        job: JobId,
        /// Under which lease.
        lease: LeaseNumber,
        /// How.
        ran: Ran,
    },
    /// The store accepted the end of a run.
    Settled {
        /// The job.
        job: JobId,
        /// Under which lease.
        lease: LeaseNumber,
        /// What was accepted.
        accepted: Accepted,
    },
}

/// What a producer heard from the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The job is in.
    Ok,
    /// Nothing, or an error: it may be in or not.
    Unknown,
}

/// How a handler came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// With success.
    Done,
    /// With an error.
    Failed,
    /// Called off before its end.
    Released,
    /// Finding that the work is not wanted.
    Cancelled,
}

/// An outcome without its details.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Accepted {
    /// The job succeeded.
    Done,
    /// It is tried again.
    Retry,
    /// It failed for good.
    Dead,
    /// It was called off.
    Cancelled,
    /// As if it had not run.
    Released,
    /// Its worker vanished; it runs again.
    Lost,
}

impl Accepted {
    /// Whether this ended the job.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }
}

impl From<&Outcome> for Accepted {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done(_) => Self::Done,
            Outcome::Retry { .. } => Self::Retry,
            Outcome::Dead { .. } => Self::Dead,
            Outcome::Cancelled { .. } => Self::Cancelled,
            Outcome::Released { .. } | Outcome::Reran { .. } => Self::Released,
            Outcome::Lost { .. } => Self::Lost,
        }
    }
}

/// All that was written down. Events of one log are in the order in which they happened; between
/// logs there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    logs: Vec<Vec<Event>>,
    /// The logs of processes that were killed.
    cut: BTreeSet<usize>,
}

impl History {
    /// A history of one log.
    pub fn of(events: Vec<Event>) -> Self {
        Self {
            logs: vec![events],
            cut: BTreeSet::new(),
        }
    }

    /// Adds the events of another log.
    pub fn add_log(&mut self, events: Vec<Event>) {
        self.logs.push(events);
    }

    /// Adds the events of a process that was killed: what it had begun may begin again, charged to
    /// the job or not.
    pub fn add_cut_log(&mut self, events: Vec<Event>) {
        self.cut.insert(self.logs.len());
        self.logs.push(events);
    }

    /// Whether this was written by a process that was killed.
    pub fn is_cut(&self, place: Place) -> bool {
        self.cut.contains(&place.log)
    }

    /// All events, each with the log it is from and its place in it.
    pub fn events(&self) -> impl Iterator<Item = (Place, &Event)> {
        self.logs.iter().enumerate().flat_map(|(log, events)| {
            events
                .iter()
                .enumerate()
                .map(move |(index, event)| (Place { log, index }, event))
        })
    }
}

/// Where an event is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    log: usize,
    index: usize,
}

impl Place {
    /// Whether what is written here is known to have happened before what is written at `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.log == other.log && self.index < other.index
    }

    /// Whether what is written here may have happened before what is written at `other`.
    pub const fn may_precede(self, other: Self) -> bool {
        self.log != other.log || self.index < other.index
    }
}

#[cfg(test)]
mod tests;
