//! What dead workers left behind. Which claims expired first is seen over all queues; each queue then hands over its own.

use crate::base::{Base, readable};
use crate::claim::{HandedOut, handed_out, holder};
use crate::record::{number_bytes, number_of};
use crate::reply;
use crate::script::{EXPIRED, SEIZE};
use backstop_core::limits::{LEASE_ASKED_MAX, SEIZE_MAX};
use backstop_core::port::{Answer, Seize, Seized};
use backstop_core::verdict::Vanished;
use backstop_core::{Lease, QueueName, Time, WorkerName};
use redis::Value;
use std::collections::BTreeMap;

const DOING: &str = "seizing";
/// Bytes of a lease before its place.
const PLACE_AT: usize = 18;

/// Takes over jobs of expired claims; what the same call took before, if it is repeated.
pub(crate) async fn seize(base: &Base, seize: &Seize, now: Time) -> Answer<Vec<Seized>> {
    let queues = base.queues_known(DOING).await?;
    let far = now.after(LEASE_ASKED_MAX).as_micros();
    let max = seize.max.min(SEIZE_MAX);
    let looks = queues.iter().map(|queue| {
        let call = base.script(&EXPIRED, queue).arg(now.as_micros()).arg(far);
        call.arg(&number_bytes(seize.number)[..]).arg(max)
    });
    let (mut held, mut expired) = (Vec::new(), Vec::new());
    for (queue, answer) in queues.iter().zip(base.run_apart(DOING, looks.collect()).await?) {
        let Some(answer) = answer else { continue };
        let (is_open, claims) = readable(DOING, read_expired(queue, answer))?;
        held.extend(is_open.then_some(queue));
        expired.extend(claims);
    }
    let plan = if held.is_empty() {
        plan(expired, max)
    } else {
        held.into_iter().map(|queue| (queue, Vec::new())).collect()
    };
    take_over(base, seize, now, &plan).await
}

/// A claim whose worker stopped beating, in one queue.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Expired<'a> {
    until_micros: i64,
    number: Vec<u8>,
    queue: &'a QueueName,
    jobs: usize,
}

/// From which queue to take how many of which claims.
type Plan<'a> = BTreeMap<&'a QueueName, Vec<(Vec<u8>, usize)>>;

/// The earliest claims first, and of the last one no more than there is room for. One that holds nothing is closed
/// by being asked.
fn plan(mut expired: Vec<Expired<'_>>, max: usize) -> Plan<'_> {
    expired.sort_unstable();
    let (mut plan, mut room) = (Plan::new(), max);
    for claim in expired {
        if room == 0 {
            break;
        }
        let taken = claim.jobs.min(room);
        room -= taken;
        plan.entry(claim.queue).or_default().push((claim.number, taken));
    }
    plan
}

async fn take_over(base: &Base, seize: &Seize, now: Time, plan: &Plan<'_>) -> Answer<Vec<Seized>> {
    let holder = holder(&seize.worker, plan.keys().copied());
    let calls = plan.iter().map(|(queue, claims)| {
        let mut call = base
            .script(&SEIZE, queue)
            .arg(&number_bytes(seize.number)[..])
            .arg(&holder)
            .arg(seize.until.as_micros())
            .arg(now.as_micros())
            .arg(now.after(LEASE_ASKED_MAX).as_micros());
        for (number, max) in claims {
            call.push(number);
            call.push(max.to_string().as_bytes());
        }
        call
    });
    let answers = base.run_apart(DOING, calls.collect()).await?;
    let mut seized = Vec::new();
    for (queue, answer) in plan.keys().zip(answers) {
        let Some(answer) = answer else { continue };
        let runs = readable(DOING, handed_out(queue, seize.number, answer))?;
        seized.extend(runs.into_iter().filter_map(seized_run));
    }
    Ok(seized)
}

fn read_expired(queue: &QueueName, answer: Value) -> Option<(bool, Vec<Expired<'_>>)> {
    let mut parts = reply::list(answer)?.into_iter();
    let is_open = reply::whole(parts.next()?)? != 0;
    let mut claims = Vec::new();
    while let (Some(number), Some(until), Some(jobs)) = (parts.next(), parts.next(), parts.next()) {
        let jobs = usize::try_from(reply::whole(jobs)?).unwrap_or_default();
        let number = reply::bytes(number)?;
        claims.push(Expired { until_micros: reply::whole(until)?, number, queue, jobs });
    }
    Some((is_open, claims))
}

/// A job under its new lease; the old one stands behind a bar.
fn seized_run(run: HandedOut) -> Option<Seized> {
    let lease = run.lease?;
    let behind = lease.get(PLACE_AT..)?;
    let bar = PLACE_AT + behind.iter().position(|byte| *byte == b'|')?;
    let former = lease.get(bar + 1..)?;
    let (number, begun, worker) = (former.get(..8)?, former.get(8)?, former.get(9..)?);
    let worker = WorkerName::new(&String::from_utf8_lossy(worker));
    let former = Lease { number: number_of(number)?, ..run.leased.lease.clone() };
    Some(Seized { run: run.leased, vanished: Vanished { worker, lease: former }, begun: *begun == b'1' })
}
