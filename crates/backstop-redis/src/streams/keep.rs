//! Renews leases of stream keys.

use super::shard::{StreamShard, by_shard};
use crate::context::{StoreContext, readable};
use crate::record::{number_bytes, sortable};
use crate::reply;
use crate::script::{KEEP, ScriptCall};
use backstop_core::Time;
use backstop_core::lease::longest_lease_end;
use backstop_core::port::{KeyLease, StoreResult};

const DOING: &str = "keeping keys";
/// The most leases of one script call: while a script runs, the server does nothing else.
const LEASES_AT_ONCE: usize = 1_000;
const KEPT: u8 = b'K';

/// Renews leases, and returns the lost ones.
pub(crate) async fn keep(
    base: &StoreContext,
    leases: Vec<KeyLease>,
    until: Time,
    now: Time,
) -> StoreResult<Vec<KeyLease>> {
    let numbered = leases.iter().enumerate();
    let shards =
        by_shard(numbered.map(|(at, lease)| (StreamShard::of(&lease.stream, &lease.key), at)));
    let slices: Vec<(StreamShard<'_>, &[usize])> = shards
        .iter()
        .flat_map(|(shard, places)| places.chunks(LEASES_AT_ONCE).map(|slice| (*shard, slice)))
        .collect();
    let calls = slices.iter().map(|(shard, slice)| {
        let leases = slice.iter().map(|at| &leases[*at]);
        call(base, *shard, leases, until, now)
    });
    let mut is_kept = vec![false; leases.len()];
    for ((_, slice), answer) in slices
        .iter()
        .zip(base.run_each(DOING, calls.collect()).await?)
    {
        let letters = readable(
            DOING,
            reply::bytes(answer).filter(|reply_letters| reply_letters.len() == slice.len()),
        )?;
        for (at, letter) in slice.iter().zip(letters) {
            is_kept[*at] = letter == KEPT;
        }
    }
    Ok(leases
        .into_iter()
        .zip(is_kept)
        .filter(|(_, is_kept)| !is_kept)
        .map(|(lease, _)| lease)
        .collect())
}

fn call<'a>(
    base: &StoreContext,
    shard: StreamShard<'_>,
    leases: impl Iterator<Item = &'a KeyLease>,
    until: Time,
    now: Time,
) -> ScriptCall {
    let mut call = shard.script(base, &KEEP);
    call.push(&sortable(until.as_micros()));
    call.push(&sortable(longest_lease_end(until, now).as_micros()));
    for lease in leases {
        call.push(lease.key.as_str().as_bytes());
        call.push(&number_bytes(lease.number));
    }
    call
}
