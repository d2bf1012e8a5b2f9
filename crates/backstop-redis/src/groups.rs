//! Groups dead letters by queue and fingerprint.

use crate::context::{StoreContext, readable};
use crate::record::{fingerprint_bytes, fingerprint_of, from_sortable, id_of};
use crate::reply;
use crate::script::GROUPS;
use backstop_core::limits::GROUPS_MAX;
use backstop_core::port::{DeadLetterGroup, ListGroupsRequest, StoreResult};
use backstop_core::{QueueName, Time};
use futures_util::future::try_join_all;
use redis::Value;
use std::cmp::Reverse;

const DOING: &str = "grouping dead letters";
/// The most groups of one script call: while a script runs, the server does nothing else.
const GROUPS_AT_ONCE: usize = 500;

/// The largest groups. It has to look at all groups to find them.
pub(crate) async fn groups(
    base: &StoreContext,
    query: &ListGroupsRequest,
) -> StoreResult<Vec<DeadLetterGroup>> {
    let queues = match &query.queue {
        Some(queue) => vec![queue.clone()],
        None => base.queues(DOING).await?,
    };
    let parts = try_join_all(queues.iter().map(|queue| groups_of(base, queue))).await?;
    let mut groups: Vec<DeadLetterGroup> = parts.into_iter().flatten().collect();
    groups.sort_by(|a, b| {
        let rank = |group: &DeadLetterGroup| Reverse((group.count, group.last_at));
        let name = |group: &DeadLetterGroup| group.fingerprint.as_i64();
        rank(a)
            .cmp(&rank(b))
            .then_with(|| a.queue.cmp(&b.queue))
            .then_with(|| name(a).cmp(&name(b)))
    });
    groups.truncate(query.limit.clamp(1, GROUPS_MAX));
    Ok(groups)
}

async fn groups_of(base: &StoreContext, queue: &QueueName) -> StoreResult<Vec<DeadLetterGroup>> {
    let mut groups: Vec<DeadLetterGroup> = Vec::new();
    loop {
        let mut call = base.script(&GROUPS, queue);
        match groups.last() {
            Some(last) => call.push(&fingerprint_bytes(last.fingerprint)),
            None => call.push(b""),
        }
        let answer = base.link.run(DOING, &call.arg(GROUPS_AT_ONCE)).await?;
        let found = readable(DOING, read(queue, answer))?;
        let is_last = found.len() < GROUPS_AT_ONCE;
        groups.extend(found);
        if is_last {
            return Ok(groups);
        }
    }
}

fn read(queue: &QueueName, answer: Value) -> Option<Vec<DeadLetterGroup>> {
    let mut parts = reply::list(answer)?.into_iter();
    let time = |value| Some(Time::from_micros(from_sortable(&reply::bytes(value)?)?));
    let mut groups = Vec::new();
    while let Some(fingerprint) = parts.next() {
        groups.push(DeadLetterGroup {
            queue: queue.clone(),
            fingerprint: fingerprint_of(&reply::bytes(fingerprint)?)?,
            count: u64::try_from(reply::whole(parts.next()?)?).ok()?,
            first_at: time(parts.next()?)?,
            last_at: time(parts.next()?)?,
            sample: id_of(&reply::bytes(parts.next()?)?)?,
        });
    }
    Some(groups)
}
