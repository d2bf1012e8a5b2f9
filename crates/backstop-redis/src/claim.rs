//! Claims ready jobs.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::link::CallPatience;
use crate::record::{self, RedisJobRecord, number_bytes};
use crate::reply;
use crate::script::CLAIM;
use backstop_core::plan::claim_bytes_of_each;
use backstop_core::port::{Claim, ClaimResult, StoreResult};
use backstop_core::{Lease, LeaseNumber, LeasedRun, QueueName, Time, WorkerName};
use redis::Value;
use std::collections::BTreeMap;

const DOING: &str = "claiming";

/// Hands out ready jobs, queue by queue. A repeated claim returns the jobs it still holds.
pub(crate) async fn claim(
    base: &StoreContext,
    claim: &Claim,
    now: Time,
) -> StoreResult<ClaimResult> {
    let mut wants: BTreeMap<&QueueName, usize> = BTreeMap::new();
    for want in &claim.wants {
        *wants.entry(&want.queue).or_default() += want.max;
    }
    let holder = holder(&claim.worker, now, wants.keys().copied());
    // A claim of one queue detects a repetition in its script. With several queues, a repeated
    // claim must not get new jobs from a queue where all its jobs are settled while it holds jobs
    // in another.
    let (mut repeated, mut unanswered) = (false, Vec::new());
    if wants.len() > 1 {
        let looked = look(base, wants.keys(), claim.number).await?;
        repeated = looked.contains(&Some(true));
        // Do not claim from queues that did not answer: the others would wait for them a second
        // time.
        let silent = wants.keys().zip(looked).filter(|(_, open)| open.is_none());
        unanswered.extend(silent.map(|(queue, _)| (*queue).clone()));
        wants.retain(|queue, _| !unanswered.contains(*queue));
    }
    let bytes_of_each = claim_bytes_of_each(claim.wants.len());
    let calls = wants.iter().map(|(queue, max)| {
        let max = if repeated { 0 } else { *max };
        let call = base
            .script(&CLAIM, queue)
            .arg(&number_bytes(claim.number)[..])
            .arg(&holder);
        call.arg(claim.until.as_micros())
            .arg(max)
            .arg(bytes_of_each)
    });
    // If part of a cluster is unreachable, the other queues still hand out their jobs. This also
    // applies to a claim of one queue, because its worker has other queues to claim from.
    let patience = CallPatience::Within(claim.until.since(now));
    let answers = base
        .run_apart_within(DOING, calls.collect(), patience)
        .await?;
    let mut runs = Vec::new();
    for (queue, answer) in wants.keys().zip(answers) {
        let Some(answer) = answer else {
            unanswered.push((*queue).clone());
            continue;
        };
        let handed_out = readable(DOING, handed_out(queue, claim.number, answer))?;
        runs.extend(handed_out.into_iter().map(|run| run.leased));
    }
    Ok(ClaimResult { runs, unanswered })
}

/// Whether this claim holds a job in each of these queues; `None` for a queue that did not answer.
async fn look<'a>(
    base: &StoreContext,
    queues: impl Iterator<Item = &'a &'a QueueName>,
    number: LeaseNumber,
) -> StoreResult<Vec<Option<bool>>> {
    let commands = queues.map(|queue| {
        let mut command = redis::cmd("ZSCORE");
        command
            .arg(base.keys.part(queue, QueueKey::Terms))
            .arg(&number_bytes(number)[..]);
        command
    });
    let scores = base.ask_apart(DOING, commands.collect()).await?;
    Ok(scores
        .into_iter()
        .map(|score| score.map(|score| score != Value::Nil))
        .collect())
}

/// The holder of a claim as scripts store it: the time of the claim, its queues, its worker. It
/// names all queues of the claim, because a heartbeat in one queue must extend the claim in the
/// others.
pub(crate) fn holder<'a>(
    worker: &WorkerName,
    since: Time,
    queues: impl Iterator<Item = &'a QueueName>,
) -> String {
    let queues: Vec<&str> = queues.map(QueueName::as_str).collect();
    format!("{} {}\n{worker}", since.as_micros(), queues.join(","))
}

/// The queues that a stored holder names.
pub(crate) fn queues_of(holder: &str) -> impl Iterator<Item = QueueName> {
    let claim = holder.split('\n').next().unwrap_or_default();
    let queues = claim.split_once(' ').map_or("", |(_, queues)| queues);
    queues
        .split(',')
        .filter_map(|queue| QueueName::new(queue).ok())
}

/// A claimed job, and its lease as Redis stores it, if the script returned that.
pub(crate) struct ClaimedRecord {
    pub(crate) leased: LeasedRun,
    pub(crate) lease: Option<Vec<u8>>,
}

/// Decodes the jobs in the reply of a script.
pub(crate) fn handed_out(
    queue: &QueueName,
    number: LeaseNumber,
    answer: Value,
) -> Option<Vec<ClaimedRecord>> {
    let mut parts = reply::list(answer)?.into_iter();
    let Some(ids) = parts.next() else {
        return Some(Vec::new());
    };
    let ids = reply::bytes(ids)?;
    let (records, payloads) = (reply::list(parts.next()?)?, reply::list(parts.next()?)?);
    let mut histories = histories(parts.next()?)?;
    let mut leases = parts
        .next()
        .and_then(reply::list)
        .unwrap_or_default()
        .into_iter();
    let mut runs = Vec::with_capacity(records.len());
    for (at, ((id, record), payload)) in ids.chunks_exact(16).zip(records).zip(payloads).enumerate()
    {
        let lease = leases.next().and_then(reply::bytes);
        // A place without a record is damage; the script has already removed it.
        let Some(record) = reply::bytes(record) else {
            continue;
        };
        let right = Lease {
            queue: queue.clone(),
            job: record::id_of(id)?,
            number,
        };
        let apart = reply::bytes(payload);
        let leased =
            RedisJobRecord::parse(&record)?.leased(right, apart, histories.remove(&(at + 1)))?;
        runs.push(ClaimedRecord { leased, lease });
    }
    Some(runs)
}

/// The failure histories in a reply, by the number of the job in that reply, counted from 1.
fn histories(value: Value) -> Option<BTreeMap<usize, Vec<u8>>> {
    let mut values = reply::list(value)?.into_iter();
    let mut histories = BTreeMap::new();
    while let (Some(at), Some(history)) = (values.next(), values.next()) {
        histories.extend(
            reply::bytes(history)
                .map(|history| Some((whole(at)?, history)))
                .into_iter()
                .flatten(),
        );
    }
    Some(histories)
}

fn whole(value: Value) -> Option<usize> {
    usize::try_from(reply::whole(value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_names_its_queues_whatever_its_worker_is_called() {
        let queues = ["a", "b.c"].map(|name| QueueName::new(name).expect("a name"));
        let holder = holder(
            &WorkerName::new("host\n7 d,e"),
            Time::from_micros(1_234),
            queues.iter(),
        );
        assert_eq!(holder, "1234 a,b.c\nhost\n7 d,e");
        assert_eq!(queues_of(&holder).collect::<Vec<_>>(), queues);
    }
}
