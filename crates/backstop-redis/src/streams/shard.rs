//! The shards of a stream. Each shard has its own keys in one cluster slot, so a cluster spreads a
//! stream over its masters.

use crate::context::{StoreContext, readable};
use crate::keys::KeyNames;
use crate::reply;
use crate::script::{Script, ScriptCall};
use backstop_core::port::StoreResult;
use backstop_core::{StreamKey, StreamName};
use std::collections::BTreeMap;

/// The number of shards. A key's hash selects its shard, so this number can never change.
pub(crate) const SHARDS: usize = 16;

/// The keys of a shard, in the order in which every script gets them: see `lua/streams/shard.lua`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShardKey {
    Heads,
    Names,
    Due,
    Records,
    Payloads,
    Places,
    Ages,
    Holding,
    Taken,
    Counts,
}

impl ShardKey {
    /// All keys, in the order that scripts expect.
    const ALL: [Self; 10] = [
        Self::Heads,
        Self::Names,
        Self::Due,
        Self::Records,
        Self::Payloads,
        Self::Places,
        Self::Ages,
        Self::Holding,
        Self::Taken,
        Self::Counts,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Heads => "heads",
            Self::Names => "names",
            Self::Due => "due",
            Self::Records => "records",
            Self::Payloads => "payloads",
            Self::Places => "places",
            Self::Ages => "ages",
            Self::Holding => "holding",
            Self::Taken => "taken",
            Self::Counts => "counts",
        }
    }
}

/// One shard of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StreamShard<'a> {
    number: usize,
    stream: &'a StreamName,
}

impl<'a> StreamShard<'a> {
    /// The shard that a key belongs to.
    pub(crate) fn of(stream: &'a StreamName, key: &StreamKey) -> Self {
        Self {
            number: hash(key.as_str().as_bytes()) as usize % SHARDS,
            stream,
        }
    }

    /// All shards of a stream, in order.
    pub(crate) fn all(stream: &'a StreamName) -> [Self; SHARDS] {
        std::array::from_fn(|number| Self { number, stream })
    }

    /// The name of one key of the shard.
    pub(crate) fn part(self, keys: &KeyNames, part: ShardKey) -> String {
        keys.shard(self.stream, self.number, part.as_str())
    }

    /// A call of a script on the shard.
    pub(crate) fn script(self, base: &StoreContext, script: &'static Script) -> ScriptCall {
        script.with(&ShardKey::ALL.map(|part| self.part(&base.keys, part)))
    }
}

/// Groups items by the shards of their stream keys; each group keeps the order.
pub(crate) fn by_shard<'a, T>(
    things: impl Iterator<Item = (StreamShard<'a>, T)>,
) -> BTreeMap<StreamShard<'a>, Vec<T>> {
    let mut shards: BTreeMap<StreamShard<'a>, Vec<T>> = BTreeMap::new();
    for (shard, thing) in things {
        shards.entry(shard).or_default().push(thing);
    }
    shards
}

/// The names of all streams, sorted.
pub(crate) async fn names(
    base: &StoreContext,
    doing: &'static str,
) -> StoreResult<Vec<StreamName>> {
    let names = base
        .link
        .ask(doing, redis::cmd("SMEMBERS").arg(base.keys.streams()))
        .await?;
    let names = readable(doing, reply::list(names))?
        .into_iter()
        .filter_map(reply::text);
    let mut streams: Vec<StreamName> = names
        .filter_map(|name| StreamName::new(&name).ok())
        .collect();
    streams.sort_unstable();
    Ok(streams)
}

/// Enters streams in the registry. Every offer and take does this, because a crash may set the
/// registry back, and a stream missing in it would be hidden.
pub(crate) async fn register(
    base: &StoreContext,
    doing: &'static str,
    streams: &[&StreamName],
) -> StoreResult<()> {
    let mut command = redis::cmd("SADD");
    command.arg(base.keys.streams());
    for stream in streams {
        command.arg(stream.as_str());
    }
    base.link.ask(doing, &command).await.map(drop)
}

/// FNV-1a, because it must stay the same on every machine and in every version.
const fn hash(bytes: &[u8]) -> u32 {
    let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    // The lower bits alone depend on little more than the last bytes.
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_where_it_was_put() {
        let stream = StreamName::new("uptime").expect("a name");
        let shard =
            |text: &str| StreamShard::of(&stream, &StreamKey::new(text).expect("a key")).number;
        assert_eq!(["a", "b", "device-17", "ключ"].map(shard), [0, 9, 13, 5]);
    }

    #[test]
    fn keys_are_spread_evenly() {
        let stream = StreamName::new("uptime").expect("a name");
        let keys = (0..16_000).map(|n| StreamKey::new(&format!("device-{n}")).expect("a key"));
        let shards = by_shard(keys.map(|key| (StreamShard::of(&stream, &key), ())));
        assert_eq!(shards.len(), SHARDS);
        assert!(
            shards
                .values()
                .all(|keys| (850..1_150).contains(&keys.len())),
            "{shards:?}"
        );
    }
}
