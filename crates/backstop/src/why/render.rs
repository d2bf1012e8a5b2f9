//! The answer in words, in fields, and with what to do.

use super::{DeadRecord, JobExplanation, WorkerSilence, takeover_bound};
use crate::streams::dead_letter_stream;
use backstop_core::gate::ShutReason;
use backstop_core::limits::{LOST_LEASES_UNTIL_DEAD, LOST_WITHIN};
use backstop_core::rate::RateLimit;
use backstop_core::redact::Redaction;
use backstop_core::terminal::{shell_argument, shell_word};
use backstop_core::verdict::EndReason;
use backstop_core::{Job, JobState, QueueName, Span, WorkerName};
use serde_json::{Map, Value, json};
use std::fmt;

impl JobExplanation {
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
            Self::Quiet { .. } => "quiet",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::UniqueKeyHeld { .. } => "unique_twin",
            Self::Suspect { .. } => "suspect",
            Self::Waiting { .. } => "waiting",
            Self::Done { .. } => "done",
            Self::Dead { .. } => "dead",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

impl JobExplanation {
    /// What the sentence is made of, by name: for programs and pages.
    pub fn details(&self) -> Map<String, Value> {
        let value = match self {
            Self::NotFound | Self::NoWorker => json!({}),
            Self::Paused { due } => json!({ "due": due }),
            Self::BreakerOpen { until } => json!({ "until": until }),
            Self::GateShut {
                gate,
                shut,
                dead,
                until,
            } => json!({
                "gate": gate,
                "shut": shut,
                "dead": dead.map(|(dead, _)| dead),
                "dead_max": dead.map(|(_, max)| max),
                "until": until,
            }),
            Self::RateLimited { until, limit } => {
                json!({ "until": until, "count": limit.count, "per": limit.per })
            }
            Self::NotDue { at } => json!({ "at": at }),
            Self::Retrying {
                attempt,
                max_attempts,
                at,
                error,
            } => {
                json!({ "attempt": attempt, "max_attempts": max_attempts, "at": at, "error": error })
            }
            Self::Running {
                worker,
                since,
                until,
                strikes,
                silence,
            } => json!({
                "worker": worker.as_str(),
                "since": since,
                "until": until,
                "strikes": strikes,
                "silent_since": silence.map(|silence| silence.seen_at),
                "reruns_by": silence.map(|silence| silence.reruns_by),
            }),
            Self::Lost { worker, since } => json!({ "worker": worker.as_str(), "since": since }),
            Self::Quiet { workers, first } => {
                json!({ "workers": workers, "first": first.as_str() })
            }
            Self::UnknownKind { kind, workers } => json!({ "kind": kind, "workers": workers }),
            Self::Suspect {
                strikes,
                last,
                workers,
            } => {
                json!({ "strikes": strikes, "last": last.as_str(), "workers": workers })
            }
            Self::Waiting {
                before,
                workers,
                running,
            } => {
                json!({ "before": before, "workers": workers, "running": running })
            }
            Self::Done { at } => json!({ "at": at }),
            Self::Dead {
                reason,
                at,
                error,
                record,
            } => {
                json!({ "reason": reason.map(EndReason::as_str), "at": at, "error": error, "record": record.as_ref().map(record_json) })
            }
            Self::UniqueKeyHeld {
                ended,
                key,
                twin,
                state,
            } => {
                json!({ "ended": ended.gate(), "key": key.as_str(), "twin": twin, "twin_state": state })
            }
            Self::Cancelled { reason, at } => {
                json!({ "reason": reason.map(EndReason::as_str), "at": at })
            }
        };
        match value {
            Value::Object(details) => details,
            _ => Map::new(),
        }
    }

    /// What opens the gate, where something does: a command, or words.
    pub fn next_step(&self, job: Option<&Job>) -> Option<String> {
        let Some(job) = job else {
            return Some("backstop job list".to_owned());
        };
        let (id, queue) = (job.id, &job.queue);
        Some(match self {
            Self::NotFound => "backstop job list".to_owned(),
            Self::Paused { .. } => {
                format!("backstop queue resume {}", shell_argument(queue.as_str()))
            }
            Self::BreakerOpen { .. } => {
                let queue = shell_argument(queue.as_str());
                format!("backstop breaker reset {queue}, once the service is well")
            }
            Self::GateShut {
                shut: ShutReason::Full,
                ..
            } => make_room(queue),
            Self::GateShut { gate, .. } => {
                format!(
                    "backstop dead groups --queue {queue}, then backstop breaker reset {}",
                    shell_argument(gate)
                )
            }
            Self::RateLimited {
                limit: RateLimit {
                    over: Some(over), ..
                },
                ..
            } if job.state == JobState::Scheduled => {
                format!(
                    "remove `over` ({over}) from the rate_limit of {queue}: a job over the limit then waits only until there is room"
                )
            }
            Self::RateLimited { .. } => {
                format!("a higher rate_limit for {queue}, if what is behind it can take more")
            }
            Self::NotDue { .. } | Self::Retrying { .. } => {
                format!("backstop job retry {id}, to run it now")
            }
            Self::NoWorker | Self::Lost { .. } => match dead_letter_stream(queue) {
                Some(stream) => format!("backstop stream serve {stream} --exec COMMAND"),
                None => format!("backstop work {queue} --exec COMMAND"),
            },
            Self::Quiet { first, .. } => {
                let first = shell_argument(first.as_str());
                format!("backstop worker resume {first}, or another worker for {queue}")
            }
            Self::UnknownKind { kind, .. } => {
                let kind = shell_word(kind.as_str());
                format!("a worker of {queue} with a handler for {kind}, or for all kinds")
            }
            Self::Suspect { .. } => {
                format!("another worker for {queue}: each runs one such job at a time")
            }
            Self::Waiting { .. } => {
                format!("another worker, or a higher --concurrency, for {queue}")
            }
            Self::Dead {
                record:
                    Some(DeadRecord {
                        stream,
                        key,
                        halted: Some(_),
                        ..
                    }),
                ..
            } => {
                format!(
                    "backstop stream resume [--skip] {stream} {}",
                    shell_argument(key.as_str())
                )
            }
            Self::UniqueKeyHeld { twin, .. } => format!("backstop job why {twin}"),
            Self::Dead { .. } => format!("backstop dead requeue {id}"),
            Self::Cancelled { .. } => format!("backstop job retry {id}"),
            Self::Running { .. } | Self::Done { .. } => return None,
        })
    }
}

impl JobExplanation {
    /// With what errors of handlers say made fit to be shown.
    #[must_use]
    pub(super) fn redacted(mut self, redaction: &Redaction) -> Self {
        match &mut self {
            Self::Retrying {
                error: Some(error), ..
            }
            | Self::Dead {
                error: Some(error), ..
            } => {
                *error = redaction.text(error);
            }
            Self::UniqueKeyHeld { ended, .. } => {
                let shown = (**ended).clone().redacted(redaction);
                **ended = shown;
            }
            _ => {}
        }
        self
    }
}

fn record_json(record: &DeadRecord) -> Value {
    let DeadRecord {
        stream,
        key,
        position,
        halted,
    } = record;
    json!({ "stream": stream, "key": key, "position": position, "halted": halted.is_some(), "behind": halted })
}

impl fmt::Display for JobExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => {
                f.write_str("there is no such job; it may have been deleted or pruned")
            }
            Self::Paused { due: None } => f.write_str("its queue is paused"),
            Self::Paused { due: Some(at) } => {
                write!(f, "its queue is paused; besides, it is not due before {at}")
            }
            Self::BreakerOpen { until } => {
                f.write_str(
                    "the breaker of its queue is open: the service behind it failed too often",
                )?;
                match until {
                    Some(until) => write!(f, "; it is tried again at {until}"),
                    None => f.write_str(", or somebody opened it; it stays open until it is reset"),
                }
            }
            Self::GateShut {
                gate,
                shut,
                dead,
                until,
            } => {
                write!(f, "the gate of its kind, {gate}, is shut: ")?;
                match (shut, dead) {
                    (ShutReason::Full, Some((dead, max))) => {
                        write!(f, "its queue's dead letters are full ({dead} of {max})")?;
                    }
                    (ShutReason::Full, None) => f.write_str("its queue's dead letters are full")?,
                    (ShutReason::Deaths, _) => f.write_str("too many jobs of it died")?,
                    (ShutReason::Forced, _) => f.write_str("somebody shut it")?,
                }
                suffix(f, "; one is tried again at", until.as_ref())
            }
            Self::RateLimited { until, limit } => write!(
                f,
                "rate limit until {until}: its queue starts at most {} in {}, over all workers",
                plural(limit.count.into(), "job"),
                limit.per,
            ),
            Self::NotDue { at } => write!(f, "it is not due before {at}"),
            Self::Retrying {
                attempt,
                max_attempts,
                at,
                error,
            } => {
                write!(f, "it failed and waits for run {attempt}")?;
                match max_attempts {
                    Some(max) => write!(f, " of {max}, at {at}")?,
                    None => write!(f, ", at {at}")?,
                }
                suffix(f, "; the last error was:", error.as_ref())
            }
            Self::Running {
                worker,
                silence: Some(silence),
                ..
            } => {
                let WorkerSilence {
                    seen_at,
                    lasts,
                    reruns_by,
                } = silence;
                write!(
                    f,
                    "it is running on {worker}, which was last heard of at {seen_at}, {} ago; if that worker stays silent, the \
                     job runs again by {reruns_by}, where another worker is free",
                    Span::secs(lasts.as_micros() / 1_000_000),
                )
            }
            Self::Running {
                worker,
                since,
                until,
                strikes,
                silence: None,
            } => {
                write!(f, "it is running on {worker}")?;
                match since {
                    Some(since) => write!(f, " since {since}; the lease")?,
                    None => f.write_str(", whose lease")?,
                }
                write!(
                    f,
                    " lasts until {until} and is extended by its beats{}",
                    describe_suspect(*strikes)
                )
            }
            Self::Lost { worker, since } => {
                write!(
                    f,
                    "worker {worker} vanished with it: its lease ended at {since}; any live worker that serves its queue runs it again \
                     within {} of that",
                    takeover_bound(),
                )
            }
            Self::NoWorker => f.write_str("it is ready, but no live worker serves its queue"),
            Self::Quiet { workers, first } => f.write_str(&describe_quiet(*workers, first)),
            Self::UnknownKind { kind, workers: 1 } => {
                write!(
                    f,
                    "it is of kind `{kind}`, and the worker that serves its queue has no handler for that"
                )
            }
            Self::UnknownKind { kind, workers } => write!(
                f,
                "it is of kind `{kind}`, and none of the {workers} workers that serve its queue has a handler for that"
            ),
            Self::UniqueKeyHeld {
                ended,
                key,
                twin,
                state,
            } => write!(
                f,
                "{ended}; it cannot come back before job {twin} ends, which is {state} and has its unique key `{key}`"
            ),
            Self::Suspect {
                strikes,
                last,
                workers,
            } => write!(
                f,
                "it is ready, but {} vanished with it in the last {LOST_WITHIN}, {last} most recently, and it dies of \
                 {LOST_LEASES_UNTIL_DEAD}; until then a worker runs one such job at a time, to learn which of them it is; {} serving \
                 its queue",
                plural(*strikes, "worker"),
                plural(*workers, "worker"),
            ),
            Self::Waiting {
                before,
                workers,
                running,
            } => write!(
                f,
                "it is ready, with up to {before} jobs before it; {workers} serving its queue, {running} jobs in hand",
                workers = plural(*workers, "worker"),
            ),
            Self::Done { at } => {
                f.write_str("it is done")?;
                suffix(f, ", since", at.as_ref())
            }
            Self::Dead {
                reason,
                at,
                error,
                record,
            } => {
                f.write_str("it is dead")?;
                suffix(f, " because", reason.map(describe_reason).as_ref())?;
                suffix(f, ", since", at.as_ref())?;
                suffix(f, "; it is", record.as_ref())?;
                suffix(f, "; the last error was:", error.as_ref())
            }
            Self::Cancelled { reason, at } => {
                f.write_str("it was cancelled")?;
                suffix(f, " because", reason.map(describe_reason).as_ref())?;
                suffix(f, ", at", at.as_ref())
            }
        }
    }
}

impl fmt::Display for DeadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            key,
            position,
            halted,
        } = self;
        write!(
            f,
            "the record at {position} of key {key} in stream {stream}, which "
        )?;
        match halted {
            Some(behind) => write!(
                f,
                "stands still there with {} behind it",
                plural(*behind, "record")
            ),
            None => f.write_str("went on past it"),
        }
    }
}

/// That nobody who serves a queue takes new jobs.
fn describe_quiet(workers: u64, first: &WorkerName) -> String {
    match workers {
        1 => format!(
            "it is ready, but {first}, which serves its queue, takes no new jobs: it was asked not to, or stops"
        ),
        _ => format!(
            "it is ready, but all {workers} workers that serve its queue take no new jobs: they were asked not to, or stop"
        ),
    }
}

/// When a job begins that is in the hands of a worker and has lost others.
fn describe_suspect(strikes: u64) -> String {
    match strikes {
        0 => String::new(),
        _ => format!(
            "; {} vanished with it in the last {LOST_WITHIN}, so it begins there when no other such job runs",
            plural(strikes, "worker")
        ),
    }
}

/// A reason as part of a sentence.
const fn describe_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::AttemptsExhausted => "its attempts are used up",
        EndReason::MaxAge => "it grew too old",
        EndReason::Rejected => "its handler said that no other try can help",
        EndReason::CrashedWorker => "its workers keep vanishing",
        EndReason::Discarded => "its handler did not want to keep it",
        EndReason::Unwanted => "its handler found it no longer wanted",
        EndReason::Operator => "an operator called it off",
        EndReason::Overflow => "it gave way to a newer job in a full queue",
    }
}

fn suffix(
    f: &mut fmt::Formatter<'_>,
    lead: &str,
    value: Option<&impl fmt::Display>,
) -> fmt::Result {
    match value {
        Some(value) => write!(f, "{lead} {value}"),
        None => Ok(()),
    }
}

pub(super) fn plural(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// What opens a gate that is shut for want of room; it opens by itself then.
pub(crate) fn make_room(queue: &QueueName) -> String {
    format!(
        "backstop dead requeue, move, export or delete letters of --queue {queue}; the kind then goes on by itself"
    )
}
