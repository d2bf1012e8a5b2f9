//! Applies decisions about stream keys.

use super::head::{pack, watermark_bytes};
use super::shard::{StreamShard, by_shard};
use crate::context::{StoreContext, readable};
use crate::record::{number_bytes, sortable};
use crate::reply;
use crate::script::{ADVANCE, ScriptCall};
use backstop_core::Time;
use backstop_core::lease::longest_lease_end;
use backstop_core::limits::ENQUEUE_BYTES_MAX;
use backstop_core::port::{AdvanceOutcome, KeyAdvance, KeyLeaseAction, StoreResult};
use backstop_core::stream::{KeyChange, StreamCounts};
use futures_util::future::try_join_all;

const DOING: &str = "advancing keys";
/// The most keys of one script call: while a script runs, the server does nothing else.
const KEYS_AT_ONCE: usize = 1_000;
/// After touching this many records, a script leaves the rest to the next one.
const RECORDS_AT_ONCE: usize = 5_000;
/// The largest integer that Lua counts exactly.
const COUNT_MAX: u64 = 1 << 53;
const APPLIED: u8 = b'A';
const APPLIED_AND_DUE: u8 = b'W';
const STALE: u8 = b'S';

type NumberedAdvance<'a> = (usize, &'a KeyAdvance);

/// Applies advances: shards in parallel, the advances of one shard in order.
pub(crate) async fn advance(
    base: &StoreContext,
    advances: &[KeyAdvance],
    now: Time,
) -> StoreResult<Vec<AdvanceOutcome>> {
    let numbered = advances.iter().enumerate();
    let shards = by_shard(numbered.map(|(at, advance)| {
        let shard = StreamShard::of(&advance.lease.stream, &advance.lease.key);
        (shard, (at, advance))
    }));
    let parts = shards
        .iter()
        .map(|(shard, advances)| advance_in(base, *shard, advances, now));
    let letters: Vec<u8> = try_join_all(parts).await?.concat();
    let mut answers = vec![AdvanceOutcome::Stale; advances.len()];
    for ((at, _), letter) in shards.values().flatten().zip(&letters) {
        if *letter != STALE {
            answers[*at] = AdvanceOutcome::Applied;
        }
    }
    if letters.contains(&APPLIED_AND_DUE) {
        base.notifier.notify();
    }
    Ok(answers)
}

/// Returns one letter per advance. A script that touched enough records leaves the rest to the
/// next.
async fn advance_in(
    base: &StoreContext,
    shard: StreamShard<'_>,
    advances: &[NumberedAdvance<'_>],
    now: Time,
) -> StoreResult<Vec<u8>> {
    let mut letters = Vec::with_capacity(advances.len());
    while letters.len() < advances.len() {
        let slice = first_of(&advances[letters.len()..]);
        let letter_bytes =
            reply::bytes(base.link.run(DOING, &call(base, shard, slice, now)).await?);
        let is_sound = |letter_bytes: &Vec<u8>| {
            (1..=slice.len()).contains(&letter_bytes.len())
                && letter_bytes
                    .iter()
                    .all(|letter| [APPLIED, APPLIED_AND_DUE, STALE].contains(letter))
        };
        letters.extend(readable(DOING, letter_bytes.filter(is_sound))?);
    }
    Ok(letters)
}

/// As many advances as one script may carry, at least one.
fn first_of<'a, 'b>(advances: &'a [NumberedAdvance<'b>]) -> &'a [NumberedAdvance<'b>] {
    let (mut bytes, mut records) = (0, 0);
    let fits = |(_, advance): &&NumberedAdvance<'_>| {
        let KeyChange {
            state: key_state,
            hold,
            drop,
            ..
        } = &advance.change;
        bytes += hold
            .iter()
            .map(|record| record.payload.len())
            .sum::<usize>()
            + key_state.len();
        records += hold.len() + drop.len();
        bytes <= ENQUEUE_BYTES_MAX && records <= RECORDS_AT_ONCE
    };
    let count = advances.iter().take(KEYS_AT_ONCE).take_while(fits).count();
    &advances[..count.max(1)]
}

fn call(
    base: &StoreContext,
    shard: StreamShard<'_>,
    advances: &[NumberedAdvance<'_>],
    now: Time,
) -> ScriptCall {
    let mut call = shard.script(base, &ADVANCE);
    call.push(&sortable(now.as_micros()));
    call = call.arg(RECORDS_AT_ONCE);
    for (_, advance) in advances {
        let KeyChange {
            hold, drop, counts, ..
        } = &advance.change;
        call.push(advance.lease.key.as_str().as_bytes());
        call.push(&change(advance, now));
        call.push(&counted(counts));
        if hold.is_empty() && drop.is_empty() {
            continue;
        }
        call.push(
            &drop
                .iter()
                .flat_map(|position| sortable(*position))
                .collect::<Vec<u8>>(),
        );
        call = call.arg(hold.len());
        for record in hold {
            call.push(&sortable(record.position));
            call.push(&pack(record.step, record.at, record.tenant.as_deref()));
            call.push(record.payload.as_bytes());
        }
    }
    call
}

/// Encodes the change of a key for the script.
fn change(advance: &KeyAdvance, now: Time) -> Vec<u8> {
    let KeyChange {
        watermark,
        state: key_state,
        hold,
        drop,
        ..
    } = &advance.change;
    let (then, time, kept) = match advance.lease_action {
        KeyLeaseAction::Keep(until) => (b'K', Some(until), Some(longest_lease_end(until, now))),
        KeyLeaseAction::Release(due) => (b'R', due, None),
        KeyLeaseAction::Clear => (b'C', None, None),
    };
    let bytes_of = |time: Option<Time>| time.map_or([0; 8], |time| sortable(time.as_micros()));
    let mut bytes = Vec::with_capacity(49 + key_state.len());
    bytes.extend(number_bytes(advance.lease.number));
    bytes.extend(advance.turn.to_be_bytes());
    bytes.extend(advance.seen.to_be_bytes());
    bytes.push(then);
    bytes.extend(bytes_of(time));
    bytes.extend(bytes_of(kept));
    bytes.push(if hold.is_empty() && drop.is_empty() {
        b'0'
    } else {
        b'1'
    });
    bytes.extend(watermark_bytes(*watermark));
    bytes.extend([0; 2]);
    bytes.extend(key_state);
    bytes
}

/// Encodes counts for the script.
fn counted(counts: &StreamCounts) -> Vec<u8> {
    let numbers = counts
        .numbers()
        .iter()
        .zip(0_u8..)
        .filter(|(number, _)| **number > 0);
    numbers
        .flat_map(|(number, index)| {
            [index]
                .into_iter()
                .chain((*number).min(COUNT_MAX).to_be_bytes())
        })
        .collect()
}
