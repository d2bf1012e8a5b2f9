//! Stores new dead letters.

use crate::context::StoreContext;
use crate::enqueue_reply::take_in;
use crate::record;
use crate::script::{BURY, ScriptCall};
use backstop_core::bounds::DEAD_MAX_DEFAULT;
use backstop_core::limits::ENQUEUE_BYTES_MAX;
use backstop_core::port::{EnqueueOutcome, NewDeadLetter, StoreResult};
use backstop_core::{JobId, QueueName};
use std::collections::BTreeMap;

const DOING: &str = "burying";

/// A burial, with its number in the call and its arrival.
type NumberedBurial<'a> = (usize, i64, &'a NewDeadLetter);

/// Stores dead letters, queue by queue.
pub(crate) async fn bury(
    base: &StoreContext,
    burials: &[NewDeadLetter],
) -> StoreResult<Vec<EnqueueOutcome>> {
    if burials.is_empty() {
        return Ok(Vec::new());
    }
    base.eviction_check.check(&base.link, DOING).await?;
    let arrivals = base
        .arrivals
        .draw(burials.len(), base.link.clock_offset_micros());
    let mut queues: BTreeMap<&QueueName, Vec<NumberedBurial<'_>>> = BTreeMap::new();
    for ((at, burial), arrival) in burials.iter().enumerate().zip(arrivals) {
        queues
            .entry(&burial.job.queue)
            .or_default()
            .push((at, arrival, burial));
    }
    base.register(DOING, &queues.keys().copied().collect::<Vec<_>>())
        .await?;
    let mut answers = vec![EnqueueOutcome::Same; burials.len()];
    for (queue, burials) in queues {
        for slice in slices(&burials) {
            let ids: Vec<JobId> = slice.iter().map(|(.., burial)| burial.job.id).collect();
            let call = |chosen: &[usize]| call(base, queue, chosen.iter().map(|at| slice[*at]));
            let taken = take_in(base, DOING, queue, &ids, call).await?;
            for ((at, ..), answer) in slice.iter().zip(taken) {
                answers[*at] = answer;
            }
        }
    }
    Ok(answers)
}

/// Cuts burials into slices that are as large as an enqueue may be; each has at least one.
fn slices<'a, 'b>(burials: &'b [NumberedBurial<'a>]) -> Vec<&'b [NumberedBurial<'a>]> {
    let (mut slices, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, (.., burial)) in burials.iter().enumerate() {
        let more = burial.job.payload.len() + burial.history.as_bytes().map_or(0, <[u8]>::len);
        if at > from && bytes + more > ENQUEUE_BYTES_MAX {
            slices.push(&burials[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    slices.push(&burials[from..]);
    slices
}

fn call<'a>(
    base: &StoreContext,
    queue: &QueueName,
    burials: impl Iterator<Item = NumberedBurial<'a>>,
) -> ScriptCall {
    let mut call = base.script(&BURY, queue).arg(DEAD_MAX_DEFAULT);
    for (arrival, burial) in burials.map(|(_, arrival, burial)| (arrival, burial)) {
        call.push(&record::member(arrival, burial.job.id));
        let packed = record::pack_burial(burial, arrival);
        call.push(&packed.record);
        call.push(&packed.payload);
        call.push(burial.history.as_bytes().unwrap_or_default());
        call.push(&record::fingerprint_bytes(burial.fingerprint()));
    }
    call
}
