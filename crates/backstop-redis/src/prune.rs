//! Ended jobs whose time is over.

use crate::base::{Base, readable};
use crate::moves::sweep;
use crate::record::sortable;
use crate::repair::repair_what_disagrees;
use crate::reply;
use crate::script::{PRUNE, ScriptCall};
use crate::workers::forget_silent;
use backstop_core::limits::PRUNE_MAX;
use backstop_core::port::{Answer, Pruned, Retention, Shelf};
use backstop_core::{Span, Time};
use redis::Value;

const DOING: &str = "pruning";

/// Removes ended jobs, queue by queue: done, cancelled, dead, oldest first. Looks after the rest while it is there: this
/// is what a keeper calls now and then.
pub(crate) async fn prune(base: &Base, retention: &Retention, now: Time) -> Answer<Pruned> {
    let max = retention.max.min(PRUNE_MAX);
    let (mut pruned, mut room, mut keys_room) = (Pruned::default(), max, max);
    let queues = base.queues(DOING).await?;
    for queue in &queues {
        let call = base.script(&PRUNE, queue).arg(now.as_micros()).arg(room).arg(keys_room);
        let call = match retention.shelf(queue) {
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
    }
    sweep(base, DOING, &queues).await?;
    forget_silent(base, now).await?;
    repair_what_disagrees(base).await?;
    Ok(pruned)
}

fn with_shelf(mut call: ScriptCall, shelf: &Shelf, now: Time) -> ScriptCall {
    let done_max = shelf.done_max.to_string();
    let kept: [(Span, &str); 3] =
        [(shelf.done_for, &done_max), (shelf.cancelled_for, ""), (shelf.dead_for, "")];
    for (kept_for, kept_max) in kept {
        call.push(&sortable(now.before(kept_for).as_micros().saturating_add(1)));
        call.push(kept_max.as_bytes());
    }
    call
}

/// What one queue removed.
struct Removed {
    done: usize,
    cancelled: usize,
    dead: usize,
    keys: usize,
    more: bool,
}

fn read(answer: Value) -> Option<Removed> {
    let mut numbers = reply::list(answer)?.into_iter().map(reply::whole);
    let mut number = || usize::try_from(numbers.next()??).ok();
    let (done, cancelled, dead) = (number()?, number()?, number()?);
    let more_jobs = number()? > 0;
    let keys = number()?;
    Some(Removed { done, cancelled, dead, keys, more: more_jobs || number()? > 0 })
}
