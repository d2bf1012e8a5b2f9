//! Takes due keys. One pass over all shards finds the due keys; then each shard hands out its own.

use super::shard::{ShardKey as ShardPart, StreamShard, by_shard};
use super::take::{DOING, KeyTaker, ShardKeys, stored};
use crate::context::{StoreContext, readable};
use crate::record::{from_sortable, number_bytes, sortable};
use crate::reply;
use crate::script::{DUE, FIRST_DUE, ScriptCall};
use backstop_core::limits::LEASE_REQUEST_MAX;
use backstop_core::port::{StoreResult, TakeRequest, TakeResult};
use backstop_core::{StreamKey, Time};
use redis::Value;
use std::collections::BTreeMap;

/// Takes at most `max` of the due keys.
pub(crate) async fn take_due(
    base: &StoreContext,
    take: &TakeRequest,
    max: usize,
    now: Time,
) -> StoreResult<TakeResult> {
    let shards = StreamShard::all(&take.stream);
    let calls = shards.map(|shard| first(base, shard, take)).into();
    let (mut next_due, mut promising) = (BTreeMap::new(), Vec::new());
    for (shard, answer) in shards.into_iter().zip(base.run_each(DOING, calls).await?) {
        let ShardPreview { due, is_taken } = readable(DOING, parse_preview(answer))?;
        next_due.insert(shard, due);
        if is_taken || due.is_some_and(|due| due <= now) {
            promising.push(shard);
        }
    }
    let calls = promising
        .iter()
        .map(|shard| due_call(base, *shard, take, max, now))
        .collect();
    let mut looks = Vec::with_capacity(promising.len());
    for (shard, answer) in promising
        .into_iter()
        .zip(base.run_each(DOING, calls).await?)
    {
        let seen = readable(DOING, parse_due_keys(answer))?;
        next_due.insert(shard, seen.next_due);
        looks.push((shard, seen));
    }
    let wanted = wanted(looks, max);
    let parts = by_shard(wanted.iter().map(|(shard, key)| (*shard, key)));
    let parts = parts
        .into_iter()
        .map(|(shard, keys)| ShardKeys { shard, keys });
    let handed = KeyTaker { base, take, now }
        .hand_out(parts.collect())
        .await?;
    next_due.extend(handed.iter().map(|handed| (handed.shard, handed.next_due)));
    Ok(TakeResult {
        keys: stored(handed),
        next_due: next_due.into_values().flatten().min(),
    })
}

/// Whether a shard has keys that are due or that this take already has.
struct ShardPreview {
    due: Option<Time>,
    is_taken: bool,
}

fn first(base: &StoreContext, shard: StreamShard<'_>, take: &TakeRequest) -> ScriptCall {
    let mut call = FIRST_DUE
        .with(&[ShardPart::Due, ShardPart::Taken].map(|part| shard.part(&base.keys, part)));
    call.push(&number_bytes(take.number));
    call
}

fn parse_preview(answer: Value) -> Option<ShardPreview> {
    let mut parts = reply::list(answer)?.into_iter();
    let due = from_sortable(&reply::bytes(parts.next()?)?).map(Time::from_micros);
    Some(ShardPreview {
        due,
        is_taken: reply::whole(parts.next()?)? > 0,
    })
}

/// The due keys of a shard.
struct ShardDueKeys {
    next_due: Option<Time>,
    /// The keys that this take already has.
    taken: Vec<StreamKey>,
    /// Due keys, each with the bytes by which it sorts.
    due: Vec<(Vec<u8>, StreamKey)>,
}

fn due_call(
    base: &StoreContext,
    shard: StreamShard<'_>,
    take: &TakeRequest,
    max: usize,
    now: Time,
) -> ScriptCall {
    let mut call = shard.script(base, &DUE);
    call.push(&number_bytes(take.number));
    call.push(&sortable(now.as_micros()));
    call.push(&sortable(now.after(LEASE_REQUEST_MAX).as_micros()));
    call.push(&sortable(now.as_micros().saturating_add(1)));
    call.arg(max)
}

fn parse_due_keys(answer: Value) -> Option<ShardDueKeys> {
    let mut parts = reply::list(answer)?.into_iter();
    let next_due = from_sortable(&reply::bytes(parts.next()?)?).map(Time::from_micros);
    let taken = reply::all_bytes(parts.next()?)?
        .iter()
        .map(|name| key_of(name))
        .collect::<Option<_>>()?;
    let members = reply::all_bytes(parts.next()?)?.into_iter();
    let due = members.map(|member| {
        let key = key_of(member.get(8..)?)?;
        Some((member, key))
    });
    Some(ShardDueKeys {
        next_due,
        taken,
        due: due.collect::<Option<_>>()?,
    })
}

fn key_of(name: &[u8]) -> Option<StreamKey> {
    StreamKey::new(std::str::from_utf8(name).ok()?).ok()
}

/// The keys that a repeated take already has; otherwise the keys that have been due longest, in
/// order.
fn wanted(
    looks: Vec<(StreamShard<'_>, ShardDueKeys)>,
    max: usize,
) -> Vec<(StreamShard<'_>, StreamKey)> {
    let (mut taken, mut due) = (Vec::new(), Vec::new());
    for (shard, seen) in looks {
        taken.extend(seen.taken.into_iter().map(|key| (shard, key)));
        due.extend(
            seen.due
                .into_iter()
                .map(|(member, key)| (member, shard, key)),
        );
    }
    if !taken.is_empty() {
        return taken;
    }
    due.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    due.into_iter()
        .take(max)
        .map(|(_, shard, key)| (shard, key))
        .collect()
}
