//! Workers, as their heartbeats show them.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::reply;
use backstop_core::limits::{EXPIRED_COUNTED_MAX, WORKER_KEPT_FOR};
use backstop_core::port::{ExpiredLeases, StoreResult, WorkerStatus};
use backstop_core::{QueueName, Span, Time, WorkerName};
use redis::{Cmd, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const DOING: &str = "listing workers";

/// All workers whose last heartbeat is at most `within` old, by name.
pub(crate) async fn workers(
    base: &StoreContext,
    within: Span,
    now: Time,
) -> StoreResult<Vec<WorkerStatus>> {
    let running = running(base).await?;
    let stored_heartbeats = stored_heartbeats(base).await?.into_iter();
    let alive = stored_heartbeats.filter(|(_, sign)| now.since(sign.seen_at) <= within);
    Ok(alive
        .map(|(name, sign)| {
            let running = running.get(&name).copied().unwrap_or_default();
            let name = WorkerName::new(&name);
            WorkerStatus {
                name,
                queues: sign.queues,
                seen_at: sign.seen_at,
                running,
            }
        })
        .collect())
}

/// The claims of each queue that expired before this time and that no worker has seized.
pub(crate) async fn expired_leases(
    base: &StoreContext,
    before: Time,
) -> StoreResult<ExpiredLeases> {
    const DOING: &str = "counting expired leases";
    let queues = base.queues_known(DOING).await?;
    let ask = |queue: &QueueName| {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command
            .arg(base.keys.part(queue, QueueKey::Terms))
            .arg("-inf")
            .arg(format!("({}", before.as_micros()));
        command
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(0)
            .arg(EXPIRED_COUNTED_MAX);
        command
    };
    let mut expired = ExpiredLeases::default();
    for answer in base
        .ask_each(DOING, queues.iter().map(ask).collect())
        .await?
    {
        let claims = readable(DOING, reply::list(answer))?;
        expired.count = (expired.count + claims.len() / 2).min(EXPIRED_COUNTED_MAX);
        let first = claims
            .into_iter()
            .nth(1)
            .and_then(reply::text)
            .and_then(|score| score.parse::<f64>().ok());
        #[expect(
            clippy::cast_possible_truncation,
            reason = "scores are whole microseconds"
        )]
        let first = first.map(|micros| Time::from_micros(micros as i64));
        expired.first = expired.first.into_iter().chain(first).min();
    }
    Ok(expired)
}

/// The last heartbeat of each of these workers; a worker without one is left out.
pub(crate) async fn seen_of<'a>(
    base: &StoreContext,
    workers: &BTreeSet<&'a str>,
) -> StoreResult<BTreeMap<&'a str, Time>> {
    let mut command = redis::cmd("HMGET");
    command.arg(base.keys.workers());
    for worker in workers {
        command.arg(*worker);
    }
    let stored_heartbeats = readable(DOING, reply::list(base.link.ask(DOING, &command).await?))?;
    let seen = |sign: Value| parse_heartbeat(&reply::text(sign)?).map(|sign| sign.seen_at);
    let heard = workers
        .iter()
        .zip(stored_heartbeats)
        .filter(|(_, sign)| *sign != Value::Nil);
    readable(
        DOING,
        heard
            .map(|(worker, sign)| Some((*worker, seen(sign)?)))
            .collect(),
    )
}

/// Forgets workers that have sent no heartbeat for long.
pub(crate) async fn forget_silent(base: &StoreContext, now: Time) -> StoreResult<()> {
    let stored_heartbeats = stored_heartbeats(base).await?.into_iter();
    let silent: Vec<String> = stored_heartbeats
        .filter(|(_, sign)| now.since(sign.seen_at) > WORKER_KEPT_FOR)
        .map(|(name, _)| name)
        .collect();
    if silent.is_empty() {
        return Ok(());
    }
    base.link
        .ask(
            DOING,
            redis::cmd("HDEL").arg(base.keys.workers()).arg(silent),
        )
        .await
        .map(drop)
}

struct StoredHeartbeat {
    seen_at: Time,
    queues: Vec<QueueName>,
}

async fn stored_heartbeats(base: &StoreContext) -> StoreResult<BTreeMap<String, StoredHeartbeat>> {
    let answer = base
        .link
        .ask(DOING, redis::cmd("HGETALL").arg(base.keys.workers()))
        .await?;
    let pairs = readable(DOING, reply::pairs(answer))?.into_iter();
    let stored_heartbeats = pairs.map(|(name, text)| {
        Some((
            String::from_utf8(name).ok()?,
            parse_heartbeat(std::str::from_utf8(&text).ok()?)?,
        ))
    });
    readable(DOING, stored_heartbeats.collect())
}

fn parse_heartbeat(text: &str) -> Option<StoredHeartbeat> {
    let (seen_at, queues) = text.split_once('\n')?;
    let queues = queues
        .split(',')
        .filter_map(|queue| QueueName::new(queue).ok())
        .collect();
    Some(StoredHeartbeat {
        seen_at: Time::from_micros(seen_at.parse().ok()?),
        queues,
    })
}

/// How many jobs each worker runs, over all queues.
async fn running(base: &StoreContext) -> StoreResult<HashMap<String, u64>> {
    let queues = base.queues(DOING).await?;
    let whole = |part| {
        let command = |queue: &QueueName| {
            redis::cmd("HGETALL")
                .arg(base.keys.part(queue, part))
                .clone()
        };
        base.ask_each(DOING, queues.iter().map(command).collect::<Vec<Cmd>>())
    };
    let (claims, left) = (whole(QueueKey::Claims).await?, whole(QueueKey::Left).await?);
    let mut running = HashMap::new();
    for (claims, left) in claims.into_iter().zip(left) {
        let left: HashMap<Vec<u8>, Vec<u8>> =
            readable(DOING, reply::pairs(left))?.into_iter().collect();
        for (number, holder) in readable(DOING, reply::pairs(claims))? {
            let holder = String::from_utf8_lossy(&holder);
            let worker = holder
                .split_once('\n')
                .map(|(_, worker)| worker)
                .unwrap_or_default();
            let held = left
                .get(&number)
                .and_then(|held| std::str::from_utf8(held).ok()?.parse().ok());
            *running.entry(worker.to_owned()).or_default() += held.unwrap_or(0_u64);
        }
    }
    Ok(running)
}
