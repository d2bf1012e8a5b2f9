//! Notes the beginning of runs where a seizer finds it.

use crate::context::{StoreContext, readable};
use crate::record::{MEMBER_BYTES, id_of, lease_bytes, number_of};
use crate::reply;
use crate::script::BEGIN;
use backstop_core::port::StoreResult;
use backstop_core::{Lease, QueueName};
use std::collections::BTreeMap;

const DOING: &str = "noting that runs begin";

/// Notes that runs have begun, and returns the lost leases.
pub(crate) async fn begin(base: &StoreContext, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let queues = by_queue(leases);
    let calls = queues.iter().map(|(queue, leases)| {
        let mut call = base.script(&BEGIN, queue);
        for lease in leases {
            call.push(&lease_bytes(lease));
        }
        call
    });
    let answers = base.run_each(DOING, calls.collect()).await?;
    let mut lost = Vec::new();
    for (queue, answer) in queues.keys().zip(answers) {
        lost.extend(readable(
            DOING,
            reply::bytes(answer).and_then(|bytes| lost_leases(queue, &bytes)),
        )?);
    }
    Ok(lost)
}

/// The leases of each queue.
pub(crate) fn by_queue(leases: &[Lease]) -> BTreeMap<&QueueName, Vec<&Lease>> {
    let mut queues: BTreeMap<&QueueName, Vec<&Lease>> = BTreeMap::new();
    for lease in leases {
        queues.entry(&lease.queue).or_default().push(lease);
    }
    queues
}

/// Decodes the leases that a script reported as lost.
pub(crate) fn lost_leases(queue: &QueueName, bytes: &[u8]) -> Option<Vec<Lease>> {
    let lease = |bytes: &[u8]| {
        Some(Lease {
            queue: queue.clone(),
            job: id_of(&bytes[..16])?,
            number: number_of(&bytes[16..])?,
        })
    };
    bytes.chunks_exact(MEMBER_BYTES).map(lease).collect()
}
