//! The raw limit of Redis: bodies in a hash, ids in a list, leases in a sorted set, one script to
//! claim and one to complete.
//!
//! A lease and a fenced completion that is counted, but no states, no retries, no history, no
//! priorities, and nothing that recognises a job pushed twice.

use super::super::BenchArgs;
use super::super::bench_store::BenchStore;
use super::super::figures::{BenchRate, median_time};
use super::super::measure::payload;
use super::super::server::{self, BenchRedisConnection};
use super::{RawRates, id};
use anyhow::{Result, ensure};
use redis::aio::ConnectionLike;
use redis::{Pipeline, Script};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// KEYS: ready, bodies, running. ARGV: how many, until when.
const CLAIM: &str = "
    local ids = redis.call('LPOP', KEYS[1], ARGV[1])
    if not ids then return {{}, {}} end
    local leases = {}
    for at, id in ipairs(ids) do
        leases[2 * at - 1] = ARGV[2]
        leases[2 * at] = id
    end
    redis.call('ZADD', KEYS[3], unpack(leases))
    return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}";
/// KEYS: bodies, running, done. ARGV: ids.
const COMPLETE: &str = "
    local ended = redis.call('ZREM', KEYS[2], unpack(ARGV))
    redis.call('HDEL', KEYS[1], unpack(ARGV))
    redis.call('INCRBY', KEYS[3], ended)
    return ended";

/// Batches of jobs under way at once, as where backstop is measured.
const INSERTERS: usize = 2;
/// Loops that claim and complete.
const DRAINERS: usize = 4;
/// Jobs of one batch that is inserted.
const BATCH: usize = 1_000;
/// Jobs of one claim: larger ones keep the server from everybody else for longer and gain nothing.
const CLAIM_BATCH: usize = 250;
/// Single pushes whose time is taken.
const PUSHES: usize = 200;

/// Measures under keys of its own; `None` where only the store knows how to reach the server.
pub(super) async fn measure(place: &BenchStore, args: &BenchArgs) -> Result<Option<RawRates>> {
    Ok(match server::connect_redis(place.named()).await? {
        BenchRedisConnection::One(connection) => Some(measure_on(connection, place, args).await?),
        BenchRedisConnection::Cluster(connection) => {
            Some(measure_on(connection, place, args).await?)
        }
        BenchRedisConnection::Unknown => None,
    })
}

/// What the loops need of a connection: to be shared by tasks.
trait RawRedisConnection: ConnectionLike + Clone + Send + Sync + 'static {}
impl<C: ConnectionLike + Clone + Send + Sync + 'static> RawRedisConnection for C {}

async fn measure_on(
    mut connection: impl RawRedisConnection,
    place: &BenchStore,
    args: &BenchArgs,
) -> Result<RawRates> {
    let keys = RawRedisKeys::under(&place.raw_name());
    keys.unlink(&mut connection).await?;
    let bulk = bulk(&connection, &keys, args.jobs()).await?;
    let cycle = cycle(&connection, &keys, bulk.count).await?;
    let commit = push_time(&mut connection, &keys).await?;
    let callers = callers(
        &connection,
        &keys,
        (args.jobs() / 4).max(args.callers),
        args.callers,
    )
    .await?;
    keys.unlink(&mut connection).await?;
    Ok(RawRates {
        bulk,
        callers,
        lone: None,
        grouped: None,
        cycle,
        engine: None,
        commit,
    })
}

/// The keys of one queue: all in one slot of a cluster.
#[derive(Clone)]
struct RawRedisKeys {
    ready: String,
    bodies: String,
    running: String,
    done: String,
}

impl RawRedisKeys {
    fn under(name: &str) -> Self {
        let key = |part: &str| format!("{{{name}}}:{part}");
        Self {
            ready: key("ready"),
            bodies: key("bodies"),
            running: key("running"),
            done: key("done"),
        }
    }

    /// Unlinked, not deleted: a large key would keep the server from everybody else.
    async fn unlink(&self, connection: &mut impl RawRedisConnection) -> Result<()> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&[&self.ready, &self.bodies, &self.running, &self.done]);
        Ok(unlink.query_async::<()>(connection).await?)
    }

    /// Bodies and ids of some jobs, in one trip.
    fn push(&self, numbers: std::ops::Range<usize>) -> Pipeline {
        let jobs: Vec<(Vec<u8>, Vec<u8>)> = numbers
            .map(|n| (id(n).as_bytes().to_vec(), payload(n)))
            .collect();
        let mut pipeline = redis::pipe();
        let bodies = pipeline.cmd("HSET").arg(&self.bodies);
        for (id, payload) in &jobs {
            bodies.arg(id).arg(payload);
        }
        let ready = bodies.ignore().cmd("RPUSH").arg(&self.ready);
        for (id, _) in &jobs {
            ready.arg(id);
        }
        ready.ignore();
        pipeline
    }
}

async fn bulk(
    connection: &impl RawRedisConnection,
    keys: &RawRedisKeys,
    jobs: usize,
) -> Result<BenchRate> {
    let per_inserter = (jobs / INSERTERS).div_ceil(BATCH);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for inserter in 0..INSERTERS {
        let (mut connection, keys) = (connection.clone(), keys.clone());
        tasks.spawn(async move {
            for batch in 0..per_inserter {
                let first = (inserter * per_inserter + batch) * BATCH;
                keys.push(first..first + BATCH)
                    .query_async::<()>(&mut connection)
                    .await?;
            }
            Ok(0)
        });
    }
    finish(tasks).await?;
    Ok(BenchRate::of(
        per_inserter * INSERTERS * BATCH,
        started.elapsed(),
    ))
}

async fn cycle(
    connection: &impl RawRedisConnection,
    keys: &RawRedisKeys,
    jobs: usize,
) -> Result<BenchRate> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..DRAINERS {
        tasks.spawn(drain(connection.clone(), keys.clone()));
    }
    let done = finish(tasks).await?;
    ensure!(done == jobs, "the raw loop completed {done} of {jobs} jobs");
    Ok(BenchRate::of(done, started.elapsed()))
}

/// Claims and completes until nothing is left.
async fn drain(mut connection: impl RawRedisConnection, keys: RawRedisKeys) -> Result<usize> {
    let (claim, complete) = (Script::new(CLAIM), Script::new(COMPLETE));
    let mut done = 0;
    loop {
        let mut claiming = claim.prepare_invoke();
        claiming
            .key(&keys.ready)
            .key(&keys.bodies)
            .key(&keys.running)
            .arg(CLAIM_BATCH)
            .arg(i64::MAX);
        let (ids, bodies): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            claiming.invoke_async(&mut connection).await?;
        if ids.is_empty() {
            return Ok(done);
        }
        ensure!(ids.len() == bodies.len(), "a raw job has no body");
        let mut completing = complete.prepare_invoke();
        completing
            .key(&keys.bodies)
            .key(&keys.running)
            .key(&keys.done)
            .arg(ids);
        done += completing.invoke_async::<usize>(&mut connection).await?;
    }
}

/// The median time of pushing a single job.
async fn push_time(
    connection: &mut impl RawRedisConnection,
    keys: &RawRedisKeys,
) -> Result<Duration> {
    let mut times = Vec::with_capacity(PUSHES);
    for n in 0..PUSHES {
        let started = Instant::now();
        keys.push(n..n + 1).query_async::<()>(connection).await?;
        times.push(started.elapsed());
    }
    Ok(median_time(times))
}

async fn callers(
    connection: &impl RawRedisConnection,
    keys: &RawRedisKeys,
    jobs: usize,
    callers: usize,
) -> Result<BenchRate> {
    let per_caller = jobs / callers;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (mut connection, keys) = (connection.clone(), keys.clone());
        tasks.spawn(async move {
            for n in caller * per_caller..(caller + 1) * per_caller {
                keys.push(n..n + 1)
                    .query_async::<()>(&mut connection)
                    .await?;
            }
            Ok(0)
        });
    }
    finish(tasks).await?;
    Ok(BenchRate::of(per_caller * callers, started.elapsed()))
}

/// The sum of what all of them answered.
async fn finish(mut tasks: JoinSet<Result<usize>>) -> Result<usize> {
    let mut sum = 0;
    while let Some(task) = tasks.join_next().await {
        sum += task??;
    }
    Ok(sum)
}
