//! Workers as their beats show them.

use crate::base::{Base, readable};
use crate::keys::Part;
use crate::reply;
use backstop_core::limits::{EXPIRED_COUNTED_MAX, WORKER_KEPT_FOR};
use backstop_core::port::{Answer, ExpiredLeases, WorkerStatus};
use backstop_core::{QueueName, Span, Time, WorkerName};
use redis::{Cmd, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const DOING: &str = "listing workers";

/// All workers that beat within `within`, by name.
pub(crate) async fn workers(base: &Base, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
    let running = running(base).await?;
    let signs = signs(base).await?.into_iter();
    let alive = signs.filter(|(_, sign)| now.since(sign.seen_at) <= within);
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

/// The claims that ended before this time and that nobody has taken over, of each queue.
pub(crate) async fn expired_leases(base: &Base, before: Time) -> Answer<ExpiredLeases> {
    const DOING: &str = "counting expired leases";
    let queues = base.queues_known(DOING).await?;
    let ask = |queue: &QueueName| {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command
            .arg(base.keys.part(queue, Part::Terms))
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

/// When these workers were last heard of; nothing of those that never were.
pub(crate) async fn seen_of<'a>(
    base: &Base,
    workers: &BTreeSet<&'a str>,
) -> Answer<BTreeMap<&'a str, Time>> {
    let mut command = redis::cmd("HMGET");
    command.arg(base.keys.workers());
    for worker in workers {
        command.arg(*worker);
    }
    let signs = readable(DOING, reply::list(base.link.ask(DOING, &command).await?))?;
    let seen = |sign: Value| sign_of(&reply::text(sign)?).map(|sign| sign.seen_at);
    let heard = workers
        .iter()
        .zip(signs)
        .filter(|(_, sign)| *sign != Value::Nil);
    readable(
        DOING,
        heard
            .map(|(worker, sign)| Some((*worker, seen(sign)?)))
            .collect(),
    )
}

/// Forgets workers that were silent for long.
pub(crate) async fn forget_silent(base: &Base, now: Time) -> Answer<()> {
    let signs = signs(base).await?.into_iter();
    let silent: Vec<String> = signs
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

struct Sign {
    seen_at: Time,
    queues: Vec<QueueName>,
}

async fn signs(base: &Base) -> Answer<BTreeMap<String, Sign>> {
    let answer = base
        .link
        .ask(DOING, redis::cmd("HGETALL").arg(base.keys.workers()))
        .await?;
    let pairs = readable(DOING, reply::pairs(answer))?.into_iter();
    let signs = pairs.map(|(name, text)| {
        Some((
            String::from_utf8(name).ok()?,
            sign_of(std::str::from_utf8(&text).ok()?)?,
        ))
    });
    readable(DOING, signs.collect())
}

fn sign_of(text: &str) -> Option<Sign> {
    let (seen_at, queues) = text.split_once('\n')?;
    let queues = queues
        .split(',')
        .filter_map(|queue| QueueName::new(queue).ok())
        .collect();
    Some(Sign {
        seen_at: Time::from_micros(seen_at.parse().ok()?),
        queues,
    })
}

/// How many jobs each worker holds, over all queues.
async fn running(base: &Base) -> Answer<HashMap<String, u64>> {
    let queues = base.queues(DOING).await?;
    let whole = |part| {
        let command = |queue: &QueueName| {
            redis::cmd("HGETALL")
                .arg(base.keys.part(queue, part))
                .clone()
        };
        base.ask_each(DOING, queues.iter().map(command).collect::<Vec<Cmd>>())
    };
    let (claims, left) = (whole(Part::Claims).await?, whole(Part::Left).await?);
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
