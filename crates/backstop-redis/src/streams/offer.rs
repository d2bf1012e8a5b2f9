//! Stores offered records.

use super::head::pack;
use super::shard::{StreamShard, by_shard, register};
use crate::context::{StoreContext, readable};
use crate::record::sortable;
use crate::reply;
use crate::script::{OFFER, ScriptCall};
use backstop_core::limits::{KEY_RECORDS_MAX, LEASE_REQUEST_MAX};
use backstop_core::port::{OfferOutcome, StoreResult};
use backstop_core::stream::Record;
use backstop_core::{StreamName, Time};
use futures_util::future::{try_join, try_join_all};
use redis::Value;

const DOING: &str = "offering";
/// The most records of one script call: while a script runs, the server does nothing else.
const RECORDS_AT_ONCE: usize = 1_000;

type NumberedRecord<'a> = (usize, &'a Record);

/// Stores records: shards in parallel, the records of one shard in order.
pub(crate) async fn offer(
    base: &StoreContext,
    stream: &StreamName,
    records: &[Record],
    now: Time,
) -> StoreResult<Vec<OfferOutcome>> {
    base.eviction_check.check(&base.link, DOING).await?;
    let numbered = records.iter().enumerate();
    let shards =
        by_shard(numbered.map(|(at, record)| (StreamShard::of(stream, &record.key), (at, record))));
    let parts = shards
        .iter()
        .map(|(shard, records)| offer_in(base, *shard, records, now));
    let ((), parts) = try_join(register(base, DOING, &[stream]), try_join_all(parts)).await?;
    let mut answers = vec![OfferOutcome::Full; records.len()];
    for ((at, _), answer) in shards.values().flatten().zip(parts.into_iter().flatten()) {
        answers[*at] = answer;
    }
    if answers.contains(&OfferOutcome::Held) {
        base.notifier.notify();
    }
    Ok(answers)
}

async fn offer_in(
    base: &StoreContext,
    shard: StreamShard<'_>,
    records: &[NumberedRecord<'_>],
    now: Time,
) -> StoreResult<Vec<OfferOutcome>> {
    let mut answers = Vec::with_capacity(records.len());
    for slice in records.chunks(RECORDS_AT_ONCE) {
        let answer = base.link.run(DOING, &call(base, shard, slice, now)).await?;
        answers.extend(readable(
            DOING,
            read(answer).filter(|answers| answers.len() == slice.len()),
        )?);
    }
    Ok(answers)
}

fn call(
    base: &StoreContext,
    shard: StreamShard<'_>,
    records: &[NumberedRecord<'_>],
    now: Time,
) -> ScriptCall {
    let mut call = shard.script(base, &OFFER);
    call.push(&sortable(now.as_micros()));
    call.push(&sortable(now.after(LEASE_REQUEST_MAX).as_micros()));
    call = call.arg(KEY_RECORDS_MAX);
    for (_, record) in records {
        call.push(record.key.as_str().as_bytes());
        call.push(&sortable(record.position));
        call.push(&pack(record.step, now, record.tenant.as_deref()));
        call.push(record.payload.as_bytes());
    }
    call
}

fn read(answer: Value) -> Option<Vec<OfferOutcome>> {
    let offered = |letter| match letter {
        b'H' => Some(OfferOutcome::Held),
        b'D' => Some(OfferOutcome::Duplicate),
        b'F' => Some(OfferOutcome::Full),
        _ => None,
    };
    reply::bytes(answer)?.into_iter().map(offered).collect()
}
