//! Queues as an operator sees them, their gates and their bounds.

use crate::base::{Base, readable};
use crate::keys::Part;
use crate::record::unsorted;
use crate::reply;
use crate::script::STATUS;
use backstop_core::port::{Answer, Counts, Gate, QueueStatus, Totals};
use backstop_core::{Bounds, QueueName, State, Time};
use redis::Value;

const DOING: &str = "listing queues";
const PAUSED: &str = "paused";
const OPEN: &str = "open";

/// All queues, by name.
pub(crate) async fn queues(base: &Base) -> Answer<Vec<QueueStatus>> {
    let names = base.queues(DOING).await?;
    let calls = names
        .iter()
        .map(|name| base.script(&STATUS, name))
        .collect();
    let mut queues = Vec::with_capacity(names.len());
    for (name, answer) in names.iter().zip(base.run_each(DOING, calls).await?) {
        queues.extend(status(name, answer)?);
    }
    Ok(queues)
}

/// Opens or pauses a queue.
pub(crate) async fn set_gate(base: &Base, queue: &QueueName, gate: Gate) -> Answer<()> {
    let doing = "pausing or resuming a queue";
    base.register(doing, &[queue]).await?;
    let word = if gate == Gate::Paused { PAUSED } else { OPEN };
    let mut command = redis::cmd("HSET");
    command
        .arg(base.keys.part(queue, Part::Meta))
        .arg("gate")
        .arg(word);
    base.link.ask(doing, &command).await?;
    base.bell.ring();
    // Again: see `intake.rs`.
    base.register(doing, &[queue]).await
}

/// Sets how much a queue holds.
pub(crate) async fn set_bounds(base: &Base, queue: &QueueName, bounds: Bounds) -> Answer<()> {
    let doing = "bounding a queue";
    base.register(doing, &[queue]).await?;
    let max_size = bounds
        .max_size
        .map_or_else(String::new, |max| max.to_string());
    let mut command = redis::cmd("HSET");
    command
        .arg(base.keys.part(queue, Part::Meta))
        .arg("max_size")
        .arg(max_size);
    command
        .arg("overflow")
        .arg(bounds.overflow.as_str())
        .arg("dead_max")
        .arg(bounds.dead_max);
    base.link.ask(doing, &command).await?;
    // Again: see `intake.rs`.
    base.register(doing, &[queue]).await
}

/// Marks queues as configured: they have a word for what happens when they are full. Bounds that
/// somebody set stay.
pub(crate) async fn declare(base: &Base, queues: &[QueueName]) -> Answer<()> {
    if queues.is_empty() {
        return Ok(());
    }
    let doing = "declaring queues";
    let names: Vec<&QueueName> = queues.iter().collect();
    base.register(doing, &names).await?;
    let overflow = Bounds::default().overflow;
    let declare = |queue: &QueueName| {
        let mut command = redis::cmd("HSETNX");
        command.arg(base.keys.part(queue, Part::Meta));
        command.arg("overflow").arg(overflow.as_str());
        command
    };
    base.ask_each(doing, queues.iter().map(declare).collect())
        .await?;
    // Again: see `intake.rs`.
    base.register(doing, &names).await
}

/// The status of an answer; nothing for a name that was registered and whose queue never came to
/// be.
fn status(name: &QueueName, answer: Value) -> Answer<Option<QueueStatus>> {
    let parts = readable(DOING, reply::list(answer))?;
    if parts.is_empty() {
        return Ok(None);
    }
    readable(DOING, read(name, parts)).map(Some)
}

fn read(name: &QueueName, parts: Vec<Value>) -> Option<QueueStatus> {
    let mut parts = parts.into_iter();
    let gate = if reply::text(parts.next()?)? == PAUSED {
        Gate::Paused
    } else {
        Gate::Open
    };
    let mut number = || {
        parts
            .next()
            .and_then(reply::whole)
            .and_then(|number| u64::try_from(number).ok())
    };
    let totals = Totals {
        enqueued: number()?,
        done: number()?,
        dead: number()?,
        cancelled: number()?,
    };
    let mut counts = Counts::default();
    for state in State::ALL {
        *counts.of_mut(state) = number()?;
    }
    let mut bound = || reply::text(parts.next()?);
    let bounds = bounds(&bound()?, &bound()?, &bound()?)?;
    let next_ready = parts
        .next()
        .and_then(reply::bytes)
        .and_then(|at| unsorted(&at))
        .map(Time::from_micros);
    Some(QueueStatus {
        name: name.clone(),
        gate,
        counts,
        totals,
        next_ready,
        bounds,
    })
}

/// Bounds as they were set; what nobody set is as usual.
fn bounds(max_size: &str, overflow: &str, dead_max: &str) -> Option<Bounds> {
    let usual = Bounds::default();
    Some(Bounds {
        max_size: if max_size.is_empty() {
            None
        } else {
            Some(max_size.parse().ok()?)
        },
        overflow: if overflow.is_empty() {
            usual.overflow
        } else {
            overflow.parse().ok()?
        },
        dead_max: if dead_max.is_empty() {
            usual.dead_max
        } else {
            dead_max.parse().ok()?
        },
    })
}
