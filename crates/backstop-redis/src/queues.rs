//! The status, the pause and the bounds of queues.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::record::from_sortable;
use crate::reply;
use crate::script::STATUS;
use backstop_core::port::{QueueState, QueueStatus, QueueTotals, StateCounts, StoreResult};
use backstop_core::{JobState, QueueBounds, QueueName, Time};
use redis::Value;

const DOING: &str = "listing queues";
const PAUSED: &str = "paused";
const OPEN: &str = "open";

pub(crate) async fn queues(base: &StoreContext) -> StoreResult<Vec<QueueStatus>> {
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

/// Pauses or resumes a queue.
pub(crate) async fn set_gate(
    base: &StoreContext,
    queue: &QueueName,
    gate: QueueState,
) -> StoreResult<()> {
    let doing = "pausing or resuming a queue";
    base.register(doing, &[queue]).await?;
    let word = if gate == QueueState::Paused {
        PAUSED
    } else {
        OPEN
    };
    let mut command = redis::cmd("HSET");
    command
        .arg(base.keys.part(queue, QueueKey::Meta))
        .arg("gate")
        .arg(word);
    base.link.ask(doing, &command).await?;
    base.notifier.notify();
    // Register again, as `enqueue_reply.rs` does: the queue may have been forgotten meanwhile.
    base.register(doing, &[queue]).await
}

/// Sets the bounds of a queue.
pub(crate) async fn set_bounds(
    base: &StoreContext,
    queue: &QueueName,
    bounds: QueueBounds,
) -> StoreResult<()> {
    let doing = "bounding a queue";
    base.register(doing, &[queue]).await?;
    let max_size = bounds
        .max_size
        .map_or_else(String::new, |max| max.to_string());
    let mut command = redis::cmd("HSET");
    command
        .arg(base.keys.part(queue, QueueKey::Meta))
        .arg("max_size")
        .arg(max_size);
    command
        .arg("overflow")
        .arg(bounds.overflow.as_str())
        .arg("dead_max")
        .arg(bounds.dead_max);
    base.link.ask(doing, &command).await?;
    // Register again, as `enqueue_reply.rs` does: the queue may have been forgotten meanwhile.
    base.register(doing, &[queue]).await
}

/// Marks queues as configured by setting their overflow policy. Bounds that were set before stay.
pub(crate) async fn declare(base: &StoreContext, queues: &[QueueName]) -> StoreResult<()> {
    if queues.is_empty() {
        return Ok(());
    }
    let doing = "declaring queues";
    let names: Vec<&QueueName> = queues.iter().collect();
    base.register(doing, &names).await?;
    let overflow = QueueBounds::default().overflow;
    let declare = |queue: &QueueName| {
        let mut command = redis::cmd("HSETNX");
        command.arg(base.keys.part(queue, QueueKey::Meta));
        command.arg("overflow").arg(overflow.as_str());
        command
    };
    base.ask_each(doing, queues.iter().map(declare).collect())
        .await?;
    // Register again, as `enqueue_reply.rs` does: the queue may have been forgotten meanwhile.
    base.register(doing, &names).await
}

/// Decodes the status of a queue; `None` for a name that was registered and whose queue was never
/// created.
fn status(name: &QueueName, answer: Value) -> StoreResult<Option<QueueStatus>> {
    let parts = readable(DOING, reply::list(answer))?;
    if parts.is_empty() {
        return Ok(None);
    }
    readable(DOING, read(name, parts)).map(Some)
}

fn read(name: &QueueName, parts: Vec<Value>) -> Option<QueueStatus> {
    let mut parts = parts.into_iter();
    let gate = if reply::text(parts.next()?)? == PAUSED {
        QueueState::Paused
    } else {
        QueueState::Active
    };
    let mut number = || {
        parts
            .next()
            .and_then(reply::whole)
            .and_then(|number| u64::try_from(number).ok())
    };
    let totals = QueueTotals {
        enqueued: number()?,
        done: number()?,
        dead: number()?,
        cancelled: number()?,
    };
    let mut counts = StateCounts::default();
    for state in JobState::ALL {
        *counts.of_mut(state) = number()?;
    }
    let mut bound = || reply::text(parts.next()?);
    let bounds = bounds(&bound()?, &bound()?, &bound()?)?;
    let next_ready = parts
        .next()
        .and_then(reply::bytes)
        .and_then(|at| from_sortable(&at))
        .map(Time::from_micros);
    Some(QueueStatus {
        name: name.clone(),
        state: gate,
        counts,
        totals,
        next_ready,
        bounds,
    })
}

/// Decodes bounds; a bound that was never set has its default.
fn bounds(max_size: &str, overflow: &str, dead_max: &str) -> Option<QueueBounds> {
    let usual = QueueBounds::default();
    Some(QueueBounds {
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
