//! Why a job does not run: one answer, naming the one gate it stands before.
//!
//! [`why`] is a function of what an operator can read; it asks nothing and changes nothing. [`Backstop::why`] reads that for
//! one job, and asks it.

use crate::Backstop;
use crate::breakers::{GuardName, GuardStatus};
use crate::rates::RateStatus;
use backstop_core::breaker::Admission;
use backstop_core::gate::Shut;
use backstop_core::port::{Answer, Gate, QueueStatus, WorkerStatus};
use backstop_core::rate::RateLimit;
use backstop_core::redact::Redaction;
use backstop_core::verdict::Reason;
use backstop_core::{Job, JobId, RetryPolicy, Span, State, Time, WorkerName};
use std::fmt;

/// A worker whose last sign of life is older than this counts as gone. The usual lease makes workers beat every five
/// seconds.
pub const LIVE_WITHIN: Span = Span::secs(30);

/// A job, if there is one, and why it does not run.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// The job.
    pub job: Option<Job>,
    /// Why it does not run.
    pub why: Why,
}

impl Backstop {
    /// Why a job does not run. `policy` is the retry policy of its queue, for one that has none of its own.
    pub async fn why(&self, id: JobId, policy: impl FnOnce(&Job) -> RetryPolicy + Send) -> Answer<Explained> {
        let (store, now) = (self.store(), self.now());
        let Some(job) = store.job(id, now).await? else {
            return Ok(Explained { job: None, why: Why::NotFound });
        };
        let queues = store.queues(now).await?;
        let workers = store.workers(LIVE_WITHIN, now).await?;
        let guards = self.breakers().before(&job.queue, &job.kind).await?;
        let rate = self.rate_of(&job.queue).await?;
        let max_attempts = job.retry.decode().unwrap_or_else(|| policy(&job)).max_attempts();
        let why = why(Facts {
            job: Some(&job),
            queue: queues.iter().find(|queue| queue.name == job.queue),
            workers: &workers,
            guards: &guards,
            rate: rate.as_ref(),
            max_attempts,
            now,
        });
        Ok(Explained { job: Some(job), why: why.redacted(self.redaction()) })
    }
}

impl Explained {
    /// What opens the gate, where something does: a command, or what to change.
    pub fn next_step(&self) -> Option<String> {
        let Some(job) = &self.job else { return Some("backstop job list".to_owned()) };
        match &self.why {
            Why::NotFound => Some("backstop job list".to_owned()),
            Why::Paused { .. } => Some(format!("backstop queue resume {}", job.queue)),
            Why::BreakerOpen { .. } => {
                Some(format!("backstop breaker reset {}, once the service is well", job.queue))
            }
            Why::GateShut { shut: Shut::Full, .. } => Some(format!(
                "backstop dead requeue, move, export or delete letters of --queue {}; the kind then goes on by itself",
                job.queue
            )),
            Why::GateShut { gate, .. } => Some(format!(
                "backstop dead groups --queue {}, then backstop breaker reset {gate}",
                job.queue
            )),
            Why::RateLimited { .. } => {
                Some(format!("a higher rate_limit for {}, if what is behind it can take more", job.queue))
            }
            Why::NotDue { .. } | Why::Retrying { .. } => {
                Some(format!("backstop job retry {}, to run it now", job.id))
            }
            Why::NoWorker | Why::Lost { .. } => Some(format!("backstop work {} --exec COMMAND", job.queue)),
            Why::Waiting { .. } => {
                Some(format!("another worker, or a higher --concurrency, for {}", job.queue))
            }
            Why::Dead { .. } | Why::Cancelled { .. } => Some(format!("backstop job retry {}", job.id)),
            Why::Running { .. } | Why::Done { .. } => None,
        }
    }
}

/// What is known about a job and its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The job, if there is one.
    pub job: Option<&'a Job>,
    /// Its queue, if it has a status.
    pub queue: Option<&'a QueueStatus>,
    /// All workers that beat within [`LIVE_WITHIN`].
    pub workers: &'a [WorkerStatus],
    /// The breakers and gates that stand before it.
    pub guards: &'a [GuardStatus],
    /// The rate limit of its queue, if it has one.
    pub rate: Option<&'a RateStatus>,
    /// All runs the job may have; `None` if only its age ends it.
    pub max_attempts: Option<u32>,
    /// The time.
    pub now: Time,
}

/// Why a job does not run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
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
        /// Which gate.
        gate: String,
        /// Why it is shut.
        shut: Shut,
        /// How many dead letters its queue has, and may have.
        dead: Option<(u64, u64)>,
        /// When one of them is tried again; `None` if somebody shut the gate, and must reset it.
        until: Option<Time>,
    },
    /// Its queue is over its rate limit.
    RateLimited {
        /// When it is looked at again, or there is room.
        until: Time,
        /// The limit.
        limit: RateLimit,
    },
    /// Its time is yet to come.
    NotDue {
        /// Its time.
        at: Time,
    },
    /// It failed, and waits for its next try.
    Retrying {
        /// The number of its next run.
        attempt: u32,
        /// All runs it may have.
        max_attempts: Option<u32>,
        /// When.
        at: Time,
        /// What went wrong last.
        error: Option<String>,
    },
    /// It does run.
    Running {
        /// Who runs it.
        worker: WorkerName,
        /// The end of the lease, unless the worker beats.
        until: Time,
    },
    /// It ran, and its worker gives no sign of life.
    Lost {
        /// Who ran it.
        worker: WorkerName,
        /// When its lease ended.
        since: Time,
    },
    /// Nobody serves its queue.
    NoWorker,
    /// Workers serve its queue; others are before it.
    Waiting {
        /// At most so many ready jobs of its queue are before it.
        before: u64,
        /// So many workers serve its queue.
        workers: u64,
        /// And hold so many jobs.
        running: u64,
    },
    /// It succeeded.
    Done {
        /// When.
        at: Option<Time>,
    },
    /// It was given up.
    Dead {
        /// Why.
        reason: Option<Reason>,
        /// When.
        at: Option<Time>,
        /// What went wrong last.
        error: Option<String>,
    },
    /// It was called off.
    Cancelled {
        /// Why.
        reason: Option<Reason>,
        /// When.
        at: Option<Time>,
    },
}

/// The answer for one job.
pub fn why(facts: Facts<'_>) -> Why {
    let Some(job) = facts.job else { return Why::NotFound };
    let last_error = || job.history.failures().pop().map(|failure| failure.error.message);
    let retrying = |at| Why::Retrying {
        attempt: job.attempt.saturating_add(1),
        max_attempts: facts.max_attempts,
        at,
        error: last_error(),
    };
    match job.state {
        State::Done => Why::Done { at: job.finished_at },
        State::Dead => Why::Dead { reason: job.reason, at: job.finished_at, error: last_error() },
        State::Cancelled => Why::Cancelled { reason: job.reason, at: job.finished_at },
        State::Running => held(job, facts.now),
        State::Scheduled | State::Retrying | State::Ready => {
            let due = (job.state != State::Ready && job.run_at > facts.now).then_some(job.run_at);
            let is_paused = facts.queue.is_some_and(|queue| queue.gate == Gate::Paused);
            match due {
                // First the gate that only a person opens: a job that is due tomorrow in a paused queue will not run.
                _ if is_paused => Why::Paused { due },
                Some(at) if job.state == State::Retrying && at > next_probe(facts) => retrying(at),
                _ => match (guarded(facts), due) {
                    (Some(shut), _) => shut,
                    (None, Some(at)) => put_off(job, facts).unwrap_or(Why::NotDue { at }),
                    (None, None) => ready(job, facts),
                },
            }
        }
    }
}

/// The guard that keeps it from running, if one does. What waits longer for a time of its own does not wait for the guard.
fn guarded(facts: Facts<'_>) -> Option<Why> {
    let shut = facts.guards.iter().find(|guard| guard.is_shut())?;
    let until = match shut.admission {
        Admission::Not { until } => until,
        Admission::Freely { .. } | Admission::Probes { .. } => Some(facts.now),
    };
    Some(match (&shut.name, shut.shut) {
        (GuardName::Gate(..), shut_by) => Why::GateShut {
            gate: shut.name.to_string(),
            shut: shut_by.unwrap_or(Shut::Forced),
            dead: facts.queue.map(|queue| (queue.counts.of(State::Dead), queue.bounds.dead_max)),
            until,
        },
        (GuardName::Breaker(_), _) => Why::BreakerOpen { until },
    })
}

/// When a shut guard lets something through; now, if none is shut.
fn next_probe(facts: Facts<'_>) -> Time {
    match guarded(facts) {
        Some(Why::BreakerOpen { until } | Why::GateShut { until, .. }) => {
            until.unwrap_or(Time::from_micros(i64::MAX))
        }
        _ => facts.now,
    }
}

/// What leave that was refused and the return of its job may be apart.
const A_MOMENT: Span = Span::secs(10);

/// The limit it was one too many for, if it was: it waits for as long as such jobs go back for, and somebody was refused then.
fn put_off(job: &Job, facts: Facts<'_>) -> Option<Why> {
    let rate = facts.rate.filter(|_| job.state == State::Scheduled)?;
    let since = job.run_at.before(rate.limit.over);
    let around = since.before(A_MOMENT)..=since.after(A_MOMENT);
    let was_refused = rate.refused_at.is_some_and(|refused_at| around.contains(&refused_at));
    let was_there = job.inserted_at <= since && since <= facts.now;
    (was_refused && was_there).then_some(Why::RateLimited { until: job.run_at, limit: rate.limit })
}

fn held(job: &Job, now: Time) -> Why {
    match &job.held_by {
        Some(holder) if holder.until < now => {
            Why::Lost { worker: holder.worker.clone(), since: holder.until }
        }
        Some(holder) => Why::Running { worker: holder.worker.clone(), until: holder.until },
        // Settled between the reading of the job and of its holder.
        None => Why::Running { worker: WorkerName::new("unknown"), until: now },
    }
}

fn ready(job: &Job, facts: Facts<'_>) -> Why {
    let serving: Vec<&WorkerStatus> =
        facts.workers.iter().filter(|worker| worker.queues.contains(&job.queue)).collect();
    if serving.is_empty() {
        return Why::NoWorker;
    }
    if let Some(rate) = facts.rate.filter(|rate| rate.room_at > facts.now) {
        return Why::RateLimited { until: rate.room_at, limit: rate.limit };
    }
    let ready = facts.queue.map_or(0, |queue| queue.counts.of(State::Ready));
    Why::Waiting {
        before: ready.saturating_sub(1),
        workers: serving.len() as u64,
        running: serving.iter().map(|worker| worker.running).sum(),
    }
}

impl Why {
    /// As it may be shown.
    fn redacted(mut self, redaction: &Redaction) -> Self {
        if let Self::Retrying { error: Some(error), .. } | Self::Dead { error: Some(error), .. } = &mut self {
            *error = redaction.text(error);
        }
        self
    }

    /// The gate in one word.
    pub const fn gate(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Paused { .. } => "paused",
            Self::BreakerOpen { .. } => "breaker_open",
            Self::GateShut { .. } => "gate_shut",
            Self::RateLimited { .. } => "rate_limited",
            Self::NotDue { .. } => "not_due",
            Self::Retrying { .. } => "retrying",
            Self::Running { .. } => "running",
            Self::Lost { .. } => "lost",
            Self::NoWorker => "no_worker",
            Self::Waiting { .. } => "waiting",
            Self::Done { .. } => "done",
            Self::Dead { .. } => "dead",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

impl fmt::Display for Why {
    /// One sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such job; it may have been deleted or pruned"),
            Self::Paused { due: None } => f.write_str("its queue is paused"),
            Self::Paused { due: Some(at) } => {
                write!(f, "its queue is paused; besides, it is not due before {at}")
            }
            Self::BreakerOpen { until } => {
                f.write_str("the breaker of its queue is open: the service behind it failed too often")?;
                match until {
                    Some(until) => write!(f, "; it is tried again at {until}"),
                    None => f.write_str(", or somebody opened it; it stays open until it is reset"),
                }
            }
            Self::GateShut { gate, shut, dead, until } => {
                write!(f, "the gate of its kind, {gate}, is shut: ")?;
                match (shut, dead) {
                    (Shut::Full, Some((dead, max))) => {
                        write!(f, "its queue's dead letters are full ({dead} of {max})")?;
                    }
                    (Shut::Full, None) => f.write_str("its queue's dead letters are full")?,
                    (Shut::Deaths, _) => f.write_str("too many jobs of it died")?,
                    (Shut::Forced, _) => f.write_str("somebody shut it")?,
                }
                suffix(f, "; one is tried again at", until.as_ref())
            }
            Self::RateLimited { until, limit } => write!(
                f,
                "rate limit until {until}: its queue starts at most {} in {}, over all workers",
                counted(limit.count.into(), "job"),
                limit.per,
            ),
            Self::NotDue { at } => write!(f, "it is not due before {at}"),
            Self::Retrying { attempt, max_attempts, at, error } => {
                write!(f, "it failed and waits for run {attempt}")?;
                match max_attempts {
                    Some(max) => write!(f, " of {max}, at {at}")?,
                    None => write!(f, ", at {at}")?,
                }
                suffix(f, "; the last error was:", error.as_ref())
            }
            Self::Running { worker, until } => {
                write!(
                    f,
                    "it is running on {worker}, whose lease lasts until {until} and is extended by its beats"
                )
            }
            Self::Lost { worker, since } => {
                write!(
                    f,
                    "worker {worker} vanished with it: its lease ended at {since}; any live worker takes the job over"
                )
            }
            Self::NoWorker => f.write_str("it is ready, but no live worker serves its queue"),
            Self::Waiting { before, workers, running } => write!(
                f,
                "it is ready, with up to {before} jobs before it; {workers} serving its queue, {running} jobs in hand",
                workers = counted(*workers, "worker"),
            ),
            Self::Done { at } => {
                f.write_str("it is done")?;
                suffix(f, ", since", at.as_ref())
            }
            Self::Dead { reason, at, error } => {
                f.write_str("it is dead")?;
                suffix(f, " because", reason.map(because).as_ref())?;
                suffix(f, ", since", at.as_ref())?;
                suffix(f, "; the last error was:", error.as_ref())
            }
            Self::Cancelled { reason, at } => {
                f.write_str("it was cancelled")?;
                suffix(f, " because", reason.map(because).as_ref())?;
                suffix(f, ", at", at.as_ref())
            }
        }
    }
}

/// A reason as part of a sentence.
const fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::AttemptsExhausted => "its attempts are used up",
        Reason::MaxAge => "it grew too old",
        Reason::Rejected => "its handler said that no other try can help",
        Reason::CrashedWorker => "its workers keep vanishing",
        Reason::Discarded => "its handler did not want to keep it",
        Reason::Unwanted => "its handler found it no longer wanted",
        Reason::Operator => "an operator called it off",
        Reason::Overflow => "it gave way to a newer job in a full queue",
    }
}

fn suffix(f: &mut fmt::Formatter<'_>, lead: &str, value: Option<&impl fmt::Display>) -> fmt::Result {
    match value {
        Some(value) => write!(f, "{lead} {value}"),
        None => Ok(()),
    }
}

fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
