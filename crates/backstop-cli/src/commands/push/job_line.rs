//! One line of input, turned into a job or into the reason why not.

use super::LineFormat;
use backstop::core::unique::{StateSet, UniqueBy, UniqueConstraint, UniqueKey};
use backstop::{
    JobId, JobState, Kind, NewJob, Payload, Priority, QueueName, RetryPolicy, Span, Time,
    TraceContext,
};
use backstop_server::wire::push::{JOB_KEYS, NewJobShape};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What holds for lines that do not say otherwise.
#[derive(Clone, Debug)]
pub(super) struct PushDefaults {
    pub(super) queue: QueueName,
    pub(super) kind: Option<Kind>,
    pub(super) priority: Option<Priority>,
    pub(super) delay: Option<Span>,
    pub(super) at: Option<Time>,
    pub(super) unique_by: Option<UniqueBy>,
    pub(super) unique_for: Option<Span>,
    pub(super) unique_in: Vec<JobState>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) trace: Option<TraceContext>,
    pub(super) batch: Option<String>,
    pub(super) lines: LineFormat,
}

/// The job that line `number` stands for. `fresh_id` is asked for an id if nothing else gives one.
pub(super) fn parse(
    line: &[u8],
    number: u64,
    defaults: &PushDefaults,
    now: Time,
    fresh_id: impl FnOnce() -> JobId,
) -> Result<NewJob, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let is_job = match defaults.lines {
        LineFormat::Auto => looks_like_a_job(text),
        LineFormat::Jobs => true,
        LineFormat::Payloads => false,
    };
    let shape = if is_job { Some(read(text)?) } else { None };
    let payload = shape.as_ref().map_or(text, |shape| shape.payload.get());
    let payload = Payload::json(payload.as_bytes().to_vec()).map_err(|error| error.to_string())?;
    let derived_id = || {
        defaults
            .batch
            .as_deref()
            .map(|batch| batch_id(batch, &defaults.queue, number))
    };
    let id = shape
        .as_ref()
        .and_then(|shape| shape.id)
        .or_else(derived_id)
        .unwrap_or_else(fresh_id);
    let mut job = NewJob::new(
        id,
        defaults.queue.clone(),
        defaults.kind.clone().unwrap_or_default(),
        payload,
    );
    job.priority = defaults.priority.unwrap_or_default();
    job.run_at = defaults
        .at
        .or_else(|| defaults.delay.map(|delay| now.after(delay)));
    job.retry.clone_from(&defaults.retry);
    job.trace = defaults.trace;
    let job = match shape {
        Some(shape) => fill(shape, job, defaults, now)?,
        None => job,
    };
    unique_by(job, defaults)
}

/// A line that names no key is unique by what it says, if that is asked for.
fn unique_by(mut job: NewJob, defaults: &PushDefaults) -> Result<NewJob, String> {
    if let (None, Some(sameness)) = (&job.unique, &defaults.unique_by) {
        let key = sameness
            .key(&job.kind, &job.payload)
            .map_err(|error| error.to_string())?;
        job.unique = Some(unique(key, defaults));
    }
    Ok(job)
}

fn read(text: &str) -> Result<NewJobShape<'_>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a job: {error}"))
}

/// What the line says wins over the defaults.
fn fill(
    shape: NewJobShape<'_>,
    mut job: NewJob,
    defaults: &PushDefaults,
    now: Time,
) -> Result<NewJob, String> {
    let run_at = shape.time(now).map_err(|error| error.to_string())?;
    if let Some(queue) = shape.queue {
        job.queue = QueueName::new(&queue.0).map_err(|error| error.to_string())?;
    }
    if let Some(kind) = shape.kind {
        job.kind = Kind::new(&kind.0).map_err(|error| error.to_string())?;
    }
    if let Some(priority) = shape.priority {
        job.priority = priority;
    }
    job.run_at = run_at.or(job.run_at);
    job.retry = shape.retry.or(job.retry);
    let key = shape
        .unique_key
        .map(|key| UniqueKey::new(&key.0).map_err(|error| error.to_string()));
    job.unique = key.transpose()?.map(|key| unique(key, defaults));
    Ok(job)
}

fn unique(key: UniqueKey, defaults: &PushDefaults) -> UniqueConstraint {
    let states = if defaults.unique_in.is_empty() {
        StateSet::LIVE
    } else {
        StateSet::of(&defaults.unique_in)
    };
    UniqueConstraint {
        key,
        period: defaults.unique_for,
        states,
    }
}

/// An object with a payload, and otherwise only keys of a job.
fn looks_like_a_job(text: &str) -> bool {
    // Most lines of most files are payloads; they are told apart without being parsed.
    if !text.contains("\"payload\"") {
        return false;
    }
    let keys: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(text);
    keys.is_ok_and(|keys| {
        keys.contains_key("payload") && keys.keys().all(|key| JOB_KEYS.contains(&key.as_str()))
    })
}

/// The queue is part of the name: the same batch pushed to another queue is other work.
fn batch_id(batch: &str, queue: &QueueName, number: u64) -> JobId {
    JobId::named(&format!("{batch}/{queue}/{number}"))
}

#[cfg(test)]
mod tests;
