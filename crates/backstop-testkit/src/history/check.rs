//! The promises, one function each. I1 to I8 are those of the fault plan, as far as they are about
//! jobs.

use super::{Accepted, Event, Heard, History, Ran};
use crate::given::try_list;
use backstop_core::amend::Filter;
use backstop_core::port::{QueueStatus, StateCounts, Store, StoreResult};
use backstop_core::verdict::EndReason;
use backstop_core::{Job, JobId, JobState, LeaseNumber, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What the store holds when everything is over.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FinalState {
    /// All jobs, as its list shows them.
    pub jobs: Vec<Job>,
    /// All queues.
    pub queues: Vec<QueueStatus>,
}

impl FinalState {
    /// Reads all of it.
    pub async fn read(store: &dyn Store, now: Time) -> StoreResult<Self> {
        let jobs = try_list(store, &Filter::default(), 1_000, now).await?;
        Ok(Self {
            jobs,
            queues: store.queues(now).await?,
        })
    }
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// I1: an acknowledged enqueue was lost.
    #[error("I1: job {0} was acknowledged, and is not there")]
    Missing(JobId),
    /// I1: a job is there more than once.
    #[error("I1: job {0} is there {1} times")]
    Doubled(JobId, usize),
    /// I1: nobody handed it in.
    #[error("I1: job {0} is there, and nobody handed it in")]
    Invented(JobId),
    /// I2: a job did not come to its end.
    #[error("I2: job {0} has not ended: it is {1}")]
    Unended(JobId, JobState),
    /// I3: more than one end of a job was accepted.
    #[error("I3: the end of job {0} was accepted {1} times, {2} would be right")]
    EndedTwice(JobId, usize, usize),
    /// I3: an end was accepted from somebody who no longer held the job.
    #[error("I3: the end of job {0} was accepted under lease {1}, and {2} was the current one")]
    Unfenced(JobId, LeaseNumber, LeaseNumber),
    /// I4: a job counts as done that no handler finished under that lease before.
    #[error("I4: job {0} is done under lease {1}, and no run under it had ended so")]
    DoneWithoutRun(JobId, LeaseNumber),
    /// I4: a job is done that no handler ever finished.
    #[error("I4: job {0} is done, and no run of it ended so")]
    NeverRan(JobId),
    /// I6: a lease was used for more than one run.
    #[error("I6: job {0} was started {2} times under lease {1}")]
    LeaseReused(JobId, LeaseNumber, usize),
    /// I6: a job was run more often than failures, losses and releases explain.
    #[error("I6: job {job} was started {starts} times, {explained} are explained")]
    Overrun {
        /// The job.
        job: JobId,
        /// How often it was started.
        starts: usize,
        /// How often it had reason to be.
        explained: usize,
    },
    /// I7: a counter differs from the rows.
    #[error("I7: queue {queue} counts {counted} {state}, and has {rows}")]
    Miscounted {
        /// The queue.
        queue: QueueName,
        /// Jobs in this state.
        state: JobState,
        /// What the counter says.
        counted: u64,
        /// What there is.
        rows: u64,
    },
    /// I8: a job is still held when nobody is left to hold it.
    #[error("I8: job {0} is still held after the drain")]
    StillHeld(JobId),
}

/// Every promise that was broken; empty if all were kept.
pub fn check(history: &History, found: &FinalState) -> Vec<Violation> {
    let stories = stories(history);
    let rows: BTreeMap<JobId, &Job> = found.jobs.iter().map(|job| (job.id, job)).collect();
    let mut violations = existence(&stories, found);
    for (id, story) in &stories {
        let Some(job) = rows.get(id) else { continue };
        violations.extend(ends(job));
        violations.extend(accepted_once(story, job));
        violations.extend(fenced(story, job));
        violations.extend(done_after_its_run(story, job));
        violations.extend(explained_starts(story, job));
    }
    violations.extend(counters(found));
    violations.extend(
        found
            .jobs
            .iter()
            .filter(|job| is_held(job))
            .map(|job| Violation::StillHeld(job.id)),
    );
    violations
}

/// What is known about one job, pulled together from all logs.
#[derive(Default)]
struct Story {
    heard_ok: bool,
    handed_in: bool,
    granted: Vec<(super::Place, LeaseNumber)>,
    starts: BTreeMap<LeaseNumber, usize>,
    /// Starts in processes that were killed. Whether a loss is charged depends on what else ran
    /// there.
    cut: usize,
    ended: BTreeMap<LeaseNumber, Vec<(super::Place, Ran)>>,
    settled: Vec<(super::Place, LeaseNumber, Accepted)>,
}

fn stories(history: &History) -> BTreeMap<JobId, Story> {
    let mut stories: BTreeMap<JobId, Story> = BTreeMap::new();
    for (place, event) in history.events() {
        match event {
            Event::Enqueued { job, heard } => {
                let story = stories.entry(*job).or_default();
                story.handed_in = true;
                story.heard_ok |= *heard == Heard::Ok;
            }
            Event::Granted { job, lease } => {
                stories
                    .entry(*job)
                    .or_default()
                    .granted
                    .push((place, *lease));
            }
            Event::Started { job, lease, .. } => {
                let story = stories.entry(*job).or_default();
                *story.starts.entry(*lease).or_default() += 1;
                story.cut += usize::from(history.is_cut(place));
            }
            Event::Ended { job, lease, ran } => {
                stories
                    .entry(*job)
                    .or_default()
                    .ended
                    .entry(*lease)
                    .or_default()
                    .push((place, *ran));
            }
            Event::Settled {
                job,
                lease,
                accepted,
            } => {
                stories
                    .entry(*job)
                    .or_default()
                    .settled
                    .push((place, *lease, *accepted));
            }
        }
    }
    stories
}

/// I1: what was acknowledged is there once, what is unknown at most once, and nothing else is.
fn existence(stories: &BTreeMap<JobId, Story>, found: &FinalState) -> Vec<Violation> {
    let mut copies: BTreeMap<JobId, usize> = BTreeMap::new();
    for job in &found.jobs {
        *copies.entry(job.id).or_default() += 1;
    }
    let acknowledged = stories
        .iter()
        .filter(|(_, story)| story.heard_ok)
        .map(|(id, _)| *id);
    let missing = acknowledged
        .filter(|id| !copies.contains_key(id))
        .map(Violation::Missing);
    let is_known = |id: &JobId| stories.get(id).is_some_and(|story| story.handed_in);
    let invented = copies
        .keys()
        .filter(|id| !is_known(id))
        .map(|id| Violation::Invented(*id));
    let doubled = copies.iter().filter(|(_, count)| **count > 1);
    let doubled = doubled.map(|(id, count)| Violation::Doubled(*id, *count));
    missing.chain(invented).chain(doubled).collect()
}

/// I2: after the drain every job has ended.
fn ends(job: &Job) -> Option<Violation> {
    (!job.state.is_final()).then_some(Violation::Unended(job.id, job.state))
}

/// I3: one end is accepted, and one more for each time an operator sent the job back; success only
/// once.
fn accepted_once(story: &Story, job: &Job) -> Option<Violation> {
    // A settlement that was repeated because its answer got lost is accepted twice and counts once.
    let ends: BTreeSet<(LeaseNumber, Accepted)> = story
        .settled
        .iter()
        .filter(|(_, _, accepted)| accepted.is_final())
        .map(|(_, lease, accepted)| (*lease, *accepted))
        .collect();
    let done = ends
        .iter()
        .filter(|(_, accepted)| *accepted == Accepted::Done)
        .count();
    let allowed = 1 + job.requeues as usize;
    if done > 1 {
        return Some(Violation::EndedTwice(job.id, done, 1));
    }
    (ends.len() > allowed).then_some(Violation::EndedTwice(job.id, ends.len(), allowed))
}

/// I3: only the lease given out last may end a run. Shown where whoever writes the settlements also
/// writes the grants.
fn fenced(story: &Story, job: &Job) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (settled, lease, _) in &story.settled {
        let current = story
            .granted
            .iter()
            .rfind(|(granted, _)| granted.is_before(*settled));
        if let Some((_, current)) = current.filter(|(_, current)| current != lease) {
            violations.push(Violation::Unfenced(job.id, *lease, *current));
        }
    }
    violations
}

/// I4: success is only ever the word of a handler that came back before, under that very lease.
fn done_after_its_run(story: &Story, job: &Job) -> Vec<Violation> {
    let done = story
        .settled
        .iter()
        .filter(|(_, _, accepted)| *accepted == Accepted::Done);
    let unfounded = done.filter(|(settled, lease, _)| {
        let ended = story.ended.get(lease).into_iter().flatten();
        !ended
            .into_iter()
            .any(|(place, ran)| *ran == Ran::Done && place.may_precede(*settled))
    });
    let mut violations: Vec<Violation> = unfounded
        .map(|(_, lease, _)| Violation::DoneWithoutRun(job.id, *lease))
        .collect();
    // The answer to the settlement may have got lost, so that nobody wrote it down: then some run
    // must have ended so.
    let ended_done = story
        .ended
        .values()
        .flatten()
        .any(|(_, ran)| *ran == Ran::Done);
    if job.state == JobState::Done && !ended_done && violations.is_empty() {
        violations.push(Violation::NeverRan(job.id));
    }
    violations
}

/// I6: a job starts once, and once more for each failure, loss, release and requeue; a lease is
/// good for one start.
fn explained_starts(story: &Story, job: &Job) -> Vec<Violation> {
    let reused = story.starts.iter().filter(|(_, count)| **count > 1);
    let mut violations: Vec<Violation> = reused
        .map(|(lease, count)| Violation::LeaseReused(job.id, *lease, *count))
        .collect();
    let starts: usize = story.starts.values().sum();
    let released = leases_that(story, Ran::Released, Accepted::Released);
    let failed = leases_that(story, Ran::Failed, Accepted::Retry).max(failures(job));
    let lost = (job.lost_leases as usize).max(story.cut);
    let explained = 1 + lost + failed + released + job.requeues as usize;
    if starts > explained {
        violations.push(Violation::Overrun {
            job: job.id,
            starts,
            explained,
        });
    }
    violations
}

/// Leases whose run ended so, or of which that was accepted, and which did not end the job: a next
/// run follows.
fn leases_that(story: &Story, ran: Ran, accepted: Accepted) -> usize {
    let mut leases: BTreeSet<LeaseNumber> = BTreeSet::new();
    for (lease, ends) in &story.ended {
        if ends.iter().any(|(_, end)| *end == ran) {
            leases.insert(*lease);
        }
    }
    leases.extend(
        story
            .settled
            .iter()
            .filter(|(_, _, what)| *what == accepted)
            .map(|(_, lease, _)| *lease),
    );
    for (_, lease, _) in story.settled.iter().filter(|(_, _, what)| what.is_final()) {
        leases.remove(lease);
    }
    leases.len()
}

/// Runs that ended by themselves and were followed by another one, as the job's own counter has it:
/// a failure of which neither the handler nor the worker lived to write is counted here.
fn failures(job: &Job) -> usize {
    let ended_by_a_run = match job.state {
        JobState::Done => true,
        JobState::Dead => job.reason != Some(EndReason::CrashedWorker),
        JobState::Cancelled => job.reason != Some(EndReason::Operator),
        _ => false,
    };
    (job.attempt as usize).saturating_sub(usize::from(ended_by_a_run))
}

/// I7: what the queues count is what there is.
fn counters(found: &FinalState) -> Vec<Violation> {
    let mut rows: BTreeMap<&QueueName, StateCounts> = BTreeMap::new();
    for job in &found.jobs {
        *rows.entry(&job.queue).or_default().of_mut(job.state) += 1;
    }
    let counted: BTreeMap<&QueueName, StateCounts> = found
        .queues
        .iter()
        .map(|status| (&status.name, status.counts))
        .collect();
    let queues: BTreeSet<&QueueName> = rows.keys().chain(counted.keys()).copied().collect();
    let of = |counts: &BTreeMap<&QueueName, StateCounts>, queue, state| {
        counts.get(queue).copied().unwrap_or_default().of(state)
    };
    queues
        .into_iter()
        .flat_map(|queue| JobState::ALL.map(|state| (queue, state)))
        .filter(|(queue, state)| of(&counted, *queue, *state) != of(&rows, *queue, *state))
        .map(|(queue, state)| Violation::Miscounted {
            queue: queue.clone(),
            state,
            counted: of(&counted, queue, state),
            rows: of(&rows, queue, state),
        })
        .collect()
}

/// I8: nobody holds anything.
fn is_held(job: &Job) -> bool {
    job.state == JobState::Running || job.held_by.is_some()
}
