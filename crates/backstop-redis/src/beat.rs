//! Heartbeats of workers.

use crate::begin::{by_queue, lost_leases};
use crate::claim::queues_of;
use crate::context::{StoreContext, readable};
use crate::link::CallPatience;
use crate::record::lease_bytes;
use crate::reply;
use crate::script::{BEAT, ScriptCall};
use backstop_core::lease::longest_lease_end;
use backstop_core::port::{BeatRequest, BeatResult, StoreResult};
use backstop_core::{Lease, QueueName, Time};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DOING: &str = "beating";
/// The most leases of one script call: while a script runs, the server does nothing else.
const LEASES_AT_ONCE: usize = 2_000;
const SIGN_TIME_MAX: Duration = Duration::from_secs(1);

/// Renews the leases of claims, and returns the lost ones.
pub(crate) async fn beat(
    base: &StoreContext,
    beat: &BeatRequest,
    now: Time,
) -> StoreResult<BeatResult> {
    let queues = by_queue(&beat.leases);
    let slices = queues.iter().flat_map(|(queue, leases)| {
        leases
            .chunks(LEASES_AT_ONCE)
            .map(move |slice| (*queue, slice))
    });
    let slices: Vec<(&QueueName, &[&Lease])> = slices.collect();
    let calls = slices.iter().map(|(queue, leases)| {
        let mut call = extension(base, queue, beat, now, &[]);
        for lease in *leases {
            call.push(&lease_bytes(lease));
        }
        call
    });
    // A heartbeat has a shorter timeout than other calls, because the leases on other shards keep
    // running.
    let patience = CallPatience::Within(beat.until.since(now));
    let answers = base
        .run_apart_within(DOING, calls.collect(), patience)
        .await?;
    let (mut lost, mut alive, mut unanswered) =
        (Vec::new(), LiveClaims::default(), BTreeSet::new());
    for ((queue, _), answer) in slices.iter().zip(answers) {
        match answer {
            Some(answer) => lost.extend(readable(DOING, alive.learn(queue, answer))?),
            None => drop(unanswered.insert((*queue).clone())),
        }
    }
    let elsewhere = alive
        .elsewhere()
        .into_iter()
        .filter(|(queue, _)| !unanswered.contains(queue));
    let calls = elsewhere.map(|(queue, numbers)| {
        let numbers: Vec<&[u8]> = numbers.into_iter().collect();
        extension(base, &queue, beat, now, &numbers)
    });
    let extending = base.run_each_within(DOING, calls.collect(), patience);
    let (extended, signed) = tokio::join!(extending, sign(base, beat, now, patience));
    match extended {
        // The named leases are renewed. If this worker has leases in those queues, its heartbeats
        // name them.
        Err(error) if base.link.is_cluster() && error.is_transient() => {
            tracing::debug!(%error, "a claim is not kept alive in queues that do not answer");
        }
        extended => drop(extended?),
    }
    signed?;
    Ok(BeatResult {
        lost,
        unanswered: unanswered.into_iter().collect(),
    })
}

/// Records the heartbeat of the worker, so that it is listed as live. A full Redis may refuse that
/// write; the leases were renewed before, and they matter more.
async fn sign(
    base: &StoreContext,
    beat: &BeatRequest,
    now: Time,
    patience: CallPatience,
) -> StoreResult<()> {
    let sign = sign_of_life(base, beat, now);
    let signing = base.link.ask_within(DOING, &sign, patience);
    if beat.leases.is_empty() {
        return signing.await.map(drop);
    }
    if !matches!(
        tokio::time::timeout(SIGN_TIME_MAX, signing).await,
        Ok(Ok(_))
    ) {
        tracing::warn!("Redis does not list this worker as alive; its leases are kept");
    }
    Ok(())
}

fn sign_of_life(base: &StoreContext, beat: &BeatRequest, now: Time) -> redis::Cmd {
    let queues: Vec<&str> = beat.queues.iter().map(QueueName::as_str).collect();
    let mut command = redis::cmd("HSET");
    command.arg(base.keys.workers()).arg(beat.worker.as_str());
    command.arg(format!("{}\n{}", now.as_micros(), queues.join(",")));
    command
}

/// A call that renews these claims, and the claims of the leases that are added to it.
fn extension(
    base: &StoreContext,
    queue: &QueueName,
    beat: &BeatRequest,
    now: Time,
    numbers: &[&[u8]],
) -> ScriptCall {
    let kept = longest_lease_end(beat.until, now).as_micros();
    let mut call = base
        .script(&BEAT, queue)
        .arg(beat.until.as_micros())
        .arg(kept)
        .arg(numbers.len());
    for number in numbers {
        call.push(number);
    }
    call
}

/// Claims that are live: the queues in which their leases were named, and all their queues.
#[derive(Default)]
struct LiveClaims(BTreeMap<Vec<u8>, ClaimQueues>);

#[derive(Default)]
struct ClaimQueues {
    named: BTreeSet<QueueName>,
    all: BTreeSet<QueueName>,
}

impl LiveClaims {
    /// Reads a reply; returns the lost leases.
    fn learn(&mut self, queue: &QueueName, answer: Value) -> Option<Vec<Lease>> {
        let mut parts = reply::list(answer)?.into_iter();
        let lost = lost_leases(queue, &reply::bytes(parts.next()?)?)?;
        while let (Some(number), Some(holder)) = (parts.next(), parts.next()) {
            let reach = self.0.entry(reply::bytes(number)?).or_default();
            reach.named.insert(queue.clone());
            reach.all.extend(queues_of(&reply::text(holder)?));
        }
        Some(lost)
    }

    /// The claims to renew in queues where none of their leases was named.
    fn elsewhere(&self) -> BTreeMap<QueueName, BTreeSet<&[u8]>> {
        let mut elsewhere: BTreeMap<QueueName, BTreeSet<&[u8]>> = BTreeMap::new();
        for (number, reach) in &self.0 {
            for queue in reach.all.difference(&reach.named) {
                elsewhere.entry(queue.clone()).or_default().insert(number);
            }
        }
        elsewhere
    }
}
