//! Hands out stream keys.
//!
//! All shards hand out their keys in parallel. A repeated take gets the keys it still holds and no
//! others. A shard that holds such keys says so. Keys that another shard newly handed out to this
//! take are then given back.

use super::head::{RecordWindow, StreamKeyHead};
use super::shard::{StreamShard, by_shard, register};
use crate::context::{StoreContext, readable};
use crate::record::{from_sortable, number_bytes, sortable};
use crate::reply;
use crate::script::{GIVE_BACK, ScriptCall, TAKE};
use backstop_core::limits::{LEASE_REQUEST_MAX, TAKE_BYTES_MAX, WINDOW_RECORDS_MAX};
use backstop_core::port::{KeySelection, StoreResult, TakeRequest, TakeResult};
use backstop_core::stream::StoredKey;
use backstop_core::{StreamKey, Time};
use futures_util::future::try_join;
use redis::Value;

pub(super) const DOING: &str = "taking keys";
/// The most keys of one script call: while a script runs, the server does nothing else.
pub(super) const KEYS_AT_ONCE: usize = 1_000;

pub(crate) async fn take(
    base: &StoreContext,
    take: &TakeRequest,
    keys: &[StreamKey],
    now: Time,
) -> StoreResult<TakeResult> {
    base.eviction_check.check(&base.link, DOING).await?;
    let shards = by_shard(
        keys.iter()
            .map(|key| (StreamShard::of(&take.stream, key), key)),
    );
    let taker = KeyTaker { base, take, now };
    let parts = shards.into_iter().flat_map(|(shard, mut keys)| {
        keys.sort_unstable();
        keys.dedup();
        let slices = keys.chunks(KEYS_AT_ONCE);
        slices
            .map(|keys| ShardKeys {
                shard,
                keys: keys.to_vec(),
            })
            .collect::<Vec<_>>()
    });
    let parts = taker.hand_out(parts.collect());
    let ((), handed) = try_join(register(base, DOING, &[&take.stream]), parts).await?;
    let left = taker.remaining_of(handed).await?;
    Ok(TakeResult {
        keys: stored(left),
        next_due: None,
    })
}

/// The keys in several replies.
pub(super) fn stored(handed: Vec<ShardHandout<'_>>) -> Vec<StoredKey> {
    handed
        .into_iter()
        .flat_map(|handed| handed.keys)
        .map(|given| given.stored)
        .collect()
}

/// The take request, and its time.
#[derive(Clone, Copy)]
pub(super) struct KeyTaker<'a> {
    pub(super) base: &'a StoreContext,
    pub(super) take: &'a TakeRequest,
    pub(super) now: Time,
}

pub(super) struct ShardKeys<'a> {
    pub(super) shard: StreamShard<'a>,
    pub(super) keys: Vec<&'a StreamKey>,
}

pub(super) struct ShardHandout<'a> {
    pub(super) shard: StreamShard<'a>,
    pub(super) next_due: Option<Time>,
    is_again: bool,
    keys: Vec<TakenKey>,
    /// Keys that have to wait because the reply is full.
    waiting: Vec<&'a StreamKey>,
    bytes: usize,
}

/// A key that was handed out, and its previous head; empty if it had none.
struct TakenKey {
    stored: StoredKey,
    former: Vec<u8>,
}

impl<'a> KeyTaker<'a> {
    /// Lets every shard hand out an equal share of the reply's bytes. Shards with more keys then
    /// use up what is left.
    pub(super) async fn hand_out(
        &self,
        parts: Vec<ShardKeys<'a>>,
    ) -> StoreResult<Vec<ShardHandout<'a>>> {
        let share = TAKE_BYTES_MAX / parts.len().max(1);
        let calls = parts.iter().map(|part| self.call(part, share)).collect();
        let answers = self.base.run_each(DOING, calls).await?;
        let read = parts
            .iter()
            .zip(answers)
            .map(|(part, answer)| readable(DOING, handed_out(part, answer)));
        let mut handed = read.collect::<StoreResult<Vec<ShardHandout<'_>>>>()?;
        let mut bytes: usize = handed.iter().map(|handed| handed.bytes).sum();
        if handed.iter().any(|handed| handed.is_again) {
            return Ok(handed);
        }
        for at in 0..handed.len() {
            let part = ShardKeys {
                shard: handed[at].shard,
                keys: std::mem::take(&mut handed[at].waiting),
            };
            if part.keys.is_empty() || bytes >= TAKE_BYTES_MAX {
                continue;
            }
            let answer = self
                .base
                .link
                .run(DOING, &self.call(&part, TAKE_BYTES_MAX - bytes))
                .await?;
            let more = readable(DOING, handed_out(&part, answer))?;
            bytes += more.bytes;
            handed.push(more);
        }
        Ok(handed)
    }

    fn call(&self, part: &ShardKeys<'_>, bytes_max: usize) -> ScriptCall {
        let TakeRequest {
            number,
            worker,
            until,
            wanted,
            ..
        } = self.take;
        let mut call = part.shard.script(self.base, &TAKE);
        call.push(match wanted {
            KeySelection::Keys(_) => b"K",
            KeySelection::Seized(_) => b"S",
            KeySelection::Due(_) => b"D",
        });
        call.push(&number_bytes(*number));
        call.push(&sortable(until.as_micros()));
        call.push(&sortable(self.now.as_micros()));
        call.push(&sortable(self.now.after(LEASE_REQUEST_MAX).as_micros()));
        let worker = worker.as_str().as_bytes();
        call.push(&[&(worker.len() as u16).to_be_bytes(), worker].concat());
        call = call.arg(WINDOW_RECORDS_MAX).arg(bytes_max);
        for key in &part.keys {
            call.push(key.as_str().as_bytes());
        }
        call
    }

    /// For a repeated take, the keys that it still holds; otherwise all keys that were handed out.
    async fn remaining_of(
        &self,
        handed: Vec<ShardHandout<'a>>,
    ) -> StoreResult<Vec<ShardHandout<'a>>> {
        let (again, fresh): (Vec<_>, Vec<_>) =
            handed.into_iter().partition(|handed| handed.is_again);
        if again.is_empty() {
            return Ok(fresh);
        }
        let calls = fresh
            .iter()
            .filter(|handed| !handed.keys.is_empty())
            .map(|handed| self.give_back(handed));
        self.base.run_each(DOING, calls.collect()).await?;
        Ok(again)
    }

    fn give_back(&self, handed: &ShardHandout<'_>) -> ScriptCall {
        let mut call = handed.shard.script(self.base, &GIVE_BACK);
        call.push(&number_bytes(self.take.number));
        call.push(&sortable(self.now.as_micros()));
        for given in &handed.keys {
            call.push(given.stored.key.as_str().as_bytes());
            call.push(&given.former);
        }
        call
    }
}

fn handed_out<'a>(part: &ShardKeys<'a>, answer: Value) -> Option<ShardHandout<'a>> {
    let mut parts = reply::list(answer)?.into_iter();
    let is_again = reply::bytes(parts.next()?)? == b"A";
    let next_due = from_sortable(&reply::bytes(parts.next()?)?).map(Time::from_micros);
    let heads = reply::list(parts.next()?)?;
    let mut windows = reply::list(parts.next()?)?.into_iter();
    let mut handed = ShardHandout {
        shard: part.shard,
        next_due,
        is_again,
        keys: Vec::with_capacity(heads.len()),
        waiting: Vec::new(),
        bytes: 0,
    };
    for (key, head) in part.keys.iter().zip(heads) {
        match head {
            Value::Nil => {}
            Value::Int(_) => handed.waiting.push(*key),
            head => handed.give(key, reply::bytes(head)?, &mut windows)?,
        }
    }
    Some(handed)
}

impl ShardHandout<'_> {
    /// Windows come in the order of their keys, each after the number of its key.
    fn give(
        &mut self,
        key: &StreamKey,
        former: Vec<u8>,
        windows: &mut impl Iterator<Item = Value>,
    ) -> Option<()> {
        let head = if former.is_empty() {
            StreamKeyHead::default()
        } else {
            StreamKeyHead::parse(&former)?
        };
        let mut window = RecordWindow::default();
        if head.is_holding() {
            windows.next()?;
            window = RecordWindow::read(windows)?;
        }
        self.bytes += window.bytes;
        self.keys.push(TakenKey {
            stored: head.stored(key.clone(), window),
            former,
        });
        Some(())
    }
}
