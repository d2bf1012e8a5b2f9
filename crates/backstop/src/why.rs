//! Why a job does not run: one answer, naming the one gate it stands before.
//!
//! [`explain_job`] is a function of what an operator can read; it asks nothing and changes nothing.
//! [`Backstop::why`] asks for what it needs. Records that a stream holds have an answer of their
//! own, in [`record`].
//!
//! [`Backstop::why`]: crate::Backstop::why

mod explain;
pub mod record;
pub(crate) mod render;

pub use explain::ExplainedJob;

use crate::breakers::{BreakerInfo, BreakerName};
use crate::engine::execute::UNKNOWN_KIND_WAIT;
use crate::rate_limits::RateStatus;
use crate::worker::WorkerTiming;
use backstop_core::blame::find_lost_workers;
use backstop_core::breaker::BreakerAdmission;
use backstop_core::gate::ShutReason;
use backstop_core::job::Claimant;
use backstop_core::port::{QueueState, QueueStatus, UniqueKeyHolder, WorkerStatus};
use backstop_core::rate::{BACK_MIN, RateLimit};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{Job, JobId, JobState, Kind, Span, StreamKey, StreamName, Time, WorkerName};

/// A worker whose last sign of life is older than this counts as gone. The usual lease makes
/// workers beat every five seconds.
pub const LIVE_WITHIN: Span = Span::secs(30);

/// What is known about a job and its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct JobFacts<'a> {
    /// The job, if there is one.
    pub job: Option<&'a Job>,
    /// Its queue, if it has a status.
    pub queue: Option<&'a QueueStatus>,
    /// All workers that beat within [`LIVE_WITHIN`].
    pub workers: &'a [WorkerStatus],
    /// When the worker that has the job last gave a sign of life, if it was within the hour.
    pub holder_seen_at: Option<Time>,
    /// The breakers and gates that stand before it.
    pub breakers: &'a [BreakerInfo],
    /// The rate limit of its queue, if it has one.
    pub rate: Option<&'a RateStatus>,
    /// Live workers that serve its queue and said that they have no handler for its kind.
    pub workers_without_handler: &'a [WorkerName],
    /// Live workers that serve its queue and take no new jobs, because they were asked not to, or
    /// stop.
    pub quiet: &'a [WorkerName],
    /// Another job that holds its unique key, if one does.
    pub key_holder: Option<UniqueKeyHolder>,
    /// The record of a stream that it is the dead letter of, if it is.
    pub record: Option<&'a DeadRecord>,
    /// All runs the job may have; `None` if only its age ends it.
    pub max_attempts: Option<u32>,
    pub now: Time,
}

/// The record of a stream behind a dead letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadRecord {
    pub stream: StreamName,
    pub key: StreamKey,
    pub position: i64,
    /// Records of the key that wait behind it because it halted the key; none if the key went on.
    pub halted: Option<u64>,
}

/// A worker that has a job and is late with its heartbeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerSilence {
    /// When it last gave a sign of life.
    pub seen_at: Time,
    /// How long ago that is.
    pub lasts: Span,
    /// The latest time at which the job runs again if the worker stays silent, and another one is
    /// free.
    pub reruns_by: Time,
}

/// Why a job does not run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobExplanation {
    /// There is no such job.
    NotFound,
    /// Its queue gives nothing out.
    Paused {
        /// When it would be due, if that is still to come.
        due: Option<Time>,
    },
    /// The service behind its queue is left alone: it failed too often.
    BreakerOpen {
        /// When it is tried again; `None` if somebody opened the breaker, and must reset it.
        until: Option<Time>,
    },
    /// Jobs of its kind are not started: too many died, or their dead letters are full.
    GateShut {
        gate: String,
        shut: ShutReason,
        /// How many dead letters its queue has, and may have.
        dead: Option<(u64, u64)>,
        /// When one of them is tried again; `None` if somebody shut the gate, and must reset it.
        until: Option<Time>,
    },
    /// Its queue is over its rate limit.
    RateLimited {
        /// When it is looked at again, or there is room.
        until: Time,
        limit: RateLimit,
    },
    /// Its time is yet to come.
    NotDue {
        at: Time,
    },
    /// It failed, and waits for its next try.
    Retrying {
        /// The number of its next run.
        attempt: u32,
        /// All runs it may have.
        max_attempts: Option<u32>,
        at: Time,
        error: Option<String>,
    },
    Running {
        worker: WorkerName,
        /// When that one claimed it, where it was written down.
        since: Option<Time>,
        /// The end of the lease, unless the worker beats.
        until: Time,
        /// So many workers vanished with it lately: it begins there when no other such job runs.
        strikes: u64,
        /// Its worker is late with its heartbeats.
        silence: Option<WorkerSilence>,
    },
    /// It ran, and its worker gives no sign of life.
    Lost {
        worker: WorkerName,
        since: Time,
    },
    NoWorker,
    /// Workers serve its queue, and none of them takes new jobs.
    Quiet {
        /// So many workers serve its queue.
        workers: u64,
        first: WorkerName,
    },
    /// Workers serve its queue, and none of them has a handler for its kind.
    UnknownKind {
        kind: Kind,
        /// So many workers serve its queue.
        workers: u64,
    },
    /// Workers serve its queue; but it lost some lately, and each of them runs one such job at a
    /// time.
    Suspect {
        /// So many workers vanished with it, in the time that counts.
        strikes: u64,
        last: WorkerName,
        /// So many workers serve its queue.
        workers: u64,
    },
    /// Workers serve its queue; others are before it.
    Waiting {
        /// At most so many ready jobs of its queue are before it.
        before: u64,
        /// So many workers serve its queue.
        workers: u64,
        /// And hold so many jobs.
        running: u64,
    },
    Done {
        at: Option<Time>,
    },
    Dead {
        reason: Option<EndReason>,
        at: Option<Time>,
        error: Option<String>,
        /// The record of a stream that it was, if it was one.
        record: Option<DeadRecord>,
    },
    /// It has ended, and cannot come back: another job has its unique key.
    UniqueKeyHeld {
        ended: Box<JobExplanation>,
        key: UniqueKey,
        twin: JobId,
        state: JobState,
    },
    Cancelled {
        reason: Option<EndReason>,
        at: Option<Time>,
    },
}

/// The answer for one job.
pub fn explain_job(facts: JobFacts<'_>) -> JobExplanation {
    let Some(job) = facts.job else {
        return JobExplanation::NotFound;
    };
    let last_error = || {
        job.history
            .failures()
            .pop()
            .map(|failure| failure.error.message)
    };
    let retrying = |at| JobExplanation::Retrying {
        attempt: job.attempt.saturating_add(1),
        max_attempts: facts.max_attempts,
        at,
        error: last_error(),
    };
    match job.state {
        JobState::Done => JobExplanation::Done {
            at: job.finished_at,
        },
        JobState::Dead => {
            let (error, record) = (last_error(), facts.record.cloned());
            explain_ended(
                job,
                facts,
                JobExplanation::Dead {
                    reason: job.reason,
                    at: job.finished_at,
                    error,
                    record,
                },
            )
        }
        JobState::Cancelled => explain_ended(
            job,
            facts,
            JobExplanation::Cancelled {
                reason: job.reason,
                at: job.finished_at,
            },
        ),
        JobState::Running => explain_running(job, facts),
        JobState::Scheduled | JobState::Retrying | JobState::Ready => {
            let due =
                (job.state != JobState::Ready && job.run_at > facts.now).then_some(job.run_at);
            let is_paused = facts
                .queue
                .is_some_and(|queue| queue.state == QueueState::Paused);
            match due {
                // First the gate that only a person opens: a job that is due tomorrow in a paused
                // queue will not run.
                _ if is_paused => JobExplanation::Paused { due },
                Some(at)
                    if at.since(facts.now) <= UNKNOWN_KIND_WAIT
                        && unknown_kind(job, facts).is_some() =>
                {
                    explain_closed(facts)
                        .or_else(|| unknown_kind(job, facts))
                        .unwrap_or(JobExplanation::NotDue { at })
                }
                Some(at) if job.state == JobState::Retrying && at > next_probe(facts) => {
                    retrying(at)
                }
                _ => match (explain_closed(facts), due) {
                    (Some(shut), _) => shut,
                    (None, Some(at)) => {
                        explain_delayed(job, facts).unwrap_or(JobExplanation::NotDue { at })
                    }
                    (None, None) => explain_ready(job, facts),
                },
            }
        }
    }
}

/// The guard that keeps it from running, if one does. What waits longer for a time of its own does
/// not wait for the guard.
fn explain_closed(facts: JobFacts<'_>) -> Option<JobExplanation> {
    let shut = facts.breakers.iter().find(|guard| guard.is_shut())?;
    let until = match shut.admission {
        BreakerAdmission::Blocked { until } => until,
        BreakerAdmission::Unlimited { .. } | BreakerAdmission::Probes { .. } => Some(facts.now),
    };
    Some(match (&shut.name, shut.shut) {
        (BreakerName::Gate(..), shut_by) => JobExplanation::GateShut {
            gate: shut.name.to_string(),
            shut: shut_by.unwrap_or(ShutReason::Forced),
            dead: facts
                .queue
                .map(|queue| (queue.counts.of(JobState::Dead), queue.bounds.dead_max)),
            until,
        },
        (BreakerName::Breaker(_), _) => JobExplanation::BreakerOpen { until },
    })
}

/// When a shut guard lets something through; now, if none is shut.
fn next_probe(facts: JobFacts<'_>) -> Time {
    match explain_closed(facts) {
        Some(JobExplanation::BreakerOpen { until } | JobExplanation::GateShut { until, .. }) => {
            until.unwrap_or(Time::from_micros(i64::MAX))
        }
        _ => facts.now,
    }
}

/// What leave that was refused and the return of its job may be apart.
const SOON: Span = Span::secs(10);

/// The limit it was one too many for, if it was: somebody was refused while it was there, and it
/// waits for as long as such jobs go back for.
fn explain_delayed(job: &Job, facts: JobFacts<'_>) -> Option<JobExplanation> {
    let rate = facts.rate.filter(|_| job.state == JobState::Scheduled)?;
    let refused_at = rate.refused_at?;
    let is_put_off = match rate.limit.over {
        Some(over) => {
            let since = job.run_at.before(over);
            let around = since.before(SOON)..=since.after(SOON);
            around.contains(&refused_at) && job.inserted_at <= since && since <= facts.now
        }
        // Whatever put it off, the limit lets nothing start before.
        None => job.inserted_at <= refused_at && job.run_at <= rate.room_at.after(BACK_MIN),
    };
    is_put_off.then_some(JobExplanation::RateLimited {
        until: job.run_at,
        limit: rate.limit,
    })
}

/// A job that ended, and whether it could come back.
fn explain_ended(job: &Job, facts: JobFacts<'_>, explain_ended: JobExplanation) -> JobExplanation {
    let twin = facts
        .key_holder
        .filter(|twin| twin.is_live() && twin.job != job.id);
    match (twin, &job.unique_key) {
        (
            Some(UniqueKeyHolder {
                job: twin,
                state: Some(state),
            }),
            Some(key),
        ) => JobExplanation::UniqueKeyHeld {
            ended: Box::new(explain_ended),
            key: key.clone(),
            twin,
            state,
        },
        _ => explain_ended,
    }
}

/// Workers that serve its queue.
fn serving_workers<'a>(job: &Job, facts: JobFacts<'a>) -> Vec<&'a WorkerStatus> {
    facts
        .workers
        .iter()
        .filter(|worker| worker.queues.contains(&job.queue))
        .collect()
}

/// Whether all who serve its queue are strangers to its kind: each of them gives it back for a
/// while, for the others.
fn unknown_kind(job: &Job, facts: JobFacts<'_>) -> Option<JobExplanation> {
    let mut serving = serving_workers(job, facts);
    serving.retain(|worker| !facts.quiet.contains(&worker.name));
    let is_known = serving.is_empty()
        || serving
            .iter()
            .any(|worker| !facts.workers_without_handler.contains(&worker.name));
    (!is_known).then(|| JobExplanation::UnknownKind {
        kind: job.kind.clone(),
        workers: serving.len() as u64,
    })
}

fn is_all_quiet(serving: &[&WorkerStatus], facts: JobFacts<'_>) -> bool {
    serving
        .iter()
        .all(|worker| facts.quiet.contains(&worker.name))
}

fn explain_running(job: &Job, facts: JobFacts<'_>) -> JobExplanation {
    let now = facts.now;
    let lost = find_lost_workers(job.lost_leases, &job.history, now);
    match &job.held_by {
        Some(claimant) if claimant.until < now => JobExplanation::Lost {
            worker: claimant.worker.clone(),
            since: claimant.until,
        },
        Some(Claimant {
            worker,
            since,
            until,
        }) => JobExplanation::Running {
            worker: worker.clone(),
            since: Some(*since),
            until: *until,
            strikes: lost.len() as u64,
            silence: facts
                .holder_seen_at
                .and_then(|seen_at| worker_silence(seen_at, *until, now)),
        },
        // Settled between the reading of the job and of its claim.
        None => JobExplanation::Running {
            worker: WorkerName::new("unknown"),
            since: None,
            until: now,
            strikes: 0,
            silence: None,
        },
    }
}

/// Three heartbeats fit into a lease: a worker that let half of it pass without one is late.
fn worker_silence(seen_at: Time, until: Time, now: Time) -> Option<WorkerSilence> {
    let (lasts, left) = (now.since(seen_at), until.since(now));
    (lasts > left).then(|| WorkerSilence {
        seen_at,
        lasts,
        reruns_by: until.after(takeover_bound()),
    })
}

/// The longest time from a lease's end to the next run of its job, where a worker is free for it.
fn takeover_bound() -> Span {
    WorkerTiming::default().recovery_bound(Span::ZERO)
}

fn explain_ready(job: &Job, facts: JobFacts<'_>) -> JobExplanation {
    let serving = serving_workers(job, facts);
    if serving.is_empty() {
        return JobExplanation::NoWorker;
    }
    if let Some(first) = serving.first().filter(|_| is_all_quiet(&serving, facts)) {
        return JobExplanation::Quiet {
            workers: serving.len() as u64,
            first: first.name.clone(),
        };
    }
    if let Some(unknown) = unknown_kind(job, facts) {
        return unknown;
    }
    if let Some(rate) = facts.rate.filter(|rate| rate.room_at > facts.now) {
        return JobExplanation::RateLimited {
            until: rate.room_at,
            limit: rate.limit,
        };
    }
    let lost = find_lost_workers(job.lost_leases, &job.history, facts.now);
    if let Some(last) = lost.last() {
        let (strikes, last) = (lost.len() as u64, WorkerName::new(last));
        return JobExplanation::Suspect {
            strikes,
            last,
            workers: serving.len() as u64,
        };
    }
    let ready = facts
        .queue
        .map_or(0, |queue| queue.counts.of(JobState::Ready));
    JobExplanation::Waiting {
        before: ready.saturating_sub(1),
        workers: serving.len() as u64,
        running: serving.iter().map(|worker| worker.running).sum(),
    }
}

#[cfg(test)]
mod tests;
