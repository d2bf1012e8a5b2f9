//! How long runs took and how long their jobs waited, by queue and by kind: counted by whoever runs
//! jobs, kept in the store.
//!
//! A process counts in memory what ends in it and adds it to the store once a minute: a few calls,
//! however many jobs there were. What is added is merged with what others added, so that any number
//! of processes tell one story. What a process that is killed had not added yet, or what the store
//! did not take, is not in the charts; nothing else depends on it.
//!
//! | cell | what is in it | kept for |
//! |---|---|---|
//! | `spreads/roster` | queues and kinds that are followed, and the day they were last heard of | |
//! | `spreads/m/HOUR/SUBJECT` | a [`RunHistograms`] a minute | 25 hours |
//! | `spreads/h/DAY/SUBJECT` | a [`RunHistograms`] every half hour | 7 days |
//!
//! | subject | what it is | how many |
//! |---|---|---|
//! | `total` | all runs | |
//! | `q/QUEUE` | the runs of a queue | [`QUEUES_MAX`] |
//! | `k/QUEUE/KIND` | the runs of a kind in a queue | [`KINDS_MAX`] |
//!
//! Whoever was not heard of for a week makes room; what finds none is in the sums.
//!
//! A run of a worker elsewhere counts for its kind in the process that handed it out, if it ends
//! there and not too many others were handed out meanwhile. Whether it failed makes no difference
//! to that: shares of failures are true, of fewer runs.

mod cells;
mod tracked_queues;

pub use cells::RunTimeResolution;
pub use tracked_queues::{KINDS_MAX, QUEUES_MAX};

use crate::client::Backstop;
use backstop_core::histogram::RunHistograms;
use backstop_core::port::StoreResult;
use backstop_core::{JobId, Kind, LeaseNumber, QueueName, Span, Time};
use cells::RunTimeChanges;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracked_queues::TrackedQueues;

/// Minutes that are counted before they are added to the store; of more than these the oldest are
/// dropped.
const MINUTES_MAX: usize = 10;
/// Kinds that are told apart in a minute; the runs of others count for their queue alone.
const KINDS_APART_MAX: usize = 200;
/// Queues and kinds that are told apart in a minute; the runs of further queues count in the sum
/// alone.
const APART_MAX: usize = 1_000;
/// Runs handed to workers elsewhere that are remembered, twice over.
const LEASED_MAX: usize = 10_000;

/// Whose runs a histogram counts: all, those of a queue, or those of a kind in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RunTimeSubject {
    Total,
    Queue(QueueName),
    /// Those of a kind in a queue.
    Kind(QueueName, Kind),
}

pub(crate) struct RunSample<'a> {
    pub(crate) queue: &'a QueueName,
    /// `None` where it is not known: a run of a worker elsewhere that another server handed out.
    pub(crate) kind: Option<&'a Kind>,
    pub(crate) wait: Option<Span>,
    pub(crate) took: Span,
    pub(crate) failed: bool,
}

/// A run of a worker elsewhere that ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HttpRunLookup {
    /// Of this kind, after this wait.
    First(Kind, Span),
    /// It was told before: an end that is repeated counts once.
    Again,
    /// It was not handed out by this process, or long ago.
    Unknown,
}

/// What was counted in this process and not added to the store yet. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RunTimeCounter(Arc<Mutex<RunTimeCounts>>);

#[derive(Default)]
struct RunTimeCounts {
    minutes: BTreeMap<Time, RunTimeMinute>,
    leased: HashMap<(JobId, LeaseNumber), Option<(Kind, Span)>>,
    leased_before: HashMap<(JobId, LeaseNumber), Option<(Kind, Span)>>,
    cleaned_hour: Option<i64>,
}

/// What ended in a minute.
#[derive(Default)]
struct RunTimeMinute {
    apart: BTreeMap<(QueueName, Option<Kind>), RunHistograms>,
    /// What found no room there.
    others: RunHistograms,
}

impl RunTimeMinute {
    fn note(&mut self, sample: &RunSample<'_>) {
        let apart = &mut self.apart;
        let own = (sample.queue.clone(), sample.kind.cloned());
        let key = if apart.len() < KINDS_APART_MAX || apart.contains_key(&own) {
            own
        } else {
            (own.0, None)
        };
        let spread = if apart.len() < APART_MAX || apart.contains_key(&key) {
            apart.entry(key).or_default()
        } else {
            &mut self.others
        };
        spread.note(sample.wait, sample.took, sample.failed);
    }
}

impl RunTimeCounter {
    /// Counts a run that ended at `now`.
    pub(crate) fn note(&self, sample: &RunSample<'_>, now: Time) {
        let mut counts = self.lock_counts();
        let minute = RunTimeResolution::Minute.floor(now);
        let minutes = &mut counts.minutes;
        if !minutes.contains_key(&minute) && minutes.len() >= MINUTES_MAX {
            minutes.pop_first();
        }
        minutes.entry(minute).or_default().note(sample);
    }

    /// Remembers a run that was handed to a worker elsewhere: its ticket does not say of which kind
    /// it is.
    pub(crate) fn note_leased(&self, job: JobId, lease: LeaseNumber, kind: Kind, wait: Span) {
        let mut counts = self.lock_counts();
        if counts.leased.len() >= LEASED_MAX {
            counts.leased_before = std::mem::take(&mut counts.leased);
        }
        counts.leased.insert((job, lease), Some((kind, wait)));
    }

    /// What is known of such a run that ended.
    pub(crate) fn take_leased(&self, job: JobId, lease: LeaseNumber) -> HttpRunLookup {
        let mut counts = self.lock_counts();
        let RunTimeCounts {
            leased: handed,
            leased_before,
            ..
        } = &mut *counts;
        let known = handed
            .get_mut(&(job, lease))
            .or_else(|| leased_before.get_mut(&(job, lease)));
        match known.map(Option::take) {
            Some(Some((kind, wait))) => HttpRunLookup::First(kind, wait),
            Some(None) => HttpRunLookup::Again,
            None => HttpRunLookup::Unknown,
        }
    }

    /// What was counted since the last time.
    fn take(&self) -> BTreeMap<Time, RunTimeMinute> {
        std::mem::take(&mut self.lock_counts().minutes)
    }

    /// Whether this process has tidied in this hour.
    fn has_cleaned(&self, hour: i64) -> bool {
        self.lock_counts().cleaned_hour == Some(hour)
    }

    fn note_cleaned(&self, hour: i64) {
        self.lock_counts().cleaned_hour = Some(hour);
    }

    fn lock_counts(&self) -> MutexGuard<'_, RunTimeCounts> {
        // Counts and memories: any state of them is a good state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long runs took on a store.
#[derive(Clone, Copy)]
pub struct RunTimes<'a>(&'a Backstop);

impl Backstop {
    /// How long runs took, and how long their jobs waited.
    pub const fn run_times(&self) -> RunTimes<'_> {
        RunTimes(self)
    }
}

impl RunTimes<'_> {
    /// How it went from one time to another, both included, by minute or half hour.
    pub async fn of(
        self,
        subject: &RunTimeSubject,
        grain: RunTimeResolution,
        from: Time,
        until: Time,
    ) -> StoreResult<Vec<(Time, RunHistograms)>> {
        let mut read =
            cells::read(self.0, grain, std::slice::from_ref(subject), from, until).await?;
        Ok(read.pop().unwrap_or_default())
    }

    /// How it went with every kind that is followed, from one time to another; those without a run
    /// are left out.
    pub async fn kinds(
        self,
        grain: RunTimeResolution,
        from: Time,
        until: Time,
    ) -> StoreResult<Vec<(QueueName, Kind, RunHistograms)>> {
        let followed: Vec<(QueueName, Kind)> =
            cells::load_tracked(self.0).await?.tracked_kinds().collect();
        let subjects: Vec<RunTimeSubject> = followed
            .iter()
            .map(|(queue, kind)| RunTimeSubject::Kind(queue.clone(), kind.clone()))
            .collect();
        let read = cells::read(self.0, grain, &subjects, from, until).await?;
        let summed = followed.into_iter().zip(read).map(|((queue, kind), rows)| {
            let mut sum = RunHistograms::default();
            for (_, spread) in &rows {
                sum.merge(spread);
            }
            (queue, kind, sum)
        });
        Ok(summed.filter(|(_, _, spread)| spread.runs() > 0).collect())
    }

    /// Adds to the store what was counted in this process. Workers and servers do this by
    /// themselves, once a minute. What the store does not take is not counted: it may have taken
    /// it, and nothing is counted twice.
    pub async fn write(self) -> StoreResult<()> {
        let (tally, now) = (self.0.run_times_counter(), self.0.now());
        let counts = tally.take();
        if !counts.is_empty() {
            let heard = counts.values().flat_map(|minute| minute.apart.keys());
            let tracked = cells::track(self.0, &heard.cloned().collect(), now).await?;
            cells::add(self.0, &changes(&counts, &tracked)).await?;
        }
        let hour = RunTimeResolution::Minute.block_of(now);
        if !tally.has_cleaned(hour) && cells::remove_old(self.0, now).await? {
            tally.note_cleaned(hour);
        }
        Ok(())
    }
}

/// What is to be added to which cell.
fn changes(counts: &BTreeMap<Time, RunTimeMinute>, tracked: &TrackedQueues) -> RunTimeChanges {
    let mut changes = RunTimeChanges::default();
    for (at, minute) in counts {
        for ((queue, kind), spread) in &minute.apart {
            changes.add(&RunTimeSubject::Total, *at, spread);
            if tracked.tracks(queue) {
                changes.add(&RunTimeSubject::Queue(queue.clone()), *at, spread);
            }
            if let Some(kind) = kind
                .as_ref()
                .filter(|kind| tracked.tracks_kind(queue, kind))
            {
                changes.add(
                    &RunTimeSubject::Kind(queue.clone(), kind.clone()),
                    *at,
                    spread,
                );
            }
        }
        if minute.others.runs() > 0 {
            changes.add(&RunTimeSubject::Total, *at, &minute.others);
        }
    }
    changes
}

#[cfg(test)]
mod tests;
