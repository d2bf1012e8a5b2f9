//! Rebuilds the indexes of a stream from its keys and records, and removes index entries that have
//! neither.

use super::list::shard_statuses;
use super::shard::{ShardKey, StreamShard, names, register};
use crate::context::{StoreContext, readable};
use crate::link::machine_micros;
use crate::record::sortable;
use crate::repair::{DOING, find_keys};
use crate::reply;
use crate::script::{MEND_HEADS, MEND_INDEX, MEND_RECORDS, ScriptCall};
use backstop_core::StreamName;
use backstop_core::port::StoreResult;

/// How many entries one step looks at.
const STEP: usize = 200;

/// A full pass over all streams; returns how many entries were wrong.
pub(crate) async fn mend(base: &StoreContext) -> StoreResult<usize> {
    let mut mended = find_streams(base).await?;
    for stream in names(base, DOING).await? {
        mended += mend_stream(base, &stream).await?;
    }
    Ok(mended)
}

/// Repairs the streams whose structures do not agree. Finding them only compares a few lengths
/// each.
pub(crate) async fn repair_mismatches(base: &StoreContext) -> StoreResult<()> {
    for stream in find_mismatches(base, DOING).await? {
        let mended = mend_stream(base, &stream).await?;
        tracing::warn!(%stream, mended, "places were put right");
    }
    Ok(())
}

/// The streams whose structures do not agree.
pub(crate) async fn find_mismatches(
    base: &StoreContext,
    doing: &'static str,
) -> StoreResult<Vec<StreamName>> {
    let mut wrong = Vec::new();
    for stream in names(base, doing).await? {
        let shards = shard_statuses(base, doing, &stream).await?;
        if !shards.iter().all(super::list::ShardStatus::agrees) {
            wrong.push(stream);
        }
    }
    Ok(wrong)
}

/// Registers streams that exist but are unknown; returns how many.
pub(crate) async fn find_streams(base: &StoreContext) -> StoreResult<usize> {
    let keys = find_keys(base, &base.keys.any_shard()).await?;
    let mut found: Vec<StreamName> = keys
        .iter()
        .filter_map(|key| base.keys.stream_of(key))
        .collect();
    found.sort_unstable();
    found.dedup();
    let known = names(base, DOING).await?;
    found.retain(|stream| known.binary_search(stream).is_err());
    if !found.is_empty() {
        register(base, DOING, &found.iter().collect::<Vec<_>>()).await?;
    }
    Ok(found.len())
}

async fn mend_stream(base: &StoreContext, stream: &StreamName) -> StoreResult<usize> {
    let mut mended = 0;
    for shard in StreamShard::all(stream) {
        mended += ShardRepair { base, shard }.mend().await?;
    }
    Ok(mended)
}

/// A repair pass over one shard.
struct ShardRepair<'a> {
    base: &'a StoreContext,
    shard: StreamShard<'a>,
}

impl ShardRepair<'_> {
    async fn mend(&self) -> StoreResult<usize> {
        let now = sortable(machine_micros());
        // Records come first: heads are repaired from the records, and indexes from the heads.
        let mut mended = self
            .each(ShardKey::Records, || self.call(&MEND_RECORDS, &now))
            .await?;
        for (part, which) in [
            (ShardKey::Places, b"L"),
            (ShardKey::Ages, b"A"),
            (ShardKey::Payloads, b"P"),
        ] {
            mended += self.each(part, || self.call(&MEND_INDEX, which)).await?;
        }
        mended += self
            .each(ShardKey::Heads, || self.call(&MEND_HEADS, &now))
            .await?;
        for (part, which) in [
            (ShardKey::Names, b"N"),
            (ShardKey::Due, b"D"),
            (ShardKey::Holding, b"H"),
            (ShardKey::Taken, b"T"),
        ] {
            mended += self.each(part, || self.call(&MEND_INDEX, which)).await?;
        }
        Ok(mended)
    }

    fn call(&self, script: &'static crate::script::Script, first: &[u8]) -> ScriptCall {
        let mut call = self.shard.script(self.base, script);
        call.push(first);
        call
    }

    /// Passes all names in a structure to a script, a few at a time.
    async fn each(&self, part: ShardKey, head: impl Fn() -> ScriptCall) -> StoreResult<usize> {
        let verb = match part {
            ShardKey::Heads | ShardKey::Records | ShardKey::Payloads | ShardKey::Counts => "HSCAN",
            _ => "ZSCAN",
        };
        // HSCAN also returns the payloads and heads, which may be large.
        let count = if matches!(part, ShardKey::Heads | ShardKey::Payloads) {
            STEP / 10
        } else {
            STEP
        };
        let (mut cursor, mut mended) = ("0".to_owned(), 0);
        loop {
            let mut scan = redis::cmd(verb);
            scan.arg(self.shard.part(&self.base.keys, part))
                .arg(&cursor)
                .arg("COUNT")
                .arg(count);
            let (next, found) = readable(
                DOING,
                reply::scanned(self.base.link.ask(DOING, &scan).await?),
            )?;
            let mut call = head();
            found.iter().step_by(2).for_each(|name| call.push(name));
            mended += readable(DOING, reply::count(self.base.link.run(DOING, &call).await?))?;
            cursor = next;
            if cursor == "0" {
                return Ok(mended);
            }
        }
    }
}
