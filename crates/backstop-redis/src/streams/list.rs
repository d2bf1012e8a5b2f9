//! Reads streams and keys for operators.

use super::head::{RecordWindow, StreamKeyHead};
use super::shard::{ShardKey, StreamShard, by_shard, names};
use crate::context::{StoreContext, readable};
use crate::record::from_sortable;
use crate::reply;
use crate::script::{HOLDING_KEYS, SHARD_STATUS, STREAM_KEY};
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX, WINDOW_RECORDS_MAX};
use backstop_core::port::{
    KeyFilter, KeyStatus, ListKeysRequest, StoreError, StoreResult, StreamStatus,
};
use backstop_core::stream::{StoredKey, StreamCounter, StreamCounts};
use backstop_core::{StreamKey, StreamName, Time};
use redis::Value;

const DOING: &str = "listing streams";
/// How many heads one command reads: the state that the rules keep may be large.
const HEADS_AT_ONCE: usize = 100;

pub(crate) async fn streams(base: &StoreContext) -> StoreResult<Vec<StreamStatus>> {
    let mut streams = Vec::new();
    for name in names(base, DOING).await? {
        let shards = shard_statuses(base, DOING, &name).await?;
        let mut status = StreamStatus {
            name,
            keys: 0,
            holding: 0,
            records: 0,
            oldest: shards.iter().filter_map(|shard| shard.oldest).min(),
            counts: StreamCounts::default(),
        };
        for shard in &shards {
            status.keys += shard.keys[0];
            status.holding += shard.holding;
            status.records += shard.records[0];
            status.counts.add(&shard.counts);
        }
        // A registered name without keys and counts is not a stream.
        if status.keys > 0 || !status.counts.is_empty() {
            streams.push(status);
        }
    }
    Ok(streams)
}

/// The sizes and counts of a shard.
pub(super) struct ShardStatus {
    /// The number of heads and of names.
    keys: [u64; 2],
    holding: u64,
    /// The sizes of the four structures that hold records.
    records: [u64; 4],
    oldest: Option<Time>,
    counts: StreamCounts,
}

impl ShardStatus {
    /// Whether every key is listed, and every record has its payload and its index entries.
    pub(super) fn agrees(&self) -> bool {
        self.keys[0] == self.keys[1]
            && self.records.iter().all(|count| *count == self.records[0])
            && (self.holding == 0) == (self.records[0] == 0)
    }
}

/// Reads the status of each shard of a stream.
pub(super) async fn shard_statuses(
    base: &StoreContext,
    doing: &'static str,
    stream: &StreamName,
) -> StoreResult<Vec<ShardStatus>> {
    let calls = StreamShard::all(stream).map(|shard| shard.script(base, &SHARD_STATUS));
    let answers = base.run_each(doing, calls.into()).await?;
    readable(doing, answers.into_iter().map(shard_status).collect())
}

fn shard_status(answer: Value) -> Option<ShardStatus> {
    let mut parts = reply::list(answer)?.into_iter();
    let mut number = || u64::try_from(parts.next().and_then(reply::whole)?).ok();
    let keys = [number()?, number()?];
    let holding = number()?;
    let records = [number()?, number()?, number()?, number()?];
    let oldest = from_sortable(&reply::bytes(parts.next()?)?).map(Time::from_micros);
    let mut counts = [0; StreamCounter::ALL.len()];
    for (index, number) in reply::pairs(parts.next()?)? {
        let index: usize = std::str::from_utf8(&index).ok()?.parse().ok()?;
        // Skip a count that only a newer program knows.
        if let Some(count) = counts.get_mut(index) {
            *count = std::str::from_utf8(&number).ok()?.parse().ok()?;
        }
    }
    Some(ShardStatus {
        keys,
        holding,
        records,
        oldest,
        counts: StreamCounts::from_numbers(counts),
    })
}

/// The next keys of a stream, ordered by the bytes of their names.
pub(crate) async fn stream_keys(
    base: &StoreContext,
    query: &ListKeysRequest,
    now: Time,
) -> StoreResult<Vec<KeyStatus>> {
    let names = next_names(base, query).await?;
    let mut heads = vec![Value::Nil; names.len()];
    let shards = by_shard(
        names
            .iter()
            .enumerate()
            .map(|(at, key)| (StreamShard::of(&query.stream, key), at)),
    );
    let slices: Vec<(StreamShard<'_>, &[usize])> = shards
        .iter()
        .flat_map(|(shard, places)| places.chunks(HEADS_AT_ONCE).map(|slice| (*shard, slice)))
        .collect();
    let commands = slices.iter().map(|(shard, slice)| {
        let mut command = redis::cmd("HMGET");
        command.arg(shard.part(&base.keys, ShardKey::Heads));
        for at in *slice {
            command.arg(names[*at].as_str());
        }
        command
    });
    for ((_, slice), answer) in slices
        .iter()
        .zip(base.ask_each(DOING, commands.collect()).await?)
    {
        for (at, head) in slice.iter().zip(readable(DOING, reply::list(answer))?) {
            heads[*at] = head;
        }
    }
    let status = |(key, head): (StreamKey, Value)| {
        // A damaged key is listed all the same; reading the key reports what is wrong.
        Some(
            StreamKeyHead::parse(&reply::bytes(head)?)
                .unwrap_or_default()
                .status(key, now),
        )
    };
    Ok(names.into_iter().zip(heads).filter_map(status).collect())
}

/// The names of the next keys, over all shards.
async fn next_names(base: &StoreContext, query: &ListKeysRequest) -> StoreResult<Vec<StreamKey>> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let after = query.after.as_ref().map_or("", StreamKey::as_str);
    let shards = StreamShard::all(&query.stream);
    let answers = match query.filter {
        KeyFilter::All => {
            let from = if after.is_empty() {
                "-".to_owned()
            } else {
                format!("({after}")
            };
            let commands = shards.map(|shard| {
                let mut command = redis::cmd("ZRANGEBYLEX");
                command
                    .arg(shard.part(&base.keys, ShardKey::Names))
                    .arg(&from)
                    .arg("+");
                command.arg("LIMIT").arg(0).arg(limit);
                command
            });
            base.ask_each(DOING, commands.into()).await?
        }
        KeyFilter::Holding => {
            let calls = shards.map(|shard| shard.script(base, &HOLDING_KEYS).arg(after).arg(limit));
            base.run_each(DOING, calls.into()).await?
        }
    };
    let mut names = Vec::new();
    for answer in answers {
        let found = readable(DOING, reply::list(answer))?.into_iter();
        names.extend(found.filter_map(|name| StreamKey::new(&reply::text(name)?).ok()));
    }
    names.sort_unstable();
    names.truncate(limit);
    Ok(names)
}

/// Reads one key with its records.
pub(crate) async fn stream_key(
    base: &StoreContext,
    stream: &StreamName,
    key: StreamKey,
) -> StoreResult<Option<StoredKey>> {
    let doing = "looking at a key";
    let call = StreamShard::of(stream, &key)
        .script(base, &STREAM_KEY)
        .arg(key.as_str())
        .arg(WINDOW_RECORDS_MAX)
        .arg(PAGE_BYTES_MAX);
    let mut parts = readable(doing, reply::list(base.link.run(doing, &call).await?))?.into_iter();
    let Some(head) = parts.next() else {
        return Ok(None);
    };
    let head = readable(doing, reply::bytes(head))?;
    let head = StreamKeyHead::parse(&head).ok_or_else(|| {
        let cause = format!(
            "key {key} of {stream} cannot be read; clear it, and begin anew with what it keeps"
        );
        StoreError::corrupt(doing, cause)
    })?;
    let window = if head.is_holding() {
        readable(doing, RecordWindow::read(&mut parts))?
    } else {
        RecordWindow::default()
    };
    Ok(Some(head.stored(key, window)))
}
