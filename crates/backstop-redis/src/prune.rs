//! Removes ended jobs whose retention is over.

use crate::context::{StoreContext, readable};
use crate::moves::sweep;
use crate::record::sortable;
use crate::repair::repair_mismatches;
use crate::reply;
use crate::script::{FORGET, PRUNE, ScriptCall};
use crate::workers::forget_silent;
use backstop_core::limits::{PRUNE_MAX, PRUNE_QUEUES_MAX, QUEUE_KEPT_FOR};
use backstop_core::port::{PruneRequest, PruneResult, Retention, StoreResult};
use backstop_core::{QueueName, Span, Time};
use redis::Value;

const DOING: &str = "pruning";

/// Removes ended jobs of the queues after `after`, queue by queue: done, cancelled, dead, oldest
/// first. When it has finished all queues, it also does the other housekeeping, because this method
/// is called regularly. Returns the queue after which the next call continues.
pub(crate) async fn prune(
    base: &StoreContext,
    retention: &PruneRequest,
    after: Option<QueueName>,
    now: Time,
) -> StoreResult<(PruneResult, Option<QueueName>)> {
    let max = retention.max.min(PRUNE_MAX);
    let (mut pruned, mut room, mut keys_room) = (PruneResult::default(), max, max);
    let mut queues = base.queues(DOING).await?;
    queues.retain(|queue| after.as_ref().is_none_or(|after| queue > after));
    let is_end = queues.len() <= PRUNE_QUEUES_MAX;
    queues.truncate(PRUNE_QUEUES_MAX);
    for queue in &queues {
        let call = base
            .script(&PRUNE, queue)
            .arg(now.as_micros())
            .arg(room)
            .arg(keys_room);
        let call = match retention.retention_for(queue) {
            Some(shelf) => with_shelf(call, &shelf, now),
            None => call,
        };
        let removed = readable(DOING, read(base.link.run(DOING, &call).await?))?;
        pruned.done += removed.done;
        pruned.cancelled += removed.cancelled;
        pruned.dead += removed.dead;
        pruned.more |= removed.more;
        room -= removed.done + removed.cancelled + removed.dead;
        keys_room -= removed.keys;
        if removed.is_unused {
            forget(base, queue, now).await?;
        }
    }
    sweep(base, DOING, &queues).await?;
    if is_end {
        forget_silent(base, now).await?;
        repair_mismatches(base).await?;
    }
    // If a queue has more to remove, the next call looks at these queues again.
    let next = if pruned.more {
        after
    } else {
        queues.pop().filter(|_| !is_end)
    };
    pruned.more |= !is_end;
    Ok((pruned, next))
}

/// Forgets a queue that has been empty for long, with its totals. The queue leaves the registry
/// first. A push that comes before its keys are removed keeps them, and the queue is entered again.
/// A push that comes after that is told that the queue is new, and enters it.
async fn forget(base: &StoreContext, queue: &QueueName, now: Time) -> StoreResult<()> {
    base.registry
        .leave(&base.link, &base.keys, DOING, queue)
        .await?;
    let call = base
        .script(&FORGET, queue)
        .arg(now.as_micros())
        .arg(QUEUE_KEPT_FOR.as_micros());
    let gone = base.link.run(DOING, &call).await.map(reply::whole);
    if gone != Ok(Some(1)) {
        base.register(DOING, &[queue]).await?;
    }
    gone.map(drop)
}

fn with_shelf(mut call: ScriptCall, shelf: &Retention, now: Time) -> ScriptCall {
    let done_max = shelf.done_max.to_string();
    let kept: [(Span, &str); 3] = [
        (shelf.done_for, &done_max),
        (shelf.cancelled_for, ""),
        (shelf.dead_for, ""),
    ];
    for (kept_for, kept_max) in kept {
        call.push(&sortable(
            now.before(kept_for).as_micros().saturating_add(1),
        ));
        call.push(kept_max.as_bytes());
    }
    call.arg(QUEUE_KEPT_FOR.as_micros())
}

struct QueuePruneResult {
    done: usize,
    cancelled: usize,
    dead: usize,
    keys: usize,
    more: bool,
    /// Whether the queue has been empty for so long that it is forgotten.
    is_unused: bool,
}

fn read(answer: Value) -> Option<QueuePruneResult> {
    let mut numbers = reply::list(answer)?.into_iter().map(reply::whole);
    let mut number = || usize::try_from(numbers.next()??).ok();
    let (done, cancelled, dead) = (number()?, number()?, number()?);
    let more_jobs = number()? > 0;
    let keys = number()?;
    let more = more_jobs || number()? > 0;
    Some(QueuePruneResult {
        done,
        cancelled,
        dead,
        keys,
        more,
        is_unused: number()? > 0,
    })
}
